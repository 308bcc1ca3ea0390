import pytest

from boxes import box, found, incident, run, wire
from wiretax.judge.checks.collectives import check

PLACE = {"operation": "all_reduce", "num_bytes": 2**20, "world_size": 2}


def test_a_hang_names_rank_operation_wire_and_size():
    event = incident("hang", "wire:default", rank=1, gpu=3, wire="default", **PLACE)
    finding = found(check, run(box(2), event))["collective-hang"]
    assert finding.severity == "critical"
    for part in ("Rank 1", "GPU 3", "all_reduce", "default", "1 MiB"):
        assert part in finding.title


@pytest.mark.parametrize(("name", "severity"), [("socket", "problem"), ("gloo", "problem"), ("p2p_forced", "info"), ("clean", "critical")])
def test_a_hang_over_a_comparison_wire_is_less_grave(name, severity):
    event = incident("hang", f"wire:{name}", wire=name, **PLACE)
    assert found(check, run(box(2), event))["collective-hang"].severity == severity


def test_a_hang_outside_any_collective_is_a_hung_rank():
    assert list(found(check, run(box(2), incident("hang", "compute", rank=0)))) == ["rank-hung"]
    assert list(found(check, run(box(2), incident("hang", "start", operation="loading of libraries")))) == ["rank-hung"]


def test_several_ranks_of_one_hang_make_one_finding():
    events = [incident("hang", "wire:default", rank=rank, wire="default", **PLACE) for rank in range(4)]
    assert "Rank 0, 1, 2 and 3" in found(check, run(box(4), *events))["collective-hang"].title


def test_a_hang_of_the_peer_test_is_another_checks_business():
    assert found(check, run(box(2), incident("hang", "peer_truth", rank=0))) == {}


def test_a_dead_rank_is_named_with_its_signal():
    finding = found(check, run(box(2), incident("rank_died", "wire:default", rank=1, wire="default", signal=9, **PLACE)))["rank-died"]
    assert "signal 9" in finding.title and "memory" in finding.remedy


def test_a_failed_start_and_a_failed_measurement_are_told_apart():
    assert list(found(check, run(box(2), incident("start_failed", "start", detail="port in use")))) == ["start-failed"]
    assert list(found(check, run(box(2), incident("error", "copies", detail="out of memory")))) == ["measurement-error"]
    assert found(check, run(box(2), incident("error", "wire:default", wire="default")))["collective-error"].severity == "problem"
    assert found(check, run(box(2), incident("error", "wire:gloo", wire="gloo")))["collective-error"].severity == "warning"


def test_wrong_values_are_critical_on_the_users_wire():
    assert found(check, run(box(2), wire(verified=False)))["collective-wrong-data"].severity == "critical"
    assert found(check, run(box(2), wire("socket", 3, kind="socket", verified=False)))["collective-wrong-data"].severity == "problem"
    event = incident("wrong_data", "wire:default", wire="default", **PLACE)
    assert found(check, run(box(2), event))["collective-wrong-data"].severity == "critical"


@pytest.mark.parametrize("kind", ["out_of_time", "skipped"])
def test_a_spent_budget_is_no_fault(kind):
    assert found(check, run(box(2), wire(), incident(kind, "wire:socket", wire="socket"))) == {}


def test_unverified_data_is_not_called_wrong():
    assert found(check, run(box(2), wire(verified=None))) == {}

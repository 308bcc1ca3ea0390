from dataclasses import replace

import pytest

from boxes import box, found, gpu, run, unknown, wire, with_gpus
from wiretax.judge.checks.p2p_absent import check


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("GNS", "p2p-unsupported-gpu"),
        ("CNS", "p2p-unsupported-chipset"),
        ("TNS", "p2p-unsupported-topology"),
        ("DR", "p2p-disabled-by-registry"),
        ("NS", "p2p-unsupported"),
    ],
)
def test_each_refusal_of_the_driver_has_its_own_code_and_six_pairs_make_one_finding(code, finding):
    findings = found(check, run(box(4, "PHB", code)))
    assert list(findings) == [finding]
    assert "6 of 6 pairs" in findings[finding].title
    assert findings[finding].confidence == "certain"


def test_only_the_refused_pairs_are_listed():
    finding = found(check, run(box(4, p2p={(0, 1): "TNS"})))["p2p-unsupported-topology"]
    assert finding.evidence[0].text.startswith("0-1:")
    assert "1 of 6" in finding.title


def test_the_measured_price_of_going_through_host_memory_is_in_the_effect():
    finding = found(check, run(box(2, "PHB", "GNS"), wire(gigabytes=4.5, kind="staged")))["p2p-unsupported-gpu"]
    assert "4.50 GB/s" in finding.effect


@pytest.mark.parametrize("code", ["OK", "U", None])
def test_granted_unknown_and_unread_status_is_no_refusal(code):
    assert found(check, run(box(2, "PHB", code))) == {}


def test_a_geforce_of_the_40_series_is_told_that_no_stock_driver_ever_grants_it():
    machine = box(2, "PHB", "CNS", gpus=[gpu(k, name="NVIDIA GeForce RTX 4090") for k in range(2)])
    assert "stock driver" in found(check, run(machine))["p2p-unsupported-chipset"].remedy


def test_a_virtual_gpu_is_named_as_the_cause():
    machine = box(2, "PIX", "NS", gpus=[gpu(k, name="GRID A100-40C") for k in range(2)])
    assert list(found(check, run(machine))) == ["vgpu-p2p-limit"]


def test_a_wsl_host_is_named_as_the_cause():
    machine = box(2, "SYS", "NS", surroundings={"virtual_machine": "wsl2"})
    assert "WSL" in found(check, run(machine))["p2p-unsupported"].title


def test_slices_of_a_gpu_are_named_instead_of_what_the_driver_says_of_them():
    machine = with_gpus(box(2, "SYS", "NS"), gpu0={"mig": "enabled"}, gpu1={"mig": "enabled"})
    assert list(found(check, run(machine))) == ["mig-no-p2p"]


def test_a_refusal_between_gpus_joined_by_nvlink_is_critical():
    assert found(check, run(box(2, "NV4", "NS")))["p2p-unsupported"].severity == "critical"


def test_cuda_saying_no_where_the_matrix_is_silent_is_certain_of_the_fact_and_not_of_the_cause():
    machine = box(2, "PHB", None)
    machine = replace(machine, pairs=tuple(replace(pair, peer_access=False) for pair in machine.pairs))
    finding = found(check, run(machine))["p2p-unsupported"]
    assert "reason is not known" in finding.remedy


def test_nothing_is_said_of_a_machine_that_nobody_read():
    assert found(check, run(unknown(box(2)))) == {}
    assert found(check, run(None)) == {}

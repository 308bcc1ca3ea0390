"""When a check forces peer to peer, which may hang or corrupt: only after every pair was proven right (DESIGN 5)."""

from itertools import permutations

import pytest

from boxes import box, gpu, truth
from wiretax.errors import UsageError
from wiretax.jobs import check
from wiretax.jobs.stages import gpu_plan
from wiretax.launch.collect import Collected
from wiretax.model.measurement import Collective, Measurements


def why_not(count, truths, transport="SHM/direct"):
    """The reason not to force peer to peer on so many GPUs."""
    ids = tuple(range(count))
    (forced,) = (stage for stage in gpu_plan("default", ids, ids, {}).stages if stage.wire == "p2p_forced")
    series = Collective(
        backend="nccl", operation="all_reduce", wire="default", world_size=count, gpus=ids, mode="eager", transport=transport
    )
    return check._unwanted(forced, lambda: Collected(measurements=Measurements(collectives=(series,), peer_truth=tuple(truths))))


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_p2p_is_forced_when_every_pair_was_right_both_ways(count):
    assert why_not(count, [truth(*pair, "ok") for pair in permutations(range(count), 2)]) is None


@pytest.mark.parametrize("left_out", [1, 55])
def test_p2p_is_not_forced_while_a_pair_was_not_tried(left_out):
    pairs = list(permutations(range(8), 2))[left_out:]
    assert f"({left_out} pairs open)" in why_not(8, [truth(*pair, "ok") for pair in pairs])


@pytest.mark.parametrize("outcome", ["wrong_data", "hang", "error", "not_run"])
def test_p2p_is_not_forced_where_one_pair_failed(outcome):
    truths = [truth(source, target, outcome if (source, target) == (1, 0) else "ok") for source, target in permutations(range(4), 2)]
    assert "not proven right" in why_not(4, truths)


def test_p2p_is_not_forced_without_any_proof_or_where_nccl_takes_it_anyway():
    assert why_not(2, []) == "peer copies were not proven right"
    assert "not staged" in why_not(2, [truth(0, 1, "ok"), truth(1, 0, "ok")], transport="P2P/CUMEM")


@pytest.mark.parametrize(
    ("gpus", "options", "do"),
    [
        ((), check.CheckOptions(cpu_ranks=2, wires=("default", "socket")), "only gloo"),
        ((gpu(0), gpu(1)), check.CheckOptions(wires=("clean",)), "a variable that disables"),
        ((gpu(0),), check.CheckOptions(wires=("p2p_forced",)), "two GPUs"),
    ],
)
def test_a_check_of_wires_that_are_not_there_is_refused_instead_of_measuring_nothing_or_another(monkeypatch, gpus, options, do):
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    monkeypatch.delenv("NCCL_SHM_DISABLE", raising=False)
    with pytest.raises(UsageError, match=do):
        check._plan(box(len(gpus), gpus=gpus, software={"torch": "2.13.0", "torch_cuda": "12.8"}), options)


def test_a_wire_that_is_there_is_measured_beside_one_that_is_not():
    plan = check._plan(box(0), check.CheckOptions(cpu_ranks=2, wires=("socket", "gloo")))
    assert [stage.name for stage in plan.stages] == ["wire:gloo"]

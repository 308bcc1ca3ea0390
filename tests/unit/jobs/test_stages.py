"""Which stages run: order of worth, sizes, world sizes, and what a single GPU or a set of wishes changes."""

import os
from pathlib import Path

import pytest

from wiretax.jobs.stages import BUDGET_SECONDS, cpu_plan, gpu_plan, sizes_up_to, world_sizes
from wiretax.launch import torchrun
from wiretax.launch.account import LaunchOutcome
from wiretax.measure.peer_truth import DECIDE_SECONDS


def names(plan):
    return [stage.name for stage in plan.stages]


@pytest.mark.parametrize(
    ("ranks", "expected"), [(1, [1]), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (8, [2, 4, 8]), (16, [2, 4, 8, 16])]
)
def test_world_sizes_double_up_to_all(ranks, expected):
    assert world_sizes(ranks) == expected


def test_sizes_are_powers_of_two_from_8_bytes_to_the_largest():
    assert sizes_up_to(64) == [8, 16, 32, 64]


def test_a_default_check_of_two_gpus_measures_the_wire_as_found_first_and_every_wire_in_the_end():
    plan = gpu_plan("default", (0, 1), (0, 1), {})
    assert names(plan)[:3] == ["wire:default", "peer_truth", "copies"]
    assert {"wire:p2p_off", "wire:socket", "wire:p2p_forced", "wire:gloo", "compute", "overlap:default"} <= set(names(plan))
    assert names(plan).index("peer_truth") < names(plan).index("wire:p2p_forced")
    assert "wire:clean" not in names(plan)


def test_a_quick_check_leaves_out_the_slow_wires():
    assert names(gpu_plan("quick", (0, 1), (0, 1), {})) == ["wire:default", "peer_truth", "copies", "wire:p2p_off", "compute"]


def test_variables_that_disable_a_path_bring_the_clean_wire_without_them():
    plan = gpu_plan("quick", (0, 1), (0, 1), {"NCCL_P2P_DISABLE": "1"})
    (clean,) = [stage for stage in plan.stages if stage.name == "wire:clean"]
    assert clean.environment == {"NCCL_P2P_DISABLE": None}
    plan = gpu_plan("quick", (0, 1), (0, 1), {}, configuration={"NCCL_P2P_DISABLE": "1"})
    (clean,) = [stage for stage in plan.stages if stage.name == "wire:clean"]
    assert clean.environment == {"NCCL_P2P_DISABLE": "0"}  # a file cannot be taken away, only overridden


def test_one_gpu_gets_a_second_rank_for_the_peer_test_alone():
    plan = gpu_plan("default", (3,), (5,), {})
    assert (plan.world_size, plan.cuda_ordinals, plan.gpus) == (2, (3, 3), (5, 5))
    ranks = {stage.name: stage.ranks for stage in plan.stages}
    assert ranks["peer_truth"] is None
    assert {count for name, count in ranks.items() if name != "peer_truth"} == {1}
    assert all(stage.arguments["world_sizes"] == [1] for stage in plan.stages if stage.wire)


def test_wishes_for_wires_and_operations_leave_out_the_rest():
    plan = gpu_plan("quick", (0, 1), (0, 1), {}, only_operations=("broadcast",), only_wires=("socket",))
    (stage,) = plan.stages
    assert (stage.wire, stage.arguments["operations"]) == ("socket", ("broadcast",))
    assert stage.environment["NCCL_NET"] == "Socket"


def test_cpu_ranks_ask_the_same_questions_over_gloo():
    plan = cpu_plan("quick", 4)
    assert names(plan) == ["compute", "copies", "wire:gloo"]
    assert plan.stages[-1].arguments["world_sizes"] == [2, 4]
    assert plan.device == "cpu" and plan.gpus == ()


def test_on_cpu_ranks_a_wish_for_a_wire_leaves_out_the_rest():
    assert names(cpu_plan("quick", 2, only_wires=("default", "gloo"))) == ["wire:gloo"]
    assert names(cpu_plan("quick", 2, only_wires=("socket",))) == []


def shares(plan, seconds):
    """What each stage is given to measure when all that came before used all of theirs, by the coordinator's own rule."""
    with pytest.MonkeyPatch.context() as patch:
        now = [0.0]
        patch.setattr(torchrun.time, "monotonic", lambda: now[0])
        launch = torchrun._Launch(plan, Path(), LaunchOutcome(folder=Path()), seconds, lambda _tick: None, lambda _stage: None, os.kill)
        found = {}
        for number, stage in enumerate(plan.stages):
            found[stage.name] = launch._share(number)
            now[0] += stage.overhead_seconds + found[stage.name]
    return found


@pytest.mark.parametrize("disabled", [{}, {"NCCL_P2P_DISABLE": "1"}], ids=["as found", "with a clean wire"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 16])
@pytest.mark.parametrize("level", ["quick", "default", "full"])
def test_on_any_number_of_gpus_every_stage_finds_time_in_its_budget(level, count, disabled):
    ids = tuple(range(count))
    plan = gpu_plan(level, ids, ids, disabled)
    started_after = 6.0  # reading the machine, importing torch and judging, as recorded on two H200s
    found = shares(plan, BUDGET_SECONDS[level] - started_after)
    assert {stage.name for stage in plan.stages if found[stage.name] < stage.min_seconds} == set()


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_peers_are_tried_with_a_second_to_spare_in_which_a_hang_shows(count):
    ids = tuple(range(count))
    (tried,) = (stage for stage in gpu_plan("quick", ids, ids, {}).stages if stage.name == "peer_truth")
    assert tried.overhead_seconds >= DECIDE_SECONDS + 0.5

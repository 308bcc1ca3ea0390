"""Which stages run: order of worth, sizes, world sizes, and what a single GPU or a set of wishes changes."""

import pytest

from wiretax.jobs.stages import cpu_plan, gpu_plan, sizes_up_to, world_sizes


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
    assert {"wire:p2p_off", "wire:socket", "wire:p2p_forced", "wire:gloo", "compute", "overlap"} <= set(names(plan))
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

"""Strategies with communication free, on a CPU with torch's own FSDP2, DTensor and DDP."""

import pytest
import torch
import torch.distributed as dist

from wiretax.errors import BadInput, CannotMeasure, UsageError
from wiretax.model.reading import not_finite, unexplained
from wiretax.train.free import FreeWire, free_world
from wiretax.train.free_step import profile_strategy
from wiretax.train.sampling import Effort
from wiretax.train.strategy import Options, wrap_step
from wiretax.train.workload import Step, load_workload

BRIEF = Effort(seconds=0.02, warm_up=2, fewest=3)
BLOCK = (12 * 64 * 64 + 4 * 64) * 4
ROOT = (2 * 256 * 64 + 32 * 64 + 2 * 64) * 4


def free(strategy, cpu, name="gpt-tiny", *, world_size=2, options=None, change=lambda _step: None):
    step, workload = load_workload(name, cpu)
    change(step)
    result = profile_strategy(strategy, step, workload, cpu, BRIEF, world_size=world_size, options=options)
    assert not dist.is_initialized()
    assert list(unexplained(result.step)) == [] and list(not_finite(result.step)) == []
    return result.step


def operations(step):
    return [(one.operation, one.num_bytes, one.phase) for one in step.calls]


def test_fsdp2_gathers_each_group_twice_and_scatters_it_once_in_torchs_order(cpu):
    step = free("fsdp2", cpu)
    assert operations(step) == [
        ("all_gather", ROOT, "forward"),
        ("all_gather", BLOCK, "forward"),
        ("all_gather", BLOCK, "forward"),
        ("all_gather", BLOCK, "backward"),
        ("all_gather", BLOCK, "backward"),
        ("reduce_scatter", BLOCK, "backward"),
        ("reduce_scatter", BLOCK, "backward"),
        ("reduce_scatter", ROOT, "backward"),
    ]
    assert [one.segment for one in step.calls] == [0, 1, 2, 3, 2, 2, 1, 0]
    assert (step.world_size, step.method, step.filler_seconds) == (2, "own_communicator", 0.0)


def test_shard_grad_op_gathers_once(cpu):
    step = free("fsdp2_grad_op", cpu)
    assert [operation for operation, _, _ in operations(step)] == ["all_gather"] * 3 + ["reduce_scatter"] * 3
    assert step.options["reshard_after_forward"] == "False"


def test_gathers_in_bf16_halve_the_bytes_and_gradients_stay_whole(cpu):
    step = free("fsdp2", cpu, options=Options(param_dtype="bfloat16"))
    assert operations(step)[0] == ("all_gather", ROOT // 2, "forward")
    assert operations(step)[-1] == ("reduce_scatter", ROOT, "backward")
    assert [(one.parameter_bytes, one.gradient_bytes) for one in step.groups] == [
        (ROOT // 2, ROOT),
        (BLOCK // 2, BLOCK),
        (BLOCK // 2, BLOCK),
    ]


def test_groups_cover_the_phases_with_the_root_first(cpu):
    step = free("fsdp2", cpu)
    assert [one.segments for one in step.groups] == [(0, 3), (1,), (2,)]
    assert [one.parameter_bytes for one in step.groups] == [ROOT, BLOCK, BLOCK]
    assert sum(one.forward_device_seconds for one in step.groups) == pytest.approx(step.times.forward.device.seconds)
    assert sum(one.backward_device_seconds for one in step.groups) == pytest.approx(step.times.backward.device.seconds)


def test_gathered_weights_and_reduced_gradients_hold_ordinary_numbers(cpu):
    step, _ = load_workload("gpt-tiny", cpu)
    with free_world(cpu, 4) as place:
        wrapped = wrap_step("fsdp2", step, Options(), place)
        wire = FreeWire(step.model)
        wire.persistent = True
        loss = wrapped.forward(step.make_batch(2))
        wrapped.backward(loss)
        gradients = [one.grad.to_local() for one in step.model.parameters() if one.grad.to_local().numel()]
        wrapped.update()
        for _ in range(3):
            wire.refresh()
            wrapped.train(step.make_batch(2))
        weights = [one.to_local() for one in step.model.parameters()]
    assert torch.isfinite(loss)
    assert all(torch.isfinite(one).all() and one.abs().max() > 0 for one in gradients)
    assert all(torch.isfinite(one).all() for one in weights)


def test_for_memory_buffers_are_made_and_dropped_as_torch_does_and_still_hold_the_shards(cpu):
    step, _ = load_workload("gpt-tiny", cpu)
    before = step.model.head.weight.detach().clone()
    with free_world(cpu, 2) as place:
        wrapped = wrap_step("fsdp2", step, Options(), place)
        FreeWire(step.model)
        step.model.unshard()
        gathered = step.model.head.weight.detach().clone()
        step.model.reshard()
        wrapped.train(step.make_batch(2))
    half = before.shape[0] // 2
    assert torch.equal(gathered[:half], before[:half])
    assert torch.equal(gathered[half:], before[:half])  # the other rank's part is a copy of our own


@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny"])
def test_tensor_parallelism_stands_still_for_four_all_reduces_a_layer(cpu, name):
    step = free("tp", cpu, name)
    assert {one.operation for one in step.calls} == {"all_reduce"}
    assert all(one.blocking for one in step.calls)
    activations = [one for one in step.calls if one.num_bytes == 4 * 32 * 64 * 4]
    # two layers with two each way; one more after the split embedding, one more before the split head
    assert [one.phase for one in activations] == ["forward"] * 5 + ["backward"] * 5
    assert [one.segment for one in activations[:5]] == [0, 1, 1, 2, 2]


def test_ddp_runs_over_one_rank_with_torchs_own_buckets(cpu):
    step = free("ddp", cpu)
    assert (step.world_size, step.method) == (1, "world_size_1")
    assert [(one.num_bytes, one.num_parameters) for one in step.buckets] == [(2 * BLOCK + ROOT, 21)]
    assert operations(step) == [("all_reduce", 2 * BLOCK + ROOT, "backward")]


def test_small_buckets_close_after_the_tensor_that_fills_them(cpu):
    step = free("ddp", cpu, options=Options(bucket_cap_mb=0.05))
    assert sum(one.num_bytes for one in step.buckets) == 2 * BLOCK + ROOT
    assert sorted(index for one in step.buckets for index in one.parameters) == list(range(21))
    assert all(one.num_bytes >= 0.05 * 2**20 for one in step.buckets[:-1])
    assert [one.num_bytes for one in step.calls] == [one.num_bytes for one in step.buckets]
    issued = [one.device_seconds for one in step.calls]
    assert issued == sorted(issued)
    assert step.buckets[0].parameters[0] == 20  # the head is first, the embedding last
    assert 0 in step.buckets[-1].parameters


def test_the_compressing_hook_is_refused_where_torch_has_it_not(cpu):
    with pytest.raises(UsageError, match="on GPUs only"):
        free("ddp", cpu, options=Options(comm_hook="bf16_compress"))


def test_batch_norm_buffers_are_broadcast_before_forward(cpu):
    step = free("ddp", cpu, "convnet-tiny")
    sent = [one for one in step.calls if one.operation == "broadcast"]
    model = load_workload("convnet-tiny", cpu)[0].model
    assert sum(one.num_bytes for one in sent) == sum(one.numel() * one.element_size() for one in model.buffers())
    assert all(one.phase == "forward" and one.blocking for one in sent)


def test_zero1_adds_the_broadcasts_of_every_parameter_to_ddps_reductions(cpu):
    step = free("zero1", cpu)
    broadcasts = [one for one in step.calls if one.operation == "broadcast"]
    assert sum(one.num_bytes for one in broadcasts) == 2 * BLOCK + ROOT
    assert {one.phase for one in broadcasts} == {"optimizer"}
    assert [one.num_bytes for one in step.calls if one.operation == "all_reduce"] == [2 * BLOCK + ROOT]


@pytest.mark.parametrize("strategy", ["hsdp", "tp_ddp"])
def test_two_dimensional_strategies_run_at_four_ranks(cpu, strategy):
    step = free(strategy, cpu, world_size=4)
    assert step.world_size == 4
    assert step.calls
    assert ("buckets" in step.missing) == (strategy == "tp_ddp")


def test_parameters_that_never_get_a_gradient_do_not_break_ddp(cpu):
    def add_unused(step):
        step.model.unused = torch.nn.Linear(3, 3)

    step = free("ddp", cpu, change=add_unused)
    assert step.options["find_unused_parameters"] == "True"


def test_heads_that_cannot_be_shared_out_are_named_before_anything_runs(cpu):
    with pytest.raises(UsageError, match="4 attention heads cannot be split over 3 GPUs"):
        free("tp", cpu, world_size=3)


def test_a_model_that_a_strategy_breaks_is_the_strategys_message(cpu):
    def no_second_call(step):
        plain = step.loss

        def loss(model, batch):
            if type(model).__name__.startswith("FSDP"):
                raise RuntimeError("shapes differ when sharded")
            return plain(model, batch)

        step.loss = loss

    with pytest.raises(BadInput, match=r"fails under fsdp2: shapes differ when sharded"):
        free("fsdp2", cpu, change=no_second_call)


def test_memory_that_runs_out_under_a_strategy_is_no_mistake_of_the_users(cpu):
    def greedy(step):
        plain = step.loss

        def loss(model, batch):
            if type(model).__name__.startswith("FSDP"):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return plain(model, batch)

        step.loss = loss

    with pytest.raises(CannotMeasure, match="ran out of memory under fsdp2 at batch 4"):
        free("fsdp2", cpu, change=greedy)


def test_a_process_group_of_the_users_is_never_replaced(cpu):
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        with pytest.raises(CannotMeasure, match="A process group exists already"), free_world(cpu, 2):
            pass
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_a_channels_last_model_can_be_sharded(cpu):
    assert len(free("fsdp2", cpu, "convnet-tiny").groups) == 5


def test_a_step_without_blocks_cannot_be_sharded_but_can_be_reduced(cpu):
    def plain(step):
        model = torch.nn.Linear(4, 4)
        own = Step(model, lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 4), lambda m, b: m(b).square().mean())
        step.model, step.make_optimizer, step.make_batch, step.loss, step.blocks = (
            own.model,
            own.make_optimizer,
            own.make_batch,
            own.loss,
            None,
        )

    assert free("ddp", cpu, change=plain).buckets[0].num_bytes == 20 * 4
    with pytest.raises(UsageError, match="repeated blocks"):
        free("fsdp2", cpu, change=plain)

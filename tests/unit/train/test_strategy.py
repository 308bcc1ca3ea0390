import pytest

from wiretax.errors import UsageError
from wiretax.train.free import free_world
from wiretax.train.strategy import Options, Place, data_parallel_size, strategy_name, wrap_step
from wiretax.train.workload import Step, load_workload


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ddp", "ddp"),
        (" FSDP2 ", "fsdp2"),
        ("FULL_SHARD", "fsdp2"),
        ("SHARD_GRAD_OP", "fsdp2_grad_op"),
        ("NO_SHARD", "ddp"),
        ("HYBRID_SHARD", "hsdp"),
        ("zero3", "fsdp2"),
        ("tp-ddp", "tp_ddp"),
    ],
)
def test_names_of_other_frameworks_are_understood(text, name):
    assert strategy_name(text) == name


def test_an_unknown_strategy_is_answered_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'megatron'.*fsdp2.*full_shard"):
        strategy_name("megatron")


@pytest.mark.parametrize(("strategy", "replicas"), [("ddp", 8), ("fsdp2", 8), ("zero1", 8), ("tp", 1), ("tp_ddp", 4)])
def test_ranks_that_share_layers_share_a_batch(strategy, replicas):
    assert data_parallel_size(strategy, 8, Options()) == replicas


def test_a_strategy_that_this_step_or_world_cannot_have_says_why(cpu):
    def wrap(strategy, name="gpt-tiny", world_size=2, **changes):
        step, _ = load_workload(name, cpu)
        for field, value in changes.items():
            setattr(step, field, value)
        with free_world(cpu, world_size) as place:
            return wrap_step(strategy, step, Options(), place)

    for strategy, arguments, words in (
        ("fsdp2", {"blocks": None}, "Name them in Step.blocks"),
        ("hsdp", {}, "at least two groups of at least two GPUs"),
        ("tp", {"name": "convnet-tiny"}, "tensor_parallel_plan"),
        ("tp_ddp", {}, "not several groups of 2"),
        ("tp_ddp", {"world_size": 3}, "not several groups of 2"),
    ):
        with pytest.raises(UsageError, match=words):
            wrap(strategy, **arguments)


def test_nothing_to_train_is_refused_before_ddp_is_made(cpu):
    step, _ = load_workload("gpt-tiny", cpu)
    step.model.requires_grad_(False)
    with free_world(cpu, 2) as place, pytest.raises(UsageError, match="No parameter"):
        wrap_step("ddp", step, Options(), place)


def test_an_optimizer_that_cannot_be_made_again_cannot_be_sharded(cpu):
    import torch

    class Odd(torch.optim.SGD):
        def __init__(self, params, secret):
            super().__init__(params, lr=0.1 * secret)

    step, _ = load_workload("gpt-tiny", cpu)
    odd = Step(step.model, lambda p: Odd(p, 1.0), step.make_batch, step.loss, step.blocks)
    with free_world(cpu, 2) as place, pytest.raises(UsageError, match="its secret is not among its defaults"):
        wrap_step("zero1", odd, Options(), place)


def test_the_levers_in_force_are_kept_by_torchs_names(cpu):
    options = Options(bucket_cap_mb=1.5, static_graph=True, forward_prefetch=2, param_dtype="bfloat16")
    with free_world(cpu, 2) as place:
        ddp = wrap_step("ddp", load_workload("gpt-tiny", cpu)[0], options, place)
        fsdp = wrap_step("fsdp2_grad_op", load_workload("gpt-tiny", cpu)[0], options, place)
    assert ddp.options["bucket_cap_mb"] == "1.5"
    assert (ddp.options["static_graph"], "comm_hook" in ddp.options) == ("True", False)
    assert fsdp.options == {"reshard_after_forward": "False", "forward_prefetch": "2", "param_dtype": "bfloat16"}


def test_a_mesh_must_cover_all_ranks(cpu):
    with pytest.raises(UsageError, match="2 x 3 ranks were asked for, but there are 4"):
        Place(device=cpu, world_size=4).mesh((2, 3), ("dp", "tp"))

"""Which stages a profile and a scale run are made of."""

import pytest

from wiretax.errors import BadInput, UsageError
from wiretax.jobs.training_stages import Case, Subject, cases, profile_stages, training_stages, wire_stages
from wiretax.measure.wires import DEFAULT, GLOO, P2P_OFF
from wiretax.train.strategy import Options
from wiretax.train.workload import Settings

TINY = Subject(source="gpt-tiny")


def names(stages):
    return [one.name for one in stages]


def test_weak_scaling_keeps_the_batch_of_each_gpu_and_strong_scaling_shares_it():
    weak = cases((1, 2, 4), ("ddp", "tp"), (8,), "weak", Options())
    assert [(one.num_ranks, one.strategy, one.batch_per_gpu) for one in weak] == [
        (1, "none", 8),
        (2, "ddp", 8),
        (2, "tp", 8),
        (4, "ddp", 8),
        (4, "tp", 8),
    ]
    strong = cases((1, 2, 4), ("ddp", "tp"), (8,), "strong", Options())
    assert [(one.num_ranks, one.strategy, one.batch_per_gpu) for one in strong] == [
        (1, "none", 8),
        (2, "ddp", 4),
        (2, "tp", 8),
        (4, "ddp", 2),
        (4, "tp", 8),
    ]


def test_a_batch_that_cannot_be_shared_is_refused_with_one_that_can():
    with pytest.raises(UsageError) as error:
        cases((1, 4), ("ddp",), (6,), "strong", Options())
    assert "cannot be shared by 4 GPUs" in str(error.value) and "--batch 8" in str(error.value)


def test_on_gpus_one_rank_is_profiled_once_a_batch_and_ddp_once_for_all_numbers_of_gpus():
    wanted = [
        Case(num_ranks=count, strategy=name, batch_per_gpu=batch) for batch in (4, 8) for count in (2, 4) for name in ("ddp", "fsdp2")
    ]
    stages = profile_stages(TINY, wanted, cuda=True)
    assert names(stages)[:4] == ["profile:bare:b4", "profile:ddp:b4:w2", "profile:fsdp2:b4:w2", "profile:fsdp2:b4:w4"]
    assert len(stages) == 8
    assert all(one.ranks == 1 for one in stages)
    assert stages[0].needs == () and stages[3].needs == ("profile:bare:b4",)
    assert stages[3].arguments["world_size"] == 4


def test_cpu_ranks_are_profiled_by_as_many_at_once_as_will_train():
    wanted = [Case(num_ranks=count, strategy="ddp", batch_per_gpu=4) for count in (2, 4)]
    stages = profile_stages(TINY, wanted, cuda=False)
    assert [(one.name, one.ranks) for one in stages] == [
        ("profile:bare:b4:n2", 2),
        ("profile:ddp:b4:n2:w2", 2),
        ("profile:bare:b4:n4", 4),
        ("profile:ddp:b4:n4:w2", 4),
    ]
    assert {one.ranks for one in profile_stages(TINY, wanted, cuda=False, ranks=3)} == {3}


def test_no_strategy_asks_for_the_bare_step_alone():
    assert names(profile_stages(TINY, [Case(num_ranks=2, strategy="none", batch_per_gpu=1)], cuda=True)) == ["profile:bare:b1"]


def test_every_configuration_trains_in_a_process_of_its_own_with_its_wire():
    wanted = [Case(num_ranks=2, strategy=name, batch_per_gpu=4) for name in ("ddp", "fsdp2")]
    stages = training_stages(TINY, wanted, P2P_OFF, steps=20, cuda=True)
    assert names(stages) == ["train:ddp:n2:b4:p2p_off", "train:fsdp2:n2:b4:p2p_off"]
    for one in stages:
        assert one.environment == {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
        assert (one.wire, one.ranks, one.arguments["wire"], one.arguments["backend"]) == ("p2p_off", 2, "p2p_off", "nccl")
    (alone,) = training_stages(TINY, [Case(num_ranks=1, strategy="none", batch_per_gpu=4)], P2P_OFF, steps=20, cuda=True)
    assert (alone.name, alone.environment, alone.wire, alone.arguments["wire"]) == ("train:none:n1:b4", {}, None, "none")


def test_only_what_the_strategies_send_is_swept_and_contention_is_measured_where_nccl_runs():
    sweep, beside = wire_stages(DEFAULT, ("ddp", "fsdp2"), (1, 2, 4), cuda=True)
    assert sweep.arguments["operations"] == ["all_reduce", "all_gather", "reduce_scatter"]
    assert (sweep.arguments["world_sizes"], sweep.ranks) == ([2, 4], 4)
    assert beside.needs == ("wire:default",)
    (gloo,) = wire_stages(GLOO, ("ddp",), (1, 2), cuda=False)
    assert (gloo.arguments["operations"], gloo.arguments["modes"]) == (["all_reduce"], ["eager"])


def test_settings_and_levers_reach_the_ranks_and_the_predictor():
    subject = Subject(
        source="gpt-tiny", settings=Settings(accumulation_steps=4, compiled=True), levers=Options(bucket_cap_mb=50.0, forward_prefetch=2)
    )
    (stage,) = profile_stages(subject, [Case(num_ranks=2, strategy="none", batch_per_gpu=3)], cuda=True)
    assert stage.arguments["settings"]["batch_size"] == 3
    assert stage.arguments["settings"]["accumulation_steps"] == 4
    assert stage.arguments["options"]["bucket_cap_mb"] == 50.0
    assert stage.patience_seconds > 100  # a compiler may work so long between two steps
    levers = subject.predicted_levers()
    assert (levers.accumulation_steps, levers.bucket_cap_mb, levers.forward_prefetch) == (4, 50.0, 2)


@pytest.mark.parametrize("source", ["gpt-tiny", "my.module:step"])
def test_what_can_be_a_workload_passes_without_torch(source):
    Subject(source=source).check()


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("gpt9", UsageError, "The presets are gpt124m"),
        ("my module:step", UsageError, "is not module:function"),
        ("module:", UsageError, "is not module:function"),
        ("nowhere.json", BadInput, "nowhere.json: cannot be read"),
    ],
)
def test_what_cannot_is_refused_at_once(source, kind, words):
    with pytest.raises(kind) as error:
        Subject(source=source).check()
    assert words in str(error.value)

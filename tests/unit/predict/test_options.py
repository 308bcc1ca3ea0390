import pytest

from wiretax.errors import UsageError
from wiretax.predict.options import STRATEGIES, Options, strategy_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("DDP", "ddp"),
        ("FULL_SHARD", "fsdp2"),
        ("SHARD_GRAD_OP", "fsdp2_grad_op"),
        ("NO_SHARD", "ddp"),
        ("HYBRID_SHARD", "hsdp"),
        ("fsdp", "fsdp2"),
        ("zero-3", "zero3"),
        (" tp ", "tp"),
    ],
)
def test_the_names_people_use_are_understood(text, name):
    assert strategy_name(text) == name


def test_every_strategy_knows_its_own_name():
    assert [strategy_name(name) for name in STRATEGIES] == list(STRATEGIES)


def test_an_unknown_strategy_lists_the_known_ones():
    with pytest.raises(UsageError, match="fsdp2"):
        strategy_name("magic")


@pytest.mark.parametrize("wrong", [{"accumulation_steps": 0}, {"bucket_cap_mb": 0.0}, {"pipeline_micro_batches": -1}, {"powersgd_rank": 0}])
def test_levers_that_cannot_be_are_refused(wrong):
    with pytest.raises(UsageError):
        Options(**wrong)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile
from wiretax.errors import UsageError
from wiretax.plan.job import Job, shape_of_size


def test_hours_count_before_throughput():
    job = Job(hours=40, throughput={1: 10.0}, samples=1e6)

    assert job.one_gpu_hours == 40


def test_a_million_samples_at_15_4_a_second_take_18_hours():
    assert Job(samples=1e6, throughput={1: 15.4}).one_gpu_hours == pytest.approx(1e6 / 15.4 / 3600)


def test_tokens_are_samples_of_the_sequence_length():
    assert Job(tokens=2048e3, sequence_length=2048).num_samples == 1000


def test_hours_at_a_known_speed_tell_how_many_samples():
    assert Job(hours=2, throughput={1: 10.0}).num_samples == 72_000


def test_the_profile_knows_its_sequence_length_but_not_how_much_is_to_be_done():
    job = Job(profile=profile())

    assert job.sequence == 128
    assert job.num_samples is None
    assert job.one_gpu_hours is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"hours": 0}, "hours is none"),
        ({"hours": -3}, "hours is none"),
        ({"samples": float("nan")}, "samples is none"),
        ({"tokens": float("inf")}, "tokens is none"),
        ({"throughput": {1: -2.0}}, "impossible"),
        ({"throughput": {0: 2.0}}, "impossible"),
        ({"throughput": {2: 4.5}, "samples": 1e6}, "one GPU is missing"),
        ({"efficiency": 80}, "percentage"),
        ({"efficiency": {4: 1.2}}, "on 4 GPUs"),
        ({"efficiency": {1: 0.9}}, "its efficiency is 1"),
        ({"mfu": 40}, "MFU"),
        ({"recipe": "adamx"}, "no recipe"),
        ({"samples": 10, "tokens": 5000, "sequence_length": 100}, "not both"),
    ],
)
def test_a_job_that_makes_no_sense_is_an_error(values, says):
    with pytest.raises(UsageError, match=says):
        Job(**values)


@given(st.floats(3e7, 1e12))
def test_a_shape_of_a_size_has_that_size(size):
    assert shape_of_size(size).num_parameters == pytest.approx(size, rel=0.01)


def test_the_shape_of_seven_billion_is_that_of_the_common_models():
    shape = shape_of_size(7e9)

    assert (shape.num_layers, shape.hidden_size, shape.num_heads) == (32, 4096, 32)


@pytest.mark.parametrize("size", [0, -1, 10, float("nan"), float("inf")])
def test_a_model_without_size_is_an_error(size):
    with pytest.raises(UsageError, match="--params"):
        shape_of_size(size)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretax.model.forecast import Interval
from wiretax.plan.closed_form import Traffic, closed_form, traffic
from wiretax.plan.job import shape_of_size
from wiretax.predict.formula import all_reduce_seconds

MODEL = Traffic(gradients=2e9, weights=2e9, reduced_each_layer=8e6, num_layers=24)
SLOW = Interval(low=5e9, expected=10e9, high=20e9)
SPLITS = ["ddp", "zero1", "zero2", "fsdp2", "fsdp2_grad_op", "zero3", "tp"]


def one_rate(rate):
    return Interval(low=rate, expected=rate, high=rate)


def test_no_overlap_is_the_seeds_formula_on_top_of_the_step():
    found = closed_form(MODEL, "ddp", 4, one_rate(10e9), 0.1, 8)

    assert found.low == pytest.approx(0.8 / (0.8 + all_reduce_seconds(2e9, 10e9, 4)))


def test_perfect_overlap_leaves_only_the_longer_of_the_two():
    assert closed_form(MODEL, "ddp", 4, one_rate(10e9), 0.1, 8).high == 1
    assert closed_form(MODEL, "ddp", 4, one_rate(10e9), 0.01, 8).high == pytest.approx(0.08 / all_reduce_seconds(2e9, 10e9, 4))


def test_what_to_expect_lies_half_way_between_no_overlap_and_overlap_with_the_backward_pass():
    found = closed_form(MODEL, "ddp", 4, one_rate(10e9), 0.1, 8)
    wire = all_reduce_seconds(2e9, 10e9, 4)

    assert 0.8 / found.expected == pytest.approx((0.8 + wire + 0.8 / 3 + max(1.6 / 3, wire)) / 2)


def test_accumulation_pays_for_the_gradients_once():
    once, eight = (closed_form(MODEL, "ddp", 4, SLOW, 0.01, 8, accumulation_steps=steps) for steps in (1, 8))

    assert eight.low > once.low
    assert eight.expected > once.expected


def test_accumulation_gains_full_sharding_nothing():
    once, eight = (closed_form(MODEL, "fsdp2", 4, SLOW, 0.01, 8, accumulation_steps=steps) for steps in (1, 8))

    assert eight.expected == pytest.approx(once.expected)


def test_full_sharding_moves_one_and_a_half_times_the_bytes():
    ddp, fsdp = (closed_form(MODEL, name, 4, one_rate(1e9), 0.001, 1).low for name in ("ddp", "fsdp2"))

    assert (1 / fsdp - 1) / (1 / ddp - 1) == pytest.approx(1.5)


def test_tensor_parallelism_waits_for_four_all_reduces_a_layer():
    found = closed_form(MODEL, "tp", 2, one_rate(10e9), 0.1, 4)
    waiting = 4 * 24 * all_reduce_seconds(4 * 8e6, 10e9, 2)

    assert found.low == found.high == pytest.approx(0.2 / (0.2 + waiting))


def test_a_strategy_without_such_a_rule_has_no_answer():
    assert closed_form(MODEL, "pp", 4, SLOW, 0.1, 8) is None


@given(st.sampled_from(SPLITS), st.integers(2, 64), st.floats(1e8, 1e12), st.floats(1e-4, 10), st.integers(1, 64), st.integers(1, 16))
def test_efficiencies_are_fractions_in_order(strategy, count, rate, seconds, batch, steps):
    busbw = Interval(low=rate / 2, expected=rate, high=rate * 2)

    found = closed_form(MODEL, strategy, count, busbw, seconds, batch, accumulation_steps=steps)

    assert 0 < found.low <= found.expected <= found.high <= 1


@given(st.sampled_from(SPLITS), st.integers(2, 16), st.floats(1e9, 1e12), st.floats(1.0, 10))
def test_a_faster_wire_never_hurts(strategy, count, rate, factor):
    slow, fast = (closed_form(MODEL, strategy, count, one_rate(one), 0.05, 4) for one in (rate, rate * factor))

    assert fast.expected >= slow.expected * (1 - 1e-12)


def test_bytes_follow_the_shape_and_the_recipe():
    shape = shape_of_size(7e9)
    full, lora = traffic(shape, "adamw_bf16", 2048), traffic(shape, "lora", 2048, 0.01)

    assert full.gradients == 2 * shape.num_parameters
    assert lora.gradients == pytest.approx(0.01 * full.gradients, rel=1e-6)
    assert lora.weights == full.weights
    assert full.reduced_each_layer == 2048 * 4096 * 2

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretax.judge import statistics

SAMPLES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)


def test_the_median_absolute_deviation_ignores_one_stray_sample():
    assert statistics.mad([1.0, 1.1, 0.9, 1.0, 50.0]) == pytest.approx(0.1)


def test_p95_lies_between_the_largest_samples():
    assert statistics.p95(range(101)) == 95


def test_nothing_has_no_median_and_no_percentile():
    for ask in (statistics.median, statistics.p95, statistics.mad, statistics.median_interval):
        with pytest.raises(ValueError, match="nothing"):
            ask([])


@given(SAMPLES)
def test_the_interval_of_the_median_holds_the_median_and_stays_inside_the_samples(samples):
    interval = statistics.median_interval(samples)
    assert min(samples) <= interval.low <= interval.median <= interval.high <= max(samples)
    assert interval == statistics.median_interval(samples)


def test_the_interval_of_the_median_holds_the_truth_about_as_often_as_it_promises():
    import numpy as np

    generator = np.random.default_rng(5)
    hits = sum(
        interval.low <= 10.0 <= interval.high for interval in (statistics.median_interval(generator.normal(10, 1, 15)) for _ in range(200))
    )
    assert hits >= 0.82 * 200


def test_more_samples_make_the_interval_tighter():
    import numpy as np

    generator = np.random.default_rng(7)
    few = statistics.median_interval(generator.normal(10, 1, 8))
    many = statistics.median_interval(generator.normal(10, 1, 400))
    assert many.half_width_fraction < few.half_width_fraction < math.inf


def test_a_confidence_outside_zero_and_one_is_refused():
    with pytest.raises(ValueError, match="confidence"):
        statistics.median_interval([1.0, 2.0, 3.0], confidence=1.0)


@pytest.mark.parametrize(
    ("samples", "unstable"),
    [
        ([1.0, 1.01, 0.99, 1.0, 1.02], False),
        ([1.0] * 20 + [9.0], False),
        ([1.0, 1.4, 0.8, 1.2, 1.0, 1.5], True),
        ([1.0, 5.0, 1.0], False),
    ],
    ids=["tight", "one stray sample", "wide", "too few to say"],
)
def test_a_result_is_unstable_when_its_middle_half_spreads(samples, unstable):
    assert statistics.is_unstable(samples) is unstable


def test_two_clearly_different_samples_are_different_and_the_ratio_is_of_medians():
    compared = statistics.compare([1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [1.5, 1.49, 1.51, 1.5, 1.52, 1.48])
    assert compared.outcome == "different"
    assert compared.ratio == pytest.approx(1.5)


def test_a_sure_but_tiny_difference_counts_as_the_same():
    compared = statistics.compare([1.0 + k * 1e-4 for k in range(20)], [1.01 + k * 1e-4 for k in range(20)])
    assert compared.outcome == "same"
    assert compared.p_value < 0.01


def test_three_samples_a_side_decide_nothing():
    assert statistics.compare([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]).outcome == "unknown"
    assert statistics.compare([], [2.0]).outcome == "unknown"


def test_equal_constants_are_the_same_without_a_warning():
    assert statistics.compare([2.0] * 5, [2.0] * 5).outcome == "same"


@given(SAMPLES, SAMPLES)
def test_comparing_never_fails(first, second):
    assert statistics.compare(first, second).outcome in ("same", "different", "unknown")

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from wiretax.errors import UsageError
from wiretax.plan.checkpointing import (
    DALY_DOMAIN,
    Interruptions,
    best_interval,
    daly_interval,
    exact_interval,
    expected_seconds,
    mean_interval,
    quantile_seconds,
    simulate,
    stretch,
    young_interval,
)

HOUR = 3600.0


def known(checkpoint=60.0, mean_gap=6 * HOUR, restart=300.0):
    return Interruptions(checkpoint=checkpoint, mean_gap=mean_gap, restart=restart)


def numerical_optimum(one):
    found = minimize_scalar(lambda interval: stretch(interval, one), bounds=(1e-3 * one.mean_gap, 5 * one.mean_gap), method="bounded")
    assert found.success
    return found.x


def test_saving_in_a_minute_with_six_hours_between_interruptions_means_every_27_minutes():
    assert young_interval(60, 6 * HOUR) / 60 == pytest.approx(27, abs=0.5)
    assert daly_interval(60, 6 * HOUR) / 60 == pytest.approx(26.2, abs=0.1)


def test_that_example_wastes_a_twelfth_and_the_restarts_another_1_4_percent():
    without = stretch(daly_interval(60, 6 * HOUR), known(restart=0))
    restarts = stretch(daly_interval(60, 6 * HOUR), known()) / without

    assert without - 1 == pytest.approx(math.sqrt(2 * 60 / (6 * HOUR)), rel=0.06)
    assert restarts - 1 == pytest.approx(300 / (6 * HOUR), rel=0.02)


@settings(max_examples=40)
@given(st.floats(1e-5, DALY_DOMAIN), st.floats(60, 1e7))
def test_dalys_interval_is_within_one_percent_of_the_numerical_optimum(ratio, mean_gap):
    one = known(checkpoint=ratio * mean_gap, mean_gap=mean_gap)

    interval, method = best_interval(1e12, one)

    assert method == "daly"
    assert stretch(interval, one) <= stretch(numerical_optimum(one), one) * (1 + 1e-4)
    assert interval == pytest.approx(numerical_optimum(one), rel=0.01)


@settings(max_examples=40)
@given(st.floats(1e-4, 5))
def test_lamberts_function_gives_the_optimum_at_any_ratio(ratio):
    one = known(checkpoint=ratio * HOUR, mean_gap=HOUR)

    assert exact_interval(ratio * HOUR, HOUR) == pytest.approx(numerical_optimum(one), rel=2e-3)


def test_beyond_two_gaps_a_checkpoint_daly_says_one_gap():
    assert daly_interval(2 * HOUR, HOUR) == daly_interval(5 * HOUR, HOUR) == HOUR


@pytest.mark.parametrize("one", [known(), known(60, HOUR), known(300, 1000), known(10, 600, 0), known(60, 6 * HOUR, 2 * HOUR)])
@pytest.mark.parametrize("work", [40 * HOUR, 3 * HOUR + 17, 100.0])
def test_the_simulation_confirms_the_expected_wall_clock_within_its_own_interval(one, work):
    interval, _ = best_interval(work, one)

    low, _, high = mean_interval(simulate(work, interval, one))

    assert low <= expected_seconds(work, interval, one) <= high


def test_outside_the_domain_the_simulation_chooses_and_says_so():
    one = known(checkpoint=600, mean_gap=1000)

    interval, method = best_interval(20 * HOUR, one)

    assert method == "simulation"
    assert stretch(interval, one) <= 1.02 * stretch(exact_interval(600, 1000), one)


def test_a_job_shorter_than_the_interval_saves_once_at_its_end():
    assert best_interval(100.0, known())[0] == 100.0


def test_without_work_nothing_takes_time():
    assert expected_seconds(0, 60, known()) == 0
    assert not simulate(0, 60, known()).any()


def test_a_whole_number_of_pieces_costs_that_many_pieces():
    one = known()

    assert expected_seconds(10 * 900.0, 900.0, one) == pytest.approx(10 * stretch(900.0, one) * 900.0)


@given(st.floats(0.5, 0.98), st.floats(0.001, 0.01))
def test_a_higher_certainty_is_never_earlier(quantile, more):
    wall = simulate(20 * HOUR, 1500.0, known(), draws=500)

    assert quantile_seconds(wall, quantile) <= quantile_seconds(wall, quantile + more)


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others():
    first, again, other = (simulate(20 * HOUR, 1500.0, known(), seed=seed, draws=200) for seed in (1, 1, 2))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_no_job_is_sooner_than_its_work_and_checkpoints():
    assert simulate(10 * 900.0, 900.0, known(), draws=2000).min() >= 10 * (900.0 + 60.0)


def test_what_is_interrupted_all_the_time_is_never_finished():
    hopeless = known(checkpoint=600, mean_gap=5)

    assert expected_seconds(HOUR, 600, hopeless) == math.inf
    assert np.isinf(simulate(HOUR, 600, hopeless)).all()


def test_very_frequent_interruptions_are_simulated_with_fewer_jobs_not_with_more_memory():
    frequent = known(checkpoint=30, mean_gap=20, restart=5)

    wall = simulate(1000 * HOUR, 20, frequent)

    assert 50 <= len(wall) < 4000
    assert np.isfinite(wall).all()


@settings(max_examples=30)
@given(st.floats(1, 600), st.floats(1.1, 5))
def test_more_frequent_interruptions_and_longer_checkpoints_never_help(checkpoint, factor):
    one = known(checkpoint=checkpoint)
    rarer = known(checkpoint=checkpoint, mean_gap=one.mean_gap * factor)
    slower = known(checkpoint=checkpoint * factor)
    best = expected_seconds(40 * HOUR, best_interval(40 * HOUR, one)[0], one)

    assert expected_seconds(40 * HOUR, best_interval(40 * HOUR, rarer)[0], rarer) <= best
    assert expected_seconds(40 * HOUR, best_interval(40 * HOUR, slower)[0], slower) >= best


@pytest.mark.parametrize(
    ("name", "value"), [("mean_gap", 0), ("mean_gap", math.nan), ("checkpoint", -1), ("checkpoint", 0), ("restart", -5)]
)
def test_impossible_times_are_errors(name, value):
    with pytest.raises(UsageError):
        known(**{name: value})


def test_negative_work_is_an_error():
    with pytest.raises(UsageError):
        expected_seconds(-1, 60, known())

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wiretax.plan.search import FITS, OPEN, TOO_LARGE, Space, front_of, rank


def space(hourly, hours, *, kinds=None, memory=None, stretch=None):
    hourly, hours = np.asarray(hourly, dtype=float), np.asarray(hours, dtype=float)
    return Space(
        hourly,
        np.arange(len(hourly)) if kinds is None else np.asarray(kinds),
        hours,
        np.full(hours.shape, FITS, dtype=np.int8) if memory is None else np.asarray(memory, dtype=np.int8),
        np.ones(len(hourly)) if stretch is None else np.asarray(stretch, dtype=float),
    )


ONE_OFFER = space([[2.0, 8.0]], [[[[40.0]], [[12.5]]]])


def test_plans_are_ranked_by_cost():
    ranking = rank(ONE_OFFER)

    assert list(ranking.cost) == [80.0, 100.0]
    assert list(ranking.hours) == [40.0, 12.5]
    assert [ranking.place(position) for position in (0, 1)] == [(0, 0, 0, 0), (0, 1, 0, 0)]


def test_both_are_on_the_front_when_one_is_cheaper_and_the_other_sooner():
    assert list(rank(ONE_OFFER).front) == [0, 1]


def test_what_is_dearer_and_later_is_not_on_the_front():
    assert list(rank(space([[2.0, 8.0]], [[[[10.0]], [[12.5]]]])).front) == [0]


def test_the_best_for_a_deadline_is_the_cheapest_in_time():
    assert rank(ONE_OFFER).cheapest_by(24) == 1
    assert rank(ONE_OFFER).cheapest_by(40) == 0
    assert rank(ONE_OFFER).cheapest_by(12) is None


def test_the_best_for_a_budget_is_the_soonest_that_it_pays_for():
    assert rank(ONE_OFFER).fastest_within(100) == 1
    assert rank(ONE_OFFER).fastest_within(99) == 0
    assert rank(ONE_OFFER).fastest_within(79) is None


def test_what_does_not_fit_takes_no_part_and_what_may_fit_does():
    memory = [[[[TOO_LARGE]], [[OPEN]]]]

    assert len(rank(space([[2.0, 8.0]], [[[[40.0]], [[12.5]]]], memory=memory)).order) == 1


@pytest.mark.parametrize("missing", [np.nan, np.inf])
def test_an_unknown_time_or_a_count_that_is_not_offered_takes_no_part(missing):
    assert len(rank(space([[2.0, missing]], [[[[40.0]], [[12.5]]]])).order) == 1
    assert len(rank(space([[2.0, 8.0]], [[[[missing]], [[12.5]]]])).order) == 1


def test_nothing_possible_gives_an_empty_ranking():
    ranking = rank(space([[np.nan]], [[[[1.0]]]]))

    assert len(ranking.order) == len(ranking.front) == 0
    assert ranking.cheapest_by(1) is None
    assert ranking.fastest_within(1) is None


def test_offers_of_one_kind_share_their_times():
    ranking = rank(space([[2.0], [1.0], [3.0]], [[[[10.0]]]], kinds=[0, 0, 0]))

    assert list(ranking.cost) == [10.0, 20.0, 30.0]
    assert ranking.place(0)[0] == 1


def test_interruptions_stretch_time_and_cost_of_their_offer_alone():
    ranking = rank(space([[2.0], [1.0]], [[[[10.0]]]], kinds=[0, 0], stretch=[1.0, 1.5]))

    assert list(ranking.hours) == [15.0, 10.0]
    assert list(ranking.cost) == [15.0, 20.0]


def test_of_equal_costs_the_sooner_comes_first_also_among_thousands():
    few = rank(space([[4.0], [2.0]], [[[[5.0]]], [[[10.0]]]]))
    # every pair costs the same
    hours = np.arange(1.0, 5001.0)
    many = rank(space((1.0 / hours)[:, None], hours[:, None, None, None]))

    assert list(few.hours) == [5.0, 10.0]
    assert np.all(np.diff(many.hours[np.isclose(many.cost, many.cost[0], rtol=0, atol=0)]) > 0)


def test_only_the_wanted_counts_take_part():
    assert list(rank(ONE_OFFER, within=np.asarray([[False, True]])).cost) == [100.0]


grids = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@st.composite
def spaces(draw):
    offers, counts, strategies, settings_ = draw(grids)
    numbers = st.integers(1, 50).map(float)
    hourly = draw(arrays.arrays(float, (offers, counts), elements=st.one_of(numbers, st.just(np.nan))))
    hours = draw(arrays.arrays(float, (offers, counts, strategies, settings_), elements=st.one_of(numbers, st.just(np.nan))))
    memory = draw(arrays.arrays(np.int8, hours.shape, elements=st.sampled_from([FITS, OPEN, TOO_LARGE])))
    return space(hourly, hours, memory=memory)


@settings(max_examples=150)
@given(spaces())
def test_the_ranking_holds_every_possible_plan_once_in_order(one):
    ranking = rank(one)
    possible = {
        index
        for index, (hours, memory) in enumerate(zip(one.hours.ravel(), one.memory.ravel(), strict=True))
        if np.isfinite(hours) and memory >= OPEN and np.isfinite(one.hourly.ravel()[index // (one.shape[2] * one.shape[3])])
    }

    assert set(ranking.order.tolist()) == possible
    assert len(ranking.order) == len(possible)
    assert np.all(np.diff(ranking.cost) >= 0)


@settings(max_examples=150)
@given(spaces())
def test_the_front_has_no_dominated_plan_and_misses_none(one):
    ranking = rank(one)
    points = list(zip(ranking.cost, ranking.hours, strict=True))

    def beaten(point):
        return any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)

    front = [points[position] for position in ranking.front]
    assert not any(beaten(point) for point in front)
    assert {point for point in points if not beaten(point)} == set(front)
    assert len(set(front)) == len(front)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=30))
def test_the_front_of_points_is_that_of_the_ranking(points):
    hours, cost = np.asarray([p[0] for p in points], dtype=float), np.asarray([p[1] for p in points], dtype=float)

    found = [points[index] for index in front_of(hours, cost)]

    assert set(found) == {point for point in points if not any(o[0] <= point[0] and o[1] <= point[1] and o != point for o in points)}

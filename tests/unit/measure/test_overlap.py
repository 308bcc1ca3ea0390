import pytest

from wiretax.measure.overlap import FEWEST, MOST, inside, plan_queue


@pytest.mark.parametrize(("first", "second"), [(1.4e-3, 0.9e-3), (1.4e-3, 10e-3), (10e-3, 1e-3)])
def test_both_streams_are_kept_busy_for_about_the_same_time(first, second):
    order = plan_queue(first, second, 0.4)
    firsts, seconds = order.count(True) * first, order.count(False) * second
    assert abs(firsts - seconds) <= first + second
    assert min(firsts, seconds) >= 0.4


def test_neither_stream_is_ever_far_behind_the_other():
    at = [0.0, 0.0]
    for is_first in plan_queue(1.0, 3.0, 30.0):
        at[0 if is_first else 1] += 1.0 if is_first else 3.0
        assert abs(at[0] - at[1]) <= 3.0


def test_a_slow_wire_is_given_enough_of_its_own_operations():
    order = plan_queue(1e-3, 0.1, 0.1)
    assert order.count(False) >= FEWEST


def test_very_unequal_works_do_not_queue_without_end():
    assert len(plan_queue(1e-6, 1.0, 0.4)) == 2 * MOST


def test_only_what_ran_while_the_other_was_under_way_counts():
    assert inside([1.0, 3.0, 6.0, 10.0], 6.0) == [3.0]
    assert inside([1.0], 6.0) == []

import pytest

from wiretax.model.forecast import Interval
from wiretax.model.money import PlanOption
from wiretax.plan.decision import Single, choose, constraint_of, decide
from wiretax.plan.request import Request


def exactly(value):
    return Interval(low=value, expected=value, high=value)


def single(hours=40.0, fits=None):
    span = None if hours is None else exactly(hours)
    return Single(gpu="A40", memory_bytes=48 * 10**9, peak=None, fits=fits, hours=span, wall=span)


def option(num_gpus, cost, hours=10.0, **more):
    return PlanOption(
        **(
            {"num_gpus": num_gpus, "cost": cost, "hours": hours, "currency": "USD", "offer": "A40", "strategy": "ddp", "hourly_cost": 8.0}
            | more
        )
    )


@pytest.mark.parametrize(
    ("singles", "deadline", "constraint"),
    [
        ([single()], None, "none"),
        ([single()], 40, "none"),
        ([single()], 39, "too_slow"),
        ([single(fits=False)], 39, "does_not_fit"),
        ([single(fits=False), single(fits=True)], None, "none"),
        ([single(30, fits=False), single(50, fits=True)], 40, "too_slow"),
        ([single(30), single(50)], 40, "none"),
        ([single(None)], 10, "none"),
        ([], 10, "none"),
    ],
)
def test_the_best_single_gpu_names_the_constraint(singles, deadline, constraint):
    assert constraint_of(singles, Request(deadline_hours=deadline)) == constraint


def test_with_nothing_forcing_more_one_gpu_wins_over_cheaper_sets():
    assert choose([option(1, 80), option(4, 60)], "none", Request()) == 0


def test_with_a_constraint_the_cheapest_wins():
    assert choose([option(2, 80), option(4, 60)], "too_slow", Request()) == 1


def test_of_equal_costs_fewer_gpus_win():
    assert choose([option(4, 60), option(2, 60)], "too_slow", Request()) == 1


def test_what_does_not_fit_or_makes_no_sense_is_never_chosen():
    assert choose([option(2, 10, fits=False), option(2, 20, strategy=None), option(2, 30)], "too_slow", Request()) == 2


def test_what_surely_fits_wins_over_what_may():
    assert choose([option(2, 10, fits=None), option(2, 30, fits=True)], "too_slow", Request()) == 1


def test_what_may_fit_is_better_than_nothing():
    assert choose([option(2, 10, fits=None), option(2, 30, fits=False)], "too_slow", Request()) == 0


def test_what_surely_keeps_the_deadline_wins_over_what_should():
    likely = option(2, 10, hours=10.0, meets_deadline=None)

    assert choose([likely, option(2, 30, meets_deadline=True)], "too_slow", Request(deadline_hours=12)) == 1
    assert choose([likely, option(2, 30, meets_deadline=False)], "too_slow", Request(deadline_hours=12)) == 0


def test_what_should_not_keep_the_deadline_is_not_chosen_even_alone():
    assert choose([option(2, 10, hours=13.0, meets_deadline=None)], "too_slow", Request(deadline_hours=12)) is None


def test_with_interruptions_the_certain_hours_decide():
    late = option(2, 10, hours=11.0, hours_at_quantile=13.0, meets_deadline=None)

    assert choose([late], "too_slow", Request(deadline_hours=12)) is None


def test_without_any_time_the_lowest_price_an_hour_that_holds_it_wins():
    options = [option(8, None, hours=None, hourly_cost=40.0, fits=True), option(4, None, hours=None, hourly_cost=30.0, fits=True)]

    assert choose(options, "does_not_fit", Request(), timed=False) == 1
    assert choose(options, "does_not_fit", Request(), timed=True) is None


def test_the_front_and_every_reason_are_filled_in():
    options = (option(1, 80, 40.0), option(4, 100, 12.5), option(4, 120, 20.0))
    found = decide(options, [single()], Request(), baseline=options[0])

    assert [one.on_front for one in found.options] == [True, True, False]
    assert all(one.why for one in found.options)
    assert found.one_gpu_hours == 40


def test_the_next_gpus_are_compared_with_the_next_smaller_number_of_the_same_offer():
    options = (option(1, 80, 40.0), option(2, 90, 22.0), option(4, 120, 15.0), option(4, 60, 30.0, offer="other"))
    found = decide(options, [single()], Request(), baseline=options[0])

    assert found.options[2].marginal_cost_per_hour_saved == pytest.approx(30 / 7)
    assert found.options[2].extra_cost_per_hour_saved == pytest.approx(40 / 25)
    assert found.options[3].marginal_cost_per_hour_saved is None

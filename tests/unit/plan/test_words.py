import pytest

from plans import offer
from wiretax.model.forecast import Interval
from wiretax.model.money import PlanOption
from wiretax.plan.request import Request
from wiretax.plan.words import Standing, reason, sentence, who

ONE = PlanOption(num_gpus=1, hours=40.0, cost=80.0, currency="USD")


def option(num_gpus=4, hours=12.5, cost=100.0, **more):
    return PlanOption(**({"num_gpus": num_gpus, "hours": hours, "cost": cost, "currency": "USD"} | more))


def standing(*options, choice=0, constraint="none", **request):
    return Standing(constraint=constraint, request=Request(**request), options=options, choice=choice, fewest=None, baseline=ONE)


def why(one, **more):
    return reason(1, standing(ONE, one, **more))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"num_gpus": 1}, "one GPU"),
        ({"num_gpus": 4}, "4 GPUs"),
        ({"num_gpus": 1, "gpu": "RTX 4090"}, "one RTX 4090"),
        ({"num_gpus": 4, "gpu": "RTX 4090", "billing": "spot"}, "4x RTX 4090 on spot"),
    ],
)
def test_an_option_is_called_as_people_call_it(values, text):
    assert who(option(**values)) == text


def test_sooner_and_dearer_says_what_an_hour_costs():
    assert why(option()) == "27.5 h sooner but 25 % dearer: 0.727 USD for each hour saved, and nothing forces it"


def test_sooner_for_the_same_money_is_said_so():
    assert why(option(cost=80.1)) == "27.5 h sooner for the same money, but nothing forces it"


def test_dearer_and_slower_says_by_how_much():
    assert why(option(hours=60, cost=200)) == "2.5 times as dear and 50 % slower"


def test_cheaper_but_more_than_needed_is_said_so():
    assert why(option(cost=60)) == "25 % cheaper, 69 % sooner; one GPU is enough and simpler"


def test_what_is_the_same_with_more_gpus_is_said_so():
    assert why(option(hours=40, cost=80)) == "as dear and as fast as the choice, with more GPUs"


def test_too_large_names_the_need_and_a_batch_that_would_do():
    need = Interval(low=90e9, expected=100e9, high=110e9)

    assert "93.1 GiB on each GPU; a batch of 3 would fit" in why(
        option(fits=False, peak_memory_bytes=need, largest_batch_per_gpu=3, hours=None, cost=None)
    )


def test_an_unknown_time_gives_its_reason():
    assert "give --hours" in why(option(hours=None, cost=None, missing={"hours": "give --hours"}))


def test_a_range_that_holds_the_deadline_is_a_doubt():
    span = Interval(low=10, expected=12.5, high=30)
    text = why(option(hours_range=span, meets_deadline=None), deadline_hours=20, choice=0)

    assert text.startswith("it may be late: 10 h to 30 h against 20 h")


def test_a_cost_range_that_holds_the_budget_is_a_doubt():
    span = Interval(low=50, expected=100, high=150)

    assert "it may cost up to 150.00 USD" in why(option(cost_range=span), budget=120)


def test_over_the_budget_names_both_amounts():
    assert why(option(within_budget=False), budget=90) == "costs 100.00 USD, more than the budget of 90.00 USD"


def test_the_verdict_names_the_constraint_first():
    text = sentence(standing(ONE, option(), choice=1, constraint="too_slow", deadline_hours=20), 40.0, None)

    assert text.startswith("One GPU is too slow: 40 h against a deadline of 20 h. Rent 4 GPUs: done in 12.5 h for 100.00 USD")


def test_the_verdict_of_a_free_gpu_does_not_divide_by_nothing():
    free = PlanOption(num_gpus=1, hours=40.0, cost=0.0, currency="USD")
    text = sentence(
        Standing(constraint="none", request=Request(), options=(free, option(hours=50)), choice=0, fewest=None, baseline=free), 40.0, None
    )

    assert "0.00 USD" in text
    assert "would not even be sooner" in text


def test_an_offer_has_its_own_name_beside_its_card():
    assert offer(gpu="A40", name="mine").name == "mine"

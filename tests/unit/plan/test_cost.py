import pytest

from wiretax.errors import UsageError
from wiretax.model.money import Price
from wiretax.plan.cost import (
    break_even_efficiency,
    break_even_gpu_hour_price,
    check_efficiency,
    extra_cost_per_hour_saved,
    hourly_cost,
    one_currency,
    run_cost,
    wall_hours,
    wire_tax_per_hour,
)

TWO_DOLLARS = Price(amount=2.0, currency="USD", per="gpu_hour")


def test_forty_hours_at_two_dollars_cost_eighty():
    assert run_cost(TWO_DOLLARS, 1, wall_hours(40, 1)) == 80


def test_four_gpus_at_eighty_percent_take_12_and_a_half_hours_and_cost_a_hundred():
    hours = wall_hours(40, 4, 0.8)

    assert hours == 12.5
    assert run_cost(TWO_DOLLARS, 4, hours) == 100


def test_eight_gpus_at_seventy_percent_do_5_6_times_the_work_of_one():
    assert 1 / wall_hours(1, 8, 0.7) == pytest.approx(5.6)


def test_a_box_costs_the_same_however_many_of_its_gpus_are_used():
    box = Price(amount=0.58, currency="EUR", per="box_hour")

    assert hourly_cost(box, 1) == hourly_cost(box, 4) == 0.58


def test_the_wire_tax_is_the_share_of_the_price_that_pays_for_waiting():
    assert wire_tax_per_hour(8.0, 0.8) == pytest.approx(1.6)
    assert wire_tax_per_hour(8.0, 1.1) == 0


def test_each_hour_saved_has_its_price():
    assert extra_cost_per_hour_saved(100, 12.5, 80, 40) == pytest.approx(20 / 27.5)


def test_nothing_is_saved_by_what_is_no_sooner():
    assert extra_cost_per_hour_saved(100, 40, 80, 40) is None


def test_at_one_price_only_perfect_scaling_costs_no_more_than_one_gpu():
    assert break_even_efficiency(8.0, 4, 40, 80) == pytest.approx(1.0)


def test_a_cheaper_box_breaks_even_a_little_below_perfect_scaling():
    assert break_even_efficiency(0.58, 4, 1.0, 0.15) == pytest.approx(0.58 / 0.60)


def test_nothing_breaks_even_with_a_gpu_that_costs_nothing():
    assert break_even_efficiency(8.0, 4, 40, 0) is None


def test_the_price_that_breaks_even_is_the_single_price_times_the_efficiency():
    assert break_even_gpu_hour_price(4, 12.5, 80) == pytest.approx(2.0 * 0.8)


@pytest.mark.parametrize("value", [0.01, 0.5, 1.0])
def test_fractions_are_efficiencies(value):
    assert check_efficiency(value) == value


@pytest.mark.parametrize(("value", "fix"), [(80, "0.8"), (97.5, "0.975"), (2, "0.02"), (100, "Write it as a fraction: 1")])
def test_a_percentage_is_an_error_that_names_the_fraction(value, fix):
    with pytest.raises(UsageError, match="percentage") as caught:
        check_efficiency(value)
    assert fix in str(caught.value)


@pytest.mark.parametrize("value", [1.05, 1.9, 101, 1e9])
def test_more_than_perfect_scaling_is_an_error_that_says_how_to_give_measurements(value):
    with pytest.raises(UsageError, match="--throughput"):
        check_efficiency(value)


@pytest.mark.parametrize("value", [0, -0.8, float("nan"), float("inf"), float("-inf")])
def test_nothing_and_no_number_are_errors(value):
    with pytest.raises(UsageError):
        check_efficiency(value)


def test_one_currency_is_that_currency():
    assert one_currency(["EUR", "EUR"]) == "EUR"


def test_mixed_currencies_are_an_error_that_names_them():
    with pytest.raises(UsageError, match="EUR and USD") as caught:
        one_currency(["USD", "EUR", "USD"])
    assert "Convert" in caught.value.do

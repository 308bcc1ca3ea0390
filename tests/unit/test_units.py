from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretax import units


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9.996, "10.0"), (99.96, "100"), (123.4, "123"), (1234, "1234"), (0.0123, "0.0123"), (-0.25, "-0.250"), (1, "1.00")],
)
def test_a_number_keeps_three_significant_digits_and_no_exponent(value: float, text: str) -> None:
    assert units.significant(value) == text


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_a_shown_number_is_within_half_a_percent_of_the_true_one(value: float) -> None:
    assert float(units.significant(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("value", "text"), [(22.1e9, "22.1 GB/s"), (999.6e6, "1.00 GB/s"), (850e6, "850 MB/s"), (4.3e12, "4.30 TB/s"), (12, "12 B/s")]
)
def test_rates_are_decimal(value: float, text: str) -> None:
    assert units.rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(8, "8 B"), (1 << 20, "1 MiB"), (3 << 19, "1.5 MiB"), (1 << 30, "1 GiB"), (1000, "1000 B")])
def test_sizes_are_binary_and_round_ones_have_no_decimals(value: int, text: str) -> None:
    assert units.size(value) == text


def test_the_memory_of_a_card_reads_as_on_its_box() -> None:
    assert units.memory(25_757_220_864) == "24 GiB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (5e-10, "0.500 ns"),
        (9.1e-6, "9.10 us"),
        (0.0159, "15.9 ms"),
        (0.99996, "1.00 s"),
        (119, "119 s"),
        (720, "12.0 min"),
        (19800, "5.50 h"),
    ],
)
def test_time_spans_change_unit_where_people_do(value: float, text: str) -> None:
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 EUR"), (0.58, "0.58 EUR"), (0.145, "0.145 EUR"), (0.0077, "0.0077 EUR"), (12.345, "12.35 EUR"), (2.9, "2.90 EUR")],
)
def test_money_carries_its_currency_and_small_sums_are_not_rounded_away(value: float, text: str) -> None:
    assert units.money(value, "EUR") == text


def test_fractions_become_percentages() -> None:
    assert [units.percent(value) for value in (0, 0.0004, 0.004, 0.0999, 0.89, 1.04)] == ["0 %", "0 %", "0.4 %", "10 %", "89 %", "104 %"]


def test_arithmetic_rates_find_their_unit() -> None:
    assert [units.flops(value) for value in (788e12, 54e9, 1.2e15, 3e6)] == ["788 TFLOP/s", "54.0 GFLOP/s", "1.20 PFLOP/s", "3.00 MFLOP/s"]

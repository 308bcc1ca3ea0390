from __future__ import annotations

from dataclasses import replace

import pytest

import sample_runs
from wiretax.model.forecast import Forecast, Interval
from wiretax.model.money import Price
from wiretax.show.plain import UNICODE
from wiretax.show.terminal import as_text
from wiretax.show.training import box_per_hour

DASH = UNICODE.dash
TIMES = UNICODE.times


def row(text: str, wire: str) -> list[str]:
    section = text[text.index("\nTraining") :]
    return next(line.split() for line in section.splitlines() if line.strip().startswith(wire))


def test_two_bounds_become_one_range_with_what_each_assumes() -> None:
    text = as_text(sample_runs.h200_pair(), 100)
    assert " ".join(row(text, "default")) == f"default 2 91.9 to 104 ms 1.77 to 2.00 {TIMES} 0 to 11 %"
    assert "no overlap: the step waits for all communication" in text
    assert "perfect overlap: all communication hides" in text


def test_one_forecast_shows_its_own_interval() -> None:
    one = Forecast(
        strategy="ddp",
        num_gpus=2,
        wire="default",
        workload="w",
        step_seconds=Interval(low=0.09, expected=0.1, high=0.125),
        efficiency_fraction=0.9,
        wire_tax_fraction=0.1,
        speedup=1.8,
    )
    text = as_text(replace(sample_runs.h200_pair(), forecasts=(one,)), 100)
    assert " ".join(row(text, "default")) == f"default 2 90.0 to 125 ms 1.44 to 2.00 {TIMES} 0 to 28 %"


def test_the_step_of_one_gpu_is_set_beside_those_of_many_like_beside_like() -> None:
    alone = Forecast(
        strategy="ddp",
        num_gpus=1,
        wire="none",
        workload="w",
        step_seconds=Interval(low=0.08, expected=0.09, high=0.1),
        efficiency_fraction=1.0,
        assumptions=("the head takes 9 ms", "memory is not looked at"),
    )
    two = replace(
        alone,
        num_gpus=2,
        wire="default",
        step_seconds=Interval(low=0.1, expected=0.12, high=0.16),
        efficiency_fraction=0.75,
        assumptions=("bounds, not a prediction", "memory is not looked at"),
    )
    text = as_text(replace(sample_runs.h200_pair(), forecasts=(alone, two)), 100)
    assert " ".join(row(text, "alone")) == f"alone 1 80.0 to 100 ms 1.00 {TIMES} 0 %"
    assert " ".join(row(text, "default")) == f"default 2 100 to 160 ms 1.25 to 1.60 {TIMES} 20 to 38 %"
    assert "default on 2: bounds, not a prediction" in text
    assert text.count("memory is not looked at") == 1


def test_a_forecast_that_could_not_be_made_is_a_dash_and_not_a_zero() -> None:
    none = Forecast(strategy="ddp", num_gpus=2, wire="default", workload="w", missing={"step_seconds": "no profile"})
    made = replace(none, wire="socket", step_seconds=Interval(low=1.0, expected=1.1, high=1.2), missing={})
    text = as_text(replace(sample_runs.h200_pair(), forecasts=(none, made)), 100)
    assert "default: no profile" in text
    assert row(text, "default") == ["default", "2", DASH, DASH, DASH]


def test_where_no_step_could_be_predicted_a_sentence_says_why_and_no_table_of_dashes_stands_there() -> None:
    none = Forecast(strategy="ddp", num_gpus=2, wire="default", workload="w", missing={"step_seconds": "no profile"})
    text = as_text(replace(sample_runs.h200_pair(), forecasts=(none, replace(none, wire="socket"))), 100)
    assert "not predicted for w: no profile" in text
    assert "step time" not in text


def test_with_a_price_the_wire_tax_is_money_per_hour() -> None:
    text = as_text(sample_runs.h200_pair(Price(amount=2.9, currency="EUR", per="gpu_hour")), 100)
    assert row(text, "p2p_off")[-4:] == ["1.59", "to", "3.36", "EUR"]
    assert "5.80 EUR per hour for the box" in text


def test_without_a_price_there_is_no_money() -> None:
    text = as_text(sample_runs.h200_pair(), 100)
    assert "EUR" not in text
    assert "Money" not in text


@pytest.mark.parametrize(
    ("price", "hourly"),
    [(Price(amount=0.58, currency="EUR", per="box_hour"), 0.58), (Price(amount=0.15, currency="EUR", per="gpu_hour"), 0.6)],
)
def test_a_price_per_gpu_counts_every_gpu_of_the_box(price: Price, hourly: float) -> None:
    assert box_per_hour(sample_runs.four_4090(price)) == pytest.approx(hourly)


def test_a_price_per_gpu_without_a_gpu_is_no_price_for_the_box() -> None:
    assert box_per_hour(replace(sample_runs.cpu_only(), price=Price(amount=1, currency="EUR", per="gpu_hour"))) is None

"""Tables of predictions: every figure with its unit, what is shared said once, what is unknown as a dash."""

from dataclasses import replace

import pytest

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.run import Run, Tool
from wiretax.show.plain import UNICODE
from wiretax.show.prediction import milliseconds
from wiretax.show.terminal import as_text

RUN = Run(run_id="r", created_at="2026-11-30T00:00:00+00:00", tool=Tool(version="0"), command="predict", missing={"machine": "none"})


def forecast(num_gpus, strategy="ddp", wire="default", **changes):
    given = {
        "step_seconds": Interval(low=0.09, expected=0.1, high=0.12),
        "efficiency_fraction": 0.8,
        "wire_tax_fraction": 0.2,
        "speedup": 0.8 * num_gpus,
        "batch_per_gpu": 4,
    }
    return Forecast(strategy=strategy, num_gpus=num_gpus, wire=wire, workload="gpt1.7b", **{**given, **changes})


def shown(*forecasts, width=80):
    return as_text(replace(RUN, forecasts=forecasts), width)


def test_a_row_has_the_range_the_factor_and_the_tax():
    text = shown(forecast(1, wire="none"), forecast(2), forecast(4))
    assert "gpt1.7b, batch 4 a GPU: ddp over default" in text
    (row,) = [line.split() for line in text.splitlines() if line.strip().startswith("4 ")]
    assert row == ["4", "90.0", "ms", "100.0", "ms", "120.0", "ms", "3.20", UNICODE.times, "20", "%"]


def test_strategies_and_wires_are_columns_only_where_they_differ():
    assert "strategy" not in shown(forecast(2), forecast(4))
    assert "wire  " not in shown(forecast(2), forecast(4))
    both = shown(forecast(2), forecast(2, "fsdp2", "p2p_off"))
    assert "strategy" in both and "p2p_off" in both


def test_memory_says_what_fits_and_what_does_not():
    peak = Interval(low=1e9, expected=2 * 2**30, high=3e9)
    text = shown(
        forecast(2, peak_memory_bytes=peak, fits=True), forecast(4, peak_memory_bytes=peak, fits=False), forecast(8, peak_memory_bytes=peak)
    )
    assert "2 GiB ✓" in text and "2 GiB ✗ too much" in text
    assert text.count("2 GiB") == 3


def test_an_assumption_of_some_rows_names_them_and_one_of_all_stands_once():
    text = shown(
        forecast(2, assumptions=("shared",)), forecast(4, assumptions=("shared", "far away")), forecast(2, "tp", assumptions=("shared",))
    )
    assert text.count("shared") == 1
    assert "ddp on 4: far away" in text


def test_many_assumptions_are_cut_and_counted():
    text = shown(forecast(2, assumptions=tuple(f"number {index}" for index in range(30))))
    assert "and 16 more, with --json" in text


def test_two_batches_are_two_tables():
    text = shown(forecast(2), forecast(2, batch_per_gpu=16))
    assert "batch 4 a GPU" in text and "batch 16 a GPU" in text


def test_the_formula_has_its_own_table():
    bare = forecast(2, step_seconds=None, all_reduce_seconds=0.00909, batch_per_gpu=None, missing={"step_seconds": "no"})
    text = shown(bare)
    assert "all-reduce" in text and "9.1 ms" in text and "expected" not in text


def test_bounds_of_a_check_keep_their_own_table():
    text = as_text(replace(RUN, command="check", forecasts=(forecast(2, batch_per_gpu=None),)), 80)
    assert "90.0 to 120 ms" in text and "predicted from the figures above" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0090909, "9.1 ms"), (0.0159, "15.9 ms"), (0.9, "900.0 ms"), (1.08, "1.08 s"), (150e-6, "150 us"), (0.0, "0 s")]
)
def test_steps_are_written_in_milliseconds_with_one_decimal(seconds, text):
    assert milliseconds(seconds) == text


@pytest.mark.parametrize("wires", [("default",), ("default", "p2p_off")])
def test_no_figure_is_cut_in_eighty_columns(wires):
    peak = Interval(low=1, expected=2**34, high=2**35)
    rows = [
        forecast(count, strategy, wire, peak_memory_bytes=peak, fits=True)
        for count in (2, 8)
        for strategy in ("ddp", "fsdp2_grad_op")
        for wire in wires
    ]
    assert "\u2026" not in shown(*rows)

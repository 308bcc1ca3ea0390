"""The charts as data: what is in them, in which colours, and that every one of them can be drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import report_runs
import sample_runs
from pages import runs
from wiretax.show import svg
from wiretax.show.charts import PAPER, Chart, charts_of
from wiretax.show.charts.colours import SPEED_COLOURS, SPEED_STEPS, SPEED_WORDS, speed_step
from wiretax.show.charts.parts import log_ticks
from wiretax.show.charts.planner import extended, waits
from wiretax.show.packed import _pack
from wiretax.show.series import Labelled
from wiretax.store.folder import load_run


def charts(name: str) -> dict[str, Chart]:
    return {chart.name: chart for chart in charts_of([Labelled("this run", runs(name))])}


def values(spec: Any) -> list[dict[str, Any]]:
    """All rows of all tables of a specification, each table once: layers repeat theirs."""
    tables: list[list[dict[str, Any]]] = []

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            for key, value in part.items():
                if key == "values" and isinstance(value, list) and value and isinstance(value[0], dict):
                    if value not in tables:
                        tables.append(value)
                else:
                    collect(value)
        elif isinstance(part, list):
            for inner in part:
                collect(inner)

    collect(spec)
    return [row for table in tables for row in table]


@pytest.mark.parametrize("name", ["h200_pair", "eight", "sixty_four", "budget_box", "inspected", "cpu_only", "hung"])
def test_every_chart_can_be_drawn_and_says_what_is_seen(name: str) -> None:
    for chart in charts(name).values():
        assert chart.says
        assert chart.table.rows
        assert all(len(row) == len(chart.table.headings) for row in chart.table.rows)
        if chart.spec is not None:
            picture = svg.inline(chart.spec, chart.name, chart.says)
            assert picture.startswith("<svg role=")
            assert "NaN" not in picture
            assert "undefined" not in picture


def test_a_wire_has_one_colour_in_all_charts_and_follows_the_theme() -> None:
    for chart in charts("h200_pair").values():
        if chart.name in ("busbw", "latency", "scaling"):
            assert '"var(--wire-p2p-off)"' in json.dumps(chart.spec)
        assert "#0b6e8f" not in json.dumps(chart.spec)


def test_the_wire_chart_holds_what_was_measured_the_limits_and_a_reference() -> None:
    rows = values(charts("h200_pair")["busbw"].spec)
    measured = [row for row in rows if "seconds" in row]
    top = max(row["busbw"] for row in measured if row["wire"] == "default" and row["op"] == "all_reduce")
    assert top == pytest.approx(326.8, abs=2)
    assert {row["wire"] for row in rows if "low" in row} == {"default", "p2p_off", "socket", "gloo"}
    assert any(row.get("ref") == "h200x8" for row in rows)


def test_the_own_kind_of_machine_is_not_offered_as_a_reference() -> None:
    assert not any(row.get("ref") == "h200x2" for row in values(charts("h200_pair")["busbw"].spec))
    assert any(row.get("ref") == "h200x2" for row in values(charts("budget_box")["busbw"].spec))


def test_a_straggler_has_the_alarm_colour_and_is_named() -> None:
    chart = charts("budget_box")["compute"]
    states = {row["gpu"]: row["state"] for row in values(chart.spec) if "state" in row}
    assert states == {"GPU0": "ok", "GPU1": "ok", "GPU2": "slow", "GPU3": "ok"}
    assert "GPU2 by 22 %" in chart.says
    assert "sw thermal slowdown" in chart.says


def test_of_many_gpus_the_slowest_are_drawn_and_all_are_in_the_table() -> None:
    chart = charts("sixty_four")["compute"]
    drawn = [row for row in values(chart.spec) if "gpu" in row]
    assert len(drawn) == 24
    assert "GPU3" in {row["gpu"] for row in drawn}
    assert len(chart.table.rows) == 64


def test_measured_steps_stand_on_the_predicted_band() -> None:
    rows = values(charts("eight")["scaling"].spec)
    bands = {(row["wire"], row["n"]): row for row in rows if "low" in row}
    dots = [row for row in rows if "speedup" in row and "low" not in row and "wire" in row]
    assert dots
    for dot in dots:
        band = bands[dot["wire"], dot["n"]]
        assert band["low"] <= dot["speedup"] <= band["high"]
    assert all(bands[wire, 1]["speedup"] == 1 for wire, n in bands if n == 1)


def test_a_steps_parts_add_up_to_the_step() -> None:
    run = report_runs.many(8, everything=True)
    rows = [row for row in values(charts("eight")["step"].spec) if "part" in row]
    step = next(s for s in run.training.steps if (s.wire, s.num_gpus) == ("socket", 8))
    mine = [row["t"] for row in rows if row["key"] == "socket, 8 GPUs"]
    assert sum(mine) == pytest.approx(step.step_seconds, rel=1e-3)


def test_a_measured_wait_that_passes_within_backward_is_not_counted_twice() -> None:
    run = load_run(Path(__file__).parents[3] / "benchmarks" / "results" / "scale_cpu.json")
    chart = next(chart for chart in charts_of([Labelled("this run", run)]) if chart.name == "step")
    rows = [row for row in values(chart.spec) if "part" in row]
    for step in run.training.steps:
        key = "1 CPU rank" if step.num_gpus == 1 else "gloo, 2 CPU ranks"
        assert sum(row["t"] for row in rows if row["key"] == key) == pytest.approx(step.step_seconds * 1e3, rel=1e-3)
    backward = next(row["t"] for row in rows if row["key"] == "gloo, 2 CPU ranks" and row["part"] == "backward")
    phases = run.training.steps[-1].phases
    assert phases is not None
    assert backward == pytest.approx(1e3 * (phases.backward - phases.exposed_communication), rel=1e-3)  # type: ignore[operator]


def test_what_the_wire_takes_of_a_predicted_step_is_its_wait_and_its_slowing_down() -> None:
    run = load_run(Path(__file__).parents[3] / "benchmarks" / "results" / "h200x2" / "check_default_default.json")
    chart = next(chart for chart in charts_of([Labelled("this run", run)]) if chart.name == "step")
    rows = [row for row in values(chart.spec) if "part" in row]
    forecast = next(f for f in run.forecasts if f.wire == "default" and f.num_gpus == 2)
    mine = {row["part"]: row["t"] for row in rows if row["key"] == "default, 2 GPUs"}
    taken = (mine["slowed by the wire"] + mine["waiting for the wire"]) / sum(mine.values())
    assert forecast.wire_tax_fraction is not None
    assert taken == pytest.approx(forecast.wire_tax_fraction, abs=0.002)


def test_an_axis_of_times_has_round_labels_however_short_it_is() -> None:
    assert log_ticks([7.7, 620.0])["values"] == [10, 20, 50, 100, 200, 500]
    assert log_ticks([18.5, 33.0])["values"] == [20, 25, 30]
    assert log_ticks([2e-5, 1.4])["values"] == [1e-4, 1e-3, 1e-2, 1e-1, 1]


def test_without_measured_phases_the_waiting_comes_from_the_forecast() -> None:
    rows = [row for row in values(charts("budget_box")["step"].spec) if "part" in row and row["key"] == "default, 4 GPUs"]
    waiting = next(row["t"] for row in rows if row["part"] == "waiting for the wire")
    assert waiting / sum(row["t"] for row in rows) == pytest.approx(0.93, abs=0.02)


def test_the_planner_starts_from_the_price_and_the_forecast_of_the_run() -> None:
    spec = charts("h200_pair")["planner"].spec
    assert spec is not None
    starts = {parameter["name"]: parameter.get("value") for parameter in spec["params"]}
    assert starts["price"] == 3.5
    assert starts["currency"] == "USD"
    assert starts["gpus"] == 2
    assert starts["source"] == "default"


def test_the_planner_says_that_a_price_is_assumed() -> None:
    assert "assumption" in charts("inspected")["planner"].caption
    assert "assumption" not in charts("h200_pair")["planner"].caption


def test_a_wait_grows_with_the_volume_of_the_ring_beyond_what_was_forecast() -> None:
    found = waits(report_runs.many(8, everything=True))
    at_8 = next(w.share for w in found if (w.source, w.num_gpus) == ("p2p_off", 8))
    assert extended(found, "p2p_off", 8) == at_8
    assert extended(found, "p2p_off", 16) == pytest.approx(at_8 * (15 / 16) / (7 / 8))
    assert extended(found, "p2p_off", 1) == 0


def test_a_machine_without_a_gpu_has_no_planner_and_no_pairs() -> None:
    assert {"busbw", "latency", "compute"} == charts("cpu_only").keys()


def test_two_runs_are_told_apart_in_each_chart() -> None:
    items = [Labelled("before", sample_runs.h200_pair()), Labelled("after", report_runs.h200_pair())]
    for chart in charts_of(items):
        if chart.name == "planner":
            continue
        text = json.dumps(chart.spec)
        assert "before" in text, chart.name
        assert "after" in text, chart.name
        assert "before" in chart.says, chart.name
        assert "after" in chart.says, chart.name
        assert svg.inline(chart.spec, chart.name, chart.says) if chart.spec else True


def test_in_words_each_run_has_its_own_best_figures() -> None:
    items = [Labelled("on", sample_runs.h200_pair()), Labelled("off", report_runs.p2p_switched_off())]
    said = {chart.name: chart.says for chart in charts_of(items)}
    on, off = said["busbw"].split("off: ")
    assert on.startswith("on: ")
    assert "default 324 GB/s" in on
    assert "default 28.0 GB/s" in off
    assert "off: An all-reduce of" in said["latency"]


def test_the_planner_says_where_nothing_was_forecast() -> None:
    assert "Beyond 2 GPUs, which nothing forecast" in charts("h200_pair")["planner"].caption


def test_speeds_have_as_many_colours_as_steps_and_words() -> None:
    assert len(SPEED_COLOURS) == len(SPEED_WORDS) == len(SPEED_STEPS) + 1
    assert [speed_step(rate) for rate in (0.0, 1.9e9, 2e9, 59e9, 383e9, 900e9)] == [0, 0, 1, 3, 5, 6]


def test_pictures_for_other_programs_have_plain_colours() -> None:
    chart = next(c for c in charts_of([Labelled("r", sample_runs.four_4090())], PAPER) if c.name == "busbw")
    assert chart.spec is not None
    text = svg.picture(chart.spec)
    assert "var(--" not in text
    assert "#0b6e8f" in text
    assert svg.bitmap(chart.spec, 1.0).startswith(b"\x89PNG")


def test_shrinking_touches_tags_only() -> None:
    text = '<svg class="marks" width="10"><g opacity="1"><text x="1.23456" id="a">role="img" 1.23456 &lt;g&gt;</text></g></svg>'
    assert svg.shrunk(text, "c", 'a "label"') == (
        '<svg role="img" aria-label="a &#34;label&#34;" preserveAspectRatio="xMinYMin meet" width="10">'
        '<g><text x="1.2" id="c-a">role="img" 1.23456 &lt;g&gt;</text></g></svg>'
    )


def test_packing_keeps_every_value() -> None:
    spec = {"data": {"values": [{"a": "x", "b": 1}, {"a": "y", "b": 2.5}, {"a": "x", "b": None}, {"a": "x", "b": 4}]}}
    assert _pack(spec) == {"data": {"values": {"columns": {"a": ["x", "y", "x", "x"], "b": [1, 2.5, None, 4]}}}}
    many = {"values": [{"w": "default"}] * 9}
    assert _pack(many) == {"values": {"columns": {"w": {"words": ["default"], "at": [0] * 9}}}}

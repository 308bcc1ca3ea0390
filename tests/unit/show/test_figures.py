"""Tables on narrow terminals: no figure is ever cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

import recording
import report_runs
import sample_runs
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import indented
from wiretax.show.terminal import Page, as_text
from wiretax.store.folder import load_run

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def shown(width: int) -> list[str]:
    table = Figures(keys=2)
    table.add_column("wire", no_wrap=True)
    table.add_column("GPUs", justify="right", no_wrap=True)
    for heading in ("low", "expected", "\n\nhigh", "wire\ntax"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("default", "2", "93.7 ms", Text("99.7 ms"), "107.7 ms", "7.8 %")
    page = Page("utf-8")
    Console(file=page, width=width, color_system=None).print(indented(table))
    return [line.rstrip() for line in page.getvalue().splitlines()]


def test_a_table_that_fits_is_one_table() -> None:
    assert shown(60)[-1].split() == ["default", "2", "93.7", "ms", "99.7", "ms", "107.7", "ms", "7.8", "%"]


def test_a_table_that_does_not_fit_goes_on_below_with_its_key_columns() -> None:
    lines = shown(36)
    assert [line.split() for line in lines if "default" in line] == [
        ["default", "2", "93.7", "ms", "99.7", "ms"],
        ["default", "2", "107.7", "ms", "7.8", "%"],
    ]
    assert max(map(len, lines)) <= 36
    assert "" in lines, "a blank line between the parts"


def test_headings_levelled_with_taller_ones_stand_on_top_of_their_own_part() -> None:
    lines = shown(27)
    first = next(k for k, line in enumerate(lines) if "high" in line)
    assert lines[first - 1] == ""


RUNS: dict[str, Run] = {
    "pair": sample_runs.h200_pair(),
    "box": sample_runs.four_4090(),
    "recorded": recording.run(),
    "many": report_runs.many(8, everything=True),
    **{name: load_run(RESULTS / name) for name in ("scale_cpu.json", "check_cpu.json")},
    "check": load_run(RESULTS / "h200x2" / "check_default_default.json"),
    "profile": load_run(RESULTS.parents[1] / "examples" / "h200x2" / "profiles.json"),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", [50, 60, 70, 80])
def test_no_figure_of_any_run_ends_in_an_ellipsis(name: str, width: int) -> None:
    text = as_text(RUNS[name], width)
    assert "\u2026" not in text
    assert max(len(line) for line in text.splitlines()) <= width

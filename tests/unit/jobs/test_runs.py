"""The runs on this disk: filters, tags, pruning, export, metrics."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import report_runs
import sample_runs
from wiretax import as_metrics
from wiretax.errors import UsageError
from wiretax.jobs.runs import CSV_COLUMNS, Filter, list_runs, points_csv, prune_runs, tag_run
from wiretax.model.run import Run
from wiretax.store.folder import load_run, runs_folder, save_run

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRETAX_HOME", str(tmp_path))
    return runs_folder()


def keep(run: Run, day: int, name: str, tags: tuple[str, ...] = ()) -> Run:
    made = replace(run, run_id=f"202611{day:02}T120000-{name}", created_at=f"2026-11-{day:02}T12:00:00+00:00", tags=tags)
    save_run(made)
    return made


@pytest.fixture
def kept() -> None:
    keep(sample_runs.h200_pair(), 29, "pair", ("good",))
    keep(sample_runs.four_4090(), 20, "four")
    keep(sample_runs.inspected(), 10, "facts")
    keep(sample_runs.cpu_only(), 30, "laptop")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (Filter(), ["laptop", "pair", "four", "facts"]),
        (Filter(gpu="4090"), ["four", "facts"]),
        (Filter(gpu="h200"), ["pair"]),
        (Filter(tags=("good",)), ["pair"]),
        (Filter(command="inspect"), ["facts"]),
        (Filter(code="p2p-*"), ["four"]),
        (Filter(since=timedelta(days=5)), ["laptop", "pair"]),
        (Filter(decision="use_one"), ["four"]),
        (Filter(gpu="4090", decision="use_all"), []),
    ],
)
def test_filters_choose(chosen: Filter, names: list[str]) -> None:
    assert [one.run_id.partition("-")[2] for one in list_runs(chosen, now=NOW)] == names


@pytest.mark.usefixtures("kept")
def test_a_file_that_is_no_run_is_listed_only_without_a_filter(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    assert [one.problem is not None for one in list_runs()].count(True) == 1
    assert not any(one.problem for one in list_runs(Filter(gpu="4090")))


@pytest.mark.usefixtures("kept")
def test_tags_come_and_go_and_nothing_else_changes() -> None:
    before = load_run("20261120")
    assert tag_run("20261120", ["bad box", "vast"]) == ("bad box", "vast")
    assert tag_run("20261120", ["vast"], ["bad box"]) == ("vast",)
    after = load_run("20261120")
    assert after == replace(before, tags=("vast",))
    assert [one.run_id for one in list_runs(Filter(tags=("vast",)))] == [before.run_id]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("tag", ["", "  ", "a,b", "a\nb"])
def test_a_tag_that_is_none_is_refused(tag: str) -> None:
    with pytest.raises(UsageError, match="no tag"):
        tag_run("20261120", [tag])


@pytest.mark.usefixtures("kept")
def test_pruning_keeps_the_newest_and_the_tagged() -> None:
    gone = prune_runs(keep=1)
    assert [one.run_id.partition("-")[2] for one in gone] == ["four", "facts"]
    assert [one.run_id.partition("-")[2] for one in list_runs()] == ["laptop", "pair"]


@pytest.mark.usefixtures("kept")
def test_pruning_by_age_and_a_dry_run_removes_nothing() -> None:
    gone = prune_runs(older_than=timedelta(days=15), dry_run=True, now=NOW)
    assert [one.run_id.partition("-")[2] for one in gone] == ["facts"]
    assert len(list_runs()) == 4
    assert len(prune_runs(older_than=timedelta(days=15), now=NOW)) == 1
    assert len(list_runs()) == 3


def test_pruning_without_a_bound_is_refused() -> None:
    with pytest.raises(UsageError, match="which runs"):
        prune_runs()


@pytest.mark.usefixtures("kept")
def test_files_that_are_no_runs_are_never_pruned(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    prune_runs(keep=0)
    assert (folder / "broken.json").exists()


@pytest.mark.usefixtures("kept")
def test_the_export_has_a_row_for_every_point() -> None:
    rows = list(csv.DictReader(io.StringIO(points_csv(list_runs()))))
    made = [sample_runs.h200_pair(), sample_runs.four_4090(), sample_runs.cpu_only()]
    expected = sum(len(c.points) for run in made for c in run.measurements.collectives)
    assert len(rows) == expected
    assert tuple(rows[0]) == CSV_COLUMNS
    chosen = {"wire": "default", "operation": "all_reduce", "num_bytes": str(2**30)}
    pair = [row for row in rows if row["run_id"].endswith("pair") and chosen.items() <= row.items()]
    assert max(float(row["busbw_bytes_per_second"]) for row in pair) == pytest.approx(324e9, rel=0.01)
    assert {row["tags"] for row in pair} == {"good"}


def test_a_cell_that_looks_like_a_formula_is_text(folder: Path) -> None:
    run = sample_runs.h200_pair()
    wires = tuple(replace(c, wire="=HYPERLINK(1)") for c in run.measurements.collectives[:1])
    save_run(replace(run, run_id="x", measurements=replace(run.measurements, collectives=wires)))
    assert "\n'=HYPERLINK" not in points_csv(list_runs())
    assert ",'=HYPERLINK(1)," in points_csv(list_runs())


def test_metrics_are_flat_numbers() -> None:
    metrics = as_metrics(report_runs.h200_pair())
    assert all(isinstance(value, float) for value in metrics.values())
    assert metrics["all_reduce_busbw_peak_bytes_per_second.default.2"] == pytest.approx(327e9, rel=0.01)
    assert metrics["findings.problem"] == 0

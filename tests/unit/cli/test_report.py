"""``wiretax report``, ``compare`` and ``runs`` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sample_runs
from wiretax.cli.main import run
from wiretax.model.run import Run
from wiretax.store.folder import runs_folder, save_run

GATE = "all_reduce_busbw_peak_bytes_per_second.default.2:-5%"


def keep(made: Run, name: str = "20261130T221500-4f2a9c") -> str:
    save_run(replace(made, run_id=name))
    return name


def half_as_fast() -> Run:
    whole = sample_runs.h200_pair()
    slow = tuple(
        replace(
            c,
            points=tuple(
                replace(
                    p,
                    seconds=2 * p.seconds,
                    busbw_bytes_per_second=p.busbw_bytes_per_second / 2,
                    samples_seconds=tuple(2 * s for s in p.samples_seconds),
                )
                for p in c.points
            ),
        )
        for c in whole.measurements.collectives
    )
    return replace(whole, measurements=replace(whole.measurements, collectives=slow))


def test_a_report_of_a_kept_run_is_written_under_its_id(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.inspected())
    assert run(["report", "2026"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "written to 20261130T221500-4f2a9c.html" in err
    assert "FACTS ONLY" in (alone / "20261130T221500-4f2a9c.html").read_text(encoding="utf-8")


def test_sharing_says_what_was_removed(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.h200_pair())
    assert run(["report", "2026", "--share", "--still", "--html", "page.html"]) == 0
    assert "removed: 1 host name" in capfd.readouterr().err
    assert "trainer-7" not in (alone / "page.html").read_text(encoding="utf-8")


def test_markdown_goes_to_stdout_and_writes_no_page(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.four_4090())
    assert run(["report", "2026", "--markdown"]) == 0
    out, _ = capfd.readouterr()
    assert out.startswith("## 4 \u00d7 NVIDIA GeForce RTX 4090: USE ONE GPU: 0, give the box back")
    assert list(alone.glob("*.html")) == []


def test_charts_are_written_as_files(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.four_4090())
    assert run(["report", "2026", "--svg", "out", "--chart", "busbw"]) == 0
    assert "written to out/busbw.svg" in capfd.readouterr().err
    assert [path.name for path in (alone / "out").iterdir()] == ["busbw.svg"]


def test_a_run_whose_id_is_a_path_does_not_choose_where_it_is_written(alone: Path) -> None:
    save_run(replace(sample_runs.inspected(), run_id="../../etc/x\n<b>"), alone / "evil.json")
    assert run(["report", "evil.json", "--still"]) == 0
    assert [path.name for path in alone.glob("*.html")] == ["_.._etc_x__b_.html"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["report"],
        ["report", "nothing"],
        ["report", "2026", "--chart", "busbw"],
        ["report", "2026", "--no-redact"],
        ["report", "2026", "--svg", "out", "--chart", "nonsense"],
        ["report", "2026", "--html", "no/such/folder/page.html"],
        ["compare", "2026"],
        ["compare", "2026", "2026", "--json", "--markdown"],
        ["compare", "2026", "2026", "--fail-if", "nonsense"],
        ["compare", "2026", "nothing"],
        ["runs", "show", "nothing"],
        ["runs", "tag", "2026"],
        ["runs", "prune"],
        ["runs", "--since", "soon"],
    ],
)
def test_wrong_usage_is_exit_2_with_a_sentence(alone: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    keep(sample_runs.four_4090())
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "error:" in err
    assert "bug" not in err


def test_compare_prints_what_differs_and_a_true_gate_is_exit_1(capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.h200_pair(), "a1")
    keep(half_as_fast(), "b1")
    assert run(["compare", "a1", "b1", "--label", "before", "--label", "after", "--fail-if", GATE]) == 1
    out, err = capfd.readouterr()
    assert "all_reduce_busbw_peak_bytes_per_second.default.2" in out
    assert "-50.0 %" in out
    assert "is true of after" in err
    assert run(["compare", "a1", "a1", "--fail-if", GATE]) == 0


def test_compare_json_is_one_document(capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.h200_pair(), "a1")
    assert run(["compare", "a1", "a1", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [side["label"] for side in document["sides"]] == ["A", "B"]
    assert {d["outcome"] for d in document["differences"]} <= {"same", "unknown"}


def test_compare_markdown_is_redacted_and_html_is_written(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.h200_pair(), "a1")
    keep(half_as_fast(), "b1")
    assert run(["compare", "a1", "b1", "--markdown", "--html", "c.html"]) == 0
    out, err = capfd.readouterr()
    assert "| metric | run |" in out
    assert "written to c.html" in err
    assert "side by side" in (alone / "c.html").read_text(encoding="utf-8")


def test_runs_are_listed_and_filtered(capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.h200_pair(), "pair")
    keep(sample_runs.four_4090(), "four")
    assert run(["runs"]) == 0
    out, _ = capfd.readouterr()
    assert "2 x NVIDIA H200" in out
    assert "use one, give back, problem" in out
    assert run(["runs", "--gpu", "h200"]) == 0
    assert capfd.readouterr().out.startswith("pair")
    assert run(["runs", "list", "--gpu", "4090"]) == 0
    assert capfd.readouterr().out.startswith("four")
    assert run(["runs", "--json", "--code", "p2p-*"]) == 0
    assert [one["run_id"] for one in json.loads(capfd.readouterr().out)] == ["four"]


def test_no_runs_is_said_and_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["runs"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "no such run" in err


def test_a_hostile_run_in_the_list_is_one_clean_line(capfd: pytest.CaptureFixture[str]) -> None:
    save_run(replace(sample_runs.inspected(), run_id="\x1b[2Jx\ny", tags=("\x1b]0;t\x07z",)), runs_folder() / "x.json")
    assert run(["runs"]) == 0
    out, _ = capfd.readouterr()
    assert out.count("\n") == 1
    assert "\x1b" not in out


def test_show_tag_export_and_prune(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep(sample_runs.four_4090(), "four")
    keep(sample_runs.h200_pair(), "pair")
    assert run(["runs", "show", "four"]) == 0
    assert "GIVE THE BOX BACK" in capfd.readouterr().out
    assert run(["runs", "tag", "four", "bad"]) == 0
    assert "tags: bad" in capfd.readouterr().err
    assert run(["runs", "export", "--csv", "points.csv", "--tag", "bad"]) == 0
    assert (alone / "points.csv").read_text().startswith("run_id,created_at,")
    capfd.readouterr()
    assert run(["runs", "prune", "--keep", "0"]) == 0
    out, err = capfd.readouterr()
    assert out == "pair\n"
    assert "removed 1 run" in err


def test_the_list_is_readable_where_the_terminal_is_ascii_only() -> None:
    keep(sample_runs.four_4090(), "four")
    done = subprocess.run(
        [sys.executable, "-m", "wiretax", "runs"], capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0
    assert b"4 x NVIDIA" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_a_page_that_finds_a_full_disk_costs_the_page_only(capfd: pytest.CaptureFixture[str], form: list[str]) -> None:
    keep(sample_runs.h200_pair(), "a1")
    keep(half_as_fast(), "b1")
    assert run(["compare", "a1", "b1", "--html", "/dev/full", *form]) == 3
    out, err = capfd.readouterr()
    assert "all_reduce" in out
    assert "No space left on device" in err
    assert "Free some space" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["report", "a1", "--still", "--html", "/dev/full"], ["runs", "export", "--csv", "/dev/full"]])
def test_a_full_disk_is_said_as_one_and_is_no_wrong_usage(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    keep(sample_runs.h200_pair(), "a1")
    assert run(arguments) == 3
    assert "Free some space" in capfd.readouterr().err

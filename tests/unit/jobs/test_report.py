"""Reports as files: a page, charts, text; redacted when shared."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

import report_runs
import sample_runs
from wiretax.errors import BadInput, MissingDependency, UsageError
from wiretax.jobs.compare import compare
from wiretax.jobs.report import report, report_charts, report_markdown
from wiretax.store.folder import save_run


def test_a_page_is_written_and_given_back(tmp_path: Path) -> None:
    page = report(sample_runs.inspected(), tmp_path / "sub" / "page.html")
    assert (tmp_path / "sub" / "page.html").read_text(encoding="utf-8") == page


def test_a_run_is_found_by_its_file(tmp_path: Path) -> None:
    path = save_run(sample_runs.inspected(), tmp_path / "run.json")
    assert "4 \u00d7 NVIDIA GeForce RTX 4090" in report(path, interactive=False)
    with pytest.raises(BadInput, match="no file"):
        report(tmp_path / "absent.json")


def test_a_shared_page_has_no_host_name_and_says_so() -> None:
    page = report(sample_runs.h200_pair(), share=True, interactive=False)
    assert "trainer-7" not in page
    assert "Removed before sharing: 1 host name" in page
    assert "trainer-7" in report(sample_runs.h200_pair(), interactive=False)


def test_markdown_is_redacted_unless_told_otherwise() -> None:
    assert "trainer-7" not in report_markdown(sample_runs.h200_pair())
    assert "removed before sharing" in report_markdown(sample_runs.h200_pair()).lower()


def test_single_charts_are_files_of_their_form(tmp_path: Path) -> None:
    run = report_runs.budget_box()
    assert [path.name for path in report_charts(run, tmp_path, "svg", ["busbw", "pairs"])] == ["busbw.svg", "pairs.svg"]
    assert (tmp_path / "busbw.svg").read_text().startswith("<svg")
    (png,) = report_charts(run, tmp_path, "png", ["compute"])
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1000
    assert height > 100
    assert len(report_charts(run, tmp_path / "all", "svg")) == 7


def test_a_chart_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no chart 'pears'") as caught:
        report_charts(report_runs.budget_box(), tmp_path, "svg", ["pears"])
    assert "pairs" in caught.value.do


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        report(sample_runs.inspected(), tmp_path / "file" / "page.html", interactive=False)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jinja2", "vl_convert"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(MissingDependency) as caught:
                report(sample_runs.inspected())
            assert "wiretax[report]" in caught.value.do


def test_a_comparison_page_is_written(tmp_path: Path) -> None:
    result = compare([sample_runs.h200_pair(), report_runs.h200_pair()], labels=["old", "new"], html=tmp_path / "c.html", share=True)
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert [side.label for side in result.sides] == ["old", "new"]
    assert "2 runs side by side" in page
    assert "trainer-7" not in page


def test_a_comparison_needs_two_runs_and_labels_that_differ() -> None:
    with pytest.raises(UsageError, match="two runs"):
        compare([sample_runs.h200_pair()])
    with pytest.raises(UsageError, match="Labels"):
        compare([sample_runs.h200_pair()] * 2, labels=["a", "a"])
    with pytest.raises(UsageError, match="not an expression"):
        compare([sample_runs.h200_pair()] * 2, fail_if=["nonsense"])

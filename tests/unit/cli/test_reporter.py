from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from wiretax.cli.reporter import Reporter
from wiretax.jobs.progress import Progress
from wiretax.show.terminal import Page


def at(seconds: float, stage: str = "copies", **more: object) -> Progress:
    return Progress(stage=stage, fraction=seconds / 60, seconds_left=60 - seconds, seconds_elapsed=seconds, **more)  # type: ignore[arg-type]


def test_without_a_terminal_there_is_a_line_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(Console(file=io.StringIO(), force_terminal=False)) as reporter:
        for tenth in range(121):
            reporter(at(tenth / 10))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("(")[1] for line in lines] == ["0 s, 60 s left)", "5 s, 55 s left)", "10 s, 50 s left)"]


def test_money_is_named_when_a_price_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(Console(file=io.StringIO(), force_terminal=False)) as reporter:
        reporter(at(30, money_spent=0.0048, currency="EUR", detail="all_reduce 4 MiB"))
    assert capsys.readouterr().err == "wiretax: copies: all_reduce 4 MiB (30 s, 30 s left, 0.0048 EUR so far)\n"


def test_where_the_end_is_unknown_the_share_done_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(Console(file=io.StringIO(), force_terminal=False)) as reporter:
        reporter(Progress(stage="copies", fraction=0.25, seconds_left=None, seconds_elapsed=3))
    assert "25 % done" in capsys.readouterr().err


def test_a_dumb_terminal_gets_lines_and_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("utf-8", terminal=True)
    with Reporter(Console(file=page, force_terminal=True, _environ={"TERM": "dumb"})) as reporter:
        reporter(at(0))
    assert page.getvalue() == ""
    assert "60 s left" in capsys.readouterr().err


def test_on_a_terminal_there_is_a_bar_that_is_gone_at_the_end() -> None:
    page = io.StringIO()
    with Reporter(Console(file=page, force_terminal=True, width=100, _environ={"TERM": "xterm"})) as reporter:
        reporter(at(30, stage="copies [red]x[/red]\x1b[2J"))
    shown = page.getvalue()
    assert "30 s left" in shown
    assert "copies [red]x[/red]" in shown
    assert "\x1b[2J" not in shown
    assert shown.rstrip("\r\n").endswith("\x1b[2K") or shown.endswith("\x1b[1A\x1b[2K") or "\x1b[2K" in shown[-20:]


def test_a_closed_stderr_does_not_end_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    measured = 0
    with Reporter(Console(file=io.StringIO(), force_terminal=False)) as reporter:
        reporter(at(0))
        measured += 1
    assert measured == 1

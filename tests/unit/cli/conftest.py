from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wiretax.jobs import check as check_job
from wiretax.model.run import Run


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working folder and a data folder of its own, and no WIRETAX variable from outside."""
    for name in list(os.environ):
        if name.startswith("WIRETAX_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WIRETAX_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], list[check_job.CheckOptions]]:
    """Replaces the measuring job by one that returns a run; gives the options it was called with."""

    def replace(run: Run) -> list[check_job.CheckOptions]:
        seen: list[check_job.CheckOptions] = []

        def check(options: check_job.CheckOptions, on_progress: object) -> Run:
            seen.append(options)
            return run

        monkeypatch.setattr(check_job, "check", check)
        return seen

    return replace

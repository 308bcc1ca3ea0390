"""docs/predict.md shows what the program predicts today, and the examples it uses are what their script makes."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from loading import ROOT, load


@pytest.fixture(scope="module")
def make_predict() -> ModuleType:
    return load("docs/make_predict.py")


def test_every_output_is_what_the_program_prints_today(make_predict: ModuleType) -> None:
    text = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")

    assert text.count("<!-- wiretax: ") + text.count("<!-- shown: ") == text.count("<!-- end of output -->") >= 5
    assert "9.1 ms" in text
    assert "15.9 ms" in text
    assert make_predict.refreshed(text) == text, "run `make docs`"


def test_the_recorded_example_is_what_its_script_makes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_example_h200x2.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, f"{done.stderr}: run python scripts/make_example_h200x2.py"

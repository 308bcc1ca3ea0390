"""docs/planning.md says what the program plans today."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make_planning() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_planning", ROOT / "docs" / "make_planning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_plan_is_what_the_program_prints_today(make_planning: ModuleType) -> None:
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")

    assert text.count("<!-- plan: ") == text.count("<!-- end of plan -->") >= 8
    assert make_planning.refreshed(text) == text, "run `make docs`"


def test_the_folder_and_the_width_are_as_before(make_planning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    before = Path.cwd()

    make_planning.refreshed("nothing to plan")

    assert Path.cwd() == before
    assert os.environ["COLUMNS"] == "77"


def test_arguments_that_are_refused_are_an_error(make_planning: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Write it as a fraction"):
        make_planning.refreshed("<!-- plan: --hours 40 --price 2 --currency USD --efficiency 80 -->\n<!-- end of plan -->")

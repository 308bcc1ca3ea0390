"""docs/planning.md says what the program plans today."""

from __future__ import annotations

from types import ModuleType

import pytest

from loading import ROOT, load


@pytest.fixture(scope="module")
def make_planning() -> ModuleType:
    return load("docs/make_planning.py")


def test_every_plan_is_what_the_program_prints_today(make_planning: ModuleType) -> None:
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")

    assert text.count("<!-- plan: ") == text.count("<!-- end of plan -->") >= 8
    assert make_planning.refreshed(text) == text, "run `make docs`"


def test_arguments_that_are_refused_are_an_error(make_planning: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="Write it as a fraction"):
        make_planning.refreshed("<!-- plan: --hours 40 --price 2 --currency USD --efficiency 80 -->\n<!-- end of plan -->")

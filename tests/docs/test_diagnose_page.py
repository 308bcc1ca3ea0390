"""The page about pasted texts is what the command prints today, and all public cases on it are right."""

from __future__ import annotations

from types import ModuleType

import pytest

from loading import load


@pytest.fixture(scope="module")
def make_diagnose() -> ModuleType:
    return load("docs/make_diagnose.py")


def test_the_page_is_fresh(make_diagnose):
    assert make_diagnose.PAGE.read_text(encoding="utf-8") == make_diagnose.page(), "run: python docs/make_diagnose.py"


def test_every_public_case_is_right(make_diagnose):
    assert "| NO |" not in make_diagnose.page()

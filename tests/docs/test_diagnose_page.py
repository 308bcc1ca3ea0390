"""The page about pasted texts is what the command prints today, and all public cases on it are right."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "make_diagnose.py"


@pytest.fixture(scope="module")
def make_diagnose():
    spec = importlib.util.spec_from_file_location("make_diagnose", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_fresh(make_diagnose):
    assert make_diagnose.PAGE.read_text(encoding="utf-8") == make_diagnose.page(), "run: python docs/make_diagnose.py"


def test_every_public_case_is_right(make_diagnose):
    assert "| NO |" not in make_diagnose.page()

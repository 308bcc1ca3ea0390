"""README.md says what the program does today."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from loading import ROOT, load

PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]


@pytest.fixture(scope="module")
def make_readme() -> ModuleType:
    return load("docs/make_readme.py")


def test_every_output_block_is_what_the_program_prints_today(make_readme: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- output: ") == text.count("<!-- end of output -->") >= 3
    # Line breaks of help texts differ between versions of click.
    assert make_readme.refreshed(text).split() == text.split(), "run `make docs`"


def test_a_block_of_an_unknown_kind_is_an_error(make_readme: ModuleType) -> None:
    with pytest.raises(ValueError, match="no output of kind 'nonsense'"):
        make_readme.refreshed("<!-- output: nonsense x -->\n<!-- end of output -->")


@pytest.mark.parametrize("page", PAGES)
def test_links_into_the_repository_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_wiretax_command_shown_is_one_that_exists() -> None:
    from wiretax.cli.main import COMMANDS

    names = {name for name, _, _ in COMMANDS}
    for page in ("README.md", "CONTRIBUTING.md"):
        blocks = re.sub(r"<!-- output: .*?<!-- end of output -->", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        shown = re.findall(r"(?:`|^|bin/)wiretax ([a-z]+)", blocks, flags=re.MULTILINE)
        assert set(shown) <= names


def test_the_changelog_has_a_place_for_this_version() -> None:
    import wiretax

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{wiretax.__version__}]" in text

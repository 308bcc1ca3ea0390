from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sample_runs
from wiretax.model.finding import Evidence
from wiretax.show.plain import clean, listed, plain, short, spread_fraction


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2Jgone", "gone"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("a\x9b31mred", "ared"),
        ("bell\x07back\x08", "bellback"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\u202egnp.exe", "gnp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("half \ud800 a pair", "half a pair"),
        ("a\x1b", "a"),
        ("[bold]not markup[/bold] :smile:", "[bold]not markup[/bold] :smile:"),
        ("שלום", "שלום"),
    ],
)
def test_what_a_terminal_would_obey_is_taken_out_and_the_rest_stays(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text())
def test_cleaned_text_is_one_line_of_visible_characters_and_cleaning_again_changes_nothing(text: str) -> None:
    once = clean(text)
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in once)
    assert clean(once) == once


def test_a_text_of_ten_kilobytes_is_cut_and_says_how_much_is_gone() -> None:
    cut = clean("x" * 10_000)
    assert len(cut) < 800
    assert cut.endswith("... (9300 more characters)")


def test_a_whole_document_is_cleaned_keys_and_nested_texts_too() -> None:
    run = sample_runs.h200_pair()
    finding = replace(run.findings[0], title="\x1b[31mt", evidence=(Evidence(source="a\x1b[0m", text="b\x07"),))
    assert run.machine is not None
    software = replace(run.machine.software, nccl_environment={"K\x1b[1m": "v\x1b[1m"})
    cleaned = plain(replace(run, findings=(finding,), machine=replace(run.machine, software=software)))
    assert cleaned.findings[0].title == "t"
    assert cleaned.findings[0].evidence[0] == Evidence(source="a", text="b")
    assert cleaned.machine is not None
    assert cleaned.machine.software.nccl_environment == {"K": "v"}
    assert cleaned.measurements == run.measurements


def test_what_the_stream_cannot_express_becomes_a_question_mark() -> None:
    run = replace(sample_runs.cpu_only(), command="größe")
    assert plain(run, "ascii").command == "gr??e"
    assert plain(run, "latin-1").command == "größe"


def test_the_spread_is_half_the_middle_range_over_the_median() -> None:
    assert spread_fraction([0.9, 1.0, 1.1]) == pytest.approx(0.1)
    assert spread_fraction([*[1.0] * 19, 50.0]) == 0
    assert spread_fraction([1.0]) is None
    assert spread_fraction([0.0, 0.0]) is None


def test_numbers_are_listed_as_ranges() -> None:
    assert listed([7, 0, 2, 3, 4, 5]) == "0, 2-5, 7"
    assert listed([]) == ""


def test_a_long_name_is_cut_with_dots() -> None:
    assert short("abcdefgh", 6) == "abc..."
    assert short("abc", 6) == "abc"

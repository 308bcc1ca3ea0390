"""JSON documents inside pasted text."""

from __future__ import annotations

import pytest

from wiretax.probe.readers.json_text import documents, field, number
from wiretax.probe.readers.piece import Text


def text(content: str) -> Text:
    lines = tuple(content.split("\n"))
    return Text(source="x", lines=lines, numbers=tuple(range(10, 10 + len(lines))))


def test_documents_between_other_lines_are_found_with_their_lines() -> None:
    given = text('prose\n{"a": 1,\n "b": [2]}\nmore\n[{"d": 2}]\n  {"c": 3} tail')

    found = documents(given)
    assert [document.value for document in found] == [{"a": 1, "b": [2]}, [{"d": 2}], {"c": 3}]
    assert [sorted(document.numbers(given)) for document in found] == [[11, 12], [14], [15]]


@pytest.mark.parametrize("broken", ['{"a": ', "[1, 2", "{'a': 1}", "[" * 100_000, '{"a":' * 50_000, "[INFO] x", "{}{"])
def test_broken_and_bottomless_documents_are_skipped(broken: str) -> None:
    assert [document.value for document in documents(text(broken + '\n{"a": 1}'))][-1] == {"a": 1}


def test_a_field_of_something_else_is_none() -> None:
    assert field({"a": {"b": 1}}, "a", "b") == 1
    assert field({"a": 3}, "a", "b") is None
    assert field(None, "a") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        ("3.5", 3.5),
        ("N/A", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ("1e999", None),
        ([], None),
    ],
)
def test_numbers_are_finite_or_none(value: object, expected: float | None) -> None:
    assert number(value) == expected

"""JSON documents inside a pasted text, with the lines they take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wiretax.probe.readers.piece import Text

_MAX_DOCUMENTS = 200
_MAX_SIZE = 16 * 2**20
_MAX_FAILURES = 50


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON object or array, and its first and last position in ``Text.lines``."""

    value: Any
    first: int
    last: int

    def numbers(self, text: Text) -> frozenset[int]:
        """The line numbers it takes."""
        return frozenset(text.numbers[self.first : self.last + 1])


@lru_cache(maxsize=2)
def documents(text: Text) -> tuple[Document, ...]:
    """Every JSON object or array that begins at the start of a line. Broken ones are not among them."""
    decoder = json.JSONDecoder()
    found: list[Document] = []
    starts = [position for position, line in enumerate(text.lines) if line.lstrip()[:2] in _STARTS]
    if not starts:
        return ()
    whole = "\n".join(text.lines)[:_MAX_SIZE]
    offsets = [0]
    for line in text.lines:
        offsets.append(offsets[-1] + len(line) + 1)
    end = failures = 0
    for position in starts:
        line = text.lines[position]
        begin = offsets[position] + len(line) - len(line.lstrip())
        if begin < end or len(found) >= _MAX_DOCUMENTS or failures >= _MAX_FAILURES:
            continue
        try:
            value, end = decoder.raw_decode(whole, begin)
        except (ValueError, RecursionError):
            failures += 1
            continue
        last = position
        while last + 1 < len(text.lines) and offsets[last + 1] < end:
            last += 1
        found.append(Document(value, position, last))
    return tuple(found)


_STARTS = frozenset({"{", "[", '{"', "{ ", "{}", "[{", "[ ", "[[", '["', "[]"})


def field(value: Any, *path: str) -> Any:
    """The value under nested keys, or None where one is absent or not an object."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def number(value: Any) -> float | None:
    """A finite number, also where it is written as a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, (int, float)):
        as_float = float(value) if abs(value) < 1e300 else None
        return as_float if as_float is not None and as_float == as_float else None
    return None

"""Pasted text for the tests of the readers: as ``input`` hands it to them, without escapes."""

from __future__ import annotations

import re
from pathlib import Path

from wiretax.probe.readers.piece import Text

DATA = Path(__file__).parent / "data"
CASES = DATA / "cases"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def text(content: str, source: str = "paste.txt") -> Text:
    lines = tuple(_ANSI.sub("", line) for line in content.split("\n"))
    return Text(source=source, lines=lines, numbers=tuple(range(1, len(lines) + 1)))


def case(name: str) -> Text:
    return text((CASES / name).read_text(encoding="utf-8", errors="replace"), name)


def recording(name: str) -> Text:
    return text((DATA / "h200x2" / name).read_text(encoding="utf-8"), name)

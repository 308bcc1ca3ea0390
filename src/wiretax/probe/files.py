"""Small reads of Linux's text files, where a missing or forbidden file is an ordinary answer."""

from __future__ import annotations

import re
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
"""More than any of these files has; what claims to be larger is cut."""


def read_text(path: Path) -> str | None:
    """The file as text, or None when it cannot be read. Bytes that are no UTF-8 become marks of replacement."""
    data = read_bytes(path)
    return None if data is None else data.decode("utf-8", errors="replace")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes | None:
    """The beginning of the file, or None when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return None


def as_text(value: str) -> str:
    """A variable's value or a path with a mark of replacement for each byte that is no UTF-8, which Python keeps in a hidden form."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_word(path: Path) -> str | None:
    """The file's only line without blanks around it; None when it cannot be read or is empty."""
    text = read_text(path)
    return (text.strip() or None) if text is not None else None


def read_int(path: Path, base: int = 10) -> int | None:
    """The file's only number; None when it cannot be read, holds something else, or more than 64 bits."""
    word = read_word(path)
    try:
        number = None if word is None else int(word, base)
    except ValueError:
        return None
    return number if number is not None and abs(number) < 2**63 else None


def names(folder: Path) -> tuple[str, ...] | None:
    """Names in a folder, sorted; None when it cannot be listed."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return None


def count_list(text: str | None) -> int | None:
    """How many numbers a Linux list (``0-3,8``) holds; None for text that is no such list or holds none."""
    if not text or not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*", text.strip()):
        return None
    count = 0
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        count += max(int(last or first) - int(first) + 1, 0)
    return count or None

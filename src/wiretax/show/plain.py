"""Text that is safe to print: a run document may hold anything, and a terminal obeys escape codes.

Names, log lines and reasons come from machines and files of strangers. :func:`plain` cleans the whole document once, before
anything is drawn, so no drawing code can forget it.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

Document = TypeVar("Document")

MAX_TEXT = 700
"""Characters kept of one string: a finding's effect is under 300, and a 10 kB host name must not bury the verdict."""

_ESCAPE = re.compile(
    r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])?|\x9b[0-?]*[ -/]*[@-~]"
)
"""ANSI escapes: operating system commands, strings, control sequences, two-character codes, and a bare ESC."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"})
"""Unicode categories never printed: controls, format characters (text direction, zero width), surrogates, line separators."""


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """One line of printable text: no escape codes, no control or direction characters, at most ``limit`` characters.

    Args:
        text: anything.
        limit: characters kept; the rest is counted.
    """
    kept = text[: limit * 8]
    if kept.isascii() and kept.isprintable() and len(text) <= limit:
        return text
    kept = _ESCAPE.sub("", kept)
    kept = "".join(" " if c in "\t\n\r\v\f\u2028\u2029" else c for c in kept if c in "\t\n\r\v\f\u2028\u2029" or _visible(c))
    kept = " ".join(kept.split())
    left_out = len(text) - len(text[: limit * 8]) + max(0, len(kept) - limit)
    return kept if left_out == 0 else f"{kept[:limit]} ... ({left_out} more characters)"


def short(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters with ``...`` at the end; for names in a heading."""
    return text if len(text) <= limit else text[: max(1, limit - 3)] + "..."


def plain(value: Document, encoding: str = "utf-8") -> Document:
    """A copy of a document in which every string went through :func:`clean` and can be written in ``encoding``.

    Args:
        value: a dataclass of the model, or a tuple or mapping of them.
        encoding: of the stream that will be written; what it cannot express becomes ``?``.
    """
    return _plain(value, encoding)  # type: ignore[no-any-return]


def _plain(value: Any, encoding: str) -> Any:
    if isinstance(value, str):
        return clean(value).encode(encoding, "replace").decode(encoding)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _plain(getattr(value, f.name), encoding) for f in dataclasses.fields(value)})
    if isinstance(value, tuple):
        if value and isinstance(value[0], (float, int)):
            return value
        return tuple(_plain(inner, encoding) for inner in value)
    if isinstance(value, Mapping):
        return {_plain(key, encoding): _plain(inner, encoding) for key, inner in value.items()}
    return value


def _visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE


@dataclass(frozen=True, slots=True)
class Symbols:
    """The signs used in the output, in a full and an ASCII set."""

    ok: str
    bad: str
    dot: str
    times: str
    plus_minus: str
    to: str
    dash: str
    full: str
    parts: str
    """Partial blocks, thinnest first."""
    rest: str
    limit: str
    unstable: str
    levels: str
    """Heights for a small curve, lowest first; empty where none can be drawn."""
    severity: Mapping[str, str]


UNICODE = Symbols(
    ok="✓",
    bad="✗",
    dot=" · ",
    times="\u00d7",
    plus_minus="±",
    to="→",
    dash="\u2013",
    full="█",
    parts="▏▎▍▌▋▊▉",
    rest="░",
    limit="▕",
    unstable="~",
    levels="▁▂▃▄▅▆▇█",
    severity={"info": "•", "warning": "▲", "problem": "✗", "critical": "✘"},
)
ASCII = Symbols(
    ok="+",
    bad="!",
    dot=", ",
    times="x",
    plus_minus="+-",
    to="->",
    dash="-",
    full="#",
    parts="",
    rest=".",
    limit="|",
    unstable="~",
    levels="",
    severity={"info": "i", "warning": "!", "problem": "X", "critical": "XX"},
)


def spread_fraction(samples: Sequence[float]) -> float | None:
    """Half the range of the middle 90 % of the samples over their median; None below two samples or for a zero median.

    From eleven samples up the extreme twentieth on each side is left out; below that it is the whole range.
    """
    if len(samples) < 2:
        return None
    ordered = sorted(samples)
    cut = round(len(ordered) * 0.05)
    kept = ordered[cut : len(ordered) - cut] if len(ordered) >= 11 and cut else ordered
    middle = statistics.median(ordered)
    return (kept[-1] - kept[0]) / 2 / middle if middle > 0 else None


def indented(part: RenderableType, left: int = 2) -> Padding:
    """A part moved right, without blanks after its lines (they would be pasted along)."""
    return Padding(part, (0, 0, 0, left), expand=False)


def unknown_line(labels: Sequence[str], reason: str) -> Padding:
    """One line for all that is unknown for the same reason."""
    return indented(Text(f"unknown ({reason.rstrip('.')}): {', '.join(labels)}", style="dim"))


def listed(numbers: Sequence[int]) -> str:
    """Whole numbers as ranges: ``0, 2-5, 7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

"""Takes the prefixes of launchers and log collectors off pasted lines, and keeps the lines of different ranks apart.

A matrix printed by eight ranks at once arrives interleaved, each line behind ``(head, rank=0, pid=17266)``, ``[1,2]<stdout>:`` or
``node-3:``. Every reader of tables works on one stream at a time and sees the lines as the tool printed them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from wiretax.probe.readers.piece import Text

MAX_PREFIXES = 5
"""Prefixes nest (quote, timestamp, launcher, rank); more than this is not a log."""

# (pattern, whether its text tells ranks apart). Each pattern is anchored and has no nested repetition.
_PREFIXES: tuple[tuple[re.Pattern[str], bool], ...] = (
    (re.compile(r"\s{0,8}> ?"), False),  # quoted mail or issue text
    (re.compile(r"\([^()]{0,160}\bpid=\d+[^()]{0,120}\) ?"), True),  # Ray, SkyPilot, vLLM workers
    (re.compile(r"\[\d+,\d+\]<std(?:out|err|diag)>: ?"), True),  # Open MPI --tag-output
    (re.compile(r"\[(?:default|rank|Rank |rank )\d+\]: ?"), True),  # torchrun --tee, torch
    (re.compile(r"\[[\w.-]{1,64}:\d{1,7}\]: ?"), True),  # [host:rank]:
    (re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? "), False),
)

# Labels that are ordinary words in other texts, so they count only where nearly every line has one and each comes back.
_COLUMN_LABELS: tuple[re.Pattern[str], ...] = (
    re.compile(r"\s{0,3}(\d{1,5}): ?"),  # srun --label
    re.compile(r"(?=[\w.-]{0,63}[\d.-])([A-Za-z][\w.-]{0,63}): ?"),  # pdsh, clush
    re.compile(r"(?=[\w.-]{0,63}[\d.-])([A-Za-z][\w.-]{0,63}) {1,24}\| ?"),  # docker compose
)
_LOST_ESCAPE = re.compile(r"(?:\^\[|[\x1b\ufffd\u241b])?\[(?:\d{1,2}(?:;\d{1,2}){0,3})?m")
"""Underlining and colour of a terminal whose escape character was lost on the way (``[4mGPU0``)."""
_LABELLED_SHARE = 0.9
_LINES_A_LABEL = 3


PROMPT = r"(?:(?:\([\w.-]{1,40}\) )?\[?[\w.-]{1,40}@[\w.-]{1,80}[:\s][^$#%]{0,80}[$#%]|\$)\s{0,4}"
"""A shell's prompt in front of a command. A lone ``#`` is a comment as often as it is root's prompt, so it is none."""


MOST_PROSE = 3_000
"""Lines of one stream that are read as sentences. Nobody writes more; a text with more is a log of something else."""


MOST_PROSE_CHARACTERS = 300_000
"""And as many characters: sentences are cut into words, which costs more than any pattern."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the tool printed it, and where it stands in the file."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Stream:
    """The lines of one rank or host, in order. ``host`` is the name in front of each line, where that is a host's."""

    lines: tuple[Line, ...]
    host: str | None = None


@lru_cache(maxsize=2)
def streams(text: Text) -> tuple[Stream, ...]:
    """The text as one stream for each launcher prefix, in order of first appearance; one stream where there are no prefixes."""
    found: dict[str, list[Line]] = {}
    for number, line in zip(text.numbers, text.lines, strict=True):
        label, rest = _peel(line)
        found.setdefault(label, []).append(Line(number, rest))
    result: list[Stream] = []
    for lines in found.values():
        result.extend(_by_column_label(lines))
    return tuple(result)


def mentions(text: str, words: tuple[str, ...]) -> bool:
    """Whether any of the words stands in the text: the cheapest test of a line, made before any pattern is tried on it."""
    for word in words:  # noqa: SIM110 - a generator costs more than the searches
        if word in text:
            return True
    return False


def may_be_prose(text: str) -> bool:
    """Whether a line can be sentences: long ones without blanks are data (JSON, base64, rulers). Chinese needs no blanks."""
    return len(text) <= 400 or text.count(" ") * 20 >= len(text) or not text.isascii()


def _peel(line: str) -> tuple[str, str]:
    """The prefixes that tell ranks apart, and what follows all prefixes."""
    label = ""
    if "m" in line and "[" in line and len(line) < 4000:
        line = _LOST_ESCAPE.sub("", line)
    for _ in range(MAX_PREFIXES):
        if not line or line[0] not in "([>0123456789 ":
            break
        for pattern, tells_apart in _PREFIXES:
            match = pattern.match(line)
            if match:
                if tells_apart:
                    label += match.group().strip()
                line = line[match.end() :]
                break
        else:
            break
    return label, line


def _by_column_label(lines: list[Line]) -> list[Stream]:
    """Splits lines that all begin with the name of their host or the number of their task."""
    filled = [line for line in lines if line.text.strip()]
    for pattern in _COLUMN_LABELS if len(filled) >= _LINES_A_LABEL else ():
        if not pattern.match(filled[0].text):
            continue
        matches = [(line, pattern.match(line.text)) for line in filled]
        labels = Counter(match.group(1) for _, match in matches if match)
        enough = sum(labels.values()) >= _LABELLED_SHARE * len(filled) and min(labels.values()) >= _LINES_A_LABEL
        if not enough:
            continue
        parts: dict[str, list[Line]] = {}
        for line, match in matches:
            label = match.group(1) if match else next(iter(labels))
            parts.setdefault(label, []).append(Line(line.number, line.text[match.end() :] if match else line.text))
        is_host = pattern is _COLUMN_LABELS[1]
        return [Stream(tuple(part), host=label if is_host else None) for label, part in parts.items()]
    return [Stream(tuple(lines))]

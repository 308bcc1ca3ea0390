"""Everything the user named, handed to the readers.

Files of any size are streamed. NCCL's lines go to the scanner of ``nccl_scan``; the rest, bounded, becomes one :class:`Text` that
every reader of ``READERS`` sees. What cannot be read is a :class:`Problem`, and the other files are read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from wiretax.errors import BadInput
from wiretax.probe.readers import DOCUMENT_READERS, READERS
from wiretax.probe.readers.nccl_log import pieces as nccl_pieces
from wiretax.probe.readers.nccl_scan import Scanner
from wiretax.probe.readers.piece import Piece, Problem, Text
from wiretax.probe.readers.sound import sound
from wiretax.probe.readers.streams import PROMPT
from wiretax.probe.readers.unpack import chunks, chunks_of

_MAX_LINE = 4 * 2**20
_MAX_TABLE_LINE = 2**16
"""Longer lines are read only in files that are JSON or XML, where a document may stand on one line."""

_MAX_UNREAD = 50

_ANSI = re.compile(rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[()#][0-9A-Za-z]|[=>78@-Z\\^_])?")
_LINK = re.compile(rb"\[([^\]\[\n]{1,200})\]\(https?://[^)\s]{1,400}\)|<https?://[^|>\s]{1,400}\|([^>\n]{1,200})>")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

_ENDLESS_NUMBER = re.compile(rb"[0-9]{100,}")
"""No tool prints it, and Python converts no more than 4300 digits: 99 of them are more than enough to be told from a figure."""

_HARMLESS = re.compile(
    r"(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>|\[[\w.-]{1,40}\]|\([^()]{1,120}\)|[>|\s`'\"*_=~.#+:;-]){0,200}"
    rf"|\s*{PROMPT}\S.{{0,400}}"
)
"""Rulers, code fences, empty quoted lines, prefixes without a message, and shell prompts: nothing that could be misread."""


def read_files(names: Sequence[str], stdin: BinaryIO | None = None) -> tuple[list[Piece], list[Problem]]:
    """Reads every file named, in order.

    Args:
        names: paths; ``-`` is standard input. A name given twice is read once.
        stdin: standard input, where it is not the process's own.

    Returns:
        What was understood, and what the user must hear: files or parts that could not be read, damaged lines, and lines that
        nobody knows.
    """
    found: list[Piece] = []
    problems: list[Problem] = []
    for name in dict.fromkeys(names):
        worries: list[Problem] = []
        more = _read(name, chunks(name, worries, stdin), worries)
        found += more
        problems += worries
    return found, problems


def read_bytes(source: str, data: bytes) -> tuple[list[Piece], list[Problem]]:
    """Reads a text at hand as if it were a file named ``source``."""
    problems: list[Problem] = []
    return _read(source, chunks_of(source, data, problems), problems), problems


def _read(name: str, content: Iterator[bytes], problems: list[Problem]) -> list[Piece]:
    scanner = Scanner()
    lines = _Lines(name, scanner, problems)
    try:
        for chunk in content:
            lines.take(chunk)
    except BadInput as error:
        # What came before a failing read is kept and judged.
        problems.append(Problem(source=name, kind="unreadable", text=f"{error.what} {error.why}".strip(), do=error.do))
    lines.finish()
    found = list(nccl_pieces(name, scanner))
    text = Text(source=name, lines=tuple(map(_clean, scanner.text_lines)), numbers=tuple(scanner.text_numbers))
    if not found and not problems and not any(line.strip() for line in text.lines):
        what = f"{name} is empty." if not lines.size else f"{name} holds nothing but blank lines."
        problems.append(Problem(source=name, kind="unreadable", text=what, do="Save the output again, or pipe it and use '-'."))
        return []
    for read in DOCUMENT_READERS:
        found += read(text)
    prose = _without(text, {number for piece in found for number in piece.understood})
    for read in READERS:
        found += read(prose)
    found = [sound(piece) for piece in found]
    problems += _damaged(found)
    problems += _unread(text, found)
    if not found and not problems:
        problems.append(Problem(source=name, kind="not_understood", text="Nothing in it is known to any reader."))
    if scanner.text_left_out:
        what = "Repeated or ordinary lines beyond what is kept of a long text."
        do = "Nothing, as a rule. If something is missed, cut the file to the part in question."
        problems.append(Problem(source=name, kind="not_understood", text=what, count=scanner.text_left_out, do=do))
    return found


class _Lines:
    """Cuts chunks into whole numbered lines for the scanner.

    Attributes:
        size: bytes taken so far.
    """

    def __init__(self, name: str, scanner: Scanner, problems: list[Problem]) -> None:
        self._name = name
        self._scanner = scanner
        self._problems = problems
        self._number = 1
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._document: bool | None = None
        self._skipping = False
        self.size = 0

    def take(self, chunk: bytes) -> None:
        """Takes the next bytes."""
        self.size += len(chunk)
        if self._document is None and chunk.strip():
            self._document = chunk.lstrip()[:2] in (b'{"', b"{\n", b"{ ", b"{\r", b"[{", b"[\n", b"<?", b"<s", b"<n", b"<!")
            self._scanner.max_text_line = _MAX_LINE if self._document else _MAX_TABLE_LINE
            self._scanner.is_document = self._document
        cut = chunk.rfind(b"\n")
        if cut < 0:
            self._hold(chunk)
            return
        whole = b"".join((*self._rest, chunk[:cut]))
        self._rest, self._rest_size = [], 0
        self._feed(whole)
        self._hold(chunk[cut + 1 :])

    def finish(self) -> None:
        """Takes the last line, which may lack its end."""
        whole = b"".join(self._rest)
        self._rest, self._rest_size = [], 0
        if whole:
            self._feed(whole)

    def _hold(self, chunk: bytes) -> None:
        """Keeps the start of a line for the next chunk, and a line without an end from filling the memory."""
        self._rest.append(chunk)
        self._rest_size += len(chunk)
        if self._rest_size <= _MAX_LINE:
            return
        rest = b"".join(self._rest)
        states, found, last = rest.rpartition(b"\r")
        self._rest, self._rest_size = [], 0
        if found and not self._skipping:
            self._feed_states(states)
            self._hold(last[:_MAX_LINE])
            return
        if not self._skipping:
            self._too_long(self._number)
        self._skipping = True

    def _feed_states(self, states: bytes) -> None:
        """Feeds the states of a progress bar, which all belong to one line."""
        parts = _plain(states, self._document, False).split(b"\r")
        self._scanner.feed(parts, [self._number] * len(parts))

    def _feed(self, whole: bytes) -> None:
        # Nobody pastes gigabytes into a chat: links are looked for in the first megabytes only.
        whole = _plain(whole, self._document, self.size < 8 * 2**20)
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n")
        lines = whole.split(b"\n")
        first = self._number
        self._number += len(lines)
        if self._skipping or (len(whole) > _MAX_LINE and len(max(lines, key=len)) > _MAX_LINE):
            lines = list(self._without_too_long(lines, first))
            whole = b"\n".join(lines)
        if b"\r" not in whole:
            self._scanner.feed(lines, range(first, first + len(lines)), whole)
            return
        # A progress bar rewrites its line with carriage returns: each state counts as a line of the same number.
        parts = [(part, first + position) for position, line in enumerate(lines) for part in line.split(b"\r")]
        self._scanner.feed([part for part, _ in parts], [number for _, number in parts])

    def _without_too_long(self, lines: Iterable[bytes], first: int) -> Iterator[bytes]:
        for number, line in enumerate(lines, first):
            if self._skipping:
                self._skipping = False
                yield b""
            elif len(line) > _MAX_LINE and b"\r" not in line:
                self._too_long(number)
                yield b""
            else:
                yield line

    def _too_long(self, number: int) -> None:
        text = f"Line {number} of {self._name} is longer than {_MAX_LINE // 2**20} MiB: it was left out."
        self._problems.append(
            Problem(source=self._name, line=number, kind="unreadable", text=text, do="Check that this is the file you mean.")
        )


def _plain(whole: bytes, document: bool | None, pasted: bool) -> bytes:
    """Takes terminal escapes out, and what web pages and chat programs make of text: entities, links around ``init.cc``."""
    if b"\x1b" in whole:
        whole = _ANSI.sub(b"", whole)
    if b"&" in whole and b"&gt;" in whole and not document:
        whole = whole.replace(b"&gt;", b">").replace(b"&lt;", b"<").replace(b"&amp;", b"&")
    if pasted and b"http" in whole:
        whole = _LINK.sub(lambda match: match[1] or match[2], whole)
    return whole


def _clean(raw: bytes) -> str:
    """One line as text: UTF-8 or else Latin-1, without control bytes, invisible marks and no-break blanks."""
    if len(raw) >= 100:
        raw = _ENDLESS_NUMBER.sub(lambda digits: digits[0][:99], raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text if text.isascii() and text.isprintable() else _INVISIBLE.sub("", text.replace("\xa0", " "))


def _without(text: Text, taken: set[int]) -> Text:
    """The text without the lines that documents are made of."""
    kept = [(line, number) for line, number in zip(text.lines, text.numbers, strict=True) if number not in taken]
    if len(kept) == len(text.lines):
        return text
    return Text(source=text.source, lines=tuple(line for line, _ in kept), numbers=tuple(number for _, number in kept))


def _damaged(found: Sequence[Piece]) -> Iterator[Problem]:
    for piece in found:
        for line, what in piece.damaged:
            yield Problem(
                source=piece.source, line=line, kind="damaged", text=what, do=f"Paste the output of {piece.format} again, unwrapped."
            )


def _unread(text: Text, found: Sequence[Piece]) -> Iterator[Problem]:
    """Runs of lines that no reader used, each with its first line."""
    used: set[int] = set()
    for piece in found:
        used |= piece.understood
        used.update(line for line, _ in piece.damaged)
    runs: list[tuple[int, str, int]] = []
    open_run = False
    previous = 0
    for line, number in zip(text.lines, text.numbers, strict=True):
        open_run = open_run and number <= previous + 1
        previous = number
        if number in used:
            open_run = False
        elif not line.strip() or _HARMLESS.fullmatch(line[:600]):
            continue
        elif open_run:
            first, words, count = runs[-1]
            runs[-1] = (first, words, count + 1)
        else:
            runs.append((number, line.strip()[:160], 1))
            open_run = True
    for number, words, count in runs[:_MAX_UNREAD]:
        yield Problem(source=text.source, line=number, kind="not_understood", text=words, count=count)
    rest = runs[_MAX_UNREAD:]
    if rest:
        yield Problem(
            source=text.source, line=rest[0][0], kind="not_understood", text="and more such lines", count=sum(run[2] for run in rest)
        )

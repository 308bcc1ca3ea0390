"""NCCL lines out of a stream of any length, at the speed of a plain line count.

A 1024-rank job writes gigabytes of lines that differ only in numbers. Each chunk is reduced to *shapes* (the line without digits,
hexadecimal letters and most punctuation: one ``bytes.translate``), a shape is examined once, and all lines of a shape then take
the road found for it through C-level iterators: ignored, counted, joined with equal ones, or handed on as text for other readers.
Memory is bounded by the number of different facts, not by the size of the log, and that number is capped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise

from wiretax.probe.readers.nccl_facts import is_fact
from wiretax.probe.readers.nccl_lines import CALL, CHANNEL, LEVEL, VERSION_LINE, head

_KEPT = b"ghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:[+"
_NOISE = bytes(set(range(256)) - set(_KEPT) - {0x0A})
"""Removed to get the shape: digits, a to f (hexadecimal), blanks and most punctuation. ``:`` and ``[`` stay, so that a date or a
launcher in front of a line makes another shape."""

_IGNORED, _TEXT, _FACT, _CHANNEL, _PREFIXED_CHANNEL, _CALL, _LINK, _GLUED, _FULL, _PREFIXED_FACT = range(10)
_MASKS = [bytes(int(byte == road) for byte in range(256)) for road in range(10)]

_MAX_SHAPES = 60_000
_MAX_FACTS = 30_000
_MAX_FACTS_A_SHAPE = 8_000
_ALWAYS_FACTS_A_SHAPE = 200
"""Rare lines find room even after common ones have filled it: the one warning of a long log is in its last lines."""
_MAX_ALL_FACTS = 100_000
_MAX_CONNECTIONS = 30_000
_MAX_PROCESSES = 20_000
_MAX_HOSTS = 2_000
_MAX_MESSAGE = 1_500
_MAX_KEPT = 3_000
_MAX_TEXT_LINES_A_SHAPE = 1_000
_MAX_TELLING_LINES_A_SHAPE = 5_000
_MAX_TEXT_LINES = 20_000
_MAX_TEXT_BYTES = 24 * 2**20
_HEADLESS_FROM = 5_000
"""From so many shapes on, host names are thought to cause them (``worker-x7kqz``), and shapes leave the prefix out."""

_TELLING = re.compile(
    rb"ProcessGroup|[Ww]atchdog|c10d|NCCL|GPU|Xid|NVRM|CUDA|[Ee]rror|ERROR|[Tt]ime(?:d )?out|gloo|[Ss]traggl|nvidia|P2P|peer|AER|torch"
)
"""Text worth keeping out of a long training log even after the room for ordinary lines is full."""

_LINK_MESSAGE = re.compile(rb"\s*\+ (?:NVL|C2C|PCI|XGMI)\[")
_GPU_NODE = re.compile(rb"CCL INFO\s*\+ PCI\[[\d.]{1,12}\] - (GPU/[0-9A-Fa-f-]{1,40})")
_PROGRESS = re.compile(rb"it/s\]?|s/it\]?")


@dataclass(slots=True)
class Entry:
    """A line that states a fact, the first of its kind, and how many say the same."""

    line: int
    text: bytes
    count: int = 1
    source: bytes = b""
    """For links of the topology graph: the GPU they hang on."""


@dataclass(slots=True)
class Scanner:
    """Feed it whole lines; read its fields at the end.

    Attributes:
        facts: lines with facts by (host, message).
        connections: ``Channel`` lines by what they say apart from the channel number.
        calls: collective calls (subsystem COLL) by operation: how many, and the last one.
        nccl_lines: how many lines were NCCL's.
        facts_left_out, connections_left_out, text_left_out: lines beyond the caps.
        max_text_line: text lines are cut to so many bytes.
        is_document: the text is JSON or XML, from which no repeated line may be dropped.
    """

    facts: dict[tuple[bytes, bytes, bytes], Entry] = field(default_factory=dict)
    connections: dict[bytes, Entry] = field(default_factory=dict)
    calls: dict[str, Entry] = field(default_factory=dict)
    max_text_line: int = 2**16
    is_document: bool = False
    nccl_lines: int = 0
    first_line: int = 0
    last_line: int = 0
    last_text: bytes = b""
    facts_left_out: int = 0
    connections_left_out: int = 0
    text_left_out: int = 0
    text_lines: list[bytes] = field(default_factory=list)
    text_numbers: list[int] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)
    _room: dict[bytes, int] = field(default_factory=dict)
    _facts_of: dict[bytes, int] = field(default_factory=dict)
    _hosts: set[bytes] = field(default_factory=set)
    _gpu_of: dict[bytes, bytes] = field(default_factory=dict)
    _text_bytes: int = 0

    def feed(self, lines: Sequence[bytes], numbers: Sequence[int], joined: bytes | None = None) -> None:
        """Takes whole lines without their ends.

        Args:
            lines: the lines.
            numbers: the 1-based number of each in its file.
            joined: the same lines joined by newlines, where the caller has them so.
        """
        headless = len(self._known) > _HEADLESS_FROM
        if headless:
            joined = b"\n".join([line[line.find(b"CCL ") + 1 :] for line in lines])
        elif joined is None:
            joined = b"\n".join(lines)
        shapes = joined.translate(None, _NOISE).split(b"\n")
        try:
            roads = bytes(map(self._known.__getitem__, shapes))
        except KeyError:
            self._learn(shapes, lines, headless)
            roads = bytes(map(self._known.__getitem__, shapes))
        self._note_position(lines, numbers, roads)
        if _CHANNEL in roads:
            mask = roads.translate(_MASKS[_CHANNEL])
            picked = list(compress(lines, mask))
            # Host and message; process and thread would make every communicator's lines new.
            keys = [line[: line.find(b":")] + line[line.rfind(b" : ") :] for line in picked]
            self._add_connections(keys, picked, list(compress(numbers, mask)))
        if _PREFIXED_CHANNEL in roads:
            mask = roads.translate(_MASKS[_PREFIXED_CHANNEL])
            picked = list(compress(lines, mask))
            words = [line[: line.find(b"CCL ")].rsplit(None, 3) for line in picked]
            keys = [
                (word[-3].rsplit(b":", 2)[0] if len(word) > 2 else b"") + line[line.rfind(b" : ") :]
                for word, line in zip(words, picked, strict=True)
            ]
            self._add_connections(keys, picked, list(compress(numbers, mask)))
        for road, add in self._singly():
            if road in roads:
                for line, number, shape in compress(zip(lines, numbers, shapes, strict=True), roads.translate(_MASKS[road])):
                    add(line, number, shape)
        if _FULL in roads:
            self.facts_left_out += roads.count(_FULL)
        if _CALL in roads:
            mask = roads.translate(_MASKS[_CALL])
            self._add_calls(list(compress(lines, mask)), list(compress(numbers, mask)))
        if len(self._known) > _MAX_SHAPES:
            self._known.clear()

    def _singly(self) -> Iterator[tuple[int, Callable[[bytes, int, bytes], None]]]:
        """The roads whose lines are taken one by one."""
        yield _FACT, self._add_fact
        yield _PREFIXED_FACT, self._add_prefixed_fact
        yield _LINK, self._add_link
        yield _TEXT, self._add_text
        yield _GLUED, self._add_glued

    def _learn(self, shapes: list[bytes], lines: Sequence[bytes], headless: bool) -> None:
        """Finds the road of each shape not met before, from its first line."""
        known = self._known
        fresh = set(shapes).difference(known)
        for shape, line in zip(shapes, lines, strict=True):
            if shape in fresh:
                fresh.discard(shape)
                known[shape] = self._classify(line, headless)

    def _classify(self, line: bytes, headless: bool) -> int:
        """The road of a shape, from the first line that has it."""
        level = LEVEL.search(line)
        if level is None:
            return _FACT if VERSION_LINE.match(line) else _TEXT
        prefix = line[: level.start()]
        if LEVEL.search(line, level.end()) or _PROGRESS.search(prefix):
            return _GLUED
        message = line[level.end() :]
        text = message.decode("utf-8", "replace")
        by = head(prefix)
        if by.host and len(self._hosts) < _MAX_HOSTS:
            self._hosts.add(by.host.encode())
        clean = by.clean and not headless
        if CHANNEL.search(text):
            return _CHANNEL if clean else _PREFIXED_CHANNEL
        if b"CALL" in level.group() or CALL.match(text):
            return _CALL
        if b"TRACE" in level.group():
            return _IGNORED
        if _LINK_MESSAGE.match(message):
            return _LINK
        if not is_fact(level.group(), text):
            return _IGNORED
        return _FACT if clean else _PREFIXED_FACT

    def _note_position(self, lines: Sequence[bytes], numbers: Sequence[int], roads: bytes) -> None:
        ours = roads.translate(None, bytes([_TEXT]))
        if not ours:
            return
        self.nccl_lines += len(ours)
        if not self.first_line:
            self.first_line = numbers[len(roads) - len(roads.lstrip(bytes([_TEXT])))]
        last = len(roads.rstrip(bytes([_TEXT]))) - 1
        self.last_line, self.last_text = numbers[last], lines[last][:400]

    def _add_connections(self, keys: list[bytes], lines: list[bytes], numbers: list[int]) -> None:
        """Joins channel lines that differ in the channel only: those with the same key."""
        found = self.connections
        counted = Counter(keys)
        fresh = counted.keys() - found.keys()
        first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True)) if fresh else {}
        for key, count in counted.items():
            if key not in fresh:
                found[key].count += count
            elif len(found) < _MAX_CONNECTIONS:
                found[key] = Entry(numbers[first[key]], lines[first[key]][:2000], count)
            else:
                self.connections_left_out += count

    def _add_fact(self, line: bytes, number: int, shape: bytes) -> None:
        """A line that begins with ``host:pid:tid``: only the host tells equal messages apart."""
        start = line.find(b"CCL ")
        key = (line[: line.find(b":")], line[max(0, start) : start + _MAX_MESSAGE], b"")
        entry = self.facts.get(key)
        if entry is not None:
            entry.count += 1
        else:
            self._new_fact(key, Entry(number, line[:_MAX_KEPT]), shape)

    def _add_prefixed_fact(self, line: bytes, number: int, shape: bytes) -> None:
        """The same behind dates and launchers, which would make every line new."""
        start = line.find(b"CCL ")
        prefix = line[: max(0, start - 1)]
        words = prefix.rsplit(None, 2)
        if len(words) > 1 and words[-1].startswith(b"["):
            host = words[-2].rsplit(b":", 2)[0]
        else:
            host = (head(prefix).host or "").encode()
        key = (host, line[max(0, start) : start + _MAX_MESSAGE], b"")
        entry = self.facts.get(key)
        if entry is not None:
            entry.count += 1
        else:
            self._new_fact(key, Entry(number, line[:_MAX_KEPT]), shape)

    def _add_link(self, line: bytes, number: int, shape: bytes) -> None:
        """Links of the topology graph hang on the GPU that the same process named last."""
        start = line.find(b"CCL ")
        words, message = line[: start - 1].rsplit(None, 2), line[start : start + _MAX_MESSAGE]
        process = words[-2].rsplit(b":", 1)[0] if len(words) > 1 else b""
        gpu = _GPU_NODE.match(message)
        if gpu:
            if len(self._gpu_of) < _MAX_PROCESSES or process in self._gpu_of:
                self._gpu_of[process] = gpu[1]
            return
        source = self._gpu_of.get(process)
        if source is None:
            return
        key = (process.rsplit(b":", 1)[0], message, source)
        entry = self.facts.get(key)
        if entry is not None:
            entry.count += 1
        else:
            self._new_fact(key, Entry(number, line[:_MAX_KEPT], source=source), shape)

    def _new_fact(self, key: tuple[bytes, bytes, bytes], entry: Entry, shape: bytes) -> None:
        taken = self._facts_of.get(shape, 0)
        full = len(self.facts) >= (_MAX_FACTS if taken >= _ALWAYS_FACTS_A_SHAPE else _MAX_ALL_FACTS)
        if full or taken >= _MAX_FACTS_A_SHAPE:
            self.facts_left_out += 1
            if taken >= _MAX_FACTS_A_SHAPE and shape in self._known:
                self._known[shape] = _FULL
            return
        self._facts_of[shape] = taken + 1
        self.facts[key] = entry

    def _add_calls(self, lines: list[bytes], numbers: list[int]) -> None:
        """Counts collective calls by operation: a log of them has a line for every call of every rank."""
        by_name: dict[bytes, int] = {}
        for position, line in enumerate(lines):
            level = LEVEL.search(line)
            words = line[level.end() if level else 0 :].split(None, 1)
            name = words[0].split(b"(", 1)[0].rstrip(b":") if words else b""
            by_name[name] = position
            entry = self.calls.get(name.decode("utf-8", "replace"))
            if entry is not None:
                entry.count += 1
            elif len(self.calls) < 500:
                self.calls[name.decode("utf-8", "replace")] = Entry(numbers[position], line[:1000])
        for name, position in by_name.items():
            entry = self.calls.get(name.decode("utf-8", "replace"))
            if entry is not None:
                entry.line, entry.text = numbers[position], lines[position][:1000]

    def _add_text(self, line: bytes, number: int, shape: bytes) -> None:
        room = self._room.get(shape)
        if room is None:
            room = _MAX_TELLING_LINES_A_SHAPE if _TELLING.search(line) else _MAX_TEXT_LINES_A_SHAPE
        if self.is_document:
            room = 1
        full = (len(self.text_lines) >= _MAX_TEXT_LINES and not self.is_document) or self._text_bytes >= _MAX_TEXT_BYTES
        if full and len(self.text_lines) < 2 * _MAX_TEXT_LINES and self._text_bytes < 2 * _MAX_TEXT_BYTES:
            full = not _TELLING.search(line)
        if room <= 0 or full:
            self.text_left_out += 1
            return
        if len(self._room) < _MAX_SHAPES:
            self._room[shape] = room - 1
        self._text_bytes += len(line)
        self.text_lines.append(line[: self.max_text_line])
        self.text_numbers.append(number)

    def _add_glued(self, line: bytes, number: int, _: bytes) -> None:
        """Takes apart a line on which a progress bar or several NCCL messages ran together."""
        cuts = [0, *(start for start in self._glued_starts(line) if start > 0), len(line)]
        for begin, end in pairwise(cuts):
            part = line[begin:end]
            if not part.strip():
                continue
            road = self._classify(part, headless=False)
            shape = part.translate(None, _NOISE + b"\n")
            if road in (_CHANNEL, _PREFIXED_CHANNEL):
                self._add_connections([_key_behind_prefix(part)], [part], [number])
            elif road == _CALL:
                self._add_calls([part], [number])
            elif road in (_FACT, _PREFIXED_FACT):
                self._add_prefixed_fact(part, number, shape)
            elif road == _LINK:
                self._add_link(part, number, shape)
            elif road in (_TEXT, _GLUED):
                self._add_text(part, number, shape)

    def _glued_starts(self, line: bytes) -> list[int]:
        """Where messages begin: at a host known from elsewhere, if the word in front of the process number ends with one."""
        known = set(self._hosts)
        found = []
        for match in _GLUED_HEAD.finditer(line):
            word = match["host"]
            host = next((host for host in known if word.endswith(host)), word)
            known.add(host)
            found.append(match.end("host") - len(host))
        return found


_GLUED_HEAD = re.compile(rb"(?P<host>[A-Za-z0-9][\w.-]{0,80}):\d{1,10}:\d{1,10} \[-?\d{1,4}\] (?=[NR]CCL |\S{1,300} [NR]CCL )")


def _key_behind_prefix(line: bytes) -> bytes:
    """Dates and launchers in front would make every line unique: only the word with host and process counts."""
    words = line[: line.find(b"CCL ")].split()
    return (words[-3].rsplit(b":", 2)[0] if len(words) > 2 else b"") + line[line.rfind(b" : ") :]

"""Reads process limits: ``ulimit -a`` of bash, zsh, dash and fish, ``ulimit -l``, ``/proc/PID/limits``, ``limits.conf``, ``prlimit``.

Observations:
    ``limit.memlock``: ``bytes`` (None for unlimited), ``unlimited``, ``which`` (``soft``, ``hard``, ``configured``), ``warned`` (libibverbs
    or UCX itself says that it is too low). ``limit.lock_failed``: an InfiniBand call had no memory to lock; ``call``.
    ``limit.open_files``: ``count`` (None for unlimited).
"""

from __future__ import annotations

import re

from wiretax.model.machine import Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, mentions, streams

FORMAT = "ulimit"
_VALUE = r"(unlimited|infinity|-1|\d{1,20})"
_BASH = re.compile(
    rf"\s*(?:max locked memory|locked memory|locked-in-memory size)\s{{1,40}}\((kbytes|kb|bytes|b)(?:, -l)?\)\s{{1,20}}{_VALUE}\s*$",
    re.IGNORECASE,
)
_ZSH = re.compile(rf"\s*-l: locked-in-memory size \((kbytes|kb|bytes)\)\s{{1,30}}{_VALUE}\s*$")
_FISH = re.compile(rf"\s*Maximum size that may be locked into memory\s{{1,20}}\((kB|kbytes|bytes), -l\)\s{{1,20}}{_VALUE}\s*$")
_PROC = re.compile(rf"\s*Max locked memory\s{{1,20}}{_VALUE}\s{{1,30}}{_VALUE}(?:\s{{1,20}}bytes)?\s*$")
_COMMAND = re.compile(r"(?:^|[\s$#>;&'\"])ulimit\s{1,4}-(?:S|H)?l(?:\s|$|'|\")")
_CONFIGURED = re.compile(rf"\s*([^\s#]\S{{0,39}})\s{{1,20}}(soft|hard|-)\s{{1,20}}memlock\s{{1,20}}{_VALUE}\s*$")
_SYSTEMD = re.compile(rf"\s*(?:Default)?LimitMEMLOCK(?:Soft)?\s?=\s?{_VALUE}([KMG]?)")
_OPEN_FILES = re.compile(rf"\s*(?:open files|Max open files|-n: file descriptors)\s{{1,40}}(?:\([^)]{{0,20}}\))?\s{{0,30}}{_VALUE}\b")
_OTHER = re.compile(
    r"\s*(?:core file size|data seg size|scheduling priority|file size|pending signals|max memory size|pipe size|POSIX message queues|"
    r"real-time|stack size|cpu time|max user processes|virtual memory|file locks|Limit\s{1,30}Soft Limit|Max (?:cpu|file|data|stack|core|"
    r"resident|processes|address|pending|msgqueue|nice|realtime)|-[a-z]: )"
)
_WARNED = re.compile(r"libibverbs: Warning: RLIMIT_MEMLOCK is (\d{1,20}) bytes")
_UCX = re.compile(r"max locked memory \(ulimit -l\) to 'unlimited' \(current: (\d{1,20}) kbytes\)")
_FAILED = re.compile(r"\b(ibv_(?:create|reg|open|alloc)_\w{2,20}|ibv_exp_\w{2,20})\b.{0,60}failed.{0,40}Cannot allocate memory")
_UNITS = {"kbytes": 1024, "kb": 1024, "bytes": 1, "b": 1}


def read(text: Text) -> tuple[Piece, ...]:
    """The limits of each stream, as one piece a stream."""
    if not any(mentions(line.lower(), ("lock", "ulimit", "ibv_", "open files", "descriptors")) for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    soft: tuple[int | None, bool] | None = None
    for position, line in enumerate(stream.lines):
        text = line.text
        if len(text) > 300:
            continue
        found = _memlock(stream.lines, position, lines)
        if found is not None:
            size, which = found
            more = {"warned": True} if _WARNED.search(text) or _UCX.search(text) else {}
            notes.add(line.number, "limit.memlock", bytes=size, unlimited=size is None, which=which, **more)
            if which == "soft" and soft is None:
                soft = (size, size is None)
            lines.add(line.number)
            continue
        failed = _FAILED.search(text) if "ibv_" in text and "NCCL WARN" not in text else None
        files = _OPEN_FILES.match(text)
        if failed:
            notes.add(line.number, "limit.lock_failed", call=failed.group(1))
            lines.add(line.number)
        elif files:
            value = files.group(1)
            notes.add(line.number, "limit.open_files", count=int(value) if value.isdecimal() else None)
            lines.add(line.number)
        elif lines and _OTHER.match(text):
            lines.add(line.number)
    if not lines:
        return None
    for line in stream.lines:
        if len(line.text) <= 300 and _OTHER.match(line.text):
            lines.add(line.number)
    missing = {"memlock_bytes": "unlimited"} if soft and soft[1] else {}
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(
            FORMAT, hostname=stream.host, surroundings=Surroundings(memlock_bytes=soft[0] if soft else None, missing=missing)
        ),
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _memlock(lines: tuple[Line, ...], position: int, used: set[int]) -> tuple[int | None, str] | None:
    """(bytes, or None for unlimited; which limit) where the line states the limit of locked memory."""
    text = lines[position].text
    for pattern in (_BASH, _ZSH, _FISH):
        match = pattern.match(text)
        if match:
            return _size(match.group(2), _UNITS[match.group(1).lower()]), "soft"
    match = _PROC.match(text)
    if match:
        return _size(match.group(1), 1), "soft"
    match = _CONFIGURED.match(text)
    if match:
        # limits.conf counts in KiB.
        return _size(match.group(3), 1024), "configured"
    match = _SYSTEMD.match(text)
    if match:
        return _size(match.group(1), {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match.group(2)]), "configured"
    match = _WARNED.search(text)
    if match:
        return int(match.group(1)), "soft"
    match = _UCX.search(text)
    if match:
        return int(match.group(1)) * 1024, "soft"
    if position > 0:
        above = lines[position - 1]
        if len(above.text) <= 300 and _COMMAND.search(above.text) and re.fullmatch(rf"\s*{_VALUE}\s*", text):
            used.add(above.number)
            return _size(text.strip(), 1024), "soft"
    inline = re.search(rf"ulimit\s{{1,4}}-l\s{{0,4}}(?:=|:|is|says|->|prints)\s{{0,4}}{_VALUE}", text)
    return (_size(inline.group(1), 1024), "soft") if inline else None


def _size(value: str, scale: int) -> int | None:
    return int(value) * scale if value.isdecimal() else None

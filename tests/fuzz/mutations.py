"""Damage to pasted text, as terminals, mail, chat, launchers, disks and malice do it."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
CORPUS = Path(__file__).parent / "corpus"
MAX_SIZE = 400_000

TOKENS = (
    b"\x00",
    b"\x1b[4m",
    b"\x1b]0;title\x07",
    b"\x1b[",
    b"\r",
    b"\r\n",
    b"\t\t",
    b" " * 40,
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xa0",
    "\u200b".encode(),
    "\u202e".encode(),
    b"&gt;",
    b"<script>",
    b"[bold red]",
    b"9" * 40,
    b"-1",
    b"1e999",
    b"nan",
    b"N/A",
    b"0x" + b"f" * 20,
    b"{",
    b"[" * 300,
    b"(" * 300,
    b'{"a":' * 200,
    b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
    b'<system version="1">',
    b"NCCL INFO ",
    b"NCCL WARN ",
    b"host:1:2 [0] NCCL INFO ",
    b" via ",
    b" -> ",
    b"GPU0",
    b"NV18",
    b"SYS",
    b"/dev/shm/nccl-x",
    b"it/s]",
    b"s/it",
    b"(head, rank=0, pid=1) ",
    b"[1,2]<stdout>:",
    b"> > > ",
    b"| ",
    b"D\\D",
    b"#  Rank  0 Group  0 Pid 1 on h device  0 [0000:01:00] X",
    b"Xid (PCI:0000:01:00): 79",
    b"2024-01-01T00:00:00Z ",
    b"a" * 5000,
    b"%s%n",
    b"../../etc",
)


def seeds() -> list[bytes]:
    """Every case, every recorded text and the corpus kept from earlier runs."""
    files = [*sorted((DATA / "cases").glob("C*")), *sorted((DATA / "h200x2").glob("*.log")), *sorted((DATA / "h200x2").glob("*.txt"))]
    files += [*sorted((DATA / "smi").glob("**/*")), *sorted((DATA / "readers").glob("**/*")), *sorted(CORPUS.glob("*.bin"))]
    return [path.read_bytes()[:MAX_SIZE] for path in files if path.is_file()]


def mutate(rng: random.Random, corpus: Sequence[bytes], base: bytes | None = None) -> bytes:
    """One to six random damages to one text, or to two texts glued together."""
    data = base if base is not None else rng.choice(corpus)
    if len(data) > 20_000:
        # Most damage needs no long text, and short ones make the run fast.
        start = rng.randrange(len(data) - 8_000) if rng.random() < 0.9 else 0
        data = data[start : start + rng.randrange(1_000, 20_000)]
    for _ in range(rng.randrange(1, 7)):
        data = rng.choice(_DAMAGES)(rng, data, corpus)[:MAX_SIZE]
    return data


def _flip(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 12)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    start = rng.randrange(len(data))
    return data[:start] + data[min(len(data), start + rng.randrange(1, 400)) :]


def _repeat(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    start = rng.randrange(len(data))
    span = data[start : start + rng.randrange(1, 200)]
    return data[:start] + span * rng.randrange(1, 40) + data[start:]


def _insert(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    position = rng.randrange(len(data) + 1)
    return data[:position] + rng.choice(TOKENS) + data[position:]


def _lines(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    way = rng.randrange(5)
    if way == 0:
        rng.shuffle(lines)
    elif way == 1:
        lines = [line for line in lines if rng.random() > 0.2]
    elif way == 2:
        lines = [part for line in lines for part in ([line] * rng.randrange(1, 4) if rng.random() < 0.1 else [line])]
    elif way == 3:
        prefix = rng.choice(TOKENS)
        lines = [prefix + line if rng.random() < 0.9 else line for line in lines]
    else:
        position = rng.randrange(len(lines))
        lines[position : position + 2] = [b"".join(lines[position : position + 2])]
    return b"\n".join(lines)


def _blanks(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    way = rng.randrange(4)
    if way == 0:
        return re.sub(rb"[ \t]+", b" ", data)
    if way == 1:
        return data.replace(b"\t", b"        ")
    if way == 2:
        return re.sub(rb" {2,}", b"\t", data)
    return re.sub(rb"(?m)^", b"  ", data)


def _wrap(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    width = rng.randrange(20, 160)
    return b"\n".join(line[start : start + width] for line in data.split(b"\n") for start in range(0, max(len(line), 1), width))


NO_FIGURES = (b"0", b"1", b"7", b"1000000", b"1" + b"0" * 30, b"9" * 5000, b"-5", b"1e999", b"nan", b"0.0", b"1,5", b"\xd9\xa3")
"""What may stand in place of a number and is none, or none of that size. Python converts no more than 4300 digits."""


def _numbers(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return re.sub(rb"\d+", lambda match: rng.choice(NO_FIGURES) if rng.random() < 0.1 else match.group(), data)


def one_number(rng: random.Random, data: bytes) -> bytes:
    """The text with one of its numbers replaced."""
    found = [match.span() for match in re.finditer(rb"\d+", data)]
    if not found:
        return data
    start, end = rng.choice(found)
    return data[:start] + rng.choice(NO_FIGURES) + data[end:]


def _splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)[:8_000]
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _encode(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    text = data[:100_000].decode("latin-1")
    way = rng.randrange(6)
    if way == 0:
        return text.encode("utf-16")
    if way == 1:
        return text.encode("utf-16-le", "replace")
    if way == 2:
        return b"\xef\xbb\xbf" + data
    if way == 3:
        return gzip.compress(data, 1)
    if way == 4:
        return gzip.compress(data, 1)[: rng.randrange(1, 200)]
    return data.replace(b"\n", b"\r\n")


def _markdown(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    if rng.random() < 0.5:
        return b"```\n" + data + b"\n```\n"
    return b"\n".join(b"| " + b" | ".join(line.split()) + b" |" for line in data[:20_000].split(b"\n"))


_Damage = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
_DAMAGES: tuple[_Damage, ...] = (
    _flip,
    _flip,
    _cut,
    _repeat,
    _insert,
    _insert,
    _lines,
    _lines,
    _blanks,
    _wrap,
    _numbers,
    _splice,
    _encode,
    _markdown,
)

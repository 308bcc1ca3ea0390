"""Tensors that people print before and after moving them from one GPU to another: the copy holds zeros where the original does not.

``torch``'s own repr names the device (``tensor([0., 0.], device='cuda:1')``). A silent fault of peer copies shows as zeros, or as numbers
too small to be anything (``1.4013e-45``), on the second GPU. Nothing is concluded from a tensor that the text itself makes of zeros.

Observations: ``peer.copy`` as in :mod:`wiretax.probe.readers.peer_check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "printed tensors"
_START = re.compile(r"\btensor\((?=[\[\d-])")
_END = re.compile(r"device=['\u2018\u2019](?P<kind>cuda|cpu)(?::(?P<index>\d{1,3}))?['\u2018\u2019]")
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?")
_MOVED = re.compile(r"\.(?:to|cuda|copy_)\(|\b(?:mov(?:e|es|ed|ing)|cop(?:y|ies|ied|ying)|transfer\w{0,4})\b", re.IGNORECASE)
_MADE_OF_ZEROS = re.compile(r"\b(?:zeros(?:_like)?|empty(?:_like)?|new_zeros|zero_)\(")
_EXPECTED = re.compile(r"\bexpected\b", re.IGNORECASE)
_MOST_LINES = 40
_LONGEST = 4_000
_NOTHING = 1e-30
"""Numbers below are no results of training but bits of something else read as floats."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    first: int
    """Place of its first line in the stream."""
    last: int
    gpu: int
    numbers: tuple[float, ...]

    @property
    def is_nothing(self) -> bool:
        return all(abs(number) < _NOTHING for number in self.numbers)


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream's tensors say of peer copies, as one piece a stream."""
    if not any(_END.search(line[:_LONGEST]) for line in text.lines if "cuda" in line):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    tensors = list(_tensors(stream.lines))
    arrived = any(a.gpu != b.gpu and a.numbers == b.numbers and not a.is_nothing for a in tensors for b in tensors)
    moved = arrived or any(_MOVED.search(line.text[:_LONGEST]) for line in stream.lines)
    made_of_zeros = any(_MADE_OF_ZEROS.search(line.text[:_LONGEST]) for line in stream.lines)
    for before, after in pairwise(tensors):
        if not moved or made_of_zeros or len(before.numbers) != len(after.numbers):
            continue
        if before.gpu == after.gpu:
            # What came, and under it what was expected, of one GPU.
            between = stream.lines[before.last : after.first + 1]
            if not (before.is_nothing and not after.is_nothing and any(_EXPECTED.search(line.text[:200]) for line in between)):
                continue
            wrong = before
        elif after.is_nothing and not before.is_nothing:
            wrong = after
            number = stream.lines[wrong.first].number
            notes.add(number, "peer.copy", source_gpu=before.gpu, target_gpu=after.gpu, staged=False, wrong=True)
            lines.update(line.number for line in stream.lines[before.first : after.last + 1])
            continue
        else:
            continue
        notes.add(stream.lines[wrong.first].number, "peer.copy", target_gpu=wrong.gpu, staged=False, wrong=True)
        lines.add(stream.lines[wrong.first].number)
    if not lines:
        return None
    return Piece(source=source, format=FORMAT, first_line=min(lines), observations=notes.observations(), understood=frozenset(lines))


def _tensors(lines: tuple[Line, ...]) -> Iterator[_Tensor]:
    """Tensors on GPUs in the order in which they were printed; what a command makes (``torch.tensor([1.])``) names no device."""
    position = 0
    while position < len(lines):
        start = _START.search(lines[position].text[:_LONGEST])
        if start is None:
            position += 1
            continue
        numbers: list[float] = []
        for at in range(position, min(len(lines), position + _MOST_LINES)):
            written = lines[at].text[:_LONGEST]
            written = written[start.end() :] if at == position else written
            if at > position and _START.search(written):
                break
            end = _END.search(written)
            numbers += [float(number) for number in _NUMBER.findall(written[: end.start()] if end else written)]
            if end:
                if end["kind"] == "cuda" and numbers:
                    yield _Tensor(position, at, int(end["index"] or 0), tuple(numbers))
                position = at
                break
        position += 1

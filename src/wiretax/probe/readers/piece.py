"""What a reader makes of a text, and the text it gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wiretax.model.machine import Machine
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Lines of one file with their numbers. Decoded, without line ends, with control bytes and ANSI escapes already taken out.

    Attributes:
        source: the file's name as the user gave it.
        lines: the text of each line.
        numbers: the 1-based line number of each in the file (they may skip: bulk log lines are read elsewhere).
    """

    source: str
    lines: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one reader understood of one text. A reader that finds nothing of its own returns an empty tuple of pieces.

    Attributes:
        source: the file.
        format: what it is, in words (``nvidia-smi topo -m``).
        first_line: where it begins, 1-based.
        machine: what the text says of a machine (``origin="pasted"``), and nothing else: what it does not say is None with a reason.
        measurements: numbers that others measured, in our units.
        observations: facts and events.
        understood: numbers of the lines that were used or are known to be harmless.
        damaged: (line number, what is wrong) for lines that are of this format but cannot be read with certainty.
    """

    source: str
    format: str
    first_line: int
    machine: Machine | None = None
    measurements: Measurements = field(default_factory=Measurements)
    observations: tuple[Observation, ...] = ()
    understood: frozenset[int] = frozenset()
    damaged: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something about an input that the user must hear of, beside what was read from it.

    Attributes:
        source: the file's name as the user gave it.
        line: 1-based; 0 where it concerns the whole file.
        kind: ``unreadable``: the file, or a part of it, could not be read (exit code 2). ``damaged``: lines of a known format that
            cannot be read with certainty. ``not_understood``: lines that no reader knows.
        text: what is wrong; for ``not_understood`` the first such line, shortened.
        count: how many lines it stands for.
        do: what the user can do next.
    """

    source: str
    line: int = 0
    kind: Literal["unreadable", "damaged", "not_understood"]
    text: str
    count: int = 1
    do: str = ""

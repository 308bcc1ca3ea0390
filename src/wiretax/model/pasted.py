"""What was made of pasted texts: the machines and runs they speak of, and what nobody understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wiretax.model.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One machine in one state, or one run of a job on it. Each part is judged alone, and then compared with the others."""

    label: str
    """What people may call it: its host, or the files it was read from."""
    sources: tuple[str, ...] = ()
    """``file: format`` of every piece, in the order of the files."""
    differs: Literal["machine", "state", "run"] | None = None
    """How it differs from the first part it does not fit: another machine, another state of the same GPUs, another run."""
    because: str = ""
    """Why it was not joined with that part, or why it fits several."""
    machine: Machine | None = None
    findings: tuple[str, ...] = ()
    """Codes of what was found in this part."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"differs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InputNote:
    """Something about an input that its reader must hear of.

    unreadable: the file, or a part of it, could not be read. damaged: lines of a known format that cannot be read with certainty.
    not_understood: lines that no reader knows.
    """

    source: str
    line: int | None = None
    kind: Literal["unreadable", "damaged", "not_understood"]
    text: str
    count: int = 1
    """How many lines it stands for."""
    do: str = ""
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"line"})

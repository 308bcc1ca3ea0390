"""Two or more runs side by side: what differs, how surely, and what changed around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Outcome = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the runs. The first is what the others are compared with."""

    label: str
    run_id: str
    created_at: str
    title: str
    """The machine in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One metric of one run against the first.

    ``ratio`` is the value over the base; ``low`` and ``high`` hold the true ratio of the medians with 99 % confidence, from a bootstrap
    of both runs' samples. They cover what repeats within a run, not what differs from one run to the next on a busy host.
    """

    metric: str
    side: int
    """Index into ``Comparison.sides``."""
    base: float
    value: float
    ratio: float | None
    low: float | None = None
    high: float | None = None
    outcome: Outcome
    """better or worse: the interval leaves out 1 and the change is worth naming. unknown: too few samples to say."""
    reason: str = ""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One fact about machine, software or settings that is not the same in all runs; a value per side, None where unread."""

    subject: str
    values: tuple[str | None, ...]
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"values"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What a ``--fail-if`` came to."""

    text: str
    side: int
    true: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All of it. ``findings`` maps a code to whether each side has it."""

    sides: tuple[Side, ...]
    differences: tuple[Difference, ...] = ()
    changes: tuple[Change, ...] = ()
    findings: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    only_in: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Metrics that not all sides have, with the sides that do."""
    gates: tuple[GateResult, ...] = ()
    sentence: str = ""

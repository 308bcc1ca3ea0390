"""Prices and plans. A price carries its currency and what it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money per hour. ``per`` says for what: one GPU, or the whole box."""

    amount: float
    currency: str
    per: Literal["gpu_hour", "box_hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """One way to do the job."""

    num_gpus: int
    offer: str | None = None
    strategy: str | None = None
    hours: float | None = None
    cost: float | None = None
    currency: str | None = None
    efficiency_fraction: float | None = None
    cost_per_sample: float | None = None
    meets_deadline: bool | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options, the chosen one, and the constraint that decided."""

    constraint: Literal["none", "does_not_fit", "too_slow"]
    options: tuple[PlanOption, ...] = ()
    choice: int | None = None
    """Index into ``options``; null when none is feasible."""
    sentence: str = ""
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"choice"})

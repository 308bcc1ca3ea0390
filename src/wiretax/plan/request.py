"""What the user wants of a plan: limits, the choices allowed, and how boxes are interrupted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wiretax.errors import UsageError
from wiretax.plan.checkpointing import Interruptions
from wiretax.plan.knowledge import Setting
from wiretax.plan.offers import Offer

RESTART_SECONDS = 300.0
"""From losing a box to training again where nobody says: a new box, booting, loading."""

MOST_GPUS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupting:
    """How boxes are interrupted and saved; the mean gap of an offer counts before the general one."""

    checkpoint_seconds: float
    restart_seconds: float = RESTART_SECONDS
    mean_gap_seconds: float | None = None
    every_seconds: float | None = None
    """Work between checkpoints, typed; None for the best interval."""

    def of(self, offer: Offer, *, any_spot: bool) -> Interruptions | None:
        """What interrupts this offer: spot boxes where there are any, else every box; None where nothing does or nobody knows how often."""
        gap = offer.mean_seconds_between_interruptions or self.mean_gap_seconds
        if gap is None or (any_spot and offer.billing != "spot"):
            return None
        return Interruptions(mean_gap=gap, checkpoint=self.checkpoint_seconds, restart=self.restart_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Limits and choices. None means: no limit, or every choice that makes sense."""

    deadline_hours: float | None = None
    budget: float | None = None
    counts: tuple[int, ...] | None = None
    strategies: tuple[str, ...] | None = None
    settings: tuple[Setting, ...] | None = None
    interrupting: Interrupting | None = None
    quantile: float = 0.95

    def __post_init__(self) -> None:
        if self.deadline_hours is not None and not (self.deadline_hours > 0 and math.isfinite(self.deadline_hours)):
            raise UsageError("The deadline has passed.", do="Give one that is still to come: --deadline 24h, or a date.")
        if self.budget is not None and not (self.budget > 0 and math.isfinite(self.budget)):
            raise UsageError(f"a budget of {self.budget:g} buys nothing.", do="Give an amount above 0.")
        for count in self.counts or ():
            if not 1 <= count <= MOST_GPUS:
                raise UsageError(f"{count} GPUs are no number of GPUs.", do="Give counts such as --gpus 1,4.")
        if not 0.5 <= self.quantile < 1:
            raise UsageError(
                f"a quantile of {self.quantile:g} is no certainty.", do="Give a fraction from 0.5 to below 1, such as --quantile 0.95."
            )

"""How far a job is; what a job tells whoever started it, several times a second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One report.

    Attributes:
        stage: what is being done, in words for people ("copies between GPUs").
        fraction: how much of the job is done, 0 to 1.
        seconds_left: until the job ends as planned; None where it cannot be known.
        seconds_elapsed: since the job began.
        detail: which operation and size, where that helps.
        money_spent: price times time so far; None without a price.
        currency: of ``money_spent``.
    """

    stage: str
    fraction: float
    seconds_left: float | None
    seconds_elapsed: float
    detail: str = ""
    money_spent: float | None = None
    currency: str | None = None

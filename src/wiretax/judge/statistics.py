"""Medians, intervals and "are these two different": numpy and scipy, imported only when a number is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wiretax.units import percent

UNSTABLE_FRACTION = 0.10
"""A result is unstable when its middle half spreads over more than this share of its median (pyperf warns at 10 %)."""

BOOTSTRAP_RESAMPLES = 1000
_SEED = 20261130
"""Fixed, so that the same document is always judged the same way."""


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median with the interval that holds the true one with the given confidence."""

    low: float
    median: float
    high: float

    @property
    def half_width_fraction(self) -> float:
        """Half the interval's width over the median; infinite for a median of zero."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two samples side by side. ``ratio`` is the second median over the first."""

    outcome: Literal["same", "different", "unknown"]
    ratio: float | None
    p_value: float | None
    reason: str


def median(values: Sequence[float]) -> float:
    """The middle value.

    Raises:
        ValueError: for no values.
    """
    import numpy as np

    if not len(values):
        raise ValueError("the median of nothing was asked for")
    return float(np.median(np.asarray(values, dtype=float)))


def p95(values: Sequence[float]) -> float:
    """The 95th percentile with linear interpolation; below 20 values it leans on the largest one.

    Raises:
        ValueError: for no values.
    """
    import numpy as np

    if not len(values):
        raise ValueError("a percentile of nothing was asked for")
    return float(np.percentile(np.asarray(values, dtype=float), 95))


def mad(values: Sequence[float]) -> float:
    """The median absolute deviation from the median, in the unit of the values (not scaled to a standard deviation)."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def median_interval(values: Sequence[float], confidence: float = 0.9) -> MedianInterval:
    """A percentile bootstrap of the median.

    Args:
        values: at least one sample; with one or two the interval is their range, since nothing can be resampled.
        confidence: the share of repeats in which the interval should hold the true median.

    Raises:
        ValueError: for no values, or a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    middle = median(values)
    if len(values) < 3:
        return MedianInterval(min(values), middle, max(values))
    import numpy as np

    generator = np.random.default_rng(_SEED)
    sample = np.asarray(values, dtype=float)
    medians = np.median(generator.choice(sample, size=(BOOTSTRAP_RESAMPLES, sample.size)), axis=1)
    tail = (1 - confidence) / 2 * 100
    low, high = (float(edge) for edge in np.percentile(medians, [tail, 100 - tail]))
    return MedianInterval(min(low, middle), middle, max(high, middle))


def is_unstable(values: Sequence[float]) -> bool:
    """Whether the middle half of the samples spreads over more than :data:`UNSTABLE_FRACTION` of the median.

    The quartiles are used, not the standard deviation: one stray sample of a hundred must not mark a good result.
    Fewer than four samples cannot be called unstable.
    """
    if len(values) < 4:
        return False
    import numpy as np

    low, middle, high = (float(edge) for edge in np.percentile(np.asarray(values, dtype=float), [25, 50, 75]))
    return (high - low) > UNSTABLE_FRACTION * abs(middle)


def compare(first: Sequence[float], second: Sequence[float], *, worth_fraction: float = 0.05, alpha: float = 0.01) -> Comparison:
    """Whether two samples come from different distributions and differ by something that matters.

    Args:
        first: samples of one side.
        second: samples of the other, in the same unit.
        worth_fraction: medians closer than this share of the first count as the same, however sure the difference is.
        alpha: chance of calling equal things different (two-sided Mann-Whitney U).

    Returns:
        ``unknown`` when either side has fewer than four samples: with three against three the smallest possible p is 0.1.
    """
    if not first or not second:
        return Comparison("unknown", None, None, "one side has no samples")
    base = median(first)
    ratio = median(second) / base if base else None
    if len(first) < 4 or len(second) < 4:
        return Comparison("unknown", ratio, None, "fewer than four samples on a side")
    if ratio is None:
        return Comparison("unknown", None, None, "the first median is zero")
    if len(set(first) | set(second)) == 1:
        return Comparison("same", ratio, 1.0, "all samples are equal")
    from scipy.stats import mannwhitneyu

    p_value = float(mannwhitneyu(first, second, alternative="two-sided").pvalue)
    if abs(ratio - 1) < worth_fraction:
        return Comparison("same", ratio, p_value, f"the medians differ by less than {percent(worth_fraction)}")
    if p_value < alpha:
        return Comparison("different", ratio, p_value, f"Mann-Whitney p = {p_value:.2g}")
    return Comparison("same", ratio, p_value, f"Mann-Whitney p = {p_value:.2g}, not below {alpha}")

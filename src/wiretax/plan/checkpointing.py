"""How often to save, and what interruptions do to the wall clock: the formulas where they hold, a simulation where they do not.

Interruptions are taken to come at random with a constant rate (exponential gaps of mean ``M``). ``M`` is the *box's*: GPUs of one box
are taken away together, so more GPUs in it do not make interruptions more frequent. The checkpoint time ``C`` includes the upload, the
restart time ``R`` everything from losing the box to training again: waiting for a new one, booting, loading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wiretax.errors import UsageError

if TYPE_CHECKING:
    Array = Any

DALY_DOMAIN = 0.3
"""Checkpoint over mean gap up to which Daly's interval lies within 1 % of the best one (0.24 % at 0.3)."""

NUM_DRAWS = 4000
SEED = 20261130
MOST_EVENTS = 4_000_000
"""Random numbers of one simulation; above it fewer jobs are drawn."""

HOPELESS = 60.0
"""From (interval + checkpoint) / mean gap of this size on a piece is never finished (one try in e^60 succeeds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What is known of a box that is taken away now and then. Seconds."""

    mean_gap: float
    checkpoint: float
    restart: float

    def __post_init__(self) -> None:
        if not (self.mean_gap > 0 and math.isfinite(self.mean_gap)):
            raise UsageError(f"a mean time between interruptions of {self.mean_gap:g} s is impossible.", do="Give one such as --mtbf 6h.")
        if not (self.checkpoint > 0 and math.isfinite(self.checkpoint)):
            raise UsageError(f"a checkpoint cannot take {self.checkpoint:g} s.", do="Give its time, upload included: --checkpoint 60s.")
        if not (self.restart >= 0 and math.isfinite(self.restart)):
            raise UsageError(f"a restart cannot take {self.restart:g} s.", do="Give its time, such as --restart 5m.")

    @property
    def inside_domain(self) -> bool:
        """Whether Daly's formula holds."""
        return self.checkpoint / self.mean_gap <= DALY_DOMAIN


def young_interval(checkpoint: float, mean_gap: float) -> float:
    """Young's first-order optimum of the work between two checkpoints: ``sqrt(2 C M)`` (CACM 17, 1974). Seconds."""
    return math.sqrt(2 * checkpoint * mean_gap)


def daly_interval(checkpoint: float, mean_gap: float) -> float:
    """Daly's higher-order optimum (FGCS 22, 2006, eq. 37): seconds of work between two checkpoints.

    ``sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C`` for ``C < 2M``, else ``M``.
    C = 60 s and M = 6 h give 26 min 15 s of work, about 27 min from the start of one checkpoint to that of the next.
    """
    if checkpoint >= 2 * mean_gap:
        return mean_gap
    part = checkpoint / (2 * mean_gap)
    return young_interval(checkpoint, mean_gap) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint


def exact_interval(checkpoint: float, mean_gap: float) -> float:
    """The interval that minimises :func:`expected_seconds` exactly: ``M (1 + W(-exp(-1 - C/M)))``, with Lambert's W.

    Setting the derivative of ``(exp((T + C)/M) - 1) / T`` to zero gives ``(T/M - 1) exp(T/M - 1) = -exp(-1 - C/M)``.
    """
    from scipy.special import lambertw

    return float(mean_gap * (1 + lambertw(-math.exp(-1 - checkpoint / mean_gap)).real))


def expected_seconds(work: float, interval: float, known: Interruptions) -> float:
    """Mean wall clock of a job that saves every ``interval`` seconds of work and once at the end (Daly 2006, eq. 20).

    A piece of ``T`` seconds of work and its checkpoint take ``M exp(R/M) (exp((T + C)/M) - 1)`` in the mean; the last piece may be
    shorter. Infinite where a piece is never finished.
    """
    if interval <= 0 or work < 0:
        raise UsageError("Work and the time between checkpoints cannot be negative.")
    if work == 0:
        return 0.0
    whole, rest = _pieces(work, interval)
    total = whole * _piece_seconds(interval, known) if whole else 0.0
    return total + (_piece_seconds(rest, known) if rest > 0 else 0.0)


def stretch(interval: float, known: Interruptions) -> float:
    """Wall clock over work of a long job: the same formula, an interval's share."""
    return _piece_seconds(interval, known) / interval


def simulate(work: float, interval: float, known: Interruptions, *, draws: int = NUM_DRAWS, seed: int = SEED) -> Array:
    """Wall clocks of many jobs with drawn interruptions, in seconds.

    Each piece is tried until it ends before the next interruption; after each interruption the restart is tried the same way.

    Args:
        work: seconds of it.
        interval: seconds of work between checkpoints.
        known: of the box.
        draws: jobs; fewer where interruptions are very frequent.
        seed: the same seed gives the same jobs.

    Returns:
        One wall clock a job, unsorted; infinite where pieces are never finished.
    """
    import numpy as np

    if work <= 0:
        return np.zeros(draws)
    if (min(interval, work) + known.checkpoint) / known.mean_gap > HOPELESS or known.restart / known.mean_gap > HOPELESS:
        return np.full(draws, np.inf)
    whole, rest = _pieces(work, interval)
    expected = sum(count * math.expm1((length + known.checkpoint) / known.mean_gap) for count, length in ((whole, interval), (1, rest)))
    expected *= math.exp(known.restart / known.mean_gap)
    draws = max(min(draws, int(MOST_EVENTS / max(expected, 1e-9))), 50)
    generator = np.random.default_rng(seed)
    total = np.zeros(draws)
    for count, length in ((whole, interval), (1 if rest > 0 else 0, rest)):
        if not count:
            continue
        span = length + known.checkpoint
        failures = generator.negative_binomial(count, math.exp(-span / known.mean_gap), size=draws)
        total += count * span + _lost(generator, failures, span, known.mean_gap)
        # A restart that is itself interrupted begins anew.
        again = _failures_before(generator, failures, math.exp(-known.restart / known.mean_gap))
        total += failures * known.restart + _lost(generator, again, known.restart, known.mean_gap)
    return total


def best_interval(work: float, known: Interruptions) -> tuple[float, str]:
    """The interval to use and how it was found: ``daly`` inside its domain, else ``simulation`` over a grid around the exact optimum.

    A job shorter than the interval saves once, at its end.
    """
    import numpy as np

    if known.inside_domain:
        return min(daly_interval(known.checkpoint, known.mean_gap), work), "daly"
    centre = exact_interval(known.checkpoint, known.mean_gap)
    grid = [min(float(factor) * centre, work) for factor in np.geomspace(0.25, 4.0, 17)]
    # The same seed everywhere: intervals differ by what they do, not by luck.
    means = [float(np.mean(simulate(work, one, known, draws=600))) for one in grid]
    return grid[int(np.argmin(means))], "simulation"


def quantile_seconds(wall_clocks: Array, quantile: float) -> float:
    """The wall clock that is kept with this probability; infinite where pieces are never finished."""
    import numpy as np

    if not np.isfinite(wall_clocks).all():
        return math.inf
    return float(np.quantile(wall_clocks, quantile))


def mean_interval(wall_clocks: Array) -> tuple[float, float, float]:
    """Mean of the draws with its 99.9 % interval: low, mean, high."""
    import numpy as np

    mean = float(np.mean(wall_clocks))
    half = 3.291 * float(np.std(wall_clocks, ddof=1)) / math.sqrt(len(wall_clocks)) if len(wall_clocks) > 1 else math.inf
    return mean - half, mean, mean + half


def _pieces(work: float, interval: float) -> tuple[int, float]:
    """Whole intervals, and the work of the shorter last one."""
    whole = int(work / interval * (1 + 1e-12))
    rest = max(work - whole * interval, 0.0)
    return whole, rest if rest > 1e-9 * work else 0.0


def _piece_seconds(length: float, known: Interruptions) -> float:
    exponent = (length + known.checkpoint) / known.mean_gap
    if exponent > HOPELESS or known.restart / known.mean_gap > HOPELESS:
        return math.inf
    return known.mean_gap * math.exp(known.restart / known.mean_gap) * math.expm1(exponent)


def _lost(generator: Array, failures: Array, span: float, mean_gap: float) -> Array:
    """Seconds lost by each job: for each failure the time from the start of the try to the interruption, which comes before ``span``."""
    import numpy as np

    count = int(failures.sum())
    if not count or span <= 0:
        return np.zeros(len(failures))
    # An exponential cut off at the span, by its inverse distribution.
    uniform = generator.random(count)
    lost = -mean_gap * np.log1p(uniform * math.expm1(-span / mean_gap))
    owner = np.repeat(np.arange(len(failures)), failures)
    return np.bincount(owner, weights=lost, minlength=len(failures))


def _failures_before(generator: Array, successes: Array, probability: float) -> Array:
    """Failed tries before so many successes, for each job; a job that needs none has none."""
    import numpy as np

    needed = successes > 0
    found = np.zeros(len(successes), dtype=np.int64)
    if probability < 1.0 and needed.any():
        found[needed] = generator.negative_binomial(successes[needed], probability)
    return found

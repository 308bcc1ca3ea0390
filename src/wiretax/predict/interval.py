"""From spread to an interval: the same seeded draws for every prediction, so that two predictions differ only by their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wiretax.model.forecast import Interval
from wiretax.predict.contention import Contention
from wiretax.predict.timeline import Rates

if TYPE_CHECKING:
    from wiretax.predict.timeline import Array

NUM_DRAWS = 160
"""Enough for a 5 % quantile that moves by a tenth of the interval's width from seed to seed."""

HOST_HELPED = 0.4
"""Spread of the host towards faster over that towards slower: a free step is profiled on a quiet host as a median."""

COVERAGE = 0.90
SEED = 20261130


@dataclass(frozen=True, slots=True)
class Draws:
    """Factors around 1, one a draw. Draw 0 is the centre, where every factor is exactly 1."""

    device: Array
    """All device work of a launch together: clocks, temperature, which of several like GPUs one got."""
    host: Array
    wire: Array
    compute_beside: Array
    """Where between its worst (0) and its best (1) contention leaves compute; the centre is kept apart."""
    wire_beside: Array

    @property
    def count(self) -> int:
        """How many draws, the centre included."""
        return int(self.device.size)

    def rates(self, contention: Contention) -> Rates:
        """Contention per draw: uniform over its range, which is two-sided around the expected rate."""
        return Rates(
            _between(self.compute_beside, contention.compute_low, contention.compute, contention.compute_high),
            _between(self.wire_beside, contention.wire_low, contention.wire, contention.wire_high),
        )


def draw(
    *,
    device_sigma: float,
    host_sigma: float,
    wire_sigma: float,
    wire_slower_sigma: float | None = None,
    seed: int = SEED,
    count: int = NUM_DRAWS,
) -> Draws:
    """Seeded draws; the relative spreads are those of logarithms.

    Args:
        device_sigma: of device work, launch to launch.
        host_sigma: of host work.
        wire_sigma: of the wire; towards faster, where the next is given.
        wire_slower_sigma: of the wire towards slower.
        seed: the same seed gives the same draws.
        count: draws beside the centre.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((3, count))
    # Truncated at two and a half sigma: a tail of the normal law is no measurement.
    normal = np.clip(normal, -2.5, 2.5)
    place = generator.uniform(0.0, 1.0, (2, count))
    sigmas = np.asarray([[device_sigma], [host_sigma], [wire_sigma]]) * np.ones_like(normal)
    # A host is disturbed more often than it is helped.
    sigmas[1, normal[1] < 0] *= HOST_HELPED
    if wire_slower_sigma is not None:
        sigmas[2, normal[2] > 0] = wire_slower_sigma
    factors = np.exp(normal * sigmas)
    ones = np.ones((3, 1))
    factors = np.concatenate([ones, factors], axis=1)
    place = np.concatenate([np.full((2, 1), 0.5), place], axis=1)
    return Draws(factors[0], factors[1], factors[2], place[0], place[1])


def centre() -> Draws:
    """One draw in which nothing is disturbed."""
    return draw(device_sigma=0.0, host_sigma=0.0, wire_sigma=0.0, count=0)


def interval(seconds: Array) -> Interval:
    """The middle 90 % of the draws, with the undisturbed centre as what to expect."""
    import numpy as np

    tail = (1 - COVERAGE) / 2
    low, high = (float(value) for value in np.quantile(seconds, [tail, 1 - tail]))
    expected = float(seconds[0])
    return Interval(low=min(low, expected), expected=expected, high=max(high, expected))


def _between(place: Array, low: float, middle: float, high: float) -> Array:
    import numpy as np

    return np.interp(place, [0.0, 0.5, 1.0], [low, middle, high])

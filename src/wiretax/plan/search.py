"""All plans at once: every offer x number of GPUs x strategy x batch, ranked by cost and time in a few array operations.

Times and memory are asked for once a *kind* (offers that differ only in price are one kind); here they are spread over the offers,
priced, and sorted. Four million plans take about a second (``benchmarks/plan_search.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Array = Any

FITS, OPEN, TOO_LARGE = 1, 0, -1
"""Values of the memory array: surely fits, the interval leaves it open (or nobody asked), surely does not."""


@dataclass(frozen=True, slots=True)
class Space:
    """The axes are offers, counts, strategies, settings (a batch with its accumulation)."""

    hourly: Array
    """[offers, counts] money an hour; NaN where the offer has no such count."""
    kinds: Array
    """[offers] index of the kind."""
    hours: Array
    """[kinds, counts, strategies, settings] until the job is done; NaN where it is not known or not allowed."""
    memory: Array
    """[kinds, counts, strategies, settings] of ``FITS``, ``OPEN``, ``TOO_LARGE``."""
    stretch: Array
    """[offers] wall clock over work where interruptions come: 1 without any."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Lengths of the four axes."""
        offers, counts = self.hourly.shape
        return offers, counts, self.hours.shape[2], self.hours.shape[3]

    @property
    def num_plans(self) -> int:
        """All combinations, possible or not."""
        offers, counts, strategies, settings = self.shape
        return int(offers * counts * strategies * settings)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Feasible plans as flat indices into the space, cheapest first (sooner first where the cost is the same)."""

    space: Space
    order: Array
    hours: Array
    """Of each ranked plan, in the same order."""
    cost: Array
    front: Array
    """Positions in ``order`` of the plans that nothing else beats in both cost and time, cheapest first."""

    def place(self, position: int) -> tuple[int, int, int, int]:
        """Offer, count, strategy and setting of the plan at a position of the order."""
        import numpy as np

        offer, count, strategy, setting = np.unravel_index(int(self.order[position]), self.space.shape)
        return int(offer), int(count), int(strategy), int(setting)

    def cheapest_by(self, deadline_hours: float) -> int | None:
        """Position of the cheapest plan that is done in time."""
        return _first(self.hours <= deadline_hours)

    def fastest_within(self, budget: float) -> int | None:
        """Position of the plan that is done soonest for no more than this; of equals the cheapest."""
        import numpy as np

        end = int(np.searchsorted(self.cost, budget, side="right"))
        return int(np.argmin(self.hours[:end])) if end else None


def rank(space: Space, *, within: Array | None = None) -> Ranking:
    """Prices and sorts all plans that fit (or may fit).

    Args:
        space: what is known of each.
        within: [offers, counts] of which only the true ones take part; None for all.
    """
    import numpy as np

    hours = space.hours[space.kinds] * space.stretch[:, None, None, None]
    possible = (space.memory[space.kinds] >= OPEN) & np.isfinite(hours)
    priced = np.isfinite(space.hourly) if within is None else np.isfinite(space.hourly) & within
    possible &= priced[:, :, None, None]
    chosen = np.flatnonzero(possible)
    del possible
    wall = hours.reshape(-1)[chosen]
    del hours
    strategies, settings = space.shape[2:]
    cost = space.hourly.reshape(-1)[chosen // (strategies * settings)] * wall
    by_cost = np.argsort(cost)
    chosen, wall, cost = chosen[by_cost], wall[by_cost], cost[by_cost]
    _sort_ties(chosen, wall, cost)
    return Ranking(space, chosen, wall, cost, _front(wall, cost))


def front_of(hours: Array, cost: Array) -> Array:
    """Indices of the points that no other beats in both: cheapest first. Of equal points the first one."""
    import numpy as np

    order = np.lexsort((hours, cost))
    return order[_front(np.asarray(hours)[order], np.asarray(cost)[order])]


def _front(wall: Array, cost: Array) -> Array:  # noqa: ARG001 - sorted by cost already; the name says by what
    """With costs ascending, a point is on the front where it is sooner than all before it."""
    import numpy as np

    if not len(wall):
        return np.zeros(0, dtype=np.int64)
    soonest = np.minimum.accumulate(wall)
    before = np.concatenate([[np.inf], soonest[:-1]])
    return np.flatnonzero(wall < before)


def _sort_ties(chosen: Array, wall: Array, cost: Array) -> None:
    """Within runs of the same cost the sooner plan first, then by place: only such runs are sorted again, where there are any."""
    import numpy as np

    same = cost[1:] == cost[:-1]
    if not same.any():
        return
    tied = np.zeros(len(cost), dtype=bool)
    tied[1:] = same
    tied[:-1] |= same
    places = np.flatnonzero(tied)
    order = places[np.lexsort((chosen[places], wall[places], cost[places]))]
    chosen[places], wall[places] = chosen[order], wall[order]


def _first(true: Array) -> int | None:
    import numpy as np

    found = int(np.argmax(true)) if len(true) else 0
    return found if len(true) and bool(true[found]) else None

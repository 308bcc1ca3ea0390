"""Which GPUs to use instead of all: from measured pairs and measured subsets, never guessed from topology letters."""

from __future__ import annotations

from collections.abc import Iterable

from wiretax.judge import facts, seen
from wiretax.model.run import Run
from wiretax.units import rate

CLEARLY_BETTER = 1.2
"""Advice to prefer some GPUs over others needs at least this ratio between best and worst."""


def pair_rates(run: Run) -> dict[tuple[int, int], float]:
    """What each unordered pair really gets: its all-reduce where measured, else its copies (direct where allowed, else staged).

    All figures of one answer come from the same kind of measurement, so that they can be compared.
    """
    found: dict[tuple[int, int], float] = {}
    for collective in facts.user_collectives_of_pairs(run):
        head = facts.headline([collective])
        if head is not None:
            low, high = sorted(collective.gpus)
            found[low, high] = max(found.get((low, high), 0.0), head[1].busbw_bytes_per_second)
    if len(found) > 1:
        return found
    for route in ("direct", "staged"):
        copies = facts.pair_copies(run, route=route)
        if copies:
            slowest: dict[tuple[int, int], float] = {}
            for (source, target), copy in copies.items():
                low, high = sorted((source, target))
                slowest[low, high] = min(slowest.get((low, high), float("inf")), copy.bandwidth_bytes_per_second or 0.0)
            if route == "staged" or len(slowest) >= len(facts.unordered_pairs(run.machine)):
                return slowest
    return found or {(min(pair), max(pair)): reached for pair, (reached, _) in seen.pair_speeds(run).items()}


def best_pair(run: Run) -> tuple[tuple[int, int], float, float] | None:
    """The fastest pair, its rate, and the slowest pair's rate; None unless the difference is clear."""
    rates = {pair: reached for pair, reached in pair_rates(run).items() if reached > 0}
    if len(rates) < 2:
        return None
    best = max(rates, key=lambda pair: rates[pair])
    worst = min(rates.values())
    return (best, rates[best], worst) if rates[best] > CLEARLY_BETTER * worst else None


def best_pair_remedy(run: Run) -> str | None:
    """One sentence with what to type for a job on two GPUs, or None when the pairs do not differ."""
    found = best_pair(run)
    if found is None:
        return None
    pair, fast, slow = found
    return f"For a job on two GPUs: `export {facts.visible_devices(run.machine, pair)}` ({rate(fast)}; the slowest pair has {rate(slow)})."


def best_subset(run: Run, smaller_than: int) -> tuple[tuple[int, ...], float] | None:
    """The measured set of fewer GPUs with the highest all-reduce busbw."""
    best: tuple[tuple[int, ...], float] | None = None
    for gpus, reached in subset_rates(run):
        if 2 <= len(gpus) < smaller_than and (best is None or reached > best[1]):
            best = (gpus, reached)
    return best


def subset_rates(run: Run) -> Iterable[tuple[tuple[int, ...], float]]:
    """All-reduce busbw over the user's own wire for each set of GPUs measured."""
    sets: dict[tuple[int, ...], list[float]] = {}
    for collective in run.measurements.collectives:
        if collective.operation == "all_reduce" and facts.is_user_wire(collective) and collective.gpus:
            head = facts.headline([collective])
            if head is not None:
                sets.setdefault(tuple(collective.gpus), []).append(head[1].busbw_bytes_per_second)
    return [(gpus, max(reached)) for gpus, reached in sets.items()]

"""Ranks four million plans: 10,000 offers x 8 counts x 5 strategies x 10 batches, with the function that `wiretax plan` uses.

    python benchmarks/plan_search.py [--offers 10000] [--write benchmarks/results/plan_search.json]

Prints seconds, plans a second, memory, and the ratio to the same done plan by plan in Python. Also times a real question (a profile,
12 offers) from end to end. Exits 1 above 3 s or 1 GB for the four million.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from wiretax.plan.search import FITS, OPEN, TOO_LARGE, Ranking, Space, rank  # noqa: E402

SECONDS, BYTES = 3.0, 1e9
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8)
STRATEGIES, BATCHES, KINDS = 5, 10, 120
ROUNDS = 5


def space(num_offers: int, *, all_fit: bool, seed: int = 1) -> Space:
    """Offers with prices and efficiencies as real ones have them; the worst case for sorting is that every plan fits."""
    generator = np.random.default_rng(seed)
    counts = np.asarray(COUNTS, dtype=float)
    prices = generator.lognormal(0.0, 0.8, (num_offers, 1))
    alone = generator.lognormal(3.5, 0.6, (KINDS, 1, 1, 1))
    waiting = generator.uniform(0.02, 1.5, (KINDS, 1, STRATEGIES, BATCHES)) * (1 - 1 / counts)[None, :, None, None]
    memory = np.full((KINDS, len(COUNTS), STRATEGIES, BATCHES), FITS, dtype=np.int8)
    if not all_fit:
        memory = generator.choice(np.asarray([FITS, OPEN, TOO_LARGE], dtype=np.int8), memory.shape)
    return Space(
        hourly=prices * counts,
        kinds=generator.integers(0, KINDS, num_offers),
        hours=alone / counts[None, :, None, None] * (1 + waiting),
        memory=memory,
        stretch=np.where(generator.random(num_offers) < 0.3, 1.09, 1.0),
    )


def one_by_one(one: Space, most: int) -> float:
    """Seconds a plan when each is priced and compared in a Python loop (only so many, as it is slow)."""
    offers, counts, strategies, batches = one.shape
    start = time.perf_counter()
    rows = []
    for flat in range(most):
        offer, rest = divmod(flat, counts * strategies * batches)
        count, rest = divmod(rest, strategies * batches)
        strategy, batch = divmod(rest, batches)
        kind = one.kinds[offer % offers]
        if one.memory[kind, count, strategy, batch] >= OPEN:
            hours = one.hours[kind, count, strategy, batch] * one.stretch[offer % offers]
            rows.append((one.hourly[offer % offers, count] * hours, hours, flat))
    rows.sort()
    return (time.perf_counter() - start) / most


def timed(ask: Callable[[], Any]) -> tuple[float, Any]:
    """Median seconds of several rounds, and the last answer."""
    seconds, answer = [], None
    for _ in range(ROUNDS):
        start = time.perf_counter()
        answer = ask()
        seconds.append(time.perf_counter() - start)
    return median(seconds), answer


def real_question() -> tuple[float, int]:
    """A profile of the recorded pair over 12 offers of four cards: seconds from end to end, and plans ranked."""
    from plans import offer, planned
    from recorded_h200x2 import profile
    from wiretax.plan.job import Job

    cards = ("H200 SXM", "H100 SXM5", "A100 SXM4 80GB", "L40S")
    offers = [offer(1.0 + index / 10, gpu=name, name=f"{name} {index}") for name in cards for index in range(3)]
    start = time.perf_counter()
    plan = planned(Job(profile=profile("gpt1.7b", 4, 1), samples=1e6), *offers, counts=None, deadline_hours=10)
    return time.perf_counter() - start, plan.num_considered


def main() -> int:
    """Runs and prints; the exit code says whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    worst = space(chosen.offers, all_fit=True)
    seconds, ranking = timed(lambda: rank(worst))
    assert isinstance(ranking, Ranking)
    usual, _ = timed(lambda: rank(space(chosen.offers, all_fit=False)))
    alike = replace(worst, hours=np.broadcast_to(worst.hours[:, :, :1, :1], worst.hours.shape))
    tied, _ = timed(lambda: rank(alike))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    slow = one_by_one(worst, 40_000) * worst.num_plans
    asked, plans = real_question()
    result = {
        "num_plans": worst.num_plans,
        "num_feasible": len(ranking.order),
        "seconds": seconds,
        "seconds_when_two_thirds_fit": usual,
        "seconds_when_all_are_tied": tied,
        "peak_bytes": peak,
        "bytes_before": before,
        "one_by_one_seconds": slow,
        "times_faster_than_one_by_one": slow / seconds,
        "real_question_seconds": asked,
        "real_question_plans": plans,
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(f"{worst.num_plans:,} plans, all fit: {seconds:.2f} s, {seconds / SECONDS:.2f} of the limit")
    print(f"strategies and batches all alike, so that nearly every plan is tied: {tied:.2f} s")
    print(f"two thirds fit: {usual:.2f} s")
    print(f"memory of the process at its peak: {peak / 1e6:.0f} MB, {peak / BYTES:.2f} of the limit ({before / 1e6:.0f} MB before)")
    print(f"plan by plan in Python: {slow:.0f} s, {slow / seconds:.0f} times as long")
    print(f"a real question (profile, 12 offers, {plans} plans): {asked:.2f} s from end to end")
    if chosen.write:
        chosen.write.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if max(seconds, tied) <= SECONDS and peak <= BYTES else 1


if __name__ == "__main__":
    raise SystemExit(main())

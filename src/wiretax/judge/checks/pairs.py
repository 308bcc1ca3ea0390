"""A pair far below what its links allow, or below its equals; and a GPU whose way to the host is slower than its link."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from statistics import median

from wiretax.judge import facts
from wiretax.judge.checks.shared_uplink import near_slower
from wiretax.judge.choice import best_pair_remedy
from wiretax.judge.expectation import Expectation, class_of, expect_copy, expect_measured
from wiretax.judge.facts import evidence
from wiretax.judge.limits import Limit, host_limit
from wiretax.model.finding import Evidence, Finding
from wiretax.model.measurement import Copy
from wiretax.model.run import Run
from wiretax.units import percent, rate, size

AMONG_EQUALS = 0.6
"""A pair below this share of the median of pairs joined the same way is odd, whatever its links could do."""

HOST_PATH_FRACTION = 0.7


def check(run: Run) -> Iterator[Finding]:
    """Judges copies alone (direct, else staged), then the two-GPU all-reduce where no copy was measured."""
    slow = _slow_pairs(run)
    if slow:
        yield _finding(run, slow)
    else:
        yield from _slow_all_reduce(run)
    yield from _host_paths(run)


def _slow_pairs(run: Run) -> dict[tuple[int, int], Evidence]:
    slow: dict[tuple[int, int], Evidence] = {}
    groups, _ = near_slower(run)
    for route in ("direct", "staged"):
        copies = {pair: copy for pair, copy in facts.pair_copies(run, route=route).items() if pair[0] != pair[1] and not copy.unstable}
        paths = {pair: facts.path_between(run.machine, *pair) for pair in copies}
        enough = _enough(copies, paths)
        for pair, copy in copies.items():
            if route == "staged" and any(set(pair) <= group for group in groups):
                continue  # shared-uplink names these, and knows why
            reached = copy.bandwidth_bytes_per_second or 0.0
            expected = expect_copy(run, *pair, route)
            if isinstance(expected, Expectation) and expected.standing(reached) == "below":
                text = f"{pair[0]} to {pair[1]} ({route}): {rate(reached)}, expected {rate(expected.low)} to {rate(expected.high)}"
                slow[pair] = evidence(f"{text}: {expected.because[0]}", "measurements.copies")
            elif route == "direct" and reached < enough.get(paths[pair], math.inf):
                equals = _equals(run, copies, pair, paths)
                if equals is not None and reached < AMONG_EQUALS * equals:
                    path = facts.path_between(run.machine, *pair)
                    text = f"{pair[0]} to {pair[1]} ({route}): {rate(reached)}; other {f'{path} ' if path else ''}pairs have {rate(equals)}"
                    slow[pair] = evidence(text, "measurements.copies")
        if copies:
            break
    return slow


def _enough(copies: dict[tuple[int, int], Copy], paths: dict[tuple[int, int], str | None]) -> dict[str | None, float]:
    """For each topology code a rate at which no pair is odd: without a pair's own two figures the median rises by one rank at most."""
    rates: dict[str | None, list[float]] = {}
    for pair, copy in copies.items():
        rates.setdefault(paths[pair], []).append(copy.bandwidth_bytes_per_second or 0.0)
    return {path: AMONG_EQUALS * sorted(known)[min(len(known) // 2 + 2, len(known) - 1)] for path, known in rates.items()}


def _equals(run: Run, copies: dict[tuple[int, int], Copy], pair: tuple[int, int], paths: dict[tuple[int, int], str | None]) -> float | None:
    """The median of at least three other pairs with the same topology code. Staged pairs are not compared: uplinks decide there."""
    path = paths.get(pair)
    if path is None and not _one_gpu_apart(run, copies, pair):
        return None
    others = [
        copy.bandwidth_bytes_per_second or 0.0 for other, copy in copies.items() if set(other) != set(pair) and paths.get(other) == path
    ]
    return median(others) if len(others) >= 3 else None


def _one_gpu_apart(run: Run, copies: dict[tuple[int, int], Copy], pair: tuple[int, int]) -> bool:
    """Pasted matrices without topology: a GPU slow to every other is odd whatever joins them; single slow pairs may be far apart."""
    if run.machine is None or run.machine.origin != "pasted":
        return False
    usual = median(copy.bandwidth_bytes_per_second or 0.0 for copy in copies.values())
    for gpu in pair:
        own = [copy.bandwidth_bytes_per_second or 0.0 for other, copy in copies.items() if gpu in other]
        if len(own) >= 4 and max(own) < AMONG_EQUALS * usual:
            return True
    return False


def _finding(run: Run, slow: dict[tuple[int, int], Evidence]) -> Finding:
    unordered = sorted({(min(pair), max(pair)) for pair in slow})
    counts = Counter(gpu for pair in unordered for gpu in pair)
    gpu, hits = counts.most_common(1)[0]
    total = len(facts.unordered_pairs(run.machine))
    one_gpu = hits == len(unordered) > 1
    # Without a topology a pasted matrix shows that a GPU is odd, not that its links allow more.
    sure = all(facts.path_between(run.machine, *pair) is not None for pair in unordered)
    others = len(run.machine.gpus) - 1 if run.machine is not None else 0
    to_all = one_gpu and hits == others > 2
    title = (
        f"GPU {gpu} is slow to each of the {others} others; no other pair is"
        if to_all
        else f"Every slow pair includes GPU {gpu}: {facts.pairs_text(unordered)}"
        if one_gpu
        else f"{facts.pairs_text(unordered)} {'is' if len(unordered) == 1 else 'are'} far slower than the links allow"
    )
    return Finding(
        code="pair-slow",
        severity="warning" if all("(staged)" in found.text for found in slow.values()) else "problem",
        confidence="certain" if sure else "likely",
        title=title,
        evidence=tuple(slow[pair] for pair in sorted(slow))[:10],
        effect=f"{len(unordered)} of {max(total, len(unordered))} pairs are slow, and a ring runs at its slowest pair's pace.",
        remedy=(_leave_out(run, gpu) if to_all else best_pair_remedy(run))
        or (
            f"See which slot GPU {gpu} has (x1 or x4, or behind the chipset): `nvidia-smi -q -d PCIE`; leave it out, or move it."
            if one_gpu
            else "Check slot, riser and switch of these GPUs; the cause is not known."
        ),
        confirm="wiretax check --quick",
    )


def _leave_out(run: Run, odd: int) -> str:
    """How to go on without one GPU."""
    rest = tuple(gpu.index for gpu in run.machine.gpus if gpu.index != odd) if run.machine is not None else ()
    return (
        f"Leave GPU {odd} out: `export {facts.visible_devices(run.machine, rest)}`. "
        "Or see which slot it has and how many of its links are up: `nvidia-smi -q -d PCIE`, `nvidia-smi nvlink -s`."
    )


def _slow_all_reduce(run: Run) -> Iterator[Finding]:
    """Two GPUs, copies healthy or not measured, and yet the all-reduce is below its range: the fact, with no cause claimed."""
    head = facts.headline([c for c in facts.user_collectives(run) if c.world_size == 2 and c.gpus])
    if head is None:
        return
    collective, point = head
    expected = expect_measured(run, collective, point.num_bytes)
    reached = point.busbw_bytes_per_second
    if not isinstance(expected, Expectation) or expected.standing(reached) != "below" or class_of(run, collective) in ("socket", "gloo"):
        return
    yield Finding(
        code="pair-slow",
        severity="problem" if reached < 0.5 * expected.low else "warning",
        confidence="likely",
        title=f"All-reduce between {facts.gpus_list(collective.gpus)} is far below what this way allows; why is not known",
        evidence=(
            evidence(
                f"{rate(reached)} at {size(point.num_bytes)} over {collective.transport or expected.wire_class}, "
                f"expected {rate(expected.low)} to {rate(expected.high)}"
            ),
            *(evidence(reason, "expectation") for reason in expected.because[:2]),
        ),
        effect=f"Gradients move at {percent(reached / expected.expected)} of the usual rate of such a machine.",
        remedy="Repeat it on a quiet host; then compare settings: `NCCL_P2P_DISABLE=1 wiretax check --quick`, another NCCL version.",
        confirm="wiretax check --quick",
    )


def _host_paths(run: Run) -> Iterator[Finding]:
    """Equal links, unequal ways: a slot behind the chipset shows the same link and half the rate."""
    rates = {gpu.index: min(copies) for gpu in facts.usable_gpus(run.machine) if (copies := facts.host_copies(run, gpu.index))}
    limits = {gpu: limit for gpu in rates if isinstance(limit := host_limit(run, gpu), Limit)}
    if len(limits) < 2:
        return
    odd = []
    for gpu, limit in limits.items():
        equals = [rates[other] for other, theirs in limits.items() if other != gpu and theirs.bytes_per_second == limit.bytes_per_second]
        if equals and rates[gpu] < HOST_PATH_FRACTION * median(equals):
            odd.append((gpu, rates[gpu], median(equals)))
    if not odd:
        return
    yield Finding(
        code="host-path-slow",
        severity="warning",
        confidence="certain",
        title=f"{facts.gpus_are((gpu for gpu, _, _ in odd), 'reaches', 'reach')} host memory slower than GPUs with the same PCIe link",
        evidence=tuple(
            evidence(f"GPU {gpu}: {rate(mine)} host copies; others with this link {rate(theirs)}", "measurements.copies")
            for gpu, mine, theirs in odd
        ),
        effect="Everything that goes through host memory runs at this GPU's pace.",
        remedy="Its slot may hang on the chipset or on another socket than the process: try another slot, or leave it out. "
        + (best_pair_remedy(run) or ""),
        confirm="numactl --cpunodebind=0 wiretax check --quick",
    )

"""Every pair is healthy, and all GPUs together collapse; says which smaller set to use instead."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.choice import best_subset, subset_rates
from wiretax.judge.expectation import Expectation, best_class, copy_standing, expect_measured
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.run import Run
from wiretax.units import rate, size

COLLAPSE = 0.5
"""busbw of the whole set below this share of a smaller set of the same kind is a collapse; on a sound machine it rises or stays."""


def check(run: Run) -> Iterator[Finding]:
    """Compares the whole set with its range and with measured smaller sets whose links are of the same kind."""
    head = facts.headline([c for c in facts.user_collectives(run) if len(c.gpus) > 2])
    if head is None:
        return
    collective, point = head
    reached = point.busbw_bytes_per_second
    slow_pairs = [pair for pair, copy in facts.pair_copies(run, route="direct").items() if copy_standing(run, copy) == "below"]
    if slow_pairs:
        return
    expected = expect_measured(run, collective, point.num_bytes)
    below = isinstance(expected, Expectation) and expected.standing(reached) == "below"
    kind = best_class(run, collective.gpus)
    # A pair on NVLink beside a set over PCIe differs by design: that is nvlink-islands.
    same_kind = [
        (gpus, rate_) for gpus, rate_ in subset_rates(run) if 2 <= len(gpus) < len(collective.gpus) and best_class(run, gpus) == kind
    ]
    collapsed = bool(same_kind) and reached < COLLAPSE * max(rate_ for _, rate_ in same_kind)
    if not below and not collapsed:
        return
    seen = [evidence(f"all {len(collective.gpus)} GPUs: {rate(reached)} all-reduce at {size(point.num_bytes)}")]
    seen += [evidence(f"GPUs {facts.gpus_list(gpus)}: {rate(rate_)}") for gpus, rate_ in same_kind[:6]]
    if isinstance(expected, Expectation):
        seen.append(evidence(f"expected {rate(expected.low)} to {rate(expected.high)}: {expected.because[0]}", "expectation"))
    better = best_subset(run, len(collective.gpus))
    remedy = "Compare algorithms: `NCCL_ALGO=Tree wiretax check --quick`, and `NCCL_P2P_DISABLE=1 wiretax check --quick`."
    if better is not None and better[1] > reached:
        remedy = f"Use GPUs {facts.gpus_list(better[0])}: `export {facts.visible_devices(run.machine, better[0])}`. {remedy}"
    yield Finding(
        code="subset-collapse",
        severity="problem",
        confidence="certain" if collapsed else "likely",
        title=f"All {len(collective.gpus)} GPUs together are far slower than {'smaller sets' if collapsed else 'their links allow'}",
        evidence=tuple(seen),
        effect="Training on all GPUs may be slower than on a part of them.",
        remedy=remedy,
        confirm="wiretax check",
    )

"""Measured machines that stand for offers: the same cards, no contradiction in the wire, the nearest size of box first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from wiretax.data.gpus import find_gpu
from wiretax.judge.expectation import class_of
from wiretax.model.run import Run
from wiretax.plan.offers import Offer
from wiretax.plan.wires import Kind, wire_kind

USER_WIRE = "default"
"""The wire of a run that a job gets when nobody sets anything (DESIGN 5)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run in which GPUs were measured together."""

    run: Run
    kind: Kind | None
    """Of its own wire; None where NCCL's log did not say, or where the ranks talked through sockets."""
    num_gpus: int
    """The most that were measured together."""
    gpus: frozenset[str]
    """Names of its cards as they are known here."""


def machines(runs: Sequence[Run]) -> tuple[Measured, ...]:
    """Runs that hold an all-reduce of GPUs over the user's own wire; others say nothing about an offer."""
    found = []
    for run in runs:
        measured = [
            one
            for one in run.measurements.collectives
            if (one.operation, one.wire) == ("all_reduce", USER_WIRE) and one.points and (one.gpus or one.backend == "nccl")
        ]
        if run.machine is None or not measured:
            continue
        largest = max(measured, key=lambda one: one.world_size)
        kind = class_of(run, largest)
        cards = (find_gpu(gpu.name) for gpu in run.machine.gpus if gpu.name is not None)
        found.append(
            Measured(
                run,
                cast("Kind", kind) if kind in ("nvlink", "pcie", "staged") else None,
                largest.world_size,
                frozenset(card.name for card in cards if card is not None),
            )
        )
    return tuple(found)


def standing_for(measured: Sequence[Measured], offer: Offer, num_gpus: int) -> list[Measured]:
    """Those that stand for so many GPUs of an offer, the closest first. Several hosts have no measured machine here."""
    if offer.hosts > 1:
        return []
    stated = wire_kind(offer, num_gpus)
    said = offer.nvlink is not None or offer.p2p is not None or stated == "nvlink"
    fitting = [
        one
        for one in measured
        if (offer.gpu is None or one.gpus == {offer.gpu.name}) and not (said and one.kind is not None and one.kind != stated)
    ]
    return sorted(fitting, key=lambda one: abs(math.log(one.num_gpus / num_gpus)))


def closest(measured: Sequence[Measured], offer: Offer, num_gpus: int) -> Measured | None:
    """The best of them, if any."""
    return next(iter(standing_for(measured, offer, num_gpus)), None)

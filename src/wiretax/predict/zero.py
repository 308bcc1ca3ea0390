"""Sharded optimizers: ZeRO-1 (torch's ``ZeroRedundancyOptimizer``) and DeepSpeed's stage 2 as its equivalent.

Gradients are reduced as DDP does it (stage 2: reduce-scattered, half the traffic). Each rank updates its share of the parameters
and then all ranks gather the others', with nothing to hide that behind.
"""

from __future__ import annotations

from dataclasses import replace

from wiretax.predict.contention import Contention
from wiretax.predict.ddp import simulate_ddp
from wiretax.predict.fsdp import sharded_optimizer
from wiretax.predict.interval import Draws
from wiretax.predict.options import Options
from wiretax.predict.profile_model import Work
from wiretax.predict.timeline import Outcome
from wiretax.predict.wire_curve import Curve, Wire


def simulate_zero(
    work: Work, wire: Wire, world_size: int, options: Options, draws: Draws, contention: Contention, *, stage: int
) -> tuple[Outcome, list[str]]:
    """One optimizer step with the optimizer's states (stage 1) or also the gradients (stage 2) sharded.

    Returns:
        The outcome per draw, and what was assumed.
    """
    free = work.free_step("zero1", world_size=world_size)
    sharded = replace(work, optimizer=sharded_optimizer(work, free, world_size))
    reducing = wire if stage == 1 else _reduce_scatter_as_all_reduce(wire, world_size)
    outcome, notes = simulate_ddp(sharded, reducing, world_size, options, draws, contention)
    gather = wire.curve("all_gather", world_size)
    parameter_bytes = sum(one.num_bytes for one in work.profile.parameters if one.gradient_bytes)
    seconds = gather.seconds(parameter_bytes) * draws.wire
    notes += [note for note in gather.assumptions if note not in notes]
    notes.append("updated parameters are gathered after the optimizer, hidden by nothing")
    if stage == 2:
        notes.append("DeepSpeed's stage 2 is predicted as DDP's buckets with reduce-scatters")
    return replace(outcome, finish=outcome.finish + seconds, exposed_wire=outcome.exposed_wire + seconds), notes


def _reduce_scatter_as_all_reduce(wire: Wire, world_size: int) -> Wire:
    """The same wire where the buckets' all-reduces are reduce-scatters."""
    scatter: Curve = wire.curve("reduce_scatter", world_size)
    others = tuple(one for one in wire.curves if one.operation != "all_reduce")
    return replace(wire, curves=(*others, replace(scatter, operation="all_reduce")))

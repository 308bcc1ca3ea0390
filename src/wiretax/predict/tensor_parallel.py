"""Tensor parallelism through DTensor: every block waits for its all-reduces, two in forward and two in backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.profile import CommunicationCall, FreeStep
from wiretax.predict.contention import Contention
from wiretax.predict.interval import Draws, centre
from wiretax.predict.options import Options
from wiretax.predict.profile_model import Piece, Work, work_of
from wiretax.predict.timeline import Outcome, Program, finish_alone, simulate
from wiretax.predict.wire_curve import Wire
from wiretax.units import percent

UNPROFILED_HOST_SECONDS = 1.0e-3
"""DTensor's own host time a block and pass where no free step was profiled: about ten dispatches of 0.1 ms."""

UNPROFILED_EFFICIENCY = 0.85
"""What a GEMM cut in t pieces keeps of its rate where no free step was profiled (smaller tiles, fewer waves)."""

CALLS_PER_BLOCK = 2
"""All-reduces a block and pass (Megatron, arXiv 1909.08053, section 3)."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Compute up to a collective, and the collective's bytes (0 at the end of a pass)."""

    compute: Piece
    operation: str
    num_bytes: float


def simulate_tensor_parallel(
    work: Work, wire: Wire, world_size: int, options: Options, draws: Draws, contention: Contention, *, replicas: int = 1
) -> tuple[Outcome, list[str]]:
    """One optimizer step of one batch cut over ``world_size`` GPUs, in ``replicas`` data-parallel groups.

    Args:
        work: the step on one GPU.
        wire: between the GPUs.
        world_size: GPUs of one tensor-parallel group.
        options: ``accumulation_steps``.
        draws: spread of device, host and wire.
        contention: between compute and wire; only the gradients of ``replicas`` overlap.
        replicas: data-parallel groups, each with a batch of its own.

    Returns:
        The outcome per draw, and what was assumed.
    """
    free = work.free_step("tp", world_size=world_size)
    if free is not None and free.world_size != world_size:
        free = None
    forward, backward, optimizer, notes = _stretches(work, free, world_size)
    curves = {name: wire.curve(name, world_size) for name in ("all_reduce", "all_gather", "reduce_scatter")}
    notes += list(curves["all_reduce"].assumptions)
    across = wire.curve("all_reduce", replicas)
    share = sum(one.gradient_bytes for one in work.profile.parameters) / world_size / max(len(backward), 1)
    gradients = across.seconds(share) if replicas > 1 else 0.0
    if replicas > 1:
        notes += [note for note in across.assumptions if note not in notes]
        notes.append(f"{replicas} data-parallel groups of {world_size}: their gradients share the wire with the blocks' all-reduces")

    def seconds(one: _Stretch) -> float:
        return curves[one.operation].seconds(one.num_bytes) if one.num_bytes else 0.0

    timed = [[(one.compute, seconds(one)) for one in stretches] for stretches in (forward, backward)]
    launch = curves["all_reduce"].launch_seconds
    program = _program(timed[0], timed[1], optimizer, launch, gradients, options.accumulation_steps, draws)
    outcome = simulate(program, draws.rates(contention))
    unexplained = work.unexplained_seconds if free is None else _unexplained(work, free)
    finish = outcome.finish + options.accumulation_steps * unexplained * draws.device
    return Outcome(finish, outcome.marks, outcome.exposed_wire), notes


def _program(
    forward: Sequence[tuple[Piece, float]],
    backward: Sequence[tuple[Piece, float]],
    optimizer: Piece,
    launch: float,
    gradients: float,
    accumulation: int,
    draws: Draws,
) -> Program:
    program = Program(draws.count)
    after: int | None = None
    reduced: int | None = None
    for micro_step in range(accumulation):
        last = micro_step == accumulation - 1
        for name, stretches in (("forward", forward), ("backward", backward)):
            for piece, seconds in stretches:
                task = program.kernels(piece.device * draws.device, host_seconds=piece.host, host=draws.host, after=after)
                after = program.wire(seconds * draws.wire, host=launch * draws.host, after=task) if seconds else None
                if gradients and last and name == "backward":
                    reduced = program.wire(gradients * draws.wire, after=task)
            program.mark(name, program.compute(0.0, after=after))
    program.compute(optimizer.device * draws.device, host=optimizer.host * draws.host, after=reduced)
    return program


def _stretches(work: Work, free: FreeStep | None, world_size: int) -> tuple[list[_Stretch], list[_Stretch], Piece, list[str]]:
    if free is None:
        return _estimated(work, world_size)
    factor = work.device_factor
    forward = _profiled([one for one in free.calls if one.phase == "forward"], work.phase(free.times.forward), factor)
    backward = _profiled([one for one in free.calls if one.phase == "backward"], work.phase(free.times.backward), factor)
    return forward, backward, work.phase(free.times.optimizer), []


def _profiled(calls: Sequence[CommunicationCall], whole: Piece, factor: float) -> list[_Stretch]:
    """The phase cut at its collectives, where the profile saw them; evenly where it did not say where."""
    stretches: list[_Stretch] = []
    device = host = 0.0
    for position, call in enumerate(calls):
        share = (position + 1) / (len(calls) + 1)
        at_device = whole.device * share if call.device_seconds is None else min(call.device_seconds, whole.device)
        at_host = whole.host * share if call.host_seconds is None else min(call.host_seconds, whole.host)
        piece = Piece(max(at_device - device, 0.0) * factor, max(at_host - host, 0.0))
        stretches.append(_Stretch(piece, call.operation, call.num_bytes * factor))
        device, host = max(device, at_device), max(host, at_host)
    rest = Piece(max(whole.device - device, 0.0) * factor, max(whole.host - host, 0.0))
    return [*stretches, _Stretch(rest, "all_reduce", 0.0)]


def _estimated(work: Work, world_size: int) -> tuple[list[_Stretch], list[_Stretch], Piece, list[str]]:
    """Without a free step: blocks shrink by the number of GPUs, what is before and after them does not."""
    profile = work.profile
    workload = profile.workload
    notes = [
        f"tensor parallelism was not profiled: blocks take 1/N of their device time at {percent(UNPROFILED_EFFICIENCY)} of the rate",
        f"DTensor was not profiled: {UNPROFILED_HOST_SECONDS * 1e3:.0f} ms of host time a block and pass",
    ]
    ratio = work.batch_size / workload.batch_size
    passes: list[list[_Stretch]] = []
    for pieces, reverse in ((work.forward, False), (work.backward, True)):
        stretches: list[_Stretch] = []
        order = range(len(pieces) - 1, -1, -1) if reverse else range(len(pieces))
        for index in order:
            segment = profile.segments[index] if profile.segments else None
            if segment is None or segment.role != "block":
                stretches.append(_Stretch(pieces[index], "all_reduce", 0.0))
                continue
            output = segment.output_bytes or _output_bytes(work)
            half = Piece(
                pieces[index].device / world_size / UNPROFILED_EFFICIENCY / CALLS_PER_BLOCK,
                (pieces[index].host + UNPROFILED_HOST_SECONDS) / CALLS_PER_BLOCK,
            )
            stretches += [_Stretch(half, "all_reduce", output * ratio)] * CALLS_PER_BLOCK
        passes.append(stretches)
    if not profile.segments:
        notes.append("the model was not cut into blocks, so no all-reduce of tensor parallelism could be placed")
    return passes[0], passes[1], work.optimizer.scaled(1 / world_size), notes


def _output_bytes(work: Work) -> float:
    workload = work.profile.workload
    return 2.0 * workload.batch_size * (workload.sequence_length or 1) * (workload.hidden_size or 0)


def _unexplained(work: Work, free: FreeStep) -> float:
    own = work if work.device_factor == 1 else work_of(work.profile)
    forward, backward, optimizer, _ = _stretches(own, free, free.world_size)
    timed = [[(one.compute, 0.0) for one in stretches] for stretches in (forward, backward)]
    return free.times.step.seconds - float(finish_alone(_program(timed[0], timed[1], optimizer, 0.0, 0.0, 1, centre()))[0])

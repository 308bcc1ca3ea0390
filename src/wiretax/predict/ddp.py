"""Distributed data parallel: torch's exact buckets, reduced one after the other beside the rest of the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.profile import FreeStep, PhaseTimes, Profile
from wiretax.predict.contention import Contention
from wiretax.predict.interval import Draws, centre
from wiretax.predict.options import Options
from wiretax.predict.profile_model import Piece, Work, work_of
from wiretax.predict.timeline import Outcome, Program, finish_alone, simulate
from wiretax.predict.wire_curve import Wire

FIRST_BUCKET_BYTES = 2**20
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""

DEFAULT_CAP_MB = 25.0
"""torch.nn.parallel.distributed._DEFAULT_BUCKET_CAP_MB."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Parameters (indices into ``Profile.parameters``) whose gradients travel together, and their bytes."""

    parameters: tuple[int, ...]
    num_bytes: int


def assign_buckets(num_bytes: Sequence[int], kinds: Sequence[str], order: Sequence[int], limits: Sequence[int]) -> list[list[int]]:
    """Which tensors share a bucket: ``compute_bucket_assignment_by_size`` of torch's reducer, to the letter.

    A bucket is closed after the tensor that reaches its limit; tensors are never split; each dtype fills its own bucket and moves
    along the limits on its own, staying at the last one.

    Args:
        num_bytes: of each tensor.
        kinds: dtype (and device) of each tensor.
        order: tensors in the order in which they are put in.
        limits: byte limits of the first, second, ... bucket.

    Returns:
        Buckets in the order in which they were closed, unfinished ones at the end.
    """
    closed: list[list[int]] = []
    open_buckets: dict[str, tuple[list[int], int]] = {}
    position: dict[str, int] = {}
    for tensor in order:
        kind = kinds[tensor]
        members, size = open_buckets.get(kind, ([], 0))
        members, size = [*members, tensor], size + num_bytes[tensor]
        at = position.get(kind, 0)
        if size >= limits[at]:
            closed.append(members)
            position[kind] = min(at + 1, len(limits) - 1)
            open_buckets.pop(kind, None)
        else:
            open_buckets[kind] = (members, size)
    return closed + [members for members, _ in open_buckets.values()]


def buckets(profile: Profile, arrival: Sequence[int], options: Options) -> list[Bucket]:
    """DDP's buckets in steady state, in the order in which they are reduced.

    From the second iteration on torch has re-ordered them by the arrival of the gradients; with ``find_unused_parameters`` (and no
    static graph) it never does, and keeps the reverse order of the model.

    Args:
        profile: for the parameters' sizes and dtypes.
        arrival: parameters in order of arrival.
        options: ``bucket_cap_mb``, ``find_unused_parameters``, ``static_graph``.
    """
    sizes = [one.num_bytes for one in profile.parameters]
    kinds = [one.dtype for one in profile.parameters]
    cap = int((DEFAULT_CAP_MB if options.bucket_cap_mb is None else options.bucket_cap_mb) * 2**20)
    limits = [FIRST_BUCKET_BYTES, cap] if options.bucket_cap_mb is None else [cap]
    unused = _profiled_as_unused(profile)
    if (options.find_unused_parameters or unused) and not options.static_graph:
        trained = sorted({*arrival, *unused})
        groups = sorted(assign_buckets(sizes, kinds, trained, limits), key=min)
        groups.reverse()
    else:
        groups = assign_buckets(sizes, kinds, arrival, limits)
    return [Bucket(tuple(group), sum(_sent_bytes(profile, index) for index in group)) for group in groups]


def _profiled_as_unused(profile: Profile) -> frozenset[int]:
    """Parameters that get no gradient and that DDP sends all the same; some where it was profiled with ``find_unused_parameters``."""
    found = (one for one in profile.free_steps if one.strategy == "ddp" and one.options.get("find_unused_parameters") == "True")
    members = {index for free in found for bucket in free.buckets for index in bucket.parameters}
    return frozenset(index for index in members if not profile.parameters[index].gradient_bytes)


def _sent_bytes(profile: Profile, index: int) -> int:
    """Of a parameter in a bucket; one without a gradient travels as zeros."""
    return profile.parameters[index].gradient_bytes or profile.parameters[index].num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What one step does beside the bare work."""

    buckets: tuple[Bucket, ...]
    forward: Piece
    """DDP's own work before the forward pass."""
    per_bucket: tuple[Piece, ...]
    """Hooks, copies into the bucket, compression."""
    reductions: tuple[float, ...]
    """Seconds on the wire, by bucket."""
    broadcast: float
    accumulation_steps: int


def simulate_ddp(
    work: Work, wire: Wire, world_size: int, options: Options, draws: Draws, contention: Contention
) -> tuple[Outcome, list[str]]:
    """One optimizer step on ``world_size`` GPUs.

    Args:
        work: the step on one GPU.
        wire: between the GPUs.
        world_size: GPUs, 2 or more.
        options: DDP's own.
        draws: spread of device, host and wire.
        contention: between compute and wire.

    Returns:
        The outcome per draw, and what was assumed.
    """
    arrival = [index for index, _, _ in work.ready]
    planned = tuple(buckets(work.profile, arrival, options))
    curve = wire.curve("all_reduce", world_size)
    notes = list(curve.assumptions)
    messages = [_messages(work.profile, bucket, options) for bucket in planned]
    notes += sorted({note for parts in messages for part in parts if (note := curve.beyond(part))})
    free = work.free_step("ddp")
    forward, hooks = _own_cost(work, free, len(planned))
    if free is None:
        notes.append("DDP was not profiled at world size 1: its hooks and copies count as nothing")
    extra, extra_notes = _extra_work(work.profile, free, planned, options)
    notes += extra_notes
    buffers = work.profile.buffer_bytes if options.broadcast_buffers else 0
    plan = _Plan(
        buckets=planned,
        forward=forward,
        per_bucket=tuple(Piece(hook.device + more, hook.host) for hook, more in zip(hooks, extra, strict=True)),
        reductions=tuple(sum(curve.seconds(part) for part in parts) for parts in messages),
        broadcast=wire.curve("broadcast", world_size).seconds(buffers) if buffers else 0.0,
        accumulation_steps=options.accumulation_steps,
    )
    outcome = simulate(_program(work, plan, draws), draws.rates(contention))
    unexplained = work.unexplained_seconds if free is None else _unexplained(work, free)
    unexplained += (options.accumulation_steps - 1) * work.unexplained_seconds
    finish = outcome.finish + unexplained * draws.device
    return Outcome(finish, outcome.marks, outcome.exposed_wire), notes


def _program(work: Work, plan: _Plan, draws: Draws) -> Program:
    program = Program(draws.count)
    device, host = draws.device, draws.host
    for _ in range(plan.accumulation_steps - 1):
        for piece in (*work.forward, *reversed(work.backward)):
            program.kernels(piece.device * device, host_seconds=piece.host, host=host)
        program.compute(_accumulation(work.profile) * device)
    buffers = program.wire(plan.broadcast * draws.wire) if plan.broadcast else None
    task = program.compute(plan.forward.device * device, host=plan.forward.host * host, after=buffers)
    for piece in work.forward:
        task = program.kernels(piece.device * device, host_seconds=piece.host, host=host)
    program.mark("forward", task)
    arrived = {index: (on_device, on_host) for index, on_device, on_host in work.ready}
    done_device = done_host = 0.0
    last: int | None = None
    for bucket, own, seconds in zip(plan.buckets, plan.per_bucket, plan.reductions, strict=True):
        # Buckets are reduced in their order: one that is full early waits for those before it.
        at_device = max([done_device, *(arrived[index][0] for index in bucket.parameters if index in arrived)])
        at_host = max([done_host, *(arrived[index][1] for index in bucket.parameters if index in arrived)])
        task = program.kernels((at_device - done_device + own.device) * device, host_seconds=at_host - done_host + own.host, host=host)
        last = program.wire(seconds * draws.wire, after=task)
        done_device, done_host = at_device, at_host
    program.kernels(
        max(work.backward_seconds - done_device, 0.0) * device,
        host_seconds=max(sum(piece.host for piece in work.backward) - done_host, 0.0),
        host=host,
    )
    program.mark("backward", program.compute(0.0, after=last))
    program.compute(work.optimizer.device * device, host=work.optimizer.host * host)
    return program


def _own_cost(work: Work, free: FreeStep | None, num_buckets: int) -> tuple[Piece, list[Piece]]:
    """What the step at world size 1 took more than the bare one: before forward, and shared among the buckets."""
    if free is None or not num_buckets:
        return Piece(0.0), [Piece(0.0)] * num_buckets
    forward = _more(work, free.times.forward, work.profile.bare.forward)
    backward = _more(work, free.times.backward, work.profile.bare.backward)
    measured = free.buckets
    if len(measured) == num_buckets:
        devices, hosts = [one.device_seconds for one in measured], [one.host_seconds for one in measured]
    else:
        # Other buckets than the profiled ones: the copies move the same bytes, the hooks are called once a bucket.
        devices = hosts = [1.0] * num_buckets
        if measured:
            backward = Piece(backward.device, backward.host * num_buckets / len(measured))
    shares = zip(_shares(devices), _shares(hosts), strict=True)
    return forward, [Piece(backward.device * device, backward.host * host) for device, host in shares]


def _unexplained(work: Work, free: FreeStep) -> float:
    """The profiled step at world size 1 minus its simulation, with nothing on the wire."""
    own = work if work.device_factor == 1 else work_of(work.profile)
    options = Options(bucket_cap_mb=_number(free.options.get("bucket_cap_mb")))
    planned = tuple(buckets(own.profile, [index for index, _, _ in own.ready], options))
    forward, hooks = _own_cost(own, free, len(planned))
    plan = _Plan(
        buckets=planned,
        forward=forward,
        per_bucket=tuple(hooks),
        reductions=(0.0,) * len(planned),
        broadcast=0.0,
        accumulation_steps=1,
    )
    return free.times.step.seconds - float(finish_alone(_program(own, plan, centre()))[0])


def _messages(profile: Profile, bucket: Bucket, options: Options) -> list[float]:
    """What a bucket puts on the wire, as the sizes of its all-reduces."""
    if options.comm_hook == "bf16_compress":
        return [sum(min(_sent_bytes(profile, index), 2 * profile.parameters[index].num_elements) for index in bucket.parameters)]
    if options.comm_hook == "powersgd":
        plain, left, right = 0.0, 0.0, 0.0
        for index in bucket.parameters:
            one = profile.parameters[index]
            rows = one.shape[0] if one.shape else 1
            columns = one.num_elements / max(rows, 1)
            element = _sent_bytes(profile, index) / max(one.num_elements, 1)
            # torch compresses only where that at least halves the bytes (min_compression_rate = 2).
            if len(one.shape) >= 2 and (rows + columns) * options.powersgd_rank * 2 < one.num_elements:
                left += rows * options.powersgd_rank * element
                right += columns * options.powersgd_rank * element
            else:
                plain += _sent_bytes(profile, index)
        return [size for size in (plain, left, right) if size]
    return [float(bucket.num_bytes)]


def _extra_work(profile: Profile, free: FreeStep | None, planned: Sequence[Bucket], options: Options) -> tuple[list[float], list[str]]:
    """Device seconds a bucket for what the profile did not do: other copies, compression."""
    rate = profile.memory_bytes_per_second
    passes, notes = 0.0, []
    profiled_view = free is not None and free.options.get("gradient_as_bucket_view") == "True"
    wanted_view = profiled_view if options.gradient_as_bucket_view is None else options.gradient_as_bucket_view
    if profiled_view and not wanted_view:
        passes += 4.0
        notes.append("gradients are copied into and out of the buckets, which the profiled DDP did not do")
    if options.comm_hook == "bf16_compress":
        passes += 2 * 1.5
        notes.append("the bf16 hook's casts run at the GPU's memory rate")
    if options.comm_hook == "powersgd":
        passes += 7.0
        notes.append("PowerSGD is predicted only: its products and error feedback pass seven times over the gradients")
    if passes and not rate:
        notes.append("the GPU's memory rate was not measured, so copies and casts count as nothing")
    return [passes * bucket.num_bytes / rate if rate else 0.0 for bucket in planned], notes


def _accumulation(profile: Profile) -> float:
    """Adding a micro-step's gradients to those before it: two reads and a write at the memory rate."""
    rate = profile.memory_bytes_per_second
    return 3 * sum(one.gradient_bytes for one in profile.parameters) / rate if rate else 0.0


def _more(work: Work, with_strategy: PhaseTimes, bare: PhaseTimes) -> Piece:
    if any(one.device is None or one.host is None for one in (with_strategy, bare)):
        return Piece(max(with_strategy.elapsed.seconds - bare.elapsed.seconds, 0.0))
    first, second = work.phase(with_strategy), work.phase(bare)
    return Piece(max(first.device - second.device, 0.0), max(first.host - second.host, 0.0))


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [one / total for one in weights] if total > 0 else [1 / len(weights)] * len(weights)


def _number(text: str | None) -> float | None:
    return None if text in (None, "", "None") else float(text)

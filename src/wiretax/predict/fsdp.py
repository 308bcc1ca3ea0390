"""FSDP2 (``fully_shard`` on each block and on the root), shard-grad-op and hybrid sharding.

The order of work is that of torch's ``_fsdp_param_group.py`` (2.4 to 2.15):

forward    a group's all-gather is issued when the host reaches the group. It starts once the copy-out of the group before the last
           one is done, so at most two gathered groups are alive. The root's is never hidden.
backward   each group issues the all-gather of the next one right after its own copy-out, and reduce-scatters after its gradients;
           a group's copy into the reduce-scatter buffer waits until the buffer of the group before it is free.
both       all-gathers and reduce-scatters share one communicator, so the wire takes them one at a time in the order of issue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wiretax.model.profile import FreeStep, GroupTimes, Profile
from wiretax.predict.contention import Contention
from wiretax.predict.interval import Draws, centre
from wiretax.predict.options import DEFAULTS, Options
from wiretax.predict.profile_model import Piece, Work, work_of
from wiretax.predict.timeline import Outcome, Program, finish_alone, simulate
from wiretax.predict.wire_curve import Wire

UNPROFILED_HOST_SECONDS = 1.2e-3
"""Host time a group and pass where no free step was profiled (recorded H200 host: 0.8 to 1.6 ms)."""

_GATHER_ISSUED = 0.25
"""Where in a group's host time its all-gather is issued: after the hook's own work and the copy-in, before the kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One communication group; times include its copies."""

    forward: Piece
    backward: Piece
    copy_out: float
    """Device seconds of copying parameters out of the gathered buffer, part of ``forward`` and of ``backward``."""
    copy_in: float
    """Device seconds of copying gradients into the reduce-scatter buffer, part of ``backward``."""
    parameter_bytes: int
    gradient_bytes: int
    head: float = 0.0
    """Root only: the share of its compute that comes after the last block in forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    groups: tuple[Group, ...]
    gather: tuple[float, ...]
    """Seconds on the wire by group."""
    reduce: tuple[float, ...]
    gather_again: bool
    gather_host: float
    reduce_host: float
    """What issuing a real collective costs the host and a free one does not."""
    optimizer: Piece
    options: Options


def simulate_fsdp(
    work: Work, wire: Wire, world_size: int, options: Options, draws: Draws, contention: Contention, *, strategy: str
) -> tuple[Outcome, list[str]]:
    """One optimizer step on ``world_size`` GPUs.

    Args:
        work: the step on one GPU.
        wire: between the GPUs.
        world_size: GPUs, 2 or more.
        options: FSDP's own; ``shard_group_size`` for ``hsdp``.
        draws: spread of device, host and wire.
        contention: between compute and wire.
        strategy: ``fsdp2``, ``fsdp2_grad_op`` or ``hsdp``.

    Returns:
        The outcome per draw, and what was assumed.
    """
    shards = shard_group_size(world_size, options) if strategy == "hsdp" else world_size
    replicas = world_size // shards
    free = _free_step(work, strategy, shards)
    groups, notes = sharded_groups(work, free)
    if options.param_dtype is not None and (free is None or free.options.get("param_dtype") != options.param_dtype):
        groups = tuple(_in_bf16(work.profile, group) for group in groups)
        notes.append("weights are gathered in bf16 and gradients reduced in float32; the casts count as nothing")
    if free is not None and not _is_own(work.profile, free):
        free = None  # it lent its host time a group; nothing else of it is this model's
    gather, reduce = wire.curve("all_gather", shards), wire.curve("reduce_scatter", shards)
    notes += [*gather.assumptions, *(note for note in reduce.assumptions if note not in gather.assumptions)]
    gather_seconds = tuple(gather.seconds(group.parameter_bytes) for group in groups)
    reduce_seconds = tuple(reduce.seconds(group.gradient_bytes) for group in groups)
    if replicas > 1:
        across = wire.curve("all_reduce", replicas)
        pairs = zip(reduce_seconds, groups, strict=True)
        reduce_seconds = tuple(seconds + across.seconds(group.gradient_bytes / shards) for seconds, group in pairs)
        notes.append(f"{replicas} replicas of {shards} shards; the all-reduce across replicas shares the wire with the shards' collectives")
    optimizer = sharded_optimizer(work, free, shards)
    plan = _Plan(
        groups=groups,
        gather=gather_seconds,
        reduce=reduce_seconds,
        gather_again=strategy != "fsdp2_grad_op",
        gather_host=gather.launch_seconds,
        reduce_host=reduce.launch_seconds,
        optimizer=optimizer,
        options=options,
    )
    outcome = simulate(_program(plan, draws), draws.rates(contention))
    unexplained = work.unexplained_seconds if free is None else _unexplained(work, free, strategy)
    finish, exposed = outcome.finish + unexplained * draws.device, outcome.exposed_wire
    if options.accumulation_steps > 1:
        notes.append("every micro-step gathers and reduces again")
        finish = finish + (options.accumulation_steps - 1) * (outcome.marks["backward"] + unexplained * draws.device)
        exposed = options.accumulation_steps * exposed  # the update sends nothing
    return replace(outcome, finish=finish, exposed_wire=exposed), notes


def shard_group_size(world_size: int, options: Options) -> int:
    """GPUs that share one copy of the model under hybrid sharding: as asked, or the largest proper divisor of N."""
    if options.shard_group_size and world_size % options.shard_group_size == 0:
        return options.shard_group_size
    return max(size for size in range(1, world_size) if world_size % size == 0)


def sharded_groups(work: Work, free: FreeStep | None) -> tuple[tuple[Group, ...], list[str]]:
    """The root's group first, then one a block, with host and device time each.

    Args:
        work: the step on one GPU.
        free: the profile with communication free; None or one of another model leaves host time to be estimated.
    """
    members = _members(work.profile)
    rate = work.profile.memory_bytes_per_second
    notes: list[str] = []
    if free is not None and _is_own(work.profile, free):
        return tuple(_profiled(work, group, rate) for group in free.groups), notes
    forward_host, backward_host = UNPROFILED_HOST_SECONDS, UNPROFILED_HOST_SECONDS
    if free is not None and free.groups:
        forward_host = sum(one.forward_host_seconds for one in free.groups) / len(free.groups)
        backward_host = sum(one.backward_host_seconds for one in free.groups) / len(free.groups)
        notes.append("host time a group is that of another model's profile")
    elif work.profile.device == "cuda":
        notes.append("FSDP's host time was not profiled: 1.2 ms a group and pass, as one recorded host needed")
    else:
        forward_host = backward_host = 0.0
    return tuple(_estimated(work, one, rate, forward_host, backward_host) for one in members), notes


def _members(profile: Profile) -> list[tuple[int, ...]]:
    """Segments of each group: ``fully_shard`` on each block leaves all the rest to the root."""
    root = tuple(index for index, one in enumerate(profile.segments) if one.role != "block")
    return [root, *((index,) for index, one in enumerate(profile.segments) if one.role == "block")] if profile.segments else [()]


def _is_own(profile: Profile, free: FreeStep) -> bool:
    """Whether a free step is of this model; one of the nearest preset has other groups."""
    return [one.segments for one in free.groups] == _members(profile)


def _profiled(work: Work, one: GroupTimes, rate: float | None) -> Group:
    copy_out = min(2 * one.parameter_bytes / rate, one.forward_device_seconds, one.backward_device_seconds / 2) if rate else 0.0
    copy_in = min(2 * one.gradient_bytes / rate, one.backward_device_seconds / 2) if rate else 0.0
    factor = work.device_factor
    # On a CPU rank host and device are one, so only one of them counts.
    forward_host, backward_host = (one.forward_host_seconds, one.backward_host_seconds) if work.profile.device == "cuda" else (0.0, 0.0)
    return Group(
        forward=Piece((one.forward_device_seconds - copy_out) * factor + copy_out, forward_host),
        backward=Piece((one.backward_device_seconds - copy_out - copy_in) * factor + copy_out + copy_in, backward_host),
        copy_out=copy_out,
        copy_in=copy_in,
        parameter_bytes=one.parameter_bytes,
        gradient_bytes=one.gradient_bytes,
        head=_head(work.profile, one.segments),
    )


def _estimated(work: Work, members: tuple[int, ...], rate: float | None, forward_host: float, backward_host: float) -> Group:
    profile = work.profile
    if members:
        parameter_bytes = sum(profile.segments[index].parameter_bytes for index in members)
        gradient_bytes = sum(profile.segments[index].gradient_bytes for index in members)
        forward = sum(work.forward[index].device for index in members)
        backward = sum(work.backward[index].device for index in members)
        # Whatever the strategy adds, the host still issues all that it issues without one.
        forward_host = max(forward_host, sum(work.forward[index].host for index in members))
        backward_host = max(backward_host, sum(work.backward[index].host for index in members))
    else:
        parameter_bytes = sum(one.num_bytes for one in profile.parameters)
        gradient_bytes = sum(one.gradient_bytes for one in profile.parameters)
        forward, backward = work.forward_seconds, work.backward_seconds
        forward_host = max(forward_host, sum(one.host for one in work.forward))
        backward_host = max(backward_host, sum(one.host for one in work.backward))
    copy_out, copy_in = (2 * parameter_bytes / rate, 2 * gradient_bytes / rate) if rate else (0.0, 0.0)
    return Group(
        forward=Piece(forward + copy_out, forward_host),
        backward=Piece(backward + copy_out + copy_in, backward_host),
        copy_out=copy_out,
        copy_in=copy_in,
        parameter_bytes=parameter_bytes,
        gradient_bytes=gradient_bytes,
        head=_head(profile, members),
    )


def sharded_optimizer(work: Work, free: FreeStep | None, shards: int) -> Piece:
    """The update of one shard: device work by its share of the parameters, host work as the strategy was profiled."""
    if free is None:
        return work.optimizer.scaled(1 / shards)
    measured = work.phase(free.times.optimizer)
    if work.profile.device == "cuda" and free.times.optimizer.device is None:
        # Its elapsed time alone does not tell launch time from work; the bare update's work does.
        return Piece(work.optimizer.device / shards, measured.device)
    return measured.scaled(_shards_of(free) / shards)


def _head(profile: Profile, members: Sequence[int]) -> float:
    whole = sum(profile.segments[index].forward_seconds + profile.segments[index].backward_seconds for index in members)
    after = sum(
        profile.segments[index].forward_seconds + profile.segments[index].backward_seconds
        for index in members
        if profile.segments[index].role == "after"
    )
    return after / whole if whole > 0 else 0.0


def _in_bf16(profile: Profile, group: Group) -> Group:
    share = group.parameter_bytes / max(sum(one.num_bytes for one in profile.parameters), 1)
    elements = share * sum(one.num_elements for one in profile.parameters)
    return replace(group, parameter_bytes=int(2 * elements), gradient_bytes=int(4 * elements) if group.gradient_bytes else 0)


def _free_step(work: Work, strategy: str, shards: int) -> FreeStep | None:
    """The free step whose shards are nearest in number: of the strategy itself, else of a sibling."""
    for names in ((strategy,), ("fsdp2", "fsdp2_grad_op", "hsdp")):
        found = [one for one in work.profile.free_steps if one.strategy in names]
        if found:
            return min(found, key=lambda one: abs(math.log(_shards_of(one) / shards)))
    return None


def _shards_of(free: FreeStep) -> int:
    """GPUs over which a free step's parameters were sharded."""
    return int(free.options.get("shard_group_size", free.world_size)) if free.strategy == "hsdp" else free.world_size


def _unexplained(work: Work, free: FreeStep, strategy: str) -> float:
    """The profiled step minus its simulation with nothing on the wire; host work that the pieces do not show."""
    own = work if work.device_factor == 1 else work_of(work.profile)
    groups, _ = sharded_groups(own, free)
    optimizer = sharded_optimizer(own, free, _shards_of(free))
    nothing = (0.0,) * len(groups)
    plan = _Plan(
        groups=groups,
        gather=nothing,
        reduce=nothing,
        gather_again=strategy != "fsdp2_grad_op",
        gather_host=0.0,
        reduce_host=0.0,
        optimizer=optimizer,
        options=DEFAULTS,
    )
    return free.times.step.seconds - float(finish_alone(_program(plan, centre()))[0])


def _program(plan: _Plan, draws: Draws) -> Program:
    program = Program(draws.count)
    _forward(program, plan, draws)
    last = _backward(program, plan, draws)
    program.mark("backward", program.compute(0.0, after=last))
    program.compute(plan.optimizer.device * draws.device, host=plan.optimizer.host * draws.host)
    return program


def _forward(program: Program, plan: _Plan, draws: Draws) -> None:
    device, host, wire = draws.device, draws.host, draws.wire
    root = plan.groups[0]
    gathers: dict[int, int] = {}
    copied: list[int] = []

    def gather(index: int, current: int) -> None:
        """Issues an all-gather while ``current`` is the group at whose copy-out the host stands."""
        if index in gathers or index >= len(plan.groups):
            return
        # The buffer of the group before the last copied one is free once that one was copied out.
        free_buffer = copied[current - 1] if current >= 1 else None
        issue = plan.groups[index].forward.host * _GATHER_ISSUED + plan.gather_host
        gathers[index] = program.wire(plan.gather[index] * wire, host=issue * host, after=free_buffer)

    for index, group in enumerate(plan.groups):
        gather(index, index - 1)
        copied.append(program.compute(group.copy_out * device, after=gathers[index]))
        for ahead in range(plan.options.forward_prefetch):
            gather(index + 1 + ahead, index)
        kernels = (group.forward.device - group.copy_out) * (1 - group.head)
        issuing = group.forward.host * (1 - _GATHER_ISSUED) * (1 - group.head)
        program.kernels(kernels * device, host_seconds=issuing, host=host)
    kernels = (root.forward.device - root.copy_out) * root.head
    issuing = root.forward.host * (1 - _GATHER_ISSUED) * root.head
    program.mark("forward", program.kernels(kernels * device, host_seconds=issuing, host=host))


def _backward(program: Program, plan: _Plan, draws: Draws) -> int:
    """Queues the backward pass and returns the last reduce-scatter."""
    device, host, wire = draws.device, draws.host, draws.wire
    root = plan.groups[0]
    blocks = range(len(plan.groups) - 1, 0, -1)
    gathers: dict[int, int] = {}

    def prefetch(index: int) -> None:
        if plan.gather_again and index > 0 and index not in gathers:
            gathers[index] = program.wire(plan.gather[index] * wire, host=plan.gather_host * host, after=copied[-1] if copied else None)

    copied: list[int] = []
    reduced: list[int] = []
    # The root stays gathered after forward, so it copies nothing out again.
    root_kernels = root.backward.device - root.copy_out - root.copy_in
    root_host = root.backward.host
    prefetch(len(plan.groups) - 1)
    program.kernels(root_kernels * root.head * device, host_seconds=root_host * root.head, host=host)
    for index in blocks:
        group = plan.groups[index]
        if index in gathers:
            copied.append(program.compute(group.copy_out * device, host=group.backward.host * 0.1 * host, after=gathers[index]))
        for ahead in range(max(plan.options.backward_prefetch, 1)):
            prefetch(index - 1 - ahead)
        kernels = group.backward.device - group.copy_out - group.copy_in
        issuing = group.backward.host * (0.7 if index in gathers else 0.8)
        program.kernels(kernels * device, host_seconds=issuing, host=host)
        reduced.append(_reduce(program, plan, index, group.backward.host * 0.2, reduced, draws))
    program.kernels(root_kernels * (1 - root.head) * device, host_seconds=root_host * (1 - root.head) * 0.8, host=host)
    return _reduce(program, plan, 0, root_host * (1 - root.head) * 0.2, reduced, draws)


def _reduce(program: Program, plan: _Plan, index: int, host_seconds: float, reduced: Sequence[int], draws: Draws) -> int:
    free_buffer = reduced[-plan.options.reduce_scatter_buffers] if len(reduced) >= plan.options.reduce_scatter_buffers else None
    copied = program.compute(plan.groups[index].copy_in * draws.device, host=host_seconds * draws.host, after=free_buffer)
    return program.wire(plan.reduce[index] * draws.wire, host=plan.reduce_host * draws.host, after=copied)

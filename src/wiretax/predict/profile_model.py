"""A profile as the simulator needs it: pieces of device and host work at the batch size, and on the GPU, that is asked about."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from wiretax.errors import UsageError
from wiretax.model.measurement import Compute
from wiretax.model.profile import FreeStep, PhaseTimes, Profile, Segment
from wiretax.predict.timeline import Program, finish_alone
from wiretax.predict.wire_curve import robust_sigma
from wiretax.units import percent

DEVICE_SIGMA = 0.02
"""Device-bound steps of one GPU from launch to launch and box to box (recorded H200s, bare steps: 1.0 to 1.8 %)."""

UNTOLD_SIGMA = 0.02
"""Added where host and device time were not told apart, so that launch time may hide in the elapsed time (recorded H200s: a small
model's bare step spreads by 3 % over hosts, a large one's by 1.5 %)."""

HOST_SIGMA = 0.12
"""Launch-bound steps on virtual machines repeat only within 10 to 15 % (recorded H200s: 46.0 ms quiet, 47 to 54 busy)."""

HOOKED_HOST_SIGMA = 0.24
"""The same under FSDP2 and DTensor, whose hooks run Python on every rank (recorded H200s: 18 to 24 % within a run)."""

BATCH_SIGMA = 0.04
"""Added per doubling of the batch: kernels of another size do not run at exactly the same rate (recorded H200s, 4x: 1 to 9 %)."""

BUSY_SIGMA = 0.3
"""Host spread added for each processor-time share that other processes or other guests took while the step was profiled (recorded
hosts: 2 to 17 % longer steps on a busy one)."""

DISTURBED = 0.95
"""A strategy's step that is shorter than this share of the bare one shows that one of the two was disturbed."""

LIKE_GPU = 0.15
"""Matrix rates of GPUs of one kind lie within this of each other (published: 14 % between GPUs of one model, arXiv 2510.15596)."""

UNEVEN = 0.01
"""Rates closer than this are the same."""

OTHER_GPU_SIGMA = 0.12
"""Added for a profile taken on another kind of GPU (Habitat's mean error of such a scaling is 11.8 %, arXiv 2102.00527)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Work in seconds on the two clocks; host 0 where the profile does not know it (its elapsed time then is the device's)."""

    device: float
    host: float = 0.0

    def scaled(self, device: float) -> Piece:
        """The same issue time for more or less device work."""
        return Piece(self.device * device, self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A training step of one GPU in pieces."""

    profile: Profile
    batch_size: int
    forward: tuple[Piece, ...]
    """By segment, in forward order; one piece where the model was not cut."""
    backward: tuple[Piece, ...]
    """By segment, in forward order too; it runs from the last to the first."""
    optimizer: Piece
    ready: tuple[tuple[int, float, float], ...]
    """Parameter, device seconds and host seconds from the start of backward, in order of arrival."""
    bare_seconds: float
    unexplained_seconds: float
    """Bare step minus its simulation: the synchronisation and what the pieces leave out."""
    device_factor: float
    """What device times of the profile were multiplied by for this batch and GPU (1: as measured)."""
    device_sigma: float
    host_sigma: float
    assumptions: tuple[str, ...]

    @property
    def input_seconds(self) -> float:
        """How long the input pipeline needs for a batch of this size; 0 where it was not measured."""
        pipeline = self.profile.input_pipeline
        return 0.0 if pipeline is None else pipeline.seconds * self.batch_size / self.profile.workload.batch_size

    @property
    def forward_seconds(self) -> float:
        """Device time of the forward pass."""
        return sum(piece.device for piece in self.forward)

    @property
    def backward_seconds(self) -> float:
        """Device time of the backward pass."""
        return sum(piece.device for piece in self.backward)

    def phase(self, phase: PhaseTimes) -> Piece:
        """A measured phase as a piece; its elapsed time counts as the device's where the clocks are one or were not told apart."""
        return _phase_piece(phase, self.profile.device)

    def free_step(self, *strategies: str, world_size: int | None = None) -> FreeStep | None:
        """The profile of a strategy with communication free, at the nearest world size; None where it was not taken."""
        found = [one for one in self.profile.free_steps if one.strategy in strategies]
        wanted = world_size or 1
        return min(found, key=lambda one: abs(math.log(one.world_size / wanted)), default=None)


def work_of(profile: Profile, *, batch_size: int | None = None, gpus: Sequence[Compute] = ()) -> Work:
    """Makes the pieces.

    Args:
        profile: of the step on one GPU.
        batch_size: per GPU and micro-step; None for the profile's own.
        gpus: rates of the GPUs that will run it; empty where they are the profile's own and not known better.

    Raises:
        UsageError: a batch size below 1.
    """
    batch = profile.workload.batch_size if batch_size is None else batch_size
    if batch < 1:
        raise UsageError(f"a batch of {batch} samples cannot be trained on.", do="Give a batch size of 1 or more.")
    notes: list[str] = []
    ratio = batch / profile.workload.batch_size
    if ratio != 1:
        notes.append(f"device time grows with the batch from the profiled {profile.workload.batch_size} to {batch}, host time does not")
    gpu_factor, memory_factor, gpu_sigma, gpu_notes = _other_gpus(profile, gpus)
    notes += gpu_notes
    factor = ratio * gpu_factor
    forward = _pieces(profile, backward=False, factor=factor)
    backward = _pieces(profile, backward=True, factor=factor)
    own_optimizer = _phase_piece(profile.bare.optimizer, profile.device)
    optimizer = own_optimizer.scaled(memory_factor)
    as_profiled = _bare(_pieces(profile, backward=False), _pieces(profile, backward=True), own_optimizer)
    unexplained = profile.bare.step.seconds - as_profiled
    ready, ready_note = _ready(profile, sum(piece.device for piece in backward), sum(piece.host for piece in backward))
    notes += ready_note
    untold = profile.device == "cuda" and (profile.bare.forward.device is None or profile.bare.forward.host is None)
    if untold:
        notes.append("the bare step's host and device time were not told apart: its elapsed time counts as the device's")
    taken = _taken(profile)
    if taken > 0.05:
        notes.append(f"others took {percent(taken)} of the processors while the step was profiled: profile it again on a quiet host")
    quicker, quick_note = _quicker(profile)
    notes += quick_note
    busy = BUSY_SIGMA * taken
    samples = profile.bare.step.samples_seconds
    own = robust_sigma(samples) if len(samples) >= 5 else 0.0
    return Work(
        profile=profile,
        batch_size=batch,
        forward=forward,
        backward=backward,
        optimizer=optimizer,
        ready=ready,
        bare_seconds=_bare(forward, backward, optimizer) + unexplained,
        unexplained_seconds=unexplained,
        device_factor=factor,
        device_sigma=math.hypot(
            DEVICE_SIGMA,
            own,
            UNTOLD_SIGMA if untold else 0.0,
            BATCH_SIGMA * abs(math.log2(ratio)),
            gpu_sigma,
            quicker,
            busy if profile.device == "cpu" else 0.0,
        ),
        host_sigma=math.hypot(HOST_SIGMA, busy),
        assumptions=tuple(notes),
    )


def _taken(profile: Profile) -> float:
    """Share of all processor time that was not this profile's: other processes here, and other guests."""
    load = profile.host_load
    return 0.0 if load is None else (load.other_busy_fraction or 0.0) + (load.steal_fraction or 0.0)


def _quicker(profile: Profile) -> tuple[float, list[str]]:
    """Spread to add where a strategy seemed to make forward and backward shorter, which it cannot."""
    bare = profile.bare.forward.elapsed.seconds + profile.bare.backward.elapsed.seconds
    whole = [one for one in profile.free_steps if one.strategy in ("ddp", "fsdp2", "fsdp2_grad_op", "hsdp", "zero1")]
    ratios = {one.strategy: (one.times.forward.elapsed.seconds + one.times.backward.elapsed.seconds) / bare for one in whole if bare > 0}
    quickest = min(ratios, key=lambda name: ratios[name], default=None)
    if quickest is None or ratios[quickest] >= DISTURBED:
        return 0.0, []
    note = f"the profiled step was {percent(1 - ratios[quickest])} shorter under {quickest} than bare: one of the two was disturbed"
    return abs(math.log(ratios[quickest])) / 2, [note]


def _phase_piece(phase: PhaseTimes, device: str) -> Piece:
    if device == "cpu" or phase.device is None or phase.host is None:
        return Piece(phase.elapsed.seconds)
    return Piece(phase.device.seconds, phase.host.seconds)


def _pieces(profile: Profile, *, backward: bool, factor: float = 1.0) -> tuple[Piece, ...]:
    segments = profile.segments
    whole = _phase_piece(profile.bare.backward if backward else profile.bare.forward, profile.device)
    if not segments:
        return (whole.scaled(factor),)
    times = [one.backward_seconds if backward else one.forward_seconds for one in segments]
    hosts = [one.backward_host_seconds if backward else one.forward_host_seconds for one in segments]
    total = sum(times)
    shares = [one / total for one in times] if total > 0 else [1 / len(segments)] * len(segments)
    host_total = sum(one or 0.0 for one in hosts)
    # Blocks launch the same kernels whatever their size, so unknown host time is shared out evenly.
    host_shares = [(one or 0.0) / host_total for one in hosts] if host_total > 0 else [1 / len(segments)] * len(segments)
    return tuple(
        Piece(whole.device * share * factor, whole.host * host_share) for share, host_share in zip(shares, host_shares, strict=True)
    )


def _bare(forward: Sequence[Piece], backward: Sequence[Piece], optimizer: Piece) -> float:
    program = Program(1)
    for piece in (*forward, *reversed(backward)):
        program.kernels(piece.device, host_seconds=piece.host)
    program.compute(optimizer.device, host=optimizer.host)
    return float(finish_alone(program)[0])


def _ready(profile: Profile, device_total: float, host_total: float) -> tuple[tuple[tuple[int, float, float], ...], list[str]]:
    """Arrival of each gradient, stretched to the backward pass of this batch."""
    notes: list[str] = []
    if profile.gradient_ready:
        measured = max(one.seconds for one in profile.gradient_ready)
        last = max(measured, (profile.bare.backward.device or profile.bare.backward.elapsed).seconds)
        shares = [(one.parameter, one.seconds / last if last > 0 else 1.0) for one in profile.gradient_ready]
    else:
        shares = _derived_arrival(profile)
        notes.append("gradient arrival times were not measured: derived from the segments and the sizes of their parameters")
    host_at = _host_clock(profile.segments)
    return tuple((parameter, share * device_total, host_at(share) * host_total) for parameter, share in shares), notes


def _derived_arrival(profile: Profile) -> list[tuple[int, float]]:
    """Last parameters first; inside a segment each takes backward time by its size."""
    trained = [index for index, one in enumerate(profile.parameters) if one.gradient_bytes > 0]
    segments = profile.segments
    total = sum(one.backward_seconds for one in segments)
    if not segments or total <= 0 or any(profile.parameters[index].segment is None for index in trained):
        weight = sum(profile.parameters[index].num_elements for index in trained) or 1
        arrived, shares = 0, []
        for index in reversed(trained):
            arrived += profile.parameters[index].num_elements
            shares.append((index, arrived / weight))
        return shares
    result: list[tuple[int, float]] = []
    clock = 0.0
    for position in range(len(segments) - 1, -1, -1):
        own = [index for index in trained if profile.parameters[index].segment == position]
        weight = sum(profile.parameters[index].num_elements for index in own) or 1
        arrived = 0
        for index in reversed(own):
            arrived += profile.parameters[index].num_elements
            result.append((index, (clock + segments[position].backward_seconds * arrived / weight) / total))
        clock += segments[position].backward_seconds
    return result


def _host_clock(segments: Sequence[Segment]) -> Callable[[float], float]:
    """Maps a share of backward's device time to the share of its host time."""
    device = [one.backward_seconds for one in reversed(segments)]
    host = [one.backward_host_seconds or 0.0 for one in reversed(segments)]
    if sum(device) <= 0:
        return lambda share: share
    if sum(host) <= 0:
        host = [1.0] * len(device)
    xs, ys = [0.0], [0.0]
    for one, other in zip(device, host, strict=True):
        xs.append(xs[-1] + one / sum(device))
        ys.append(ys[-1] + other / sum(host))

    def at(share: float) -> float:
        right = min(max(bisect.bisect_left(xs, share), 1), len(xs) - 1)
        width = xs[right] - xs[right - 1]
        inside = (share - xs[right - 1]) / width if width > 0 else 1.0
        return min(ys[right - 1] + (ys[right] - ys[right - 1]) * inside, 1.0)

    return at


def _other_gpus(profile: Profile, gpus: Sequence[Compute]) -> tuple[float, float, float, list[str]]:
    """Factor for compute, factor for memory-bound work, spread to add, and why.

    Rates of like GPUs, measured by another program at another moment, are not compared with the profile's: only among themselves, all
    loaded at once against alone, since all ranks wait for the slowest. Another kind of GPU is scaled by the ratio of the rates. CPU
    ranks were profiled all at once already, and their rates follow whatever else the host does.
    """
    if profile.device == "cpu":
        return 1.0, 1.0, 0.0, []
    alone, together = _rates(gpus, together=False), _rates(gpus, together=True)
    known = alone or together
    if not known or not profile.matmul_flops_per_second:
        return 1.0, 1.0, 0.0, []
    slowest_matmul, slowest_memory = (min(one[column] for one in together or known) for column in (0, 1))
    if abs(profile.matmul_flops_per_second / median(one[0] for one in known) - 1) <= LIKE_GPU:
        factor = median(one[0] for one in known) / slowest_matmul
        if factor <= 1 + UNEVEN:
            return 1.0, 1.0, 0.0, []
        note = f"with all GPUs loaded the slowest computes {percent(factor - 1)} slower than one alone, and all wait for it"
        return factor, max(median(one[1] for one in known) / slowest_memory, 1.0), 0.0, [note]
    matmul_ratio = profile.matmul_flops_per_second / slowest_matmul
    memory_ratio = profile.memory_bytes_per_second / slowest_memory if profile.memory_bytes_per_second else matmul_ratio
    device = profile.bare.forward.elapsed.seconds + profile.bare.backward.elapsed.seconds
    flops = (profile.workload.flops_per_sample or 0.0) * profile.workload.batch_size
    share = min(flops / profile.matmul_flops_per_second / device, 1.0) if flops and device > 0 else 0.7
    factor = share * matmul_ratio + (1 - share) * memory_ratio
    note = (
        f"the profile is from a GPU of other speed: device time times {factor:.2f} "
        f"(matrix products {matmul_ratio:.2f}, memory {memory_ratio:.2f})"
    )
    return factor, memory_ratio, OTHER_GPU_SIGMA, [note]


def _rates(gpus: Sequence[Compute], *, together: bool) -> list[tuple[float, float]]:
    """Matrix and memory rates of each GPU that has both."""
    return [
        (one.matmul_flops_per_second, one.memory_bytes_per_second)
        for one in gpus
        if one.together is together and one.matmul_flops_per_second and one.memory_bytes_per_second
    ]

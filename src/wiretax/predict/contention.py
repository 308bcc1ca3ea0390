"""What compute and communication do to each other while they run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.measurement import Measurements, Overlap
from wiretax.model.profile import Profile
from wiretax.units import percent

UNMEASURED_SLOWDOWN = 0.10
"""Compute beside a collective where nothing was measured; the published mean is 0.189 over four kinds of GPU with fast links
(arXiv 2507.03114), and slow wires use few processors."""

WORST_OVER_MEAN = 4.5
"""Kernels differ: a product in 132 blocks beside an all-gather in 24 nearly doubles, which is 4.5 times the share of multiprocessors
it lost (NVIDIA developer forum 337991); published worst over mean is 2.1 in arXiv 2507.03114 and 1.9 in Echo (arXiv 2412.12487)."""

WORST_OF_LAYERS = 2.0
"""The same where a whole layer was timed: published worst over mean of overlapped kernels (see above)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Shares of the undisturbed speed that remain while both run, with the range that an interval draws from."""

    compute: float = 1.0
    compute_low: float = 1.0
    compute_high: float = 1.0
    wire: float = 1.0
    wire_low: float = 1.0
    wire_high: float = 1.0
    assumptions: tuple[str, ...] = ()


NO_CONTENTION = Contention()

SHARED_PROCESSORS = Contention(
    compute=0.5,
    compute_low=0.4,
    compute_high=1.0,
    wire=0.5,
    wire_low=0.4,
    wire_high=1.0,
    assumptions=("gloo's threads and the ranks share the processors: each is taken to run at half speed beside the other",),
)
"""CPU ranks, where nothing measures contention: one rank a processor and gloo's thread on the same one have half of it each; with
processors to spare neither notices the other."""


def measured_contention(measurements: Measurements, profile: Profile, wire: str, world_size: int) -> Contention:
    """Contention on a wire of a run, for a profile's GPU (see :func:`contention`) or CPU rank."""
    overlaps = [*measurements.overlap, *profile.overlap]
    if profile.device == "cpu" and not any(one.wire == wire for one in overlaps):
        return SHARED_PROCESSORS
    return contention(overlaps, wire, world_size, channels=channels_of(measurements, wire), multiprocessors=profile.multiprocessors)


def channels_of(measurements: Measurements, wire: str) -> int | None:
    """NCCL's channels on a wire, from the transports of its log: the most that any pair of ranks has. None where no log was read."""
    found = [one.channels for each in measurements.collectives if each.wire == wire for one in each.transports]
    return max(found, default=None)


def contention(
    overlaps: Sequence[Overlap], wire: str, world_size: int, *, channels: int | None = None, multiprocessors: int | None = None
) -> Contention:
    """Contention on a wire from compute timed beside an all-reduce.

    A transformer layer timed beside it is taken as it is. A single large product hides what many kernels of a training step feel:
    the collective keeps one multiprocessor a channel for itself (NCCL runs one thread block a channel). So there compute is slowed
    by whichever is more, the measured slow-down or that share.

    Args:
        overlaps: as measured, any wire and world size.
        wire: the wire asked about.
        world_size: ranks; the nearest measured one is taken.
        channels: NCCL's channels on this wire, from its log.
        multiprocessors: of one GPU.

    Returns:
        Rates; where nothing was measured a stated guess with a wide range.
    """
    found = sorted((one for one in overlaps if one.wire == wire), key=lambda one: abs(one.world_size - world_size))
    found = [one for one in found if one.world_size == found[0].world_size]
    layers = [one for one in found if one.kernel == "layer"]
    found = layers or found
    slowdown = _middle([one.matmul_beside_seconds / one.matmul_alone_seconds - 1 for one in found]) if found else 0.0
    wire_slowdown = _middle([one.all_reduce_beside_seconds / one.all_reduce_alone_seconds - 1 for one in found]) if found else None
    notes: list[str] = []
    if not layers and channels and multiprocessors and channels < multiprocessors:
        share = channels / (multiprocessors - channels)
        if share > slowdown:
            slowdown = share
            notes.append(f"a collective keeps {channels} of {multiprocessors} multiprocessors (one a channel)")
    elif not found:
        slowdown = UNMEASURED_SLOWDOWN
    if not found:
        notes.append(f"contention on the wire {wire!r} was not measured: compute beside it is taken as {percent(slowdown)} slower")
    slowdown = max(slowdown, 0.0)
    wire_slowdown = max(wire_slowdown, 0.0) if wire_slowdown is not None else None
    worst = WORST_OF_LAYERS if layers else WORST_OVER_MEAN
    return Contention(
        compute=1 / (1 + slowdown),
        compute_low=1 / (1 + worst * slowdown),
        compute_high=1 / (1 + slowdown * (0.5 if layers else 0.2)),
        wire=1.0 if wire_slowdown is None else 1 / (1 + wire_slowdown),
        wire_low=0.85 if wire_slowdown is None else 1 / (1 + 1.5 * wire_slowdown),
        wire_high=1.0 if wire_slowdown is None else 1 / (1 + 0.3 * wire_slowdown),
        assumptions=tuple(notes),
    )


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]

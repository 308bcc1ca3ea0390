"""What others would say of the same step: the predictors to beat, for the table of predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wiretax.model.profile import Profile
from wiretax.predict.formula import all_reduce_seconds
from wiretax.predict.wire_curve import Wire

TUNER_BUSBW: Mapping[str, float] = {
    "nvlink_volta": 120e9,
    "nvlink_ampere": 240e9,
    "nvlink_hopper": 370e9,
    "nvlink_blackwell": 720e9,
    "pcie3": 12e9,
    "pcie4": 24e9,
    "pcie5": 48e9,
    "pcie6": 96e9,
    "socket": 1.25e9,
}
"""Bytes per second that NCCL's tuner (and torch's ``_inductor.comm_analysis``) takes a link to carry, whatever it does: NVLink busbw by
generation, PCIe x16 by generation, and 10 Gbit/s for an interface without a stated speed (NCCL ``net_socket.cc``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Seconds of the step by simpler rules."""

    linear: float
    """The step on one GPU: what cost calculators assume."""
    no_overlap: float
    """Step + 2 (N - 1) / N x bytes / busbw at the largest measured message."""
    perfect_overlap: float
    """max(step, forward + communication + optimizer)."""
    tuner: float | None
    """As ``perfect_overlap``, with NCCL's constant for the link instead of a measurement; None where it has none."""


def baselines(
    profile: Profile,
    wire: Wire,
    world_size: int,
    *,
    batch_size: int | None = None,
    accumulation_steps: int = 1,
    link: str | None = None,
    traffic: float = 1.0,
) -> Baselines:
    """The simpler predictors on the same inputs.

    Args:
        profile: of the step on one GPU.
        wire: measured.
        world_size: GPUs.
        batch_size: per GPU and micro-step, to which forward and backward are scaled; None for the profile's own.
        accumulation_steps: micro-steps; the gradients travel once.
        link: key of :data:`TUNER_BUSBW`, None where NCCL's tuner has no constant.
        traffic: bytes on the wire over those of one all-reduce of the gradients (1.5 for full sharding).
    """
    gradients = traffic * sum(one.gradient_bytes for one in profile.parameters)
    curve = wire.curve("all_reduce", world_size)
    busbw = curve.busbw(curve.num_bytes[-1]) if curve.num_bytes else 0.0
    bare = profile.bare
    update = bare.optimizer.elapsed.seconds
    ratio = 1.0 if batch_size is None else batch_size / profile.workload.batch_size
    micro_step = ratio * (bare.step.seconds - update)
    step = accumulation_steps * micro_step + update
    outside = (accumulation_steps - 1) * micro_step + ratio * bare.forward.elapsed.seconds + update
    measured = all_reduce_seconds(gradients, busbw, world_size) if busbw else 0.0
    tuner = None if link is None else max(step, outside + all_reduce_seconds(gradients, TUNER_BUSBW[link], world_size))
    return Baselines(
        linear=step,
        no_overlap=step + measured,
        perfect_overlap=max(step, outside + measured),
        tuner=tuner,
    )

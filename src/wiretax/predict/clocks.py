"""The clocks of a profile set right: host and device agree with the ordinary step, and one GPU's times become another's.

Host and device time are taken apart from each other, which changes both a little: a GPU that waited before runs at a higher clock than
in the ordinary step (recorded H200s under their power limit: 11 % faster), and hooks that are timed one by one cost more. What an
ordinary step showed decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import median
from typing import Any

from wiretax.model.measurement import Compute
from wiretax.model.profile import FreeStep, PhaseTimes, Profile, Span, StepTimes

_OF_THE_STEP = ("bare", "segments", "gradient_ready", "free_steps")
"""Fields of a profile that hold times of the step; the input pipeline, the memory and the host's load are not the GPU's."""


def settled(profile: Profile) -> Profile:
    """The profile with the slower clock of each phase as long as the phase really took, and the other no longer than that.

    Parts of a phase (segments, groups, calls, arrivals) keep their shares. On a CPU rank the clocks are one and nothing changes.
    """
    if profile.device == "cpu":
        return profile
    bare, forward, backward = _step(profile.bare)
    return replace(
        profile,
        bare=bare,
        segments=tuple(
            replace(
                one,
                forward_seconds=one.forward_seconds * forward.device,
                backward_seconds=one.backward_seconds * backward.device,
                forward_host_seconds=_times(one.forward_host_seconds, forward.host),
                backward_host_seconds=_times(one.backward_host_seconds, backward.host),
            )
            for one in profile.segments
        ),
        gradient_ready=tuple(replace(one, seconds=one.seconds * backward.device) for one in profile.gradient_ready),
        free_steps=tuple(_free_step(one) for one in profile.free_steps),
    )


def stretched(profile: Profile, factor: float) -> Profile:
    """Every time of the step ``factor`` times as long, on both clocks, and the rates of the GPU as much lower.

    Which of the clocks makes the step longer elsewhere is not known from one number; what is launch-bound stays launch-bound this way.

    Args:
        profile: of the step on one GPU.
        factor: above 0; 1.05 for a GPU that takes 5 % longer.
    """
    return replace(
        profile,
        **{name: _all_times(getattr(profile, name), factor) for name in _OF_THE_STEP},
        matmul_flops_per_second=_times(profile.matmul_flops_per_second, 1 / factor),
        memory_bytes_per_second=_times(profile.memory_bytes_per_second, 1 / factor),
    )


def with_rates_of(profile: Profile, gpus: Sequence[Compute]) -> Profile:
    """The profile with the median rates of GPUs measured alone (where none was: together), so that it counts as one of theirs."""
    alone = [one for one in gpus if one.together is not True] or list(gpus)
    matmul = [one.matmul_flops_per_second for one in alone if one.matmul_flops_per_second]
    memory = [one.memory_bytes_per_second for one in alone if one.memory_bytes_per_second]
    return replace(
        profile,
        matmul_flops_per_second=median(matmul) if matmul else profile.matmul_flops_per_second,
        memory_bytes_per_second=median(memory) if memory else profile.memory_bytes_per_second,
    )


@dataclass(frozen=True, slots=True)
class _Ratios:
    """What the clocks of a phase are multiplied by."""

    device: float
    host: float


def _step(times: StepTimes) -> tuple[StepTimes, _Ratios, _Ratios]:
    forward, of_forward = _phase(times.forward)
    backward, of_backward = _phase(times.backward)
    optimizer, _ = _phase(times.optimizer)
    return replace(times, forward=forward, backward=backward, optimizer=optimizer), of_forward, of_backward


def _phase(phase: PhaseTimes) -> tuple[PhaseTimes, _Ratios]:
    device, host, elapsed = phase.device, phase.host, phase.elapsed.seconds
    if device is None or host is None or min(device.seconds, host.seconds, elapsed) <= 0:
        return phase, _Ratios(1.0, 1.0)
    ratios = _Ratios(
        elapsed / device.seconds if device.seconds >= host.seconds else min(1.0, elapsed / device.seconds),
        elapsed / host.seconds if host.seconds > device.seconds else min(1.0, elapsed / host.seconds),
    )
    return replace(phase, device=_span(device, ratios.device), host=_span(host, ratios.host)), ratios


def _free_step(free: FreeStep) -> FreeStep:
    times, forward, backward = _step(free.times)
    by_phase = {"forward": forward, "backward": backward, "optimizer": _Ratios(1.0, 1.0)}
    return replace(
        free,
        times=times,
        buckets=tuple(
            replace(one, host_seconds=one.host_seconds * backward.host, device_seconds=one.device_seconds * backward.device)
            for one in free.buckets
        ),
        groups=tuple(
            replace(
                one,
                forward_host_seconds=one.forward_host_seconds * forward.host,
                forward_device_seconds=one.forward_device_seconds * forward.device,
                backward_host_seconds=one.backward_host_seconds * backward.host,
                backward_device_seconds=one.backward_device_seconds * backward.device,
            )
            for one in free.groups
        ),
        calls=tuple(
            replace(
                one,
                host_seconds=_times(one.host_seconds, by_phase[one.phase].host),
                device_seconds=_times(one.device_seconds, by_phase[one.phase].device),
            )
            for one in free.calls
        ),
    )


def _span(span: Span, factor: float) -> Span:
    return Span(seconds=span.seconds * factor, samples_seconds=tuple(one * factor for one in span.samples_seconds))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _all_times(value: Any, factor: float) -> Any:
    """A record with every field of seconds multiplied, however deep."""
    if isinstance(value, tuple):
        return type(value)(_all_times(one, factor) for one in value)
    if isinstance(value, type) or not is_dataclass(value):
        return value
    record: Any = value
    changed: dict[str, Any] = {}
    for one in fields(value):
        own = getattr(value, one.name)
        if one.name.endswith("seconds") and own is not None:
            changed[one.name] = tuple(each * factor for each in own) if isinstance(own, tuple) else own * factor
        elif isinstance(own, tuple) or is_dataclass(own):
            changed[one.name] = _all_times(own, factor)
    return replace(record, **changed)

"""Pipeline parallelism, predicted only: the bubble (p - 1) / (m + p - 1), and the activations at each boundary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wiretax.predict.interval import Draws
from wiretax.predict.options import Options
from wiretax.predict.profile_model import Work
from wiretax.predict.wire_curve import Wire
from wiretax.units import percent

if TYPE_CHECKING:
    from wiretax.predict.timeline import Array


def bubble_fraction(stages: int, micro_batches: int) -> float:
    """Share of a GPipe or 1F1B step in which a stage has nothing to do: (p - 1) / (m + p - 1) (GPipe, arXiv 1811.06965)."""
    return (stages - 1) / (micro_batches + stages - 1)


def pipeline_step(work: Work, wire: Wire, stages: int, options: Options, draws: Draws) -> tuple[Array, list[str]]:
    """Seconds of one optimizer step over ``stages`` GPUs, per draw.

    The step takes ``pipeline_micro_batches`` micro-batches of the profile's batch size; the slowest stage sets the pace, and a
    boundary's activation goes forward and its gradient back, once a micro-batch.

    Args:
        work: the step on one GPU.
        wire: between neighbours.
        stages: GPUs, 2 or more.
        options: ``pipeline_micro_batches``.
        draws: spread of device, host and wire.

    Returns:
        Seconds per draw, and what was assumed.
    """
    micro_batches = options.pipeline_micro_batches
    times = [forward.device + backward.device for forward, backward in zip(work.forward, work.backward, strict=True)]
    hosts = [forward.host + backward.host for forward, backward in zip(work.forward, work.backward, strict=True)]
    notes = [f"a bubble of {percent(bubble_fraction(stages, micro_batches))} with {micro_batches} micro-batches over {stages} stages"]
    if len(times) >= stages:
        slowest = balanced([max(device, host) for device, host in zip(times, hosts, strict=True)], stages)
    else:
        slowest = sum(times) / stages
        notes.append("the model was cut into fewer parts than stages: an even cut is assumed")
    workload = work.profile.workload
    block = next((one for one in work.profile.segments if one.role == "block"), None)
    output = (block.output_bytes if block else None) or 2.0 * workload.batch_size * (workload.sequence_length or 1) * (
        workload.hidden_size or 0
    )
    curve = wire.curve("send_recv", 2)
    notes += list(curve.assumptions)
    boundary = 2 * curve.seconds(output * work.batch_size / workload.batch_size)
    turns = micro_batches + stages - 1
    seconds = turns * (slowest * draws.device + boundary * draws.wire) + work.optimizer.device / stages * draws.device
    return seconds + work.unexplained_seconds * draws.device, notes


def balanced(times: Sequence[float], stages: int) -> float:
    """The slowest stage of the best cut of ``times`` into contiguous stages.

    Args:
        times: of the parts, in order.
        stages: at most as many as parts.
    """
    best = [0.0, *[float("inf")] * len(times)]
    for _ in range(stages):
        following = [float("inf")] * (len(times) + 1)
        for end in range(1, len(times) + 1):
            load = 0.0
            for start in range(end - 1, -1, -1):
                load += times[start]
                following[end] = min(following[end], max(best[start], load))
        best = following
    return best[-1]

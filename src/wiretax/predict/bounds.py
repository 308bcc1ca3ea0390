"""The headline before anyone profiled a model: two honest bounds for one fixed model, from compute and wire of a check.

The model is the 1.7 B GPT of the first user's story: 24 layers x 2304, vocabulary 50304, bf16 weights and gradients, batch 4 x 1024 a
GPU. ``low`` is perfect overlap, ``high`` no overlap; the truth of every recorded step lies between. ``expected`` is the textbook
rule between them, ``max(step, forward + communication + optimizer)``; on recorded steps it errs by 14 % in the mean, so the
bounds are what to quote. A real prediction needs a profile of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.measurement import Collective, Compute
from wiretax.model.run import Run
from wiretax.units import duration, rate, significant

NUM_LAYERS = 24
NUM_PARAMETERS = 1_763_209_728
GRADIENT_BYTES = 2 * NUM_PARAMETERS
WORKLOAD = "1.7 B GPT, batch 4 x 1024 a GPU"

BUCKET_BYTES = 25 * 2**20
"""DDP's default bucket (torch ``bucket_cap_mb``)."""

OPTIMIZER_BYTES_PER_PARAMETER = 14
"""AdamW in bf16 reads weight, gradient and both moments and writes weight and moments: seven times two bytes."""

OPTIMIZER_RATE = (1.0, 0.6, 0.5)
"""Share of a device copy's rate that the fused optimizer reaches: at best, typically, at worst (recorded H200: 0.58)."""

FORWARD_SHARE = 1 / 3
"""The backward pass does twice the arithmetic of the forward pass."""

LARGEST_GAP = 2.0
"""A bucket is read off the curve only where it was measured within this factor of its size."""


def bounds(run: Run) -> tuple[Forecast, ...]:
    """Forecasts of the fixed model under data parallelism, for every wire and world size whose all-reduce was measured.

    Args:
        run: with ``compute`` (layer, head and memory figures) and ``collectives``.

    Returns:
        One forecast for one GPU and one for each wire and world size, in that order. Where an input is missing its fields are None
        with the reason. Empty when no all-reduce of two or more ranks was measured.
    """
    groups: dict[tuple[str, int], list[Collective]] = {}
    for collective in run.measurements.collectives:
        if collective.operation == "all_reduce" and collective.points and collective.world_size > 1:
            groups.setdefault((collective.wire, collective.world_size), []).append(collective)
    if not groups:
        return ()
    single = _single(run.measurements.compute)
    forecasts = [_alone(single)]
    for (wire, world_size), found in groups.items():
        forecasts.append(_together(single, wire, world_size, found))
    return tuple(forecasts)


def _single(compute: Iterable[Compute]) -> tuple[Interval, float] | str:
    """The step on one GPU and the time of its layers and head, from the slowest GPU; or the reason why not."""
    known = [c for c in compute if c.gpu is not None and c.layer_seconds is not None and c.head_seconds is not None]
    if not known:
        return "the time of one layer and of the output head was not measured on a GPU"
    passes = max(NUM_LAYERS * (c.layer_seconds or 0.0) + (c.head_seconds or 0.0) for c in known)
    rates = [c.memory_bytes_per_second for c in compute if c.gpu is not None and c.memory_bytes_per_second]
    if not rates:
        return "the memory rate, which decides the optimizer's time, was not measured on a GPU"
    moved = NUM_PARAMETERS * OPTIMIZER_BYTES_PER_PARAMETER / min(rates)
    low, expected, high = (passes + moved / share for share in OPTIMIZER_RATE)
    return Interval(low=low, expected=expected, high=high), passes


def _alone(single: tuple[Interval, float] | str) -> Forecast:
    if isinstance(single, str):
        return _nothing("none", 1, single)
    step, passes = single
    return Forecast(
        strategy="ddp",
        num_gpus=1,
        wire="none",
        workload=WORKLOAD,
        step_seconds=step,
        efficiency_fraction=1.0,
        wire_tax_fraction=0.0,
        speedup=1.0,
        assumptions=(
            f"{NUM_LAYERS} layers and the head take {duration(passes)} as measured",
            f"the optimizer moves {OPTIMIZER_BYTES_PER_PARAMETER} bytes a parameter at half to all of the measured memory rate",
            "whether the model fits into memory is not looked at",
        ),
    )


def _together(single: tuple[Interval, float] | str, wire: str, world_size: int, found: list[Collective]) -> Forecast:
    if isinstance(single, str):
        return _nothing(wire, world_size, single)
    if not all(collective.gpus for collective in found):
        return _nothing(wire, world_size, "the ranks of this wire are CPU ranks")
    at_bucket = [reached for c in found if (reached := _busbw_at(c, BUCKET_BYTES)) is not None]
    if not at_bucket:
        return _nothing(wire, world_size, f"no all-reduce near the bucket size of {BUCKET_BYTES // 2**20} MiB was measured")
    step, passes = single
    on_wire = GRADIENT_BYTES * 2 * (world_size - 1) / world_size
    # One bucket of a real model, the embedding, is far larger than 25 MiB, so the fastest rate at any larger size bounds the best case.
    fastest = max([*at_bucket, *(p.busbw_bytes_per_second for c in found for p in c.points if p.num_bytes >= BUCKET_BYTES)])
    low = max(step.low, on_wire / fastest)
    high = step.high + on_wire / min(at_bucket)
    forward = passes * FORWARD_SHARE
    textbook = max(step.expected, forward + on_wire / max(at_bucket) + (step.expected - passes))
    expected = min(max(textbook, low), high)
    speedup = world_size * step.expected / expected
    # Like is set beside like: the best step of one GPU against the best of many, the worst against the worst.
    slowest, best = (significant(world_size * ratio, 2) for ratio in (step.high / high, step.low / low))
    return Forecast(
        strategy="ddp",
        num_gpus=world_size,
        wire=wire,
        workload=WORKLOAD,
        step_seconds=Interval(low=low, expected=expected, high=high),
        efficiency_fraction=speedup / world_size,
        wire_tax_fraction=1 - speedup / world_size,
        speedup=speedup,
        assumptions=(
            f"bounds, not a prediction: {slowest}x with no overlap, {best}x with perfect overlap",
            f"{GRADIENT_BYTES / 1e9:.2f} GB of gradients: at worst {rate(min(at_bucket))} (25 MiB buckets), at best {rate(fastest)}",
            "whether the model fits into memory is not looked at",
        ),
    )


def _nothing(wire: str, num_gpus: int, reason: str) -> Forecast:
    names = ("step_seconds", "efficiency_fraction", "wire_tax_fraction", "speedup")
    return Forecast(strategy="ddp", num_gpus=num_gpus, wire=wire, workload=WORKLOAD, missing=dict.fromkeys(names, reason))


def _busbw_at(collective: Collective, num_bytes: int) -> float | None:
    """Bus bandwidth at a size: a straight line in log-log between the neighbours, or the nearest point when it is close enough."""
    points = sorted((p.num_bytes, p.busbw_bytes_per_second) for p in collective.points if p.busbw_bytes_per_second > 0 and p.num_bytes > 0)
    below = [point for point in points if point[0] <= num_bytes]
    above = [point for point in points if point[0] >= num_bytes]
    if below and above:
        (size_a, a), (size_b, b) = below[-1], above[0]
        if size_a == size_b:
            return a
        share = math.log(num_bytes / size_a) / math.log(size_b / size_a)
        return math.exp(math.log(a) * (1 - share) + math.log(b) * share)
    if not points:
        return None
    nearest, reached = min(points, key=lambda point: abs(math.log(point[0] / num_bytes)))
    return reached if 1 / LARGEST_GAP <= nearest / num_bytes <= LARGEST_GAP else None

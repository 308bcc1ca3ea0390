"""Efficiency where the model is known but no step was profiled: bytes on the wire against time on one GPU, as three honest figures.

``low`` is no overlap over the slowest wire of its class, ``high`` perfect overlap over the fastest, ``expected`` half way between no
overlap and overlap inside each pass, over a typical wire: on the recorded pair of H200s that errs by 7 % in the mean for DDP (13 % at
worst; no overlap 14 %, overlap 8 %) and by 19 % for FSDP2, whose host time it does not know. A profile tells more.
"""

from __future__ import annotations

from dataclasses import dataclass

from wiretax.data.models import TransformerShape
from wiretax.model.forecast import Interval
from wiretax.predict.memory_arithmetic import DEFAULT_ADAPTER_FRACTION, RECIPES
from wiretax.predict.wire_curve import bus_factor

FORWARD_SHARE = 1 / 3
"""The backward pass does twice the arithmetic of the forward pass."""

ACTIVATION_BYTES = 2
"""Tensor parallelism reduces activations in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a step moves, in bytes."""

    gradients: float
    weights: float
    """As gathered by a sharded strategy."""
    reduced_each_layer: float
    """Activations of one sample that tensor parallelism reduces four times a layer."""
    num_layers: int


def traffic(shape: TransformerShape, recipe: str, sequence_length: int, trainable_fraction: float | None = None) -> Traffic:
    """Bytes by the model's shape and what is trained of it (prediction notes 2.1)."""
    one = RECIPES[recipe]
    trained = shape.num_parameters
    if one.adapter:
        trained = round(trained * (DEFAULT_ADAPTER_FRACTION if trainable_fraction is None else trainable_fraction))
    return Traffic(
        gradients=trained * one.gradients,
        weights=shape.num_parameters * one.weights,
        reduced_each_layer=float(sequence_length * shape.hidden_size * ACTIVATION_BYTES),
        num_layers=shape.num_layers,
    )


def closed_form(
    moved: Traffic, strategy: str, num_gpus: int, busbw: Interval, sample_seconds: float, batch_size: int, accumulation_steps: int = 1
) -> Interval | None:
    """Efficiency of a step, low, expected and high; None for a strategy without such a rule.

    Args:
        moved: from :func:`traffic`.
        strategy: as in a forecast.
        num_gpus: 2 or more.
        busbw: of the all-reduce, bytes per second.
        sample_seconds: one sample on one GPU, forward and backward and its share of the update.
        batch_size: per GPU and micro-step; of the whole group under tensor parallelism.
        accumulation_steps: micro-steps an update.
    """
    alone = accumulation_steps * batch_size * sample_seconds

    def efficiency(rate: float, *overlaps: str) -> float:
        steps = [_step(moved, strategy, num_gpus, rate, batch_size, sample_seconds, accumulation_steps, one) for one in overlaps]
        perfect = alone / num_gpus if strategy == "tp" else alone
        return min(perfect * len(steps) / sum(steps), 1.0)

    if strategy not in ("ddp", "zero1", "zero2", "fsdp2", "zero3", "fsdp2_grad_op", "tp"):
        return None
    return Interval(
        low=efficiency(busbw.low, "none"), expected=efficiency(busbw.expected, "none", "passes"), high=efficiency(busbw.high, "all")
    )


def _step(
    moved: Traffic, strategy: str, num_gpus: int, busbw: float, batch: int, sample_seconds: float, accumulation: int, overlap: str
) -> float:
    micro = batch * sample_seconds
    half = bus_factor("all_gather", num_gpus) / busbw
    reduce_, gather = half * moved.gradients, half * moved.weights
    forward, backward = micro * FORWARD_SHARE, micro * (1 - FORWARD_SHARE)
    alone = accumulation * micro
    if strategy == "tp":
        # Four all-reduces a layer, each on the critical path (prediction notes 2.1); nothing hides them.
        batch_bytes = 4 * moved.num_layers * moved.reduced_each_layer * batch
        return alone / num_gpus + accumulation * 2 * half * batch_bytes
    if strategy in ("fsdp2", "zero3"):
        parts = ((forward, gather), (backward, gather + reduce_))
        return accumulation * _joined(parts, overlap)
    if strategy == "fsdp2_grad_op":
        return accumulation * _joined(((forward, gather), (backward, reduce_)), overlap)
    hidden = {"ddp": 2 * reduce_, "zero1": 2 * reduce_, "zero2": reduce_}[strategy]
    after = 0.0 if strategy == "ddp" else gather
    if overlap == "all":
        return max(alone, hidden) + after
    last = _joined(((forward, 0.0), (backward, hidden)), overlap)
    return (accumulation - 1) * micro + last + after


def _joined(parts: tuple[tuple[float, float], ...], overlap: str) -> float:
    """Compute and communication of each pass: one after the other, hidden within the pass, or hidden in the whole step."""
    if overlap == "none":
        return sum(compute + wire for compute, wire in parts)
    if overlap == "passes":
        return sum(max(compute, wire) for compute, wire in parts)
    return max(sum(compute for compute, _ in parts), sum(wire for _, wire in parts))

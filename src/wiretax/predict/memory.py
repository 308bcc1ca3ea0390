"""Peak memory of a GPU by strategy: what is measured on one GPU, and what sharding does to each part of it.

The bare step at two batch sizes gives ``a + b x batch``. ``b`` is activations and logits. ``a`` is what stays: parameters and
optimizer states, with gradients where they outlive the backward pass. A strategy changes the parts of ``a`` by arithmetic, unless it
was profiled with communication free, which already holds its buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.forecast import Interval
from wiretax.model.profile import MemoryPoint, Profile
from wiretax.predict.fsdp import shard_group_size
from wiretax.predict.options import DEFAULTS, Options, strategy_name

OUTSIDE_BYTES = 0.9e9
"""What torch's allocator does not count: the CUDA context (0.3 to 0.7 GB) and NCCL's buffers (channels x 4 MiB x peers)."""

SLACK_FRACTION = 0.03
"""Of a GPU's memory, lost to fragments of the allocator."""

MEASURED_FRACTION = 0.02
"""Half width of the interval where the strategy's own peak was measured."""

DERIVED_FRACTION = 0.05
"""The same where it follows from the bare step by arithmetic."""

TENSOR_PARALLEL_KEPT = 10 / 34
"""Share of a block's activations that tensor parallelism does not cut (10 of 34 s b h bytes; Korthikanti, arXiv 2205.05198, 4.2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one GPU at the peak of a step, by what they are for."""

    parameters: float
    gradients: float
    """Those that live at the peak."""
    optimizer: float
    activations: float
    """And logits: all that grows with the batch."""
    strategy: float
    """Buckets, gathered groups, reduce-scatter inputs."""
    other: float
    """What the measured peak holds beyond the parts above."""
    peak: Interval
    """As ``torch.cuda.max_memory_allocated`` counts."""
    assumptions: tuple[str, ...] = ()

    def fits(self, device_bytes: float) -> bool | None:
        """Whether the step runs in so much memory; None where the interval leaves it open."""
        usable = device_bytes * (1 - SLACK_FRACTION) - OUTSIDE_BYTES
        if self.peak.high <= usable:
            return True
        return False if self.peak.low > usable else None


def predict_memory(
    profile: Profile, strategy: str, num_gpus: int, *, batch_size: int | None = None, options: Options = DEFAULTS
) -> Memory | None:
    """Peak memory of one GPU.

    Args:
        profile: with the bare step's peak at one batch size at least; two tell what grows with the batch.
        strategy: as in a forecast; ``none`` for the bare step.
        num_gpus: 1 or more.
        batch_size: per GPU and micro-step; None for the profile's.
        options: accumulation keeps gradients alive through forward; shard and tensor-parallel group sizes.

    Returns:
        The forecast, or None where the profile holds no peak of the bare step (a CPU rank).
    """
    name = "none" if strategy == "none" or num_gpus == 1 else strategy_name(strategy)
    batch = profile.workload.batch_size if batch_size is None else batch_size
    line = _line([one for one in profile.memory if one.strategy == "none"])
    if line is None:
        return None
    fixed, growing, notes = line
    parameters = float(sum(one.num_bytes for one in profile.parameters))
    gradients = float(sum(one.gradient_bytes for one in profile.parameters))
    states = _optimizer_bytes(profile, parameters, gradients)
    block_bytes = sum(one.parameter_bytes for one in profile.segments if one.role == "block")
    shares = shares_of(name, num_gpus, options, block_bytes / parameters if block_bytes and parameters else 1.0)
    activations = growing * batch * shares.activations
    other = max(fixed - parameters - states, 0.0)
    alive = gradients * shares.gradients if name != "none" or options.accumulation_steps > 1 else 0.0
    at_forward = parameters * shares.parameters + states * shares.optimizer + activations + other * shares.activations
    extra, low, high, extra_notes = _strategy_bytes(profile, name, gradients, shares, options)
    notes += extra_notes
    # The optimizer's moment: no activations, but all gradients.
    at_update = parameters * shares.parameters + states * shares.optimizer + gradients * shares.gradients + extra
    peak = max(at_forward + extra + (alive if name == "none" else 0.0), at_update)
    own = [one for one in profile.memory if one.strategy == _measured_as(name)]
    half = DERIVED_FRACTION
    if name != "none" and own and _measured_world(profile, name) in (None, num_gpus):
        measured_line = _line(own)
        if measured_line is not None:
            base, slope, _ = measured_line
            slope = slope if len({one.batch_size for one in own}) > 1 else growing * shares.activations
            base = base if len({one.batch_size for one in own}) > 1 else own[0].peak_bytes - slope * own[0].batch_size
            peak, low, high = base + slope * batch, 0.0, 0.0
            notes = [f"the peak of {name} was measured with communication free"]
            if name in ("ddp", "powersgd", "zero1"):
                # Real reductions may hold the first buckets until new ones are made; free ones never do.
                low = min(max(at_forward + 2 * gradients - peak, 0.0), gradients)
                peak += low
                notes += ["NCCL may hold DDP's first buckets while it makes new ones"] if low else []
            extra = max(peak - at_forward, 0.0)
            half = MEASURED_FRACTION
    elif name == "none" and len({one.batch_size for one in profile.memory if one.strategy == "none"}) > 1:
        half = MEASURED_FRACTION
    return Memory(
        parameters=parameters * shares.parameters,
        gradients=alive,
        optimizer=states * shares.optimizer,
        activations=activations,
        strategy=extra,
        other=other,
        peak=Interval(low=(peak - low) * (1 - half), expected=peak, high=(peak + high) * (1 + half)),
        assumptions=tuple(notes),
    )


def largest_batch(
    profile: Profile, strategy: str, num_gpus: int, device_bytes: float, *, options: Options = DEFAULTS, limit: int = 2**20
) -> int | None:
    """The largest batch per GPU that surely fits; 0 when not even one sample does, None when memory was not measured.

    Args:
        profile: of the step on one GPU.
        strategy: as in a forecast.
        num_gpus: 1 or more.
        device_bytes: memory of one GPU.
        options: of the strategy.
        limit: no larger batch is tried.
    """

    def runs(batch: int) -> bool | None:
        memory = predict_memory(profile, strategy, num_gpus, batch_size=batch, options=options)
        return None if memory is None else memory.fits(device_bytes) is True

    if runs(1) is None:
        return None
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if runs(middle):
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Shares:
    """What part of each kind of memory one GPU holds."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    activations: float = 1.0


def shares_of(name: str, num_gpus: int, options: Options, block_fraction: float) -> Shares:
    """What one GPU holds under a strategy.

    Args:
        name: of the strategy; ``none`` holds everything.
        num_gpus: all of them.
        options: shard and tensor-parallel group sizes.
        block_fraction: share of the parameters in the repeated blocks, which tensor parallelism cuts.
    """
    part = 1 / num_gpus
    if name in ("fsdp2", "fsdp2_grad_op", "zero3"):
        return Shares(part, part, part)
    if name == "hsdp":
        part = 1 / shard_group_size(num_gpus, options)
        return Shares(part, part, part)
    if name == "zero2":
        return Shares(1.0, part, part)
    if name == "zero1":
        return Shares(1.0, 1.0, part)
    if name in ("tp", "tp_ddp"):
        size = num_gpus if name == "tp" else options.tensor_parallel_size or 2
        kept = 1 - block_fraction + block_fraction / size
        return Shares(kept, kept, kept, TENSOR_PARALLEL_KEPT + (1 - TENSOR_PARALLEL_KEPT) / size)
    if name == "pp":
        # Under 1F1B the first stage holds as many micro-batches as there are stages, each of 1/p of the layers.
        return Shares(part, part, part, min(options.pipeline_micro_batches, num_gpus) * part)
    return Shares()


def _strategy_bytes(
    profile: Profile, name: str, gradients: float, shares: Shares, options: Options
) -> tuple[float, float, float, list[str]]:
    """Bytes a strategy needs for itself, how much less and more it may be, and why."""
    if name in ("ddp", "zero1", "zero2", "powersgd", "tp_ddp"):
        # Recorded: 2 x G in 28 of 33 launches, 1 x G in the others (buckets alone).
        extra = gradients * shares.gradients if name == "tp_ddp" else gradients
        return 2 * extra, extra, 0.0, ["DDP holds its buckets and about as much again while gradients arrive"]
    if name in ("fsdp2", "fsdp2_grad_op", "hsdp", "zero3"):
        blocks = sorted((one.parameter_bytes for one in profile.segments if one.role == "block"), reverse=True)
        root = sum(one.parameter_bytes for one in profile.segments if one.role != "block")
        whole = float(sum(one.num_bytes for one in profile.parameters))
        if not blocks:
            root = 0
            blocks = [int(whole)]
        ahead = max(options.forward_prefetch, options.backward_prefetch, 1)
        gathered = root + (whole - root if name == "fsdp2_grad_op" else sum(blocks[: 1 + ahead]))
        block_gradients = max((one.gradient_bytes for one in profile.segments if one.role == "block"), default=int(gradients))
        note = f"the root and {1 + ahead} blocks are gathered at once, one block's gradients wait to be reduced"
        if name == "fsdp2_grad_op":
            note = "all blocks stay gathered between forward and backward"
        return gathered + options.reduce_scatter_buffers * block_gradients, 0.0, 0.5 * root, [note]
    return 0.0, 0.0, 0.0, []


def _line(points: Sequence[MemoryPoint]) -> tuple[float, float, list[str]] | None:
    """``a`` and ``b`` of ``a + b x batch``; with one point all of it but the states is taken to grow."""
    if not points:
        return None
    first, last = min(points, key=lambda one: one.batch_size), max(points, key=lambda one: one.batch_size)
    if first.batch_size == last.batch_size:
        fixed = float(first.at_rest_bytes or 0)
        note = "memory was measured at one batch size: all that is not held between steps is taken to grow with the batch"
        return fixed, (first.peak_bytes - fixed) / first.batch_size, [note]
    growing = (last.peak_bytes - first.peak_bytes) / (last.batch_size - first.batch_size)
    return first.peak_bytes - growing * first.batch_size, growing, []


def _optimizer_bytes(profile: Profile, parameters: float, gradients: float) -> float:
    if profile.optimizer_state_bytes is not None:
        return float(profile.optimizer_state_bytes)
    # Two moments in the dtype of the weights, for those that are trained (torch's AdamW); plain SGD keeps nothing.
    return 0.0 if profile.workload.optimizer.lower() == "sgd" else 2 * gradients if gradients else 2 * parameters


def _measured_as(name: str) -> str:
    return {"zero3": "fsdp2", "powersgd": "ddp"}.get(name, name)


def _measured_world(profile: Profile, name: str) -> int | None:
    """World size at which a sharding strategy's peak was measured; None where it does not matter (DDP's is that of world size 1)."""
    if name in ("ddp", "powersgd"):
        return None
    return next((one.world_size for one in profile.free_steps if one.strategy == _measured_as(name)), 0)

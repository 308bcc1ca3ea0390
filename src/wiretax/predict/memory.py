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

UPDATE_SLACK = 1.05
"""A peak below so many times weights, gradients and states was the optimizer's, or near it."""

DERIVED_FRACTION = 0.05
"""The same where it follows from the bare step by arithmetic."""

TENSOR_PARALLEL_FRACTION = 0.08
"""The same for tensor parallelism, whose share of the activations differs from block to block."""

TENSOR_PARALLEL_KEPT = 10 / 34
"""Share of a block's activations that tensor parallelism does not cut (10 of 34 s b h bytes; Korthikanti, arXiv 2205.05198, 4.2.1)."""

TENSOR_PARALLEL_KEPT_MIXED = 18 / 48
"""The same under autocast: norms keep their inputs in float32, and each product its own bf16 copy of what it reads."""

LOSS_PARALLEL_BYTES = 16.0
"""Bytes a logit of a rank's own under torch's ``loss_parallel``: log-softmax, gradient and two temporaries in float32."""

LOGIT_BYTES = (8.0, 12.0, 14.0)
"""Bytes a logit at the peak with a float32 loss: bf16 logits, their log-softmax and its gradients (recorded GPTs: 12)."""


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
    parameters = float(sum(one.num_bytes for one in profile.parameters))
    gradients = float(sum(one.gradient_bytes for one in profile.parameters))
    states = _optimizer_bytes(profile, parameters, gradients)
    line = _line([one for one in profile.memory if one.strategy == "none"], parameters + states + gradients)
    if line is None:
        return None
    notes = list(line.notes)
    block_bytes = sum(one.parameter_bytes for one in profile.segments if one.role == "block")
    shares = shares_of(
        name,
        num_gpus,
        options,
        block_bytes / parameters if block_bytes and parameters else 1.0,
        mixed=_is_mixed(profile),
        checkpointing=profile.workload.activation_checkpointing,
    )
    logits = min(_logits_per_sample(profile), line.growing) * batch
    logits_share, logits_low, logits_high = _logits_share(profile, name, shares)
    activations = (line.growing * batch - logits) * shares.activations + logits * logits_share
    other = line.fixed - parameters - states
    alive = gradients * shares.gradients if name != "none" or options.accumulation_steps > 1 else 0.0
    at_forward = parameters * shares.parameters + states * shares.optimizer + activations + other * shares.activations
    extra, low, high, extra_notes = _strategy_bytes(profile, name, gradients, shares, options)
    low, high = low + logits * (logits_share - logits_low), high + logits * (logits_high - logits_share)
    unsure = line.unsure * abs(batch - line.pivot) * shares.activations
    low, high = low + unsure, high + unsure
    notes += extra_notes
    # The optimizer's moment: no activations, but all gradients, and what it makes for itself.
    temporary = max((line.update or 0.0) - parameters - states - gradients, 0.0) * shares.optimizer
    at_update = parameters * shares.parameters + states * shares.optimizer + gradients * shares.gradients + temporary + extra
    peak = max(at_forward + extra + (alive if name == "none" else 0.0), at_update)
    own = [one for one in profile.memory if one.strategy == _measured_as(name)]
    half = TENSOR_PARALLEL_FRACTION if name in ("tp", "tp_ddp") else DERIVED_FRACTION
    if name != "none" and own and _measured_world(profile, name) in (None, num_gpus):
        measured_line = _line(own)
        if measured_line is not None:
            base, slope = measured_line.fixed, measured_line.growing
            if len({one.batch_size for one in own}) == 1:
                slope = line.growing * shares.activations
                base = own[0].peak_bytes - slope * own[0].batch_size
            peak, low, high = max(base + slope * batch, measured_line.update or 0.0), 0.0, 0.0
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
    least = max(peak - low, min(at_update - extra, peak))
    return Memory(
        parameters=parameters * shares.parameters,
        gradients=alive,
        optimizer=states * shares.optimizer,
        activations=activations,
        strategy=extra,
        other=max(other, 0.0),
        peak=Interval(low=least * (1 - half), expected=peak, high=(peak + high) * (1 + half)),
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
    logits: float = 1.0
    """Where the head's output stays cut, in units of what one GPU holds of it without a strategy."""


def shares_of(
    name: str, num_gpus: int, options: Options, block_fraction: float, *, mixed: bool = False, checkpointing: bool = False
) -> Shares:
    """What one GPU holds under a strategy.

    Args:
        name: of the strategy; ``none`` holds everything.
        num_gpus: all of them.
        options: shard and tensor-parallel group sizes.
        block_fraction: share of the parameters in the repeated blocks, which tensor parallelism cuts.
        mixed: fp32 weights under autocast.
        checkpointing: only what goes into each block is kept, which tensor parallelism does not cut.
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
        whole = 1.0 if checkpointing else TENSOR_PARALLEL_KEPT_MIXED if mixed else TENSOR_PARALLEL_KEPT
        return Shares(kept, kept, kept, whole + (1 - whole) / size, LOSS_PARALLEL_BYTES / LOGIT_BYTES[1] / size)
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
        waiting = float(options.reduce_scatter_buffers * block_gradients)
        low = waiting + sum(blocks[1 : 1 + ahead])  # a peak at the loss comes before the next block and its gradients
        note = f"the root and {1 + ahead} blocks are gathered at once, one block's gradients wait to be reduced"
        if name == "fsdp2_grad_op":
            low, note = waiting, "all blocks stay gathered between forward and backward"
        return gathered + waiting, low, 0.5 * root, [note]
    return 0.0, 0.0, 0.0, []


@dataclass(frozen=True, slots=True)
class _Line:
    """``fixed + growing x batch`` until the gradients are there, ``update`` while the optimizer steps."""

    fixed: float
    growing: float
    unsure: float
    """How much more or less grows with each sample,"""
    pivot: int
    """... beyond or below this batch, whose peak is known."""
    update: float | None
    notes: tuple[str, ...] = ()


def _line(points: Sequence[MemoryPoint], update_bytes: float = 0.0) -> _Line | None:
    """What grows with the batch; with one point all of it but the states is taken to grow.

    At a small batch the peak comes when all gradients are there and the optimizer steps, and says nothing of what grows.

    Args:
        points: of one strategy.
        update_bytes: what that moment holds at least.
    """
    if not points:
        return None
    updates = [one.update_peak_bytes for one in points if one.update_peak_bytes is not None]
    floor = UPDATE_SLACK * max([update_bytes, *updates]) if update_bytes else 0.0
    update = float(max(updates)) if updates else None
    peaks = {one.batch_size: one.peak_bytes for one in points}
    growing_ones = sorted(batch for batch, peak in peaks.items() if peak > floor)
    first, last = (growing_ones[0], growing_ones[-1]) if growing_ones else (max(peaks), max(peaks))
    if first != last:
        growing = (peaks[last] - peaks[first]) / (last - first)
        return _Line(peaks[first] - growing * first, growing, 0.0, first, update)
    fixed = float(next((one.at_rest_bytes for one in points if one.batch_size == first), None) or 0)
    most = (peaks[first] - fixed) / first
    if len(peaks) == 1:
        note = "memory was measured at one batch size: all that is not held between steps is taken to grow with the batch"
        return _Line(fixed, most, 0.0, first, update, (note,))
    if not growing_ones:
        why = "at the batches measured the peak was the optimizer's, and what grows with the batch is not known"
        return _Line(fixed, most / 2, most / 2, 0, update, (why,))
    # The line to the one that grows passes below the others, and above what is held between steps.
    least = max((peaks[first] - peak) / (first - batch) for batch, peak in peaks.items() if batch < first)
    growing, unsure = (least + most) / 2, abs(most - least) / 2
    why = "at all but one batch the peak was the optimizer's: what grows with the batch is known within bounds"
    return _Line(peaks[first] - growing * first, growing, unsure, first, update, (why,))


def _is_mixed(profile: Profile) -> bool:
    """fp32 weights under bf16 autocast."""
    return profile.workload.dtype != "float32" and any(one.dtype == "float32" for one in profile.parameters)


def _logits_per_sample(profile: Profile) -> float:
    """Bytes of the logits and their gradients; 0 where the workload says neither words nor length."""
    return LOGIT_BYTES[1] * (profile.workload.vocabulary_size or 0) * (profile.workload.sequence_length or 0)


def _logits_share(profile: Profile, name: str, shares: Shares) -> tuple[float, float, float]:
    """What one GPU holds of the logits: expected, least and most.

    The usual plan cuts a head of its own, and leaves alone one that shares the embedding's matrix.
    """
    if name not in ("tp", "tp_ddp"):
        return shares.activations, shares.activations, shares.activations
    words = profile.workload.vocabulary_size
    tables = [one for one in profile.parameters if words is not None and words in one.shape and len(one.shape) > 1]
    low, high = min(shares.logits, 1.0), max(shares.logits, 1.0)
    return (1.0 if len(tables) == 1 else shares.logits, low, high)


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

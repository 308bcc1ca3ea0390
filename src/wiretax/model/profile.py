"""What ONE GPU says about a training step: the predictor's whole knowledge of the work, beside the measured wire.

Three clocks are kept apart, because on a fast GPU the host is often the slower of the two:

elapsed   what an ordinary step shows between two device events: the larger of the next two, piece by piece, with all gaps.
device    how long the GPU computes when the host is out of the way (queued behind a waiting kernel).
host      how long the host needs to issue the work, never waiting for the device.

On a CPU rank host and device are one: the three are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wiretax.model.measurement import HostLoad, Operation, Overlap

Phase = Literal["forward", "backward", "optimizer"]
Role = Literal["before", "block", "after"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One thing timed again and again: the median and every sample, in the order taken."""

    seconds: float
    samples_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """One phase of the step on the three clocks (see the module)."""

    elapsed: Span
    device: Span | None = None
    host: Span | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """A whole optimizer step: one forward, one backward, one optimizer update; the device is synchronised around it."""

    step: Span
    """Wall time from synchronised start to synchronised end."""
    forward: PhaseTimes
    """Model and loss."""
    backward: PhaseTimes
    optimizer: PhaseTimes
    """The update; ``zero_grad`` counts here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter tensor, in the order of ``model.parameters()`` (shared ones once)."""

    name: str
    num_elements: int
    shape: tuple[int, ...] = ()
    dtype: str
    num_bytes: int
    gradient_bytes: int
    """0 where it is frozen or its gradient never comes."""
    segment: int | None = None
    """Index into ``Profile.segments`` of the part that owns it; null where the model was not cut into segments."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of the model in forward order: everything before the first block, each block, everything after the last.

    Segments do not overlap and cover the step: their forward (backward) seconds add up to the forward (backward) phase.
    """

    name: str
    role: Role
    """``before`` (embeddings) and ``after`` (last norm, head, loss) make up FSDP's root group; at most one of each."""
    parameter_bytes: int
    gradient_bytes: int
    forward_seconds: float
    """Device time (see the module), median."""
    backward_seconds: float
    forward_host_seconds: float | None = None
    backward_host_seconds: float | None = None
    output_bytes: int | None = None
    """Bytes of the activation handed to the next segment: what tensor and pipeline parallelism move."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReady:
    """When one parameter's gradient was accumulated, on the device, counted from the start of backward."""

    parameter: int
    """Index into ``Profile.parameters``."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTimes:
    """One of DDP's buckets as it really ran at world size 1, in the order in which it became ready."""

    num_bytes: int
    num_parameters: int
    host_seconds: float
    """From the last gradient's hook to the return of the call that starts the reduction."""
    device_seconds: float
    """Copies into and scaling of the bucket on the compute stream."""
    parameters: tuple[int, ...] = ()
    """Indices into ``Profile.parameters``, where known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """One ``fully_shard`` group (or one tensor-parallel block) with communication free: own copies and hooks included."""

    segments: tuple[int, ...]
    """Indices into ``Profile.segments``; FSDP's root group has ``before`` and ``after``."""
    parameter_bytes: int
    """Unsharded, in the dtype that is gathered."""
    gradient_bytes: int
    """Unsharded, in the dtype that is reduced."""
    forward_host_seconds: float
    """Host time from entering the group's pre-forward hook to leaving its post-forward hook."""
    forward_device_seconds: float
    """Compute stream, in the same span: the group's kernels and its copies out of the gathered buffer."""
    backward_host_seconds: float
    backward_device_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationCall:
    """One collective the strategy really issued while its communicator did nothing, in the order of issue."""

    operation: Operation
    num_bytes: int
    """As nccl-tests counts it: all-gather and reduce-scatter totals."""
    phase: Phase
    blocking: bool
    """Whether the compute stream waits for the result at once (tensor parallelism) or later (FSDP's prefetch)."""
    segment: int | None = None
    """Index into ``Profile.segments`` of the part that was running."""
    host_seconds: float | None = None
    """When the host issued it, from the start of the phase, on the host clock."""
    device_seconds: float | None = None
    """How much compute was queued before it in this phase, on the device clock."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"segment"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeStep:
    """The step under one strategy with communication made free, its host time, hooks and copies included."""

    strategy: str
    """``ddp``, ``fsdp2``, ``fsdp2_grad_op``, ``tp``, ``zero1``, ...: as in a forecast."""
    world_size: int
    """What the communicator reported: 1 for DDP; N for FSDP2 and tensor parallelism."""
    method: Literal["world_size_1", "fake_backend", "own_communicator"]
    options: dict[str, str] = field(default_factory=dict)
    """The strategy's settings, by torch's names: ``bucket_cap_mb``, ``gradient_as_bucket_view``, ``reshard_after_forward``, ..."""
    times: StepTimes
    """With the filler's own copies already subtracted."""
    filler_seconds: float | None = None
    """What was subtracted from the step for filling gathered buffers and reduced gradients with real numbers."""
    buckets: tuple[BucketTimes, ...] = ()
    """DDP."""
    groups: tuple[GroupTimes, ...] = ()
    """FSDP2, in forward order with the root first."""
    calls: tuple[CommunicationCall, ...] = ()
    peak_memory_bytes: int | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Peak memory of a fresh process after its third step (``torch.cuda.max_memory_allocated``)."""

    strategy: str
    """``none`` for the bare step."""
    batch_size: int
    peak_bytes: int
    at_rest_bytes: int | None = None
    """Allocated between two steps: parameters, optimizer states, and gradients where they are kept."""
    update_peak_bytes: int | None = None
    """Peak while the optimizer steps: it does not grow with the batch, and is about that of the whole step where batches are small."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was trained, in the words that tell two workloads apart."""

    name: str
    """``gpt124m``, ``resnet50``, ``module:function``, ...: also ``StepTiming.workload`` and ``Forecast.workload``."""
    batch_size: int
    """Per GPU and micro-step."""
    sequence_length: int | None = None
    hidden_size: int | None = None
    vocabulary_size: int | None = None
    num_heads: int | None = None
    dtype: str = "bfloat16"
    """What the matrix products run in (the weights' dtype is with each parameter)."""
    optimizer: str = "adamw"
    accumulation_steps: int = 1
    activation_checkpointing: bool = False
    compiled: bool = False
    flops_per_sample: float | None = None
    """Forward and backward together, for MFU."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"sequence_length", "hidden_size", "vocabulary_size", "num_heads"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One training step on one GPU: enough, with a measured wire, to predict it on N (DESIGN 6.1)."""

    workload: Workload
    device: Literal["cuda", "cpu"]
    device_name: str
    """As the driver names it (``NVIDIA H200``); the CPU's model name on CPU ranks."""
    device_memory_bytes: int | None = None
    multiprocessors: int | None = None
    """Of the GPU (``torch.cuda.get_device_properties``); null on a CPU rank."""
    parameters: tuple[Parameter, ...]
    buffer_bytes: int = 0
    """Module buffers that are no parameters (statistics of batch norms): DDP broadcasts them before each forward pass."""
    segments: tuple[Segment, ...] = ()
    bare: StepTimes
    gradient_ready: tuple[GradientReady, ...] = ()
    """In order of arrival, parameters without a gradient left out."""
    free_steps: tuple[FreeStep, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    """The bare step at two batch sizes at least, and each strategy that was tried."""
    input_pipeline: Span | None = None
    """Time to the next batch on the device, with the training loop asking as fast as it can."""
    matmul_flops_per_second: float | None = None
    memory_bytes_per_second: float | None = None
    """Bytes read plus bytes written by a device copy."""
    overlap: tuple[Overlap, ...] = ()
    """Contention, where it was measured with the profile; otherwise the run of the wire has it."""
    optimizer_state_bytes: int | None = None
    """All states of the optimizer, unsharded."""
    host_load: HostLoad | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """``torch``, ``cuda``, ``nccl``, ``python``, ``cpu``, and variables that change timing."""
    notes: tuple[str, ...] = ()
    """What was seen that bears on a prediction: parameters without a gradient, a step that waits for the device, ..."""
    launches: int = 1
    """Separate processes whose samples are pooled here."""
    created_at: str | None = None
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"created_at", "multiprocessors"})

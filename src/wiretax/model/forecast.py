"""What is predicted, always as a range with its assumptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """low and high hold the middle 90 %."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A predicted step. ``efficiency_fraction`` = throughput(N) / (N x throughput(1)); the wire tax is one minus it."""

    strategy: str
    num_gpus: int
    wire: str
    workload: str
    step_seconds: Interval | None = None
    all_reduce_seconds: float | None = None
    """Only for the bare formula 2(N-1)/N x bytes / busbw."""
    efficiency_fraction: float | None = None
    wire_tax_fraction: float | None = None
    speedup: float | None = None
    """Throughput of N GPUs over that of one."""
    batch_per_gpu: int | None = None
    """Per micro-step; of a whole group under tensor and pipeline parallelism."""
    exposed_communication_seconds: Interval | None = None
    """Time in which the wire was busy and nothing was computed."""
    peak_memory_bytes: Interval | None = None
    """On each GPU, as torch's allocator counts."""
    fits: bool | None = None
    """Whether that fits the profiled GPU's memory, with what torch does not count; null also where the interval leaves it open."""
    assumptions: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce_seconds", "batch_per_gpu", "exposed_communication_seconds", "peak_memory_bytes", "fits"}
    )

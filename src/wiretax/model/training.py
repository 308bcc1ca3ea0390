"""Real training steps and one-GPU profiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wiretax.model.measurement import HostLoad
from wiretax.model.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Where a step's time went; communication counts only where nothing else ran."""

    forward: float | None = None
    backward: float | None = None
    optimizer: float | None = None
    exposed_communication: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """One training configuration, timed with a device synchronisation around every step."""

    strategy: str
    num_gpus: int
    wire: str
    workload: str
    batch_per_gpu: int
    """Of one micro-step."""
    accumulation_steps: int = 1
    """Micro-steps of one optimizer step."""
    step_seconds: float
    """Of one optimizer step."""
    samples_seconds: tuple[float, ...] = ()
    samples_per_second: float
    """Global: all GPUs together."""
    phases: Phases | None = None
    efficiency_fraction: float | None = None
    peak_memory_bytes: int | None = None
    launches: int = 1
    host_load: HostLoad | None = None
    """While it trained; null where somebody else timed it."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"phases", "host_load"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Profiles of a step on one GPU, and real steps at several GPU counts."""

    profiles: tuple[Profile, ...] = ()
    steps: tuple[StepTiming, ...] = ()

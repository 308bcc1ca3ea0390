"""What the ranks are asked to do: stages, each a function of measure/ or train/ run in a child of its own with its own environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OUT_OF_TIME = 4
"""Exit code of a stage child that found its time spent and had kept its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage: all ranks fork a child, which calls ``function`` and ends.

    Attributes:
        name: for people and for incidents (``compute``, ``wire:p2p_off``).
        function: ``module:function``, called as ``function(rank, **arguments)``.
        arguments: keyword arguments, JSON.
        environment: variables set (or, where null, taken away) in the child before CUDA or NCCL is touched.
        weight: share of the free time, relative to the other stages.
        overhead_seconds: start-up inside the child that is not measuring (CUDA context, communicator).
        min_seconds: below this the stage is skipped, since it could measure nothing.
        max_seconds: more than this brings nothing.
        wire: the wire it measures, for incidents.
        patience_seconds: a step forward may take so long before it counts as a hang, where that is more than a collective needs.
        ranks: only the first so many ranks take part; all when null.
        needs: names of stages; skipped when one of them did not complete (with its reason).
    """

    name: str
    title: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    weight: float = 1.0
    overhead_seconds: float = 0.3
    min_seconds: float = 0.3
    max_seconds: float = 1e9
    wire: str | None = None
    needs: tuple[str, ...] = ()
    patience_seconds: float = 0.0
    ranks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All of a run.

    Attributes:
        world_size: number of ranks on this host.
        device: ``cuda`` or ``cpu``.
        cuda_ordinals: the CUDA ordinal of each rank; empty on CPU.
        gpus: the NVML index of each rank; empty on CPU. Two ranks may share a GPU (peer truth on a one-GPU machine).
        stages: in the order in which they run.
    """

    world_size: int
    device: str
    cuda_ordinals: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Written by the coordinator to start a stage: ``soft_deadline`` is the rank's own, in monotonic seconds of this host."""

    stage: int
    soft_deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Written by a rank's parent when its stage child has ended."""

    rank: int
    stage: int
    exit_code: int | None
    signal: int | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Written by a rank's parent when it is ready (stage -1) or has forked a stage child."""

    rank: int
    stage: int
    pid: int
    started: int

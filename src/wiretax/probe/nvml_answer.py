"""What NVML answered, as values that cross from the asking child to its parent. Knows no pynvml."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wiretax.model.machine import Gpu, GpuPair

DriverState = Literal["ok", "absent", "mismatch", "hung", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlAnswer:
    """Everything NVML said about this machine, or as much as it said before it stopped.

    Attributes:
        driver_state: as in :class:`wiretax.model.machine.Machine`.
        driver_detail: what went wrong, in a sentence; None when nothing did.
        driver: the driver's version.
        cuda: the newest CUDA it supports.
        gpus: the GPUs read, in NVML order.
        pairs: every ordered pair of them.
        mig_devices: UUID of each MIG slice, and the NVML index of its GPU.
        missing: why ``driver`` or ``cuda`` is None.
        asking: what was being asked when this was written; None in a finished answer.
    """

    driver_state: DriverState
    driver_detail: str | None = None
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    mig_devices: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    asking: str | None = None
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"driver_detail", "asking"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One look at a GPU while it works. A reading the driver does not give is None, with the reason."""

    nvml_index: int
    sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    missing: dict[str, str] = field(default_factory=dict)

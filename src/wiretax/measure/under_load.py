"""The state of a GPU while it works: a thread that asks NVML a few times a second."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from wiretax.model.measurement import PcieUnderLoad
from wiretax.probe.nvml import NvmlSession
from wiretax.probe.nvml_answer import LoadSample

PERIOD_SECONDS = 0.04
_FIELDS = ("sm_clock_mhz", "throttle_reasons", "power_watts", "temperature_celsius", "pcie_generation", "pcie_width")


class UnderLoad:
    """Samples a GPU as long as the ``with`` block lasts; afterwards its properties say what was seen.

    Args:
        gpu: NVML index; None on a CPU rank, where everything is missing with that reason.
        session: how NVML is opened (tests give their own).
    """

    def __init__(self, gpu: int | None, session: Callable[[], Any] = NvmlSession) -> None:
        self._gpu, self._session = gpu, session
        self._samples: list[LoadSample] = []
        self._why = "a CPU rank has no GPU" if gpu is None else "the load was over before NVML had answered"
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Starts sampling."""
        if self._gpu is not None:
            self._thread = threading.Thread(target=self._ask, args=(self._gpu,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stops sampling; does not wait for an NVML that no longer answers."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _ask(self, gpu: int) -> None:
        with self._session() as nvml:
            if nvml.state != "ok":
                self._why = nvml.detail or "NVML cannot be asked"
                return
            while not self._ended.wait(PERIOD_SECONDS):
                self._samples.append(nvml.read_under_load(gpu))

    def _values(self, name: str) -> list[Any]:
        return [value for sample in self._samples if (value := getattr(sample, name)) is not None]

    def _median(self, name: str) -> float | None:
        values = self._values(name)
        return float(statistics.median(values)) if values else None

    @property
    def clock_mhz(self) -> float | None:
        """Median SM clock."""
        return self._median("sm_clock_mhz")

    @property
    def power_watts(self) -> float | None:
        """Median power draw."""
        return self._median("power_watts")

    @property
    def temperature_celsius(self) -> float | None:
        """Highest temperature."""
        values = self._values("temperature_celsius")
        return float(max(values)) if values else None

    @property
    def throttle_reasons(self) -> tuple[str, ...] | None:
        """The reasons for a reduced clock that held in at least a quarter of the looks."""
        looks: list[Sequence[str]] = self._values("throttle_reasons")
        if not looks:
            return None
        names = sorted({name for look in looks for name in look})
        return tuple(name for name in names if sum(name in look for look in looks) * 4 >= len(looks))

    @property
    def pcie(self) -> PcieUnderLoad:
        """The highest generation and width seen: links wake up only after the load has begun."""
        generations, widths = self._values("pcie_generation"), self._values("pcie_width")
        missing = {
            name: self.why(field)
            for name, field, values in (("generation", "pcie_generation", generations), ("width", "pcie_width", widths))
            if not values
        }
        return PcieUnderLoad(generation=max(generations, default=None), width=max(widths, default=None), missing=missing)

    def why(self, name: str) -> str:
        """The reason for a reading that is None."""
        reasons = [sample.missing[name] for sample in self._samples if name in sample.missing]
        return reasons[-1] if reasons else self._why

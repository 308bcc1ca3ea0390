"""How many steps are timed on which clock, and the passes themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from wiretax.model.profile import Phase
from wiretax.train.free import FreeWire
from wiretax.train.probes import Probes, listen
from wiretax.train.records import Samples
from wiretax.train.stopwatch import PHASES, Clock, StepRecord, Stopwatch
from wiretax.train.strategy import WrappedStep

if TYPE_CHECKING:
    import torch
    from torch import nn

EVENT_HOLD = 1.5
"""Marks on the device's clock are events, which take the host longer than those on its own: the waiting kernel lasts so much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to sample.

    Attributes:
        seconds: of timed steps, for the bare step and for each strategy; the fewest steps below are taken in any case.
        warm_up: untimed steps before (allocator, autotuned kernels; DDP rebuilds its buckets after the first).
        most: of ordinary steps.
        fewest: of ordinary steps.
    """

    seconds: float = 3.0
    warm_up: int = 5
    most: int = 20
    fewest: int = 5

    def steps(self, share: float, step_seconds: float, *, fewest: int, most: int) -> int:
        """Steps that fit into a share of the time."""
        return max(fewest, min(most, int(self.seconds * share / max(step_seconds, 1e-6))))


class Sampler:
    """Times one wrapped step in passes.

    Args:
        wrapped: the step.
        batch: used for every step.
        device: of the step.
        effort: how long.
        wire: stands for FSDP2's collectives, if there.
        tick: called after each step.
    """

    def __init__(
        self,
        wrapped: WrappedStep,
        batch: Any,
        device: torch.device,
        effort: Effort,
        *,
        wire: FreeWire | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._wrapped, self._batch, self._device, self._effort = wrapped, batch, device, effort
        self._wire, self._tick = wire, tick
        self._cuda = device.type == "cuda"

    def sample(self, parameters: Sequence[nn.Parameter] = (), *, why_one_clock: str = "", detail: bool = True) -> Samples:
        """All passes.

        Args:
            parameters: whose gradients are marked in the detailed passes.
            why_one_clock: not empty where host and device cannot be told apart (the step waits for the device in its midst).
            detail: whether to cut the step between its blocks.
        """
        step_seconds = median(one.step_seconds for one in self._passes("elapsed", self._effort.warm_up)[-3:])
        effort = self._effort
        elapsed = self._passes("elapsed", effort.steps(0.5, step_seconds, fewest=effort.fewest, most=effort.most))
        details = self._details(step_seconds) if detail else 0
        if not self._cuda or why_one_clock:
            marked = self._passes("elapsed", details, parameters)
            return Samples(elapsed=elapsed, device_detail=marked, host_detail=marked, why_one_clock=why_one_clock, one_clock=not self._cuda)
        host = self._passes("host", effort.steps(0.15, step_seconds, fewest=4, most=10))
        device = self._passes("device", effort.steps(0.15, step_seconds, fewest=4, most=10), hold=held_for(host, marked=False))
        device_detail, host_detail = self._both_clocks(details, parameters)
        return Samples(elapsed=elapsed, host=host, device=device, host_detail=host_detail, device_detail=device_detail)

    def details(self, parameters: Sequence[nn.Parameter]) -> tuple[list[StepRecord], list[StepRecord]]:
        """Marked steps on the device's and on the host's clock, after a short warm-up; the same ones twice on a CPU."""
        step_seconds = median(one.step_seconds for one in self._passes("host", 3)[1:])
        return self._both_clocks(self._details(step_seconds), parameters)

    def listened(self, world_size: int, steps: int = 3) -> tuple[list[StepRecord], list[StepRecord]]:
        """Steps in which all collectives are noted, on the device's and on the host's clock; the same ones twice on a CPU."""
        return self._both_clocks(steps, world_size=world_size)

    def _details(self, step_seconds: float) -> int:
        """How many marked steps."""
        return self._effort.steps(0.1, step_seconds, fewest=3, most=6)

    def _both_clocks(
        self, steps: int, parameters: Sequence[nn.Parameter] | None = None, *, world_size: int | None = None
    ) -> tuple[list[StepRecord], list[StepRecord]]:
        """The host's clock first: it says how long the device has to be held while its own is read."""
        if steps == 0:
            return [], []
        if not self._cuda:
            marked = self._passes("elapsed", steps, parameters, world_size=world_size)
            return marked, marked
        host = self._passes("host", steps, parameters, world_size=world_size)
        return self._passes("device", steps, parameters, hold=held_for(host, marked=True), world_size=world_size), host

    def _passes(
        self,
        clock: Clock,
        steps: int,
        parameters: Sequence[nn.Parameter] | None = None,
        *,
        hold: Mapping[Phase, float] | None = None,
        world_size: int | None = None,
    ) -> list[StepRecord]:
        """Some steps; marked where parameters are named (an empty list marks blocks only) or collectives are listened to."""
        watch = Stopwatch(self._device, clock, dict(hold or {}))
        found = []
        with ExitStack() as stack:
            if parameters is not None or world_size is not None:
                stack.enter_context(Probes(watch, self._wrapped.blocks, parameters or ()))
                if self._wire is not None:
                    self._wire.watch = watch
                    stack.callback(self._forget_watch)
            if world_size is not None:
                stack.enter_context(listen(watch, world_size))
            for _ in range(steps):
                if self._wire is not None:
                    self._wire.refresh()
                found.append(watch.run(self._wrapped, self._batch))
                self._tick()
        return found

    def _forget_watch(self) -> None:
        if self._wire is not None:
            self._wire.watch = None


def held_for(issued: Sequence[StepRecord], *, marked: bool) -> dict[Phase, float]:
    """How long the device has to be held in each phase while its own clock is read.

    Args:
        issued: the same steps on the host's clock.
        marked: whether events are recorded between the layers.
    """
    factor = EVENT_HOLD if marked else 1.0
    return {phase: factor * median(one.phases[phase] for one in issued) for phase in PHASES}

"""How many steps are timed on which clock, and the passes themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

DETAIL_HOLD = 3.0
"""Marks slow the host; the waiting kernel of a marked pass lasts so much longer."""
LISTEN_HOLD = 12.0
"""Noting collectives takes every operation through Python."""


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
        self._host_seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)

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
        details = effort.steps(0.1, step_seconds, fewest=3, most=6) if detail else 0
        if not self._cuda or why_one_clock:
            marked = self._passes("elapsed", details, parameters)
            return Samples(elapsed=elapsed, device_detail=marked, host_detail=marked, why_one_clock=why_one_clock, one_clock=not self._cuda)
        host = self._passes("host", effort.steps(0.15, step_seconds, fewest=4, most=10))
        self._host_seconds = {phase: median(one.phases[phase] for one in host) for phase in PHASES}
        return Samples(
            elapsed=elapsed,
            host=host,
            device=self._passes("device", effort.steps(0.15, step_seconds, fewest=4, most=10)),
            host_detail=self._passes("host", details, parameters),
            device_detail=self._passes("device", details, parameters, hold=DETAIL_HOLD),
        )

    def details(self, parameters: Sequence[nn.Parameter], steps: int = 5) -> tuple[list[StepRecord], list[StepRecord]]:
        """Marked steps on the device's and on the host's clock, after a short warm-up; the same ones twice on a CPU."""
        host = self._passes("host", 3)[1:]
        self._host_seconds = {phase: median(one.phases[phase] for one in host) for phase in PHASES}
        if not self._cuda:
            marked = self._passes("elapsed", steps, parameters)
            return marked, marked
        return self._passes("device", steps, parameters, hold=DETAIL_HOLD), self._passes("host", steps, parameters)

    def listened(self, world_size: int, steps: int = 3) -> tuple[list[StepRecord], list[StepRecord]]:
        """Steps in which all collectives are noted, on the device's and on the host's clock; after :meth:`sample`."""
        if not self._cuda:
            heard = self._passes("elapsed", steps, world_size=world_size)
            return heard, heard
        device = self._passes("device", steps, hold=LISTEN_HOLD, world_size=world_size)
        return device, self._passes("host", steps, world_size=world_size)

    def _passes(
        self,
        clock: Clock,
        steps: int,
        parameters: Sequence[nn.Parameter] | None = None,
        *,
        hold: float = 1.0,
        world_size: int | None = None,
    ) -> list[StepRecord]:
        """Some steps; marked where parameters are named (an empty list marks blocks only) or collectives are listened to."""
        held = {phase: seconds * hold for phase, seconds in self._host_seconds.items()}
        watch = Stopwatch(self._device, clock, held)
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

"""One step on one clock, with marks inside it.

elapsed   an ordinary step: device events between the phases, the wall clock around all of it.
host      the device is waited for before each phase, so that issuing the phase never meets a full queue or a device that is behind.
device    a kernel that only waits is queued first, and the phase behind it: when the device gets there, everything has been issued,
          and what passes between the events is the device's own time.

On a CPU rank calls return when they are done; the three are one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from wiretax.model.measurement import Operation
from wiretax.model.profile import Phase
from wiretax.train.strategy import WrappedStep

if TYPE_CHECKING:
    import torch

Clock = Literal["elapsed", "host", "device"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
Label = tuple[str, int]
"""What a mark is: ``("enter", i)`` and ``("leave", i)`` around block i in forward, ``("back", i)`` when backward reaches its output
(-1: the first block's input), ``("ready", p)`` when parameter p has its gradient."""

HOLD_FACTOR = 1.5
"""The waiting kernel lasts so much longer than the host is known to need; the rest of the host's bad luck is ``HOLD_MARGIN_SECONDS``."""
HOLD_MARGIN_SECONDS = 0.004
LONGEST_HOLD_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Call:
    """A collective as it was issued."""

    operation: Operation
    num_bytes: int
    phase: Phase
    blocking: bool
    seconds: float
    """From the start of the phase, on the clock of the step."""
    position: int
    """How many marks had been made in the phase."""


@dataclass(slots=True)
class StepRecord:
    """One timed step."""

    step_seconds: float
    phases: dict[Phase, float]
    """All micro-steps together."""
    first: dict[Phase, float] = field(default_factory=dict)
    """The first micro-step alone."""
    marks: dict[Phase, list[tuple[Label, float]]] = field(default_factory=dict)
    """By phase, in the order made, in seconds from its start."""
    calls: list[Call] = field(default_factory=list)


class Stopwatch:
    """Times steps on one device.

    Args:
        device: of the step.
        clock: which of the three.
        hold_seconds: by phase, how long the host needs to issue it; only for the device clock.
    """

    def __init__(self, device: torch.device, clock: Clock = "elapsed", hold_seconds: dict[Phase, float] | None = None) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self._clock: Clock = clock if self._cuda else "elapsed"
        self._hold = hold_seconds or {}
        self._phase: Phase | None = None
        self._stream: Any = None
        self._begin = 0.0
        self._entered: Any = None
        self._bounds: dict[Phase, list[tuple[Any, Any]]] = {}
        self._marks: dict[Phase, list[tuple[Label, Any]]] = {}
        self._calls: list[tuple[Operation, int, Phase, bool, Any, int]] = []

    @property
    def phase_now(self) -> Phase | None:
        """The phase that is being timed."""
        return self._phase

    def run(self, wrapped: WrappedStep, batch: Any, *, accumulation_steps: int = 1) -> StepRecord:
        """One step: forward and backward (several times, where gradients are accumulated), then the update.

        Marks and calls count from the first begin of their phase.
        """
        self.start()
        for micro in range(accumulation_steps):
            if accumulation_steps > 1:
                wrapped.set_sync(micro == accumulation_steps - 1)
            self.enter("forward")
            loss = wrapped.forward(batch)
            self.leave()
            self.enter("backward")
            wrapped.backward(loss)
            self.leave()
        self.enter("optimizer")
        wrapped.update()
        self.leave()
        return self.finish()

    def start(self) -> None:
        """A step begins."""
        self._phase = None
        self._bounds, self._marks, self._calls = {phase: [] for phase in PHASES}, {phase: [] for phase in PHASES}, []
        self._wait()
        if self._cuda:
            import torch

            self._stream = torch.cuda.current_stream(self._device)
        self._begin = time.perf_counter()

    def enter(self, phase: Phase) -> None:
        """A phase begins; no other may be running."""
        assert self._phase is None
        if self._clock != "elapsed":
            self._wait()
        if self._clock == "device":
            _queue_wait(self._device, min(HOLD_FACTOR * self._hold.get(phase, 0.0) + HOLD_MARGIN_SECONDS, LONGEST_HOLD_SECONDS))
        self._phase = phase
        self._entered = self._now()

    def leave(self) -> None:
        """The running phase ends."""
        assert self._phase is not None
        self._bounds[self._phase].append((self._entered, self._now()))
        self._phase = None

    def finish(self) -> StepRecord:
        """The step ends; every phase was there at least once."""
        self._wait()
        step = time.perf_counter() - self._begin
        phases = {phase: sum(self._between(*bounds) for bounds in self._bounds[phase]) for phase in PHASES}
        first = {phase: self._between(*self._bounds[phase][0]) for phase in PHASES}
        starts = {phase: self._bounds[phase][0][0] for phase in PHASES}
        marks = {phase: [(label, self._between(starts[phase], when)) for label, when in self._marks[phase]] for phase in PHASES}
        calls = [
            Call(operation, num_bytes, phase, blocking, self._between(starts[phase], when), position)
            for operation, num_bytes, phase, blocking, when, position in self._calls
        ]
        return StepRecord(step_seconds=step, phases=phases, first=first, marks=marks, calls=calls)

    def mark(self, label: Label) -> None:
        """Something of interest happened."""
        if self._phase is not None:
            self._marks[self._phase].append((label, self._now()))

    def call(self, operation: Operation, num_bytes: int, *, blocking: bool) -> None:
        """A collective was issued."""
        if self._phase is not None:
            self._calls.append((operation, num_bytes, self._phase, blocking, self._now(), len(self._marks[self._phase])))

    def _now(self) -> Any:
        """A moment: the host's clock, or an event on the stream that computes (a hook may run while another one is current)."""
        if not self._cuda or self._clock == "host":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def _between(self, first: Any, second: Any) -> float:
        if isinstance(first, float):
            return float(second - first)
        return float(first.elapsed_time(second)) / 1e3

    def _wait(self) -> None:
        if self._cuda:
            import torch

            torch.cuda.synchronize(self._device)


def _queue_wait(device: torch.device, seconds: float) -> None:
    """Queues a kernel that does nothing for so long."""
    import torch

    torch.cuda._sleep(int(seconds * _cycles_per_second(device)))


@cache
def _cycles_per_second(device: torch.device) -> float:
    """Of the clock that torch's waiting kernel counts, on a GPU that is awake."""
    import torch

    cycles, best = 20_000_000, 0.0
    with torch.cuda.device(device):
        for _ in range(3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            best = max(best, cycles / (begin.elapsed_time(end) / 1e3))
    return best

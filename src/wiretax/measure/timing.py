"""Timers for GPUs and CPUs, and when to stop sampling.

A *call* is what is repeated: one operation, or a CUDA graph of several. A *sample* is the mean over so many calls queued back to
back that it is long against the clock. A *burst* is several samples without a pause between them: on a GPU the host queues them all
and waits once, so that the samples show the pipeline and not the host's way back and forth.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.model.measurement import StopReason
from wiretax.probe.cgroup import cgroup_limits

if TYPE_CHECKING:
    import torch

UNTIMED_OPERATIONS = 5
"""Before each size: first-use set-up is large (ml-engineering saw 561 Gbit/s without and 3722 with it)."""
TIGHT_FRACTION = 0.02
"""The 95 % interval of the median is tight when half its width is below this share of the median."""
UNSTABLE_FRACTION = 0.10
"""pyperf's habit: an interquartile range above this share of the median marks a result."""
FIRST_SAMPLES = 6
"""The fewest with which the range of all samples holds the median with 95 % (1 - 2/2^6 = 97 %)."""
FEWEST_SAMPLES = 3
"""Taken even when the time is spent, so that a slow size has a median at all."""
MOST_SAMPLES = 96
"""More would only make the document longer: the spread is then the machine's own."""
MOST_CALLS = 256
CPUS_PER_RANK = 2
"""A rank that waits for its GPU asks without a pause where there are so many: one for it, one for the threads of its communicator."""
PAUSE_SECONDS = 50e-6
"""With fewer it sleeps between two questions: spinning ranks would take the time (and the container's quota) that NCCL's own threads need
to carry the data. What is measured lies between events on the GPU, so this is not in it."""

Join = Callable[[list[float], float], tuple[list[float], float]]
"""From this rank's samples and the seconds it has spent to those that count for all ranks; the same on every rank."""


def alone(samples: list[float], spent_seconds: float) -> tuple[list[float], float]:
    """The :data:`Join` of a measurement that concerns one rank only."""
    return samples, spent_seconds


@lru_cache(maxsize=256)
def interval_ranks(count: int) -> tuple[int, int] | None:
    """Which order statistics (0-based) bound the median with at least 95 %; None below six samples.

    The number of samples under the true median is binomial(count, 1/2), whatever their distribution.
    """
    total, tail, low = 2**count, 0, -1
    for below in range(count // 2):
        tail += math.comb(count, below)
        if tail / total > 0.025:
            break
        low = below
    return None if low < 0 else (low, count - 1 - low)


def is_tight(samples: Sequence[float]) -> bool:
    """Whether the median is known to within :data:`TIGHT_FRACTION`."""
    bounds = interval_ranks(len(samples))
    if bounds is None:
        return False
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    return (ordered[bounds[1]] - ordered[bounds[0]]) / 2 <= TIGHT_FRACTION * middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Samples and what they say. Seconds are of one operation."""

    seconds: float
    p95_seconds: float
    samples_seconds: tuple[float, ...]
    operations_per_sample: int
    stopped: StopReason
    unstable: bool


def summarise(samples: Sequence[float], *, operations_per_sample: int, stopped: StopReason) -> Summary:
    """Median, 95th percentile and stability of samples.

    Raises:
        ValueError: for no samples.
    """
    import numpy as np

    if not samples:
        raise ValueError("nothing was sampled")
    low, middle, high, p95 = (float(value) for value in np.percentile(np.asarray(samples, dtype=float), [25, 50, 75, 95]))
    return Summary(
        seconds=middle,
        p95_seconds=p95,
        samples_seconds=tuple(float(f"{sample:.6g}") for sample in samples),
        operations_per_sample=operations_per_sample,
        stopped=stopped,
        unstable=len(samples) >= 4 and (high - low) > UNSTABLE_FRACTION * middle,
    )


class Timer(Protocol):
    """Times bursts of calls on one device."""

    shortest_sample_seconds: float
    """A sample should last at least this long."""

    def burst(self, call: Callable[[], Any], *, lead: int, samples: int, calls: int) -> list[float]:
        """Seconds of one call in each of ``samples`` samples of ``calls`` calls, after ``lead`` untimed calls.

        Where the call is a collective, the lead brings the ranks to the same moment.
        """
        ...

    def wait(self) -> None:
        """Returns when everything that was queued is done.

        Raises:
            OutOfTimeError: that did not happen before the deadline.
        """
        ...


class CpuTimer:
    """The host's monotonic clock around calls that return when they are done."""

    shortest_sample_seconds = 200e-6
    """Against tens of nanoseconds of the clock, and a few microseconds of a context switch."""

    def __init__(self, rank: Rank, clock: Callable[[], float] = time.perf_counter) -> None:
        self._rank = rank
        self._clock = clock

    def burst(self, call: Callable[[], Any], *, lead: int, samples: int, calls: int) -> list[float]:
        """See :class:`Timer`."""
        for _ in range(lead):
            call()
        taken = []
        for _ in range(samples):
            start = self._clock()
            for _ in range(calls):
                call()
            taken.append((self._clock() - start) / calls)
            self._rank.tick()
        return taken

    def wait(self) -> None:
        """Nothing is ever queued."""


class CudaTimer:
    """CUDA events on the current stream. The first event lies behind the lead, so all ranks pass it together."""

    shortest_sample_seconds = 400e-6
    """Against half a microsecond of an event's resolution and the microseconds by which ranks leave a collective apart."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._events: list[torch.cuda.Event] = []
        self._pause = 0.0 if processors() >= CPUS_PER_RANK * rank.world_size else PAUSE_SECONDS

    def burst(self, call: Callable[[], Any], *, lead: int, samples: int, calls: int) -> list[float]:
        """See :class:`Timer`."""
        import torch

        while len(self._events) <= samples:
            self._events.append(torch.cuda.Event(enable_timing=True))
        for _ in range(lead):
            call()
        self._events[0].record()
        for sample in range(samples):
            for _ in range(calls):
                call()
            self._events[sample + 1].record()
            self._rank.tick()
        self._wait_for(self._events[samples])
        return [self._events[at].elapsed_time(self._events[at + 1]) / 1e3 / calls for at in range(samples)]

    def wait(self) -> None:
        """See :class:`Timer`."""
        import torch

        event = torch.cuda.Event()
        event.record()
        self._wait_for(event)

    def _wait_for(self, event: torch.cuda.Event) -> None:
        """Asks again and again instead of synchronising: a collective that hangs must not take this thread with it."""
        while not event.query():
            if self._rank.seconds_left <= 0:
                raise OutOfTimeError("the GPU did not finish what was queued")
            time.sleep(self._pause)  # also lets a thread that reads the GPU's state meanwhile have its turn


@cache
def processors() -> float:
    """How many processors this process may use: by its affinity and by the quota of its control groups."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = cgroup_limits().cpus
    return allowed if quota is None else min(allowed, quota)


def timer_for(rank: Rank) -> Timer:
    """The timer of the rank's device."""
    return CudaTimer(rank) if rank.is_cuda else CpuTimer(rank)


class Sampler:
    """Samples one call until the median is known well enough.

    Every decision depends only on what ``join`` returned, so ranks that share a ``join`` make the same number of calls.
    """

    def __init__(
        self,
        timer: Timer,
        call: Callable[[], Any],
        *,
        operations_per_call: int = 1,
        join: Join = alone,
        prepare: Callable[[], None] | None = None,
        earlier: Summary | None = None,
        fill_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a sampler.

        Args:
            timer: of the device.
            call: what is repeated.
            operations_per_call: more than one for a graph.
            join: see :data:`Join`.
            prepare: untimed work before each burst (renewing the data).
            earlier: samples of the same call, to be added to.
            fill_seconds: keep the device busy for so long instead of stopping when the median is known: for loads that must last,
                because others load something at the same time or because the device's state is read meanwhile.
            clock: for the time that may be spent.
        """
        self._timer, self._call, self._join, self._prepare, self._clock = timer, call, join, prepare, clock
        self._operations_per_call = operations_per_call
        self._fill = fill_seconds is not None
        self._sample_seconds = max(timer.shortest_sample_seconds, (fill_seconds or 0.0) / (MOST_SAMPLES / 2))
        self._samples: list[float] = list(earlier.samples_seconds) if earlier else []
        self._calls = max(1, earlier.operations_per_sample // operations_per_call) if earlier else 0
        self._started = clock()
        self._spent = 0.0
        self.operation_seconds = earlier.seconds if earlier else 0.0
        """A first idea of one operation's time, from the untimed operations; then the median."""

    def warm_up(self) -> float:
        """The untimed operations; returns the seconds of one and decides how many calls make a sample."""
        taken = self._burst(lead=UNTIMED_OPERATIONS - 2, samples=1, calls=2)
        seconds, self._spent = self._join(taken, self._clock() - self._started)
        self.operation_seconds = seconds[0]
        if not self._calls:
            call_seconds = max(seconds[0] * self._operations_per_call, 1e-9)
            self._calls = min(max(math.ceil(self._sample_seconds / call_seconds), 1), MOST_CALLS)
        return self.operation_seconds

    def sample(self, seconds: float, *, most: int = MOST_SAMPLES) -> Summary:
        """Takes samples until they are tight, there are ``most`` of them, or time is spent (both called ``budget``).

        Args:
            seconds: counted from the making of this sampler; ranks that share a ``join`` must give the same.
            most: samples in all.
        """
        if self._is_done():
            return self._summary("tight")
        while True:
            sample_seconds = max(self.operation_seconds * self._operations_per_call * self._calls, 1e-9)
            affordable = int(min((seconds - self._spent) / sample_seconds, MOST_SAMPLES))
            fewest = max(0, FEWEST_SAMPLES - len(self._samples))
            # bursts double, so that few of them are needed and the interval is looked at often enough
            count = min(max(FIRST_SAMPLES, len(self._samples)), max(affordable, fewest), max(most - len(self._samples), 0))
            if count <= 0:
                return self._summary("budget")
            taken = self._burst(lead=1, samples=count, calls=self._calls)
            slowest, self._spent = self._join(taken, self._clock() - self._started)
            self._samples += slowest
            self.operation_seconds = sorted(self._samples)[len(self._samples) // 2]
            if self._is_done():
                return self._summary("tight")

    def _is_done(self) -> bool:
        return not self._fill and is_tight(self._samples)

    def _burst(self, *, lead: int, samples: int, calls: int) -> list[float]:
        if self._prepare is not None:
            self._prepare()
        taken = self._timer.burst(self._call, lead=lead, samples=samples, calls=calls)
        return [seconds / self._operations_per_call for seconds in taken]

    def _summary(self, stopped: StopReason) -> Summary:
        return summarise(self._samples, operations_per_sample=self._calls * self._operations_per_call, stopped=stopped)


def measure(rank: Rank, call: Callable[[], Any], *, seconds: float, fill: bool = False) -> Summary:
    """Warms up and samples a call that concerns this rank only.

    Args:
        rank: this rank.
        call: queues (GPU) or does (CPU) the work once.
        seconds: the most to spend, the untimed calls included.
        fill: see ``fill_seconds`` of :class:`Sampler`.
    """
    sampler = Sampler(timer_for(rank), call, clock=rank.clock, fill_seconds=seconds if fill else None)
    sampler.warm_up()
    return sampler.sample(seconds)

"""One step as the host and the device see it: a host that issues work ahead, a compute stream, and the wire.

A :class:`Program` is a list of tasks in the order in which the host issues them. Each task belongs to a stream, waits for the
host to have issued it, for the task before it in its stream, and for the tasks it names. While both streams are busy each runs
slower by its contention rate. Everything is an array over Monte-Carlo draws, so that one pass simulates them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

COMPUTE = 0
WIRE = 1
_MAX_DEPENDENCIES = 3
_ISSUE_GRAIN = 0.5e-3
"""Seconds of host time that one task stands for where many kernels are issued."""
_MOST_PARTS = 6
_EPSILON = 1e-12
"""Seconds; below any kernel, above the rounding of a step of minutes."""


@dataclass(slots=True)
class Program:
    """Tasks in host order. Add them with :meth:`compute` and :meth:`wire`, then :func:`simulate`.

    ``num_draws`` is the length of every array of seconds; plain floats are the same in every draw.
    """

    num_draws: int
    streams: list[int] = field(default_factory=list)
    work: list[Array | float] = field(default_factory=list)
    host: list[Array | float] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def compute(self, seconds: Array | float, *, host: Array | float = 0.0, after: tuple[int, ...] = ()) -> int:
        """Queues work on the compute stream.

        Args:
            seconds: how long it takes alone.
            host: host time that passes before it is issued, counted from the issue of the task before it.
            after: tasks that must have finished.

        Returns:
            The task, to be named in ``after``.
        """
        return self._add(COMPUTE, seconds, host, after)

    def kernels(self, seconds: Array | float, *, host_seconds: float, host: Array | float = 1.0, after: tuple[int, ...] = ()) -> int:
        """Queues many kernels that the host issues one after the other: the first runs while the last is still being issued.

        Args:
            seconds: of all of them.
            host_seconds: to issue all of them, undisturbed; decides into how many tasks they are cut.
            host: factor on it, per draw.
            after: tasks that must have finished before the first.
        """
        parts = min(max(round(host_seconds / _ISSUE_GRAIN), 1), _MOST_PARTS)
        task = self.compute(seconds / parts, host=host_seconds / parts * host, after=after)
        for _ in range(parts - 1):
            task = self.compute(seconds / parts, host=host_seconds / parts * host)
        return task

    def wire(self, seconds: Array | float, *, host: Array | float = 0.0, after: tuple[int, ...] = ()) -> int:
        """Queues a collective; the wire carries one at a time, in the order of issue."""
        return self._add(WIRE, seconds, host, after)

    def mark(self, name: str, task: int) -> None:
        """Names a task whose finish a caller wants (``forward``, ``backward``)."""
        self.marks[name] = task

    def _add(self, stream: int, seconds: Array | float, host: Array | float, after: tuple[int, ...]) -> int:
        task = len(self.streams)
        assert len(after) <= _MAX_DEPENDENCIES and all(0 <= other < task for other in after)
        self.streams.append(stream)
        self.work.append(seconds)
        self.host.append(host)
        self.after.append(after)
        return task


@dataclass(frozen=True, slots=True)
class Rates:
    """What is left of each stream's speed while the other is busy too: 1 is unhindered, 0.8 is a fifth slower. Per draw."""

    compute: Array | float = 1.0
    wire: Array | float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds from the start of the step, per draw."""

    finish: Array
    """Of the last task, or of the host where it is later."""
    marks: dict[str, Array]
    compute_busy: Array
    """Time in which the compute stream had something running, contention included."""
    exposed_wire: Array
    """Time in which the wire was busy and the compute stream was not."""


def simulate(program: Program, rates: Rates | None = None) -> Outcome:
    """Runs a program through.

    Args:
        program: tasks in the host's order.
        rates: contention; None for streams that do not disturb each other.

    Returns:
        Finish times per draw. The same program always gives the same answer.
    """
    import numpy as np

    rates = rates or Rates()
    draws, tasks = program.num_draws, len(program.streams)
    lanes = np.arange(draws)
    # Row `tasks` stands for "no more tasks" (never issued), row `tasks + 1` for "no dependency" (finished long ago).
    work = np.zeros((tasks + 2, draws))
    issued = np.full((tasks + 2, draws), np.inf)
    after = np.full((tasks + 2, _MAX_DEPENDENCIES), tasks + 1)
    host_clock = np.zeros(draws)
    queues: tuple[list[int], list[int]] = ([], [])
    for task in range(tasks):
        host_clock = host_clock + program.host[task]
        issued[task] = host_clock
        work[task] = program.work[task]
        after[task, : len(program.after[task])] = program.after[task]
        queues[program.streams[task]].append(task)
    done = np.full((tasks + 2, draws), np.inf)
    done[tasks + 1] = -np.inf
    order = [np.asarray([*queue, tasks]) for queue in queues]
    slowed = [np.broadcast_to(np.asarray(rate, dtype=float), (draws,)) for rate in (rates.compute, rates.wire)]
    used_dependencies = max((len(names) for names in program.after), default=0)

    pointer = [np.zeros(draws, dtype=np.intp), np.zeros(draws, dtype=np.intp)]
    current = [order[stream][pointer[stream]] for stream in (COMPUTE, WIRE)]
    left = [work[current[stream], lanes] for stream in (COMPUTE, WIRE)]
    clock, busy, exposed = np.zeros(draws), np.zeros(draws), np.zeros(draws)
    while True:
        start = []
        for stream in (COMPUTE, WIRE):
            begin = issued[current[stream], lanes]
            for column in range(used_dependencies):
                begin = np.maximum(begin, done[after[current[stream], column], lanes])
            start.append(begin)
        active = [start[stream] <= clock for stream in (COMPUTE, WIRE)]
        both = active[COMPUTE] & active[WIRE]
        speed = [np.where(both, slowed[stream], 1.0) for stream in (COMPUTE, WIRE)]
        until = [np.where(active[stream], left[stream] / speed[stream], start[stream] - clock) for stream in (COMPUTE, WIRE)]
        step = np.minimum(until[COMPUTE], until[WIRE])
        step = np.where(np.isfinite(step), step, 0.0)
        clock = clock + step
        busy += np.where(active[COMPUTE], step, 0.0)
        exposed += np.where(active[WIRE] & ~active[COMPUTE], step, 0.0)
        moved = False
        for stream in (COMPUTE, WIRE):
            left[stream] = np.where(active[stream], left[stream] - step * speed[stream], left[stream])
            over = active[stream] & (left[stream] <= _EPSILON)
            if over.any():
                moved = True
                done[current[stream][over], lanes[over]] = clock[over]
                pointer[stream][over] += 1
                current[stream] = order[stream][pointer[stream]]
                left[stream][over] = work[current[stream][over], lanes[over]]
        if not moved and not step.any():
            break
    assert np.isfinite(done[:tasks]).all(), "a program waits for itself"
    finish = np.maximum(done[:tasks].max(axis=0) if tasks else 0.0, host_clock)
    return Outcome(finish, {name: done[task].copy() for name, task in program.marks.items()}, busy, exposed)

"""One step as the host and the device see it: a host that issues work ahead, a compute stream, and the wire.

A :class:`Program` is a list of tasks in the order in which the host issues them. Each task belongs to a stream, waits for the
host to have issued it, for the task before it in its stream, and for the one it names. While both streams are busy each runs
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
_NEVER = 1e30
"""Seconds; stands for infinity, of which differences would not be numbers."""
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
    after: list[int | None] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def compute(self, seconds: Array | float, *, host: Array | float = 0.0, after: int | None = None) -> int:
        """Queues work on the compute stream.

        Args:
            seconds: how long it takes alone.
            host: host time that passes before it is issued, counted from the issue of the task before it.
            after: a task that must have finished, beside the one before in the stream.

        Returns:
            The task, to be named in ``after``.
        """
        return self._add(COMPUTE, seconds, host, after)

    def kernels(self, seconds: Array | float, *, host_seconds: float, host: Array | float = 1.0, after: int | None = None) -> int:
        """Queues many kernels that the host issues one after the other: the first runs while the last is still being issued.

        Args:
            seconds: of all of them.
            host_seconds: to issue all of them, undisturbed; decides into how many tasks they are cut.
            host: factor on it, per draw.
            after: a task that must have finished before the first.
        """
        parts = min(max(round(host_seconds / _ISSUE_GRAIN), 1), _MOST_PARTS)
        task = self.compute(seconds / parts, host=host_seconds / parts * host, after=after)
        for _ in range(parts - 1):
            task = self.compute(seconds / parts, host=host_seconds / parts * host)
        return task

    def wire(self, seconds: Array | float, *, host: Array | float = 0.0, after: int | None = None) -> int:
        """Queues a collective; the wire carries one at a time, in the order of issue."""
        return self._add(WIRE, seconds, host, after)

    def mark(self, name: str, task: int) -> None:
        """Names a task whose finish a caller wants (``forward``, ``backward``)."""
        self.marks[name] = task

    def _add(self, stream: int, seconds: Array | float, host: Array | float, after: int | None) -> int:
        task = len(self.streams)
        assert after is None or 0 <= after < task
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
    exposed_wire: Array
    """Time in which the wire was busy and the compute stream was not."""


def finish_alone(program: Program) -> Array:
    """When a program ends if its streams do not disturb each other: one pass in the order of issue, much faster than a simulation."""
    import numpy as np

    finish: list[Array] = []
    host_clock = np.zeros(program.num_draws)
    newest: list[Array] = [host_clock, host_clock]
    for task, stream in enumerate(program.streams):
        host_clock = host_clock + program.host[task]
        begin = np.maximum(host_clock, newest[stream])
        before = program.after[task]
        if before is not None:
            begin = np.maximum(begin, finish[before])
        newest[stream] = begin + program.work[task]
        finish.append(newest[stream])
    return np.maximum(np.maximum(newest[COMPUTE], newest[WIRE]), host_clock)


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
    # Tables by task and draw, flattened: a task in a draw is one number, so that one `take` reads a whole set of draws. Row `tasks`
    # stands for "no more tasks" (never issued), row `tasks + 1` for "no dependency" (finished long ago).
    work = np.zeros((tasks + 2, draws))
    issued = np.full((tasks + 2, draws), _NEVER)
    done = np.full((tasks + 2, draws), _NEVER)
    done[tasks + 1] = -_NEVER
    waits_for = np.full(tasks + 2, tasks + 1)
    following = np.full(tasks + 2, tasks)
    newest = [tasks, tasks]
    first = [tasks, tasks]
    host_clock = np.zeros(draws)
    for task, stream in enumerate(program.streams):
        host_clock = host_clock + program.host[task]
        issued[task] = host_clock
        work[task] = program.work[task]
        if program.after[task] is not None:
            waits_for[task] = program.after[task]
        if newest[stream] == tasks:
            first[stream] = task
        else:
            following[newest[stream]] = task
        newest[stream] = task
    lanes = np.arange(draws)
    flat_work, flat_issued, flat_done = work.ravel(), issued.ravel(), done.ravel()
    flat_waits = (waits_for[:, None] * draws + lanes).ravel()
    flat_following = (following[:, None] * draws + lanes).ravel()
    slowed = [np.broadcast_to(np.asarray(rate, dtype=float), (draws,)) for rate in (rates.compute, rates.wire)]
    current = [first[stream] * draws + lanes for stream in (COMPUTE, WIRE)]
    left = [flat_work.take(current[stream]) for stream in (COMPUTE, WIRE)]
    clock, exposed = np.zeros(draws), np.zeros(draws)
    while True:
        start = [np.maximum(flat_issued.take(one), flat_done.take(flat_waits.take(one))) for one in current]
        computing, sending = start[COMPUTE] <= clock, start[WIRE] <= clock
        both = computing & sending
        speeds = [np.where(both, rate, 1.0) for rate in slowed]
        step = np.minimum(
            np.where(computing, left[COMPUTE] / speeds[COMPUTE], start[COMPUTE] - clock),
            np.where(sending, left[WIRE] / speeds[WIRE], start[WIRE] - clock),
        )
        step[step > _NEVER / 2] = 0.0
        clock += step
        exposed += step * (sending & ~computing)
        moved = False
        for stream, active in ((COMPUTE, computing), (WIRE, sending)):
            left[stream] -= step * speeds[stream] * active
            over = np.flatnonzero(active & (left[stream] <= _EPSILON))
            if over.size:
                moved = True
                finished = current[stream][over]
                flat_done[finished] = clock[over]
                current[stream][over] = flat_following[finished]
                left[stream][over] = flat_work[current[stream][over]]
        if not moved and not step.any():
            break
    finishes = done[:tasks]
    assert (finishes < _NEVER).all(), "a program waits for itself"
    finish = np.maximum(finishes.max(axis=0) if tasks else 0.0, host_clock)
    return Outcome(finish, {name: done[task].copy() for name, task in program.marks.items()}, exposed)

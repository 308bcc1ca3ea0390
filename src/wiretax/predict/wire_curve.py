"""The wire as curves: seconds of one collective by operation, world size and message size, never one number.

Measured points are joined by straight lines in log-log; outside them, at other world sizes and for other operations the curve
follows an explicit model, says so, and is less sure of itself.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wiretax.errors import UsageError
from wiretax.model.measurement import Collective, Measurements, Operation, Point
from wiretax.predict.growth import Growth, growth
from wiretax.units import size

REPEAT_SIGMA = 0.03
"""Relative spread between two launches over a quiet wire (recorded 2x H200: shared memory 0.5 to 3 %, NVLink 1 to 3 %)."""

UNSAMPLED_SIGMA = 0.05
"""The same where a curve came without raw samples, so that a disturbed sweep cannot be told from a quiet one."""

TYPED_WORLD_SIGMA = 0.12
"""Added per doubling for a typed number, which is meant for any number of GPUs."""

BETWEEN_SIGMA = 0.10
"""Added between two measured numbers of GPUs, beside what these differ by: an odd number may break rings that even ones have."""

OPERATION_SIGMA = 0.10
"""Added where an operation was derived from another (recorded 2x H200: all-gather busbw is 0.81 to 0.98 of all-reduce busbw)."""

SIZE_SIGMA = 0.05
"""Added per doubling beyond the largest (or below the smallest) measured message (recorded NVLink: busbw still grows by 3 to 7 % per
doubling from 128 MiB to 1 GiB)."""

DISTURBED_FRACTION = 0.15
"""NCCL works through fixed buffers, so above 1 MiB a byte does not get dearer with size; a point this much dearer was disturbed."""

BANDWIDTH_BYTES = 2**20
"""From here on the wire, not the start-up, decides."""


def bus_factor(operation: Operation, world_size: int) -> float:
    """Busbw over algbw, exactly as nccl-tests has it (its PERFORMANCE.md); 0 on one rank, where nothing moves."""
    n = world_size
    if n <= 1:
        return 0.0
    return {
        "all_reduce": 2 * (n - 1) / n,
        "all_gather": (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_to_all": (n - 1) / n,
        "broadcast": 1.0,
        "send_recv": 1.0,
    }[operation]


def ring_steps(operation: Operation, world_size: int) -> int:
    """Hops in a ring, one after the other (NCCL ``src/graph/tuning.cc``)."""
    n = world_size
    return {"all_reduce": 2 * (n - 1), "send_recv": 1}.get(operation, n - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds by message size of one operation at one world size."""

    operation: Operation
    world_size: int
    num_bytes: tuple[float, ...]
    """Ascending."""
    times: tuple[float, ...]
    """Seconds, ascending with the size."""
    sigma: float
    """Relative (log-normal) spread that all points share from launch to launch, towards faster."""
    slower_sigma: float | None = None
    """The same towards slower, where that differs."""
    launch_seconds: float = 0.0
    """What the host pays to issue one call, where eager timings show it."""
    typed: bool = False
    """Somebody said so, for any number of GPUs; nothing was measured."""
    assumptions: tuple[str, ...] = ()

    def seconds(self, num_bytes: float) -> float:
        """Time of one collective.

        Args:
            num_bytes: as nccl-tests counts (all-gather and reduce-scatter totals).

        Returns:
            Seconds; 0 for nothing to send. Below the smallest point its time, above the largest its rate.
        """
        if num_bytes <= 0 or not self.times:
            return 0.0
        if num_bytes <= self.num_bytes[0]:
            return self.times[0]
        if num_bytes >= self.num_bytes[-1]:
            return self.times[-1] * num_bytes / self.num_bytes[-1]
        right = bisect.bisect_right(self.num_bytes, num_bytes)
        x0, x1 = math.log(self.num_bytes[right - 1]), math.log(self.num_bytes[right])
        y0, y1 = math.log(self.times[right - 1]), math.log(self.times[right])
        return math.exp(y0 + (y1 - y0) * (math.log(num_bytes) - x0) / (x1 - x0))

    def busbw(self, num_bytes: float) -> float:
        """Bus bandwidth in bytes per second at a size."""
        seconds = self.seconds(num_bytes)
        return bus_factor(self.operation, self.world_size) * num_bytes / seconds if seconds else 0.0

    def sigma_at(self, num_bytes: float) -> float:
        """Relative spread towards faster at a size, wider outside the measured ones."""
        return self._outside(self.sigma, num_bytes)

    def slower_sigma_at(self, num_bytes: float) -> float:
        """The same towards slower."""
        return self._outside(self.sigma if self.slower_sigma is None else self.slower_sigma, num_bytes)

    def _outside(self, sigma: float, num_bytes: float) -> float:
        if not self.num_bytes or num_bytes <= 0:
            return sigma
        outside = max(num_bytes / self.num_bytes[-1], self.num_bytes[0] / num_bytes, 1.0)
        return math.hypot(sigma, SIZE_SIGMA * math.log2(outside))

    def beyond(self, num_bytes: float) -> str | None:
        """A sentence where a size lies outside the measured ones, None inside."""
        if not self.num_bytes or self.num_bytes[0] <= num_bytes <= self.num_bytes[-1] or num_bytes <= 0:
            return None
        if num_bytes > self.num_bytes[-1]:
            return f"{self.operation} above {size(self.num_bytes[-1])} keeps the rate of that size"
        return f"{self.operation} below {size(self.num_bytes[0])} takes as long as that size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Everything known of one wire: its measured curves, and models for what was not measured.

    Build it with :meth:`measured`, :meth:`of_points` or :meth:`of_busbw`.
    """

    name: str
    curves: tuple[Curve, ...]
    switched: bool | None = None
    """Whether a switch joins the GPUs; None where that is not known. Decides how sure other numbers of GPUs are."""

    @classmethod
    def measured(cls, measurements: Measurements, wire: str, *, switched: bool | None = None) -> Wire:
        """The wire as this tool measured it.

        Args:
            measurements: of a run.
            wire: ``Collective.wire``.
            switched: see :func:`~wiretax.predict.growth.joined_by_switch`.

        Raises:
            UsageError: nothing was measured over that wire.
        """
        # Where several sets of GPUs were measured at one size (best and worst pair), a job gets the first ones.
        found = sorted((one for one in measurements.collectives if one.wire == wire and one.points), key=lambda one: one.gpus)
        first = {(one.operation, one.world_size): one.gpus for one in reversed(found)}
        found = [one for one in found if one.gpus == first[one.operation, one.world_size]]
        curves = _curves((one.operation, one.world_size, one.mode, _points(one)) for one in found)
        if not curves:
            known = sorted({one.wire for one in measurements.collectives if one.points})
            raise UsageError(
                f"no collective was measured over the wire {wire!r}.",
                do=f"Measured wires: {', '.join(known)}." if known else "Measure one with `wiretax check`, or type --busbw.",
            )
        return cls(name=wire, curves=curves, switched=switched)

    @classmethod
    def of_points(cls, name: str, operation: Operation, world_size: int, points: Iterable[tuple[float, float]]) -> Wire:
        """A wire known from somebody else's table (nccl-tests): pairs of bytes and seconds.

        Raises:
            UsageError: no usable point.
        """
        rows: Rows = [(size, seconds, ()) for size, seconds in points if size > 0 and seconds > 0]
        curves = _curves([(operation, world_size, "eager", rows)])
        if not curves:
            raise UsageError(f"the table of {name} holds no size with a time.")
        return cls(name=name, curves=curves)

    @classmethod
    def of_busbw(cls, busbw_bytes_per_second: float, *, latency_seconds: float = 0.0, name: str = "typed") -> Wire:
        """A wire known by one typed number: the same busbw at every size and world size.

        Args:
            busbw_bytes_per_second: of the all-reduce, as nccl-tests prints it.
            latency_seconds: added to each call on 2 GPUs.
            name: for the forecast.

        Raises:
            UsageError: a rate that is not above 0, or a negative latency.
        """
        if not (busbw_bytes_per_second > 0 and math.isfinite(busbw_bytes_per_second) and latency_seconds >= 0):
            raise UsageError(
                f"busbw {busbw_bytes_per_second:g} B/s and latency {latency_seconds:g} s do not describe a wire.",
                do="Give a busbw above 0, for example --busbw 22GB/s.",
            )
        sizes = tuple(float(2**power) for power in range(3, 41))
        factor = bus_factor("all_reduce", 2)
        curve = Curve(
            operation="all_reduce",
            world_size=2,
            num_bytes=sizes,
            times=tuple(latency_seconds + factor * size / busbw_bytes_per_second for size in sizes),
            sigma=0.10,
            typed=True,
            assumptions=("busbw as typed, the same at every size and world size: short messages will be slower",),
        )
        return cls(name=name, curves=(curve,))

    def curve(self, operation: Operation, world_size: int) -> Curve:
        """The best curve for an operation at a world size: measured, or derived with the assumption named.

        Args:
            operation: which collective.
            world_size: ranks; 1 gives a curve of zeros.
        """
        if world_size <= 1:
            return Curve(operation=operation, world_size=1, num_bytes=(), times=(), sigma=0.0)
        same = sorted((one for one in self.curves if one.operation == operation), key=lambda one: one.world_size)
        if same:
            return _at_world_size(same, world_size, self.switched)
        for source in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv", "all_to_all"):
            known = sorted((one for one in self.curves if one.operation == source), key=lambda one: one.world_size)
            if known:
                return _as_operation(_at_world_size(known, world_size, self.switched), operation)
        raise UsageError(f"the wire {self.name!r} holds no curve at all.")

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those that were measured, ascending."""
        return tuple(sorted({one.world_size for one in self.curves}))


Rows = list[tuple[float, float, tuple[float, ...]]]


def _points(collective: Collective) -> Rows:
    return [(point.num_bytes, point.seconds, _relative(point)) for point in collective.points if point.seconds > 0]


def _relative(point: Point) -> tuple[float, ...]:
    return tuple(sample / point.seconds for sample in point.samples_seconds if sample > 0)


def _curves(sweeps: Iterable[tuple[Operation, int, str, Rows]]) -> tuple[Curve, ...]:
    """One curve an operation and world size, out of its eager and its graph sweep."""
    gathered: dict[tuple[Operation, int], dict[str, Rows]] = {}
    for operation, world_size, mode, rows in sweeps:
        if world_size > 1 and rows:
            gathered.setdefault((operation, world_size), {}).setdefault(mode, []).extend(rows)
    return tuple(_joined(operation, world_size, modes) for (operation, world_size), modes in gathered.items())


def _joined(operation: Operation, world_size: int, modes: dict[str, Rows]) -> Curve:
    """The wire's own time: of the eager and the graph timing of a size the smaller one."""
    timings: dict[float, list[float]] = {}
    spreads: list[float] = []
    floor = UNSAMPLED_SIGMA
    for rows in modes.values():
        for num_bytes, seconds, samples in rows:
            timings.setdefault(num_bytes, []).append(seconds)
            if len(samples) >= 5 and num_bytes >= BANDWIDTH_BYTES:
                spreads.append(robust_sigma(samples))
                floor = REPEAT_SIGMA
    twice = [abs(math.log(max(both) / min(both))) for num_bytes, both in timings.items() if len(both) > 1 and num_bytes >= BANDWIDTH_BYTES]
    if twice:
        spreads.append(_median(twice) * 1.4826 / math.sqrt(2))
    sigma = math.hypot(_median(spreads) if spreads else 0.0, floor)
    sizes = sorted(timings)
    # Disturbances, and a host that cannot issue fast enough, only ever add time.
    times = [min(timings[size]) for size in sizes]
    for index in range(1, len(sizes)):
        dearest = times[index - 1] / sizes[index - 1] * sizes[index] * (1 + DISTURBED_FRACTION)
        if sizes[index - 1] >= BANDWIDTH_BYTES and times[index] > dearest:
            times[index] = dearest
    for index in range(len(sizes) - 2, -1, -1):
        times[index] = min(times[index], times[index + 1])
    eager = [seconds for size, seconds, _ in modes.get("eager", []) if size <= 4096]
    return Curve(
        operation=operation,
        world_size=world_size,
        num_bytes=tuple(sizes),
        times=tuple(times),
        sigma=sigma,
        launch_seconds=_median(eager) if eager and "graph" in modes else 0.0,
    )


def _at_world_size(curves: list[Curve], world_size: int, switched: bool | None) -> Curve:
    exact = [one for one in curves if one.world_size == world_size]
    if exact:
        return exact[0]
    below = [one for one in curves if one.world_size < world_size]
    above = [one for one in curves if one.world_size > world_size]
    if not below or not above:
        return _ring(below[-1] if below else above[0], world_size, switched)
    low, high = _ring(below[-1], world_size, switched), _ring(above[0], world_size, switched)
    share = math.log(world_size / below[-1].world_size) / math.log(above[0].world_size / below[-1].world_size)
    sizes = tuple(sorted({*low.num_bytes, *high.num_bytes}))
    times = tuple(low.seconds(size) ** (1 - share) * high.seconds(size) ** share for size in sizes)
    # both ends are known, so the truth lies between them more likely than beyond: at most as far apart as they are
    apart = abs(math.log(low.seconds(sizes[-1]) / high.seconds(sizes[-1]))) / 2
    sigma = math.hypot(max(below[-1].sigma, above[0].sigma), REPEAT_SIGMA, BETWEEN_SIGMA, apart)
    assumption = f"{low.operation} on {world_size} GPUs lies between the measured {below[-1].world_size} and {above[0].world_size}"
    return replace(low, num_bytes=sizes, times=times, sigma=sigma, slower_sigma=None, assumptions=(assumption,))


def _ring(source: Curve, world_size: int, switched: bool | None) -> Curve:
    """The alpha-beta ring: start-up grows with the hops, the rest with the bus factor."""
    hops = ring_steps(source.operation, world_size) / ring_steps(source.operation, source.world_size)
    factor = bus_factor(source.operation, world_size) / bus_factor(source.operation, source.world_size)
    times = _stretched(source.times, hops, factor)
    if source.typed:
        typed = TYPED_WORLD_SIGMA * abs(math.log2(world_size / source.world_size))
        spread, words = Growth(typed, typed), ""
    else:
        spread = growth(source.busbw(source.num_bytes[-1]), source.world_size, world_size, switched=switched)
        words = f"; other machines had {spread.words}"
    assumption = (
        f"{source.operation} on {world_size} GPUs from the measured {source.world_size} by the ring model "
        f"(same busbw, start-up by the number of hops{words})"
    )
    return replace(
        source,
        world_size=world_size,
        times=times,
        sigma=math.hypot(source.sigma, spread.faster_sigma),
        slower_sigma=math.hypot(source.sigma, spread.slower_sigma),
        assumptions=(*source.assumptions, assumption),
    )


def _as_operation(source: Curve, operation: Operation) -> Curve:
    n = source.world_size
    hops = ring_steps(operation, n) / ring_steps(source.operation, n)
    times = _stretched(source.times, hops, bus_factor(operation, n) / bus_factor(source.operation, n))
    assumption = f"{operation} has the busbw of {source.operation}, which was measured"
    sigma, slower = (math.hypot(one, OPERATION_SIGMA) for one in (source.sigma, source.slower_sigma or source.sigma))
    return replace(
        source, operation=operation, times=times, sigma=sigma, slower_sigma=slower, assumptions=(*source.assumptions, assumption)
    )


def _stretched(times: tuple[float, ...], hops: float, factor: float) -> tuple[float, ...]:
    start = times[0]
    return tuple(start * hops + (seconds - start) * factor for seconds in times)


def robust_sigma(samples: Sequence[float]) -> float:
    """Spread of the logarithms by the median deviation (1.4826 makes it a standard deviation for normal noise)."""
    logs = [math.log(one) for one in samples if one > 0]
    centre = _median(logs)
    return 1.4826 * _median([abs(one - centre) for one in logs])


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

"""Sweeps collective operations over message sizes on one wire.

The most useful figures come first, so that a sweep that is cut short leaves a curve: all-reduce over a coarse grid of sizes, then
the sizes between, then the other operations likewise, and only then more samples wherever the median is not known well yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wiretax.measure import operations as ops
from wiretax.measure import transport
from wiretax.measure.buffers import Arenas, make_arenas
from wiretax.measure.groups import Group, open_group, plan_groups
from wiretax.measure.host_load import HostLoadMeter, meter_of
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.measure.rotation import Graph, Rotation
from wiretax.measure.timing import FIRST_SAMPLES, MOST_SAMPLES, UNTIMED_OPERATIONS, Sampler, Summary, timer_for
from wiretax.model.measurement import OPERATIONS, Collective, Incident, Mode, Operation, Point, Transport
from wiretax.units import size as size_text

SIZES = tuple(2**power for power in range(3, 31))
"""8 B to 1 GiB."""
COARSE_STRIDE = 3
ALL_REDUCE_WEIGHT = 4
"""All-reduce gets so many times the time of another operation: everything else is predicted from it first."""
CLOSING_SECONDS = 0.2
"""Kept back for the last operation that takes longer than planned."""
QUICK_SHARE = 0.75
"""Of the time, for the first few samples of all sizes; what was left out for its length and refining get the rest."""
SAMPLES_A_VISIT = 24
"""Samples are added in several visits: what disturbs a size for a few milliseconds must not be all that is seen of it."""
_UNSUPPORTED = ("not supported", "not support", "unsupported", "not implemented", "no backend type")


@dataclass(slots=True)
class _Series:
    """One operation and mode while it is measured."""

    operation: Operation
    mode: Mode
    points: dict[int, Summary] = field(default_factory=dict)
    too_slow: set[int] = field(default_factory=set)
    too_large: set[int] = field(default_factory=set)
    impossible: str | None = None


def _can_be_better(summary: Summary) -> bool:
    return summary.stopped != "tight" and len(summary.samples_seconds) < MOST_SAMPLES


def sweep(
    rank: Rank,
    *,
    backend: Literal["nccl", "gloo"],
    wire: str,
    operations: Sequence[Operation] = OPERATIONS,
    sizes: Sequence[int] = SIZES,
    modes: Sequence[Mode] = ("eager", "graph"),
    world_sizes: Sequence[int],
    seconds: float | None = None,
    environment: dict[str, str] | None = None,
    pairs: Sequence[Sequence[int]] = (),
) -> None:
    """Measures operations over one wire; every rank of the stage calls this.

    Each size is kept the moment it is measured, and again when it is known better. A series that cannot be measured (CUDA graphs on
    gloo, send/recv of CUDA tensors on gloo, ...) is kept without points and with the reason under ``missing["points"]``; so are the
    sizes that were left out.

    Args:
        rank: this rank.
        backend: of torch.distributed.
        wire: the name of the wire that the environment of this process asks for.
        operations: in the order in which they matter.
        sizes: bytes as nccl-tests counts them.
        modes: ``eager`` is what a training loop pays, ``graph`` what the wire does.
        world_sizes: how many ranks, from rank 0 on; the largest is measured first.
        seconds: for everything; until the deadline by default.
        environment: what this wire changed, to be kept with the results.
        pairs: further groups, by rank, for instance the best and the worst pair.

    Raises:
        OutOfTimeError: the deadline passed while waiting for another rank or for the GPU.
        RuntimeError: the backend failed; an incident with operation and size has been kept.
    """
    started = rank.clock()
    end = min(rank.deadline, started + seconds if seconds is not None else rank.deadline) - CLOSING_SECONDS
    meter = meter_of(rank)
    groups = plan_groups(rank.world_size, world_sizes, pairs)
    for number, members in enumerate(groups):
        share = max(rank.agree("sweep/share", end - rank.clock()), 0.0) / (len(groups) - number)
        if rank.rank in members:
            group = Group(members=members, index=members.index(rank.rank), name=f"{number}:{'-'.join(map(str, members))}")
            meter.start()
            last = not any(rank.rank in later for later in groups[number + 1 :])
            _GroupSweep(rank, group, backend, wire, environment or {}, meter).run(operations, modes, sizes, share, last=last)
        rank.exchange("sweep/group", True)


class _GroupSweep:
    """The sweep of one group of ranks."""

    def __init__(
        self,
        rank: Rank,
        group: Group,
        backend: Literal["nccl", "gloo"],
        wire: str,
        environment: dict[str, str],
        meter: HostLoadMeter,
    ) -> None:
        self._rank, self._group, self._backend, self._meter = rank, group, backend, meter
        self._requested, self._environment = wire, environment
        self._wire = wire
        self._wire_requested: str | None = None
        self._position: tuple[str, int | None] = ("connect", None)
        self._transports: tuple[Transport, ...] = ()
        self._timer = timer_for(rank)
        self._verified: dict[Operation, dict[int, bool]] = {}
        self._eager: dict[tuple[Operation, int], float] = {}
        self._end = 0.0

    def run(self, operations: Sequence[Operation], modes: Sequence[Mode], sizes: Sequence[int], seconds: float, *, last: bool) -> None:
        """Opens the group, measures for at most ``seconds``, closes it unless it is this rank's last."""
        rank, group = self._rank, self._group
        started = rank.clock()
        series = [_Series(operation, mode, impossible=self._impossible(operation, mode)) for operation in operations for mode in modes]
        rank.at("connect", self._requested, None, group.size)
        try:
            with open_group(rank, self._backend, group, last=last):
                self._connect()
                self._end = started + seconds
                arenas = make_arenas(rank, max(sizes, default=8), group.members, group.name)
                self._measure([one for one in series if one.impossible is None], sorted(set(sizes)), arenas)
                if self._backend == "nccl":
                    self._read_transports()
                self._finish(series)
        except OutOfTimeError:
            raise
        except RuntimeError as error:
            self._report(error)
            raise

    def _impossible(self, operation: Operation, mode: Mode) -> str | None:
        """Why a series cannot exist, if so."""
        if mode == "graph" and self._backend == "gloo":
            return "gloo runs on the host and cannot be captured in a CUDA graph"
        if mode == "graph" and not self._rank.is_cuda:
            return "CPU ranks have no CUDA graphs"
        if operation == "send_recv" and self._backend == "gloo" and self._rank.is_cuda:
            return "gloo does not send and receive CUDA tensors"
        if operation == "send_recv" and self._group.size < 2:
            return "a single rank has nobody to send to"
        return None

    def _connect(self) -> None:
        """The first operations, which join the ranks; then the log says over what."""
        import torch
        import torch.distributed as dist

        tensor = torch.ones(1 << 18, device=self._rank.device)
        for elements in (2, tensor.numel()):
            dist.all_reduce(tensor[:elements])
            self._timer.wait()
        self._rank.tick()
        if self._backend != "nccl":
            return
        self._read_transports()
        self._wire, self._wire_requested = transport.name_wire(self._requested, self._transports)
        if self._group.is_first and (path := transport.loaded_nccl()) is not None:
            version = ".".join(map(str, torch.cuda.nccl.version()))
            self._rank.emit_fact("nccl_loaded", {"path": path, "version": version})

    def _read_transports(self) -> None:
        """From the debug files of all members, each reading its own."""
        members = self._group.members
        found = self._rank.exchange(f"{self._group.name}/transports", transport.own_channels(os.environ), members)
        channels = [{(source, target, name): count for source, target, name, count in one} for one in found]
        self._transports = transport.join_channels(channels, [self._rank.gpus[member] for member in members])

    def _measure(self, series: list[_Series], sizes: list[int], arenas: Arenas) -> None:
        """Quickly first, the most useful first; then better."""
        started, seconds = self._rank.clock(), max(self._end - self._rank.clock(), 0.0)
        coarse = sizes[::-1][::COARSE_STRIDE][::-1]
        between = [size for size in sizes if size not in coarse]
        first = [one for one in series if one.operation == "all_reduce"]
        others = [one for one in series if one.operation != "all_reduce"]
        other_operations = len({one.operation for one in others})
        first_share = QUICK_SHARE * ALL_REDUCE_WEIGHT / (ALL_REDUCE_WEIGHT + other_operations)
        for some, share in ((first, first_share), (others, QUICK_SHARE)):
            for grid in (coarse, between):
                for number, one in enumerate(some):
                    self._quickly(one, grid, arenas, started + share * seconds, len(some) - number)
        for number, one in enumerate((*first, *others)):
            self._quickly(one, sizes, arenas, self._end, len(series) - number)
        self._refine(series, arenas)

    def _refine(self, series: list[_Series], arenas: Arenas) -> None:
        """More samples where the median is not known well, in rounds; unstable sizes first, all-reduce with the larger share."""
        while True:
            todo = [(one, size) for one in series for size, summary in sorted(one.points.items()) if _can_be_better(summary)]
            todo.sort(key=lambda each: (each[0].operation != "all_reduce", not each[0].points[each[1]].unstable))
            weights = [ALL_REDUCE_WEIGHT if one.operation == "all_reduce" else 1 for one, _ in todo]
            refined = 0
            for number, (one, size) in enumerate(todo):
                left = self._agree(self._end - self._rank.clock())
                if left <= 0:
                    return
                share = left * weights[number] / sum(weights[number:])
                if share > (UNTIMED_OPERATIONS + FIRST_SAMPLES) * one.points[size].seconds * one.points[size].operations_per_sample:
                    self._one(one, size, arenas, share, len(one.points[size].samples_seconds) + SAMPLES_A_VISIT)
                    refined += 1
            if not refined:
                return

    def _quickly(self, series: _Series, sizes: list[int], arenas: Arenas, until: float, series_left: int) -> None:
        """A few samples of each size, from small to large, leaving out what would take more than this series' share."""
        for size in sizes:
            if series.impossible is not None:
                return
            shape = ops.shape_of(series.operation, size, self._group.size)
            if shape.num_bytes in series.points:
                continue
            if 4 * max(shape.source_elements, shape.target_elements) > arenas.num_bytes:
                series.too_large.add(shape.num_bytes)
                continue
            left = until - self._rank.clock()
            cost = (UNTIMED_OPERATIONS + 2 + FIRST_SAMPLES / 2) * self._estimate(series, shape.num_bytes)
            # half of the share: the sizes around this one cost about as much together
            go = left > 0 and cost <= 0.5 * left / series_left
            go = go or (not series.points and self._end > self._rank.clock())
            seconds = self._agree(max(0.5 * left / series_left, 0.0) if go else None)
            if seconds is None:
                series.too_slow.add(shape.num_bytes)
                continue
            self._one(series, shape.num_bytes, arenas, seconds, FIRST_SAMPLES)

    def _estimate(self, series: _Series, num_bytes: int) -> float:
        """Seconds of one operation, from the nearest smaller size known of this series; zero where nothing is known."""
        known = [size for size in series.points if size <= num_bytes]
        return series.points[max(known)].seconds * num_bytes / max(known) if known else 0.0

    def _one(self, series: _Series, size: int, arenas: Arenas, seconds: float, most: int) -> None:
        """Measures one size of one series, better than before if it was measured, and keeps it. All members give the same ``seconds``."""
        rank, group = self._rank, self._group
        shape = ops.shape_of(series.operation, size, group.size)
        self._position = (series.operation, shape.num_bytes)
        rank.at(series.operation, self._wire, shape.num_bytes, group.size)
        slices = arenas.slices(shape.source_elements, shape.target_elements)
        try:
            self._verify(series.operation, shape, slices[0])
        except (RuntimeError, NotImplementedError) as error:
            if not any(words in str(error).lower() for words in _UNSUPPORTED):
                raise
            series.impossible = f"{self._backend} on {rank.device.type}: {str(error).splitlines()[0]}"
            return
        rotation = Rotation(series.operation, slices, group.index, group.size)
        earlier = series.points.get(shape.num_bytes)
        graph = None
        call: Callable[[], Any] = rotation
        if series.mode == "graph":
            graph = self._capture(series, rotation, self._eager.get((series.operation, shape.num_bytes)), earlier)
            if graph is None:
                return
            call = graph.replay
        sampler = Sampler(
            self._timer,
            call,
            operations_per_call=graph.operations if graph else 1,
            join=self._join,
            prepare=rotation.renew,
            earlier=earlier,
            clock=rank.clock,
        )
        sampler.warm_up()
        summary = sampler.sample(seconds, most=most)
        if graph is not None:
            graph.release()
        if summary.seconds <= 0:  # one rank alone has nothing to do in some operations
            series.impossible = "shorter than the clock can tell"
            return
        series.points[shape.num_bytes] = summary
        series.too_slow.discard(shape.num_bytes)
        if series.mode == "eager":
            self._eager[series.operation, shape.num_bytes] = summary.seconds
        if group.is_first:
            rank.emit_point(self._header(series), self._point(series.operation, shape.num_bytes, summary))

    def _capture(self, series: _Series, rotation: Rotation, eager_seconds: float | None, earlier: Summary | None) -> Graph | None:
        """A graph of as many operations as make a good sample; None where that fails (on every rank alike, which they agree on)."""
        if earlier is not None:
            operations = Graph.operations_of(earlier)
        else:
            if eager_seconds is None:
                taken, _ = self._join(self._timer.burst(rotation, lead=2, samples=1, calls=2), 0.0)
                eager_seconds = taken[0]
            operations = Graph.operations_for(eager_seconds, self._timer.shortest_sample_seconds)
        self._timer.wait()
        graph, why = None, ""
        try:
            graph = Graph(rotation, operations)
        except RuntimeError as error:
            why = str(error).splitlines()[0]
        reasons = self._rank.exchange(f"{self._group.name}/capture", why, self._group.members)
        if any(reasons):
            series.impossible = f"the operation could not be captured in a CUDA graph: {next(filter(None, reasons))}"
            return None
        return graph

    def _verify(self, operation: Operation, shape: ops.Shape, buffers: tuple[Any, Any]) -> None:
        """Compares the result by value, once per operation and size; wrong data is an incident, and measuring goes on."""
        done = self._verified.setdefault(operation, {})
        if shape.num_bytes in done:
            return
        group, (source, target) = self._group, buffers
        ops.prepare(operation, source, target, group.index, group.size)
        ops.run(operation, source, target, group.index, group.size)
        self._timer.wait()
        right = ops.is_right(operation, target, group.index, group.size)
        if not right:
            self._incident("wrong_data", operation, shape.num_bytes, "the result did not hold the values that the ranks had given")
        done[shape.num_bytes] = all(self._rank.exchange(f"{group.name}/right", right, group.members))

    def _join(self, samples: list[float], spent: float) -> tuple[list[float], float]:
        """The slowest rank of each sample, and the time as the first member sees it: the same for all, so that all go on alike."""
        everybody = self._rank.exchange(f"{self._group.name}/samples", [samples, spent], self._group.members)
        return [max(column) for column in zip(*(taken for taken, _ in everybody), strict=True)], everybody[0][1]

    def _agree(self, value: Any) -> Any:
        return self._rank.agree(f"{self._group.name}/agree", value, self._group.members[0])

    def _point(self, operation: Operation, num_bytes: int, summary: Summary) -> Point:
        algbw = num_bytes / summary.seconds
        return Point(
            num_bytes=num_bytes,
            seconds=summary.seconds,
            p95_seconds=summary.p95_seconds,
            algbw_bytes_per_second=algbw,
            busbw_bytes_per_second=algbw * ops.bus_factor(operation, self._group.size),
            samples_seconds=summary.samples_seconds,
            operations_per_sample=summary.operations_per_sample,
            stopped=summary.stopped,
            unstable=summary.unstable,
        )

    def _header(self, series: _Series) -> Collective:
        missing = {}
        name = transport.describe(self._transports) if self._backend == "nccl" else "gloo/tcp"
        if name is None:
            missing["transport"] = "NCCL's debug file names no channel between ranks" if self._group.size > 1 else "one rank has no peer"
        verified = self._verified.get(series.operation)
        if not verified:
            missing["verified"] = "not measured"
        if series.impossible is not None:
            missing["points"] = series.impossible
        elif series.too_large or series.too_slow:
            missing["points"] = "; ".join(
                f"{', '.join(size_text(size) for size in sorted(sizes))}: {why}"
                for sizes, why in (
                    (series.too_large, "does not fit into free memory"),
                    (series.too_slow, "would take longer than there was time for"),
                )
                if sizes
            )
        return Collective(
            backend=self._backend,
            operation=series.operation,
            wire=self._wire,
            wire_requested=self._wire_requested,
            world_size=self._group.size,
            gpus=tuple(self._rank.gpus[member] for member in self._group.members) if self._rank.gpus else (),
            mode=series.mode,
            transport=name,
            transports=self._transports,
            verified=all(verified.values()) if verified else None,
            environment=self._environment,
            host_load=self._meter.read(),
            missing=missing,
        )

    def _finish(self, series: list[_Series]) -> None:
        """The last word on every series: what could not be measured and why, the load over all of it."""
        if self._group.is_first:
            for one in series:
                self._rank.emit_point(self._header(one), None)

    def _report(self, error: RuntimeError) -> None:
        """An incident at the place where the backend failed; gloo says by an error that a peer did not answer in time."""
        text = str(error)
        kind: Literal["hang", "error"] = "hang" if "timed out" in text.lower() or "timeout" in text.lower() else "error"
        self._incident(kind, *self._position, text)

    def _incident(self, kind: Literal["hang", "error", "wrong_data"], operation: str, num_bytes: int | None, detail: str) -> None:
        self._rank.emit(
            Incident(
                kind=kind,
                stage=f"wire:{self._requested}",
                rank=self._rank.rank,
                gpu=self._rank.gpu,
                operation=operation,
                wire=self._wire,
                num_bytes=num_bytes,
                world_size=self._group.size,
                detail=detail,
            )
        )

"""Sweeps collective operations over message sizes on one wire.

The most useful figures come first, so that a sweep that is cut short leaves a curve: all-reduce over a coarse grid of sizes, then
the sizes between, then the other operations likewise, and only then more samples wherever the median is not known well yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from wiretax.measure import operations as ops
from wiretax.measure import transport
from wiretax.measure.buffers import Arenas, make_arenas
from wiretax.measure.groups import Group, open_group, plan_groups
from wiretax.measure.host_load import meter_of
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.measure.rotation import Graph, Rotation
from wiretax.measure.series import Backend, Scribe, Series
from wiretax.measure.timing import FIRST_SAMPLES, MOST_SAMPLES, UNTIMED_OPERATIONS, Sampler, Summary, timer_for
from wiretax.model.measurement import OPERATIONS, Mode, Operation

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


def _can_be_better(summary: Summary) -> bool:
    return summary.stopped != "tight" and len(summary.samples_seconds) < MOST_SAMPLES


def sweep(
    rank: Rank,
    *,
    backend: Backend,
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
            scribe = Scribe(rank, group, backend, wire, environment or {}, meter)
            _GroupSweep(rank, group, backend, scribe).run(operations, modes, sizes, share, last=last)
        rank.exchange("sweep/group", True)


class _GroupSweep:
    """The sweep of one group of ranks."""

    def __init__(self, rank: Rank, group: Group, backend: Backend, scribe: Scribe) -> None:
        self._rank, self._group, self._backend, self._scribe = rank, group, backend, scribe
        self._position: tuple[str, int | None] = ("connect", None)
        self._timer = timer_for(rank)
        self._known: dict[int, float] = {}
        self._end = 0.0

    def run(self, operations: Sequence[Operation], modes: Sequence[Mode], sizes: Sequence[int], seconds: float, *, last: bool) -> None:
        """Opens the group, measures for at most ``seconds``, closes it unless it is this rank's last."""
        rank, group, scribe = self._rank, self._group, self._scribe
        self._end = rank.clock() + seconds
        right: dict[Operation, dict[int, bool]] = {operation: {} for operation in operations}
        series = [Series(one, mode, right[one], impossible=self._impossible(one, mode)) for one in operations for mode in modes]
        rank.at("connect", scribe.wire, None, group.size)
        try:
            with open_group(rank, self._backend, group, last=last):
                self._connect()
                arenas = make_arenas(rank, max(sizes, default=8), group.members, group.name)
                self._measure([one for one in series if one.impossible is None], sorted(set(sizes)), arenas)
                scribe.read_transports()
                for one in series:
                    scribe.keep(one)
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
        self._scribe.name_wire()
        if self._group.is_first and (path := transport.loaded_nccl()) is not None:
            version = ".".join(map(str, torch.cuda.nccl.version()))
            self._rank.emit_fact("nccl_loaded", {"path": path, "version": version})

    def _measure(self, series: list[Series], sizes: list[int], arenas: Arenas) -> None:
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

    def _refine(self, series: list[Series], arenas: Arenas) -> None:
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

    def _quickly(self, series: Series, sizes: list[int], arenas: Arenas, until: float, series_left: int) -> None:
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
            left, cost = until - self._rank.clock(), self._quick_seconds(shape.num_bytes)
            # half of the share: the sizes around this one cost about as much together
            go = left > 0 and cost <= 0.5 * left / series_left
            # a series with nothing at all is worth more than its share
            go = go or (not series.points and cost < self._end - self._rank.clock())
            seconds = self._agree(max(0.5 * left / series_left, 0.0) if go else None)
            if seconds is None:
                series.too_slow.add(shape.num_bytes)
                continue
            self._one(series, shape.num_bytes, arenas, seconds, FIRST_SAMPLES)

    def _quick_seconds(self, num_bytes: int) -> float:
        """What a first look at a size will take, from what is known of other sizes; zero where nothing is."""
        if not self._known:
            return 0.0
        near = max((size for size in self._known if size <= num_bytes), default=min(self._known))
        return (UNTIMED_OPERATIONS + 2 + FIRST_SAMPLES / 2) * self._known[near] * max(num_bytes / near, 1.0)

    def _one(self, series: Series, size: int, arenas: Arenas, seconds: float, most: int) -> None:
        """Measures one size of one series, better than before if it was measured, and keeps it. All members give the same ``seconds``."""
        rank, group = self._rank, self._group
        shape = ops.shape_of(series.operation, size, group.size)
        self._position = (series.operation, shape.num_bytes)
        rank.at(series.operation, self._scribe.wire, shape.num_bytes, group.size)
        slices = arenas.slices(shape.source_elements, shape.target_elements)
        try:
            self._verify(series, shape, slices[0])
        except RuntimeError as error:  # NotImplementedError is one
            if not any(words in str(error).lower() for words in _UNSUPPORTED):
                raise
            series.impossible = f"{self._backend} on {rank.device.type}: {str(error).splitlines()[0]}"
            return
        rotation = Rotation(series.operation, slices, group.index, group.size)
        earlier = series.points.get(shape.num_bytes)
        graph = None
        call: Callable[[], Any] = rotation
        if series.mode == "graph":
            graph = self._capture(series, rotation, earlier)
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
        self._known[shape.num_bytes] = summary.seconds
        self._scribe.keep(series, shape.num_bytes)

    def _capture(self, series: Series, rotation: Rotation, earlier: Summary | None) -> Graph | None:
        """A graph of as many operations as make a good sample; None where that fails (on every rank alike, which they agree on)."""
        if earlier is not None:
            operations = Graph.operations_of(earlier)
        else:
            taken, _ = self._join(self._timer.burst(rotation, lead=1, samples=1, calls=2), 0.0)
            operations = Graph.operations_for(taken[0], self._timer.shortest_sample_seconds)
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

    def _verify(self, series: Series, shape: ops.Shape, buffers: tuple[Any, Any]) -> None:
        """Compares the result by value, once per operation and size; wrong data is an incident, and measuring goes on."""
        if shape.num_bytes in series.right:
            return
        group, (source, target), operation = self._group, buffers, series.operation
        ops.prepare(operation, source, target, group.index, group.size)
        ops.run(operation, source, target, group.index, group.size)
        self._timer.wait()
        right = ops.is_right(operation, target, group.index, group.size)
        if not right:
            why = "the result did not hold the values that the ranks had given"
            self._scribe.incident("wrong_data", operation, shape.num_bytes, why)
        series.right[shape.num_bytes] = all(self._rank.exchange(f"{group.name}/right", right, group.members))

    def _join(self, samples: list[float], spent: float) -> tuple[list[float], float]:
        """The slowest rank of each sample, and the time as the first member sees it: the same for all, so that all go on alike."""
        everybody = self._rank.exchange(f"{self._group.name}/samples", [samples, spent], self._group.members)
        return [max(column) for column in zip(*(taken for taken, _ in everybody), strict=True)], everybody[0][1]

    def _agree(self, value: Any) -> Any:
        return self._rank.agree(f"{self._group.name}/agree", value, self._group.members[0])

    def _report(self, error: RuntimeError) -> None:
        """An incident at the place where the backend failed; a backend's own time-out is a hang."""
        text = str(error)
        kind: Literal["hang", "error"] = "hang" if "timed out" in text.lower() or "timeout" in text.lower() else "error"
        self._scribe.incident(kind, *self._position, text)

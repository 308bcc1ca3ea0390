"""A run as rows of plain numbers: what charts draw, tables list and other programs read. Nothing here knows how it looks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wiretax.model.machine import Machine
from wiretax.model.measurement import OPERATIONS, Collective, Compute, Expected, Point
from wiretax.model.run import Run
from wiretax.model.training import Phases
from wiretax.show.topology import one_way
from wiretax.show.training import Row, joined_rows

WIRE_ORDER = ("default", "clean", "p2p_forced", "p2p_off", "ethernet", "socket", "gloo")
"""From what is used to what is only compared with; wires of other names follow."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A run and what it is called in a picture that shows several."""

    label: str
    run: Run


@dataclass(frozen=True, slots=True)
class WirePoint:
    """One measured message size."""

    label: str
    wire: str
    operation: str
    world_size: int
    mode: str
    num_bytes: int
    seconds: float
    busbw: float
    """Bytes per second."""
    unstable: bool


@dataclass(frozen=True, slots=True)
class PairRate:
    """One ordered pair of GPUs: what the driver claims, what was measured, what it should reach (bytes per second)."""

    label: str
    source: int
    target: int
    path: str | None
    p2p: str | None
    measured: float | None
    route: str | None
    """``direct`` or ``staged``: how the measured copy went."""
    expected: float | None
    low: float | None


@dataclass(frozen=True, slots=True)
class GpuRate:
    """What one GPU (or CPU rank) computes."""

    label: str
    name: str
    order: int
    alone: float | None
    together: float | None
    """Operations per second, alone and while all others compute."""
    memory: float | None
    behind: float
    """Share by which it is slower than the median of all, computing together; negative for a faster one."""
    held_back: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step."""

    label: str
    strategy: str
    wire: str
    num_gpus: int
    workload: str
    name: str
    seconds: float
    measured: bool
    kind: str = ""
    """How many of what it ran on, in words."""


def wire_order(wires: Iterable[str]) -> list[str]:
    """The wires, each once, in the order of :data:`WIRE_ORDER`."""
    known = dict.fromkeys(wires)
    return [wire for wire in WIRE_ORDER if wire in known] + sorted(wire for wire in known if wire not in WIRE_ORDER)


def operation_order(operations: Iterable[str]) -> list[str]:
    """The operations, each once, all-reduce first."""
    known = set(operations)
    return [name for name in OPERATIONS if name in known] + sorted(known - set(OPERATIONS))


def wire_points(items: Sequence[Labelled]) -> list[WirePoint]:
    """Every measured size of every collective."""
    return [
        WirePoint(item.label, c.wire, c.operation, c.world_size, c.mode, p.num_bytes, p.seconds, p.busbw_bytes_per_second, p.unstable)
        for item in items
        for c in item.run.measurements.collectives
        for p in c.points
        if p.num_bytes > 0 and p.seconds > 0 and p.busbw_bytes_per_second > 0
    ]


def best_points(points: Iterable[WirePoint]) -> list[WirePoint]:
    """The better of eager and CUDA graph at each size."""
    best: dict[tuple[str, str, str, int, int], WirePoint] = {}
    for point in points:
        key = (point.label, point.wire, point.operation, point.world_size, point.num_bytes)
        if key not in best or point.busbw > best[key].busbw:
            best[key] = point
    return list(best.values())


def peak(run: Run, wire: str, operation: str = "all_reduce") -> tuple[Point, Collective] | None:
    """The fastest point of a wire at its largest number of ranks, eager or graph."""
    found = [c for c in run.measurements.collectives if c.wire == wire and c.operation == operation and c.points]
    largest = max((c.world_size for c in found), default=0)
    ranked = [(p, c) for c in found if c.world_size == largest for p in c.points]
    return max(ranked, key=lambda pair: pair[0].busbw_bytes_per_second, default=None)


def expectation(run: Run, subject: str, wire: str, world_size: int) -> Expected | None:
    """What this machine should reach on an operation over a wire."""
    return next((e for e in run.expectations if (e.subject, e.wire, e.world_size) == (subject, wire, world_size)), None)


def wires_of(run: Run, operation: str = "all_reduce") -> list[str]:
    """The wires over which an operation was measured."""
    return wire_order(c.wire for c in run.measurements.collectives if c.operation == operation and c.points)


def pair_rates(items: Sequence[Labelled]) -> list[PairRate]:
    """Every ordered pair of every run's machine."""
    rows = []
    for item in items:
        machine = item.run.machine
        if machine is None:
            continue
        direct, staged = one_way(item.run.measurements.copies, "direct"), one_way(item.run.measurements.copies, "staged")
        expected = {
            (e.source_gpu, e.target_gpu, e.wire): e for e in item.run.expectations if e.subject == "pair_copy" and e.source_gpu is not None
        }
        for pair in machine.pairs:
            if pair.source_gpu == pair.target_gpu:
                continue
            key = (pair.source_gpu, pair.target_gpu)
            route = "direct" if key in direct else "staged" if key in staged else None
            copy = direct.get(key) or staged.get(key)
            bound = next(
                (expected[(*key, wire)] for wire in (route or "direct", "direct", "default", "staged") if (*key, wire) in expected), None
            )
            codes = {pair.p2p.read, pair.p2p.write}
            rows.append(
                PairRate(
                    item.label,
                    *key,
                    pair.path,
                    None if codes == {None} else "/".join(sorted({code or "?" for code in codes})),
                    copy.bandwidth_bytes_per_second if copy else None,
                    route,
                    bound.expected_bytes_per_second if bound else None,
                    bound.low_bytes_per_second if bound else None,
                )
            )
    return rows


def gpu_rates(items: Sequence[Labelled]) -> list[GpuRate]:
    """Every GPU or CPU rank whose arithmetic was measured."""
    rows = []
    for item in items:
        compute = item.run.measurements.compute
        alone, together = ({c.rank: c for c in compute if c.together is flag} for flag in (False, True))
        known = [c.matmul_flops_per_second for c in together.values() if c.matmul_flops_per_second]
        middle = statistics.median(known) if known else None
        for rank in sorted(alone.keys() | together.keys()):
            some = together.get(rank) or alone[rank]
            beside = together[rank].matmul_flops_per_second if rank in together else None
            single = alone[rank].matmul_flops_per_second if rank in alone else None
            if beside is None and single is None:
                continue
            rows.append(
                GpuRate(
                    item.label,
                    f"rank {rank}" if some.gpu is None else f"GPU{some.gpu}",
                    rank if some.gpu is None else some.gpu,
                    single,
                    beside,
                    some.memory_bytes_per_second,
                    1 - beside / middle if beside and middle else 0.0,
                    _held_back(some),
                )
            )
    return rows


def scaling_rows(run: Run) -> dict[str, list[Row]]:
    """The forecasts joined to ranges, by workload."""
    workloads = dict.fromkeys(f.workload for f in run.forecasts)
    return {name: joined_rows([f for f in run.forecasts if f.workload == name]) for name in workloads}


def phases(item: Labelled) -> list[Phase]:
    """Where steps spend their time: measured phases, else what a forecast says of waiting; one workload, the first."""
    run = item.run
    rows: list[Phase] = []
    first = next((s.workload for s in run.training.steps if s.phases is not None and s.num_gpus > 1), None)
    for step in run.training.steps:
        if step.phases is None or step.workload != first:
            continue
        named = {
            **_computing(step.phases),
            "optimizer": step.phases.optimizer,
            "waiting for the wire": step.phases.exposed_communication,
        }
        rest = step.step_seconds - sum(value or 0.0 for value in named.values())
        named["other"] = rest if rest > 0.01 * step.step_seconds else None
        rows.extend(
            Phase(item.label, step.strategy, step.wire, step.num_gpus, step.workload, name, value, True)
            for name, value in named.items()
            if value
        )
    return rows or _forecast_phases(item)


def _computing(phases: Phases) -> dict[str, float | None]:
    """Forward and backward without the wait that passes within them: the last of it in backward, more only where it is longer."""
    forward, backward, wait = phases.forward, phases.backward, phases.exposed_communication or 0.0
    if backward is not None:
        wait, backward = max(wait - backward, 0.0), max(backward - wait, 0.0)
    return {"forward": None if forward is None else max(forward - wait, 0.0), "backward": backward}


def workers(run: Run, count: int) -> str:
    """``2 GPUs``, ``1 GPU``; ``2 CPU ranks`` where the machine has no GPU: it must not read like one."""
    kind = "GPU" if run.machine is None or run.machine.gpus else "CPU rank"
    return f"{count} {kind}{'' if count == 1 else 's'}"


def _forecast_phases(item: Labelled) -> list[Phase]:
    rows: list[Phase] = []
    for workload, joined in list(scaling_rows(item.run).items())[:1]:
        for row in joined:
            mine = [
                f
                for f in item.run.forecasts
                if (f.strategy, f.wire, f.num_gpus, f.workload) == (row.strategy, row.wire, row.num_gpus, workload) and f.step_seconds
            ]
            if not mine:
                continue
            step = statistics.mean(f.step_seconds.expected for f in mine if f.step_seconds)
            same = [f for f in item.run.forecasts if (f.num_gpus, f.workload, f.batch_per_gpu) == (1, workload, mine[0].batch_per_gpu)]
            alone = next((f.step_seconds.expected for f in same if f.step_seconds), None)
            exposed = [f.exposed_communication_seconds.expected for f in mine if f.exposed_communication_seconds]
            lost = [1 - f.efficiency_fraction for f in mine if f.efficiency_fraction is not None]
            waiting = statistics.mean(exposed) if exposed else max(step * statistics.mean(lost), 0.0) if lost else 0.0
            busy = step - waiting
            slowed = max(busy - alone, 0.0) if alone is not None and exposed and row.strategy == "ddp" else 0.0
            for name, value in (("computing", busy - slowed), ("slowed by the wire", slowed), ("waiting for the wire", waiting)):
                if value > 1e-9 * step:
                    rows.append(Phase(item.label, row.strategy, row.wire, row.num_gpus, workload, name, value, False))
    return rows


def num_gpus(run: Run) -> int:
    """GPUs of the machine, or the most ranks that were measured together."""
    if run.machine is not None and run.machine.gpus:
        return len(run.machine.gpus)
    return max((c.world_size for c in run.measurements.collectives), default=0)


def machine_title(machine: Machine | None) -> str:
    """``2 x NVIDIA H200``; what a page is about, in a few words."""
    if machine is None:
        return "no machine described"
    if not machine.gpus:
        return "A machine without a GPU"
    names: dict[str, int] = {}
    for gpu in machine.gpus:
        names[gpu.name or "unknown GPU"] = names.get(gpu.name or "unknown GPU", 0) + 1
    return " + ".join(f"{count} \u00d7 {name}" for name, count in names.items())


def _held_back(item: Compute) -> str:
    if item.throttle_reasons is None:
        return "unknown"
    reasons = [reason.replace("_", " ") for reason in item.throttle_reasons if reason != "gpu_idle"]
    return ", ".join(reasons) or "nothing"

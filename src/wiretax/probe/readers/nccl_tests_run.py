"""One run of an nccl-tests program: its rows as a collective, and what the list of ranks says of a host."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from wiretax.model.machine import Gpu, Machine, NcclLibrary, Software
from wiretax.model.measurement import Collective, Operation, Point
from wiretax.probe.readers.pasted import Notes, explained, machine

_OPERATIONS: dict[str, Operation] = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "sendrecv": "send_recv", "send_recv": "send_recv",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table, out of place; rates in bytes per second."""

    line: int
    num_bytes: int
    dtype: str
    redop: str | None
    root: int | None
    seconds: float
    algbw: float
    busbw: float
    wrong: float | None
    has_in_place_check: bool


@dataclass(slots=True)
class Run:
    """One call of one program. ``devices`` is rank to (host, CUDA ordinal, PCI bus id, name)."""

    line: int
    program: str | None = None
    graph: bool = False
    max_bytes: int | None = None
    devices: dict[int, tuple[str, int, str, str]] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    unit_known: bool = True
    finished: bool = False


def host_machine(devices: dict[int, tuple[str, int, str, str]], host: str, version: str | None) -> Machine:
    """One host of a run, as far as the list of ranks shows it."""
    gpus = {
        device: Gpu(index=device, cuda_ordinal=device, pci_bus_id=bus_id, name=name)
        for at, device, bus_id, name in devices.values()
        if at == host
    }
    software = Software(nccl_loaded=NcclLibrary(path="path not stated by nccl-tests", version=version) if version else None)
    found = machine("nccl-tests", hostname=host, gpus=[gpus[index] for index in sorted(gpus)], software=software)
    return dataclasses.replace(found, origin_note="GPU numbers are CUDA ordinals: nccl-tests does not state NVML indices")


def factor(operation: Operation, world_size: int) -> float:
    """Busbw over algbw, as nccl-tests defines it (doc/PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2 * (world_size - 1) / world_size
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):
        return (world_size - 1) / world_size
    return 1.0


def _ratio(rows: list[Row], least: float = 2e9) -> float | None:
    """Busbw over algbw of the fastest row, where rounding to two decimals hurts least; None where even that is below ``least``."""
    best = max(rows, key=lambda row: row.algbw)
    return best.busbw / best.algbw if best.algbw >= least else None


def _operation(run: Run, rows: list[Row]) -> tuple[Operation | None, bool]:
    """The operation, and whether it had to be worked out from the numbers."""
    if run.program:
        return _OPERATIONS.get(run.program), False
    # Slow sweeps suffice for telling 1.5 from 0.75; at 0.5 GB/s rounding moves the ratio by 2 %.
    ratio, num_ranks, row = _ratio(rows, 0.5e9), len(run.devices), rows[0]
    if ratio is None or row.root not in (-1, None):
        return None, False
    summed = row.redop not in (None, "none")
    if summed and (ratio > 1.04 or (num_ranks == 2 and 0.98 < ratio < 1.02 and row.has_in_place_check)):
        return "all_reduce", True
    if summed and ratio < 0.96:
        return "reduce_scatter", True
    return None, False


def _world_size(run: Run, rows: list[Row], operation: Operation) -> int | None:
    ratio = _ratio(rows)
    listed = max(run.devices) + 1 if run.devices else None
    if listed is not None and (ratio is None or abs(factor(operation, listed) - ratio) < 0.03):
        return listed
    if ratio is None:
        return listed
    for size in range(2, 4097):
        if abs(factor(operation, size) - ratio) < 0.002 and factor(operation, size) != factor(operation, size + 1):
            return size if size <= 64 else None
    return listed


def collective(run: Run, rows: list[Row], notes: Notes) -> Collective | None:
    """Rows of one type and operation as a collective, with the table's observations; None where operation or world size are unknown."""
    operation, inferred = _operation(run, rows)
    world_size = _world_size(run, rows, operation) if operation else (max(run.devices) + 1 if run.devices else None)
    peak = max(rows, key=lambda row: row.busbw)
    for row in rows:
        if row.wrong:
            notes.add(row.line, "nccl_tests.wrong", num_bytes=row.num_bytes, wrong=int(row.wrong))
    values: dict[str, Any] = {
        "operation": operation or run.program,
        "world_size": world_size,
        "rows": len(rows),
        "first_bytes": rows[0].num_bytes,
        "last_bytes": rows[-1].num_bytes,
        "max_bytes": run.max_bytes,
        "complete": run.finished,
        "peak_busbw_bytes_per_second": peak.busbw,
        "peak_bytes": peak.num_bytes,
        "operation_inferred": inferred or None,
        "dtype": rows[0].dtype,
    }
    notes.add(rows[0].line, "nccl_tests.table", **{name: value for name, value in values.items() if value is not None})
    if operation is None or world_size is None or world_size < 2:
        return None
    checked = [row.wrong for row in rows if row.wrong is not None]
    scale = factor(operation, world_size)
    found = Collective(
        backend="nccl",
        operation=operation,
        wire="default",
        world_size=world_size,
        mode="graph" if run.graph else "eager",
        verified=not any(checked) if checked else None,
        points=tuple(
            Point(
                num_bytes=row.num_bytes,
                seconds=row.seconds,
                algbw_bytes_per_second=row.algbw,
                busbw_bytes_per_second=row.algbw * scale,
                operations_per_sample=20,
            )
            for row in rows
        ),
    )
    return explained(found, "not in the output of nccl-tests")

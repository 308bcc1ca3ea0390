"""Reads ``nvidia-smi --query-gpu=... --format=csv``, also with ``noheader``, ``nounits`` and repeated with ``-l``.

Without a header the values mean something only where the command that printed them stands above.

Observations:
    ``gpu.samples``: ``gpu``, ``samples``, ``busiest_utilization_fraction``: several rows of one GPU; the busiest is in the machine,
    because links and clocks mean something only under load.
    ``gpu.performance_state``, ``gpu.process``, ``gpu.pcie_limits``: as in :mod:`wiretax.probe.readers.smi_facts`.
    ``gpu.index_assumed``: there is no column of indices, so the number is the place in the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, Software
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.smi_facts import REASONS
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "nvidia-smi --query-gpu"
_COMMAND = re.compile(r"--query-(gpu|compute-apps)[= ]\s?\"?([\w.,*-]{2,2000})")
_UNIT = re.compile(r"\s*\[[^\]]{0,12}\]\s*$")
_ALIASES = {
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "gpu_uuid": "uuid",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "pcie.link.gen.gpumax": "pcie.device_max",
    "pcie.link.gen.hostmax": "pcie.host_max",
    "clocks.current.sm": "clocks.sm",
    "clocks.max.sm": "clocks.max.sm",
    "power.draw.average": "power.draw",
    "power.draw.instant": "power.draw",
    "enforced.power.limit": "power.limit",
    "temperature.gpu": "temperature",
    "compute_cap": "compute_capability",
    "mig.mode.current": "mig",
    "process_name": "process_name",
    "used_gpu_memory": "used_memory",
}
_FIELDS = {
    "index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "memory.free", "pcie.link.gen.current", "pcie.link.gen.max",
    "pcie.link.width.current", "pcie.link.width.max", "pcie.device_max", "pcie.host_max", "utilization.gpu", "utilization.memory",
    "clocks.sm", "clocks.max.sm", "clocks.gr", "clocks.mem", "power.draw", "power.limit", "temperature", "pstate", "driver_version",
    "compute_capability", "mig", "timestamp", "fan.speed", "persistence_mode", "count", "pid", "process_name", "used_memory",
    "ecc.errors.uncorrected.volatile.total", "display_active", "display_attached", "display_mode", "fabric.state", "fabric.status",
}  # fmt: skip
_REASON_FIELD = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w+)")
# Bits of nvmlClocksEventReasons (nvml.h).
_REASON_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)


@dataclass(slots=True)
class _Csv:
    fields: list[str]
    line: int
    of_processes: bool
    rows: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    damaged: list[tuple[int, str]] = field(default_factory=list)


def read(text: Text) -> tuple[Piece, ...]:
    """All lists of a text, one piece each."""
    return tuple(_piece(text.source, stream, table) for stream in streams(text) for table in _tables(stream) if table.rows or table.damaged)


def _canonical(name: str) -> str:
    name = _UNIT.sub("", name.strip().lower())
    return _ALIASES.get(name, name)


def _known(name: str) -> bool:
    return name in _FIELDS or _REASON_FIELD.fullmatch(name) is not None


def _tables(stream: Stream) -> list[_Csv]:
    tables: list[_Csv] = []
    current: _Csv | None = None
    for line in stream.lines:
        if len(line.text) > 4000 or ("," not in line.text and current is None and "--query" not in line.text):
            continue
        command = _COMMAND.search(line.text)
        if command:
            fields = [_canonical(name) for name in command.group(2).split(",")]
            current = _Csv(fields, line.number, command.group(1) != "gpu", lines={line.number})
            tables.append(current)
            continue
        names = [_canonical(name) for name in line.text.split(",")]
        if len(names) >= 2 and sum(map(_known, names)) * 2 > len(names) and not any(name.isdecimal() for name in names):
            if current is None or current.rows or current.fields != names:
                current = _Csv(names, line.number, "pid" in names)
                tables.append(current)
            current.lines.add(line.number)
            continue
        if current is not None and not _row(current, line):
            current = None
    return tables


def _row(table: _Csv, line: Line) -> bool:
    if not line.text.strip():
        return True
    values = [value.strip() for value in line.text.split(",")]
    if len(values) > len(table.fields) and "name" in table.fields:
        return False
    if len(values) != len(table.fields):
        if len(values) < 2 or not re.search(r"\d", line.text):
            return False
        table.damaged.append((line.number, f"{len(values)} values under {len(table.fields)} columns"))
        return True
    row = dict(zip(table.fields, values, strict=True))
    if not _plausible(row):
        return False
    table.rows.append((line.number, row))
    table.lines.add(line.number)
    return True


def _plausible(row: dict[str, str]) -> bool:
    index = row.get("index", "0")
    return index.isdecimal() and len(index) <= 3 and all(len(value) < 200 for value in row.values())


def _piece(source: str, stream: Stream, table: _Csv) -> Piece:
    notes = pasted.Notes(source, stream.lines)
    gpus: list[Gpu] = []
    driver: str | None = None
    assumed = False
    if table.of_processes:
        for line, row in table.rows:
            notes.add(
                line,
                "gpu.process",
                gpu=None,
                pid=pasted.whole(row.get("pid")),
                type="C",
                name=row.get("process_name"),
                memory_bytes=pasted.num_bytes(row.get("used_memory"), "MiB"),
            )
    else:
        samples = _by_gpu(table)
        assumed = not {"index"} & set(table.fields)
        for position, rows in enumerate(samples.values()):
            line, row = max(rows, key=lambda item: pasted.number(item[1].get("utilization.gpu")) or 0.0)
            index = int(row["index"]) if "index" in row else position
            gpus.append(_gpu(index, line, row, notes))
            if len(rows) > 1:
                busiest = pasted.number(row.get("utilization.gpu"))
                fraction = None if busiest is None else busiest / 100
                notes.add(rows[0][0], "gpu.samples", gpu=index, samples=len(rows), busiest_utilization_fraction=fraction)
            if assumed:
                notes.add(line, "gpu.index_assumed", gpu=index, pci_bus_id=None)
            driver = driver or pasted.said(row.get("driver_version"))
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(table.lines | {line for line, _ in table.damaged}),
        machine=pasted.machine(
            FORMAT,
            hostname=stream.host,
            gpus=gpus,
            software=Software(driver=driver),
            origin_note=pasted.NUMBERED_BY_PLACE if assumed else None,
        ),
        observations=notes.observations(),
        understood=frozenset(table.lines),
        damaged=tuple(table.damaged),
    )


def _by_gpu(table: _Csv) -> dict[str, list[tuple[int, dict[str, str]]]]:
    """Rows of the same GPU together. Without an identifying column each row is another GPU."""
    identity = next((name for name in ("uuid", "pci.bus_id", "index") if name in table.fields), None)
    groups: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for position, (line, row) in enumerate(table.rows):
        groups.setdefault(row[identity] if identity else str(position), []).append((line, row))
    return groups


def _gpu(index: int, line: int, row: dict[str, str], notes: pasted.Notes) -> Gpu:
    get = row.get
    state = pasted.said(get("pstate"))
    if state:
        notes.add(line, "gpu.performance_state", gpu=index, state=state)
    limits = (pasted.whole(get("pcie.device_max")), pasted.whole(get("pcie.host_max")))
    if any(limits):
        notes.add(
            line,
            "gpu.pcie_limits",
            gpu=index,
            device_current_generation=pasted.whole(get("pcie.link.gen.current")),
            device_max_generation=limits[0],
            host_max_generation=limits[1],
        )
    utilization = pasted.number(get("utilization.gpu"))
    bus = pasted.said(get("pci.bus_id"))
    mig = {"Enabled": "enabled", "Disabled": "disabled"}.get(get("mig", ""))
    fabric = pasted.said(get("fabric.state"))
    return Gpu(
        index=index,
        name=pasted.said(get("name")),
        uuid=pasted.said(get("uuid")),
        pci_bus_id=pasted.pci_bus_id(bus) if bus else None,
        memory_bytes=pasted.num_bytes(get("memory.total"), "MiB"),
        memory_used_bytes=pasted.num_bytes(get("memory.used"), "MiB"),
        pcie=pasted.pcie_link(
            get("pcie.link.gen.current"), get("pcie.link.gen.max"), get("pcie.link.width.current"), get("pcie.link.width.max")
        ),
        mig=mig,  # type: ignore[arg-type]
        compute_capability=pasted.said(get("compute_capability")),
        power_limit_watts=pasted.number(get("power.limit")),
        power_watts=pasted.number(get("power.draw")),
        temperature_celsius=pasted.number(get("temperature")),
        sm_clock_mhz=pasted.whole(get("clocks.sm")),
        max_sm_clock_mhz=pasted.whole(get("clocks.max.sm")),
        throttle_reasons=_reasons(row),
        ecc_uncorrected_errors=pasted.whole(get("ecc.errors.uncorrected.volatile.total")),
        fabric_state=None if fabric is None else "_".join(fabric.lower().split()),
        fabric_status=pasted.said(get("fabric.status")),
        utilization_fraction=None if utilization is None else utilization / 100,
    )


def _reasons(row: dict[str, str]) -> tuple[str, ...] | None:
    """The reasons from single columns, or from the bit mask of ``.active``."""
    named = {name: match.group(1) for name in row if (match := _REASON_FIELD.fullmatch(name))}
    if not named:
        return None
    found: list[str] = []
    for name, reason in named.items():
        value = row[name]
        if reason == "active" and re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", value):
            found.extend(word for bit, word in _REASON_BITS if int(value, 16) & bit)
        elif value == "Active":
            found.append("gpu_idle" if reason == "gpu_idle" else REASONS.get(reason, reason))
    return tuple(dict.fromkeys(found))

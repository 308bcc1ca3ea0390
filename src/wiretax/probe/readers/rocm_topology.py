"""Reads ``rocm-smi --showtopo`` and ``amd-smi topology``, and the product names of both tools.

AMD has no PIX or SYS: a pair is joined by ``XGMI`` (Infinity Fabric) or ``PCIE``, and that word is the ``path`` of the pair.

Observations:
    ``amd.link``: ``source_gpu``, ``target_gpu``, ``type`` (``XGMI`` or ``PCIE``), ``weight``, ``hops`` (1: direct, 2: same socket, 3: two
    sockets), ``access`` (True where the driver allows peer access), ``atomics``, ``dma``, ``bandwidth`` (``min-max`` in MB/s), as far
    as the text has the tables.
    ``amd.vendor``: ``tool``: the machine has AMD GPUs.
    ``amd.numa``: ``gpu``, ``numa_node``, ``numa_affinity``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, GpuPair
from wiretax.probe.readers import pasted
from wiretax.probe.readers.matrix import AMD_WORD, Matrix, matrices
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, mentions, streams

FORMAT = "rocm-smi topology"
_TABLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"weight", re.IGNORECASE), "weight"),
    (re.compile(r"hops", re.IGNORECASE), "hops"),
    (re.compile(r"link type", re.IGNORECASE), "type"),
    (re.compile(r"access", re.IGNORECASE), "access"),
    (re.compile(r"atomics?", re.IGNORECASE), "atomics"),
    (re.compile(r"\bdma\b", re.IGNORECASE), "dma"),
    (re.compile(r"numa bw|bandwidth", re.IGNORECASE), "bandwidth"),
    (re.compile(r"coheren|coheran|bi-?direction", re.IGNORECASE), "other"),
)
_NUMA = re.compile(r"\s*GPU\s?\[?(\d{1,3})\]?\s{0,20}:\s{0,4}\(Topology\)\s?Numa (Node|Affinity):\s{0,4}(-?\d{1,3})\s*$")
_NAME = re.compile(
    r"\s*GPU\s?\[?(\d{1,3})\]?\s{0,20}:\s{0,4}(?:Card [Ss]eries|Card SKU|Device Name|Card Model|Market(?:ing)? Name):"
    r"\s{1,40}(\S.{0,80}?)\s*$"
)
_END = re.compile(
    r"ROCm (?:System Management Interface|SMI Log)|^(?:[A-Z-]{1,20} ){1,4}TABLE:\s*$"
    r"|=\s(?:[A-Z][\w ]{2,40} between two GPUs|Numa Nodes)\s="
)
_YES = {"true": True, "enabled": True, "false": False, "disabled": False}
_SELF = frozenset({"0", "SELF", "N/A", "TRUE", "ENABLED", "T", "NC", "C"})
"""What the tables print for a GPU with itself."""


@dataclass(slots=True)
class _Topology:
    lines: set[int] = field(default_factory=set)
    columns: list[str] = field(default_factory=list)
    tables: dict[str, Matrix] = field(default_factory=dict)
    numa: dict[int, dict[str, int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    damaged: list[tuple[int, str]] = field(default_factory=list)


def read(text: Text) -> tuple[Piece, ...]:
    """The topology of each stream as one piece; a table that comes back with other cells begins another."""
    if not any("XGMI" in line or "PCIE" in line or "GPU[" in line or "(Topology)" in line or "ROCm" in line for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) for piece in _pieces(text.source, stream))


def _pieces(source: str, stream: Stream) -> list[Piece]:
    topologies = [_Topology()]
    for matrix in matrices(stream, AMD_WORD, lambda cell: cell.upper() in _SELF):
        kind = next((name for pattern, name in _TABLES if pattern.search(matrix.before)), None) or _kind_by_cells(matrix)
        if kind is None:
            continue
        current = topologies[-1]
        known = current.tables.get(kind)
        if (known is not None and _cells(known) != _cells(matrix)) or (current.columns and current.columns != matrix.gpu_columns()):
            current = _Topology()
            topologies.append(current)
        current.tables[kind] = matrix
        current.columns = matrix.gpu_columns()
        current.lines |= matrix.lines
        current.damaged.extend(matrix.damaged)
        current.damaged.extend((row.line, row.trouble) for row in matrix.rows.values() if row.trouble)
    _read_lines(stream, topologies)
    return [_piece(source, stream, found) for found in topologies if found.tables or found.names or found.numa]


def _kind_by_cells(matrix: Matrix) -> str | None:
    cells = {cell.upper() for row in matrix.rows.values() for cell in row.cells if cell}
    return "type" if cells & {"XGMI", "PCIE"} else "access" if cells & {"TRUE", "FALSE", "ENABLED", "DISABLED"} else None


def _cells(matrix: Matrix) -> dict[str, list[str | None]]:
    return {label: row.cells for label, row in matrix.rows.items()}


def _read_lines(stream: Stream, topologies: list[_Topology]) -> None:
    for line in stream.lines:
        text = line.text
        if len(text) > 300 or not mentions(text, ("GPU", "ROCm", "TABLE", "Numa Nodes")):
            continue
        topology = next((found for found in reversed(topologies) if not found.lines or min(found.lines) <= line.number), topologies[0])
        numa, name = _NUMA.match(text), _NAME.match(text)
        if numa:
            topology.numa.setdefault(int(numa.group(1)), {})[numa.group(2).lower()] = int(numa.group(3))
        elif name and not pasted.NOT_SAID.fullmatch(name.group(2)):
            if name.group(2).lower().startswith("0x"):
                continue
            topology.names.setdefault(int(name.group(1)), name.group(2))
        elif not _END.search(text):
            continue
        topology.lines.add(line.number)


def _piece(source: str, stream: Stream, found: _Topology) -> Piece:
    notes = pasted.Notes(source, stream.lines)
    columns = found.columns or [f"GPU{index}" for index in sorted({*found.names, *found.numa})]
    first = min(found.lines)
    notes.add(first, "amd.vendor", tool="amd-smi" if columns and ":" in columns[0] else "rocm-smi")
    gpus = []
    for index, column in enumerate(columns):
        number = int(column[3:]) if column.startswith("GPU") else index
        node = found.numa.get(number, {}).get("node")
        if number in found.numa:
            affinity = found.numa[number].get("affinity")
            notes.add(first, "amd.numa", gpu=number, numa_node=node, numa_affinity=affinity)
        gpus.append(
            Gpu(
                index=number,
                name=found.names.get(number),
                pci_bus_id=None if column.startswith("GPU") else pasted.pci_bus_id(column),
                numa_node=node if node is not None and node >= 0 else None,
            )
        )
    pairs = []
    for source_index, source_column in enumerate(columns):
        for target_index, target_column in enumerate(columns):
            if source_index != target_index and found.tables:
                pairs.append(_pair(found, gpus[source_index].index, gpus[target_index].index, source_column, target_column, notes))
    return Piece(
        source=source,
        format=FORMAT,
        first_line=first,
        machine=pasted.machine(FORMAT, hostname=stream.host, gpus=gpus, pairs=pairs),
        observations=notes.observations(),
        understood=frozenset(found.lines),
        damaged=tuple(sorted(found.damaged)),
    )


def _pair(found: _Topology, source_gpu: int, target_gpu: int, source: str, target: str, notes: pasted.Notes) -> GpuPair:
    def cell(kind: str) -> str | None:
        matrix = found.tables.get(kind)
        value = matrix.cell(source, target) if matrix else None
        return None if value is None or value.upper() in ("N/A", "UNKNOWN") else value

    link = cell("type")
    path = link.upper() if link and link.upper() in ("XGMI", "PCIE") else None
    access = _YES.get((cell("access") or "").lower())
    weight, hops = cell("weight"), cell("hops")
    line = next((matrix.rows[source].line for matrix in found.tables.values() if source in matrix.rows), min(found.lines))
    notes.add(
        line,
        "amd.link",
        source_gpu=source_gpu,
        target_gpu=target_gpu,
        type=path,
        weight=pasted.whole(weight),
        hops=pasted.whole(hops),
        access=access,
        atomics=cell("atomics"),
        dma=cell("dma"),
        bandwidth=cell("bandwidth"),
    )
    missing = {} if path else {"path": "the link type is not in the pasted tables"}
    return GpuPair(source_gpu=source_gpu, target_gpu=target_gpu, path=path, peer_access=access, missing=missing)

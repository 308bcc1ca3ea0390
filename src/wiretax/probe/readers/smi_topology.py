"""Reads ``nvidia-smi topo -m`` and ``-mp`` in every shape in which people paste it.

Observations:
    ``topology.nic``: a NIC column; ``nic`` (the name in the matrix), ``device`` (``mlx5_0``; None where no legend names it).
    ``topology.nic_path``: ``nic``, ``device``, ``gpu``, ``path`` between them.
    ``topology.numa``: ``gpu``, ``numa_nodes`` as printed, where it is not one node (``0-1``).
    ``topology.asymmetric``: ``first_gpu``, ``second_gpu``, ``there``, ``back``: the two halves of the matrix disagree.
    ``topology.pcie_only``: the matrix is of ``-mp``, which leaves NVLink out; ``evidence`` (``command`` or ``legend``).
    ``topology.incomplete``: ``rows_shown``, ``columns_shown`` where rows are missing.
"""

from __future__ import annotations

import re

from wiretax.model.machine import Gpu, GpuPair
from wiretax.probe.readers import pasted
from wiretax.probe.readers.matrix import NVIDIA_WORD, P2P_WORD, Matrix, Row, matrices
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "nvidia-smi topo -m"
_CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*|(?:0x)?[0-9a-f]{2,8}(?:,[0-9a-f]{1,8})*", re.IGNORECASE)
_MASK = re.compile(r"(?:0x)?[0-9a-f]+(?:,[0-9a-f]{8})*", re.IGNORECASE)
_EXTRAS = ("Cpu Affinity", "Numa Affinity", "Gpu Numa Id")


def read(text: Text) -> tuple[Piece, ...]:
    """All topology matrices of a text, one piece each."""
    return tuple(
        _piece(text.source, matrix, stream)
        for stream in streams(text)
        for matrix in matrices(stream, NVIDIA_WORD, lambda cell: cell == "X")
        if not matrix.says_p2p()
    )


def _piece(source: str, matrix: Matrix, stream: Stream) -> Piece:
    notes = pasted.Notes(source, stream.lines)
    damaged: list[tuple[int, str]] = list(matrix.damaged)
    names = matrix.gpu_columns()
    for row in matrix.rows.values():
        if row.trouble:
            damaged.append((row.line, row.trouble))
        for index, cell in enumerate(row.cells):
            if cell and P2P_WORD.fullmatch(cell):
                damaged.append((row.line, f"row {row.label} has the cell {cell}, which is no topology path"))
                row.cells[index] = None
    absent = [name for name in names if name not in matrix.rows]
    if absent:
        damaged.append((matrix.header_line, f"the rows {', '.join(absent)} are missing"))
        notes.add(matrix.header_line, "topology.incomplete", rows_shown=len(names) - len(absent), columns_shown=len(names))
    if re.search(r"topo\s+(?:-mp\b|--matrix_pci)", matrix.before):
        notes.add(matrix.header_line, "topology.pcie_only", evidence="command")
    elif matrix.legend and "PXB" in matrix.legend and "NV#" not in matrix.legend:
        notes.add(matrix.header_line, "topology.pcie_only", evidence="legend")

    gpus = [_gpu(name, matrix.rows.get(name), matrix, notes) for name in names]
    pairs = [pair for first in names for second in names if first != second for pair in [_pair(matrix, first, second)]]
    damaged.extend(_disagreements(matrix, names, notes))
    _nics(matrix, names, notes)
    return Piece(
        source=source,
        format=FORMAT,
        first_line=matrix.header_line,
        machine=pasted.machine(FORMAT, hostname=stream.host, gpus=gpus, pairs=pairs),
        observations=notes.observations(),
        understood=frozenset(matrix.lines),
        damaged=tuple(sorted(damaged)),
    )


def _index(name: str) -> int:
    return int(name.removeprefix("GPU"))


def _path(cell: str | None) -> str | None:
    return "SYS" if cell == "SOC" else cell


def _pair(matrix: Matrix, first: str, second: str) -> GpuPair:
    path = _path(matrix.cell(first, second))
    missing: dict[str, str] = {}
    if path is None:
        row = matrix.rows.get(first)
        missing["path"] = "the row is missing in the pasted matrix" if row is None else "the row is damaged in the pasted matrix"
    return GpuPair(source_gpu=_index(first), target_gpu=_index(second), path=path, missing=missing)


def _disagreements(matrix: Matrix, names: list[str], notes: pasted.Notes) -> list[tuple[int, str]]:
    """Pairs whose two cells differ: a path has no direction, so one of the cells is a misprint or a misreading."""
    found = []
    for position, first in enumerate(names):
        for second in names[position + 1 :]:
            there, back = _path(matrix.cell(first, second)), _path(matrix.cell(second, first))
            if there and back and there != back:
                line = matrix.rows[second].line
                notes.add(line, "topology.asymmetric", first_gpu=_index(first), second_gpu=_index(second), there=there, back=back)
                found.append((line, f"{first} to {second} says {there}, {second} to {first} says {back}"))
    return found


def _gpu(name: str, row: Row | None, matrix: Matrix, notes: pasted.Notes) -> Gpu:
    missing: dict[str, str] = {}
    affinity, numa = (None, None) if row is None else _affinities(row, matrix.extras, missing)
    node = None
    if numa is not None:
        if numa.isdecimal():
            node = int(numa)
        elif row is not None and re.fullmatch(r"\d+(?:[-,]\d+)+", numa):
            missing["numa_node"] = f"the GPU belongs to the NUMA nodes {numa}"
            notes.add(row.line, "topology.numa", gpu=_index(name), numa_nodes=numa)
        else:
            missing["numa_node"] = f"{FORMAT} says {numa}"
    return Gpu(index=_index(name), cpu_affinity=affinity, numa_node=node, missing=missing)


def _affinities(row: Row, extras: list[str], missing: dict[str, str]) -> tuple[str | None, str | None]:
    """The texts under CPU Affinity and NUMA Affinity; None, with a reason, where blanks fell together and more than one reading fits."""
    known = [name for name in extras if name in _EXTRAS]
    if not known:
        return None, None
    cells = list(row.rest)
    if row.rest_is_positional:
        # The tool prints two tabs before GPU NUMA ID.
        if len(cells) > len(known) and len(known) == 3 and not cells[2]:
            del cells[2]
        under = dict(zip(known, cells, strict=False))
    else:
        cells = [cell for cell in cells if cell]
        if len(cells) == len(known):
            under = dict(zip(known, cells, strict=True))
        else:
            under = _by_shape(cells, known)
            if cells and not under:
                for name in ("cpu_affinity", "numa_node"):
                    missing[name] = "the columns cannot be told apart: blanks fell together in the paste"
    affinity = pasted.said(under.get("Cpu Affinity"))
    if affinity is not None and not _CPU_LIST.fullmatch(affinity) and not _MASK.fullmatch(affinity):
        missing["cpu_affinity"] = f"{affinity!r} is no list of CPUs"
        affinity = None
    return affinity, under.get("Numa Affinity") or None


def _by_shape(cells: list[str], known: list[str]) -> dict[str, str]:
    """Assigns fewer cells than columns, where only one way fits: a list of several CPUs or a mask is never a NUMA node."""
    under: dict[str, str] = {}
    if cells and re.fullmatch(r"(?=.*[,a-f]|\d+-\d{2}).*", cells[0], re.IGNORECASE) and cells[0].upper() != "N/A":
        under["Cpu Affinity"] = cells[0]
        if len(cells) == 2 and known == ["Cpu Affinity", "Numa Affinity", "Gpu Numa Id"] and cells[1].upper() != "N/A":
            under["Numa Affinity"] = cells[1]
    elif all(cell.upper() == "N/A" for cell in cells):
        under = dict.fromkeys(known, "N/A")
    return under


def _nics(matrix: Matrix, gpu_names: list[str], notes: pasted.Notes) -> None:
    for nic in (name for name in matrix.columns if name not in gpu_names):
        device = matrix.nic_names.get(nic, None if re.fullmatch(r"NIC\d+", nic) else nic)
        notes.add(matrix.header_line, "topology.nic", nic=nic, device=device)
        for name in gpu_names:
            there, back = _path(matrix.cell(name, nic)), _path(matrix.cell(nic, name))
            if there and back and there != back:
                row = matrix.rows[nic]
                notes.add(row.line, "topology.asymmetric", first_gpu=_index(name), second_gpu=None, there=there, back=back)
            elif path := there or back:
                line = matrix.rows[name].line if name in matrix.rows else matrix.rows[nic].line
                notes.add(line, "topology.nic_path", nic=nic, device=device, gpu=_index(name), path=path)

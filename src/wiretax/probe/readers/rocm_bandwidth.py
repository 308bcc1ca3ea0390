"""Reads AMD's ``rocm-bandwidth-test``: which GPUs reach each other, how far apart they are, and how fast they copy.

The tool counts CPUs and GPUs together; a GPU's number here is its place among the GPUs.

Observations:
    ``amd.vendor``, ``amd.link``: as in :mod:`wiretax.probe.readers.rocm_topology`; ``weight`` is the tool's NUMA distance.
    ``bandwidth.pair``: ``source_gpu``, ``target_gpu``, ``value``, ``unit``, ``bandwidth_bytes_per_second``, ``both_ways``, ``label``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, GpuPair
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "rocm-bandwidth-test"
_DEVICE = re.compile(
    r"\s*Device:\s{0,4}(\d{1,3}),\s{1,4}([^,]{1,80}?)\s*(?:,\s{1,4}[\w-]{1,40},\s{1,4}([0-9a-fA-F]{2}:[0-9a-fA-F]{1,2}\.\d))?\s*$"
)
"""A device with an address is a GPU."""
_TITLES = (
    (re.compile(r"\s*Inter-Device Access\s*$"), "access"),
    (re.compile(r"\s*Inter-Device Numa Distance\s*$", re.IGNORECASE), "distance"),
    (re.compile(r"\s*Unidirectional copy peak bandwidth GB/s\s*$", re.IGNORECASE), "one_way"),
    (re.compile(r"\s*Bidirectional copy peak bandwidth GB/s\s*$", re.IGNORECASE), "both_ways"),
)
_HEADER = re.compile(r"\s*D/D((?:\s{1,20}\d{1,3}){1,64})\s*$")
_ROW = re.compile(r"\s*(\d{1,3})((?:\s{1,24}(?:N/A|\d{1,6}(?:\.\d{1,6})?)){1,64})\s*$")
_XGMI_HOP = 15
"""AMD's kernel driver counts a link of Infinity Fabric as 15 and each stretch of PCIe as 20 (amd-smi's documentation, 2026)."""
_PCIE_BOTH = 40


@dataclass(slots=True)
class _Found:
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    tables: dict[str, dict[tuple[int, int], tuple[int, str]]] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)


def read(text: Text) -> tuple[Piece, ...]:
    """What the tool prints, as one piece a stream."""
    if not any("Inter-Device" in line or "copy peak bandwidth" in line for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream, _tables(stream))) is not None)


def _tables(stream: Stream) -> _Found:
    found = _Found()
    current: dict[tuple[int, int], tuple[int, str]] | None = None
    columns: list[int] = []
    for line in stream.lines:
        if len(line.text) > 1200 or not line.text.strip():
            continue
        title = next((name for pattern, name in _TITLES if pattern.match(line.text)), None)
        device, header = _DEVICE.match(line.text), _HEADER.match(line.text)
        row = _ROW.match(line.text) if columns and current is not None else None
        if title:
            current, columns = found.tables.setdefault(title, {}), []
        elif device and device[3]:
            found.names[int(device[1])] = (device[2], device[3])
        elif header and current is not None:
            columns = [int(word) for word in header[1].split()]
        elif row and current is not None and len(cells := row[2].split()) == len(columns):
            current |= {(int(row[1]), column): (line.number, cell) for column, cell in zip(columns, cells, strict=True)}
        elif not device:
            continue
        found.lines.add(line.number)
    return found


def _piece(source: str, stream: Stream, found: _Found) -> Piece | None:
    if not found.names or not found.tables:
        return None
    notes = pasted.Notes(source, stream.lines)
    numbers = {device: index for index, device in enumerate(sorted(found.names))}
    first = min(found.lines)
    notes.add(first, "amd.vendor", tool=FORMAT)
    pairs = [_pair(found, numbers, a, b, first, notes) for a in numbers for b in numbers if a != b]
    for what in ("one_way", "both_ways"):
        for (a, b), (line, cell) in found.tables.get(what, {}).items():
            if a in numbers and b in numbers and a != b and cell != "N/A":
                notes.add(
                    line,
                    "bandwidth.pair",
                    source_gpu=numbers[a],
                    target_gpu=numbers[b],
                    value=float(cell),
                    unit="GB/s",
                    bandwidth_bytes_per_second=float(cell) * 1e9,
                    both_ways=what == "both_ways",
                    label=f"GPU {numbers[a]} to {numbers[b]}",
                )
    gpus = [Gpu(index=numbers[device], name=name, pci_bus_id=_bus_id(bus)) for device, (name, bus) in sorted(found.names.items())]
    return Piece(
        source=source,
        format=FORMAT,
        first_line=first,
        machine=pasted.machine(FORMAT, hostname=stream.host, gpus=gpus, pairs=pairs),
        observations=notes.observations(),
        understood=frozenset(found.lines),
    )


def _bus_id(address: str) -> str:
    """The tool writes ``83:0.0``, without the zero of the device."""
    bus, device = address.split(":")
    return pasted.pci_bus_id(f"{bus}:{device.zfill(4)}")


def _pair(found: _Found, numbers: dict[int, int], a: int, b: int, first: int, notes: pasted.Notes) -> GpuPair:
    line, access = found.tables.get("access", {}).get((a, b), (first, "N/A"))
    distance = pasted.whole(found.tables.get("distance", {}).get((a, b), (first, "N/A"))[1])
    path = None if distance is None else "XGMI" if distance == _XGMI_HOP else "PCIE" if distance >= _PCIE_BOTH else None
    can = {"0": False, "1": True}.get(access)
    notes.add(line, "amd.link", source_gpu=numbers[a], target_gpu=numbers[b], type=path, weight=distance, access=can)
    missing = {} if path else {"path": "the distance does not tell how the GPUs are joined"}
    return GpuPair(source_gpu=numbers[a], target_gpu=numbers[b], path=path, peer_access=can, missing=missing)

"""Output of CUDA's ``p2pBandwidthLatencyTest`` (and of ``simpleP2P``'s access lines).

The sample copies 40 million integers (160 MB) five times per cell; ``P2P=Enabled`` uses peer access where there is any and falls back
to staged copies without a word where there is none, so the route of a copy follows the access lines. Its bidirectional figure is
the SUM of both ways, while a :class:`Copy` is per direction: it is halved. The diagonal counts reading and writing of a GPU's own
memory (https://github.com/NVIDIA/cuda-samples, p2pBandwidthLatencyTest.cu). GPUs are CUDA ordinals.

===================== ==========================================================================================================
kind                  values
===================== ==========================================================================================================
p2p_test.matrix       what (bandwidth, latency), direction, peer_access (enabled, disabled), method (writes, reads), num_gpus
p2p_test.own_memory   gpu, bytes_per_second: read plus written; a GPU that differs from the others is another model
p2p_test.unit         unit: not known, the matrix was left alone
===================== ==========================================================================================================
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Literal

from wiretax.model.machine import Gpu, GpuPair
from wiretax.model.measurement import Copy, Measurements
from wiretax.probe.readers.pasted import Notes, explained, machine, positive
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, streams

FORMAT = "p2pBandwidthLatencyTest"
NUM_BYTES = 160_000_000
LATENCY_BYTES = 16
_MAX_LINE = 3_000

_DEVICE = re.compile(
    r"Device: (?P<index>\d{1,3}), (?P<name>[^,]{1,80}), pciBusID: (?P<bus>[0-9a-f]{1,4}), pciDeviceID: (?P<device>[0-9a-f]{1,4}),"
    r" pciDomainID:\s?(?P<domain>[0-9a-f]{1,8})"
)
_ACCESS = re.compile(r"Device\s?=\s?(?P<source>\d{1,3}) (?P<can>CAN(?:NOT)?) Access Peer Device\s?=\s?(?P<target>\d{1,3})")
_SIMPLE = re.compile(
    r"Peer access from (?P<first>[^()]{1,80}) \(GPU(?P<source>\d{1,3})\) -> (?P<second>[^()]{1,80}) \(GPU(?P<target>\d{1,3})\)\s?:"
    r" (?P<can>Yes|No)"
)
_TITLE = re.compile(
    r"(?:(?P<direction>Uni|Bi)directional )?P2P=(?P<peer>Enabled|Disabled) (?P<what>Bandwidth|Latency)"
    r" (?:\(P2P (?P<method>Writes|Reads)\) )?Matrix \((?P<unit>[^()]{1,20})\)"
)
_OLD_TITLE = re.compile(
    r"P2P (?P<what>Bandwidth|Latency) Matrix (?P<unit>\([^()]{1,20}\)) - (?P<direction>(?:(?:Uni|Bi)directional(?=,))?)(?:, )?"
    r"(?P<peer>P2P=(?:En|Dis)abled)"
)
"""As the busGrind sample prints it."""
_CONNECTIVITY = re.compile(r"P2P Connectivity Matrix")
_HEADER = re.compile(r"\s*(?:D\\D|GPU|CPU)((?:\s{1,12}\d{1,3}){1,128})\s*$")
_CELLS = re.compile(r"\s*(\d{1,3})((?:\s{1,20}-?[\w./+-]{1,16}){1,128})\s*$")
_HARMLESS = re.compile(
    r"\[P2P \(Peer-to-Peer\)|\*\*\*NOTE: In case a device|So you can see lesser Bandwidth|NOTE: The CUDA Samples are not"
)


@dataclass(slots=True)
class _Found:
    gpus: dict[int, Gpu] = field(default_factory=dict)
    access: dict[tuple[int, int], bool] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    understood: set[int] = field(default_factory=set)
    damaged: list[tuple[int, str]] = field(default_factory=list)


def read(text: Text) -> tuple[Piece, ...]:
    """Reads device lists, access lines and matrices."""
    found: list[Piece] = []
    for stream in streams(text):
        lines = tuple(Line(line.number, line.text[:_MAX_LINE]) for line in stream.lines)
        found += _read(text.source, lines)
    return tuple(found)


def _read(source: str, lines: tuple[Line, ...]) -> list[Piece]:
    seen, notes = _Found(), Notes(source)
    titles: list[tuple[int, re.Match[str]]] = []
    for position, line in enumerate(lines):
        if "P2P" in line.text or "Device" in line.text or "Peer" in line.text or "lesser" in line.text or "NOTE" in line.text:
            _heading(position, line, seen, titles)
    for position, line in enumerate(lines):
        if _CONNECTIVITY.search(line.text):
            _connectivity(lines, position, seen)
    for position, title in titles:
        _matrix(lines, position, title, seen, notes)
    if not seen.understood:
        return []
    numbers = sorted({*seen.gpus, *(gpu for pair in seen.access for gpu in pair), *(gpu for copy in seen.copies for gpu in _ends(copy))})
    found = machine(
        "the output of p2pBandwidthLatencyTest",
        gpus=[seen.gpus.get(index, Gpu(index=index, cuda_ordinal=index)) for index in numbers],
        pairs=[GpuPair(source_gpu=a, target_gpu=b, peer_access=can) for (a, b), can in sorted(seen.access.items())],
    )
    note = "GPU numbers are CUDA ordinals: the sample does not state NVML indices"
    return [
        Piece(
            source=source,
            format=FORMAT,
            first_line=min(seen.understood),
            machine=dataclasses.replace(found, origin_note=note) if numbers else None,
            measurements=Measurements(copies=tuple(explained(tuple(seen.copies), "not in the output of p2pBandwidthLatencyTest"))),
            observations=notes.observations(),
            understood=frozenset(seen.understood),
            damaged=tuple(seen.damaged),
        )
    ]


def _ends(copy: Copy) -> tuple[int, ...]:
    return tuple(end for end in (copy.source_gpu, copy.target_gpu) if end is not None)


def _heading(position: int, line: Line, seen: _Found, titles: list[tuple[int, re.Match[str]]]) -> None:
    text = line.text
    if match := _DEVICE.search(text):
        index = int(match["index"])
        bus_id = f"{int(match['domain'], 16):08X}:{int(match['bus'], 16):02X}:{int(match['device'], 16):02X}.0"
        seen.gpus[index] = Gpu(index=index, cuda_ordinal=index, name=match["name"].strip(), pci_bus_id=bus_id)
    elif match := _ACCESS.search(text):
        seen.access[int(match["source"]), int(match["target"])] = match["can"] == "CAN"
    elif match := _SIMPLE.search(text):
        source, target = int(match["source"]), int(match["target"])
        seen.access[source, target] = match["can"] == "Yes"
        for index, name in ((source, match["first"]), (target, match["second"])):
            seen.gpus.setdefault(index, Gpu(index=index, cuda_ordinal=index, name=name.strip().removeprefix("> ")))
    elif match := _TITLE.search(_OLD_TITLE.sub(r"\g<direction> \g<peer> \g<what> Matrix \g<unit>", text)):
        titles.append((position, match))
    elif not _HARMLESS.search(text):
        return
    seen.understood.add(line.number)


def _rows(lines: tuple[Line, ...], start: int, seen: _Found) -> list[tuple[str, int, dict[int, str]]]:
    """Rows of the matrices below a title, as (corner, GPU, cells by column); rows of the wrong length are damaged."""
    found: list[tuple[str, int, dict[int, str]]] = []
    columns: list[int] = []
    corner = ""
    for line in lines[start + 1 : start + 300]:
        header = _HEADER.match(line.text)
        cells = _CELLS.match(line.text) if columns else None
        if header:
            columns, corner = [int(word) for word in header[1].split()], line.text.split()[0]
        elif cells:
            words = cells[2].split()
            if int(cells[1]) not in columns:
                break
            if len(words) == len(columns):
                found.append((corner, int(cells[1]), dict(zip(columns, words, strict=True))))
            else:
                seen.damaged.append((line.number, f"a row of {len(words)} cells under {len(columns)} columns"))
        elif line.text.strip():
            break
        else:
            continue
        seen.understood.add(line.number)
    return found


def _connectivity(lines: tuple[Line, ...], position: int, seen: _Found) -> None:
    seen.understood.add(lines[position].number)
    for _, row, cells in _rows(lines, position, seen):
        for column, cell in cells.items():
            if row != column and cell in ("0", "1"):
                seen.access.setdefault((row, column), cell == "1")


def _matrix(lines: tuple[Line, ...], position: int, title: re.Match[str], seen: _Found, notes: Notes) -> None:
    number, unit = lines[position].number, title["unit"]
    rows = _rows(lines, position, seen)
    is_latency = title["what"] == "Latency"
    notes.add(
        number,
        "p2p_test.matrix",
        what=title["what"].lower(),
        direction="both_ways" if title["direction"] == "Bi" else "one_way",
        peer_access=title["peer"].lower(),
        method=(title["method"] or "").lower() or None,
        num_gpus=len({row for _, row, _ in rows}),
        text=lines[position].text.strip(),
    )
    if unit != ("us" if is_latency else "GB/s"):
        notes.add(number, "p2p_test.unit", unit=unit)
        return
    # The sample prints the launch time of the CPU below the latency matrix under the corner CPU: it is not the wire's.
    for row, cells in ((row, cells) for corner, row, cells in rows if corner != "CPU"):
        for column, cell in cells.items():
            value = positive(cell)
            if value is None:
                continue
            if row == column:
                if (not is_latency and title["direction"] == "Uni") or title["direction"] == "Bi":
                    notes.add(number, "p2p_test.own_memory", gpu=row, bytes_per_second=value * 1e9)
                continue
            source, target = (column, row) if title["method"] == "Reads" else (row, column)
            enabled = title["peer"] == "Enabled"
            route: Literal["direct", "staged"] = "direct" if enabled and seen.access.get((row, column), True) else "staged"
            if is_latency:
                copy = Copy(
                    source_gpu=source,
                    target_gpu=target,
                    route=route,
                    direction="one_way",
                    num_bytes=LATENCY_BYTES,
                    latency_seconds=value * 1e-6,
                )
            elif title["direction"] == "Bi":
                copy = Copy(
                    source_gpu=source,
                    target_gpu=target,
                    route=route,
                    direction="both_ways",
                    num_bytes=NUM_BYTES,
                    bandwidth_bytes_per_second=value * 1e9 / 2,
                )
            else:
                copy = Copy(
                    source_gpu=source,
                    target_gpu=target,
                    route=route,
                    direction="one_way",
                    num_bytes=NUM_BYTES,
                    bandwidth_bytes_per_second=value * 1e9,
                )
            seen.copies.append(copy)

"""Reads ``lspci -tv``: which switches and root ports the GPUs hang on.

Observations:
    ``pci.tree``: one a GPU; ``address``, ``description``, ``root_port``, ``bridges`` (addresses from the root port down, joined by a
    blank). Two GPUs with the same first bridges share that uplink.
    ``gpu.index_assumed``: as in :mod:`wiretax.probe.readers.lspci`.
"""

from __future__ import annotations

import re

from wiretax.model.machine import Gpu, PcieHop, PcieLink
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "lspci -tv"
_TOKEN = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{2})\]|\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\]|(?<=[-+\\])([0-9a-f]{2}\.[0-7])(?=[\s-]|$)")
_LINE = re.compile(r"\s*[-+|\\][-+|\\ \[\]0-9a-f:.]*")
_GPU = re.compile(r"NVIDIA Corporation|Advanced Micro Devices.{0,40}(?:Instinct|Radeon|Navi|Vega|Aqua Vanjaram|Aldebaran|Arcturus)")
_NOT_GPU = re.compile(r"Audio|USB|UCSI|NVSwitch|Bridge|\bSwitch\b|Serial|BlueField|ConnectX|Ethernet", re.IGNORECASE)


def read(text: Text) -> tuple[Piece, ...]:
    """Each tree of a text as one piece."""
    if not any("-[" in line and "0000:" in line for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    lines: set[int] = set()
    stack: list[tuple[int, str, str]] = []  # column, what, value
    gpus: list[tuple[str, str, list[str], int]] = []
    for line in stream.lines:
        text = line.text
        if len(text) > 400 or not _LINE.match(text):
            continue
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            continue
        end = tokens[-1].end()
        description = text[end:].strip(" -")
        while stack and stack[-1][0] >= tokens[0].start():
            stack.pop()
        if not stack and not tokens[0].group(1):
            continue
        for token in tokens:
            domain, domain_bus, bus, device = token.groups()
            if domain:
                stack = [(token.start(), "domain", domain), (token.start(), "bus", domain_bus)]
            elif bus:
                stack.append((token.start(), "bus", bus))
            elif device:
                where = next((value for _, what, value in reversed(stack) if what == "bus"), "00")
                root = next((value for _, what, value in stack if what == "domain"), "0000")
                stack.append((token.start(), "device", pasted.pci_bus_id(f"{root}:{where}:{device}")))
        lines.add(line.number)
        if description and _GPU.search(description) and not _NOT_GPU.search(description) and stack[-1][1] == "device":
            chain = [value for _, what, value in stack if what == "device"]
            gpus.append((chain[-1], description, chain[:-1], line.number))
    if not gpus:
        return None
    notes = pasted.Notes(source, stream.lines)
    found = []
    for index, (address, description, bridges, number) in enumerate(sorted(gpus)):
        root_port = bridges[0] if bridges else None
        notes.add(number, "pci.tree", address=address, description=description, root_port=root_port, bridges=" ".join(bridges))
        notes.add(number, "gpu.index_assumed", gpu=index, pci_bus_id=address)
        hops = [PcieHop(address=address, kind="gpu", link=PcieLink())]
        hops += [
            PcieHop(address=bridge, kind="root_port" if bridge == root_port else "bridge", link=PcieLink()) for bridge in reversed(bridges)
        ]
        names = re.findall(r"\[([^\[\]]{3,60})\]", description)
        found.append(Gpu(index=index, name=names[-1] if names else None, pci_bus_id=address, pcie_path=tuple(hops)))
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=stream.host, gpus=found, origin_note=pasted.NUMBERED_BY_ADDRESS),
        observations=notes.observations(),
        understood=frozenset(lines),
    )

"""Machines to compare with: curves measured by us, and published figures with their source. One JSON file a machine.

A file holds ``title``, ``origin`` (``measured`` by this project, ``published`` by others), ``source``, ``date``, ``gpus`` and
``curves``: an operation over a wire at a number of GPUs, as pairs of message size in bytes and busbw in bytes per second.
``scripts/make_reference_machine.py`` writes one from a run document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

Wire = Literal["nvlink", "pcie_p2p", "host_memory", "socket", "gloo"]
"""What carried it: NVLink, PCIe peer to peer, staged through host memory, TCP sockets, gloo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One operation over one wire. ``points`` are (bytes, busbw in bytes per second), ordered by size."""

    operation: str
    wire: Wire
    world_size: int
    points: tuple[tuple[int, float], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A machine to compare with."""

    name: str
    title: str
    origin: Literal["measured", "published"]
    source: str
    date: str
    num_gpus: int
    curves: tuple[Curve, ...]
    pair_copy_bytes_per_second: float | None = None
    host_copy_bytes_per_second: float | None = None
    matmul_flops_per_second: float | None = None


@cache
def references() -> tuple[Reference, ...]:
    """All reference machines: those measured by us first, then by number of GPUs and name."""
    folder = resources.files("wiretax.data").joinpath("reference_machines")
    found = [
        msgspec.json.decode(entry.read_bytes(), type=Reference)
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".json")
    ]
    return tuple(sorted(found, key=lambda machine: (machine.origin != "measured", machine.num_gpus, machine.name)))

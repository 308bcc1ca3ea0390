"""Pasted text into the model, one file a format.

A reader is a pure function from a :class:`Text` to the pieces it understands; :data:`READERS` lists them. ``input.read_files``
opens what the user named, sends NCCL log lines down their own fast road (``nccl_log``) and gives the rest to every reader here.
A new format is one new file and one line below.
"""

from __future__ import annotations

from collections.abc import Callable

from wiretax.probe.readers import (
    flight_recorder,
    nccl_ras,
    nccl_tests,
    nccl_topology,
    nvbandwidth,
    p2p_bandwidth,
    peer_check,
    torch_log,
)
from wiretax.probe.readers.piece import Piece, Problem, Text

Reader = Callable[[Text], tuple[Piece, ...]]

READERS: tuple[Reader, ...] = (
    # One reader a line, import above. The order does not matter: every reader sees every text.
    flight_recorder.read,
    nccl_ras.read,
    nccl_tests.read,
    nccl_topology.read,
    nvbandwidth.read,
    p2p_bandwidth.read,
    peer_check.read,
    torch_log.read,
)

__all__ = ["READERS", "Piece", "Problem", "Reader", "Text"]

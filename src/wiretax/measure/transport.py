"""Which transport NCCL really took, from its own debug file, while the ranks still run.

A wire is what the settings asked for only as long as the log agrees; otherwise it is renamed after what was used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from wiretax.model.measurement import Transport
from wiretax.probe.readers.nccl_lines import connection

DEBUG_FILE = "NCCL_DEBUG_FILE"

Channel = tuple[int, int, str]
"""Source rank, target rank, transport."""

_OF_SEND_AND_RECEIVE = re.compile(r"Channel \d+/1 ")
# the start of a communicator: what follows belongs to it, since a rank opens one after another
_START = re.compile(r"ncclCommInit\w*\s+comm\s+\S+\s+rank\s+(?P<rank>\d+)\s+nranks\s+(?P<nranks>\d+).*Init START")


def nccl_debug_environment(folder: Path, rank: int | str) -> dict[str, str]:
    """What makes NCCL write its decisions into a file of each rank's own; nothing of it is printed while operations run."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,P2P,SHM,NET,GRAPH",
        DEBUG_FILE: str(folder / f"nccl.{rank}.log"),
    }


def read_channels(text: str, *, communicator: int | None = None) -> dict[Channel, int]:
    """How many channels a rank's log names for each (source rank, target rank, transport).

    A channel is counted once, however often its rings and trees connect. Connections of send and receive (``Channel 03/1``) count
    only where there are no others: collectives do not use them.

    Args:
        text: of one rank's debug file.
        communicator: 0 for the first that this rank opened, -1 for the last; all by default.
    """
    parts: list[dict[Channel, tuple[set[int], set[int]]]] = [{}]
    for line in text.splitlines():
        if _START.search(line):
            parts.append({})
        elif "Channel" in line and (found := connection(line)) is not None:
            # "shared" only says that the connections of send and receive share their buffers
            key = (found.source_rank, found.target_rank, found.name.removesuffix("/Shared"))
            numbers = parts[-1].setdefault(key, (set(), set()))
            numbers[1 if _OF_SEND_AND_RECEIVE.search(line) else 0].add(found.channel)
    if len(parts) > 1:
        parts = parts[1:]  # nothing connects before the first start
    if communicator is not None:
        parts = [parts[communicator]] if -len(parts) <= communicator < len(parts) else []
    counts: dict[Channel, int] = {}
    for part in parts:
        for key, (collective, other) in part.items():
            counts[key] = max(counts.get(key, 0), len(collective or other))
    return counts


def join_channels(channels_by_rank: Sequence[Mapping[Channel, int]], gpus: Sequence[int]) -> tuple[Transport, ...]:
    """What all ranks of a communicator saw, as one list.

    A channel that both ends report (network transports do) counts once.

    Args:
        channels_by_rank: from :func:`read_channels`.
        gpus: NVML index of each rank, to translate NCCL's rank numbers.
    """
    channels: dict[Channel, int] = {}
    for counted in channels_by_rank:
        for key, count in counted.items():
            channels[key] = max(channels.get(key, 0), count)
    return tuple(
        Transport(source_gpu=gpus[source], target_gpu=gpus[target], name=name, channels=count)
        for (source, target, name), count in sorted(channels.items())
        if source < len(gpus) and target < len(gpus)
    )


def kind_of(name: str) -> str:
    """``P2P``, ``SHM``, ``NET/Socket``, ``NET/IB``, ...: what matters of a transport's name."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "NET" and len(parts) > 1 else parts[0]


def describe(transports: Sequence[Transport]) -> str | None:
    """The transports seen, joined by ``+``, without channel directions and device numbers; None where there are none."""
    return "+".join(sorted({"/".join(transport.name.split("/")[:2]) for transport in transports})) or None


_EXPECTED: Mapping[str, frozenset[str]] = {
    "p2p_off": frozenset({"SHM"}),
    "socket": frozenset({"NET/Socket"}),
    "p2p_forced": frozenset({"P2P"}),
}
_NAMED: Mapping[str, str] = {"P2P": "p2p", "SHM": "p2p_off", "NET/Socket": "socket", "NET/IB": "infiniband"}


def name_wire(requested: str, transports: Sequence[Transport]) -> tuple[str, str | None]:
    """The wire's honest name, and what was asked for where that is something else.

    ``default`` and ``clean`` promise no transport and keep their names. A wire that mixes what it promised with something else is
    ``mixed``. Without any transport (one rank has nobody to talk to) nothing is contradicted.
    """
    expected = _EXPECTED.get(requested)
    kinds = {kind_of(transport.name) for transport in transports}
    if expected is None or not kinds or kinds <= expected:
        return requested, None
    if len(kinds) > 1:
        return "mixed", requested
    kind = kinds.pop()
    return _NAMED.get(kind, kind.lower().replace("/", "_")), requested


def own_channels(environment: Mapping[str, str]) -> list[tuple[int, int, str, int]]:
    """What this process's debug file says of the communicator it opened last; empty where there is no file."""
    try:
        text = Path(environment[DEBUG_FILE]).read_text(errors="replace")
    except (KeyError, OSError):
        return []
    return [(source, target, name, count) for (source, target, name), count in sorted(read_channels(text, communicator=-1).items())]


def loaded_nccl(maps: Path = Path("/proc/self/maps")) -> str | None:
    """The path of the NCCL library this process has mapped; None where it is linked into torch or not loaded."""
    try:
        paths = (line.split(maxsplit=5)[5] for line in maps.read_text(errors="replace").splitlines() if "libnccl.so" in line)
        return next(paths, None)
    except (OSError, IndexError):
        return None

"""One line of an NCCL or RCCL log: who wrote it, and the connection it reports.

The formats are those of NCCL 2.4 to 2.31 (``src/debug.cc`` and ``src/transport/*.cc`` of https://github.com/NVIDIA/nccl, release by
release) and of RCCL (https://github.com/ROCm/rccl).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LEVEL = re.compile(rb"[NR]CCL (?:INFO|WARN|TRACE|CALL|ABORT|ERROR)\b ?")
"""What makes a line one of NCCL's."""

VERSION_LINE = re.compile(
    rb"\s{0,40}(?:> ?){0,8}(?:[NR]CCL version ?:? ?\d(?!.{0,80} compiled with)|HIP version {1,8}: \d|ROCm version {1,8}: \d"
    rb"|Librccl path {1,8}: \S|Hostname {5}: \S)"
)
"""Lines of the version banner, which carry no prefix."""

CHANNEL = re.compile(
    r"(?:Channel|Ring|Coll|CollNet) (?P<channel>\d{1,4})(?:/(?P<connection>\d{1,4}))? ?: "
    r"(?P<source_rank>[0-9]{1,7})(?:\[(?P<source>(?:0x)?[0-9A-Fa-f]{1,16})\])? -> "
    r"(?P<target_rank>[0-9]{1,7})(?:\[(?P<target>(?:0x)?[0-9A-Fa-f]{1,16})\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<rest>.{1,200})"
)
_TRANSPORT = re.compile(
    r"P2P/(?:direct pointer|common device|indirect/\d{1,7}\[\w{1,16}\]|[A-Z]{2,12})(?:/read)?(?:/CE)?"
    r"|SHM/(?:direct|CE)(?:/(?:direct|CE)(?![\w-]))?"
    r"|(?:NET|COLLNET)/[^/\n]{1,60}/\d{1,5}(?:\(\d{1,7}\))?(?:/GDRDMA(?:\(\w{1,12}\))?)?(?:/Shared)?"
    r"|direct shared memory"
)
_COMMUNICATOR = re.compile(r"comm (0x[0-9a-f]{1,16})")
_HEAD = re.compile(
    rb"(?P<host><[^<>\s]{1,80}>|[^\s:\[\]()<>|\"'{},;=]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})(?=[ \t]|$)"
    rb"(?:[ \t]{1,4}\[(?P<device>-?\d{1,4})\])?(?:[ \t]{1,4}\d{1,12}\.\d{1,9}(?=[ \t]))?(?:[ \t]{1,4}(?P<file>\S.{0,400}))?[ \t]{0,4}$"
)
_BARE_HEAD = re.compile(
    rb"(?:\[(?P<device>-?\d{1,4})\])?[ \t]{0,4}(?P<file>(?:[A-Za-z_./][\w./+-]{0,300}\.(?:cc|cu|c|h|cpp"
    rb"|hpp)|\w[^\[\]]{0,200}\)):\d{1,6})?[ \t]{0,4}$"
)
CALL = re.compile(
    r"(?P<operation>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|AllToAll\w{0,8}|Gather"
    r"|Scatter): opCount (?P<count>\w{1,16})"
)


@dataclass(frozen=True, slots=True)
class Head:
    """Who wrote a line: host, process, and the CUDA device of the calling thread (which is not always the rank's)."""

    host: str | None
    pid: int | None
    device: int | None
    file: str | None
    clean: bool
    """Nothing but NCCL's own prefix stands before the message (no date, launcher or progress bar)."""


NO_HEAD = Head(None, None, None, None, False)


def head(prefix: bytes) -> Head:
    """Reads what stands before ``NCCL INFO``, whatever launcher, date or progress bar is glued to its front."""
    near = prefix[-1500:]
    match = _HEAD.search(near) or _BARE_HEAD.search(near)
    if match is None:
        return NO_HEAD
    groups = match.groupdict()
    file = groups.get("file")
    return Head(
        groups["host"].decode("utf-8", "replace") if groups.get("host") else None,
        int(groups["pid"]) if groups.get("pid") else None,
        int(groups["device"]) if groups.get("device") else None,
        file.decode("utf-8", "replace").strip() if file else None,
        bool(groups.get("host")) and match.start() == 0 and len(near) == len(prefix),
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """One ``Channel`` line: a connector of two ranks of a communicator, and how it moves data."""

    source_rank: int
    target_rank: int
    source: str | None
    """What stands in brackets behind the rank: the NVML index (from 2.18), the PCI bus id (2.5 to 2.16) or nothing."""
    target: str | None
    channel: int
    direction: str | None
    name: str
    communicator: str | None = None


def connection(message: str) -> Connection | None:
    """Reads ``Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`` in the spelling of any release; None where it is something else."""
    match = CHANNEL.search(message)
    if match is None:
        return None
    rest = match["rest"]
    known = _TRANSPORT.match(rest)
    communicator = _COMMUNICATOR.search(rest)
    name = known.group() if known else re.split(r" comm 0x|,|\s{2}", rest, maxsplit=1)[0].strip()[:80]
    return Connection(
        int(match["source_rank"]),
        int(match["target_rank"]),
        match["source"],
        match["target"],
        int(match["channel"]),
        match["direction"],
        name,
        communicator[1] if communicator else None,
    )

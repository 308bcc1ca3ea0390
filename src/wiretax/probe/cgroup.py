"""CPU and memory limits of control groups, version 1 and 2."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from wiretax.probe.files import read_int, read_text, read_word

NO_LIMIT_FROM = 2**60
"""Version 1 writes "no limit" as the largest page-aligned number; nothing real comes near this."""

_NUMBER = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """Limits of this process; None where there is none or none can be read.

    Attributes:
        cpus: CPU time per time, such as 1.5.
        memory_bytes: the smallest memory limit of the group and those above it.
        memory_reason: why ``memory_bytes`` is None.
    """

    cpus: float | None
    memory_bytes: int | None
    memory_reason: str


def cgroup_limits(root: Path = Path("/")) -> CgroupLimits:
    """The limits that hold for this process: the tightest of its own group and every group above."""
    base = root / "sys/fs/cgroup"
    groups = parse_cgroup(read_text(root / "proc/self/cgroup"))
    cpus: list[float] = []
    memory: list[int] = []
    seen = False
    if "" in groups:
        for top in (base, base / "unified"):
            for folder in _upwards(top, groups[""]):
                cpus += _quota_v2(read_word(folder / "cpu.max"))
                limit = read_word(folder / "memory.max")
                seen = seen or limit is not None
                memory += [int(limit)] if limit is not None and _NUMBER.fullmatch(limit) else []
    for folder in _upwards(base / "memory", groups.get("memory", "/")):
        number = read_int(folder / "memory.limit_in_bytes")
        seen = seen or number is not None
        memory += [number] if number is not None and 0 < number < NO_LIMIT_FROM else []
    for name in ("cpu", "cpu,cpuacct"):
        for folder in _upwards(base / name, groups.get("cpu", "/")):
            quota, period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")
            cpus += [quota / period] if quota is not None and period is not None and quota > 0 and period > 0 else []
    return CgroupLimits(
        cpus=min(cpus, default=None),
        memory_bytes=min(memory, default=None),
        memory_reason="no limit is set" if seen else "no memory control group can be read",
    )


def memory_left_bytes(root: Path = Path("/")) -> int | None:
    """What the fullest group of this process and those above it still gives; None where no limit can be read.

    Cached files that are not in use count as free: the kernel drops them before it kills anybody.
    """
    base = root / "sys/fs/cgroup"
    groups = parse_cgroup(read_text(root / "proc/self/cgroup"))
    left: list[int] = []
    for folder in (*_upwards(base, groups.get("", "/")), *_upwards(base / "unified", groups.get("", "/"))):
        left += _left(folder, "memory.max", "memory.current", "inactive_file")
    for folder in _upwards(base / "memory", groups.get("memory", "/")):
        left += _left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    return min(left, default=None)


def _left(folder: Path, limit_name: str, used_name: str, cached_name: str) -> list[int]:
    limit, used = read_int(folder / limit_name), read_int(folder / used_name)
    if limit is None or used is None or not 0 < limit < NO_LIMIT_FROM:
        return []
    cached = re.search(rf"^{cached_name} ([0-9]{{1,18}})$", read_text(folder / "memory.stat") or "", re.MULTILINE)
    return [max(limit - used + (min(int(cached[1]), used) if cached else 0), 0)]


def parse_cgroup(text: str | None) -> dict[str, str]:
    """``/proc/self/cgroup``: controller to the group's path; version 2 has the empty name."""
    groups: dict[str, str] = {}
    for line in (text or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                groups.setdefault(controller, parts[2])
    return groups


def _upwards(top: Path, group: str) -> list[Path]:
    """The group's folder and those above it. In a container the path may be the host's, and only the top exists."""
    parts = [part for part in PurePosixPath(group).parts if part not in ("/", "..", ".")]
    return [top.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]


def _quota_v2(text: str | None) -> list[float]:
    """``cpu.max``: ``max 100000`` or ``150000 100000``."""
    parts = (text or "").split()
    if len(parts) != 2 or not all(_NUMBER.fullmatch(part) for part in parts):
        return []
    quota, period = int(parts[0]), int(parts[1])
    return [quota / period] if quota > 0 and period > 0 else []

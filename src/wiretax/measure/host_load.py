"""How busy the host was between two moments: a busy or stolen CPU disturbs every number, above all the small sizes."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wiretax.measure.rank import Rank
from wiretax.model.measurement import HostLoad

_FEWEST_TICKS = 20
"""Below this many ticks (of usually 10 ms, over all CPUs) a share would be made of rounding."""


@dataclass(frozen=True, slots=True)
class _Moment:
    total: int
    busy: int
    steal: int
    ours: int | None


class HostLoadMeter:
    """Reads /proc at two moments.

    Args:
        pids: the processes that are ours, on this host.
        proc: where /proc is (tests give their own).
    """

    def __init__(self, pids: Iterable[int], proc: Path = Path("/proc")) -> None:
        self._pids, self._proc = tuple(pids), proc
        self._first: _Moment | None = None
        self._why = ""
        self.start()

    def start(self) -> None:
        """Makes now the first moment."""
        self._first, self._why = self._now()

    def read(self) -> HostLoad:
        """The load since the first moment; what cannot be said is null with its reason."""
        frequency, why_frequency = self._frequency()
        now, why = self._now()
        missing = {} if frequency is not None else {"frequency_mhz": why_frequency}
        shares = ("busy_fraction", "steal_fraction", "other_busy_fraction")
        if self._first is None or now is None:
            return HostLoad(frequency_mhz=frequency, missing=missing | dict.fromkeys(shares, self._why or why))
        total = now.total - self._first.total
        if total < _FEWEST_TICKS:
            return HostLoad(frequency_mhz=frequency, missing=missing | dict.fromkeys(shares, "too short a time to tell"))
        busy, steal = now.busy - self._first.busy, now.steal - self._first.steal
        other = None
        if now.ours is None or self._first.ours is None:
            missing["other_busy_fraction"] = "the processor time of our own processes could not be read"
        else:
            other = _share(busy - (now.ours - self._first.ours), total)
        return HostLoad(
            busy_fraction=_share(busy, total),
            steal_fraction=_share(steal, total),
            other_busy_fraction=other,
            frequency_mhz=frequency,
            missing=missing,
        )

    def _now(self) -> tuple[_Moment | None, str]:
        path = self._proc / "stat"
        try:
            numbers = [int(word) for word in path.read_text().split("\n", 1)[0].split()[1:]]
        except (OSError, ValueError) as error:
            return None, f"{path.name} could not be read: {error}"
        if len(numbers) < 8:
            return None, f"the first line of {path.name} has {len(numbers)} numbers, not the 8 of Linux 2.6.11 and later"
        # user nice system idle iowait irq softirq steal; guest time is counted in user already
        total, steal = sum(numbers[:8]), numbers[7]
        return _Moment(total=total, busy=total - numbers[3] - numbers[4] - steal, steal=steal, ours=self._our_ticks()), ""

    def _our_ticks(self) -> int | None:
        ticks = 0
        for pid in self._pids:
            try:
                # the name in parentheses may hold spaces; utime and stime are fields 14 and 15 of proc_pid_stat(5)
                fields = (self._proc / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
            except (OSError, ValueError, IndexError):
                return None
        return ticks

    def _frequency(self) -> tuple[float | None, str]:
        try:
            lines = (self._proc / "cpuinfo").read_text().splitlines()
            found = [float(line.split(":", 1)[1]) for line in lines if line.lower().startswith("cpu mhz")]
        except (OSError, ValueError, IndexError) as error:
            return None, f"cpuinfo could not be read: {error}"
        if not found:
            return None, "cpuinfo has no clock frequency (usual on ARM)"
        return statistics.median(found), ""


def meter_of(rank: Rank) -> HostLoadMeter:
    """A meter, started, that knows the processes of all ranks on this host. Every rank of the stage must call it."""
    try:
        host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        host = os.uname().nodename
    everybody = rank.exchange("host_load/pids", [host, os.getpid()])
    return HostLoadMeter(pid for their_host, pid in everybody if their_host == host)


def _share(part: int, total: int) -> float:
    return round(min(max(part / total, 0.0), 1.0), 4)

"""What the ranks of a launch can be seen to do: their small files, the kernel's word on their processes, torchrun's log."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import msgspec

from wiretax.launch import worker
from wiretax.launch.plan import Ended, LaunchPlan, Started
from wiretax.launch.processes import Process, descendants, is_running, look_up
from wiretax.measure.rank import Heartbeat, Position


class Observed:
    """The ranks of one launch, seen from the coordinator. Reads only.

    Attributes:
        engine: torchrun's own process, once it is started.
        ranks: the process of each rank that has started.
        seen: every process announced so far, by number.
        log: what torchrun and the ranks themselves print.
    """

    def __init__(self, plan: LaunchPlan, folder: Path) -> None:
        """Nothing has started yet."""
        self.plan = plan
        self.folder = folder
        self.engine: subprocess.Popen[bytes] | None = None
        self.ranks: dict[int, Process] = {}
        self.seen: dict[int, Process] = {}
        self.log = folder / "torchrun.log"

    def missing_ranks(self) -> list[int]:
        """Ranks that have not said yet that they are ready."""
        for rank in range(self.plan.world_size):
            if rank not in self.ranks and (process := self.started(-1, rank)) is not None:
                self.ranks[rank] = process
        return [rank for rank in range(self.plan.world_size) if rank not in self.ranks]

    def started(self, number: int, rank: int) -> Process | None:
        """The child of a rank in a stage, as announced (stage -1: the rank itself); it may have ended since."""
        try:
            started = msgspec.json.decode(worker.started_file(self.folder, number, rank).read_bytes(), type=Started)
        except (OSError, msgspec.MsgspecError):
            return None
        process = Process(pid=started.pid, parent=0, state="?", started=started.started)
        self.seen[process.pid] = process
        return process

    def collect_ended(self, number: int, ended: dict[int, Ended]) -> None:
        """Adds the ranks whose child of this stage has ended."""
        for rank in range(self.plan.world_size):
            path = worker.ended_file(self.folder, number, rank)
            if rank not in ended and path.exists():
                ended[rank] = msgspec.json.decode(path.read_bytes(), type=Ended)

    def positions(self, number: int) -> dict[int, Position]:
        """Where each rank is in a stage."""
        read = ((rank, Heartbeat.read(worker.heartbeat_file(self.folder, number, rank))) for rank in range(self.plan.world_size))
        return {rank: position for rank, position in read if position is not None}

    def lost(self, ended: dict[int, Ended]) -> list[int]:
        """Ranks that are gone themselves, not only their child of this stage."""
        return [rank for rank, process in self.ranks.items() if rank not in ended and not is_running(process)]

    def is_stopped(self, rank: int) -> bool:
        """Whether the rank's own process was stopped by a signal."""
        process = self.ranks.get(rank)
        now = look_up(process.pid) if process is not None else None
        return process is not None and now is not None and now.started == process.started and now.state in "Tt"

    def state(self, number: int, rank: int) -> str:
        """Kernel state of a rank's child, or of the rank itself where that is the one that was stopped.

        Returns:
            R, S, D, T, t; ``gone`` for a child that was there and has ended; ``?`` for one that nobody has seen.
        """
        if self.is_stopped(rank):
            return "T"
        child = self.started(number, rank)
        if child is None:
            return "?" if Heartbeat.read(worker.heartbeat_file(self.folder, number, rank)) is None else "R"
        now = look_up(child.pid)
        return now.state if now is not None and now.started == child.started and now.state not in "ZX" else "gone"

    @property
    def engine_signal(self) -> int | None:
        """The signal that ended torchrun itself, if one did."""
        code = self.engine.poll() if self.engine is not None else None
        return -code if code is not None and code < 0 else None

    def engine_trouble(self) -> str:
        """Where it is torchrun itself that died by a signal or is stopped: that in words; else empty."""
        if (number := self.engine_signal) is not None:
            return f"torchrun's engine was ended by {signal_name(number)}, and all ranks with it"
        now = look_up(self.engine.pid) if self.engine is not None else None
        return "torchrun's engine was stopped by a signal" if now is not None and now.state in "Tt" else ""

    def stopped_before_start(self) -> str:
        """A process below torchrun that is stopped, in words; else empty."""
        processes = descendants(self.engine.pid) if self.engine is not None else []
        stopped = next((process for process in processes if process.state in "Tt"), None)
        return f"process {stopped.pid} was stopped by a signal" if stopped is not None else ""

    def log_text(self) -> str:
        """Everything torchrun has printed so far."""
        try:
            return self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The coordinator: starts the ranks through torchrun, gives each stage its time, ends what hangs, keeps what was measured.

All decisions are made here, in the process the user started; the ranks only obey. They talk through small files in a private
folder, so nothing that is being measured is used for control, and a folder that survives holds everything measured so far.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wiretax.launch import worker
from wiretax.launch.plan import OUT_OF_TIME, Ended, Go, LaunchPlan, Stage, Started
from wiretax.launch.processes import KILL_SECONDS, Process, adopting_orphans, is_running, kill, kill_tree, look_up
from wiretax.measure.rank import Heartbeat, Position
from wiretax.model.measurement import Incident

POLL_SECONDS = 0.03
GRACE_SECONDS = 1.5
"""After one rank of a stage died, the others may still say what they saw; then they are ended."""
HANG_SECONDS = 3.0
"""Fewer seconds without a step are slow, not a hang, unless the rank is seen to be stopped."""
SLOW_SECONDS = {"start": 15.0, "loading of libraries": 20.0, "connect": 8.0}
"""What may take longer without a step: a cold disk, a first handshake."""
HARD_SECONDS = 1.0
"""A stage child that is past its own deadline by this much is ended."""
STALL_SECONDS = 20.0
"""A stage in which no rank makes a step for so long hangs, however much time it still has."""
START_SECONDS = 60.0
"""torchrun and the import of torch may take so long on a slow disk, if the budget allows."""
TIME_USED_UP = "the time is used up"
"""Why a stage was left out, at the end of its line in ``not_measured``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Progress for the caller, several times a second."""

    stage: Stage | None
    number: int
    position: Position | None
    seconds_left: float


@dataclass(slots=True, kw_only=True)
class LaunchOutcome:
    """What happened beside the results, which lie in ``folder`` until it is closed."""

    folder: Path
    incidents: list[Incident] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A private folder for one launch, deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="wiretax-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def launch(
    plan: LaunchPlan,
    folder: Path,
    *,
    deadline: float,
    on_tick: Callable[[Tick], None] = lambda _tick: None,
    unwanted: Callable[[Stage], str | None] = lambda _stage: None,
    environment: dict[str, str] | None = None,
    send_signal: Callable[[int, int], None] = os.kill,
) -> LaunchOutcome:
    """Runs all stages of a plan on this host. Never raises for what a machine or a rank does, and leaves no process behind.

    Args:
        plan: the stages and ranks.
        folder: an empty private folder (:func:`run_folder`).
        deadline: ``time.monotonic()`` at which everything must have ended; kept within ``GRACE_SECONDS`` plus one kill.
        on_tick: called several times a second; KeyboardInterrupt in it (or anywhere here) ends the launch with what there is.
        unwanted: asked just before a stage; a reason not to run it, given what earlier stages found, or None.
        environment: the ranks' environment; this process's own by default.
        send_signal: os.kill, or a stand-in in tests.
    """
    outcome = LaunchOutcome(folder=folder)
    worker.plan_file(folder).write_bytes(msgspec.json.encode(plan))
    with adopting_orphans():
        run = _Launch(plan, folder, outcome, deadline, on_tick, unwanted, send_signal)
        try:
            run.start(os.environ if environment is None else environment)
            run.stages()
        except KeyboardInterrupt:
            outcome.interrupted = True
        finally:
            run.end()
    return outcome


class _Launch:
    """One launch while it lasts."""

    def __init__(
        self,
        plan: LaunchPlan,
        folder: Path,
        outcome: LaunchOutcome,
        deadline: float,
        on_tick: Callable[[Tick], None],
        unwanted: Callable[[Stage], str | None],
        send_signal: Callable[[int, int], None],
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.outcome = outcome
        self.deadline = deadline
        self.on_tick = on_tick
        self.unwanted = unwanted
        self.send_signal = send_signal
        self.torchrun: subprocess.Popen[bytes] | None = None
        self.ranks: dict[int, Process] = {}
        self.seen: dict[int, Process] = {}
        self.log = folder / "torchrun.log"

    # ---- start ----

    def start(self, environment: Any) -> None:
        """Starts torchrun in a session of its own, so that a Ctrl-C of the terminal reaches only us."""
        (self.folder / "tmp").mkdir()
        settings = {
            **environment,
            "TMPDIR": str(self.folder / "tmp"),  # torchrun leaves a folder behind at each run
            "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else the engine's question for GPUs makes CUDA useless in the ranks it forks
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),  # we end hangs ourselves
            "TORCH_CPP_LOG_LEVEL": environment.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
        command = [sys.executable, "-m", "wiretax.launch.agent", str(self.plan.world_size), str(self.folder)]
        with self.log.open("wb") as log:
            self.torchrun = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=settings, start_new_session=True
            )

    def _wait_for_ranks(self) -> bool:
        """Until every rank has imported torch; False when they do not come."""
        give_up = min(self.deadline, time.monotonic() + START_SECONDS)
        while time.monotonic() < give_up:
            for rank in range(self.plan.world_size):
                if rank not in self.ranks and (process := self._read_started(-1, rank)) is not None:
                    self.ranks[rank] = process
            if len(self.ranks) == self.plan.world_size:
                return True
            if self.torchrun is None or self.torchrun.poll() is not None:
                break
            self._tick(None, -1)
        missing = [rank for rank in range(self.plan.world_size) if rank not in self.ranks]
        self._incident(
            "start_failed",
            Stage(name="start", title="starting the ranks", function=""),
            rank=missing[0] if len(missing) == 1 else None,
            detail=f"ranks {', '.join(map(str, missing))} did not start in time or died. {self._last_log()}".strip(),
        )
        return False

    # ---- stages ----

    def stages(self) -> None:
        """All stages in order, each with its share of the time that is left."""
        began = time.monotonic()
        ready = self._wait_for_ranks()
        self.outcome.stage_seconds["start"] = round(time.monotonic() - began, 3)
        if not ready:
            self._skip_from(0, "the ranks did not start")
            return
        for number, stage in enumerate(self.plan.stages):
            blocked = [name for name in stage.needs if name not in self.outcome.completed]
            if blocked:
                self.outcome.not_measured.append(f"{stage.title}: {', '.join(blocked)} did not complete")
                continue
            if (reason := self.unwanted(stage)) is not None:
                self.outcome.not_measured.append(f"{stage.title}: {reason}")
                continue
            seconds = self._share(number)
            if seconds < stage.min_seconds:
                self.outcome.not_measured.append(f"{stage.title}: {TIME_USED_UP}")
                continue
            began = time.monotonic()
            alive = self._run(number, stage, seconds)
            self.outcome.stage_seconds[stage.name] = round(time.monotonic() - began, 3)
            if not alive:
                self._skip_from(number + 1, "ranks were lost before")
                return
        worker.publish(worker.go_file(self.folder, len(self.plan.stages)), None)

    def _share(self, number: int) -> float:
        """Seconds of measuring for a stage: its weight of what is left after everybody's start-up, no more than it can use."""
        rest = self.plan.stages[number:]
        free = self.deadline - time.monotonic() - sum(stage.overhead_seconds + 2 * POLL_SECONDS for stage in rest) - 0.3
        weight = sum(stage.weight for stage in rest)
        for stage in rest[1:]:  # what another stage cannot use is there for all
            if free * stage.weight / weight > stage.max_seconds:
                free -= stage.max_seconds
                weight -= stage.weight
        share = free * self.plan.stages[number].weight / weight if weight > 0 else free
        return min(share, self.plan.stages[number].max_seconds)

    def _run(self, number: int, stage: Stage, seconds: float) -> bool:
        """One stage. False when ranks themselves (not only their stage children) are gone."""
        soft = time.monotonic() + stage.overhead_seconds + seconds
        hard = min(soft + HARD_SECONDS, max(self.deadline, soft))
        worker.publish(worker.go_file(self.folder, number), Go(stage=number, soft_deadline=min(soft, self.deadline)))
        ended: dict[int, Ended] = {}
        give_up: float | None = None
        last_count, last_change = -1, time.monotonic()
        ranks = stage.ranks or self.plan.world_size
        while len(ended) < ranks:
            now = time.monotonic()
            self._collect(number, ended)
            if give_up is None and any(not _ended_well(end) for end in ended.values()):
                give_up = now + GRACE_SECONDS
            count = sum(position.count for position in self._positions(number).values())
            if count != last_count:
                last_count, last_change = count, now
            lost = [rank for rank, process in self.ranks.items() if rank not in ended and not is_running(process)]
            if lost:
                return self._ranks_lost(number, stage, lost, ended)
            stalled = now - last_change > max(STALL_SECONDS, stage.patience_seconds)
            if now > hard or (give_up is not None and now > give_up) or stalled:
                return self._end_stage(number, stage, ended, died=give_up is not None)
            self._tick(stage, number)
        if self._report_ends(number, stage, ended):
            self.outcome.completed.append(stage.name)
        return True

    def _end_stage(self, number: int, stage: Stage, ended: dict[int, Ended], *, died: bool) -> bool:
        """Ends the children of a stage that did not come back, and says which rank held it up."""
        ranks = stage.ranks or self.plan.world_size
        waiting = [rank for rank in range(ranks) if rank not in ended]
        states = {rank: self._state(number, rank) for rank in waiting}
        positions = self._positions(number)
        if died:
            self._report_ends(number, stage, ended)
        else:
            self._report_hang(stage, waiting, states, positions)
        children = [process for rank in waiting if (process := self._read_started(number, rank)) is not None]
        survivors = self._kill_all(children)
        stopped = [rank for rank in waiting if rank in self.ranks and _stopped(self.ranks[rank])]
        for rank in stopped:  # the rank itself was stopped: it cannot go on to another stage
            self.seen[self.ranks[rank].pid] = self.ranks[rank]
        give_up = time.monotonic() + 1.0
        while len(ended) < ranks - len(stopped) and not survivors and time.monotonic() < give_up:
            self._collect(number, ended)
            time.sleep(POLL_SECONDS)
        return not survivors and not stopped and len(ended) == ranks

    def _report_hang(self, stage: Stage, waiting: list[int], states: dict[int, str], positions: dict[int, Position]) -> bool:
        """Says who held the others up, and returns True; False where they were only slow."""
        now = time.monotonic()
        silent = now - max((position.monotonic_seconds for position in positions.values()), default=0.0)
        # a moment in the kernel (D) is a read from disk; a longer one is a driver that hangs
        not_running = [rank for rank in waiting if states[rank] in ("Tt?D" if silent >= HANG_SECONDS else "Tt?")]
        last = max(positions.values(), key=lambda position: position.count, default=None)
        patience = max((SLOW_SECONDS.get(position.operation, HANG_SECONDS) for position in positions.values()), default=HANG_SECONDS)
        patience = max(patience, stage.patience_seconds)
        if last is not None and not not_running and silent < patience:
            detail = f"{last.operation} was under way when the time ended"
            self._incident("out_of_time", stage, operation=last.operation, num_bytes=last.num_bytes, detail=detail)
            return False
        culprits = not_running or self._behind(waiting, positions)
        others = [position for rank, position in positions.items() if rank not in culprits] or list(positions.values())
        place = max(others, key=lambda position: position.count, default=None)  # where the others wait for it
        words = {"T": "was stopped by a signal", "t": "was stopped by a debugger", "D": "waits inside the kernel", "?": "never started"}
        rank = culprits[0] if len(culprits) == 1 else None
        if culprits:
            what = "; ".join(f"rank {rank} {words.get(states[rank], 'did not go on')}" for rank in culprits)
        else:
            what = "all ranks wait in the same operation, so none of them can be named"
        since = f"; no step for {silent:.1f} s" if positions else ""
        self._incident(
            "hang",
            stage,
            rank=rank,
            operation=place.operation if place else None,
            num_bytes=place.num_bytes if place else None,
            world_size=place.world_size if place else self.plan.world_size,
            detail=f"{what}{since}",
        )
        return True

    @staticmethod
    def _behind(waiting: list[int], positions: dict[int, Position]) -> list[int]:
        """The ranks that made fewer steps than the furthest by more than one: the others wait (or waited) for them."""
        furthest = max((position.count for position in positions.values()), default=0)
        return [rank for rank in waiting if (positions[rank].count if rank in positions else 0) < furthest - 1]

    def _ranks_lost(self, number: int, stage: Stage, lost: list[int], ended: dict[int, Ended]) -> bool:
        """Torchrun ends all ranks when one of them dies, so the launch is over."""
        end = time.monotonic() + GRACE_SECONDS
        while self.torchrun is not None and self.torchrun.poll() is None and time.monotonic() < end:
            self._collect(number, ended)
            time.sleep(POLL_SECONDS)
        positions = self._positions(number)
        first = self._first_to_die(lost)
        place = positions.get(first)
        self._incident(
            "rank_died",
            stage,
            rank=first,
            signal=self._signal_in_log(),
            operation=place.operation if place else None,
            num_bytes=place.num_bytes if place else None,
            world_size=self.plan.world_size,
            detail=self._last_log(),
        )
        return False

    def _first_to_die(self, lost: list[int]) -> int:
        """Torchrun names the first rank that failed; without its word, the lowest that is gone."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        _, found, rest = text.partition("Root Cause (first observed failure)")
        if found:
            for line in rest.splitlines():
                name, _, value = line.partition(":")
                if name.strip() == "rank" and value.split() and value.split()[0].isdigit():
                    return int(value.split()[0])
        return min(lost)

    def _signal_in_log(self) -> int | None:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        for name in ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGTERM", "SIGILL", "SIGFPE"):
            if f"Signal {signal.Signals[name].value} ({name})" in text:
                return int(signal.Signals[name])
        return None

    def _report_ends(self, number: int, stage: Stage, ended: dict[int, Ended]) -> bool:
        """Whether all ended well. Deaths by signal come first; an error that others saw because one died is not reported beside it."""
        killed = [end for end in ended.values() if end.signal is not None]
        failed = [end for end in ended.values() if end.signal is None and end.exit_code not in (0, OUT_OF_TIME)]
        positions = self._positions(number)
        for end in killed or failed[:1]:
            place = positions.get(end.rank)
            self._incident(
                "rank_died" if end.signal is not None else "error",
                stage,
                rank=end.rank,
                operation=place.operation if place else None,
                num_bytes=place.num_bytes if place else None,
                world_size=place.world_size if place else None,
                signal=end.signal,
                exit_code=end.exit_code,
                detail=end.error,
            )
        late = [end.rank for end in ended.values() if end.exit_code == OUT_OF_TIME]
        if late and not killed and not failed:
            return not self._report_hang(stage, late, dict.fromkeys(late, "R"), positions)
        return not killed and not failed

    # ---- small things ----

    def _collect(self, number: int, ended: dict[int, Ended]) -> None:
        for rank in range(self.plan.world_size):
            path = worker.ended_file(self.folder, number, rank)
            if rank not in ended and path.exists():
                ended[rank] = msgspec.json.decode(path.read_bytes(), type=Ended)

    def _positions(self, number: int) -> dict[int, Position]:
        read = ((rank, Heartbeat.read(worker.heartbeat_file(self.folder, number, rank))) for rank in range(self.plan.world_size))
        return {rank: position for rank, position in read if position is not None}

    def _read_started(self, number: int, rank: int) -> Process | None:
        try:
            started = msgspec.json.decode(worker.started_file(self.folder, number, rank).read_bytes(), type=Started)
        except (OSError, msgspec.MsgspecError):
            return None
        process = Process(pid=started.pid, parent=0, state="?", started=started.started)
        self.seen[process.pid] = process
        return process

    def _state(self, number: int, rank: int) -> str:
        """Kernel state of a rank's stage child, or of the rank itself where that is the one that was stopped."""
        if rank in self.ranks and _stopped(self.ranks[rank]):
            return "T"
        child = self._read_started(number, rank)
        now = look_up(child.pid) if child is not None else None
        return now.state if now is not None and child is not None and now.started == child.started else "?"

    def _kill_all(self, processes: list[Process]) -> list[Process]:
        """Ends these; those that survive become incidents."""
        end = time.monotonic() + KILL_SECONDS
        running = processes
        while running and time.monotonic() < end:
            for process in running:
                kill(process, self.send_signal)
            time.sleep(POLL_SECONDS)
            running = [process for process in running if is_running(process)]
        self._survived(running)
        return running

    def _survived(self, processes: list[Process]) -> None:
        known = {incident.pid for incident in self.outcome.incidents if incident.kind == "survived_kill"}
        for process in processes:
            if process.pid not in known:
                now = look_up(process.pid)
                detail = f"process {process.pid} did not end {KILL_SECONDS:g} s after SIGKILL (state {now.state if now else '?'})"
                self._incident("survived_kill", Stage(name="end", title="ending the ranks", function=""), pid=process.pid, detail=detail)

    def _incident(self, kind: Any, stage: Stage, **values: Any) -> None:
        rank = values.get("rank")
        gpu = self.plan.gpus[rank] if rank is not None and rank < len(self.plan.gpus) else None
        self.outcome.incidents.append(Incident(kind=kind, stage=stage.name, wire=stage.wire, gpu=gpu, **values))

    def _skip_from(self, number: int, reason: str) -> None:
        self.outcome.not_measured.extend(f"{stage.title}: {reason}" for stage in self.plan.stages[number:])

    def _tick(self, stage: Stage | None, number: int) -> None:
        position = self._positions(number).get(0) if stage is not None else None
        self.on_tick(Tick(stage=stage, number=number, position=position, seconds_left=self.deadline - time.monotonic()))
        time.sleep(POLL_SECONDS)

    def _last_log(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        telling = [line for line in lines if "Error" in line or "error" in line or "Signal" in line]
        return (telling[-1] if telling else lines[-1] if lines else "")[:400].strip()

    def _let_go(self, seconds: float) -> None:
        """Until the engine has seen its ranks end; it is not waited for when they are gone and it is still there."""
        give_up = time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while self.torchrun is not None and self.torchrun.poll() is None and time.monotonic() < give_up:
                if not any(is_running(process) for process in self.ranks.values()):
                    give_up = min(give_up, time.monotonic() + 0.3)
                time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """Ends everything. After a good run torchrun goes by itself within a fraction of a second."""
        if self.torchrun is None:
            return
        if worker.go_file(self.folder, len(self.plan.stages)).exists() and not self.outcome.interrupted:
            self._let_go(min(2.0, max(self.deadline - time.monotonic(), 0.3)))
        for rank in range(self.plan.world_size):
            for number in range(-1, len(self.plan.stages)):
                self._read_started(number, rank)
        survivors = kill_tree(self.torchrun.pid, extra=tuple(self.seen.values()), send=self.send_signal)
        if self.torchrun.poll() is None and not any(process.pid == self.torchrun.pid for process in survivors):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.torchrun.wait(timeout=0.5)
        self._survived(survivors)


def _ended_well(end: Ended) -> bool:
    return end.signal is None and end.exit_code in (0, OUT_OF_TIME)


def _stopped(process: Process) -> bool:
    now = look_up(process.pid)
    return now is not None and now.started == process.started and now.state in "Tt"

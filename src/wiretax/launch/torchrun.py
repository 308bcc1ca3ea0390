"""The coordinator: starts the ranks through torchrun, gives each stage its time, ends what hangs, keeps what was measured.

All decisions are made here, in the process the user started; the ranks only obey. They talk through small files in a private
folder, so nothing that is being measured is used for control, and a folder that survives holds everything measured so far.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from wiretax.launch import last_words, worker
from wiretax.launch.account import TIME_USED_UP, Account, LaunchOutcome
from wiretax.launch.interrupts import Interrupts
from wiretax.launch.observed import Observed
from wiretax.launch.obstacles import obstacle, tight_limits
from wiretax.launch.plan import OUT_OF_TIME, Ended, Go, LaunchPlan, Stage
from wiretax.launch.processes import KILL_SECONDS, Process, adopting_orphans, is_running, kill, kill_tree, python_command
from wiretax.measure.rank import Position

POLL_SECONDS = 0.03
ENGINE_SECONDS = 8.0
"""After a rank died, torchrun may take so long on a busy host to end the others and say why, if the budget allows."""
GRACE_SECONDS = 1.5
"""After one rank of a stage died, the others may still say what they saw; then they are ended."""
HARD_SECONDS = 1.0
"""A stage child that is past its own deadline by this much is ended."""
STALL_SECONDS = 20.0
"""A stage in which no rank makes a step for so long hangs, however much time it still has."""
STOPPED_SECONDS = 3.0
"""The same where a rank is seen to be stopped by a signal all the while: it will not go on by itself."""
START_SECONDS = 60.0
"""torchrun and the import of torch may take so long on a slow disk, if the budget allows."""
LEAST_START_SECONDS = 1.0
"""No host starts them in less; then it was not the start that took the time."""
PAUSE_SECONDS = 2.0
"""When our own clock makes such a step between two looks, it was us who were stopped, not the ranks who hang."""
SETTLE_SECONDS = 0.5
"""How long the word that a stage child has ended may be behind its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Progress for the caller, several times a second."""

    stage: Stage | None
    number: int
    position: Position | None
    seconds_left: float


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
        folder: a private folder (:func:`wiretax.launch.run_folder.run_folder`).
        deadline: ``time.monotonic()`` at which everything must have ended; kept within ``GRACE_SECONDS`` plus one kill.
        on_tick: called several times a second; KeyboardInterrupt in it (or anywhere here) ends the launch with what there is, and
            so do SIGINT and SIGTERM; further ones do not disturb the end.
        unwanted: asked just before a stage; a reason not to run it, given what earlier stages found, or None.
        environment: the ranks' environment; this process's own by default.
        send_signal: os.kill, or a stand-in in tests.
    """
    outcome = LaunchOutcome(folder=folder)
    run = _Launch(plan, folder, outcome, deadline, on_tick, unwanted, send_signal)
    with Interrupts() as interrupts, adopting_orphans():
        try:
            if run.start(os.environ if environment is None else environment):
                run.stages()
        except KeyboardInterrupt:
            outcome.interrupted = True
        except OSError as error:
            run.account.cannot_go_on(error)
        finally:
            interrupts.hold()
            run.end()
    outcome.interrupted |= interrupts.came
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
        self.observed = Observed(plan, folder)
        self.account = Account(self.observed, outcome)
        self.looked = time.monotonic()
        self.paused_seconds = 0.0

    # ---- start ----

    def start(self, environment: Any) -> bool:
        """Starts torchrun in a session of its own, so that a Ctrl-C of the terminal reaches only us. False where that is in vain."""
        if (reason := obstacle(self.folder)) is not None:
            self.account.not_started(reason)
            return False
        settings = {
            **environment,
            "TMPDIR": str(self.folder / "tmp"),  # torchrun leaves a folder behind at each run
            "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else the engine's question for GPUs makes CUDA useless in the ranks it forks
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),  # we end hangs ourselves
            "TORCH_CPP_LOG_LEVEL": environment.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
        command = python_command("wiretax.launch.agent", str(self.plan.world_size), str(self.folder), str(os.getpid()))
        try:
            (self.folder / "tmp").mkdir()
            worker.plan_file(self.folder).write_bytes(msgspec.json.encode(self.plan))
            with self.observed.log.open("wb") as log:
                self.observed.engine = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=settings,
                    cwd=None if _has_working_folder() else self.folder,
                    start_new_session=True,
                )
        except OSError as error:
            self.account.not_started(f"torchrun cannot be started: {last_words.meaning(str(error))}")
            return False
        return True

    def _wait_for_ranks(self) -> bool:
        """Until every rank has imported torch; False when they do not come."""
        began = time.monotonic()
        engine = self.observed.engine
        while time.monotonic() < min(self.deadline, began + START_SECONDS):
            if not self.observed.missing_ranks():
                return True
            if engine is None or engine.poll() is not None:
                break
            self._tick(None, -1)
        missing = self.observed.missing_ranks()
        if not missing:  # the last one came between two looks
            return True
        count = self.plan.world_size
        who = {1: f"rank {missing[0]} never", count: "no rank"}.get(len(missing), f"{len(missing)} of {count} ranks never")
        waited = time.monotonic() - began
        why = self.observed.engine_trouble() or self.observed.stopped_before_start() or last_words.of_engine(self.observed.log_text())
        if not why:
            why = f"loading torch was not done after {waited:.1f} s, as happens on a cold disk, on a busy host, or with a small budget"
            if waited < LEAST_START_SECONDS:
                why = "the time was used up before (--budget gives more)"
        if limits := tight_limits():
            why += f" ({limits})"
        self.account.not_started(f"{who} started: {why}", missing[0] if len(missing) == 1 else None)
        return False

    # ---- stages ----

    def stages(self) -> None:
        """All stages in order, each with its share of the time that is left."""
        began = time.monotonic()
        ready = self._wait_for_ranks()
        self.outcome.stage_seconds["start"] = round(time.monotonic() - began, 3)
        if not ready:
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
                self.account.skip_from(number + 1, "ranks were lost before")
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
        stopped_since: float | None = None
        ranks = stage.ranks or self.plan.world_size
        self.looked, self.paused_seconds = time.monotonic(), 0.0
        while len(ended) < ranks:
            now = self._look()
            self.observed.collect_ended(number, ended)
            if give_up is None and any(not _ended_well(end) for end in ended.values()):
                give_up = now + GRACE_SECONDS
            count = sum(position.count for position in self.observed.positions(number).values())
            if count != last_count:
                last_count, last_change = count, now
            if lost := self.observed.lost(ended):
                self._wait_for_engine(number, ended)
                self.account.ranks_lost(number, stage, lost)
                return False
            stalled = now - last_change > max(STALL_SECONDS, stage.patience_seconds)
            if now - last_change < STOPPED_SECONDS or not self._some_stopped(number, ranks, ended):
                stopped_since = None
            elif stopped_since is None:
                stopped_since = now  # counted from here: after a Ctrl-Z of everything the ranks may wake a moment after us
            elif now - stopped_since > STOPPED_SECONDS:
                stalled = True
            if now > hard or (give_up is not None and now > give_up) or stalled:
                self._settle(number, ranks, ended)
                if len(ended) < ranks:
                    return self._end_stage(number, stage, ended, died=give_up is not None)
            self._tick(stage, number)
        if self.account.stage_ended(number, stage, ended):
            self.outcome.completed.append(stage.name)
        return True

    def _some_stopped(self, number: int, ranks: int, ended: dict[int, Ended]) -> bool:
        return any(self.observed.state(number, rank) in ("T", "t") for rank in range(ranks) if rank not in ended)

    def _wait_for_engine(self, number: int, ended: dict[int, Ended]) -> None:
        """Torchrun ends all ranks when one of them dies, so the launch is over; it says which was the first."""
        now = time.monotonic()
        give_up = now + max(GRACE_SECONDS, min(ENGINE_SECONDS, self.deadline - now))
        while self.observed.engine is not None and self.observed.engine.poll() is None and time.monotonic() < give_up:
            self.observed.collect_ended(number, ended)
            time.sleep(POLL_SECONDS)

    def _settle(self, number: int, ranks: int, ended: dict[int, Ended]) -> None:
        """Waits a moment for the word of stage children that are gone already: on a busy host it may be late."""
        give_up = time.monotonic() + SETTLE_SECONDS
        self.observed.collect_ended(number, ended)
        while time.monotonic() < give_up and any(self.observed.state(number, rank) == "gone" for rank in range(ranks) if rank not in ended):
            time.sleep(POLL_SECONDS)
            self.observed.collect_ended(number, ended)

    def _end_stage(self, number: int, stage: Stage, ended: dict[int, Ended], *, died: bool) -> bool:
        """Ends the children of a stage that did not come back, and says which rank held it up."""
        ranks = stage.ranks or self.plan.world_size
        waiting = [rank for rank in range(ranks) if rank not in ended]
        states = {rank: self.observed.state(number, rank) for rank in waiting}
        positions = self.observed.positions(number)
        if died:
            self.account.stage_ended(number, stage, ended)
        else:
            self.account.hang(stage, waiting, states, positions, self.paused_seconds)
        children = [process for rank in waiting if (process := self.observed.started(number, rank)) is not None]
        survivors = self._kill_all(children)
        stopped = [rank for rank in waiting if self.observed.is_stopped(rank)]  # such a rank cannot go on to another stage
        give_up = time.monotonic() + 1.0
        while len(ended) < ranks - len(stopped) and not survivors and time.monotonic() < give_up:
            self.observed.collect_ended(number, ended)
            time.sleep(POLL_SECONDS)
        return not survivors and not stopped and len(ended) == ranks and not self.observed.engine_trouble()

    # ---- small things ----

    def _kill_all(self, processes: list[Process]) -> list[Process]:
        """Ends these; those that survive become incidents."""
        end = time.monotonic() + KILL_SECONDS
        running = processes
        while running and time.monotonic() < end:
            for process in running:
                kill(process, self.send_signal)
            time.sleep(POLL_SECONDS)
            running = [process for process in running if is_running(process)]
        self.account.survived(running)
        return running

    def _tick(self, stage: Stage | None, number: int) -> None:
        position = self.observed.positions(number).get(0) if stage is not None else None
        self.on_tick(Tick(stage=stage, number=number, position=position, seconds_left=self.deadline - time.monotonic()))
        time.sleep(POLL_SECONDS)

    def _look(self) -> float:
        """The time now; a long step since the last look means that we were stopped."""
        now = time.monotonic()
        if now - self.looked > PAUSE_SECONDS:
            self.paused_seconds += now - self.looked
        self.looked = now
        return now

    def _let_go(self, engine: subprocess.Popen[bytes], seconds: float) -> None:
        """Until the engine has seen its ranks end; it is not waited for when they are gone and it is still there."""
        give_up = time.monotonic() + seconds
        while engine.poll() is None and time.monotonic() < give_up:
            if not any(is_running(process) for process in self.observed.ranks.values()):
                give_up = min(give_up, time.monotonic() + 0.3)
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """Ends everything. After a good run torchrun goes by itself within a fraction of a second."""
        engine = self.observed.engine
        if engine is None:
            return
        if worker.go_file(self.folder, len(self.plan.stages)).exists() and not self.outcome.interrupted:
            self._let_go(engine, min(2.0, max(self.deadline - time.monotonic(), 0.3)))
        for rank in range(self.plan.world_size):
            for number in range(-1, len(self.plan.stages)):
                self.observed.started(number, rank)
        survivors = kill_tree(engine.pid, extra=tuple(self.observed.seen.values()), send=self.send_signal)
        if engine.poll() is None and not any(process.pid == engine.pid for process in survivors):
            with contextlib.suppress(subprocess.TimeoutExpired):
                engine.wait(timeout=0.5)
        self.account.survived(survivors)


def _has_working_folder() -> bool:
    """A working folder that was deleted keeps torch from loading."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _ended_well(end: Ended) -> bool:
    return end.signal is None and end.exit_code in (0, OUT_OF_TIME)

"""What went wrong in a launch, as incidents: who, where, and the cause in one sentence."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wiretax.launch import last_words
from wiretax.launch.observed import Observed, signal_name
from wiretax.launch.plan import OUT_OF_TIME, Ended, Stage
from wiretax.launch.processes import KILL_SECONDS, Process, look_up
from wiretax.measure.rank import Position
from wiretax.model.measurement import Incident

HANG_SECONDS = 3.0
"""Fewer seconds without a step are slow, not a hang, unless the rank is seen to be stopped."""
SLOW_SECONDS = {"start": 15.0, "loading of libraries": 20.0, "connect": 8.0}
"""What may take longer without a step: a cold disk, a first handshake."""
TIME_USED_UP = "the time is used up"
"""Why a stage was left out, at the end of its line in ``not_measured``."""

_STARTING = Stage(name="start", title="starting the ranks", function="")
_TALKING = Stage(name="launch", title="talking with the ranks", function="")
_ENDING = Stage(name="end", title="ending the ranks", function="")
_STATES = {"T": "was stopped by a signal", "t": "was stopped by a debugger", "D": "waits inside the kernel", "?": "never started"}


@dataclass(slots=True, kw_only=True)
class LaunchOutcome:
    """What happened beside the results, which lie in ``folder`` until it is closed."""

    folder: Path
    incidents: list[Incident] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


class Account:
    """Keeps the account of one launch in its outcome."""

    def __init__(self, observed: Observed, outcome: LaunchOutcome) -> None:
        """An empty account."""
        self._observed = observed
        self._outcome = outcome

    def not_started(self, detail: str, rank: int | None = None) -> None:
        """Nothing can be measured at all."""
        self._incident("start_failed", _STARTING, rank=rank, detail=detail)
        self.skip_from(0, "the ranks did not start")

    def skip_from(self, number: int, reason: str) -> None:
        """All stages from this one on are left out."""
        self._outcome.not_measured.extend(f"{stage.title}: {reason}" for stage in self._observed.plan.stages[number:])

    def cannot_go_on(self, error: OSError) -> None:
        """The coordinator itself could not write or start something."""
        self._incident("error", _TALKING, detail=f"the run cannot go on: {last_words.meaning(str(error))}")

    def hang(self, stage: Stage, waiting: list[int], states: dict[int, str], positions: dict[int, Position], paused_seconds: float) -> bool:
        """Says who held the others up, and returns True; False where they were only slow.

        Args:
            stage: which did not end in time.
            waiting: ranks that did not come back.
            states: of these, see :meth:`Observed.state`.
            positions: of all ranks.
            paused_seconds: for how long we were stopped ourselves.
        """
        silent = time.monotonic() - max((position.monotonic_seconds for position in positions.values()), default=0.0)
        # a moment in the kernel (D) is a read from disk; a longer one is a driver that hangs
        not_running = [rank for rank in waiting if states[rank] in ("Tt?D" if silent >= HANG_SECONDS else "Tt?")]
        last = max(positions.values(), key=lambda position: position.count, default=None)
        patience = max((SLOW_SECONDS.get(position.operation, HANG_SECONDS) for position in positions.values()), default=HANG_SECONDS)
        patience = max(patience, stage.patience_seconds)
        trouble = self._observed.engine_trouble()
        if last is not None and not not_running and not trouble and (silent < patience or paused_seconds):
            detail = f"{last.operation} was under way when the time ended"
            if paused_seconds:
                detail += f"; wiretax itself stood still for {paused_seconds:.0f} s (Ctrl-Z, or a machine that slept)"
            self._incident("out_of_time", stage, operation=last.operation, num_bytes=last.num_bytes, detail=detail)
            return False
        culprits = [] if trouble else not_running or _behind(waiting, positions)
        others = [position for rank, position in positions.items() if rank not in culprits] or list(positions.values())
        place = max(others, key=lambda position: position.count, default=None)  # where the others wait for it
        if culprits:
            what = "; ".join(f"rank {rank} {_STATES.get(states[rank], 'did not go on')}" for rank in culprits)
        else:
            what = trouble or "all ranks wait in the same operation, so none of them can be named"
        self._incident(
            "hang",
            stage,
            rank=culprits[0] if len(culprits) == 1 else None,
            operation=place.operation if place else None,
            num_bytes=place.num_bytes if place else None,
            world_size=place.world_size if place else self._observed.plan.world_size,
            detail=f"{what}{f'; no step for {silent:.1f} s' if positions else ''}",
        )
        return True

    def ranks_lost(self, number: int, stage: Stage, lost: list[int]) -> None:
        """Ranks themselves are gone: one died and torchrun ended the others, or torchrun died and all ended with it."""
        log = self._observed.log_text()
        trouble = self._observed.engine_trouble()
        named = last_words.first_to_die(log)
        first = min(lost) if named is None else named
        self._incident(
            "rank_died",
            stage,
            rank=None if trouble else first,
            signal=self._observed.engine_signal or last_words.signal_of(log),
            detail=trouble or last_words.of_engine(log) or "the process is gone, and torchrun has not said why",
            **{**_where(self._observed.positions(number).get(first)), "world_size": self._observed.plan.world_size},
        )

    def stage_ended(self, number: int, stage: Stage, ended: dict[int, Ended]) -> bool:
        """Whether all ended well. Deaths by signal come first; an error that others saw because one went is not told beside it."""
        killed = [end for end in ended.values() if end.signal is not None]
        failed = [end for end in ended.values() if end.signal is None and end.exit_code not in (0, OUT_OF_TIME)]
        failed.sort(key=lambda end: last_words.blames_a_peer(end.error))
        positions = self._observed.positions(number)
        for end in killed or failed[:1]:
            self._incident(
                "rank_died" if end.signal is not None else "error",
                stage,
                rank=end.rank,
                signal=end.signal,
                exit_code=end.exit_code,
                detail=last_words.summary(end.error) or (f"ended by {signal_name(end.signal)}" if end.signal is not None else ""),
                **_where(positions.get(end.rank)),
            )
        late = [end.rank for end in ended.values() if end.exit_code == OUT_OF_TIME]
        if late and not killed and not failed:
            return not self.hang(stage, late, dict.fromkeys(late, "R"), positions, 0.0)
        return not killed and not failed

    def survived(self, processes: list[Process]) -> None:
        """These did not end after SIGKILL."""
        known = {incident.pid for incident in self._outcome.incidents if incident.kind == "survived_kill"}
        for process in processes:
            if process.pid not in known:
                now = look_up(process.pid)
                detail = f"process {process.pid} did not end {KILL_SECONDS:g} s after SIGKILL (state {now.state if now else '?'})"
                self._incident("survived_kill", _ENDING, pid=process.pid, detail=detail)

    def _incident(self, kind: Any, stage: Stage, **values: Any) -> None:
        gpus, rank = self._observed.plan.gpus, values.get("rank")
        gpu = gpus[rank] if rank is not None and rank < len(gpus) else None
        if kind in ("rank_died", "error", "start_failed") and last_words.disk_is_full(self._observed.folder):
            values["detail"] = last_words.with_full_disk(values["detail"])
        self._outcome.incidents.append(Incident(kind=kind, stage=stage.name, wire=stage.wire, gpu=gpu, **values))


def _where(place: Position | None) -> dict[str, Any]:
    if place is None:
        return {}
    return {"operation": place.operation, "num_bytes": place.num_bytes, "world_size": place.world_size}


def _behind(waiting: list[int], positions: dict[int, Position]) -> list[int]:
    """The ranks that made fewer steps than the furthest by more than one: the others wait (or waited) for them."""
    furthest = max((position.count for position in positions.values()), default=0)
    return [rank for rank in waiting if (positions[rank].count if rank in positions else 0) < furthest - 1]

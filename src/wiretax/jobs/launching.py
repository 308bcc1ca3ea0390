"""What every job that measures does around its launch: choose GPUs, report progress, collect, say how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from wiretax import __version__
from wiretax.jobs.progress import Progress
from wiretax.judge.exit_code import is_defect
from wiretax.launch.account import TIME_USED_UP, LaunchOutcome
from wiretax.launch.collect import Collected, collect
from wiretax.launch.interrupts import Interrupts
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.launch.run_folder import run_folder
from wiretax.launch.torchrun import Tick, launch
from wiretax.model.machine import Gpu, Machine, NcclLibrary
from wiretax.model.measurement import Incident, Measurements
from wiretax.model.money import Price
from wiretax.model.run import Outcome, Run, Tool
from wiretax.model.training import Training
from wiretax.store.folder import new_run_id
from wiretax.units import size

Unwanted = Callable[[Stage, Callable[[], Collected]], str | None]
"""Asked just before a stage, with a way to see what was measured so far; a reason not to run it, or None."""

NVML_SECONDS = 10.0
JUDGE_SECONDS = 1.8
"""Kept back from the budget for judging, showing and saving."""
STOPPED = "stopped by the user; what was measured before is kept"


def choose_gpus(machine: Machine, ordinals: tuple[int, ...] | None = None) -> list[Gpu] | Incident:
    """The GPUs that ranks can use, by CUDA ordinal; an empty list where none is visible.

    Args:
        machine: as just read.
        ordinals: only these; all when None.

    Returns:
        The GPUs, or why none of those that are there can be used (or torch is missing).
    """
    if find_spec("torch") is None:
        return cannot("torch is not installed in this Python; wiretax measures with it and never installs it (pip install torch)")
    present = [gpu for gpu in machine.gpus if gpu.cuda_ordinal is not None]
    usable = sorted((gpu for gpu in present if gpu.status == "ok"), key=lambda gpu: gpu.cuda_ordinal or 0)
    if machine.driver_state not in ("ok", "absent", None):
        return cannot(f"the GPU driver does not answer as it should ({machine.driver_state}): {machine.driver_detail or 'no detail'}")
    # a lost GPU has no CUDA ordinal, as a hidden one has none; but it is not the user who took it away
    broken = [gpu for gpu in machine.gpus if gpu.status != "ok"]
    if (present and not usable) or (broken and len(broken) == len(machine.gpus)):
        return cannot(f"no GPU is usable: {'; '.join(f'GPU {gpu.index}: {gpu.status_reason or gpu.status}' for gpu in present or broken)}")
    if machine.gpus and machine.software.torch is not None and machine.software.torch_cuda is None:
        return cannot(f"this torch ({machine.software.torch}) was built without CUDA, so it cannot use the GPUs of this machine")
    if not usable or ordinals is None:
        return usable
    by_ordinal = {gpu.cuda_ordinal: gpu for gpu in usable}
    unknown = [ordinal for ordinal in ordinals if ordinal not in by_ordinal]
    if unknown:
        return cannot(f"there is no usable GPU with CUDA ordinal {', '.join(map(str, unknown))}")
    return [by_ordinal[ordinal] for ordinal in ordinals]


def nccl_configuration(machine: Machine) -> dict[str, str]:
    """NCCL's configuration files as variables: ``/etc/nccl.conf:NCCL_P2P_DISABLE`` is NCCL_P2P_DISABLE."""
    return {key.rpartition(":")[2]: value for key, value in machine.software.nccl_conf.items()}


def cannot(detail: str) -> Incident:
    """Nothing can be started, and why."""
    return Incident(kind="start_failed", stage="start", detail=detail)


class JobProgress:
    """A job's clock: turns the coordinator's ticks into fractions of the budget, and money where a price is known.

    Args:
        started: ``time.monotonic()`` from which the budget counts.
        budget_seconds: for everything.
        on_progress: told several times a second.
        price: of the GPUs.
    """

    def __init__(self, started: float, budget_seconds: float, on_progress: Callable[[Progress], None], price: Price | None = None) -> None:
        self.started = started
        self.budget = budget_seconds
        self.price = price
        self.num_gpus: int | None = None
        self._on_progress = on_progress

    @property
    def end(self) -> float:
        """When the budget is spent, on the monotonic clock."""
        return self.started + self.budget

    @property
    def nvml_seconds(self) -> float:
        """How long the driver may take to answer: little of a small budget."""
        return min(NVML_SECONDS, max(self.budget - 1.0, 0.5))

    def say(self, stage: str, fraction: float | None = None, detail: str = "") -> None:
        """Reports what is being done."""
        elapsed = time.monotonic() - self.started
        self._on_progress(
            Progress(
                stage=stage,
                fraction=min(elapsed / self.budget, 1.0) if fraction is None else fraction,
                seconds_left=max(self.budget - elapsed, 0.0),
                seconds_elapsed=elapsed,
                detail=detail,
                money_spent=self._money(elapsed),
                currency=self.price.currency if self.price is not None else None,
            )
        )

    def tick(self, plan: LaunchPlan, tick: Tick) -> None:
        """Reports where the launch is."""
        if tick.stage is None:
            self.say("starting the ranks (torch is being imported)")
            return
        position = tick.position
        detail = ""
        if position is not None:
            detail = position.operation if position.num_bytes is None else f"{position.operation} {size(position.num_bytes)}"
        self.say(f"{tick.number + 1}/{len(plan.stages)} {tick.stage.title}", detail=detail)

    def _money(self, seconds: float) -> float | None:
        """What the box has cost since the start; a price per GPU needs to know how many there are."""
        if self.price is None or (self.price.per == "gpu_hour" and self.num_gpus is None):
            return None
        return self.price.amount * ((self.num_gpus or 1) if self.price.per == "gpu_hour" else 1) * seconds / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a launch left behind."""

    collected: Collected
    outcome: LaunchOutcome


def measure(
    plan: LaunchPlan | Incident,
    progress: JobProgress,
    *,
    deadline: float,
    unwanted: Unwanted = lambda _stage, _so_far: None,
) -> Measured:
    """Runs a plan and collects what it measured; Ctrl-C and a polite kill end it with what there is.

    Args:
        plan: or why nothing can be started.
        progress: is told of every tick.
        deadline: ``time.monotonic()`` at which everything must have ended.
        unwanted: see :data:`Unwanted`.
    """
    if isinstance(plan, Incident):
        return _nothing_measured(plan)
    environment = dict(os.environ)  # before what is set for our own imports
    with Interrupts() as interrupts, contextlib.ExitStack() as cleaning:
        try:
            folder = cleaning.enter_context(run_folder())
        except OSError as error:
            return _nothing_measured(cannot(f"there is no folder for temporary files that can be written ({error}); set TMPDIR to one"))
        _import_ahead()
        outcome = launch(
            plan,
            folder,
            deadline=deadline,
            on_tick=lambda tick: progress.tick(plan, tick),
            unwanted=lambda stage: unwanted(stage, lambda: collect(folder, plan)),
            environment=environment,
        )
        interrupts.hold()
        progress.say("judging", 0.99)
        collected = collect(folder, plan)
    outcome.interrupted |= interrupts.came
    return Measured(collected=collected, outcome=outcome)


def _nothing_measured(reason: Incident) -> Measured:
    return Measured(collected=Collected(measurements=Measurements(incidents=(reason,))), outcome=LaunchOutcome(folder=Path()))


def run_of(command: str, machine: Machine, measured: Measured, progress: JobProgress) -> Run:
    """The run document of a launch, not judged yet.

    Args:
        command: the sub-command.
        machine: as it was read before.
        measured: by the ranks.
        progress: for budget, price and duration.
    """
    incidents = _incidents(measured.collected, measured.outcome)
    return Run(
        run_id=new_run_id(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command=command,
        machine=_with_facts(machine, measured.collected),
        price=progress.price,
        measurements=dataclasses.replace(measured.collected.measurements, incidents=incidents),
        training=Training(profiles=measured.collected.profiles, steps=measured.collected.steps),
        outcome=_outcome(incidents, measured.outcome, progress),
    )


def as_interrupted(run: Run) -> Run:
    """A run that the user wanted to stop while it was being judged already: whole, but marked as stopped."""
    assert run.outcome is not None
    return dataclasses.replace(run, outcome=dataclasses.replace(run.outcome, status="interrupted", reason=STOPPED))


def _import_ahead() -> None:
    """Brings in what judging needs while the ranks are being started: seconds, from a cold disk, that nobody else needs then."""
    # OpenBLAS, which numpy brings, sends us SIGINT where it may not start its threads; and we need none
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with contextlib.suppress(RuntimeError):  # no more threads allowed: then it is imported when it is needed
        threading.Thread(target=lambda: [import_module(name) for name in ("numpy", "scipy.stats", "rich.console")], daemon=True).start()


def _with_facts(machine: Machine, measured: Collected) -> Machine:
    """Adds what only a rank can know: the NCCL that torch loaded, and CUDA's own word on peer access."""
    software = machine.software
    loaded = next(iter(measured.facts.get("nccl_loaded", [])), None)
    if loaded is not None:
        missing = {name: why for name, why in software.missing.items() if name != "nccl_loaded"}
        software = dataclasses.replace(software, nccl_loaded=msgspec.convert(loaded, NcclLibrary), missing=missing)
    access = {(source, target): can for fact in measured.facts.get("peer_access", []) for source, target, can in fact}
    pairs = []
    for pair in machine.pairs:
        can = access.get((pair.source_gpu, pair.target_gpu))
        if can is not None:
            missing = {name: why for name, why in pair.missing.items() if name != "peer_access"}
            pair = dataclasses.replace(pair, peer_access=can, missing=missing)
        pairs.append(pair)
    return dataclasses.replace(machine, software=software, pairs=tuple(pairs))


def _incidents(measured: Collected, outcome: LaunchOutcome) -> tuple[Incident, ...]:
    """One word on each trouble: the cause where it is known, not also the errors that it made others see."""
    gone = {incident.stage for incident in outcome.incidents if incident.kind in ("rank_died", "hang")}
    ranks = measured.measurements.incidents
    told = {incident.stage for incident in ranks if incident.kind in ("error", "hang")} - gone
    kept = [incident for incident in ranks if not (incident.kind in ("error", "hang") and incident.stage in gone)]
    kept += [incident for incident in outcome.incidents if not (incident.kind == "error" and incident.stage in told)]
    kept += [Incident(kind="error", stage="collect", detail=text) for text in measured.unreadable]
    return tuple(kept)


def _outcome(incidents: tuple[Incident, ...], outcome: LaunchOutcome, progress: JobProgress) -> Outcome:
    failures = [incident for incident in incidents if is_defect(incident)]
    if outcome.interrupted:
        status, reason = "interrupted", STOPPED
    elif failures:
        status, reason = "failed", failures[0].detail or failures[0].kind
    elif any(text.endswith(TIME_USED_UP) for text in outcome.not_measured) or any(one.kind == "out_of_time" for one in incidents):
        status, reason = "out_of_budget", "the time was spent before everything was measured"
    else:
        status, reason = "complete", ""
    return Outcome(
        status=status,  # type: ignore[arg-type]  # one of the four words above
        reason=reason,
        budget_seconds=progress.budget,
        duration_seconds=round(time.monotonic() - progress.started, 3),
        stage_seconds=outcome.stage_seconds,
        not_measured=tuple(outcome.not_measured),
    )

"""The main job: probe, measure, judge, say it in one sentence (DESIGN 3, ``wiretax check``)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import msgspec

from wiretax import __version__
from wiretax.jobs.progress import Progress
from wiretax.jobs.stages import BUDGET_SECONDS, Level, cpu_plan, gpu_plan
from wiretax.judge.verdict import judge
from wiretax.launch.collect import Collected, collect
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.launch.torchrun import LaunchOutcome, Tick, launch, run_folder
from wiretax.model.machine import Gpu, Machine, NcclLibrary
from wiretax.model.measurement import Incident, Measurements, Operation
from wiretax.model.money import Price
from wiretax.model.run import Outcome, Run, Tool
from wiretax.predict.bounds import bounds
from wiretax.probe.inspect import inspect_machine
from wiretax.store.folder import new_run_id
from wiretax.units import size

CPU_RANKS = 2
NVML_SECONDS = 10.0
JUDGE_SECONDS = 1.8
"""Kept back from the budget for judging, showing and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to check and how long.

    Attributes:
        level: how deep; sets the budget and what is asked.
        budget_seconds: all of the run, start-up included; by level when None.
        gpus: CUDA ordinals to use; all visible ones when None.
        cpu_ranks: measure that many CPU ranks over gloo, GPUs or not; None: only where there is no GPU (then two).
        require_gpu: without a GPU the run has failed (exit code 3).
        price: adds money to the answer.
        operations: only these collectives.
        wires: only these wires.
        started: ``time.monotonic()`` from which the budget counts; now when None.
    """

    level: Level = "default"
    budget_seconds: float | None = None
    gpus: tuple[int, ...] | None = None
    cpu_ranks: int | None = None
    require_gpu: bool = False
    price: Price | None = None
    operations: tuple[Operation, ...] | None = None
    wires: tuple[str, ...] | None = None
    started: float | None = None


def check(options: CheckOptions | None = None, on_progress: Callable[[Progress], None] = lambda _progress: None) -> Run:
    """Measures and judges this machine.

    A bad machine, a dead rank or a hang is a finding in the run, never an exception; a Ctrl-C gives the run with what was measured.

    Args:
        options: what to check.
        on_progress: called several times a second.

    Returns:
        The run, judged, not saved.
    """
    options = options or CheckOptions()
    started = time.monotonic() if options.started is None else options.started
    budget = options.budget_seconds or BUDGET_SECONDS[options.level]
    end = started + budget
    progress = _Progress(options, started, budget, on_progress)
    progress.say("reading the machine", 0.02)
    machine = inspect_machine(deadline_seconds=min(NVML_SECONDS, max(budget - 1.0, 0.5)))
    progress.num_gpus = len(machine.gpus) or None
    ranks = _choose_ranks(machine, options)
    if isinstance(ranks, Incident):
        measured = Collected(measurements=Measurements(incidents=(ranks,)))
        outcome = LaunchOutcome(folder=Path())
    else:
        with run_folder() as folder, _terminations_as_interrupts():
            plan = ranks
            _import_ahead()
            outcome = launch(
                plan,
                folder,
                deadline=end - JUDGE_SECONDS,
                on_tick=lambda tick: progress.tick(plan, tick),
                unwanted=lambda stage: _unwanted(stage, folder, plan),
            )
            progress.say("judging", 0.99)
            measured = collect(folder, plan)
    incidents = _incidents(measured, outcome)
    run = Run(
        run_id=new_run_id(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command="check",
        machine=_with_facts(machine, measured),
        price=options.price,
        measurements=dataclasses.replace(measured.measurements, incidents=incidents),
        outcome=_outcome(incidents, outcome, budget, time.monotonic() - started),
    )
    return judge(dataclasses.replace(run, forecasts=bounds(run)))


def _import_ahead() -> None:
    """Brings in what judging needs while the ranks are being started: seconds, from a cold disk, that nobody else needs then."""
    threading.Thread(target=lambda: [import_module(name) for name in ("numpy", "scipy.stats", "rich.console")], daemon=True).start()


def _choose_ranks(machine: Machine, options: CheckOptions) -> LaunchPlan | Incident:
    """The plan for the GPUs that can be used, or for CPU ranks, or why neither can be measured."""
    if find_spec("torch") is None:
        return _cannot("torch is not installed in this Python; wiretax measures with it and never installs it (pip install torch)")
    present = [gpu for gpu in machine.gpus if gpu.cuda_ordinal is not None]
    usable = [gpu for gpu in present if gpu.status == "ok"]
    if options.cpu_ranks is not None:
        return cpu_plan(options.level, options.cpu_ranks, only_operations=options.operations)
    if machine.driver_state not in ("ok", "absent", None):
        return _cannot(f"the GPU driver does not answer as it should ({machine.driver_state}): {machine.driver_detail or 'no detail'}")
    if present and not usable:
        return _cannot(f"no GPU is usable: {'; '.join(gpu.status_reason or gpu.status for gpu in present)}")
    if machine.gpus and machine.software.torch is not None and machine.software.torch_cuda is None:
        return _cannot(f"this torch ({machine.software.torch}) was built without CUDA, so it cannot use the GPUs of this machine")
    if usable:
        chosen = _chosen(usable, options.gpus)
        if isinstance(chosen, Incident):
            return chosen
        ordinals = tuple(gpu.cuda_ordinal for gpu in chosen if gpu.cuda_ordinal is not None)
        gpus = tuple(gpu.index for gpu in chosen)
        return gpu_plan(
            options.level,
            ordinals,
            gpus,
            os.environ,
            configuration=_by_name(machine.software.nccl_conf),
            only_operations=options.operations,
            only_wires=options.wires,
        )
    if options.require_gpu or options.gpus:
        hidden = f" ({len(machine.gpus)} are hidden by CUDA_VISIBLE_DEVICES)" if machine.gpus else ""
        return _cannot(f"a GPU was required and none is visible{hidden}")
    return cpu_plan(options.level, CPU_RANKS, only_operations=options.operations)


def _chosen(usable: list[Gpu], ordinals: tuple[int, ...] | None) -> list[Gpu] | Incident:
    usable = sorted(usable, key=lambda gpu: gpu.cuda_ordinal or 0)
    if ordinals is None:
        return usable
    by_ordinal = {gpu.cuda_ordinal: gpu for gpu in usable}
    unknown = [ordinal for ordinal in ordinals if ordinal not in by_ordinal]
    if unknown:
        return _cannot(f"there is no usable GPU with CUDA ordinal {', '.join(map(str, unknown))}")
    return [by_ordinal[ordinal] for ordinal in ordinals]


def _by_name(conf: dict[str, str]) -> dict[str, str]:
    """NCCL's configuration files as variables: ``/etc/nccl.conf:NCCL_P2P_DISABLE`` is NCCL_P2P_DISABLE."""
    return {key.rpartition(":")[2]: value for key, value in conf.items()}


def _cannot(detail: str) -> Incident:
    return Incident(kind="start_failed", stage="start", detail=detail)


def _unwanted(stage: Stage, folder: Path, plan: LaunchPlan) -> str | None:
    """Forced P2P is tried only where data was seen to arrive and NCCL stages by default: else it may hang or corrupt (DESIGN 5)."""
    if stage.wire != "p2p_forced":
        return None
    measurements = collect(folder, plan).measurements
    truths = measurements.peer_truth
    if not truths or any(truth.outcome != "ok" for truth in truths):
        return "peer copies were not proven right"
    transports = {series.transport for series in measurements.collectives if (series.wire_requested or series.wire) == "default"}
    if not any(name is not None and name.startswith(("SHM", "NET")) for name in transports):
        return "the default wire is not staged"
    return None


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


def _outcome(incidents: tuple[Incident, ...], outcome: LaunchOutcome, budget: float, seconds: float) -> Outcome:
    failures = [incident for incident in incidents if incident.kind in ("hang", "rank_died", "survived_kill", "start_failed", "error")]
    if outcome.interrupted:
        status, reason = "interrupted", "stopped by the user; what was measured before is kept"
    elif failures:
        status, reason = "failed", failures[0].detail or failures[0].kind
    elif outcome.not_measured or any(incident.kind == "out_of_time" for incident in incidents):
        status, reason = "out_of_budget", "the time was spent before everything was measured"
    else:
        status, reason = "complete", ""
    return Outcome(
        status=status,  # type: ignore[arg-type]  # one of the four words above
        reason=reason,
        budget_seconds=budget,
        duration_seconds=round(seconds, 3),
        stage_seconds=outcome.stage_seconds,
        not_measured=tuple(outcome.not_measured),
    )


@contextlib.contextmanager
def _terminations_as_interrupts() -> Iterator[None]:
    """A polite kill (a scheduler's time limit) keeps partial results as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """Turns the coordinator's ticks into fractions of the budget and money."""

    def __init__(self, options: CheckOptions, started: float, budget: float, on_progress: Callable[[Progress], None]) -> None:
        self.price = options.price
        self.num_gpus: int | None = None
        self.started = started
        self.budget = budget
        self.on_progress = on_progress

    def say(self, stage: str, fraction: float | None = None, detail: str = "") -> None:
        elapsed = time.monotonic() - self.started
        self.on_progress(
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

    def _money(self, seconds: float) -> float | None:
        """What the box has cost since the start; a price per GPU needs to know how many there are."""
        if self.price is None or (self.price.per == "gpu_hour" and self.num_gpus is None):
            return None
        return self.price.amount * ((self.num_gpus or 1) if self.price.per == "gpu_hour" else 1) * seconds / 3600

    def tick(self, plan: LaunchPlan, tick: Tick) -> None:
        if tick.stage is None:
            self.say("starting the ranks (torch is being imported)")
            return
        position = tick.position
        detail = ""
        if position is not None:
            detail = position.operation if position.num_bytes is None else f"{position.operation} {size(position.num_bytes)}"
        self.say(f"{tick.number + 1}/{len(plan.stages)} {tick.stage.title}", detail=detail)

"""``wiretax scale``: really trains at 1, 2, 4, ... N, and sets what one GPU had predicted beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wiretax.errors import UsageError
from wiretax.jobs.inputs import wire_of
from wiretax.jobs.launching import JUDGE_SECONDS, JobProgress, as_interrupted, cannot, choose_gpus, measure, nccl_configuration, run_of
from wiretax.jobs.profile import (
    Device,
    findings_without_wires,
    own_batch,
    raise_users_mistake,
    with_notes,
    without_bare_step,
)
from wiretax.jobs.progress import Progress
from wiretax.jobs.training_stages import Case, Subject, cases, compute_stage, profile_stages, training_stages, wire_stages
from wiretax.judge.scaling import measured_verdict
from wiretax.launch.interrupts import Interrupts
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.measure.wires import Wire, wires
from wiretax.model.forecast import Forecast
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident
from wiretax.model.money import Price
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.model.training import StepTiming
from wiretax.predict.contention import measured_contention
from wiretax.predict.forecast import predict as predict_step
from wiretax.probe.inspect import inspect_machine
from wiretax.train.profile import RANKS_AT_ONCE
from wiretax.train.strategy import data_parallel_size, strategy_name

BUDGET_SECONDS = 600.0
STEPS = 20
PREDICT_SECONDS = 0.1
"""Kept back for each configuration that may have to be predicted in the end."""
DEFAULT_PRESET, DEFAULT_PRESET_CPU = "gpt124m", "gpt-mini"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """What to train and at how many ranks.

    Attributes:
        subject: the step; a preset that fits the device when None.
        batches: per GPU for weak scaling, over all GPUs for strong; a preset's own when empty.
        counts: numbers of GPUs; 1, 2, 4, ... up to all (on CPU ranks: 1 and 2) when None. 1 is always among them.
        strategies: by any of their names.
        scaling: weak or strong.
        wires: over which to train; the one as found when None.
        steps: timed for each configuration.
        device: ``auto`` takes GPUs where there are any.
        budget_seconds: hard limit, start-up included.
        price: adds money to the answer.
        started: ``time.monotonic()`` from which the budget counts; now when None.
    """

    subject: Subject | None = None
    batches: tuple[int, ...] = ()
    counts: tuple[int, ...] | None = None
    strategies: tuple[str, ...] = ("ddp",)
    scaling: Literal["weak", "strong"] = "weak"
    wires: tuple[str, ...] | None = None
    steps: int = STEPS
    device: Device = "auto"
    budget_seconds: float = BUDGET_SECONDS
    price: Price | None = None
    started: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """The ranks there are."""

    cuda: bool
    counts: tuple[int, ...]
    ordinals: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


def scale(options: ScaleOptions | None = None, on_progress: Callable[[Progress], None] = lambda _progress: None) -> Run:
    """Measures the wire, profiles on one rank, trains on all; the run is not saved.

    A rank that dies or hangs is a finding and costs only its own configuration; Ctrl-C gives the run with what was measured.

    Args:
        options: what to train.
        on_progress: called several times a second.

    Returns:
        A run with ``training.steps``, each with its efficiency, the ``training.profiles`` and ``forecasts`` to set beside them.

    Raises:
        UsageError: there is no such workload, strategy or wire, or the batch cannot be shared.
        BadInput: the user's step cannot be trained.
    """
    options = options or ScaleOptions()
    if options.subject is not None:
        options.subject.check()
    names = tuple(dict.fromkeys(strategy_name(one) for one in options.strategies))
    started = time.monotonic() if options.started is None else options.started
    progress = JobProgress(started, options.budget_seconds, on_progress, options.price)
    with Interrupts() as interrupts:
        progress.say("reading the machine", 0.02)
        machine = inspect_machine(deadline_seconds=progress.nvml_seconds)
        where = _where(machine, options)
        cuda = not isinstance(where, Incident) and where.cuda
        subject = options.subject or Subject(source=DEFAULT_PRESET if cuda else DEFAULT_PRESET_CPU)
        batches = options.batches or (own_batch(subject),)
        if isinstance(where, Incident):
            plan: LaunchPlan | Incident = where
        else:
            progress.num_gpus = max(where.counts) if cuda else None
            wanted = cases(where.counts, names, batches, options.scaling, subject.levers)
            plan = _plan(subject, where, wanted, _wires(machine, options, cuda=cuda), names, options.steps)
        trained = len(plan.stages) if isinstance(plan, LaunchPlan) else 0
        kept_back = min(JUDGE_SECONDS + PREDICT_SECONDS * trained, max(JUDGE_SECONDS, 0.1 * progress.budget))
        measured = measure(plan, progress, deadline=progress.end - kept_back, unwanted=without_bare_step)
        interrupts.hold()
        raise_users_mistake(measured)
        run = with_notes(run_of("scale", machine, measured, progress))
        steps = with_efficiency(run.training.steps, subject, options.scaling)
        run = replace(run, training=replace(run.training, steps=steps))
        run = replace(run, forecasts=forecasts_beside(run, subject))
        run = replace(
            run, findings=findings_without_wires(run), verdict=measured_verdict(steps, on_gpus=cuda) if len(batches) == 1 else None
        )
    return as_interrupted(run) if interrupts.came else run


def _where(machine: Machine, options: ScaleOptions) -> _Where | Incident:
    chosen = choose_gpus(machine) if options.device != "cpu" else []
    if isinstance(chosen, Incident):
        return chosen
    if options.device == "cuda" and not chosen:
        return cannot("GPUs were asked for and none is visible")
    asked = options.counts
    if not chosen:
        return _Where(cuda=False, counts=_with_one(asked or (1, 2)))
    counts = _with_one(asked or tuple(2**power for power in range(len(chosen).bit_length())) + (len(chosen),))
    if max(counts) > len(chosen):
        raise UsageError(
            f"{max(counts)} GPUs were asked for, and {len(chosen)} can be used here.", do=f"Take --gpus {len(chosen)} or fewer."
        )
    used = chosen[: max(counts)]
    ordinals = tuple(gpu.cuda_ordinal for gpu in used if gpu.cuda_ordinal is not None)
    return _Where(cuda=True, counts=counts, ordinals=ordinals, gpus=tuple(gpu.index for gpu in used))


def _with_one(counts: Sequence[int]) -> tuple[int, ...]:
    """Ascending, and 1 among them: every efficiency is over one GPU."""
    return tuple(sorted({1, *counts}))


def _wires(machine: Machine, options: ScaleOptions, *, cuda: bool) -> list[Wire]:
    known = {one.name: one for one in wires(os.environ, cuda=cuda, configuration=nccl_configuration(machine))}
    names = options.wires or tuple(known)[:1]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"There is no wire {unknown[0]!r} here.", do=f"There are {', '.join(known)}.")
    return [known[name] for name in names]


def _plan(
    subject: Subject, where: _Where, wanted: Sequence[Case], over: Sequence[Wire], strategies: Sequence[str], steps: int
) -> LaunchPlan:
    """The profile comes first, since it shows in seconds whether the step can be trained; then the rates, then wire after wire."""
    cuda, most = where.cuda, max(where.counts)
    alone = [case for case in wanted if case.num_ranks == 1]
    together = [case for case in wanted if case.num_ranks > 1]
    profiled = together or [replace(case, strategy="none") for case in alone]
    stages: list[Stage] = [*profile_stages(subject, profiled, cuda=cuda), compute_stage(most, cuda=cuda)]
    if not together:
        stages += training_stages(subject, alone, None, steps=steps, cuda=cuda)
    for number, wire in enumerate(over if together else []):
        stages += wire_stages(wire, strategies, where.counts, cuda=cuda)
        if number == 0:
            stages += training_stages(subject, alone, None, steps=steps, cuda=cuda)
        stages += training_stages(subject, together, wire, steps=steps, cuda=cuda)
    device = "cuda" if cuda else "cpu"
    return LaunchPlan(world_size=most, device=device, cuda_ordinals=where.ordinals, gpus=where.gpus, stages=tuple(stages))


def with_efficiency(steps: Sequence[StepTiming], subject: Subject, scaling: str) -> tuple[StepTiming, ...]:
    """Each step's throughput over N times that of one GPU: at the same batch per GPU, or for strong scaling at the same batch in all."""
    alone = {(one.workload, one.batch_per_gpu): one.samples_per_second for one in steps if one.num_gpus == 1}
    found = []
    for one in steps:
        replicas = data_parallel_size(one.strategy, one.num_gpus, subject.levers) if scaling == "strong" else 1
        single = alone.get((one.workload, one.batch_per_gpu * replicas))
        if single is None:
            found.append(replace(one, missing={**one.missing, "efficiency_fraction": "one GPU was not trained at this batch"}))
            continue
        missing = {name: why for name, why in one.missing.items() if name != "efficiency_fraction"}
        efficiency = one.samples_per_second / (one.num_gpus * single)
        found.append(replace(one, efficiency_fraction=efficiency, missing=missing))
    return tuple(found)


def forecasts_beside(run: Run, subject: Subject) -> tuple[Forecast, ...]:
    """The forecast of every configuration that trained on several ranks, as it could have been made before: from one rank and the wire."""
    found = []
    for step in run.training.steps:
        if step.num_gpus < 2:
            continue
        profile = _profile_for(step, run.training.profiles)
        if profile is None:
            continue
        try:
            wire = wire_of(run.measurements, step.wire, run.machine)
            prediction = predict_step(
                profile,
                wire,
                step.strategy,
                step.num_gpus,
                options=subject.predicted_levers(),
                contention=measured_contention(run.measurements, profile, wire.name, step.num_gpus),
                gpus=run.measurements.compute,
            )
        except UsageError:  # the wire was not measured in time; the real step stands alone
            continue
        found.append(prediction.forecast)
    return tuple(found)


def _profile_for(step: StepTiming, profiles: Sequence[Profile]) -> Profile | None:
    """The profile of that workload and batch; on CPU ranks the one taken with as many at once."""
    own = [one for one in profiles if (one.workload.name, one.workload.batch_size) == (step.workload, step.batch_per_gpu)]
    same = [one for one in own if one.device == "cuda" or one.environment.get(RANKS_AT_ONCE) == str(step.num_gpus)]
    return next(iter(same or own), None)

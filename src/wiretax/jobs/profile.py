"""``wiretax profile``: one training step on ONE GPU, bare and under each strategy with communication made free."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from wiretax import errors
from wiretax.data.models import presets
from wiretax.jobs.launching import JUDGE_SECONDS, JobProgress, Measured, as_interrupted, cannot, choose_gpus, measure, run_of
from wiretax.jobs.progress import Progress
from wiretax.jobs.training_stages import SAMPLE_SECONDS, Case, Subject, profile_stages
from wiretax.judge.verdict import findings_of
from wiretax.launch.collect import Collected
from wiretax.launch.interrupts import Interrupts
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.model.finding import Finding
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident
from wiretax.model.money import Price
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.probe.inspect import inspect_machine
from wiretax.train.profile import BARE, RANKS_AT_ONCE
from wiretax.train.strategy import strategy_name

BUDGET_SECONDS = 180.0
"""A hard limit; an H200 needs under 30 s for the 1.7 B preset, a slow GPU or a CPU several times that."""
USERS_MISTAKES = ("UsageError", "BadInput")

Device = Literal["auto", "cuda", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to profile.

    Attributes:
        subject: the step.
        batches: per GPU and micro-step, a profile each; a preset's own when empty.
        strategies: with communication free, by any of their names.
        world_sizes: numbers of GPUs that sharding strategies are to think there are.
        device: ``auto`` takes a GPU where one is usable.
        gpu: CUDA ordinal; the first usable one when None.
        cpu_ranks: how many CPU ranks run the step beside each other, as they would in training.
        sample_seconds: of timed steps, for each part.
        budget_seconds: of the run, start-up included; a part that does not end in time is ended.
        price: adds money to the progress.
        started: ``time.monotonic()`` from which the budget counts; now when None.
    """

    subject: Subject
    batches: tuple[int, ...] = ()
    strategies: tuple[str, ...] = ("ddp", "fsdp2", "tp")
    world_sizes: tuple[int, ...] = (2,)
    device: Device = "auto"
    gpu: int | None = None
    cpu_ranks: int = 2
    sample_seconds: float = SAMPLE_SECONDS
    budget_seconds: float = BUDGET_SECONDS
    price: Price | None = None
    started: float | None = None


def profile(options: ProfileOptions, on_progress: Callable[[Progress], None] = lambda _progress: None) -> Run:
    """Profiles; the run is not saved.

    A strategy that the workload cannot have is left out, with the reason among the profile's notes. A part that hangs or dies costs
    only itself.

    Args:
        options: what to profile.
        on_progress: called several times a second.

    Returns:
        A run with ``training.profiles``. Its outcome is ``failed`` where the bare step could not be profiled for want of memory or
        for a fault of the machine.

    Raises:
        UsageError: there is no such workload, strategy or device.
        BadInput: the user's step cannot be trained; says what it does.
    """
    subject = options.subject
    subject.check()
    names = tuple(dict.fromkeys(strategy_name(one) for one in options.strategies))
    batches = options.batches or (own_batch(subject),)
    wanted = [
        Case(num_ranks=count, strategy=name, batch_per_gpu=batch) for batch in batches for count in options.world_sizes for name in names
    ]
    wanted = wanted or [Case(num_ranks=2, strategy="none", batch_per_gpu=batch) for batch in batches]
    started = time.monotonic() if options.started is None else options.started
    progress = JobProgress(started, options.budget_seconds, on_progress, options.price)
    with Interrupts() as interrupts:
        progress.say("reading the machine", 0.02)
        machine = inspect_machine(deadline_seconds=progress.nvml_seconds)
        progress.num_gpus = 1
        measured = measure(_plan(machine, options, wanted), progress, deadline=progress.end - JUDGE_SECONDS, unwanted=without_bare_step)
        interrupts.hold()
        raise_users_mistake(measured)
        run = with_notes(run_of("profile", machine, measured, progress))
        run = replace(run, findings=findings_without_wires(run))
    return as_interrupted(run) if interrupts.came else run


def findings_without_wires(run: Run) -> tuple[Finding, ...]:
    """What the checks find, without their word on wires, which were no question here."""
    return tuple(one for one in findings_of(run) if one.code not in ("healthy", "needs-measurement"))


def own_batch(subject: Subject) -> int:
    """The batch that a preset is trained at.

    Raises:
        UsageError: it is no preset, and has none of its own.
    """
    known = presets().get(subject.source)
    if known is None:
        raise errors.UsageError(f"{subject.source} has no batch size of its own.", do="Say --batch 8: samples per GPU and micro-step.")
    return known.batch_size


def _plan(machine: Machine, options: ProfileOptions, wanted: list[Case]) -> LaunchPlan | Incident:
    gpu = None if options.gpu is None else (options.gpu,)
    chosen = choose_gpus(machine, gpu) if options.device != "cpu" else []
    if isinstance(chosen, Incident):
        return chosen
    if not chosen and (options.device == "cuda" or options.gpu is not None):
        return cannot("a GPU was asked for and none is visible")
    if chosen:
        first = chosen[0]
        stages = profile_stages(options.subject, wanted, cuda=True, seconds=options.sample_seconds)
        return LaunchPlan(world_size=1, device="cuda", cuda_ordinals=(first.cuda_ordinal or 0,), gpus=(first.index,), stages=tuple(stages))
    stages = profile_stages(options.subject, wanted, cuda=False, ranks=options.cpu_ranks, seconds=options.sample_seconds)
    return LaunchPlan(world_size=options.cpu_ranks, device="cpu", stages=tuple(stages))


def without_bare_step(stage: Stage, so_far: Callable[[], Collected]) -> str | None:
    """A reason not to run a stage: the bare step before it gave nothing, or the user's step cannot be trained at all."""
    if stage.name.startswith(f"profile:{BARE}"):
        return None
    found = so_far()
    if any(part == BARE and kind in USERS_MISTAKES for part, kind, *_ in found.facts.get("refused", [])):
        return "the step cannot be trained"
    if not stage.name.startswith("profile:"):
        return None
    last = found.profiles[-1] if found.profiles else None
    asked = (stage.arguments["settings"]["batch_size"], str(stage.ranks))
    there = last is not None and (last.workload.batch_size, last.environment.get(RANKS_AT_ONCE)) == asked
    return None if there else "the bare step gave no profile"


def raise_users_mistake(measured: Measured) -> None:
    """Raises what the ranks said of the user's own step.

    Raises:
        UsageError: there is no such thing.
        BadInput: it cannot be trained.
    """
    for part, kind, what, why, do in measured.collected.facts.get("refused", []):
        if part == BARE and kind in USERS_MISTAKES:
            raise getattr(errors, kind)(what, why=why, do=do)


def with_notes(run: Run) -> Run:
    """The run with a note in each profile on every strategy that could not be profiled."""
    reasons = {
        incident.stage.split(":")[1]: incident.detail or incident.kind
        for incident in run.measurements.incidents
        if incident.stage.startswith("profile:") and incident.stage.split(":")[1] != BARE
    }
    if not reasons:
        return run

    def noted(profile: Profile) -> Profile:
        profiled = {one.strategy for one in profile.free_steps}
        more = tuple(f"{name} was not profiled: {why}" for name, why in reasons.items() if name not in profiled)
        return replace(profile, notes=(*profile.notes, *more))

    training = dataclasses.replace(run.training, profiles=tuple(noted(one) for one in run.training.profiles))
    return replace(run, training=training)

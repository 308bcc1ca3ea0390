"""The main job: probe, measure, judge, say it in one sentence (DESIGN 3, ``wiretax check``)."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import permutations

from wiretax.errors import UsageError
from wiretax.jobs.headline import headline
from wiretax.jobs.launching import JUDGE_SECONDS, JobProgress, as_interrupted, cannot, choose_gpus, measure, nccl_configuration, run_of
from wiretax.jobs.progress import Progress
from wiretax.jobs.stages import BUDGET_SECONDS, Level, cpu_plan, gpu_plan
from wiretax.judge.verdict import judge
from wiretax.launch.collect import Collected
from wiretax.launch.interrupts import Interrupts
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident, Operation
from wiretax.model.money import Price
from wiretax.model.run import Run
from wiretax.probe.inspect import inspect_machine

CPU_RANKS = 2


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

    Raises:
        UsageError: none of the wires asked for is there.
    """
    options = options or CheckOptions()
    started = time.monotonic() if options.started is None else options.started
    progress = JobProgress(started, options.budget_seconds or BUDGET_SECONDS[options.level], on_progress, options.price)
    with Interrupts() as interrupts:
        progress.say("reading the machine", 0.02)
        machine = inspect_machine(deadline_seconds=progress.nvml_seconds)
        progress.num_gpus = len(machine.gpus) or None
        measured = measure(_plan(machine, options), progress, deadline=progress.end - JUDGE_SECONDS, unwanted=_unwanted)
        interrupts.hold()
        run = run_of("check", machine, measured, progress)
        run = judge(dataclasses.replace(run, forecasts=headline(run)))
    return as_interrupted(run) if interrupts.came else run


def _plan(machine: Machine, options: CheckOptions) -> LaunchPlan | Incident:
    """The plan for the GPUs that can be used, or for CPU ranks, or why neither can be measured."""
    if options.cpu_ranks is not None and find_spec("torch") is not None:
        return _cpu_plan(options, options.cpu_ranks)
    chosen = choose_gpus(machine, options.gpus)
    if isinstance(chosen, Incident):
        return chosen
    if chosen:
        plan = gpu_plan(
            options.level,
            tuple(gpu.cuda_ordinal for gpu in chosen if gpu.cuda_ordinal is not None),
            tuple(gpu.index for gpu in chosen),
            os.environ,
            configuration=nccl_configuration(machine),
            only_operations=options.operations,
            only_wires=options.wires,
        )
        return _not_empty(
            plan, options, "clean needs a variable that disables P2P or shared memory, p2p_forced needs two GPUs; default is always there."
        )
    if options.require_gpu or options.gpus:
        hidden = f" ({len(machine.gpus)} are hidden by CUDA_VISIBLE_DEVICES)" if machine.gpus else ""
        return cannot(f"a GPU was required and none is visible{hidden}")
    return _cpu_plan(options, CPU_RANKS)


def _cpu_plan(options: CheckOptions, num_ranks: int) -> LaunchPlan:
    plan = cpu_plan(options.level, num_ranks, only_operations=options.operations, only_wires=options.wires)
    return _not_empty(plan, options, "CPU ranks have only gloo.")


def _not_empty(plan: LaunchPlan, options: CheckOptions, do: str) -> LaunchPlan:
    """The plan; a check that asks for nothing that is there would end as if all were measured."""
    if not plan.stages:
        raise UsageError(f"There is no wire {' or '.join(options.wires or ())} here.", do=do)
    return plan


def _unwanted(stage: Stage, so_far: Callable[[], Collected]) -> str | None:
    """Forced P2P is tried only where data was seen to arrive and NCCL stages by default: else it may hang or corrupt (DESIGN 5)."""
    if stage.wire != "p2p_forced":
        return None
    measurements = so_far().measurements
    gpus = {gpu for series in measurements.collectives for gpu in series.gpus}
    proven = {(truth.source_gpu, truth.target_gpu) for truth in measurements.peer_truth if truth.outcome == "ok"}
    unproven = [pair for pair in permutations(sorted(gpus), 2) if pair not in proven]
    if unproven or any(truth.outcome != "ok" for truth in measurements.peer_truth):
        return "peer copies were not proven right" + (f" between all GPUs ({len(unproven)} pairs open)" if proven and unproven else "")
    transports = {series.transport for series in measurements.collectives if (series.wire_requested or series.wire) == "default"}
    if not any(name is not None and name.startswith(("SHM", "NET")) for name in transports):
        return "the default wire is not staged"
    return None

"""Really trains at the world size of the launch and times it: the truth that predictions are set beside.

A step's exposed communication is what it takes longer than the same step of the same strategy on the same GPUs at the same moment
with communication made free: DDP fills its buckets and sends nothing, FSDP2, ZeRO-1 and tensor parallelism have a communicator that
does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from wiretax.data.models import presets
from wiretax.errors import BadInput, CannotMeasure, UsageError, WiretaxError
from wiretax.measure.groups import Group, open_group
from wiretax.measure.host_load import meter_of
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.model.measurement import Incident
from wiretax.model.training import Phases, StepTiming
from wiretax.train import imports
from wiretax.train.check import check_step
from wiretax.train.free import FreeWire, register_fake_backend, silence_reductions
from wiretax.train.memory import allocated, forget
from wiretax.train.own_step import is_out_of_memory
from wiretax.train.stopwatch import PHASES, StepRecord, Stopwatch
from wiretax.train.strategy import Options, Place, data_parallel_size, strategy_name, wrap_step
from wiretax.train.workload import SEED, Settings, Step, load_workload

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

before_forks = imports.before_forks

WARM_UP = 5
MEMORY_STEP = 3
"""The peak is read after this step, as in a profile."""
FEWEST_STEPS = 5
OTHERS_SECONDS = 5.0
"""Ranks that run out of memory alike do so within the same step."""
FREE_SHARE = 0.5
"""Steps with communication free for each real one."""
_ONE_DIMENSION = "a strategy over two dimensions of ranks is not repeated with communication free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration to train."""

    source: str
    strategy: str
    batch_per_gpu: int
    """Per replica: ranks that share layers share the batch too."""


def scale(
    rank: Rank,
    *,
    workloads: Sequence[str],
    strategies: Sequence[str],
    batches: Sequence[int],
    wire: str,
    steps: int = 20,
    scaling: str = "weak",
    settings: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    backend: str | None = None,
) -> None:
    """Trains every workload at every batch size under every strategy on all ranks of the stage; keeps a ``StepTiming`` each.

    At one rank the bare step is timed, whatever strategies are asked for. What cannot be trained becomes an incident.

    Args:
        rank: this rank; every rank of the stage calls this.
        workloads: presets, ``module:function`` or ``config.json``.
        strategies: by any of their names.
        batches: per GPU for weak scaling; over all GPUs for strong scaling.
        wire: the name that the timings carry.
        steps: timed; fewer where time runs out.
        scaling: ``weak`` or ``strong``.
        settings: fields of :class:`wiretax.train.workload.Settings`.
        options: fields of :class:`wiretax.train.strategy.Options`.
        backend: ``nccl`` on GPUs and ``gloo`` on CPU ranks by default.

    Raises:
        UsageError: there is no such strategy, or scaling is neither weak nor strong.
        OutOfTimeError: the deadline passed.
    """
    if scaling not in ("weak", "strong"):
        raise UsageError(f"Scaling is weak or strong, not {scaling!r}.")
    levers = msgspec.convert(options or {}, Options)
    how = msgspec.convert(settings or {}, Settings)
    names = list(dict.fromkeys(strategy_name(one) for one in strategies)) if rank.world_size > 1 else ["none"]
    chosen = backend or ("nccl" if rank.is_cuda else "gloo")
    cases = []
    for source in workloads:
        for batch in batches:
            for name in names:
                replicas = data_parallel_size(name, rank.world_size, levers)
                if scaling == "strong" and batch % max(replicas, 1):
                    _skip(rank, name, wire, f"a batch of {batch} cannot be shared by {replicas} GPUs")
                    continue
                per_gpu = batch // replicas if scaling == "strong" else batch
                cases.append(Case(source=source, strategy=name, batch_per_gpu=per_gpu))
    if rank.world_size == 1:
        for case in cases:
            _one(rank, case, wire, steps, how, levers, None)
        return
    everybody = Group(members=tuple(range(rank.world_size)), index=rank.rank, name="scale")
    # left to the end of the process: after a step that ran out of memory a rank may have sent what another never will, and closing waits
    with open_group(rank, chosen, everybody, last=True):
        free = _free_group(rank)
        for case in cases:
            _one(rank, case, wire, steps, how, levers, free)


def _free_group(rank: Rank) -> ProcessGroup:
    """A group of all ranks that does nothing."""
    import torch.distributed as dist

    register_fake_backend()
    return dist.new_group(list(range(rank.world_size)), backend="fake")


def _one(rank: Rank, case: Case, wire: str, steps: int, how: Settings, levers: Options, free: ProcessGroup | None) -> None:
    """One case, or the reason why not."""
    rank.at(f"train {case.source} {case.strategy}", wire, None, rank.world_size)
    try:
        timing = _timed(rank, case, wire, steps, how, levers, free)
    except BadInput:  # the profile went well, so this is one rank's own, and the others would wait for it
        raise
    except WiretaxError as error:  # every rank meets it, for it lies in the step or the strategy
        _skip(rank, case.strategy, wire, str(error))
        return
    if rank.rank == 0:
        rank.results.write("StepTiming", value=timing)


def _skip(rank: Rank, strategy: str, wire: str, why: str) -> None:
    if rank.rank == 0:
        rank.emit(
            Incident(
                kind="skipped",
                stage=f"scale:{strategy}",
                wire=wire,
                world_size=rank.world_size,
                detail=f"{strategy} was not trained: {why}",
            )
        )


def _timed(rank: Rank, case: Case, wire: str, steps: int, how: Settings, levers: Options, free: ProcessGroup | None) -> StepTiming:
    how = replace(how, batch_size=case.batch_per_gpu)
    meter = meter_of(rank)
    real = _run(rank, case, how, levers, Place(device=rank.device, world_size=rank.world_size), steps)
    load = meter.read()
    step_seconds = median(real.steps)
    exposed, why = None, "one GPU does not communicate"
    if free is not None:
        place = Place(device=rank.device, world_size=rank.world_size, model_group=free)
        exposed, why = _exposed(rank, case, how, levers, place, steps, step_seconds)
    replicas = data_parallel_size(case.strategy, rank.world_size, levers)
    missing = {"efficiency_fraction": "needs the step on one GPU beside it"}
    if real.peak_bytes is None:
        missing["peak_memory_bytes"] = "a CPU has no allocator that keeps a peak"
    return StepTiming(
        strategy=case.strategy,
        num_gpus=rank.world_size,
        wire=wire,
        workload=real.workload,
        batch_per_gpu=case.batch_per_gpu,
        accumulation_steps=how.accumulation_steps,
        step_seconds=step_seconds,
        samples_seconds=tuple(float(f"{one:.6g}") for one in real.steps),
        samples_per_second=replicas * case.batch_per_gpu * how.accumulation_steps / step_seconds,
        phases=Phases(
            forward=real.phases["forward"],
            backward=real.phases["backward"],
            optimizer=real.phases["optimizer"],
            exposed_communication=exposed,
            missing={} if exposed is not None else {"exposed_communication": why},
        ),
        peak_memory_bytes=real.peak_bytes,
        host_load=load,
        missing=missing,
    )


def _exposed(
    rank: Rank, case: Case, how: Settings, levers: Options, place: Place, steps: int, real_seconds: float
) -> tuple[float | None, str]:
    """Real step minus the one with communication free; never below zero, since noise is no communication."""
    if case.strategy in ("hsdp", "tp_ddp"):
        return None, _ONE_DIMENSION
    quiet = _run(rank, case, how, levers, place, max(int(steps * FREE_SHARE), FEWEST_STEPS))
    return max(real_seconds - median(quiet.steps), 0.0), ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """What all ranks together saw."""

    workload: str
    steps: tuple[float, ...]
    """Of the slowest rank, step by step."""
    phases: dict[str, float]
    """Mean over ranks of each rank's median."""
    peak_bytes: int | None


def _run(rank: Rank, case: Case, how: Settings, levers: Options, place: Place, steps: int) -> _Steps:
    """Builds, warms up and times one case on all ranks.

    Raises:
        WiretaxError: on every rank alike, when the step or the strategy cannot be had, or some rank ran out of memory.
    """
    forget(rank.device)
    base = allocated(rank.device)
    step, workload = load_workload(case.source, rank.device, how)
    free = place.model_group is not None
    if case.strategy in ("ddp", "zero1", "tp_ddp") and _has_unused(rank, case, step):
        levers = replace(levers, find_unused_parameters=True)
    wrapped = wrap_step(case.strategy, step, replace(levers, comm_hook=None) if free else levers, place)
    if free and case.strategy in ("ddp", "zero1"):
        silence_reductions(wrapped.model, rank.device)
    _seed(rank, data_parallel_size(case.strategy, rank.world_size, levers))
    batch = step.make_batch(case.batch_per_gpu)
    wire = FreeWire(step.model) if free and case.strategy.startswith("fsdp2") else None
    if wire is not None:
        wire.persistent = True
    watch = Stopwatch(rank.device)

    def once() -> StepRecord:
        if wire is not None:
            wire.refresh()
        record = watch.run(wrapped, batch, accumulation_steps=how.accumulation_steps)
        rank.tick()
        return record

    problem, peak, warm = "", 0, []
    try:
        _reset_peak(rank)
        for number in range(WARM_UP):
            warm.append(once().step_seconds)
            if number + 1 == MEMORY_STEP:
                peak = _peak(rank) - base
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        problem = f"rank {rank.rank} ran out of memory at batch {case.batch_per_gpu}"
    problems = _problems(rank, problem)
    if problems:
        raise UsageError("; ".join(problems) + ".", do="Take a smaller batch, or a strategy that shards more.")
    affordable = int(max(rank.seconds_left - 2.0, 0.0) / max(median(warm), 1e-6) / 2)
    count = rank.agree("scale/steps", max(FEWEST_STEPS, min(steps, affordable)))
    records = [once() for _ in range(count)]
    own = {phase: median(one.phases[phase] for one in records) for phase in PHASES}
    everybody = rank.exchange("scale/samples", [[one.step_seconds for one in records], own, peak])
    return _Steps(
        workload=workload.name,
        steps=tuple(max(per_rank) for per_rank in zip(*(one[0] for one in everybody), strict=True)),
        phases={phase: sum(one[1][phase] for one in everybody) / len(everybody) for phase in PHASES},
        peak_bytes=max(one[2] for one in everybody) if rank.is_cuda else None,
    )


def _has_unused(rank: Rank, case: Case, step: Step) -> bool:
    """Whether on any rank some trained parameter gets no gradient, which DDP cannot bear unless it is told to look for it.

    A rank without memory for this says nothing: its first real step will.
    """
    if case.source in presets():
        return False
    found = False
    with contextlib.suppress(CannotMeasure):
        found = bool(check_step(step, case.batch_per_gpu, rank.device, count_flops=False).without_gradient)
    return any(rank.exchange("scale/unused", found))


def _problems(rank: Rank, problem: str) -> list[str]:
    """What stopped any rank; empty where none was.

    Raises:
        RuntimeError: this rank was stopped and the others were not: they wait for it inside a collective, so nobody can go on, and the
            error is the cause that would else be taken for a hang.
    """
    if not problem:
        return [one for one in rank.exchange("scale/problem", "") if one]
    deadline = rank.deadline
    rank.deadline = min(deadline, rank.clock() + OTHERS_SECONDS)
    try:
        return [one for one in rank.exchange("scale/problem", problem) if one]
    except OutOfTimeError as error:
        raise RuntimeError(f"{problem}, and others had enough of it: they wait for this rank") from error
    finally:
        rank.deadline = deadline


def _seed(rank: Rank, replicas: int) -> None:
    """Another batch for each replica; ranks that share layers draw the same one."""
    import torch

    torch.manual_seed(SEED + 1 + rank.rank * replicas // rank.world_size)


def _reset_peak(rank: Rank) -> None:
    if rank.is_cuda:
        import torch

        torch.cuda.reset_peak_memory_stats(rank.device)


def _peak(rank: Rank) -> int:
    if not rank.is_cuda:
        return 0
    import torch

    return int(torch.cuda.max_memory_allocated(rank.device))

"""The forecast of a step on N GPUs: from one GPU's profile and the measured wire, with an interval and its assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wiretax.errors import UsageError
from wiretax.model.forecast import Forecast, Interval
from wiretax.model.measurement import Compute, Operation
from wiretax.model.profile import Profile
from wiretax.predict.clocks import settled, stretched, with_rates_of
from wiretax.predict.contention import NO_CONTENTION, Contention
from wiretax.predict.ddp import buckets, simulate_ddp
from wiretax.predict.fsdp import sharded_groups, simulate_fsdp
from wiretax.predict.interval import SEED, Draws, draw, interval
from wiretax.predict.memory import Memory, predict_memory
from wiretax.predict.options import DEFAULTS, Options, strategy_name
from wiretax.predict.pipeline import pipeline_step
from wiretax.predict.profile_model import HOOKED_HOST_SIGMA, Work, work_of
from wiretax.predict.tensor_parallel import simulate_tensor_parallel
from wiretax.predict.timeline import Outcome
from wiretax.predict.wire_curve import Wire
from wiretax.predict.zero import simulate_zero

if TYPE_CHECKING:
    from wiretax.predict.timeline import Array

UNPROFILED_HOST_SIGMA = 0.35
"""Host time of a strategy that was not profiled (recorded hosts: 0.8 to 1.6 ms a group)."""

UNPROFILED_DEVICE_SIGMA = 0.05

TIMED_SIGMA = 0.05
"""Added for a profile stretched to one step timed elsewhere: the whole is known there, not how it splits over phases and clocks (the
phases of two H200s, stretched to the same step, differ by 2 to 8 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A forecast with the times behind it."""

    forecast: Forecast
    one_gpu_seconds: float
    """The same work of one GPU's share on one GPU, for the efficiency."""
    forward: Interval | None = None
    backward: Interval | None = None
    """Until the backward pass and its communication are over, from the start of the step."""
    memory: Memory | None = None
    """None where the profile measured none."""


def predict(
    profile: Profile,
    wire: Wire,
    strategy: str,
    num_gpus: int,
    *,
    batch_size: int | None = None,
    options: Options = DEFAULTS,
    contention: Contention = NO_CONTENTION,
    gpus: Sequence[Compute] = (),
    one_gpu_seconds: float | None = None,
    seed: int = SEED,
) -> Prediction:
    """Predicts one optimizer step.

    Args:
        profile: of the step on one GPU.
        wire: between the GPUs.
        strategy: any name :func:`~wiretax.predict.options.strategy_name` knows.
        num_gpus: 1 or more; 1 gives the bare profile back.
        batch_size: per GPU and micro-step (tensor and pipeline parallelism: of a group); None for the profile's.
        options: the strategy's levers.
        contention: from :func:`~wiretax.predict.contention.contention`.
        gpus: measured rates of the GPUs that will run it.
        one_gpu_seconds: the bare step at this batch as it was timed on one of those GPUs; a profile taken elsewhere is stretched to it,
            instead of being scaled by rates.
        seed: of the Monte-Carlo draws; the same seed gives the same interval.

    Raises:
        UsageError: an unknown strategy, or a number of GPUs or a batch below 1, or a tensor-parallel size that does not divide N.
    """
    import numpy as np

    name = strategy_name(strategy)
    if num_gpus < 1:
        raise UsageError(f"{num_gpus} GPUs cannot train.", do="Ask for 1 GPU or more.")
    profile = settled(profile)
    timed: list[str] = []
    if one_gpu_seconds is not None:
        factor = one_gpu_seconds / work_of(profile, batch_size=batch_size).bare_seconds
        profile = with_rates_of(stretched(profile, factor), gpus)
        timed = [f"the profile's times are multiplied by {factor:.3f}: its step to the one timed on one GPU there"]
    work = work_of(profile, batch_size=batch_size, gpus=gpus)
    host_sigma, device_sigma = _spread(work, name, num_gpus)
    if timed:
        device_sigma = math.hypot(device_sigma, TIMED_SIGMA)
    faster, slower = _wire_spread(work, wire, name, num_gpus, options)
    draws = draw(device_sigma=device_sigma, host_sigma=host_sigma, wire_sigma=faster, wire_slower_sigma=slower, seed=seed)
    one_gpu = _one_gpu(work, options, name)
    outcome: Outcome | None = None
    if num_gpus == 1:
        seconds: Array = one_gpu * draws.device
        notes, samples = ["one GPU: the profile itself"], 1.0
    elif name == "pp":
        seconds, notes = pipeline_step(work, wire, num_gpus, options, draws)
        samples = 1.0
    else:
        outcome, notes, samples = _simulated(work, wire, name, num_gpus, options, draws, contention)
        seconds = outcome.finish
    loader = work.input_seconds * (options.pipeline_micro_batches if name == "pp" else options.accumulation_steps)
    if loader > float(seconds[0]):
        notes.append("the input pipeline is slower than the step and sets its length")
    seconds, one_gpu = np.maximum(seconds, loader), max(one_gpu, loader)
    step = interval(seconds)
    efficiency = samples * one_gpu / (num_gpus * step.expected)
    memory = predict_memory(profile, name, num_gpus, batch_size=batch_size, options=options)
    exposed = interval(outcome.exposed_wire) if outcome else None
    forecast = Forecast(
        strategy=name,
        num_gpus=num_gpus,
        wire=wire.name,
        workload=profile.workload.name,
        step_seconds=step,
        efficiency_fraction=efficiency,
        wire_tax_fraction=1 - efficiency,
        speedup=efficiency * num_gpus,
        batch_per_gpu=work.batch_size,
        exposed_communication_seconds=exposed,
        peak_memory_bytes=memory.peak if memory else None,
        fits=memory.fits(profile.device_memory_bytes) if memory and profile.device_memory_bytes else None,
        assumptions=tuple(dict.fromkeys([*timed, *work.assumptions, *notes, *(contention.assumptions if num_gpus > 1 else ())])),
    )
    return Prediction(
        forecast=forecast,
        one_gpu_seconds=one_gpu,
        forward=interval(outcome.marks["forward"]) if outcome else None,
        backward=interval(outcome.marks["backward"]) if outcome else None,
        memory=memory,
    )


def _simulated(
    work: Work, wire: Wire, name: str, num_gpus: int, options: Options, draws: Draws, contention: Contention
) -> tuple[Outcome, list[str], float]:
    """The outcome, what was assumed, and how many one-GPU batches the step gets through."""
    together = float(num_gpus)
    if name in ("fsdp2", "fsdp2_grad_op", "hsdp", "zero3"):
        kind = "fsdp2" if name == "zero3" else name
        outcome, notes = simulate_fsdp(work, wire, num_gpus, options, draws, contention, strategy=kind)
        if name == "zero3":
            notes.append("DeepSpeed's stage 3 is predicted as FSDP2, its equivalent")
        return outcome, notes, together
    if name in ("zero1", "zero2"):
        outcome, notes = simulate_zero(work, wire, num_gpus, options, draws, contention, stage=1 if name == "zero1" else 2)
        return outcome, notes, together
    if name == "tp":
        outcome, notes = simulate_tensor_parallel(work, wire, num_gpus, options, draws, contention)
        return outcome, notes, 1.0
    if name == "tp_ddp":
        group = options.tensor_parallel_size or 2
        if num_gpus % group:
            raise UsageError(f"{num_gpus} GPUs do not divide into tensor-parallel groups of {group}.")
        replicas = num_gpus // group
        if group == 1:
            outcome, notes = simulate_ddp(work, wire, num_gpus, options, draws, contention)
        else:
            outcome, notes = simulate_tensor_parallel(work, wire, group, options, draws, contention, replicas=replicas)
        return outcome, notes, float(replicas)
    chosen = replace(options, comm_hook="powersgd") if name == "powersgd" else options
    outcome, notes = simulate_ddp(work, wire, num_gpus, chosen, draws, contention)
    return outcome, notes, together


def _one_gpu(work: Work, options: Options, name: str) -> float:
    """The same micro-steps and one update on one GPU."""
    update = max(work.optimizer.device, work.optimizer.host)
    micro_steps = options.pipeline_micro_batches if name == "pp" else options.accumulation_steps
    return micro_steps * (work.bare_seconds - update) + update


def _wire_spread(work: Work, wire: Wire, name: str, num_gpus: int, options: Options) -> tuple[float, float]:
    """Spread of the wire at the largest message that the strategy sends over it, towards faster and towards slower."""
    if num_gpus == 1:
        return 0.0, 0.0
    if name in ("fsdp2", "fsdp2_grad_op", "hsdp", "zero3"):
        groups, _ = sharded_groups(work, None)
        largest = max(one.parameter_bytes for one in groups)
        operations: tuple[Operation, ...] = ("all_gather", "reduce_scatter")
    else:
        arrival = [index for index, _, _ in work.ready]
        largest = max((one.num_bytes for one in buckets(work.profile, arrival, options)), default=0)
        operations = ("send_recv",) if name == "pp" else ("all_reduce",)
    curves = [wire.curve(operation, num_gpus) for operation in operations]
    return max(one.sigma_at(largest) for one in curves), max(one.slower_sigma_at(largest) for one in curves)


def _spread(work: Work, name: str, num_gpus: int) -> tuple[float, float]:
    """Host and device spread; wider where the strategy itself was not profiled."""
    host, device = work.host_sigma, work.device_sigma
    if num_gpus == 1:
        return host, device
    if name in ("fsdp2", "fsdp2_grad_op", "hsdp", "zero3"):
        free = work.free_step("fsdp2", "fsdp2_grad_op", "hsdp", world_size=num_gpus)
        return (HOOKED_HOST_SIGMA if free is not None and free.groups else UNPROFILED_HOST_SIGMA), device
    if name in ("tp", "tp_ddp", "pp"):
        profiled = name == "tp" and any(one.strategy == "tp" and one.world_size == num_gpus for one in work.profile.free_steps)
        return (HOOKED_HOST_SIGMA, device) if profiled else (UNPROFILED_HOST_SIGMA, device + 2 * UNPROFILED_DEVICE_SIGMA)
    if work.free_step("ddp") is None or name == "powersgd":
        return host, device + UNPROFILED_DEVICE_SIGMA
    return host, device

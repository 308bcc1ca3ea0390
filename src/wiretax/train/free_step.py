"""The step under one strategy with communication made free (DESIGN 6.1): what the strategy itself costs host and device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wiretax.errors import BadInput, CannotMeasure, UsageError
from wiretax.model.profile import CommunicationCall, FreeStep, GroupTimes, MemoryPoint, Workload
from wiretax.train.bare import bytes_by_segment, owners_of
from wiretax.train.check import check_step
from wiretax.train.free import FreeWire, free_world
from wiretax.train.memory import NO_COUNTER, memory_points, two_batches
from wiretax.train.own_step import is_out_of_memory
from wiretax.train.rates import seconds_of
from wiretax.train.records import NotInOrder, calls_of, cuts_of, groups_of, step_times
from wiretax.train.sampling import Effort, Sampler
from wiretax.train.strategy import Options, Place, WrappedStep, wrap_step
from wiretax.train.workload import Step

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeResult:
    """A strategy's part of a profile."""

    step: FreeStep
    memory: tuple[MemoryPoint, ...]


@dataclass(slots=True, kw_only=True)
class Trial:
    """One strategy being profiled: the step, where it runs, how long, and the levers."""

    strategy: str
    step: Step
    workload: Workload
    device: torch.device
    effort: Effort
    place: Place
    options: Options
    base_bytes: int
    tick: Callable[[], None]
    without_gradient: frozenset[int]
    why_one_clock: str

    def wrap(self) -> WrappedStep:
        """Puts the step under the strategy."""
        return wrap_step(self.strategy, self.step, self.options, self.place)

    def batch(self) -> Any:
        """A batch of the workload's size."""
        return self.step.make_batch(self.workload.batch_size)

    def memory(self, wrapped: WrappedStep) -> tuple[MemoryPoint, ...]:
        """Peaks at two batch sizes; empty on a CPU."""
        return memory_points(wrapped, two_batches(self.workload.batch_size), self.device, base_bytes=self.base_bytes, tick=self.tick)

    def sampler(self, wrapped: WrappedStep, batch: Any, wire: FreeWire | None = None) -> Sampler:
        """Times it."""
        return Sampler(wrapped, batch, self.device, self.effort, wire=wire, tick=self.tick)

    def result(self, step: FreeStep, memory: Sequence[MemoryPoint]) -> FreeResult:
        """Both together, with the peak at the workload's batch in the step too."""
        peak = next((one.peak_bytes for one in memory if one.batch_size == self.workload.batch_size), None)
        missing = step.missing if peak is not None else step.missing | {"peak_memory_bytes": NO_COUNTER}
        return FreeResult(step=replace(step, peak_memory_bytes=peak, missing=missing), memory=tuple(memory))


def profile_strategy(
    strategy: str,
    step: Step,
    workload: Workload,
    device: torch.device,
    effort: Effort,
    *,
    world_size: int = 2,
    options: Options | None = None,
    base_bytes: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> FreeResult:
    """The step under a strategy, in this process alone.

    Args:
        strategy: one of :data:`wiretax.train.strategy.STRATEGIES`.
        step: fresh; it is changed in place and trained.
        workload: what it is.
        device: of the step.
        effort: how long to sample.
        world_size: what the communicator reports; DDP reduces over one rank whatever this is.
        options: the strategy's levers.
        base_bytes: allocated before the model was built.
        tick: called after each step.

    Raises:
        UsageError: the strategy cannot be had for this step and world size.
        BadInput: the user's step fails under it.
        CannotMeasure: memory runs out, or this torch cannot make communication free.
    """
    from wiretax.train.free_reduction import reduced_step

    options = options or Options()
    if strategy in ("tp", "tp_ddp") and workload.num_heads is not None:
        size = world_size if strategy == "tp" else options.tensor_parallel_size or 2
        if workload.num_heads % size:
            raise UsageError(f"{workload.num_heads} attention heads cannot be split over {size} GPUs.", do="Take a divisor.")
    checked = check_step(step, workload.batch_size, device, count_flops=False)
    if checked.without_gradient:
        options = replace(options, find_unused_parameters=True)
    with free_world(device, world_size) as place:
        trial = Trial(
            strategy=strategy,
            step=step,
            workload=workload,
            device=device,
            effort=effort,
            place=place,
            options=options,
            base_bytes=base_bytes,
            tick=tick,
            without_gradient=checked.without_gradient,
            why_one_clock="the step waits for the device in its midst" if checked.waits else "",
        )
        try:
            return reduced_step(trial) if strategy in ("ddp", "zero1", "tp_ddp") else sharded_step(trial)
        except (BadInput, CannotMeasure, UsageError):
            raise
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            if is_out_of_memory(error):
                raise CannotMeasure(
                    f"The step ran out of memory under {strategy} at batch {workload.batch_size}.", do="Take a smaller batch."
                ) from error
            raise BadInput(f"The step fails under {strategy}: {first}") from error


def sharded_step(trial: Trial) -> FreeResult:
    """FSDP2 and tensor parallelism."""
    step, fsdp = trial.step, trial.strategy != "tp"
    num_blocks = len(step.blocks or ())
    # Before sharding, while a parameter knows its whole size; by its place in the model, since nothing was timed yet.
    owners = owners_of(step.model, step.blocks or ())
    trained = [one.requires_grad and index not in trial.without_gradient for index, one in enumerate(step.model.parameters())]
    sizes = [one.numel() * one.element_size() for one in step.model.parameters()]
    parameter_bytes, gradient_bytes = bytes_by_segment(sizes, trained, owners, num_blocks)
    if fsdp and trial.options.param_dtype is not None:  # gathered in bf16, reduced in float32
        elements, with_gradient = bytes_by_segment([one.numel() for one in step.model.parameters()], trained, owners, num_blocks)
        parameter_bytes, gradient_bytes = [2 * one for one in elements], [4 * one for one in with_gradient]
    wrapped = trial.wrap()
    wire = FreeWire(step.model) if fsdp else None
    memory = trial.memory(wrapped)
    if wire is not None:
        wire.persistent = True
    sampler = trial.sampler(wrapped, trial.batch(), wire)
    samples = sampler.sample(why_one_clock=trial.why_one_clock)
    times = step_times(samples)
    if fsdp:
        calls = calls_of(samples.device_detail, samples.host_detail, times, num_blocks)
    else:
        parts = [one.to_local() if hasattr(one, "to_local") else one for one in step.model.parameters()]
        local = [one.numel() * one.element_size() for one in parts]
        parameter_bytes, gradient_bytes = bytes_by_segment(local, trained, owners, num_blocks)
        calls = calls_of(*sampler.listened(trial.place.world_size), times, num_blocks)
    missing: dict[str, str] = {}
    groups: tuple[GroupTimes, ...] = ()
    try:
        groups = groups_of(cuts_of(samples, times, num_blocks), parameter_bytes=parameter_bytes, gradient_bytes=gradient_bytes)
    except NotInOrder as reason:
        missing["groups"] = str(reason)
    filler, why = (0.0, "") if fsdp else _filler(trial, calls)
    if filler is None:
        missing["filler_seconds"] = why
    found = FreeStep(
        strategy=trial.strategy,
        world_size=trial.place.world_size,
        method="own_communicator" if fsdp else "fake_backend",
        options=wrapped.options,
        times=times,
        filler_seconds=filler,
        groups=groups,
        calls=calls,
        missing=missing,
    )
    return trial.result(found, memory)


def _filler(trial: Trial, calls: Sequence[CommunicationCall]) -> tuple[float | None, str]:
    """Seconds that torch's fake backend copied: it fills the output of an all-gather, and leaves that of a reduce-scatter as it was."""
    if any(one.operation == "reduce_scatter" for one in calls):
        return None, "the plan reduce-scatters activations, and what they hold under the fake backend is not known"
    return sum(_copy_seconds(trial, one.num_bytes) for one in calls if one.operation == "all_gather"), ""


def _copy_seconds(trial: Trial, num_bytes: int) -> float:
    """What filling so many bytes took, a rank's part at a time as the fake backend does it."""
    import torch

    part = torch.rand(max(num_bytes // trial.place.world_size // 4, 1), device=trial.device)
    whole = torch.empty(part.numel() * trial.place.world_size, device=trial.device)

    def fill() -> None:
        for piece in whole.split(part.numel()):
            piece.copy_(part)

    return seconds_of(fill, trial.device)

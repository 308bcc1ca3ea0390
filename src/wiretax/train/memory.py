"""Peak memory of a step at several batch sizes, and at what batch it would fit when it does not."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from wiretax.errors import CannotMeasure
from wiretax.model.profile import MemoryPoint
from wiretax.train.own_step import is_out_of_memory
from wiretax.train.strategy import WrappedStep

if TYPE_CHECKING:
    import torch

STEPS = 3
"""The optimizer's states exist after the first step, DDP's rebuilt buckets after the second."""
UPDATE_SLACK = 1.05
"""A peak below so many times the optimizer's is not yet that of the loss: near it, all gradients and the last layers weigh as much."""
MOST_TIMES = 16
"""The largest batch that is tried, in batches of the workload."""
USABLE_FRACTION = 0.95
"""Of the memory there is: the rest goes to fragments and to the communicator."""
NO_COUNTER = "a CPU has no allocator that keeps a peak"


def two_batches(batch_size: int) -> tuple[int, ...]:
    """The asked size and one half of it, so that fixed and growing memory can be told apart (1 and 2 for a batch of one)."""
    return (batch_size // 2, batch_size) if batch_size > 1 else (1, 2)


def memory_points(
    wrapped: WrappedStep,
    batch_sizes: Sequence[int],
    device: torch.device,
    *,
    base_bytes: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> tuple[MemoryPoint, ...]:
    """Peaks at each batch size, smallest first; empty on a CPU.

    Where two sizes are asked for, the bare step is tried at larger ones too, until two peaks grow with the batch: only those tell what a
    sample takes.

    Args:
        wrapped: the step, not run yet at a larger batch than the smallest.
        batch_sizes: to try.
        device: of the step.
        base_bytes: allocated before the model was built, which is not the step's.
        tick: called after each step.

    Raises:
        CannotMeasure: memory ran out; says at what batch it would fit.
    """
    if device.type != "cuda":
        return ()
    found: list[MemoryPoint] = []
    for batch_size in sorted(batch_sizes):
        with out_of_memory_explained(wrapped, batch_size, device, found):
            found.append(_point(wrapped, batch_size, device, base_bytes, tick))
    largest = max(batch_sizes)
    while (
        wrapped.strategy == "none" and len(batch_sizes) > 1 and found[-1].batch_size < MOST_TIMES * largest and sum(map(grows, found)) < 2
    ):
        try:
            found.append(_point(wrapped, 2 * found[-1].batch_size, device, base_bytes, tick))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            wrapped.optimizer.zero_grad(set_to_none=True)
            break
    if found[-1].batch_size > largest:
        forget(device)
    return tuple(found)


def grows(point: MemoryPoint) -> bool:
    """Whether the peak grows with the batch; otherwise it is that of the optimizer's moment, when all gradients are there."""
    return point.update_peak_bytes is None or point.peak_bytes > UPDATE_SLACK * point.update_peak_bytes


def _point(wrapped: WrappedStep, batch_size: int, device: torch.device, base_bytes: int, tick: Callable[[], None]) -> MemoryPoint:
    """Peaks of three steps."""
    import torch

    batch = wrapped.step.make_batch(batch_size)
    torch.cuda.synchronize(device)
    backward = update = 0
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats(device)
        wrapped.backward(wrapped.forward(batch))
        backward = max(backward, torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        wrapped.update()
        update = max(update, torch.cuda.max_memory_allocated(device))
        tick()
    torch.cuda.synchronize(device)
    return MemoryPoint(
        strategy=wrapped.strategy,
        batch_size=batch_size,
        peak_bytes=max(backward, update) - base_bytes,
        at_rest_bytes=torch.cuda.memory_allocated(device) - base_bytes,
        update_peak_bytes=update - base_bytes,
    )


@contextlib.contextmanager
def out_of_memory_explained(
    wrapped: WrappedStep, batch_size: int, device: torch.device, known: Sequence[MemoryPoint] = ()
) -> Iterator[None]:
    """Turns running out of memory into an error that says what would fit.

    Raises:
        CannotMeasure: memory ran out.
    """
    try:
        yield
        return
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    raise CannotMeasure(
        f"The step ran out of memory at batch {batch_size} under {wrapped.strategy}{_size_of(device)}.",
        do=_advice(wrapped, batch_size, device, known),
    )


def _advice(wrapped: WrappedStep, batch_size: int, device: torch.device, known: Sequence[MemoryPoint]) -> str:
    smaller = largest_that_fits(wrapped, batch_size, device, known)
    if smaller == 0:
        return "Not even a batch of 1 fits: shard the model over more GPUs, take a smaller one, or use activation checkpointing."
    return f"A batch of {smaller} would fit. Activation checkpointing or a sharding strategy would allow more."


def largest_that_fits(wrapped: WrappedStep, batch_size: int, device: torch.device, known: Sequence[MemoryPoint] = ()) -> int:
    """The largest batch below ``batch_size`` that trains, by halving, and from two peaks by a straight line where there are two.

    Returns:
        0 when not even one sample fits.
    """
    points = {point.batch_size: point.peak_bytes for point in known}
    fits = max(points, default=0)
    trial = batch_size // 2
    while fits == 0 and trial >= 1:
        if (peak := _peak_or_none(wrapped, trial, device)) is not None:
            fits, points[trial] = trial, peak
        trial //= 2
    if trial >= 1 and trial not in points and (peak := _peak_or_none(wrapped, trial, device)) is not None:
        points[trial] = peak
    sizes = sorted(size for size in points if points[size])
    if device.type != "cuda" or len(sizes) < 2:
        return fits
    import torch

    slope = (points[sizes[-1]] - points[sizes[0]]) / (sizes[-1] - sizes[0])
    if slope <= 0:
        return fits
    room = USABLE_FRACTION * torch.cuda.mem_get_info(device)[1] - points[sizes[0]]
    return max(fits, min(int(sizes[0] + room / slope), batch_size - 1))


def _peak_or_none(wrapped: WrappedStep, batch_size: int, device: torch.device) -> int | None:
    """Peak of two steps, 0 where there is no counter, None when memory runs out."""
    forget(device)
    try:
        if device.type != "cuda":
            wrapped.train(wrapped.step.make_batch(batch_size))
            return 0
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(2):
            wrapped.train(wrapped.step.make_batch(batch_size))
        return int(torch.cuda.max_memory_allocated(device))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        wrapped.optimizer.zero_grad(set_to_none=True)
        return None


def forget(device: torch.device) -> None:
    """Gives back what nothing refers to any more."""
    gc.collect()
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()


def _size_of(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return f" on {torch.cuda.get_device_name(device)} ({total / 1e9:.0f} GB, {free / 1e9:.0f} GB of it free)"


def allocated(device: torch.device) -> int:
    """Bytes in use now; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    import torch

    return int(torch.cuda.memory_allocated(device))

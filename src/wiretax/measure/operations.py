"""The six operations: what a size means, what busbw is, how torch runs them, and how their result is checked by value.

Sizes and bus bandwidth follow nccl-tests (its doc/PERFORMANCE.md): with S the size and n the ranks, algbw = S / t and
busbw = algbw times 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for broadcast and send/recv.
S of all-gather and reduce-scatter is the total, of all-to-all what one rank sends to all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wiretax.measure.buffers import fill, holds
from wiretax.model.measurement import Operation

if TYPE_CHECKING:
    import torch

ELEMENT_BYTES = 4
"""float32, as nccl-tests by default."""

_SPLIT = frozenset({"all_gather", "reduce_scatter", "all_to_all"})


def bus_factor(operation: Operation, world_size: int) -> float:
    """The factor from algbw to busbw."""
    if operation == "all_reduce":
        return 2 * (world_size - 1) / world_size
    if operation in _SPLIT:
        return (world_size - 1) / world_size
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One size of one operation: elements of the two buffers of a rank, and the size it is reported as."""

    num_bytes: int
    source_elements: int
    target_elements: int


def shape_of(operation: Operation, num_bytes: int, world_size: int) -> Shape:
    """The nearest size that can be cut into equal whole elements: never more than asked, except below one element a rank."""
    if operation not in _SPLIT:
        elements = max(num_bytes // ELEMENT_BYTES, 1)
        return Shape(num_bytes=elements * ELEMENT_BYTES, source_elements=elements, target_elements=elements)
    part = max(num_bytes // ELEMENT_BYTES // world_size, 1)
    total = part * world_size
    return Shape(
        num_bytes=total * ELEMENT_BYTES,
        source_elements=part if operation == "all_gather" else total,
        target_elements=part if operation == "reduce_scatter" else total,
    )


def _renamed(new: str, old: str) -> Callable[..., Any]:
    """A function of torch.distributed under its name since torch 2.13 (the old one warns there), or the one before."""
    import torch.distributed as dist

    found: Callable[..., Any] = getattr(dist, new, None) or getattr(dist, old)
    return found


def run(operation: Operation, source: torch.Tensor, target: torch.Tensor, index: int, world_size: int) -> None:
    """Runs one operation in the default group.

    Args:
        operation: which.
        source: what this rank gives (unused by the operations that work in place).
        target: what it gets.
        index: this rank's number in the group.
        world_size: ranks in the group.
    """
    import torch.distributed as dist

    if operation == "all_reduce":
        dist.all_reduce(target)
    elif operation == "all_gather":
        _renamed("all_gather_single", "all_gather_into_tensor")(target, source)
    elif operation == "reduce_scatter":
        _renamed("reduce_scatter_single", "reduce_scatter_tensor")(target, source)
    elif operation == "all_to_all":
        dist.all_to_all_single(target, source)
    elif operation == "broadcast":
        dist.broadcast(target, src=0)
    else:
        # receive first: gloo's sends of large messages wait for the receiver, and all ranks sending first would wait for ever
        ring: list[Any] = [
            dist.P2POp(dist.irecv, target, (index - 1) % world_size),
            dist.P2POp(dist.isend, source, (index + 1) % world_size),
        ]
        for work in dist.batch_isend_irecv(ring):
            work.wait()


def prepare(operation: Operation, source: torch.Tensor, target: torch.Tensor, index: int, world_size: int) -> None:
    """Gives every rank data of its own, so that a result made of the wrong rank's data cannot pass."""
    if operation == "all_reduce":
        fill(target, index + 1)
        return
    fill(target, -1 - index)
    if operation == "broadcast":
        if index == 0:
            fill(target, 1)
    elif operation in ("reduce_scatter", "all_to_all"):
        for receiver, part in enumerate(source.chunk(world_size)):
            fill(part, index + 1 + 1000 * receiver)
    else:
        fill(source, index + 1)


def is_right(operation: Operation, target: torch.Tensor, index: int, world_size: int) -> bool:
    """Whether ``target`` holds what :func:`prepare` and one run must give; sums of small whole numbers are exact in float32."""
    total = world_size * (world_size + 1) // 2
    if operation == "all_reduce":
        return holds(target, total, scale=world_size)
    if operation == "reduce_scatter":
        return holds(target, total + 1000 * index * world_size, scale=world_size)
    if operation == "all_gather":
        return all(holds(part, sender + 1) for sender, part in enumerate(target.chunk(world_size)))
    if operation == "all_to_all":
        return all(holds(part, sender + 1 + 1000 * index) for sender, part in enumerate(target.chunk(world_size)))
    if operation == "broadcast":
        return holds(target, 1)
    return holds(target, (index - 1) % world_size + 1)

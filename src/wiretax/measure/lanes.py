"""One copy that can be repeated: where from, where to, by which way, and whether the data arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wiretax.measure.buffers import fill, holds

if TYPE_CHECKING:
    import torch

CHUNK_ELEMENTS = (8 << 20) // 4
SLOTS = 4
"""So many pinned chunks of 8 MiB are under way at once on the staged way: one filled, one emptied, and room for jitter."""


@dataclass(slots=True, kw_only=True)
class Lane:
    """A copy of ``source`` to ``target``, queued on the current stream of the rank's own device.

    Attributes:
        copy: queues the whole copy.
        copy_little: queues a copy of eight bytes, for the latency.
    """

    source: torch.Tensor
    target: torch.Tensor
    copy: Callable[[], object]
    copy_little: Callable[[], object]

    @property
    def num_bytes(self) -> int:
        """Size of a copy."""
        return 4 * int(self.source.numel())

    def prepare(self, offset: int) -> None:
        """Writes known values at the source and others at the target."""
        fill(self.source, offset)
        fill(self.target, -1)

    def is_right(self, offset: int) -> bool:
        """Whether the target holds what :meth:`prepare` wrote at the source, read where the target lies."""
        return holds(self.target, offset)


def plain_lane(num_bytes: int, source: torch.device, target: torch.device) -> Lane:
    """A copy by one call of the driver; an end on the CPU is pinned when the other is a GPU."""
    import torch

    pinned = "cuda" in (source.type, target.type)

    def buffer(device: torch.device) -> torch.Tensor:
        return torch.empty(num_bytes // 4, device=device, pin_memory=pinned and device.type == "cpu")

    giving, getting = buffer(source), buffer(target)
    return Lane(
        source=giving,
        target=getting,
        copy=lambda: getting.copy_(giving, non_blocking=True),
        copy_little=lambda: getting[:2].copy_(giving[:2], non_blocking=True),
    )


def staged_lane(num_bytes: int, source: torch.device, target: torch.device) -> Lane:
    """A copy from GPU to GPU through pinned host memory: chunks leave on one stream while earlier ones arrive on another."""
    import torch

    giving = torch.empty(num_bytes // 4, device=source)
    getting = torch.empty(num_bytes // 4, device=target)
    chunk = min(CHUNK_ELEMENTS, giving.numel())
    slots = [torch.empty(chunk, pin_memory=True) for _ in range(SLOTS)]
    leaving, arriving = torch.cuda.Stream(source), torch.cuda.Stream(target)
    full = [torch.cuda.Event() for _ in slots]
    empty = [torch.cuda.Event() for _ in slots]

    def copy(elements: int = giving.numel()) -> None:
        leaving.wait_stream(torch.cuda.current_stream(source))
        arriving.wait_stream(torch.cuda.current_stream(target))  # whatever was queued for the target before, such as its preparation
        for number, start in enumerate(range(0, elements, chunk)):
            slot, length = number % SLOTS, min(chunk, elements - start)
            with torch.cuda.stream(leaving):
                # an event that was never recorded does not hold anybody up
                leaving.wait_event(empty[slot])
                slots[slot][:length].copy_(giving[start : start + length], non_blocking=True)
                full[slot].record(leaving)
            with torch.cuda.stream(arriving):
                arriving.wait_event(full[slot])
                getting[start : start + length].copy_(slots[slot][:length], non_blocking=True)
                empty[slot].record(arriving)
        # the end is seen on the stream that the timer watches
        torch.cuda.current_stream(source).wait_stream(arriving)

    return Lane(source=giving, target=getting, copy=copy, copy_little=lambda: copy(2))

"""One operation called again and again on changing buffers, directly or as a CUDA graph of several."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wiretax.measure import operations as ops
from wiretax.measure.buffers import fill
from wiretax.measure.timing import Summary
from wiretax.model.measurement import Operation

if TYPE_CHECKING:
    import torch

MOST_GRAPH_OPERATIONS = 32
_DOUBLINGS = 60
"""After so many doublings the values (at most 256 at first) are still far from float32's end at 2^128, with room for one burst."""


class Rotation:
    """Each call takes the next slice. An in-place sum grows with every call, so :meth:`renew` writes small values again in time."""

    def __init__(self, operation: Operation, slices: list[tuple[torch.Tensor, torch.Tensor]], index: int, world_size: int) -> None:
        self._operation, self._slices, self._index, self._world_size = operation, slices, index, world_size
        self._at = self._since_renewal = 0
        self._renew_after = int(_DOUBLINGS / math.log2(max(world_size, 2))) * len(slices)

    def __call__(self) -> None:
        """Runs the operation once."""
        source, target = self._slices[self._at % len(self._slices)]
        self._at += 1
        ops.run(self._operation, source, target, self._index, self._world_size)

    def count(self, calls: int) -> None:
        """Notes calls that a graph made in this object's place."""
        self._since_renewal += calls

    def renew(self) -> None:
        """Writes small values into all slices where sums may have grown large; meant for between bursts."""
        if self._operation != "all_reduce" or self._at + self._since_renewal < self._renew_after:
            return
        for _, target in self._slices:
            fill(target, self._index + 1)
        self._at = self._since_renewal = 0


class Graph:
    """Several operations captured once and replayed as one call: the host's share of the time is gone.

    Raises:
        RuntimeError: the operation cannot be captured.
    """

    def __init__(self, rotation: Rotation, operations: int) -> None:
        import torch

        self.operations = operations
        self._rotation = rotation
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # thread_local: the backend's own watchdog thread asks events at the same time, which the global mode forbids
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                for _ in range(operations):
                    rotation()
            finally:
                self._graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> None:
        """Queues all the operations."""
        self._rotation.count(self.operations)
        self._graph.replay()

    def release(self) -> None:
        """Lets go of the graph; the communicator must outlive it."""
        self._graph.reset()

    @staticmethod
    def operations_for(operation_seconds: float, sample_seconds: float) -> int:
        """How many operations of this length make a graph of a sample's length."""
        return min(max(math.ceil(sample_seconds / max(operation_seconds, 1e-9)), 1), MOST_GRAPH_OPERATIONS)

    @staticmethod
    def operations_of(summary: Summary) -> int:
        """A number that makes samples of the same length again (the largest divisor, not always the number that was captured)."""
        return max(operations for operations in range(1, MOST_GRAPH_OPERATIONS + 1) if summary.operations_per_sample % operations == 0)

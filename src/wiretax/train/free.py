"""Communication made free: one process that stands for N ranks, so that a strategy's own host time, hooks and copies show alone.

The default process group is torch's ``fake`` backend at world size N: it does nothing and returns. DDP does not run on it (its reducer
wants a future that ``fake`` cannot give), so DDP gets a real group of one rank beside it. FSDP2's gathered weights and reduced gradients
would hold whatever memory held before, and a matrix product on zeros or infinities does not take its usual time; so they are given
buffers that already hold ordinary numbers. Nothing is copied for that inside the timed step.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wiretax.errors import CannotMeasure
from wiretax.model.measurement import Operation
from wiretax.train.stopwatch import Stopwatch
from wiretax.train.strategy import Place

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

FILL_SCALE = 0.02
"""Standard deviation of the numbers in gathered buffers: that of freshly drawn weights."""
GRADIENT_SCALE = 1e-4
BUFFERS_IN_FLIGHT = 2
"""FSDP2 has at most two gathered groups alive, so two buffers in turn have the cache behaviour of the real ones."""


def register_fake_backend() -> None:
    """Makes torch know the backend ``fake``.

    Raises:
        CannotMeasure: this torch has none.
    """
    import torch

    try:
        importlib.import_module("torch.testing._internal.distributed.fake_pg")
    except ImportError as error:
        raise CannotMeasure(
            f"This torch ({torch.__version__}) has no fake backend.", why=str(error), do="Use torch 2.11 or later."
        ) from error


def silence_reductions(model: Any, device: torch.device) -> None:
    """Makes a DDP model keep its own gradients: its buckets are filled and handed over, and nothing is sent."""
    import torch

    def hook(_state, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations, and refuses any but its own
        done = torch.futures.Future(devices=[device] if device.type == "cuda" else None)
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)


@contextmanager
def free_world(device: torch.device, world_size: int) -> Iterator[Place]:
    """A place of ``world_size`` ranks, of which this process is the first and the only one.

    Raises:
        CannotMeasure: this torch has no fake backend, or a process group exists already.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        raise CannotMeasure(
            "A process group exists already in this process.", do="Profile before init_process_group, or in a process apart."
        )
    register_fake_backend()
    dist.init_process_group("fake", rank=0, world_size=world_size, store=dist.HashStore())
    try:
        backend = "nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo"
        alone = dist.new_group([0], backend=backend, use_local_synchronization=True)
        # The group is named, since torch would refuse a mesh of more ranks than this host has GPUs for.
        yield Place(device=device, world_size=world_size, data_group=alone, model_group=dist.group.WORLD)
    finally:
        dist.destroy_process_group()


class FreeWire:
    """Takes the place of FSDP2's all-gathers and reduce-scatters in a model sharded inside :func:`free_world`.

    Attributes:
        watch: notes the calls of the step that is being timed; None between steps.
        persistent: whether buffers hold ordinary numbers and stay (for timing), or are made and dropped as torch does it (so
            that the peak of memory is the real one; the data then is copied in, which costs time).
    """

    def __init__(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import FSDPModule

        self.watch: Stopwatch | None = None
        self.persistent = False
        self._gathered: dict[tuple[int, torch.dtype], Tensor] = {}
        self._turn = 0
        self._reduced: list[Tensor] = []
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(_gather(self))
                module.set_custom_reduce_scatter(_scatter(self))

    def note(self, operation: Operation, num_bytes: int) -> None:
        """A collective was issued."""
        if self.watch is not None:
            self.watch.call(operation, num_bytes, blocking=False)

    def refresh(self) -> None:
        """Fills the reduced gradients anew: some versions of torch divide them in place, step after step. Call between steps."""
        for buffer in self._reduced:
            buffer.normal_(std=GRADIENT_SCALE)

    def gathered(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A piece of one of the buffers that stand for gathered weights."""
        import torch

        self._turn = (self._turn + 1) % BUFFERS_IN_FLIGHT
        key = (self._turn, dtype)
        if key not in self._gathered or self._gathered[key].numel() < size:
            self._gathered[key] = torch.empty(size, dtype=dtype, device=device).normal_(std=FILL_SCALE)
        return self._gathered[key][:size]

    def reduced(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer of its own for one group's reduced gradients, which the optimizer reads much later."""
        import torch

        buffer = torch.empty(size, dtype=dtype, device=device).normal_(std=GRADIENT_SCALE)
        self._reduced.append(buffer)
        return buffer


def _elements(size: Sequence[Any]) -> int:
    product = 1
    for one in size:
        product *= int(one)
    return product


def _gather(wire: FreeWire) -> Any:
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

    class FreeAllGather(AllGather):  # type: ignore[misc]
        """FSDP2 asks it for the buffer, copies its own shard in, and calls it."""

        def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
            import torch

            return wire.gathered(_elements(size), dtype, device) if wire.persistent else torch.empty(*size, dtype=dtype, device=device)

        def __call__(self, output_tensor: Tensor, input_tensor: Tensor, **_rest: Any) -> None:
            wire.note("all_gather", output_tensor.numel() * output_tensor.element_size())
            if not wire.persistent:
                for part in output_tensor.split(input_tensor.numel()):
                    part.copy_(input_tensor)

    return FreeAllGather()


def _scatter(wire: FreeWire) -> Any:
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

    class FreeReduceScatter(ReduceScatter):  # type: ignore[misc]
        """FSDP2 asks it for the input buffer, then for the output buffer, and calls it."""

        def __init__(self) -> None:
            self._last_size = 0
            self._output: Tensor | None = None

        def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
            import torch

            elements = _elements(size)
            is_output = elements < self._last_size
            self._last_size = 0 if is_output else elements
            if not (wire.persistent and is_output):
                return torch.empty(*size, dtype=dtype, device=device)
            if self._output is None or self._output.numel() != elements:
                self._output = wire.reduced(elements, dtype, device)
            return self._output

        def __call__(self, output_tensor: Tensor, input_tensor: Tensor, **_rest: Any) -> None:
            wire.note("reduce_scatter", input_tensor.numel() * input_tensor.element_size())
            if not wire.persistent:
                output_tensor.copy_(input_tensor[: output_tensor.numel()])

    return FreeReduceScatter()

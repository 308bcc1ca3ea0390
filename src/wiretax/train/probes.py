"""Hooks that put marks into a timed step: around each block, in backward where it passes a block, and at each finished gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from wiretax.model.measurement import Operation
from wiretax.train.stopwatch import Stopwatch

if TYPE_CHECKING:
    from torch import Tensor, nn


class Probes:
    """Attached while the context is open; marks go to ``watch``.

    Attach after wrapping: the marks then lie outside FSDP's own hooks, so that what a block costs includes them.

    Args:
        watch: where marks go.
        blocks: in forward order.
        parameters: whose gradients are waited for; none by default, since the hooks cost host time.
    """

    def __init__(self, watch: Stopwatch, blocks: Sequence[nn.Module], parameters: Sequence[nn.Parameter] = ()) -> None:
        self._watch = watch
        self._blocks = blocks
        self._parameters = parameters
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        for number, block in enumerate(self._blocks):
            self._handles += [
                block.register_forward_pre_hook(self._entering(number), prepend=True, with_kwargs=True),
                # Before FSDP's hook, which asks for the gathered weights when the gradient of the output arrives.
                block.register_forward_hook(self._catch_output(number), prepend=True),
                block.register_forward_hook(self._leaving(number)),
            ]
        for number, parameter in enumerate(self._parameters):
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._ready(number)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _entering(self, number: int) -> Any:
        def hook(_block: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if self._watch.phase_now != "forward":
                return  # activation checkpointing runs it again in backward
            if number == 0:
                self._catch((arguments, keywords), -1)
            self._watch.mark(("enter", number))

        return hook

    def _catch_output(self, number: int) -> Any:
        def hook(_block: nn.Module, _arguments: tuple[Any, ...], output: Any) -> None:
            if self._watch.phase_now == "forward":
                self._catch(output, number)

        return hook

    def _leaving(self, number: int) -> Any:
        def hook(_block: nn.Module, _arguments: tuple[Any, ...], _output: Any) -> None:
            if self._watch.phase_now == "forward":
                self._watch.mark(("leave", number))

        return hook

    def _ready(self, number: int) -> Any:
        def hook(_parameter: nn.Parameter) -> None:
            self._watch.mark(("ready", number))

        return hook

    def _catch(self, values: Any, number: int) -> None:
        """Marks the arrival of the first gradient among the tensors of a value."""
        for tensor in tensors_in(values):
            if tensor.requires_grad:
                tensor.register_hook(lambda _gradient: self._watch.mark(("back", number)))
                return


def tensors_in(value: Any) -> Iterable[Tensor]:
    """All tensors in nested tuples, lists and mappings, in order (model outputs of transformers are mappings)."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict) or hasattr(value, "values"):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


_FUNCTIONAL: dict[str, Operation] = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "alltoall_base_": "all_to_all",
}
"""torch's names of collectives, functional and plain, and nccl-tests' name of the operation."""


def listen(watch: Stopwatch, world_size: int) -> Any:
    """A context in which every collective that any thread of the step issues is noted in ``watch``.

    It slows the host many times over, so its host times only say where in a phase a call stands.
    """
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Listener(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            if any(kind is DTensor for kind in types):
                return NotImplemented  # let it come apart into the operations on its parts, which pass here again
            namespace = function.namespace
            if namespace in ("_c10d_functional", "c10d", "_c10d_functional_autograd"):
                operation = _FUNCTIONAL.get(function._schema.name.rpartition("::")[2])
                if operation is not None:
                    watch.call(operation, _total_bytes(operation, arguments, world_size, functional=namespace != "c10d"), blocking=True)
            return function(*arguments, **(keywords or {}))

    return Listener()


def _total_bytes(operation: Operation, arguments: Any, world_size: int, *, functional: bool) -> int:
    """The size as nccl-tests counts it. Plain ``_allgather_base_`` and ``allgather_`` are given their output first."""
    found = list(tensors_in(arguments[0])) if arguments else []
    size = sum(int(tensor.numel()) * int(tensor.element_size()) for tensor in found)
    if operation == "all_gather" and functional:
        return size * world_size
    if operation == "reduce_scatter" and not functional:
        second = list(tensors_in(arguments[1]))
        return sum(int(tensor.numel()) * int(tensor.element_size()) for tensor in second)
    return size

"""Tensor parallelism through DTensor: ranks share every layer, and all-reduces stand on the critical path.

tp spreads layers over all ranks; tp_ddp over groups of a few, and averages gradients across the groups with DDP.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wiretax.errors import UsageError
from wiretax.train import ddp
from wiretax.train.strategy import Options, Place, WrappedStep, optimizer_by_mesh, written
from wiretax.train.workload import Step

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def split(step: Step, mesh: DeviceMesh) -> None:
    """Spreads the step's model in place, after its plan.

    Raises:
        UsageError: it has no plan.
    """
    from torch.distributed.tensor.parallel import parallelize_module

    if not step.tensor_parallel_plan:
        raise UsageError("The step says nothing of how its layers may be split.", do="Give a tensor_parallel_plan in the Step.")
    # All ranks have built the same weights, so each takes its own part of them and nothing is sent.
    parallelize_module(step.model, mesh, dict(step.tensor_parallel_plan), src_data_rank=None)


def splits_loss(step: Step) -> bool:
    """Whether a layer of the plan hands split logits to the loss (a DTensor, as ``use_local_output=False`` gives)."""
    return any(getattr(style, "use_local_output", True) is False for style in (step.tensor_parallel_plan or {}).values())


def loss_context(step: Step) -> AbstractContextManager[Any]:
    """What the loss and its backward run inside."""
    if not splits_loss(step):
        return nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    context: AbstractContextManager[Any] = loss_parallel()
    return context


def wrap(step: Step, options: Options, place: Place, strategy: str) -> WrappedStep:
    """The step under tensor parallelism, alone or with DDP across.

    Raises:
        UsageError: no plan, a number of ranks that cannot be divided, or a torch without the piece that joins the two.
    """
    if strategy == "tp":
        split(step, place.mesh((place.world_size,), ("tp",)))
        return WrappedStep(
            strategy=strategy,
            step=step,
            model=step.model,
            optimizer=optimizer_by_mesh(step, step.model.parameters()),
            options=written(tensor_parallel_size=place.world_size, loss_parallel=splits_loss(step)),
            around=lambda: loss_context(step),
        )
    size = options.tensor_parallel_size or 2
    if place.world_size % size or place.world_size == size:
        raise UsageError(
            f"{place.world_size} GPUs are not several groups of {size}.", do="Use tp, or set tensor_parallel_size to a divisor."
        )
    mesh = place.mesh((place.world_size // size, size), ("dp", "tp"))
    split(step, mesh["tp"])
    _make_local(step)
    wrapped = ddp.wrap(step, options, replace(place, data_group=place.data_group or mesh["dp"].get_group()), strategy)
    wrapped.around = lambda: loss_context(step)
    wrapped.options |= written(tensor_parallel_size=size, loss_parallel=splits_loss(step))
    return wrapped


def _make_local(step: Step) -> None:
    """Lets DDP see plain tensors, each rank's own part of a parameter.

    Raises:
        UsageError: this torch has it no more (it is not public).
    """
    try:
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    except ImportError:
        raise UsageError("This torch cannot run DDP over a tensor-parallel model.", do="Use torch 2.11 to 2.13, or tp alone.") from None
    _pre_dp_module_transform(step.model)

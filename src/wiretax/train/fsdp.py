"""FSDP2: every rank holds a part of each parameter; a block's weights are gathered before it runs, its gradients scattered after.

fsdp2 gives a block's weights back after forward (FSDP1's FULL_SHARD), fsdp2_grad_op keeps them until backward (SHARD_GRAD_OP), hsdp
shards within groups and averages across them (HYBRID_SHARD).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wiretax.errors import UsageError
from wiretax.train.strategy import Options, Place, WrappedStep, optimizer_by_mesh, written
from wiretax.train.workload import Step

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


def shard(step: Step, options: Options, mesh: DeviceMesh, *, reshard_after_forward: bool) -> None:
    """Shards the step's model in place, block by block, then the rest as the root.

    Raises:
        UsageError: it has no blocks: sharded as one piece, everything would be gathered before the first kernel runs.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if not step.blocks:
        raise UsageError("FSDP needs the model's repeated blocks, and none were found.", do="Name them in Step.blocks.")
    for parameter in step.model.parameters():
        parameter.data = parameter.data.contiguous()  # FSDP2 refuses others, such as channels-last convolutions
    extra: dict[str, Any] = {"mesh": mesh}
    if options.param_dtype is not None:
        extra["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in step.blocks:
        fully_shard(block, reshard_after_forward=reshard_after_forward, **extra)
    # The root stays gathered in either case, so that its embedding and head are not fetched twice.
    fully_shard(step.model, reshard_after_forward=False, **extra)
    prefetch(step.blocks, forward=options.forward_prefetch, backward=options.backward_prefetch)


def prefetch(blocks: Sequence[nn.Module], *, forward: int, backward: int) -> None:
    """Tells each block which ones to gather ahead; 0 leaves torch's implicit order."""
    for number, block in enumerate(blocks):
        if forward:
            block.set_modules_to_forward_prefetch(list(blocks[number + 1 : number + 1 + forward]))
        if backward:
            block.set_modules_to_backward_prefetch(list(reversed(blocks[max(number - backward, 0) : number])))


def levers(options: Options, *, reshard_after_forward: bool) -> dict[str, str]:
    """What is in force."""
    return written(
        reshard_after_forward=reshard_after_forward,
        forward_prefetch=options.forward_prefetch or None,
        backward_prefetch=options.backward_prefetch or None,
        param_dtype=options.param_dtype,
    )


def wrap(step: Step, options: Options, place: Place, strategy: str) -> WrappedStep:
    """The step under FSDP2.

    Raises:
        UsageError: no blocks, or too few ranks for hybrid sharding.
    """
    reshard = strategy != "fsdp2_grad_op"
    described = levers(options, reshard_after_forward=reshard)
    if strategy == "hsdp":
        size = options.shard_group_size or place.world_size // 2
        if size < 2 or place.world_size % size or place.world_size == size:
            raise UsageError(
                f"Hybrid sharding needs at least two groups of at least two GPUs; {place.world_size} in groups of {size} are not.",
                do="Use fsdp2 on fewer GPUs, or set shard_group_size to a divisor.",
            )
        mesh = place.mesh((place.world_size // size, size), ("replicate", "shard"))
        described["shard_group_size"] = str(size)
    else:
        mesh = place.mesh((place.world_size,), ("shard",))
    shard(step, options, mesh, reshard_after_forward=reshard)
    model: Any = step.model
    return WrappedStep(
        strategy=strategy,
        step=step,
        model=model,
        optimizer=optimizer_by_mesh(step, model.parameters()),
        options=described,
        set_sync=model.set_requires_gradient_sync,
    )

"""DistributedDataParallel: every rank holds the whole model; gradients are averaged in buckets while backward runs."""

from __future__ import annotations

from typing import Any

from wiretax.errors import UsageError
from wiretax.train.strategy import Options, Place, WrappedStep, written
from wiretax.train.workload import Step

DEFAULT_BUCKET_MB = 25
"""torch's, after a first bucket of 1 MiB."""


def replicate(step: Step, options: Options, place: Place) -> Any:
    """The model under DDP.

    Raises:
        UsageError: nothing in it is trained, or the hook is not to be had on this device.
    """
    from torch.nn.parallel import DistributedDataParallel

    if not any(parameter.requires_grad for parameter in step.model.parameters()):
        raise UsageError("No parameter of the model is trained.")
    if options.comm_hook is not None and place.device.type != "cuda":
        raise UsageError("Torch compresses gradients to bf16 on GPUs only.", do="Leave comm_hook out on CPU ranks.")
    extra = {} if options.bucket_cap_mb is None else {"bucket_cap_mb": options.bucket_cap_mb}
    model = DistributedDataParallel(
        step.model,
        device_ids=[place.device.index] if place.device.type == "cuda" else None,
        process_group=place.data_group,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        find_unused_parameters=options.find_unused_parameters,
        **extra,
    )
    if options.comm_hook is not None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model.register_comm_hook(place.data_group, default_hooks.bf16_compress_hook)
    return model


def levers(options: Options) -> dict[str, str]:
    """What is in force."""
    return written(
        bucket_cap_mb=options.bucket_cap_mb,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        find_unused_parameters=options.find_unused_parameters,
        comm_hook=options.comm_hook,
    )


def wrap(step: Step, options: Options, place: Place, strategy: str) -> WrappedStep:
    """The step under DDP.

    Raises:
        UsageError: nothing is trained.
    """
    model = replicate(step, options, place)

    def set_sync(sync: bool) -> None:
        model.require_backward_grad_sync = sync  # what no_sync() sets; forward reads it, so it must be set before

    return WrappedStep(
        strategy=strategy,
        step=step,
        model=model,
        optimizer=step.make_optimizer(step.model.parameters()),
        options=levers(options),
        set_sync=set_sync,
    )

"""ZeRO stage 1: DDP's gradients, but each rank keeps and updates the optimizer states of its own share of the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wiretax.errors import UsageError
from wiretax.train import ddp
from wiretax.train.strategy import Options, Place, WrappedStep
from wiretax.train.workload import Step

if TYPE_CHECKING:
    from torch import nn


def sharded_optimizer(step: Step, parameters: Iterable[nn.Parameter], place: Place) -> Any:
    """A ZeroRedundancyOptimizer around the class and settings that the step's own optimizer has.

    Raises:
        UsageError: the step's optimizer cannot be made again from its settings.
    """
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    own = step.make_optimizer([torch.nn.Parameter(torch.zeros(1, device=place.device))])
    known = inspect.signature(type(own).__init__).parameters
    settings = {name: value for name, value in own.defaults.items() if name in known}
    needed = [
        name
        for name, parameter in known.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in ("self", "params")
        and name not in settings
    ]
    if needed:
        raise UsageError(f"{type(own).__name__} cannot be sharded: its {', '.join(needed)} is not among its defaults.")
    return ZeroRedundancyOptimizer(parameters, optimizer_class=type(own), process_group=place.model_group, **settings)


def wrap(step: Step, options: Options, place: Place, strategy: str) -> WrappedStep:
    """The step under DDP with a sharded optimizer.

    Raises:
        UsageError: nothing is trained, or the optimizer cannot be sharded.
    """
    wrapped = ddp.wrap(step, options, place, strategy)
    wrapped.optimizer = sharded_optimizer(step, step.model.parameters(), place)
    return wrapped

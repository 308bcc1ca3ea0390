"""The user's own functions: what they raise is told in their words, what they return is looked at before it is used."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiretax.errors import BadInput, WiretaxError

if TYPE_CHECKING:
    import torch

    from wiretax.train.workload import Step

BY_HAND = "Call it with torch.device('cpu') in python and mend it."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that memory ran out, on a GPU or (where torch has no class for it) on the host."""
    import torch

    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in _words(error)


def brief(error: BaseException) -> str:
    """Class, message and the user's line of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and "/wiretax/" not in frame.filename]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {next(iter(_words(error).splitlines()), '') or 'no message'}{where}"


def call(what: str, function: Callable[..., Any], *arguments: Any, do: str = BY_HAND) -> Any:
    """Calls a function of the user's.

    Args:
        what: how the message names the call.
        function: to call.
        arguments: for it.
        do: what the user can do when it raises.

    Raises:
        BadInput: it raised, or wanted to end the program. Running out of memory passes through, and so do our own errors.
    """
    try:
        return function(*arguments)
    except WiretaxError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise BadInput(f"{what} raised {brief(error)}.", do=do) from error


def settle(step: Step, source: str, device: torch.device) -> Step:
    """The same step, with its functions told apart in messages.

    Args:
        step: as the user's function returned it.
        source: ``module:function``.
        device: that the function was given.

    Raises:
        BadInput: its model or its blocks cannot be trained.
    """
    from torch import nn

    model = step.model
    if not isinstance(model, nn.Module):
        raise BadInput(f"The model of {source} is {type(model).__name__}, not a torch.nn.Module.", do="Give Step the module itself.")
    if not any(one.requires_grad for one in model.parameters()):
        raise BadInput(f"No parameter of the model of {source} is trained.", do="Leave some with requires_grad.")
    elsewhere = next((name for name, one in model.named_parameters() if one.device.type != device.type), None)
    if elsewhere is not None:
        where = model.get_parameter(elsewhere).device
        raise BadInput(
            f"{elsewhere} of {source} is on {where}, not on {device}.", do=f"Build the model on the device that {source} is given."
        )
    inside = {id(one) for one in model.modules()}
    if any(id(one) not in inside for one in step.blocks or ()):
        raise BadInput(f"A block of {source} is no part of its model.", do="Name modules of the model in Step.blocks, or leave them out.")
    make_optimizer, make_batch = step.make_optimizer, step.make_batch

    def optimizer(parameters: Any) -> Any:
        made = call("make_optimizer(parameters)", make_optimizer, parameters)
        if not all(callable(getattr(made, name, None)) for name in ("step", "zero_grad")):
            raise BadInput(f"make_optimizer returned {type(made).__name__}, not an optimizer.", do="Return a torch.optim.Optimizer.")
        return made

    step.make_optimizer = optimizer
    step.make_batch = lambda size: call(f"make_batch({size})", make_batch, size, do="It is asked for several sizes up to --batch; mend it.")
    return step


def _words(error: BaseException) -> str:
    """The message of an error; one whose message cannot be made has none."""
    try:
        return str(error)
    except Exception as second:  # an exception class of the user's may break here too
        return f"its message cannot be read ({type(second).__name__})"

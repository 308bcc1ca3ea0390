"""A few small steps before anything is timed: what does the user's code do that training, or timing, cannot bear?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wiretax.errors import BadInput
from wiretax.train.memory import out_of_memory_explained
from wiretax.train.own_step import is_out_of_memory
from wiretax.train.probes import tensors_in
from wiretax.train.strategy import Options, Place, wrap_step
from wiretax.train.workload import Step, checked_loss

if TYPE_CHECKING:
    import torch
    from torch import nn

CHECK_BATCHES = 3
"""Different batches on which the set of parameters that get a gradient is compared."""
MOST_CHECK_BATCHES = 16
"""The same where the step reads values back, so that it may choose by them: an even choice stays unseen once in 2^15 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a few small steps showed of the user's code."""

    without_gradient: frozenset[int]
    """Trainable parameters (by position) that got no gradient in some step."""
    waits: bool
    """Forward or backward waits for the device (``.item()``, a copy to the host), so nothing can be queued ahead."""
    flops_per_sample: float | None
    why_no_flops: str
    output_bytes_per_sample: tuple[float | None, ...]
    """Of the part before the blocks, of each block, and of the part after them (the loss)."""
    notes: tuple[str, ...]


def check_step(step: Step, batch_size: int, device: torch.device, *, count_flops: bool) -> Check:
    """Runs forward and backward on a few small batches and looks at what the code does.

    Args:
        step: not wrapped yet.
        batch_size: used, or 2 where that is smaller.
        device: of the step.
        count_flops: whether to count operations, which takes one more step.

    Raises:
        BadInput: the loss cannot be trained on, or backward fails.
        CannotMeasure: memory runs out; says what would fit.
    """
    parameters = list(step.model.parameters())
    if not any(one.requires_grad for one in parameters):
        raise BadInput("No parameter of the model is trained.", do="Leave some with requires_grad.")
    wrapped = wrap_step("none", step, Options(), Place(device=device, world_size=1))
    size = min(batch_size, 2)
    seen: list[frozenset[int]] = []
    waits, finite, flops, why = False, True, None, "the workload states it"
    outputs: tuple[float | None, ...] = ()
    with out_of_memory_explained(wrapped, size, device):
        for number in range(MOST_CHECK_BATCHES):
            if number >= CHECK_BATCHES and (not waits or len(set(seen)) > 1):
                break
            batch = step.make_batch(size)
            with _sync_seen(device) as sync, _outputs(step.blocks or ()) as found:
                loss = checked_loss(step, step.model, batch)
                _backward(loss)
            finite = finite and math.isfinite(loss.item())
            waits = waits or bool(sync)
            outputs = tuple(None if one is None else one / size for one in found)
            seen.append(frozenset(index for index, one in enumerate(parameters) if one.requires_grad and one.grad is None))
            step.model.zero_grad(set_to_none=True)
        same_size = size > 1 and _elements(step.make_batch(1)) == _elements(batch)
        if count_flops:
            flops, why = _flops(step, size)
    return Check(
        without_gradient=frozenset().union(*seen),
        waits=waits and device.type == "cuda",
        flops_per_sample=flops,
        why_no_flops=why,
        output_bytes_per_sample=outputs,
        notes=tuple(_notes(step, seen, waits=waits, finite=finite, same_size=same_size)),
    )


def _backward(loss: Any) -> None:
    try:
        loss.backward()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"Backward failed: {message}", do="Call loss.backward() in python and mend it.") from error


def _elements(batch: Any) -> int:
    return sum(one.numel() for one in tensors_in(batch))


def _notes(step: Step, seen: Sequence[frozenset[int]], *, waits: bool, finite: bool, same_size: bool) -> Iterator[str]:
    names = [name for name, _ in step.model.named_parameters()]
    never = frozenset.intersection(*seen)
    if never:
        listed = ", ".join(names[index] for index in sorted(never)[:5]) + (", ..." if len(never) > 5 else "")
        yield f"{len(never)} trainable parameters get no gradient ({listed}): DDP needs find_unused_parameters for them"
    if len(set(seen)) > 1:
        yield "which parameters get a gradient depends on the batch: the time of a step does too, and ranks would wait for each other"
    if waits:
        yield (
            "the step reads values back while it runs (.item(), a copy to the host): what it does may depend on the data, "
            "and on a GPU its work cannot be queued ahead"
        )
    if not finite:
        yield "the loss is not finite: on a GPU, products of such numbers take another time than those of real ones"
    if same_size:
        yield "make_batch gives as much for 1 sample as for 2, so figures by sample and by batch may be wrong"


@contextmanager
def _sync_seen(device: torch.device) -> Iterator[list[str]]:
    """Collects the operations that make the host wait for the device; on a CPU those that read a value back."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            result = function(*arguments, **(keywords or {}))
            name = function._schema.name
            if name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"):
                if next((one.device.type for one in tensors_in(arguments)), "") == device.type:
                    found.append(name)
            elif name in ("aten::_to_copy", "aten::copy_") and device.type == "cuda":
                kinds = {one.device.type for one in tensors_in([arguments, result])}
                if kinds == {"cpu", "cuda"} and next(iter(tensors_in(result))).device.type == "cpu":
                    found.append(name)
            return result

    with Watch():
        yield found


@contextmanager
def _outputs(blocks: Sequence[nn.Module]) -> Iterator[list[float | None]]:
    """Bytes of what each block is given and gives: before, each block, and 0 for the loss at the end."""
    sizes: list[float | None] = [None] * (len(blocks) + 1)

    def size(value: Any) -> float | None:
        tensor = next(iter(tensors_in(value)), None)
        return None if tensor is None else float(tensor.numel() * tensor.element_size())

    def given(_block: Any, arguments: Any, keywords: Any) -> None:
        sizes[0] = size((arguments, keywords))

    def gives(number: int) -> Callable[[Any, Any, Any], None]:
        def hook(_block: Any, _arguments: Any, output: Any) -> None:
            sizes[number + 1] = size(output)

        return hook

    handles = [block.register_forward_hook(gives(number)) for number, block in enumerate(blocks)]
    handles += [block.register_forward_pre_hook(given, with_kwargs=True) for block in blocks[:1]]
    found: list[float | None] = []
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
    found += [*sizes, 0.0] if blocks else []


def _flops(step: Step, batch_size: int) -> tuple[float | None, str]:
    """Operations of forward and backward a sample, counted by torch; what it does not know counts as none."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step.loss(step.model, step.make_batch(batch_size)).backward()
    step.model.zero_grad(set_to_none=True)
    total = counter.get_total_flops()
    return (total / batch_size, "") if total else (None, "torch's counter knows none of the operations")

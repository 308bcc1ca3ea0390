"""The bare step on one GPU: what it is made of, how long each part takes, when each gradient is there, how much memory it needs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from wiretax.errors import BadInput
from wiretax.model.profile import Parameter, Profile, Segment, Span, Workload
from wiretax.train.memory import NO_COUNTER, memory_points, out_of_memory_explained, two_batches
from wiretax.train.probes import tensors_in
from wiretax.train.rates import rates
from wiretax.train.records import NotInOrder, Samples, arrivals, cuts_of, device_seconds, gradient_ready, segments_of, span, step_times
from wiretax.train.sampling import Effort, Sampler
from wiretax.train.strategy import Options, Place, WrappedStep, wrap_step
from wiretax.train.workload import Step, checked_loss, is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import nn

CHECK_BATCHES = 3
"""Different batches on which the set of parameters that get a gradient is compared."""
PIPELINE_BATCHES = 10
_TIMING_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


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
    wrapped = wrap_step("none", step, Options(), Place(device=device, world_size=1))
    size = min(batch_size, 2)
    parameters = list(step.model.parameters())
    seen: list[frozenset[int]] = []
    waits, flops, why = False, None, "the workload states it"
    outputs: tuple[float | None, ...] = ()
    with out_of_memory_explained(wrapped, size, device):
        for number in range(CHECK_BATCHES):
            batch = step.make_batch(size)
            with _sync_seen(device) as sync, _outputs(step.blocks or ()) as found:
                _backward(checked_loss(step, step.model, batch))
            waits = waits or bool(sync)
            outputs = tuple(None if one is None else one / size for one in found)
            seen.append(frozenset(index for index, one in enumerate(parameters) if one.requires_grad and one.grad is None))
            step.model.zero_grad(set_to_none=True)
            if number == 0 and not any(one.requires_grad for one in parameters):
                raise BadInput("No parameter of the model is trained.", do="Leave some with requires_grad.")
        if count_flops:
            flops, why = _flops(step, size)
    return Check(
        without_gradient=frozenset().union(*seen),
        waits=waits and device.type == "cuda",
        flops_per_sample=flops,
        why_no_flops=why,
        output_bytes_per_sample=outputs,
        notes=tuple(_notes(step, seen, waits=waits)),
    )


def _backward(loss: Any) -> None:
    try:
        loss.backward()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"Backward failed: {message}", do="Call loss.backward() in python and mend it.") from error


def _notes(step: Step, seen: Sequence[frozenset[int]], *, waits: bool) -> Iterator[str]:
    names = [name for name, _ in step.model.named_parameters()]
    never = frozenset.intersection(*seen)
    if never:
        listed = ", ".join(names[index] for index in sorted(never)[:5]) + (", ..." if len(never) > 5 else "")
        yield f"{len(never)} trainable parameters get no gradient ({listed}): DDP needs find_unused_parameters for them"
    if len(set(seen)) > 1:
        yield "which parameters get a gradient depends on the batch: the time of a step does too, and ranks would wait for each other"
    if waits:
        yield "the step reads values back from the device while it runs (.item(), a copy to the host), so its work cannot be queued ahead"


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


def profile_bare(
    step: Step,
    workload: Workload,
    device: torch.device,
    effort: Effort,
    *,
    base_bytes: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> Profile:
    """The bare step on this device; ``free_steps`` are left for the strategies.

    Args:
        step: fresh; it is trained.
        workload: what it is.
        device: of the step.
        effort: how long to sample.
        base_bytes: allocated before the model was built.
        tick: called after each step.

    Raises:
        BadInput: the user's step does something that cannot be trained on.
        CannotMeasure: memory runs out; says what would fit.
    """
    checked = check_step(step, workload.batch_size, device, count_flops="flops_per_sample" in workload.missing)
    tick()
    wrapped = wrap_step("none", step, Options(), Place(device=device, world_size=1))
    memory = memory_points(wrapped, two_batches(workload.batch_size), device, base_bytes=base_bytes, tick=tick)
    parameters = list(step.model.parameters())
    with out_of_memory_explained(wrapped, workload.batch_size, device, memory):
        batch = step.make_batch(workload.batch_size)
        why = "the step waits for the device in its midst" if checked.waits else ""
        samples = Sampler(wrapped, batch, device, effort, tick=tick).sample(parameters, why_one_clock=why)
    times = step_times(samples)
    arrived = arrivals(samples.device_detail, device_seconds(times, "backward"))
    missing = {} if memory else {"memory": NO_COUNTER}
    owners = owners_of(step, arrived, samples)
    segments: tuple[Segment, ...] = ()
    try:
        segments = _segments(step, checked, owners, samples, workload.batch_size)
    except NotInOrder as reason:
        missing["segments"] = str(reason)
        owners = [None] * len(parameters)
    matmul, copy = rates(device)
    if checked.flops_per_sample is not None:
        workload = replace(workload, flops_per_sample=checked.flops_per_sample, missing={})
    elif workload.flops_per_sample is None:
        workload = replace(workload, missing={"flops_per_sample": checked.why_no_flops})
    return Profile(
        workload=workload,
        device="cuda" if device.type == "cuda" else "cpu",
        **_device_facts(device, missing),
        parameters=_parameters(step, checked, owners),
        buffer_bytes=sum(one.numel() * one.element_size() for one in step.model.buffers()),
        segments=segments,
        bare=times,
        gradient_ready=gradient_ready(arrived),
        memory=memory,
        input_pipeline=input_pipeline(step, workload.batch_size, device),
        matmul_flops_per_second=matmul,
        memory_bytes_per_second=copy,
        optimizer_state_bytes=state_bytes(wrapped),
        environment=environment(device),
        notes=checked.notes,
        missing=missing,
    )


def owners_of(step: Step, arrived: dict[int, float], samples: Samples) -> list[int | None]:
    """The segment of each parameter; None where the model has no blocks.

    Outside the blocks it is before or after them by when its gradient comes, or by its place in the model where none came. A
    parameter that several blocks share belongs to the first.
    """
    blocks = list(step.blocks or ())
    where = {id(one): number for number, block in reversed(list(enumerate(blocks, start=1))) for one in block.parameters()}
    middle = None
    if blocks and samples.device_detail:
        passed = [dict(record.marks["backward"]).get(("back", len(blocks) - 1)) for record in samples.device_detail]
        middle = median([one for one in passed if one is not None] or [0.0])
    found: list[int | None] = []
    seen_block = False
    for index, parameter in enumerate(step.model.parameters()):
        if not blocks:
            found.append(None)
            continue
        if id(parameter) in where:
            seen_block = True
            found.append(where[id(parameter)])
        elif middle is not None and index in arrived:
            found.append(len(blocks) + 1 if arrived[index] <= middle else 0)
        else:
            found.append(len(blocks) + 1 if seen_block else 0)
    return found


def _segments(step: Step, checked: Check, owners: Sequence[int | None], samples: Samples, batch_size: int) -> tuple[Segment, ...]:
    """Cuts the step.

    Raises:
        NotInOrder: it cannot be cut.
    """
    if not step.blocks:
        raise NotInOrder("no repeated blocks were found in the model")
    parameter_bytes, gradient_bytes = bytes_by_segment(
        [one.numel() * one.element_size() for one in step.model.parameters()],
        trained_parameters(step, checked.without_gradient),
        owners,
        len(step.blocks),
    )
    return segments_of(
        cuts_of(samples, step_times(samples), len(step.blocks)),
        parameter_bytes=parameter_bytes,
        gradient_bytes=gradient_bytes,
        output_bytes=[None if one is None else int(one * batch_size) for one in checked.output_bytes_per_sample],
    )


def bytes_by_segment(
    sizes: Sequence[int], trained: Sequence[bool], owners: Sequence[int | None], num_blocks: int
) -> tuple[list[int], list[int]]:
    """What parameters and trained parameters add up to in ``before``, each block and ``after``."""
    everything, gradients = [0] * (num_blocks + 2), [0] * (num_blocks + 2)
    for size, has_gradient, owner in zip(sizes, trained, owners, strict=True):
        if owner is not None:
            everything[owner] += size
            gradients[owner] += size if has_gradient else 0
    return everything, gradients


def trained_parameters(step: Step, without_gradient: frozenset[int]) -> list[bool]:
    """Whether each parameter gets a gradient."""
    return [one.requires_grad and index not in without_gradient for index, one in enumerate(step.model.parameters())]


def _parameters(step: Step, checked: Check, owners: Sequence[int | None]) -> tuple[Parameter, ...]:
    found = []
    trained = trained_parameters(step, checked.without_gradient)
    for index, (name, one) in enumerate(step.model.named_parameters()):
        size = one.numel() * one.element_size()
        found.append(
            Parameter(
                name=name,
                num_elements=one.numel(),
                shape=tuple(one.shape),
                dtype=str(one.dtype).removeprefix("torch."),
                num_bytes=size,
                gradient_bytes=size if trained[index] else 0,
                segment=owners[index],
                missing={} if owners[index] is not None else {"segment": "the model was not cut into segments"},
            )
        )
    return tuple(found)


def input_pipeline(step: Step, batch_size: int, device: torch.device) -> Span:
    """Time to the next batch on the device, asked for as fast as it comes."""
    found = []
    for _ in range(PIPELINE_BATCHES):
        begin = time.perf_counter()
        step.make_batch(batch_size)
        if device.type == "cuda":
            import torch

            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - begin)
    return span(found)


def state_bytes(wrapped: WrappedStep) -> int:
    """All tensors that the optimizer keeps."""
    states = wrapped.optimizer.state.values()
    return sum(one.numel() * one.element_size() for state in states for one in tensors_in(state))


def _device_facts(device: torch.device, missing: dict[str, str]) -> dict[str, Any]:
    if device.type != "cuda":
        missing["device_memory_bytes"] = "a CPU rank shares the host's memory"
        return {"device_name": cpu_name(), "device_memory_bytes": None, "multiprocessors": None}
    import torch

    facts = torch.cuda.get_device_properties(device)
    return {"device_name": facts.name, "device_memory_bytes": int(facts.total_memory), "multiprocessors": int(facts.multi_processor_count)}


def cpu_name() -> str:
    """The processor as /proc names it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def environment(device: torch.device) -> dict[str, str]:
    """Versions, the processor, and variables that change timing."""
    import torch
    import torch.distributed as dist

    found = {"torch": torch.__version__, "python": platform.python_version(), "cpu": cpu_name(), "threads": str(torch.get_num_threads())}
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda or torch.version.hip)
        if dist.is_available() and dist.is_nccl_available():
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found | {name: os.environ[name] for name in os.environ if name in _TIMING_VARIABLES or name.startswith("NCCL_")}

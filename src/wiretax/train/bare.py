"""The bare step on one GPU: what it is made of, how long each part takes, when each gradient is there, how much memory it needs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiretax.model.profile import Parameter, Profile, Segment, Span, Workload
from wiretax.train.check import Check, check_step
from wiretax.train.memory import NO_COUNTER, memory_points, out_of_memory_explained, two_batches
from wiretax.train.own_step import call, is_out_of_memory
from wiretax.train.probes import tensors_in
from wiretax.train.rates import rates
from wiretax.train.records import NotInOrder, Samples, arrivals, cuts_of, device_seconds, gradient_ready, segments_of, span, step_times
from wiretax.train.sampling import Effort, Sampler
from wiretax.train.strategy import Options, Place, WrappedStep, wrap_step
from wiretax.train.workload import Step

if TYPE_CHECKING:
    import torch
    from torch import nn

PIPELINE_BATCHES = 10
_TIMING_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


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
    _try_update(wrapped, min(workload.batch_size, 2), device)
    memory = memory_points(wrapped, two_batches(workload.batch_size), device, base_bytes=base_bytes, tick=tick)
    with out_of_memory_explained(wrapped, workload.batch_size, device, memory):
        batch = step.make_batch(workload.batch_size)
        why = "the step waits for the device in its midst" if checked.waits else ""
        samples = Sampler(wrapped, batch, device, effort, tick=tick).sample(list(step.model.parameters()), why_one_clock=why)
    found = assemble(step.model, step.blocks or (), workload, device, checked, samples)
    missing = found.missing if memory else found.missing | {"memory": NO_COUNTER}
    return replace(
        found,
        memory=memory,
        input_pipeline=input_pipeline(step, workload.batch_size, device),
        optimizer_state_bytes=state_bytes(wrapped.optimizer),
        missing={name: reason for name, reason in missing.items() if name not in ("input_pipeline", "optimizer_state_bytes")},
    )


def _try_update(wrapped: WrappedStep, batch_size: int, device: torch.device) -> None:
    """One small step, for the optimizer's own word.

    Raises:
        BadInput: the optimizer cannot step as a loop of ours steps it.
        CannotMeasure: memory runs out.
    """
    with out_of_memory_explained(wrapped, batch_size, device):
        wrapped.backward(wrapped.forward(wrapped.step.make_batch(batch_size)))
        call("The optimizer's step", wrapped.update, do="Return from make_optimizer one that needs no closure, and that can step.")


def assemble(
    model: nn.Module, blocks: Sequence[nn.Module], workload: Workload, device: torch.device, checked: Check, samples: Samples
) -> Profile:
    """A profile of timed steps.

    Args:
        model: that was trained.
        blocks: that were marked.
        workload: what it is.
        device: where it ran.
        checked: what is known of the code.
        samples: the steps, parameters marked by their place in the model.
    """
    missing = dict.fromkeys(("input_pipeline", "optimizer_state_bytes"), "not looked at")
    times = step_times(samples)
    trained = [one.requires_grad and index not in checked.without_gradient for index, one in enumerate(model.parameters())]
    owners = owners_of(model, blocks, samples)
    segments: tuple[Segment, ...] = ()
    try:
        segments = _segments(model, blocks, checked, owners, trained, samples, workload.batch_size)
    except NotInOrder as reason:
        missing["segments"] = str(reason)
        owners = [None] * len(trained)
    matmul, copy = _rates(device, missing)
    if checked.flops_per_sample is not None:
        workload = replace(workload, flops_per_sample=checked.flops_per_sample, missing={})
    elif workload.flops_per_sample is None:
        workload = replace(workload, missing={"flops_per_sample": checked.why_no_flops})
    return Profile(
        workload=workload,
        device="cuda" if device.type == "cuda" else "cpu",
        **_device_facts(device, missing),
        parameters=_parameters(model, trained, owners),
        buffer_bytes=sum(one.numel() * one.element_size() for one in model.buffers()),
        segments=segments,
        bare=times,
        gradient_ready=gradient_ready(arrivals(samples.device_detail, device_seconds(times, "backward"))),
        matmul_flops_per_second=matmul,
        memory_bytes_per_second=copy,
        environment=environment(device),
        notes=checked.notes,
        missing=missing,
    )


def owners_of(model: nn.Module, blocks: Sequence[nn.Module], samples: Samples | None = None) -> list[int | None]:
    """The segment of each parameter; None where the model has no blocks.

    Outside the blocks it is after them if its gradient comes before backward reaches the last block, and before them otherwise;
    where no gradient was seen, its place in the model decides. A parameter that several blocks share belongs to the first.

    Args:
        model: whose parameters.
        blocks: in forward order.
        samples: marked steps; None before anything ran.
    """
    if not blocks:
        return [None for _ in model.parameters()]
    where = {id(one): number for number, block in reversed(list(enumerate(blocks, start=1))) for one in block.parameters()}
    last = len(blocks) + 1
    seen: dict[int, int] = {}
    for record in samples.device_detail[:1] if samples is not None else ():
        segment = last
        for (kind, number), _ in record.marks["backward"]:
            if kind == "back":
                segment = 0
            elif kind == "ready":
                seen[number] = segment  # the later arrival of a tied parameter counts
    found: list[int | None] = []
    passed_block = False
    for index, parameter in enumerate(model.parameters()):
        own = where.get(id(parameter))
        passed_block = passed_block or own is not None
        found.append(own if own is not None else seen.get(index, last if passed_block else 0))
    return found


def _segments(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    checked: Check,
    owners: Sequence[int | None],
    trained: Sequence[bool],
    samples: Samples,
    batch_size: int,
) -> tuple[Segment, ...]:
    """Cuts the step.

    Raises:
        NotInOrder: it cannot be cut.
    """
    if not blocks:
        raise NotInOrder("no repeated blocks were found in the model")
    sizes = [one.numel() * one.element_size() for one in model.parameters()]
    parameter_bytes, gradient_bytes = bytes_by_segment(sizes, trained, owners, len(blocks))
    outputs = checked.output_bytes_per_sample or (None,) * (len(blocks) + 2)
    return segments_of(
        cuts_of(samples, step_times(samples), len(blocks)),
        parameter_bytes=parameter_bytes,
        gradient_bytes=gradient_bytes,
        output_bytes=[None if one is None else int(one * batch_size) for one in outputs],
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


def _parameters(model: nn.Module, trained: Sequence[bool], owners: Sequence[int | None]) -> tuple[Parameter, ...]:
    found = []
    for index, (name, one) in enumerate(model.named_parameters()):
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


def _rates(device: torch.device, missing: dict[str, str]) -> tuple[float | None, float | None]:
    """How fast the device multiplies and copies, if there is memory left to try."""
    try:
        return rates(device)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    missing |= dict.fromkeys(("matmul_flops_per_second", "memory_bytes_per_second"), "the step left too little memory to try")
    return None, None


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


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """All tensors that the optimizer keeps."""
    states = optimizer.state.values()
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

    found = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "threads": str(torch.get_num_threads()),
    }
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda or torch.version.hip)
        if dist.is_available() and dist.is_nccl_available():
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found | {name: os.environ[name] for name in os.environ if name in _TIMING_VARIABLES or name.startswith("NCCL_")}

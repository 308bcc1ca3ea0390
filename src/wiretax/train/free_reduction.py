"""DDP, ZeRO-1 and DDP across tensor-parallel groups with communication made free: what reduces gradients in buckets.

DDP runs over a real group of one rank, so its buckets, hooks and calls are the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from wiretax.model.profile import BucketTimes, CommunicationCall, FreeStep, StepTimes
from wiretax.train.ddp import replicate
from wiretax.train.free_step import FreeResult, Trial
from wiretax.train.memory import forget, out_of_memory_explained
from wiretax.train.records import Samples, arrivals, bucket_times, calls_of, device_seconds, host_seconds, step_times
from wiretax.train.sampling import Sampler
from wiretax.train.stopwatch import StepRecord
from wiretax.train.strategy import WrappedStep

if TYPE_CHECKING:
    from torch import nn

LAYOUT_STEPS = 3
"""DDP rebuilds its buckets in the order of arrival after the first."""

Layout = list[tuple[int, tuple[int, ...]]]
"""DDP's buckets in the order in which they become ready: bytes, and parameters by position."""


class _NoUpdate:
    """In place of the optimizer where only gradients are of interest: its states would take memory that DDP then lacks."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def step(self) -> None:
        """Nothing."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        self._model.zero_grad(set_to_none=set_to_none)


def reduced_step(trial: Trial) -> FreeResult:
    """The step under one of these strategies."""
    step, batch = trial.step, trial.batch()
    tensor_parallel = trial.strategy == "tp_ddp"
    plain: tuple[Sequence[StepRecord], Sequence[StepRecord]] | None = None
    layout: Layout = []
    if not tensor_parallel:  # else the bare step has other kernels, and DDP sees parameters only after the split
        bare = WrappedStep(strategy=trial.strategy, step=step, model=step.model, optimizer=_NoUpdate(step.model))
        with out_of_memory_explained(bare, trial.workload.batch_size, trial.device):
            plain = Sampler(bare, batch, trial.device, trial.effort, tick=trial.tick).details(list(step.model.parameters()))
            layout = _layout(trial, batch)
    wrapped = trial.wrap()
    memory = trial.memory(wrapped)
    sampler = trial.sampler(wrapped, batch)
    samples = sampler.sample(list(step.model.parameters()), why_one_clock=trial.why_one_clock)
    times = step_times(samples)
    heard: tuple[CommunicationCall, ...] = ()
    if trial.strategy != "ddp":
        heard = calls_of(*sampler.listened(trial.place.world_size), times, len(step.blocks or ()))
        # ZeRO-1's own calls are those of the optimizer; DDP's are known from its buckets.
        heard = tuple(one for one in heard if tensor_parallel or one.phase == "optimizer")
    found = FreeStep(
        strategy=trial.strategy,
        world_size=1 if trial.strategy == "ddp" else trial.place.world_size,
        method="world_size_1" if trial.strategy == "ddp" else "fake_backend",
        options=wrapped.options,
        times=times,
        filler_seconds=0.0,
        buckets=_buckets(layout, samples, times, plain) if plain is not None else (),
        calls=(*_buffer_broadcasts(trial), *_reductions(trial, layout, samples, times), *heard),
        missing={} if plain is not None else {"buckets": "what they cost beyond the tensor-parallel step was not told apart"},
    )
    return trial.result(found, memory)


def _layout(trial: Trial, batch: Any) -> Layout:
    """Asked of torch itself, through a communication hook, in a few steps that are not timed."""
    import torch

    position = {id(one): index for index, one in enumerate(trial.step.model.parameters())}
    seen: Layout = []

    def hook(_state, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations, and refuses any but its own
        buffer = bucket.buffer()
        seen.append((buffer.numel() * buffer.element_size(), tuple(position[id(one)] for one in bucket.parameters())))
        done = torch.futures.Future(devices=[trial.device] if trial.device.type == "cuda" else None)
        done.set_result(buffer)
        return done

    model = replicate(trial.step, replace(trial.options, comm_hook=None), trial.place)
    model.register_comm_hook(None, hook)
    asked = WrappedStep(strategy=trial.strategy, step=trial.step, model=model, optimizer=_NoUpdate(trial.step.model))
    for _ in range(LAYOUT_STEPS):
        seen.clear()
        asked.train(batch)
        trial.tick()
    del model, asked
    forget(trial.device)
    return seen


def _buckets(
    layout: Layout, samples: Samples, times: StepTimes, plain: tuple[Sequence[StepRecord], Sequence[StepRecord]]
) -> tuple[BucketTimes, ...]:
    total, on_host = device_seconds(times, "backward"), host_seconds(times, "backward")
    device = (arrivals(samples.device_detail, total), total)
    bare_device = _arrivals_of(plain[0])
    if on_host is None:
        return bucket_times(layout, device=device, host=device, bare_device=bare_device, bare_host=bare_device)
    host = (arrivals(samples.host_detail, on_host), on_host)
    return bucket_times(layout, device=device, host=host, bare_device=bare_device, bare_host=_arrivals_of(plain[1]))


def _arrivals_of(records: Sequence[StepRecord]) -> tuple[Mapping[int, float], float]:
    total = median(one.phases["backward"] for one in records)
    return arrivals(records, total), total


def _buffer_broadcasts(trial: Trial) -> tuple[CommunicationCall, ...]:
    """DDP sends rank 0's buffers before each forward, one message a dtype."""
    sizes: dict[Any, int] = {}
    for one in trial.step.model.buffers():
        sizes[one.dtype] = sizes.get(one.dtype, 0) + one.numel() * one.element_size()
    return tuple(
        CommunicationCall(operation="broadcast", num_bytes=size, phase="forward", blocking=True, host_seconds=0.0, device_seconds=0.0)
        for size in sizes.values()
        if size
    )


def _reductions(trial: Trial, layout: Layout, samples: Samples, times: StepTimes) -> tuple[CommunicationCall, ...]:
    """One all-reduce a bucket, issued when the last of its gradients is there and all buckets before it were issued."""
    on_host = host_seconds(times, "backward")
    device = arrivals(samples.device_detail, device_seconds(times, "backward"))
    host = {} if on_host is None else arrivals(samples.host_detail, on_host)
    parameters = list(trial.step.model.parameters())
    found: list[CommunicationCall] = []
    at_device = at_host = 0.0
    for num_bytes, members in layout:
        at_device = max([at_device, *(device[one] for one in members if one in device)])
        at_host = max([at_host, *(host[one] for one in members if one in host)])
        halved = trial.options.comm_hook == "bf16_compress" and all(parameters[one].element_size() == 4 for one in members)
        found.append(
            CommunicationCall(
                operation="all_reduce",
                num_bytes=num_bytes // 2 if halved else num_bytes,
                phase="backward",
                blocking=False,
                host_seconds=at_host if host else None,
                device_seconds=at_device,
                missing={} if host else {"host_seconds": "the host's clock could not be had"},
            )
        )
    return tuple(found)

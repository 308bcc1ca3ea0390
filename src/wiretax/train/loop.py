"""``with wiretax.profile_step(...)``: the bare step of a training loop that is not ours, timed from its own calls.

Forward begins when the model is called, backward is torch's ``backward``, the update is the optimizer's ``step``; what lies between two
steps (data, logging, ``zero_grad``) is not timed. Strategies cannot be tried in here; their host cost then comes from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wiretax.errors import CannotMeasure, UsageError
from wiretax.measure.host_load import HostLoadMeter
from wiretax.model.profile import MemoryPoint, Phase, Profile, Workload
from wiretax.train.bare import assemble, state_bytes
from wiretax.train.check import Check
from wiretax.train.memory import NO_COUNTER
from wiretax.train.probes import Probes
from wiretax.train.records import Samples
from wiretax.train.sampling import held_for
from wiretax.train.stopwatch import PHASES, Clock, StepRecord, Stopwatch
from wiretax.train.workload import find_blocks

if TYPE_CHECKING:
    import torch
    from torch import nn

WARM_UP = 3
FEWEST = 3
CLOCK_STEPS = 5
"""Steps on the host's clock, on the device's, and of each again with marks."""


class LoopProfiler:
    """Watches a loop; made by :func:`profile_step`.

    Attributes:
        profile: after the ``with`` block.
        done: true once enough steps were seen; the loop may go on or end.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, workload: Workload, steps: int) -> None:
        self.profile: Profile | None = None
        self.done = False
        self._model, self._optimizer, self._workload = model, optimizer, workload
        self._device: torch.device = next(model.parameters()).device
        self._blocks = find_blocks(model) or []
        cuda = self._device.type == "cuda"
        self._plan: list[tuple[str, Clock, int]] = [("warm", "elapsed", WARM_UP), ("elapsed", "elapsed", steps)]
        self._plan += [("host", "host", CLOCK_STEPS), ("device", "device", CLOCK_STEPS)] if cuda else []
        self._plan += [("host_detail", "host", CLOCK_STEPS)] if cuda else []
        self._plan += [("device_detail", "device", CLOCK_STEPS)]
        self._records: dict[str, list[StepRecord]] = {name: [] for name, _, _ in self._plan}
        self._watch: Stopwatch | None = None
        self._probes: ExitStack | None = None
        self._micro_steps = 0
        self._micro_per_step = 1
        self._running: Phase | None = None
        self._without: frozenset[int] = frozenset()
        self._has_closure = False
        self._peak: tuple[int, int] | None = None
        self._meter = HostLoadMeter([os.getpid()])

    def forward_begins(self) -> None:
        """The model was called in training."""
        if self.done or self._running is not None:
            return
        if self._watch is None:
            self._start()
        self._enter("forward")

    def backward(self, run: Callable[[], Any]) -> Any:
        """Runs the loop's own backward between two marks."""
        if self._watch is None or self._running != "forward":
            return run()
        self._leave()
        self._enter("backward")
        try:
            return run()
        finally:
            self._leave()
            self._micro_steps += 1
            if self._probes is not None:
                self._probes.close()  # the first micro-step's marks stand for all

    def update_begins(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """The optimizer is about to step, with what it was called with."""
        self._has_closure = self._has_closure or any(callable(one) for one in (*arguments, *keywords.values()))
        if self._watch is not None and self._running is None and self._micro_steps:
            self._without = self._without | {
                index for index, one in enumerate(self._model.parameters()) if one.requires_grad and one.grad is None
            }
            self._enter("optimizer")

    def update_ends(self) -> None:
        """The optimizer has stepped; the step is over."""
        if self._watch is None or self._running != "optimizer":
            return
        self._leave()
        record = self._watch.finish()
        name = self._stage()
        assert name is not None
        self._records[name[0]].append(_one_micro_step(record, self._micro_steps))
        self._micro_per_step, self._watch, self._micro_steps = self._micro_steps, None, 0
        if len(self._records["warm"]) == WARM_UP and self._peak is None and self._device.type == "cuda":
            import torch

            self._peak = (torch.cuda.max_memory_allocated(self._device), torch.cuda.memory_allocated(self._device))
        self.done = self._stage() is None

    def finish(self) -> None:
        """Makes the profile.

        Raises:
            CannotMeasure: too few steps were seen, or forward and backward ran inside the optimizer's step.
        """
        seen = self._records
        if self._has_closure:
            raise CannotMeasure(
                "The optimizer was given a closure, which runs forward and backward inside its step.",
                why="So the parts of a step cannot be told apart.",
                do="Call the model, backward and optimizer.step() one after the other.",
            )
        if len(seen["elapsed"]) < FEWEST:
            raise CannotMeasure(
                f"The loop made {sum(map(len, seen.values()))} whole steps inside profile_step, too few to time.",
                why="A step is a call of the model, a backward, and a step of the optimizer that were given.",
                do=f"Run at least {WARM_UP + FEWEST} steps; {sum(count for _, _, count in self._plan)} give everything.",
            )
        cuda = self._device.type == "cuda"
        whole = cuda and len(seen["host"]) >= FEWEST and len(seen["device"]) >= FEWEST
        samples = Samples(
            elapsed=seen["elapsed"],
            host=seen["host"] if whole else (),
            device=seen["device"] if whole else (),
            host_detail=seen["host_detail"] if whole else (),
            device_detail=seen["device_detail"],
            why_one_clock="" if whole else "the loop ended before host and device were told apart",
            one_clock=not cuda,
        )
        checked = Check(
            without_gradient=self._without,
            waits=False,
            flops_per_sample=None,
            why_no_flops="not counted in a loop",
            output_bytes_per_sample=(),
            notes=("taken inside a training loop: only the bare step, at one batch size",),
        )
        marked = self._blocks if seen["device_detail"] else []
        workload = replace(self._workload, accumulation_steps=self._micro_per_step)
        found = assemble(self._model, marked, workload, self._device, checked, samples)
        missing = {name: why for name, why in found.missing.items() if name != "optimizer_state_bytes"}
        memory: tuple[MemoryPoint, ...] = ()
        if self._peak is None:
            missing["memory"] = NO_COUNTER if not cuda else "the loop ended before the third step"
        else:
            peak, rest = self._peak
            together = "a loop's steps are not told apart from their update"
            memory = (
                MemoryPoint(
                    strategy="none",
                    batch_size=self._workload.batch_size,
                    peak_bytes=peak,
                    at_rest_bytes=rest,
                    missing={"update_peak_bytes": together},
                ),
            )
        self.profile = replace(
            found,
            memory=memory,
            optimizer_state_bytes=state_bytes(self._optimizer),
            host_load=self._meter.read(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            missing=missing,
        )

    def _start(self) -> None:
        stage = self._stage()
        assert stage is not None
        name, clock = stage
        hold: dict[Phase, float] = {}
        marked = name == "device_detail"
        before = self._records.get("host_detail" if marked else "host")
        if clock == "device" and before:
            hold = held_for(before, marked=marked)
        if not self._records["warm"] and self._device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
        self._watch = Stopwatch(self._device, clock, hold)
        self._probes = ExitStack()
        if name.endswith("detail"):
            self._probes.enter_context(Probes(self._watch, self._blocks, list(self._model.parameters())))
        self._watch.start()

    def _stage(self) -> tuple[str, Clock] | None:
        """What the next step is for."""
        return next(((name, clock) for name, clock, count in self._plan if len(self._records[name]) < count), None)

    def _enter(self, phase: Phase) -> None:
        assert self._watch is not None
        self._watch.enter(phase)
        self._running = phase

    def _leave(self) -> None:
        assert self._watch is not None
        self._watch.leave()
        self._running = None


def _one_micro_step(record: StepRecord, micro_steps: int) -> StepRecord:
    """A step that had several forwards and backwards as if it had had one: their mean, or the first where that one is marked."""
    if micro_steps <= 1:
        return record
    marked = any(record.marks.values())
    phases = {
        phase: record.phases[phase] if phase == "optimizer" else record.first[phase] if marked else record.phases[phase] / micro_steps
        for phase in PHASES
    }
    longer = sum(record.phases.values()) - sum(phases.values())
    return StepRecord(step_seconds=record.step_seconds - longer, phases=phases, first=phases, marks=record.marks)


@contextmanager
def profile_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, batch_size: int, name: str = "own loop", steps: int = 12, dtype: str = "bfloat16"
) -> Iterator[LoopProfiler]:
    """Profiles the bare step of the loop inside the ``with`` block.

    Args:
        model: plain, on its device; each call in training mode begins a step or a micro-step.
        optimizer: whose ``step`` ends a step.
        batch_size: samples in one call of the model.
        name: of the workload.
        steps: ordinary ones to time; about thirty more on other clocks follow on a GPU, fewer on a CPU.
        dtype: what matrix products run in.

    Yields:
        The profiler; its ``profile`` is there after the block.

    Raises:
        UsageError: the model is wrapped for several GPUs already, or what was given cannot be trained.
        CannotMeasure: the loop made too few steps.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, torch.nn.Module) or next(model.parameters(), None) is None:
        raise UsageError(f"{type(model).__name__} is no model with parameters.", do="Give the torch.nn.Module that the loop calls.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"{type(optimizer).__name__} is no torch.optim.Optimizer.", do="Give the optimizer that the loop steps.")
    if batch_size < 1 or steps < FEWEST:
        raise UsageError(f"A batch of {batch_size} and {steps} steps are too few.", do=f"Take at least 1 sample and {FEWEST} steps.")
    if isinstance(model, DistributedDataParallel) or type(model).__name__.startswith(("FSDP", "FullyShardedDataParallel")):
        raise UsageError("The model is wrapped for several GPUs.", do="Profile the plain model on one GPU; wiretax predicts the rest.")
    workload = Workload(
        name=name,
        batch_size=batch_size,
        dtype=dtype,
        optimizer=type(optimizer).__name__.lower(),
        missing={"flops_per_sample": "not counted"},
    )
    watcher = LoopProfiler(model, optimizer, workload, steps)

    def called(module: nn.Module, _arguments: Any) -> None:
        if module.training and torch.is_grad_enabled():
            watcher.forward_begins()

    original = torch.autograd.backward

    def backward(*arguments: Any, **keywords: Any) -> Any:
        return watcher.backward(lambda: original(*arguments, **keywords))

    handles = [
        model.register_forward_pre_hook(called),
        optimizer.register_step_pre_hook(lambda _optimizer, arguments, keywords: watcher.update_begins(arguments, keywords)),
        optimizer.register_step_post_hook(lambda *_: watcher.update_ends()),
    ]
    torch.autograd.backward = backward  # Tensor.backward, scalers and accelerators all come through here
    try:
        yield watcher
    finally:
        torch.autograd.backward = original
        for handle in handles:
            handle.remove()
    watcher.finish()

"""One launch of the proof: every wire measured, and every workload really trained over it, in a fixed order; one run document.

    python benchmarks/train_launch.py OUT.json [--gpus 2] [--counts 2] [--budget 400] [--steps 12]
    python benchmarks/train_launch.py OUT.json --cpu-ranks 2        the dry run, on small workloads over gloo

A wire's sweep, its contention with compute and its training run one after another, each in processes of their own, so that the wire is
known as it was when it was trained over. What does not come to pass is in the document's outcome. The workloads are not those that the
method was built with, except the 1.7 B model, which is the one that scales worst.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wiretax.jobs.launching import JobProgress, cannot, choose_gpus, measure, nccl_configuration, run_of
from wiretax.jobs.progress import Progress
from wiretax.jobs.training_stages import Case, Subject, compute_stage, training_stages, wire_stages
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.measure.wires import Wire, wires
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident
from wiretax.probe.inspect import inspect_machine
from wiretax.store.folder import save_run
from wiretax.train.workload import Settings


@dataclass(frozen=True)
class Trained:
    """A workload at a batch, and the strategies it is trained under on each wire."""

    workload: str
    batch: int
    strategies: dict[str, tuple[str, ...]]
    accumulation_steps: int = 1


ON_GPUS = (
    Trained(
        "llama350m",
        8,
        {
            "default": ("ddp", "fsdp2", "fsdp2_grad_op", "tp"),
            "p2p_off": ("ddp", "fsdp2", "tp"),
            "socket": ("ddp", "fsdp2"),
            "gloo": ("ddp",),
        },
    ),
    Trained("encoder110m", 32, {"default": ("ddp", "fsdp2"), "p2p_off": ("ddp", "fsdp2"), "socket": ("ddp",), "gloo": ("ddp",)}),
    Trained("resnet50", 64, {"default": ("ddp",), "p2p_off": ("ddp",), "socket": ("ddp",), "gloo": ("ddp",)}),
    Trained("gpt1.7b", 4, {"default": ("ddp", "fsdp2", "fsdp2_grad_op", "tp"), "p2p_off": ("ddp", "fsdp2"), "socket": ("ddp",)}),
    Trained("gpt1.7b", 8, {"default": ("ddp",), "p2p_off": ("ddp",)}),
    Trained("gpt1.7b", 4, {"default": ("ddp",), "p2p_off": ("ddp",), "socket": ("ddp",)}, accumulation_steps=4),
)
ON_MANY_GPUS = (
    Trained(
        "llama350m",
        8,
        {"default": ("ddp", "fsdp2", "hsdp", "tp", "tp_ddp"), "p2p_off": ("ddp", "fsdp2", "tp"), "socket": ("ddp",)},
    ),
    Trained("encoder110m", 32, {"default": ("ddp",), "p2p_off": ("ddp",), "socket": ("ddp",)}),
    Trained("gpt1.7b", 4, {"default": ("ddp", "fsdp2", "hsdp"), "p2p_off": ("ddp", "fsdp2")}),
)
ON_CPU = (
    Trained("llama-tiny", 4, {"gloo": ("ddp", "fsdp2", "tp")}),
    Trained("encoder-tiny", 8, {"gloo": ("ddp", "hsdp", "tp_ddp")}),
    Trained("convnet-tiny", 8, {"gloo": ("ddp",)}),
    Trained("llama-tiny", 4, {"gloo": ("ddp",)}, accumulation_steps=4),
)
NEEDS_FOUR = ("hsdp", "tp_ddp")


def stages(trained: Sequence[Trained], over: Sequence[Wire], counts: Sequence[int], *, steps: int, cuda: bool) -> tuple[Stage, ...]:
    """The rates of the GPUs, then wire after wire: sweep, contention, all training."""
    found = [compute_stage(max(counts), cuda=cuda)]
    for wire in over:
        strategies = dict.fromkeys(name for one in trained for name in one.strategies.get(wire.name, ()))
        if not strategies:
            continue
        found += wire_stages(wire, list(strategies), counts, cuda=cuda)
        for one in trained:
            wanted = [
                Case(num_ranks=count, strategy=strategy, batch_per_gpu=one.batch)
                for count in counts
                for strategy in one.strategies.get(wire.name, ())
                if count >= 4 or strategy not in NEEDS_FOUR
            ]
            subject = Subject(source=one.workload, settings=Settings(accumulation_steps=one.accumulation_steps))
            made = training_stages(subject, wanted, wire, steps=steps, cuda=cuda)
            found += [
                dataclasses.replace(
                    stage, name=f"{stage.name}:{one.workload}:a{one.accumulation_steps}", title=f"{one.workload}: {stage.title}"
                )
                for stage in made
            ]
    return tuple(found)


def plan(machine: Machine, arguments: argparse.Namespace) -> LaunchPlan | Incident:
    """Everything, for the GPUs (or CPU ranks) that are there."""
    if arguments.cpu_ranks:
        counts = tuple(count for count in arguments.counts or (2,) if count <= arguments.cpu_ranks)
        over = wires(os.environ, cuda=False)
        return LaunchPlan(world_size=max(counts), device="cpu", stages=stages(ON_CPU, over, counts, steps=arguments.steps, cuda=False))
    chosen = choose_gpus(machine)
    if isinstance(chosen, Incident):
        return chosen
    if len(chosen) < arguments.gpus:
        return cannot(f"{arguments.gpus} GPUs were asked for, {len(chosen)} can be used")
    used = chosen[: arguments.gpus]
    over = wires(os.environ, cuda=True, configuration=nccl_configuration(machine))
    counts = tuple(arguments.counts or (arguments.gpus,))
    trained = ON_GPUS if arguments.gpus == 2 else ON_MANY_GPUS
    return LaunchPlan(
        world_size=arguments.gpus,
        device="cuda",
        cuda_ordinals=tuple(gpu.cuda_ordinal for gpu in used if gpu.cuda_ordinal is not None),
        gpus=tuple(gpu.index for gpu in used),
        stages=stages(trained, over, counts, steps=arguments.steps, cuda=True),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--counts", type=lambda text: tuple(map(int, text.split(","))), help="world sizes to train at: 2,4")
    parser.add_argument("--cpu-ranks", type=int)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--budget", type=float, default=400.0, help="seconds, for everything")
    arguments = parser.parse_args()
    progress = JobProgress(time.monotonic(), arguments.budget, _say)
    machine = inspect_machine(deadline_seconds=5.0)
    run = run_of("scale", machine, measure(plan(machine, arguments), progress, deadline=progress.end - 1.0), progress)
    save_run(run, arguments.out)
    assert run.outcome is not None
    print(
        f"{run.outcome.status} {run.outcome.reason}: {len(run.training.steps)} steps in {run.outcome.duration_seconds} s", file=sys.stderr
    )
    for incident in run.measurements.incidents:
        print(f"{incident.kind} {incident.stage}: {incident.detail}", file=sys.stderr)
    for reason in run.outcome.not_measured:
        print(f"not measured: {reason}", file=sys.stderr)
    return 0 if run.training.steps else 1


_said: list[str] = []


def _say(progress: Progress) -> None:
    """Each stage once."""
    if progress.stage not in _said:
        _said.append(progress.stage)
        print(f"{progress.seconds_elapsed:6.1f} s {progress.stage}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

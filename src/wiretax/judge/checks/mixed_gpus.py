"""GPUs of different kinds in one machine: everything that waits for all runs at the slowest one's pace."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge.facts import evidence, usable_gpus
from wiretax.model.finding import Evidence, Finding
from wiretax.model.run import Run
from wiretax.units import flops, memory

MEMORY_TOLERANCE = 0.05
POWER_TOLERANCE = 0.02


def check(run: Run) -> Iterator[Finding]:
    """Compares names, memory and power limits of the GPUs that answer."""
    gpus = usable_gpus(run.machine)
    if len(gpus) < 2:
        return
    names = {gpu.name for gpu in gpus if gpu.name is not None}
    sizes = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    limits = [gpu.power_limit_watts for gpu in gpus if gpu.power_limit_watts]
    differs_in: list[str] = []
    if len(names) > 1:
        differs_in.append("model")
    if sizes and min(sizes) < max(sizes) * (1 - MEMORY_TOLERANCE):
        differs_in.append("memory")
    if len(names) == 1 and limits and min(limits) < max(limits) * (1 - POWER_TOLERANCE):
        differs_in.append("power limit")
    if not differs_in:
        return
    seen: list[Evidence] = []
    for gpu in gpus:
        parts = [gpu.name or "name not read"]
        if gpu.memory_bytes:
            parts.append(memory(gpu.memory_bytes))
        if gpu.power_limit_watts:
            parts.append(f"{gpu.power_limit_watts:.0f} W")
        seen.append(evidence(f"GPU {gpu.index}: {', '.join(parts)}", "machine.gpus"))
    speeds = {c.gpu: c.matmul_flops_per_second for c in run.measurements.compute if not c.together and c.gpu is not None}
    known = {gpu: speed for gpu, speed in speeds.items() if speed}
    effect = "In data or tensor parallel training every step waits for the slowest GPU, and the smallest memory sets the batch."
    if len(known) > 1:
        slow, fast = min(known, key=lambda g: known[g]), max(known, key=lambda g: known[g])
        effect += f" Measured: GPU {slow} {flops(known[slow])}, GPU {fast} {flops(known[fast])}."
    yield Finding(
        code="gpus-differ",
        severity="warning",
        confidence="certain",
        title=f"The GPUs differ in {' and '.join(differs_in)}",
        evidence=tuple(seen),
        effect=effect,
        remedy="Use GPUs of one kind in a job, or give the faster ones more work (pipeline or layer split); "
        "set `CUDA_DEVICE_ORDER=PCI_BUS_ID` so that numbers mean the same everywhere."
        if "power limit" not in differs_in
        else "Set the same limit on all: `sudo nvidia-smi -pl WATTS`.",
        confirm="nvidia-smi --query-gpu=index,name,memory.total,power.limit --format=csv",
    )

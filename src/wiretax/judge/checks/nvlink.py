"""NVLinks that are down, that join only some of the GPUs, that count errors, or that are not there at all."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.machine import Gpu, Machine
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Compares GPUs with their peers of the same model, never with a number from a data sheet."""
    machine = run.machine
    if machine is None:
        return
    gpus = facts.usable_gpus(machine)
    yield from _partial(gpus)
    yield from _islands(machine, gpus)
    yield from _no_bridge(machine, gpus)
    yield from _errors(gpus)


def _partial(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    seen, degraded = [], []
    for name in sorted({gpu.name for gpu in gpus if gpu.name is not None}):
        same = [gpu for gpu in gpus if gpu.name == name and gpu.nvlinks_active is not None]
        most = max((gpu.nvlinks_active or 0 for gpu in same), default=0)
        for gpu in same:
            if (gpu.nvlinks_active or 0) < most:
                down = [str(link.index) for link in gpu.nvlinks if not link.active]
                which = f" (down: {', '.join(down)})" if down else ""
                seen.append(evidence(f"GPU {gpu.index}: {gpu.nvlinks_active} NVLinks up{which}; its peers have {most}", "machine.gpus"))
                degraded.append(gpu)
    # A card without a bridge beside bridged ones is an island, not a card with broken links.
    broken = [gpu for gpu in degraded if (gpu.nvlinks_active or 0) > 0]
    if not broken:
        return
    yield Finding(
        code="nvlink-partial",
        severity="problem",
        confidence="certain",
        title=f"GPU {facts.gpus_list(gpu.index for gpu in broken)} has fewer NVLinks up than its peers",
        evidence=tuple(seen[:8]),
        effect="Every ring over that GPU runs at its remaining links' rate, and all others wait.",
        remedy="Reset the GPUs (`sudo nvidia-smi --gpu-reset`) or reboot; if the links stay down, reseat the bridge or return the machine.",
        confirm="nvidia-smi nvlink -s",
    )


def _islands(machine: Machine, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    indices = [gpu.index for gpu in gpus]
    if len(indices) < 3:
        return
    paths = {(a, b): facts.path_between(machine, a, b) for p, a in enumerate(indices) for b in indices[p + 1 :]}
    if None in paths.values():
        return
    joined = [pair for pair, path in paths.items() if facts.nvlinks_between(path)]
    if not joined:
        return
    groups: list[set[int]] = [{index} for index in indices]
    for first, second in joined:
        left = next(group for group in groups if first in group)
        right = next(group for group in groups if second in group)
        if left is not right:
            left |= right
            groups.remove(right)
    if len(groups) < 2:
        return
    listed = "; ".join(facts.gpus_list(sorted(group)) for group in groups)
    between = sorted({path or "" for pair, path in paths.items() if pair not in joined})
    sizes = [len(group) for group in groups]
    island = sorted(groups[sizes.index(max(sizes))])
    yield Finding(
        code="nvlink-islands",
        severity="warning",
        confidence="certain",
        title=f"NVLink joins the GPUs only in groups: {listed}",
        evidence=(evidence(f"NVLink between {facts.pairs_text(joined)}; {', '.join(between)} between the groups", "machine.pairs"),),
        effect="A job over all GPUs runs at the rate of the PCIe way between the groups, not of NVLink.",
        remedy="Keep tensor parallelism, and two-GPU jobs, inside a group: "
        f"`export {facts.visible_devices(machine, island)}`; use data parallelism across groups.",
        confirm="nvidia-smi topo -m",
    )


def _no_bridge(machine: Machine, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    if len(gpus) < 2 or any(gpu.nvlinks_active != 0 or not gpu.nvlinks for gpu in gpus):
        return
    paths = {facts.path_between(machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(machine)}
    if any(facts.nvlinks_between(path) for path in paths):
        return
    yield Finding(
        code="no-nvlink-bridge",
        severity="info",
        confidence="likely",
        title="These GPUs have NVLink ports, but none is connected",
        evidence=(evidence(f"{len(gpus[0].nvlinks)} links on each GPU, all inactive", "machine.gpus"),),
        effect="They talk over PCIe; a bridge between two cards would be several times faster.",
        remedy="If the machine is yours, a bridge for each pair of cards helps; on a rented one ask for bridged cards.",
        confirm="nvidia-smi nvlink -s",
    )


def _errors(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    seen, failing = [], set()
    for gpu in gpus:
        for link in gpu.nvlinks:
            recovery = link.errors.get("recovery", 0)
            # CRC errors and replays are retried in hardware: a healthy H200 pair counted 100 to 400 a link in minutes of full load.
            if recovery > 0:
                failing.add(gpu.index)
                seen.append(evidence(f"GPU {gpu.index} link {link.index}: {recovery} recoveries", "machine.gpus"))
    if seen:
        yield Finding(
            code="nvlink-errors",
            severity="warning",
            confidence="likely",
            title=f"NVLinks of GPU {facts.gpus_list(sorted(failing))} had to recover",
            evidence=tuple(seen[:8]),
            effect="A link that has to recover pauses its traffic; one that keeps failing goes down (Xid 74) and stops the job.",
            remedy="Watch whether they grow during a job; if so reseat the bridge, or return the machine.",
            confirm="nvidia-smi nvlink -e && sudo dmesg | grep -i 'xid.*74'",
        )

"""NVLinks that are down, that join only some of the GPUs, that count errors, or that are not there at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Evidence, Finding
from wiretax.model.machine import Gpu, Machine
from wiretax.model.run import Run

_SOLDERED = re.compile(r"\bA[18]00-SXM|\bH[128]00 80GB HBM3\b|\bH800\b(?!.*(?:PCIe|NVL))|\bH200\b(?!.*NVL)|\bH20\b|\bB[23]00\b")
"""Names of modules that only exist on boards with NVLink between all of them (HGX and DGX); the PCIe cards are named otherwise."""

_START_FABRIC = (
    "Start the fabric manager of the driver's own version: `sudo systemctl restart nvidia-fabricmanager`, then reset the GPUs or "
    "reboot; in a container or virtual machine only the host can."
)


def check(run: Run) -> Iterator[Finding]:
    """Compares GPUs with their peers of the same model, never with a number from a data sheet."""
    machine = run.machine
    if machine is None:
        return
    gpus = facts.usable_gpus(machine)
    partial = list(_partial(gpus))
    yield from partial
    if not partial:
        yield from _fewer_in_matrix(run, machine, gpus)
        yield from _down(run, gpus)
    yield from _islands(machine, gpus)
    yield from _no_bridge(run, machine, gpus)
    yield from _errors(run, gpus)
    yield from _none_on_boards_that_have_it(run, machine, gpus)


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
    broken = [gpu for gpu in degraded if (gpu.nvlinks_active or 0) > 0 or _SOLDERED.search(gpu.name or "")]
    if not broken:
        return
    yield Finding(
        code="nvlink-partial",
        severity="problem",
        confidence="certain",
        title=f"{facts.gpus_are((gpu.index for gpu in broken), 'has', 'have')} fewer NVLinks up than the others",
        evidence=tuple(seen[:8]),
        effect="Every ring over that GPU runs at its remaining links' rate, and all others wait.",
        remedy="Reset the GPUs (`sudo nvidia-smi --gpu-reset`) or reboot; if the links stay down, reseat the bridge or return the machine.",
        confirm="nvidia-smi nvlink -s",
    )


def _fewer_in_matrix(run: Run, machine: Machine, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Behind NVSwitches every pair has the same count: a GPU whose pairs all have fewer has lost links."""
    indices = [gpu.index for gpu in gpus]
    if len(indices) < 4 or not seen.is_pasted(run):
        return
    counts = {
        (a, b): facts.nvlinks_between(facts.path_between(machine, a, b)) for place, a in enumerate(indices) for b in indices[place + 1 :]
    }
    if not counts or 0 in counts.values() or len(set(counts.values())) != 2:
        return
    most, fewer = max(counts.values()), min(counts.values())
    for gpu in indices:
        own = {count for pair, count in counts.items() if gpu in pair}
        rest = {count for pair, count in counts.items() if gpu not in pair}
        if own == {fewer} and rest == {most}:
            yield Finding(
                code="nvlink-partial",
                severity="problem",
                confidence="likely",
                title=f"GPU {gpu} is joined by {fewer} NVLinks, all others by {most}",
                evidence=(evidence(f"{facts.pairs_text((gpu, b) for b in indices if b != gpu)}: NV{fewer}", "machine.pairs"),),
                effect="Every ring over that GPU runs at its remaining links' rate, and all others wait.",
                remedy="See which links are down: `nvidia-smi nvlink -s`; reset the GPUs or reboot, then return the machine if they "
                "stay down.",
                confirm="nvidia-smi nvlink -s",
            )
            return


def _down(run: Run, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Links that a list shows as down beside others that are up, with no peer to compare: by design on some boards, a fault on others."""
    mixed = [
        gpu for gpu in gpus if gpu.nvlinks and any(link.active for link in gpu.nvlinks) and any(not link.active for link in gpu.nvlinks)
    ]
    lines = [o for o in seen.of(run, "nvlink.inactive") if seen.whole(o, "gpu") in {gpu.index for gpu in mixed}]
    # Peers that agree are the measure: several boards wire only a part of a card's links.
    if not mixed or not lines or len({gpu.nvlinks_active for gpu in gpus}) == 1 < len(gpus):
        return
    soldered = all("SXM" in (gpu.name or "") or "HBM" in (gpu.name or "") for gpu in mixed)
    yield Finding(
        code="nvlink-partial",
        severity="warning" if soldered else "info",
        confidence="likely" if soldered else "possible",
        title=f"Some NVLinks of GPU {facts.gpus_list(gpu.index for gpu in mixed)} are down"
        + ("" if soldered else ": normal for bridged cards and some boards, a fault elsewhere"),
        evidence=seen.lines(lines, 8),
        effect="Fewer links carry less; whether they should be up, a healthy machine of this kind shows.",
        remedy="Compare with another machine of this kind; if links should be up, reset the GPUs or reseat the bridge.",
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


def _no_bridge(run: Run, machine: Machine, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    said = seen.of(run, "nvlink.none_active", why="all_inactive")
    if not said and (len(gpus) < 2 or any(gpu.nvlinks_active != 0 or not gpu.nvlinks for gpu in gpus)):
        return
    if any(gpu.nvlinks_active for gpu in gpus):
        return
    paths = {facts.path_between(machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(machine)}
    if any(facts.nvlinks_between(path) for path in paths):
        return
    shown = seen.lines(said, 2) or (evidence(f"{len(gpus[0].nvlinks)} links on each GPU, all inactive", "machine.gpus"),)
    if any(_SOLDERED.search(gpu.name or "") for gpu in gpus):
        if not seen.of(run, "mig.device") and not any(gpu.mig == "enabled" for gpu in gpus):
            yield _switched_off(shown)
        return
    yield Finding(
        code="no-nvlink-bridge",
        severity="info",
        confidence="likely",
        title="These GPUs have NVLink ports, but none is connected",
        evidence=shown,
        effect="They talk over PCIe; a bridge between two cards would be several times faster.",
        remedy="If the machine is yours, a bridge for each pair of cards helps; on a rented one ask for bridged cards.",
        confirm="nvidia-smi nvlink -s",
    )


def _switched_off(shown: tuple[Evidence, ...]) -> Finding:
    return Finding(
        code="fabric-not-ready",
        severity="warning",
        confidence="likely",
        title="Every NVLink of a GPU is down, on a kind of board that joins all its GPUs by NVLink",
        evidence=shown,
        effect="Data goes over PCIe at a tenth of what the board can do, or CUDA does not start at all (error 802).",
        remedy=f"{_START_FABRIC} If the links stay down, return the machine.",
        confirm="nvidia-smi -q | grep -A3 Fabric && systemctl status nvidia-fabricmanager && sudo dmesg | grep -i xid",
    )


def _none_on_boards_that_have_it(run: Run, machine: Machine, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Every board for these modules joins all of them by NVLink; a matrix without any shows links that nobody switched on."""
    if len(gpus) < 2 or not seen.is_pasted(run) or not all(_SOLDERED.search(gpu.name or "") for gpu in gpus):
        return
    paths = [facts.path_between(machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(machine)]
    if None in paths or len(paths) != len(gpus) * (len(gpus) - 1) // 2 or any(facts.nvlinks_between(path) for path in paths):
        return
    if any(gpu.mig == "enabled" for gpu in gpus):
        return
    virtual = facts.in_virtual_machine(machine)
    yield Finding(
        code="nvswitch-partition-missing" if virtual else "fabric-not-ready",
        severity="warning",
        confidence="likely",
        title=f"NVLink joins {gpus[0].name} on every board that carries it, yet the topology shows no NVLink at all",
        evidence=(
            evidence(
                f"{facts.pairs_text((both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(machine))}: "
                f"{', '.join(sorted({path or '' for path in paths}))}",
                "machine.pairs",
            ),
        ),
        effect="Data goes over PCIe at a tenth of what the board can do, or CUDA does not start at all (error 802).",
        remedy="The host's fabric manager must activate the partition of this virtual machine's GPUs; ask the provider."
        if virtual
        else _START_FABRIC,
        confirm="nvidia-smi -q | grep -A3 Fabric && nvidia-smi nvlink -s && systemctl status nvidia-fabricmanager",
    )


def _errors(run: Run, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    shown, failing = [], set()
    for gpu in gpus:
        for link in gpu.nvlinks:
            recovery = link.errors.get("recovery", 0)
            # CRC errors and replays are retried in hardware: a healthy H200 pair counted 100 to 400 a link in minutes of full load.
            if recovery > 0:
                failing.add(gpu.index)
                shown.append(evidence(f"GPU {gpu.index} link {link.index}: {recovery} recoveries", "machine.gpus"))
    counted = [o for o in seen.of(run, "nvlink.error", counter="recovery") if (seen.whole(o, "value") or 0) > 0]
    if not shown and counted:
        failing = {index for o in counted if (index := seen.whole(o, "gpu")) is not None}
        shown = list(seen.lines(counted, 8))
    if shown:
        yield Finding(
            code="nvlink-errors",
            severity="warning",
            confidence="likely",
            title=f"NVLinks of GPU {facts.gpus_list(sorted(failing))} had to recover",
            evidence=tuple(shown[:8]),
            effect="A link that has to recover pauses its traffic; one that keeps failing goes down (Xid 74) and stops the job.",
            remedy="Watch whether they grow during a job; if so reseat the bridge, or return the machine.",
            confirm="nvidia-smi nvlink -e && sudo dmesg | grep -i 'xid.*74'",
        )

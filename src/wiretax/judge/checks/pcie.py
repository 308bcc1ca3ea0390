"""PCIe links narrower or slower than they could be, judged under load, at every hop up to the root port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wiretax.data import links
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Finding
from wiretax.model.machine import Gpu
from wiretax.model.run import Run
from wiretax.units import percent, rate

WORKING_UTILIZATION = 0.5
"""A GPU this busy has its link at full speed; used where a text shows the link during somebody's job."""


GRAVE = 0.3
"""x4 of x16, or two generations down, leaves a quarter."""


@dataclass(frozen=True, slots=True)
class _Slow:
    gpu: int
    text: str
    share: float
    """What is left of the link's most."""
    confidence: Confidence


def check(run: Run) -> Iterator[Finding]:
    """Width counts also at idle (it does not shift); generation only under load; a measured copy faster than the link refutes it."""
    narrow, slow, idle = [], [], []
    for gpu in facts.usable_gpus(run.machine):
        width = _narrow(run, gpu)
        generation = _slow(run, gpu)
        narrow += [width] if width else []
        slow += [generation] if generation else []
        if not generation and _idle_below_most(run, gpu):
            idle.append(gpu)
    if not narrow:
        yield from _told(run)
    else:
        yield _finding(
            "pcie-width-low",
            narrow,
            f"{facts.gpus_are((s.gpu for s in narrow), 'has fewer PCIe lanes than it', 'have fewer PCIe lanes than they')} can use",
            "Move the card to a full-width slot, or reseat card and riser; boards with two cards often split x16 into x8 and x8, "
            "which no setting changes.",
            "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
        )
    if slow:
        yield _finding(
            "pcie-generation-low",
            slow,
            f"{facts.gpus_are((s.gpu for s in slow), 'stays', 'stay')} at a low PCIe generation under load",
            "Reboot to retrain the link; reseat card and riser; set the slot's generation in the BIOS instead of Auto.",
            "wiretax check --quick",
        )
    yield from _excerpt(run, bool(narrow or idle))
    if idle:
        yield Finding(
            code="pcie-idle-inconclusive",
            severity="info",
            confidence="certain",
            title="PCIe generations were read at idle, when links shift down: they prove nothing",
            evidence=tuple(
                evidence(f"GPU {g.index}: generation {g.pcie.generation} of {g.pcie.max_generation}, not under load", "machine.gpus")
                for g in idle[:8]
            ),
            effect="None known.",
            remedy="Read them while copies run: `wiretax check` does.",
            confirm="wiretax check --quick",
        )


def _finding(code: str, found: list[_Slow], title: str, remedy: str, confirm: str) -> Finding:
    worst = min(entry.share for entry in found)
    return Finding(
        code=code,
        severity="problem" if worst < GRAVE else "warning",
        confidence="certain" if all(entry.confidence == "certain" for entry in found) else "likely",
        title=title,
        evidence=tuple(evidence(entry.text, "machine.gpus") for entry in found[:8]),
        effect=f"Everything to and from host memory, and peer to peer over PCIe, runs at most at {percent(worst)} of the link's rate.",
        remedy=remedy,
        confirm=confirm,
    )


def _told(run: Run) -> Iterator[Finding]:
    """Somebody writes that a card sits on four lanes or fewer, and no tool's output says which."""
    told = seen.of(run, "pcie.told")
    if not told:
        return
    width = min(seen.whole(o, "width") or 4 for o in told)
    yield Finding(
        code="pcie-width-low",
        severity="info",
        confidence="likely",
        title=f"The text puts a GPU on x{width}",
        evidence=seen.lines(told),
        effect=f"Everything to and from that GPU runs at {width}/16 of a full slot's rate, and every exchange waits for it.",
        remedy="Train on the GPUs in full slots, or move the card; pipeline stages and inference suffer least.",
        confirm="nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
    )


def _excerpt(run: Run, judged: bool) -> Iterator[Finding]:
    """Link lines that were cut out of lspci's output without their device: only slots for GPUs and switches have eight lanes and more."""
    cut = [o for o in seen.of(run, "pci.link") if not o.values.get("address") and (seen.whole(o, "max_width") or 0) >= 8]
    if judged or not cut:
        return
    narrow = [o for o in cut if 0 < (seen.whole(o, "width") or 0) < (seen.whole(o, "max_width") or 0)]
    slow = [o for o in cut if 0 < (seen.whole(o, "generation") or 0) < (seen.whole(o, "max_generation") or 0)]
    if narrow:
        worst = min((seen.whole(o, "width") or 1) / (seen.whole(o, "max_width") or 1) for o in narrow)
        yield Finding(
            code="pcie-width-low",
            severity="problem" if worst < GRAVE else "warning",
            confidence="likely",
            title="A PCIe link has fewer lanes than its device can use; which device was not pasted along",
            evidence=seen.lines(narrow),
            effect=f"Everything over that link runs at most at {percent(worst)} of what it could.",
            remedy="See whose link it is (`sudo lspci -vv`); move that card to a full-width slot, or reseat card and riser.",
            confirm="nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
        )
    if slow:
        yield Finding(
            code="pcie-idle-inconclusive",
            severity="info",
            confidence="certain",
            title="A PCIe link stands below its generation, which every link does at idle: it proves nothing",
            evidence=seen.lines(slow),
            effect="None known.",
            remedy="Read it while copies run: `wiretax check` does.",
            confirm="wiretax check --quick",
        )


def _loads(run: Run, gpu: Gpu) -> tuple[int | None, int | None]:
    loads = [c.pcie for c in run.measurements.compute if c.gpu == gpu.index and c.pcie is not None]
    return (
        max((load.generation for load in loads if load.generation is not None), default=None),
        max((load.width for load in loads if load.width is not None), default=None),
    )


def _refuted(run: Run, gpu: Gpu, generation: int | None, width: int | None) -> bool:
    """A copy faster than the link allows shows that the reading, not the link, is low."""
    carried = links.pcie_rate(generation, width) if generation and width else None
    return carried is not None and any(copy > carried for copy in facts.host_copies(run, gpu.index))


def _narrow(run: Run, gpu: Gpu) -> _Slow | None:
    _, loaded = _loads(run, gpu)
    width, most = loaded or gpu.pcie.width, gpu.pcie.max_width
    generation = _loads(run, gpu)[0] or gpu.pcie.max_generation
    if width is not None and most is not None and 0 < width < most and not _refuted(run, gpu, generation, width):
        state = "under load" if loaded else "as read"
        return _Slow(gpu.index, f"GPU {gpu.index}: x{width} of x{most} {state}", width / most, "certain" if loaded else "likely")
    if facts.in_virtual_machine(run.machine):
        return None
    own = links.pcie_rate(generation, width) if generation and width else None
    for hop in gpu.pcie_path:
        if hop.kind == "gpu" or hop.link.width is None or own is None or width is None or hop.link.width >= width:
            continue
        hop_generation = hop.link.max_generation or hop.link.generation
        carried = links.pcie_rate(hop_generation, hop.link.width) if hop_generation else None
        if carried is not None and carried < own and not _refuted(run, gpu, hop_generation, hop.link.width):
            text = f"GPU {gpu.index}: the hop {hop.address} ({hop.kind}) above it is {hop_generation} x{hop.link.width}, {rate(carried)}"
            return _Slow(gpu.index, text, carried / own, "likely")
    return None


def _slow(run: Run, gpu: Gpu) -> _Slow | None:
    loaded, _ = _loads(run, gpu)
    most = _most_generation(run, gpu)
    generation, confidence = loaded, "certain"
    if loaded is None and run.machine is not None and run.machine.origin == "pasted" and _working(gpu):
        generation, confidence = gpu.pcie.generation, "likely"
    if generation is None or most is None or not 0 < generation < most:
        return None
    here, best = links.pcie_rate(generation, 1), links.pcie_rate(most, 1)
    if here is None or best is None or _refuted(run, gpu, generation, _loads(run, gpu)[1] or gpu.pcie.width):
        return None
    text = f"GPU {gpu.index}: generation {generation} of {most} under load"
    return _Slow(gpu.index, text, here / best, "certain" if confidence == "certain" else "likely")


def _most_generation(run: Run, gpu: Gpu) -> int | None:
    """The card's most, or less where a hop above it (an older board or switch) can do no more: that is no fault of the link."""
    if gpu.pcie.max_generation is None or facts.in_virtual_machine(run.machine):
        return gpu.pcie.max_generation
    hops = [hop.link.max_generation for hop in gpu.pcie_path if hop.kind != "gpu" and hop.link.max_generation is not None]
    return min([gpu.pcie.max_generation, *hops])


def _working(gpu: Gpu) -> bool:
    reasons = gpu.throttle_reasons
    return (gpu.utilization_fraction or 0.0) >= WORKING_UTILIZATION and not (reasons and "gpu_idle" in reasons)


def _idle_below_most(run: Run, gpu: Gpu) -> bool:
    now, most = gpu.pcie.generation, _most_generation(run, gpu)
    return (
        _loads(run, gpu)[0] is None
        and now is not None
        and most is not None
        and now < most
        and not (run.machine is not None and run.machine.origin == "pasted" and _working(gpu))
    )

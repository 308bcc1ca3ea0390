"""What remains to be said of a pasted text in which no check found a fault: healthy as far as it shows, or what to measure next."""

from __future__ import annotations

from collections.abc import Sequence

from wiretax.data import links
from wiretax.data.gpus import GpuFacts, find_gpu
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Evidence, Finding
from wiretax.model.run import Run
from wiretax.units import rate


def conclude(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """One finding: ``healthy``, ``single-gpu`` or ``needs-measurement``; none where something above ``info`` was found.

    Args:
        run: of pasted text, with or without a machine.
        findings: of all checks.
    """
    if any(finding.severity != "info" for finding in findings):
        return []
    codes = {finding.code for finding in findings}
    if "no-gpu" in codes:
        return []
    log = seen.log(run)
    joined = seen.nvlink_joins_all(run) or seen.infinity_fabric_joins_all(run)
    direct = log is None or (log.classes <= {"p2p"} and not log.between)
    if joined and direct and not any(f.code in _DOUBTS for f in findings):
        return [_healthy(run, log)]
    count = len(facts.usable_gpus(run.machine))
    copied = _copied(run) if direct and not any(f.code in _DOUBTS for f in findings) else None
    if copied is not None:
        return [copied]
    if count == 1 and _is_named(run) and log is None and not _more_ranks(run) and not run.measurements.collectives:
        return [_single(run)]
    return [_needs_measurement(run, log, findings)]


_DOUBTS = frozenset(
    {
        "collective-hang",
        "unofficial-driver",
        "p2p-falsely-advertised",
        "iommu-check",
        "nccl-version-bug",
        "p2p-through-cpu-slow",
        "nvlink-partial",
        "communication-bound",
    }
)
"""Suspicions at ``info``: with one of them nothing is called healthy."""


_COMPLAINTS = frozenset({"nccl.warning", "torch.nccl_error", "torch.cuda_error", "torch.rank_failed", "nccl_tests.failure"})
"""What a reader wants to see first of a text that decides nothing."""


def _healthy(run: Run, log: seen.Log | None) -> Finding:
    pairs = facts.unordered_pairs(run.machine)
    paths = sorted({path for both in pairs if (path := facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu))})
    count = len(facts.usable_gpus(run.machine))
    shown: list[Evidence] = []
    if pairs and paths:
        listed = facts.pairs_text((both[0].source_gpu, both[0].target_gpu) for both in pairs)
        shown.append(evidence(f"{listed}: {', '.join(paths)}", "machine.pairs"))
    shown += seen.lines(seen.nvlink_lines(run), 1)
    if log is not None:
        shown += seen.lines(log.by_class.get("p2p", ()), 2)
        shown += seen.lines(seen.of(run, "nccl.p2p_type", all_direct_p2p=True), 1)
    uses = f", and NCCL uses it ({seen.transport_names(log.by_class['p2p'], 2)})" if log is not None and "p2p" in log.classes else ""
    wire = "Infinity Fabric (XGMI)" if seen.infinity_fabric_joins_all(run) else "NVLink"
    return Finding(
        code="healthy",
        severity="info",
        confidence="likely",
        title=f"{wire} joins all {f'{count} ' if count > 1 else ''}GPUs{uses}; nothing wrong is visible",
        evidence=tuple(shown),
        effect="The links are there; what they deliver was not measured.",
        remedy="Nothing to do; `wiretax check` measures what they deliver.",
        confirm="wiretax check --quick",
    )


ENOUGH = 0.6
"""Of the links' limit, for copies of healthy pairs: across sockets they reach two thirds, under one switch nine tenths."""


def _copied(run: Run) -> Finding | None:
    """Peer copies of every pair, each as fast as the cards' links allow: that is a measurement, and it shows nothing wrong."""
    gpus = facts.usable_gpus(run.machine)
    if len(gpus) < 2:
        return None
    rates = {pair: copy.bandwidth_bytes_per_second for pair, copy in facts.pair_copies(run, route="direct").items()}
    wanted = {(a.index, b.index) for a in gpus for b in gpus if a.index != b.index}
    cards = [find_gpu(gpu.name) if gpu.name else None for gpu in gpus]
    limits = [_limit(card) for card in cards if card is not None]
    if len(limits) < len(gpus) or None in limits or not wanted <= rates.keys():
        return None
    limit = min(value for value in limits if value is not None)
    slowest = min(rate_ for pair in wanted if (rate_ := rates[pair]) is not None) if all(rates[pair] for pair in wanted) else 0.0
    if slowest < ENOUGH * limit:
        return None
    return Finding(
        code="healthy",
        severity="info",
        confidence="likely",
        title=f"All {len(wanted)} peer copies between {len(gpus)} GPUs reach what their links allow; nothing wrong is visible",
        evidence=(evidence(f"the slowest copy runs at {rate(slowest)}; the links carry {rate(limit)} one way", "measurements.copies"),),
        effect="Copies are as fast as they can be; what collectives make of it was not measured.",
        remedy="Nothing to do; `wiretax check` measures collectives, and whether the data is right.",
        confirm="wiretax check --quick",
    )


def _limit(card: GpuFacts) -> float | None:
    """Bytes per second one way: of NVLink where a board always joins the cards, else of the card's own slot."""
    if card.nvlink_join == "board" and card.nvlink_bytes_per_second:
        return card.nvlink_bytes_per_second
    return links.pcie_rate(card.pcie_generation, card.pcie_width)


def _is_named(run: Run) -> bool:
    """Whether the one GPU is more than a section that somebody cut out of ``nvidia-smi -q``, which could be of any of several."""
    gpu = facts.usable_gpus(run.machine)[0]
    return bool(gpu.name or gpu.uuid or gpu.pci_bus_id)


def _more_ranks(run: Run) -> bool:
    attached = max((n for o in seen.of(run, "smi.attached") if (n := seen.whole(o, "attached")) is not None), default=1)
    ranks = [n for o in run.observations for name in ("num_ranks", "world_size") if (n := seen.whole(o, name)) is not None]
    return attached > 1 or max(ranks, default=1) > 1


def _single(run: Run) -> Finding:
    gpu = facts.usable_gpus(run.machine)[0]
    return Finding(
        code="single-gpu",
        severity="info",
        confidence="likely",
        title="The text shows one GPU: no wire between GPUs",
        evidence=(evidence(f"GPU {gpu.index}: {gpu.name or 'name not read'}", "machine.gpus"),),
        effect="How fast GPUs talk to each other cannot be seen on one.",
        remedy="If there are more, paste `nvidia-smi -L` and `nvidia-smi topo -m` of the whole machine.",
        confirm="nvidia-smi -L",
    )


def _needs_measurement(run: Run, log: seen.Log | None, findings: Sequence[Finding]) -> Finding:
    pairs = facts.unordered_pairs(run.machine)
    count = len(facts.usable_gpus(run.machine))
    paths = sorted({path for both in pairs if (path := facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu))})
    wanted: list[str] = []
    unread = [both for both in pairs if facts.p2p_allowed(run.machine, both[0].source_gpu, both[0].target_gpu) is None]
    if not pairs and not seen.is_amd(run):
        wanted.append("`nvidia-smi topo -m` (how the GPUs are joined)")
    if (unread or not pairs) and not seen.is_amd(run):
        wanted.append("`nvidia-smi topo -p2p r` (what the driver allows)")
    if seen.is_amd(run) and not seen.of(run, "amd.link"):
        wanted.append("`rocm-smi --showtopo`")
    if log is None:
        wanted.append("the job's output with `NCCL_DEBUG=INFO` (which way NCCL took)")
    shown: list[Evidence] = []
    if pairs and paths:
        listed = facts.pairs_text((both[0].source_gpu, both[0].target_gpu) for both in pairs)
        shown.append(evidence(f"{count} GPUs; {listed}: {', '.join(paths)}", "machine.pairs"))
    if log is not None:
        shown += [line for found in log.by_class.values() for line in seen.lines(found, 2)]
    if not shown:
        complaints = [o for o in run.observations if o.kind in _COMPLAINTS]
        shown += seen.lines((*complaints, *run.observations), 2)
    if not shown:
        shown.append(evidence(f"{count} GPUs are named, and no figure or message that decides", "machine"))
    suspicions = [finding.title for finding in findings if finding.confidence == "possible"]
    also = f" It only raises a suspicion: {suspicions[0]}." if suspicions else ""
    return Finding(
        code="needs-measurement",
        severity="info",
        confidence="certain",
        title="The text does not decide what is wrong, if anything: it has to be measured",
        evidence=tuple(shown),
        effect=f"Topology letters and settings show what could be, not what is.{also}",
        remedy="On the machine: `wiretax check` (60 s; it tests each pair with real data under a deadline)."
        + (f" Or paste {', '.join(wanted)}." if wanted else ""),
        confirm="wiretax check --quick",
    )

"""Peer access that is promised but does not work: wrong data, hangs, errors. Capability is not function."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Evidence, Finding
from wiretax.model.measurement import PeerTruth
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import size

STOPGAP = "`export NCCL_P2P_DISABLE=1` until it is cured"


_BETWEEN_GPUS = re.compile(r"device_to_device|all_to_one|one_to_all")
"""How nvbandwidth names its tests that copy from GPU to GPU."""


def check(run: Run) -> Iterator[Finding]:
    """Judges the two-process test of each pair and the verified copies; the cause of a hang is named only with evidence for it."""
    truths = [t for t in run.measurements.peer_truth if t.source_gpu != t.target_gpu]
    yield from _wrong_data(run, [t for t in truths if t.outcome == "wrong_data"])
    yield from _hang(run, [t for t in truths if t.outcome == "hang"])
    yield from _error(run, [t for t in truths if t.outcome == "error"])
    if not any(t.outcome in ("wrong_data", "hang", "error", "ok") for t in truths):
        yield from _unproven(run)


def _where(truth: PeerTruth) -> str:
    tried = f" at {size(truth.num_bytes[-1])}" if truth.num_bytes else ""
    return f"{truth.source_gpu}-{truth.target_gpu}: {truth.outcome}{tried}" + (f" ({truth.detail})" if truth.detail else "")


def _surroundings(run: Run) -> tuple[Evidence, ...]:
    if run.machine is None:
        return ()
    s = run.machine.surroundings
    known = [text for text in (f"iommu {s.iommu}" if s.iommu else "", f"ACS {s.acs}" if s.acs else "") if text]
    return (evidence(", ".join(known), "machine.surroundings"),) if known else ()


def _wrong_data(run: Run, failed: list[PeerTruth]) -> Iterator[Finding]:
    spoiled = [c for c in run.measurements.copies if c.route == "direct" and c.verified is False and c.source_gpu != c.target_gpu]
    pairs = [(t.source_gpu, t.target_gpu) for t in failed]
    pairs += [(c.source_gpu, c.target_gpu) for c in spoiled if c.source_gpu is not None and c.target_gpu is not None]
    said = [
        *(o for o in seen.of(run, "peer.copy", wrong=True) if not o.values.get("staged")),
        *(o for o in seen.of(run, "nvbandwidth.wrong_data") if _BETWEEN_GPUS.match(seen.text(o, "test"))),
    ]
    told = [o for o in seen.of(run, "symptom", what="wrong_data") if _by_p2p(run, o)]
    cured = [o for o in seen.of(run, "outcome", outcome="ok") if seen.text(o, "subject") in ("iommu", "acs")]
    if told and not pairs and not said:
        yield Finding(
            code="p2p-wrong-data",
            severity="problem",
            confidence="likely",
            title="Peer to peer delivers wrong data, the text tells"
            + (": without it the results are right" if seen.of(run, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome="ok") else "")
            + (f"; without the {seen.text(cured[0], 'subject').upper()} it does not" if cured else ""),
            evidence=(*seen.lines((*told, *seen.of(run, "outcome", subject="NCCL_P2P_DISABLE"), *cured), 5), *_surroundings(run)),
            effect="Gradients are corrupted without any error: training silently diverges.",
            remedy=f"Stop using peer to peer now: {STOPGAP}. Then boot with `iommu=pt` (or the IOMMU off) and ACS off, and test again; "
            "on a rented machine give it back.",
            confirm="wiretax check --quick",
        )
    if not pairs and not said:
        return
    shown = [evidence(_where(t), "measurements.peer_truth") for t in failed[:6]]
    shown += [
        evidence(f"{c.source_gpu}-{c.target_gpu}: a copy of {size(c.num_bytes)} arrived changed", "measurements.copies")
        for c in spoiled[:6]
    ]
    shown += seen.lines(said, 4) if not failed else []
    yield Finding(
        code="p2p-wrong-data",
        severity="critical",
        confidence="certain",
        title=f"Peer to peer delivers wrong data{f' between {facts.pairs_text(pairs)}' if pairs else ''}",
        evidence=(*shown, *_surroundings(run)),
        effect="Gradients are corrupted without any error: training silently diverges.",
        remedy=f"Stop using peer to peer now: {STOPGAP}. Then boot with `iommu=pt` (or the IOMMU off) and ACS off, and test again; "
        "on a rented machine give it back.",
        confirm="wiretax check --quick",
    )


def _by_p2p(run: Run, symptom: Observation) -> bool:
    """Whether the text lays the wrong data on peer to peer: in its sentence, or because it goes away without."""
    return bool(symptom.values.get("with_p2p")) or bool(seen.of(run, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome="ok"))


def _hang(run: Run, failed: list[PeerTruth]) -> Iterator[Finding]:
    if not failed:
        return
    surroundings = run.machine.surroundings if run.machine else None
    code, cause = "p2p-falsely-advertised", "why is not known"
    cure = "Upgrade the driver; if that does not help boot with `iommu=pt` and switch ACS off in the BIOS"
    # NVLink traffic passes neither the IOMMU nor a PCIe bridge.
    over_pcie = any(not facts.nvlinks_between(facts.path_between(run.machine, t.source_gpu, t.target_gpu)) for t in failed)
    if surroundings is not None and surroundings.iommu == "translated" and over_pcie:
        code, cause = "p2p-hang-iommu", "the IOMMU translates addresses, the usual cause"
        cure = "Boot with `iommu=pt` (Intel: `intel_iommu=on iommu=pt`) or switch VT-d / AMD-Vi off in the BIOS, then power-cycle"
    elif surroundings is not None and surroundings.acs == "on" and over_pcie:
        code, cause = "p2p-hang-acs", "ACS sends peer traffic up to the CPU, the usual cause"
        cure = "Switch ACS off in the BIOS or with `sudo setpci -s BRIDGE ECAP_ACS+0x6.w=0000` for each bridge above a GPU"
    if facts.in_virtual_machine(run.machine):
        cure += "; in a virtual machine only the provider can"
    yield Finding(
        code=code,
        severity="critical",
        confidence="certain" if code == "p2p-falsely-advertised" else "likely",
        title=f"Peer to peer hangs between {facts.pairs_text((t.source_gpu, t.target_gpu) for t in failed)}: {cause}",
        evidence=(*(evidence(_where(t), "measurements.peer_truth") for t in failed[:6]), *_surroundings(run)),
        effect="NCCL hangs in its first operation on these pairs unless it stays away from peer to peer.",
        remedy=f"First {STOPGAP}. {cure}.",
        confirm="wiretax check --quick",
    )


def _error(run: Run, failed: list[PeerTruth]) -> Iterator[Finding]:
    promised = [t for t in failed if facts.p2p_allowed(run.machine, t.source_gpu, t.target_gpu) is True]
    if not promised:
        return
    yield Finding(
        code="p2p-falsely-advertised",
        severity="warning",
        confidence="likely",
        title=f"Peer access is promised for {facts.pairs_text((t.source_gpu, t.target_gpu) for t in promised)} but could not be used",
        evidence=tuple(evidence(_where(t), "measurements.peer_truth") for t in promised[:6]),
        effect="NCCL may fail at its start, or fall back to host memory.",
        remedy=f"First {STOPGAP}. In a container try `--ipc=host`; else upgrade the driver.",
        confirm="wiretax check --quick",
    )


def _unproven(run: Run) -> Iterator[Finding]:
    """Nobody tested, and the surroundings are those in which peer to peer is known to break."""
    machine = run.machine
    if machine is None:
        return
    risky = machine.surroundings.iommu == "translated" or machine.surroundings.acs == "on"
    pairs = [
        (both[0].source_gpu, both[0].target_gpu)
        for both in facts.unordered_pairs(machine)
        if facts.p2p_allowed(machine, both[0].source_gpu, both[0].target_gpu)
        and not facts.nvlinks_between(facts.path_between(machine, both[0].source_gpu, both[0].target_gpu))
    ]
    if not risky or not pairs:
        return
    yield Finding(
        code="iommu-check",
        severity="info",
        confidence="possible",
        title="Peer access over PCIe is promised where an IOMMU or ACS may break it; nobody has tested it here",
        evidence=(*_surroundings(run), evidence(f"peer access is granted for {facts.pairs_text(pairs)}", "machine.pairs")),
        effect="If it is broken, NCCL hangs or gradients are corrupted.",
        remedy="Let it be tested with real data: `wiretax check`.",
        confirm="wiretax check --quick",
    )

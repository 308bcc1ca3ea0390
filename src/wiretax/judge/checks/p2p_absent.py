"""The driver refuses peer access: for which pairs, and which of its reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wiretax.judge import facts
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding, Severity
from wiretax.model.machine import Machine, P2pCode
from wiretax.model.run import Run
from wiretax.units import rate, size

_VGPU = re.compile(r"\bGRID\b|-\d+[ABCQ]\b")
"""Names of virtual GPUs end in the profile's memory and type (``A100-40C``, ``H100XM-80C``)."""

_GEFORCE_WITHOUT_PEERS = re.compile(r"GeForce RTX (40|50)\d\d", re.IGNORECASE)
"""The stock driver grants no PCIe peer access to these (NVIDIA forum statement; README of the patched kernel modules)."""

STAGED_REMEDY = (
    "No setting inside the job changes this. Synchronise less often (gradient accumulation with no_sync), keep the job on fewer GPUs, "
    "or take a machine whose GPUs have peer access or NVLink"
)


@dataclass(frozen=True, slots=True)
class _Cause:
    finding: str
    title: str
    severity: Severity
    remedy: str


_CAUSES: dict[P2pCode, _Cause] = {
    "DR": _Cause(
        "p2p-disabled-by-registry",
        "Peer access is switched off by a driver setting (registry key)",
        "problem",
        "Take the key out of the driver's options and reload it: look for RMForceP2PType or RegistryDwords in /etc/modprobe.d/*.conf",
    ),
    "GNS": _Cause("p2p-unsupported-gpu", "The driver offers no peer access on these GPUs", "warning", STAGED_REMEDY),
    "TNS": _Cause(
        "p2p-unsupported-topology",
        "The driver offers no peer access over the way these GPUs are joined",
        "warning",
        "Put the GPUs under one root port or switch, or use a pair that is; otherwise synchronise less often (gradient accumulation)",
    ),
    "CNS": _Cause("p2p-unsupported-chipset", "The driver says the chipset does not support peer access", "warning", STAGED_REMEDY),
    "NS": _Cause("p2p-unsupported", "The driver offers no peer access and gives no reason", "warning", STAGED_REMEDY),
}
_ORDER: tuple[P2pCode, ...] = ("DR", "GNS", "TNS", "CNS", "NS")


def check(run: Run) -> Iterator[Finding]:
    """Groups refused pairs by the driver's code; virtual GPUs and MIG slices are named as the cause they are."""
    machine = run.machine
    if machine is None:
        return
    mig = [gpu.index for gpu in machine.gpus if gpu.mig == "enabled"]
    if mig:
        yield Finding(
            code="mig-no-p2p",
            severity="warning",
            confidence="certain",
            title=f"GPU {facts.gpus_list(mig)} is cut into MIG slices, which have no peer access to each other",
            evidence=(evidence(f"MIG is enabled on GPU {facts.gpus_list(mig)}", "machine.gpus"),),
            effect="NCCL joins no two slices of one GPU, and slices of different GPUs only through host memory.",
            remedy="Use whole GPUs for a multi-GPU job: `sudo nvidia-smi -i INDEX -mig 0`.",
            confirm="nvidia-smi --query-gpu=index,mig.mode.current --format=csv",
        )
    grouped = _refused(machine)
    virtual = {gpu.index for gpu in machine.gpus if gpu.name is not None and _VGPU.search(gpu.name)}
    of_virtual = [pair for code in _ORDER for pair in grouped.get(code, ()) if virtual & set(pair) and not set(mig) & set(pair)]
    if of_virtual:
        yield _virtual(run, machine, of_virtual)
    for code in _ORDER:
        pairs = [pair for pair in grouped.get(code, ()) if not (set(mig) | virtual) & set(pair)]
        if pairs:
            yield _finding(run, machine, code, pairs)
    yield from _cuda_refuses(run, machine, mig)


def _refused(machine: Machine) -> dict[P2pCode, list[tuple[int, int]]]:
    grouped: dict[P2pCode, list[tuple[int, int]]] = {}
    for both in facts.unordered_pairs(machine):
        first, second = sorted((both[0].source_gpu, both[0].target_gpu))
        codes = facts.p2p_codes(machine, first, second)
        worst = next((code for code in _ORDER if code in codes), None)
        if worst is not None:
            grouped.setdefault(worst, []).append((first, second))
    return grouped


def _finding(run: Run, machine: Machine, code: P2pCode, pairs: list[tuple[int, int]]) -> Finding:
    cause = _CAUSES[code]
    finding, title, severity, remedy = cause.finding, cause.title, cause.severity, cause.remedy
    names = sorted({gpu.name for gpu in machine.gpus if gpu.name is not None and any(gpu.index in pair for pair in pairs)})
    joined = [pair for pair in pairs if facts.nvlinks_between(facts.path_between(machine, *pair))]
    if machine.surroundings.virtual_machine in ("wsl", "wsl2"):
        title += " (under WSL no driver does)"
        remedy = "Run on Linux directly; under WSL gradients always go through host memory"
    elif joined:
        severity = "critical"
        title = f"GPUs joined by NVLink are refused peer access ({code})"
        remedy = "Reset or reboot; with NVSwitches check the fabric manager. NCCL stops with an error on such a pair"
    elif any(_GEFORCE_WITHOUT_PEERS.search(name) for name in names):
        remedy += ". GeForce cards of the 40 and 50 series never get it from the stock driver, whatever reason it prints"
    elif code == "CNS" and facts.in_virtual_machine(machine):
        remedy += ". In a virtual machine the chipset is an emulated one, so the provider, not the card, decides"
    seen = [evidence(f"{facts.pairs_text(pairs)}: read and write status {code}", "machine.pairs")]
    return Finding(
        code=finding,
        severity=severity,
        confidence="certain",
        title=f"{title} ({len(pairs)} of {len(facts.unordered_pairs(machine))} pairs)",
        evidence=tuple(seen),
        effect=staged_effect(run),
        remedy=f"{remedy}.",
        confirm="nvidia-smi topo -p2p r",
    )


def _virtual(run: Run, machine: Machine, pairs: list[tuple[int, int]]) -> Finding:
    names = sorted({gpu.name for gpu in machine.gpus if gpu.name is not None and _VGPU.search(gpu.name)})
    return Finding(
        code="vgpu-p2p-limit",
        severity="warning",
        confidence="certain",
        title="These are virtual GPUs, which get peer access only over NVLink and with whole-GPU profiles",
        evidence=(
            evidence(f"{', '.join(names)}", "machine.gpus"),
            evidence(f"{facts.pairs_text(pairs)}: the driver refuses peer access", "machine.pairs"),
        ),
        effect=staged_effect(run),
        remedy="Ask for passed-through GPUs, or full-memory profiles without unified memory; to start at all: `export NCCL_P2P_DISABLE=1`.",
        confirm="nvidia-smi topo -p2p r && nvidia-smi -q | grep -i 'virtualization mode'",
    )


def _cuda_refuses(run: Run, machine: Machine, mig: list[int]) -> Iterator[Finding]:
    """CUDA says no where the driver's matrix is silent or says yes."""
    refused: list[tuple[int, int]] = []
    for both in facts.unordered_pairs(machine):
        first, second = sorted((both[0].source_gpu, both[0].target_gpu))
        codes = facts.p2p_codes(machine, first, second)
        if first in mig or second in mig or codes - {"OK", "U"}:
            continue
        if any(pair.peer_access is False for pair in both):
            refused.append((first, second))
    if refused:
        yield Finding(
            code="p2p-unsupported",
            severity="warning",
            confidence="certain",
            title=f"CUDA refuses peer access for {len(refused)} of {len(facts.unordered_pairs(machine))} pairs",
            evidence=(evidence(f"{facts.pairs_text(refused)}: cudaDeviceCanAccessPeer says no", "machine.pairs"),),
            effect=staged_effect(run),
            remedy=f"The reason is not known: ask the driver with `nvidia-smi topo -p2p r`. {STAGED_REMEDY}.",
            confirm="nvidia-smi topo -p2p r",
        )


def staged_effect(run: Run) -> str:
    """What going through host memory costs here, in measured numbers where there are any."""
    found = facts.headline(facts.user_collectives(run))
    if found is None or facts.transports_of(found[0]) == {"p2p"}:
        return "Every byte between these GPUs goes through host memory, several times slower than peer to peer."
    collective, point = found
    return (
        f"Every byte between these GPUs goes through host memory: all-reduce of {size(point.num_bytes)} over {collective.world_size} GPUs "
        f"runs at {rate(point.busbw_bytes_per_second)}."
    )

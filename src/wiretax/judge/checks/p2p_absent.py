"""The driver refuses peer access: for which pairs, and which of its reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wiretax.data.gpu_families import never_has_p2p_over_pcie
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.machine import Machine, P2pCode
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import rate, size

_VGPU = re.compile(r"\bGRID\b|-\d+[ABCQ]\b")
"""Names of virtual GPUs end in the profile's memory and type (``A100-40C``, ``H100XM-80C``)."""

_NO_PEER = "peer access is not supported"

NEVER_FROM_STOCK = "GeForce cards of the 40 and 50 series never get it from the stock driver"

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
            title=f"{facts.gpus_are(mig, 'is', 'are')} cut into MIG slices, which have no peer access to each other",
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
    unasked = {} if grouped else _unasked(run)
    for code, pairs in unasked.items():
        yield _finding(run, machine, code, pairs, asked=False)
    if not unasked:
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


def _unasked(run: Run) -> dict[P2pCode, list[tuple[int, int]]]:
    """Codes of a matrix whose question was not pasted along. NS is left out: cards without NVLink answer so to the question for it."""
    grouped: dict[P2pCode, list[tuple[int, int]]] = {}
    for code in _ORDER[:-1]:
        for observation in seen.of(run, "p2p.status", code=code):
            first, second = seen.whole(observation, "source_gpu"), seen.whole(observation, "target_gpu")
            if first is not None and second is not None:
                grouped.setdefault(code, []).append((min(first, second), max(first, second)))
    return {code: list(dict.fromkeys(pairs)) for code, pairs in grouped.items()}


def _finding(run: Run, machine: Machine, code: P2pCode, pairs: list[tuple[int, int]], asked: bool = True) -> Finding:
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
    elif any(never_has_p2p_over_pcie(name) for name in names):
        remedy += f". {NEVER_FROM_STOCK}, whatever reason it prints"
    elif code == "CNS" and facts.in_virtual_machine(machine):
        remedy += ". In a virtual machine the chipset is an emulated one, so the provider, not the card, decides"
    said = seen.lines(seen.of(run, "nccl.p2p_disabled"), 2)
    return Finding(
        code=finding,
        severity=severity,
        confidence="certain" if asked else "likely",
        title=f"{title} ({len(pairs)} of {max(len(facts.unordered_pairs(machine)), len(pairs))} pairs)",
        evidence=(
            evidence(f"{facts.pairs_text(pairs)}: read and write status {code}", "machine.pairs")
            if asked
            else evidence(
                f"{facts.pairs_text(pairs)}: {code}; which of the driver's five questions that answers was not pasted", "machine.pairs"
            ),
            *(said if asked else seen.lines(seen.of(run, "p2p.status", code=code), 3)),
        ),
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
    """CUDA, NCCL's log or a person's check says no where the driver's matrix is silent or says yes."""
    refused: list[tuple[int, int]] = []
    promised = False
    for both in facts.unordered_pairs(machine):
        first, second = sorted((both[0].source_gpu, both[0].target_gpu))
        codes = facts.p2p_codes(machine, first, second)
        if first in mig or second in mig or codes - {"OK", "U"}:
            continue
        promised = promised or "OK" in codes
        if any(pair.peer_access is False for pair in both):
            refused.append((first, second))
    said = _said_so(run)
    told = () if refused or said else seen.of(run, "peer.told", access=False)
    if not refused and (not (said or told) or mig or any(_refused(machine).values())):
        return
    asked = "the driver" if seen.is_amd(run) else "cudaDeviceCanAccessPeer"
    shown = [evidence(f"{facts.pairs_text(refused)}: {asked} says no", "machine.pairs")] if refused else []
    # A log that refuses what the driver's own matrix grants is of another time or another machine.
    confidence: Confidence = "likely" if told or (promised and not refused) else "certain"
    if promised and not refused:
        shown.append(evidence("the driver's own matrix says OK for some pairs", "machine.pairs"))
    remedy = f"The reason is not known: ask the driver with `nvidia-smi topo -p2p r`. {STAGED_REMEDY}."
    if seen.without_stock_p2p(run):
        remedy = f"{NEVER_FROM_STOCK}. {STAGED_REMEDY}."
    elif seen.is_amd(run):
        remedy = f"Ask the driver with `rocm-smi --showtopoaccess`. {STAGED_REMEDY}."
    reason = seen.text(told[0], "reason") if told else ""
    yield Finding(
        code=f"p2p-unsupported-{reason}" if reason else "p2p-unsupported",
        # A sentence may speak of cards in general, or of another machine.
        severity="info" if told else "warning",
        confidence=confidence,
        title=_whom(
            "The driver" if seen.is_amd(run) else "CUDA",
            machine,
            refused,
            seen.of(run, "nccl.p2p_disabled"),
            bool(seen.of(run, "peer.access", all_pairs=True, access=False)),
        ),
        evidence=(*shown, *seen.lines((*said, *told), 2), *_rest(said)),
        effect=staged_effect(run),
        remedy=remedy,
        confirm="nvidia-smi topo -p2p r",
    )


def _said_so(run: Run) -> tuple[Observation, ...]:
    """Lines that state a refusal: NCCL prints its line only where its own distance policy would have allowed the pair."""
    return (
        *seen.of(run, "nccl.p2p_disabled", nvlink=False),
        *seen.of(run, "nccl.p2p_not_enabled"),
        *seen.of(run, "peer.access", all_pairs=True, access=False),
        *(o for o in seen.of(run, "nccl.p2p_type") if o.values.get("all_cuda_p2p") is False),
        *(o for o in seen.of(run, "amd.link") if o.values.get("access") is False),
        *seen.of(run, "framework.custom_all_reduce", reason="no_p2p"),
        *seen.of(run, "framework.peer_refused"),
        *_waived(run),
        *_errors(run),
    )


def _waived(run: Run) -> tuple[Observation, ...]:
    """Tests between GPUs that nvbandwidth left out, since it could map no peer; with one GPU there is none to map."""
    if run.machine is None or len(run.machine.gpus) < 2:
        return ()
    tests = [o for o in seen.of(run, "nvbandwidth.test") if seen.text(o, "name").startswith("device_to_device_memcpy")]
    return tuple(o for o in tests if o.values.get("status") == "waived") if all(o.values.get("status") == "waived" for o in tests) else ()


def _errors(run: Run) -> tuple[Observation, ...]:
    """CUDA's error 217, from whatever asked for peer access. NCCL's staged path asks too (for cuMem), and that is another finding."""
    if any(_NO_PEER in seen.text(o, "message") for o in seen.warnings(run, "shm_cuda_failure")):
        return ()
    asked = (*seen.warnings(run, "cuda_failure", "peer_failure", "ipc_failure"), *seen.of(run, "torch.cuda_error"))
    return tuple(o for o in asked if _NO_PEER in seen.text(o, "error"))


def _rest(said: tuple[Observation, ...]) -> tuple[Evidence, ...]:
    """That there are more lines of the kind, and of how many pairs: each rank prints both directions."""
    if len(said) <= 2:
        return ()
    count = sum(seen.whole(o, "count") or 1 for o in said)
    named = {
        frozenset((a, b)) for o in said if (a := seen.whole(o, "source_gpu")) is not None and (b := seen.whole(o, "target_gpu")) is not None
    }
    return (evidence(f"{count} such lines" + (f", of {len(named)} pairs" if named else ""), said[0].source),)


def _whom(who: str, machine: Machine, refused: list[tuple[int, int]], lines: tuple[Observation, ...], all_stated: bool) -> str:
    """Which pairs: a log has one line for each direction of a pair, and each rank may print it."""
    total = len(facts.unordered_pairs(machine)) or len(machine.gpus) * (len(machine.gpus) - 1) // 2
    ends = [(seen.whole(o, "source_gpu"), seen.whole(o, "target_gpu")) for o in lines]
    named = {(min(a, b), max(a, b)) for a, b in ends if a is not None and b is not None}
    count = sum(seen.whole(o, "count") or 1 for o in lines)
    if refused:
        return f"{who} refuses peer access for {len(refused)} of {max(total, len(refused))} pairs"
    if named:
        of_all = f" of {max(total, len(named))}" if total else ""
        return f"The driver refuses peer access for {len(named)}{of_all} pair{'' if len(named) == 1 and not total else 's'} (NCCL's log)"
    if total and count >= 2 * total:
        return f"The driver refuses peer access for all {total} pairs ({count} lines are both directions of each)"
    if all_stated:
        return f"Peer access is refused for all {f'{total} ' if total else ''}pairs"
    return "The driver refuses peer access between the GPUs"


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

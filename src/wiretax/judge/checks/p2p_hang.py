"""Hangs of peer to peer as texts tell of them: a driver's fault, the IOMMU, ACS, or access that a card never had.

A cause is named only with a clue for it; a hang without one stays a hang with the next thing to measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from wiretax.data.driver_bugs import branch, driver_bugs
from wiretax.judge import facts, seen
from wiretax.judge.checks.p2p_truth import STOPGAP
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run

_FIRST_CALLS = frozenset({"AllReduce", "Broadcast", "AllGather", "ReduceScatter", "Reduce", "AllToAll", "SendRecv", "Send", "Recv"})

_IOMMU_REMEDY = "Boot with `iommu=pt` (Intel: `intel_iommu=on iommu=pt`) or switch VT-d / AMD-Vi off in the BIOS, then power-cycle."
_ACS_REMEDY = (
    "Switch ACS off in the BIOS or with `sudo setpci -s BRIDGE ECAP_ACS+0x6.w=0000` for each bridge above a GPU; read it back from lspci, "
    "some boards ignore the BIOS switch."
)
_HANG_EFFECT = "Ranks wait for each other for ever at full utilisation; a watchdog ends the job after minutes."


def check(run: Run) -> Iterator[Finding]:
    """Judges prose and logs; the two-process test of a live run has a check of its own."""
    hangs = _hangs(run)
    booted = _booted(run)
    cured = seen.of(run, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome="ok")
    by_p2p = bool(cured or any(o.values.get("with_p2p") for o in hangs))
    yield from _faults(run)
    yield from _unofficial(run)
    versions = list(_versions(run, hangs, cured, by_p2p))
    yield from versions
    over_pcie = _p2p_over_pcie(run)
    promised = _promised(run, over_pcie, hangs)
    yield from promised
    if booted is not None:
        yield booted
        return
    if versions or promised or not hangs:
        if not hangs:
            yield from _in_first_call(run)
            yield from _test_stops(run)
            yield from _untested(run)
        return
    if by_p2p and not seen.nvlink_joins_all(run):
        yield _with_cause(run, hangs, cured)
    elif by_p2p or over_pcie or seen.log(run) is not None:
        yield _without_cause(hangs, cured)
        yield from _suspects(run, over_pcie)
    else:
        # Nothing but a sentence: a note, so that no machine on which something hangs is called healthy.
        yield replace(_without_cause(hangs, cured), severity="info", confidence="possible")


def _hangs(run: Run) -> tuple[Observation, ...]:
    """Sentences that speak of a hang; a line that says it no longer hangs is none."""
    return (*seen.of(run, "symptom", what="hang"), *(o for o in seen.of(run, "outcome", outcome="hang") if o.values.get("value") != "1"))


def _versions(run: Run, hangs: tuple[Observation, ...], cured: tuple[Observation, ...], by_p2p: bool) -> Iterator[Finding]:
    """One driver hangs and another does not; or a driver of which a hang is known, and a hang."""
    outcomes = seen.of(run, "outcome", subject="driver")
    bad = [o for o in outcomes if o.values.get("outcome") in ("hang", "fail")]
    good = [o for o in outcomes if o.values.get("outcome") == "ok"]
    version = run.machine.software.driver if run.machine else None
    mentioned = [seen.text(o, "version") for o in seen.of(run, "version.mention", subject="driver")]
    tried = [seen.text(o, "value") for o in bad] or ([version] if version else mentioned if len(mentioned) == 1 else [])
    known = [bug for each in tried for bug in driver_bugs(each, seen.gpu_names(run), "hang")] if hangs else []
    source = tuple(evidence(f"{bug.title}: {bug.source} ({bug.date})", "driver data") for bug in known)
    if bad and good:
        worse, better = seen.text(bad[0], "value"), seen.text(good[0], "value")
        newer = (branch(better) or 0) > (branch(worse) or 0)
        yield Finding(
            code="driver-p2p-bug",
            severity="problem",
            confidence="likely",
            title=f"Driver {worse} hangs where driver {better} does not" + (", and only with peer to peer" if by_p2p else ""),
            evidence=(*seen.lines((*bad, *good, *cured)), *source),
            effect=_HANG_EFFECT,
            remedy=f"Install driver {better}{' or newer' if newer else ''}. Until then {STOPGAP}.",
            confirm="nvidia-smi --query-gpu=driver_version --format=csv && wiretax check --quick",
        )
    elif known and by_p2p:
        bug = known[0]
        yield Finding(
            code="driver-p2p-bug",
            severity="problem",
            confidence="likely",
            title=f"This hang looks like a known fault of driver {tried[0]}: {bug.title}",
            evidence=(*seen.lines((*hangs, *cured)), *source),
            effect=_HANG_EFFECT,
            remedy=f"Install a driver of branch {bug.good_branch} or newer. Until then {STOPGAP}.",
            confirm="nvidia-smi --query-gpu=driver_version --format=csv && wiretax check --quick",
        )


def _booted(run: Run) -> Finding | None:
    """Somebody switched the IOMMU or ACS, and the trouble went: the cause is proven, unless another change cured it as well."""
    cures = [o for o in seen.of(run, "outcome", outcome="ok") if seen.text(o, "subject") in ("iommu", "acs")]
    subjects = {seen.text(o, "subject") for o in cures}
    if len(subjects) != 1:
        return None
    subject = subjects.pop()
    if not _hangs(run) and any(o.values.get("with_p2p") for o in seen.of(run, "symptom", what="wrong_data")):
        # Wrong data, not a hang, went away: ``p2p_truth`` says so with the cure.
        return None
    told = [o for o in seen.of(run, "outcome", subject=subject) if o.values.get("outcome") != "ok"]
    return Finding(
        code=f"p2p-hang-{subject}",
        severity="info" if told else "problem",
        confidence="possible" if told else "likely",
        title=f"{'The IOMMU' if subject == 'iommu' else 'ACS'} was the cause: without it the trouble is gone",
        evidence=seen.lines((*cures, *told, *_hangs(run)), 5),
        effect=_HANG_EFFECT,
        remedy=(_IOMMU_REMEDY if subject == "iommu" else _ACS_REMEDY) + " Keep the setting that helps over updates of the BIOS.",
        confirm="wiretax check --quick",
    )


def _p2p_over_pcie(run: Run) -> tuple[Observation, ...]:
    """Lines in which NCCL chose peer to peer between GPUs that no NVLink joins, as far as is known."""
    log = seen.log(run)
    if log is None or seen.nvlink_joins_all(run):
        return ()
    return tuple(o for o in log.by_class.get("p2p", ()) if not facts.nvlinks_between(_path(run, o)))


def _path(run: Run, observation: Observation) -> str | None:
    first, second = seen.whole(observation, "source_gpu"), seen.whole(observation, "target_gpu")
    return None if first is None or second is None else facts.path_between(run.machine, first, second)


def _promised(run: Run, over_pcie: tuple[Observation, ...], hangs: tuple[Observation, ...]) -> list[Finding]:
    """NCCL took peer to peer on cards that the stock driver never grants it."""
    names = seen.without_stock_p2p(run)
    if not names or not over_pcie:
        return []
    unofficial = run.machine is not None and run.machine.software.driver_flavour == "unofficial"
    known = driver_bugs(run.machine.software.driver if run.machine else None, names, "hang")
    stuck = bool(hangs) or bool(_first_call(run))
    shown = (*seen.lines(over_pcie, 3), *seen.lines((*hangs, *_first_call(run)), 2), evidence(", ".join(names), "machine.gpus"))
    if not stuck:
        if unofficial:
            return []
        return [
            Finding(
                code="unofficial-driver",
                severity="info",
                confidence="possible",
                title="NCCL uses peer to peer on cards to which the stock driver never grants it: a patched driver, or a false promise",
                evidence=shown,
                effect="A patched driver is at your own risk; a false promise hangs or corrupts gradients.",
                remedy="Let the data be checked before a long job: `wiretax check`.",
                confirm="modinfo nvidia | grep -E '^(version|license)' && wiretax check --quick",
            )
        ]
    sources = tuple(evidence(f"{bug.title}: {bug.source} ({bug.date})", "driver data") for bug in known)
    return [
        Finding(
            code="p2p-falsely-advertised",
            severity="problem",
            confidence="likely",
            title="NCCL chose peer to peer on cards that do not have it, and hangs: the driver promises too much",
            evidence=(*shown, *sources),
            effect=_HANG_EFFECT,
            remedy=f"First {STOPGAP}; if nvidia-smi hangs as well, power-cycle. Then upgrade the driver, and test with real data before "
            "trusting it.",
            confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
        )
    ]


def _with_cause(run: Run, hangs: tuple[Observation, ...], cured: tuple[Observation, ...]) -> Finding:
    """A hang that goes away without peer to peer: the IOMMU or ACS, if the text shows one of them at work."""
    iommu, acs = _iommu_at_work(run), _acs_at_work(run)
    code, cause = "collective-hang", "why is not shown"
    remedy = "Then look at the three usual causes: the driver, the IOMMU and ACS (`sudo dmesg | grep -iE 'iommu|xid'`, `sudo lspci -vvv`)."
    shown: tuple[Evidence, ...] = ()
    if iommu:
        code, cause, shown = "p2p-hang-iommu", "the IOMMU translates addresses, the usual cause", iommu
        remedy = _IOMMU_REMEDY
    elif acs:
        code, cause, shown = "p2p-hang-acs", "ACS sends peer traffic up to the CPU, the usual cause", acs
        remedy = _ACS_REMEDY
    if facts.in_virtual_machine(run.machine):
        remedy += " In a virtual machine only the provider can."
    return Finding(
        code=code,
        severity="problem",
        confidence="likely",
        title=f"Collectives hang, and only with peer to peer: {cause}",
        evidence=(*seen.lines((*hangs, *cured), 4), *shown),
        effect=_HANG_EFFECT,
        remedy=f"First {STOPGAP}. {remedy}",
        confirm="wiretax check --quick",
    )


def _without_cause(hangs: tuple[Observation, ...], cured: tuple[Observation, ...]) -> Finding:
    return Finding(
        code="collective-hang",
        severity="warning",
        confidence="likely",
        title="The text tells of a hang; what hangs is not shown",
        evidence=seen.lines((*hangs, *cured), 4),
        effect=_HANG_EFFECT,
        remedy="Find the guilty way: `NCCL_P2P_DISABLE=1 wiretax check --quick` works where peer to peer is broken; `wiretax check` tries "
        "each pair under a deadline and names the operation in which it hangs.",
        confirm="wiretax check --quick",
    )


def _suspects(run: Run, over_pcie: tuple[Observation, ...]) -> Iterator[Finding]:
    """A hang while peer to peer ran over PCIe, and one of its usual causes in sight: to be tried, not to be believed."""
    for code, at_work, remedy in (
        ("p2p-hang-iommu", _iommu_at_work(run), _IOMMU_REMEDY),
        ("p2p-hang-acs", _acs_at_work(run), _ACS_REMEDY),
    ):
        if over_pcie and at_work:
            yield Finding(
                code=code,
                severity="info",
                confidence="possible",
                title=f"{'A translating IOMMU' if 'iommu' in code else 'ACS on a bridge'} may be why it hangs: peer to peer was in use",
                evidence=(*at_work, *seen.lines(over_pcie, 2)),
                effect=_HANG_EFFECT,
                remedy=f"Try `NCCL_P2P_DISABLE=1 wiretax check --quick` first. If that runs: {remedy}",
                confirm="NCCL_P2P_DISABLE=1 wiretax check --quick && wiretax check --quick",
            )


def _untested(run: Run) -> Iterator[Finding]:
    """Nobody speaks of a hang, but the surroundings are those in which peer to peer over PCIe is known to break."""
    if not seen.is_pasted(run) or seen.nvlink_joins_all(run) or seen.of(run, "iommu.fault") or seen.of(run, "nccl.p2p_disabled"):
        return
    shown = (*_iommu_at_work(run), *_acs_at_work(run))
    pairs = facts.unordered_pairs(run.machine)
    answers = [facts.p2p_allowed(run.machine, both[0].source_gpu, both[0].target_gpu) for both in pairs]
    # Granted pairs are told of elsewhere; refused ones cannot break.
    if not shown or any(answer is not None for answer in answers):
        return
    yield Finding(
        code="iommu-check",
        severity="info",
        confidence="possible",
        title="Peer access over PCIe, if the GPUs have it, goes through an IOMMU or ACS that may break it; nobody has tested it here",
        evidence=shown,
        effect="If it is broken, NCCL hangs or gradients are corrupted; without peer access it does not matter.",
        remedy="Let it be tested with real data: `wiretax check`.",
        confirm="wiretax check --quick",
    )


def _iommu_at_work(run: Run) -> tuple[Evidence, ...]:
    faults = seen.of(run, "iommu.fault")
    if faults:
        return seen.lines(faults, 2)
    translated = [
        *seen.of(run, "iommu.state", state="translated"),
        *seen.of(run, "iommu.mention", state="translated"),
        *(
            o
            for o in seen.of(run, "kernel.cmdline")
            if o.values.get("option") in ("intel_iommu", "amd_iommu") and o.values.get("value") == "on"
        ),
    ]
    passthrough = seen.of(run, "iommu.state", state="passthrough") or seen.of(run, "kernel.cmdline", option="iommu", value="pt")
    if passthrough:
        return ()
    if translated:
        return seen.lines(translated, 2)
    if run.machine is not None and run.machine.surroundings.iommu == "translated":
        return (evidence("iommu translated", "machine.surroundings"),)
    return ()


def _acs_at_work(run: Run) -> tuple[Evidence, ...]:
    bridges = [o for o in seen.of(run, "pci.acs") if o.values.get("request_redirect") and o.values.get("is_bridge") is not False]
    return seen.lines(bridges, 3)


def _faults(run: Run) -> Iterator[Finding]:
    """The IOMMU refuses what a GPU does: peer writes vanish."""
    faults = seen.of(run, "iommu.fault")
    if not faults:
        return
    known = {_bus(gpu.pci_bus_id) for gpu in run.machine.gpus if gpu.pci_bus_id} if run.machine else set()
    of_gpus = [o for o in faults if _bus(seen.text(o, "device")) in known or seen.text(o, "driver") in ("nvidia", "amdgpu")]
    confidence: Confidence = "likely" if of_gpus else "possible"
    yield Finding(
        code="p2p-hang-iommu" if of_gpus else "iommu-check",
        severity="problem" if of_gpus else "info",
        confidence=confidence,
        title="The IOMMU refuses what a GPU writes: peer to peer hangs or loses data"
        if of_gpus
        else "The IOMMU refused a device's access; whether it was a GPU's is not shown",
        evidence=seen.lines(of_gpus or faults, 4),
        effect="Peer to peer through a translating IOMMU hangs, or data is lost without an error.",
        remedy=f"First {STOPGAP}. Boot with `iommu=pt`, or switch the IOMMU off in the BIOS, and power-cycle.",
        confirm="sudo dmesg | grep -iE 'IO_PAGE_FAULT|DMAR' && wiretax check --quick",
    )


def _bus(address: str | None) -> str:
    match = re.search(r"([0-9a-fA-F]{2}:[0-9a-fA-F]{2})\.[0-9a-fA-F]$", address or "")
    return match[1].lower() if match else ""


def _unofficial(run: Run) -> Iterator[Finding]:
    """Modified kernel modules by their own version, or peer access that only such give."""
    if run.machine is None:
        return
    stated = run.machine.software.driver_flavour == "unofficial"
    granted = [
        (both[0].source_gpu, both[0].target_gpu)
        for both in facts.unordered_pairs(run.machine)
        if (facts.p2p_codes(run.machine, both[0].source_gpu, both[0].target_gpu) == {"OK"} or all(pair.peer_access for pair in both))
        and not facts.nvlinks_between(facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu))
    ]
    names = seen.without_stock_p2p(run)
    if not stated and not (names and granted):
        return
    shown = [*seen.lines(seen.of(run, "driver.module"), 2)]
    shown += [evidence(f"driver {run.machine.software.driver}", "machine.software")] if stated else []
    shown += [evidence(f"{facts.pairs_text(granted)}: peer access is granted on {', '.join(names)}", "machine.pairs")] if granted else []
    yield Finding(
        code="unofficial-driver",
        severity="info",
        confidence="certain" if stated else "likely",
        title="The kernel modules are patched for peer to peer"
        if stated
        else "Peer access on cards that never get it from the stock driver",
        evidence=tuple(shown),
        effect="Nobody supports it; small BAR1, ACS or a translating IOMMU make it hang or lose data. It is no choice for shared machines.",
        remedy="Let the data be checked before a long job: `wiretax check`; keep the stock driver's way at hand: NCCL_P2P_DISABLE=1.",
        confirm="modinfo nvidia | grep -E '^(version|license)' && wiretax check --quick",
    )


def _first_call(run: Run) -> tuple[Observation, ...]:
    """The one collective call of a log that ends in it, after every rank that is shown had finished its start."""
    calls = [o for o in seen.of(run, "nccl.calls") if seen.text(o, "operation") in _FIRST_CALLS]
    started = seen.of(run, "nccl.communicator")
    if len(calls) != 1 or (seen.whole(calls[0], "calls") or 0) != 1 or not started:
        return ()
    ended = any((seen.whole(o, "destroyed") or 0) + (seen.whole(o, "aborted") or 0) for o in started)
    return () if ended or not any(seen.whole(o, "completed") for o in started) else (calls[0],)


def _test_stops(run: Run) -> Iterator[Finding]:
    """CUDA's bandwidth test prints the heading of a matrix, measures, and then prints its rows: a heading at the end is where it hangs."""
    matrices = seen.of(run, "p2p_test.matrix")
    if matrices and seen.whole(matrices[-1], "num_gpus") == 0 and matrices[-1].values.get("peer_access") == "enabled" and len(matrices) > 1:
        yield Finding(
            code="p2p-falsely-advertised",
            severity="info",
            confidence="possible",
            title="The bandwidth test ends where it first uses peer access: it hangs there, or the paste was cut",
            evidence=seen.lines(matrices[-1:]),
            effect=_HANG_EFFECT,
            remedy=f"Wait two minutes; if nothing follows, peer access does not work here: {STOPGAP}.",
            confirm="NCCL_P2P_DISABLE=1 wiretax check --quick && wiretax check --quick",
        )


def _in_first_call(run: Run) -> Iterator[Finding]:
    call = _first_call(run)
    if call:
        yield Finding(
            code="collective-hang",
            severity="info",
            confidence="possible",
            title="The log ends inside its first collective: a hang, or the paste was cut there",
            evidence=(*seen.lines(call), *seen.lines(_p2p_over_pcie(run), 2)),
            effect=_HANG_EFFECT,
            remedy="Try `NCCL_P2P_DISABLE=1 wiretax check --quick`: if that works and the same without the variable does not, peer to peer "
            "is broken here (driver, IOMMU or ACS).",
            confirm="wiretax check --quick",
        )

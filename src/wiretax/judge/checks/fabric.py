"""NVSwitch machines whose fabric is not ready, and NVLink faults that the kernel logged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from wiretax.judge import seen
from wiretax.judge.facts import evidence, gpus_are
from wiretax.model.finding import Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run

NVLINK_XIDS = frozenset({74, *range(144, 151), 155})
"""NVIDIA's Xid list (https://docs.nvidia.com/deploy/xid-errors): 74 is an NVLink error; from Blackwell on 144 to 150 and 155 are."""

_NOT_OF_THE_FABRIC = re.compile(r"out of memory|'initialization error'")

_NEVER_BEHIND_A_SWITCH = re.compile(r"GeForce|RTX|Quadro|TITAN|\b(?:A2|A10G?|A16|A30|A40|L4|L20|L40S?|T4|T10|P4|P40|M60)\b|PCI[eE]")
"""Cards that are never built into a machine with NVSwitches: a fabric manager has nothing to do there."""

SYSTEM_NOT_READY = 802
"""``cudaErrorSystemNotReady``."""


def check(run: Run) -> Iterator[Finding]:
    """``not_supported`` is normal for cards without NVSwitch, and an unread state says nothing."""
    echoes = seen.lines(seen.warnings(run, "nvls_failure"), 2)
    registered = [replace(finding, evidence=(*finding.evidence, *echoes)) for finding in _fabric(run)]
    yield from registered
    if not registered:
        yield from _said(run)
    yield from _between_hosts(run)
    yield from _partition(run)
    yield from _unhealthy(run)
    yield from _xid(run)


def _fabric(run: Run) -> Iterator[Finding]:
    waiting, failed = [], []
    for gpu in run.machine.gpus if run.machine else ():
        if gpu.fabric_state == "in_progress" or (gpu.fabric_state == "not_started" and gpu.nvlinks_active):
            waiting.append(gpu)
        elif gpu.fabric_state == "completed" and gpu.fabric_status is not None and not _fine(gpu.fabric_status):
            failed.append(gpu)
    if not waiting and not failed:
        return
    both = [*waiting, *failed]
    yield Finding(
        code="fabric-not-ready",
        severity="critical" if waiting else "problem",
        confidence="certain" if waiting else "likely",
        title=f"{gpus_are((gpu.index for gpu in both), 'is', 'are')} not registered with the NVSwitch fabric",
        evidence=tuple(
            evidence(f"GPU {gpu.index}: fabric {gpu.fabric_state}, {gpu.fabric_status or 'no status'}", "machine.gpus") for gpu in both[:8]
        ),
        effect="CUDA may fail with error 802 (system not yet initialized), and NCCL in its NVLink SHARP set-up.",
        remedy="Start the fabric manager of the driver's own version: `sudo systemctl restart nvidia-fabricmanager`, then reset the "
        "GPUs or reboot. In a container or virtual machine only the host can.",
        confirm="nvidia-smi -q | grep -A3 Fabric",
    )


def _fine(status: str) -> bool:
    first, _, health = status.partition(";")
    return first.strip().lower() in ("success", "ok", "n/a", "nvml_success") and not health.strip()


def _said(run: Run) -> Iterator[Finding]:
    """What NCCL, CUDA and the fabric manager say where no GPU's registration was pasted.

    The fabric manager also fails on hosts without NVSwitch ("nothing to do"): there it is not needed, and that is no fault.
    """
    # A full GPU, or CUDA that never started, say nothing of the fabric.
    nvls = [o for o in seen.warnings(run, "nvls_failure") if not _NOT_OF_THE_FABRIC.search(seen.text(o, "message"))]
    not_ready = [
        o
        for o in seen.of(run, "torch.cuda_init")
        if seen.whole(o, "code") == SYSTEM_NOT_READY or "not yet initialized" in seen.text(o, "error")
    ]
    not_ready += [o for o in seen.warnings(run, "cuda_failure") if o.values.get("code") == SYSTEM_NOT_READY]
    waiting = [o for o in seen.of(run, "nccl.fabric") if o.values.get("state") in ("in_progress", "not_started")]
    manager = seen.of(run, "fabric.manager")
    names = seen.gpu_names(run)
    needless = bool(seen.of(run, "fabric.manager", event="nothing_to_do") or seen.of(run, "fabric.nvswitch", present=False)) or (
        bool(names) and all(_NEVER_BEHIND_A_SWITCH.search(name) for name in names)
    )
    failed = [o for o in manager if o.values.get("event") in ("failed", "inactive", "version_mismatch")]
    if needless and not _has_switches(run):
        failed = []
    if not nvls and not not_ready and not waiting and not failed:
        return
    certain = bool(not_ready and failed) or bool(waiting) or any(o.values.get("event") == "version_mismatch" for o in failed)
    only_nvls = bool(nvls) and not not_ready and not waiting and not failed
    yield Finding(
        code="fabric-not-ready",
        severity="problem" if nvls or not_ready or waiting or _has_switches(run) else "warning",
        confidence="certain" if certain else "likely",
        title="NVLink SHARP cannot be set up: the NVSwitch fabric is not in order (fabric manager restarted without resetting the GPUs?)"
        if only_nvls
        else "The NVSwitch fabric is not ready",
        evidence=seen.lines((*not_ready, *waiting, *failed, *nvls)),
        effect="CUDA fails with error 802 (system not yet initialized), or NCCL with three GPUs and more while two work.",
        remedy="Start the fabric manager of the driver's own version (`sudo systemctl restart nvidia-fabricmanager`), then reset all GPUs "
        "or reboot; on B200 the NVLink subnet manager (nvlsm) must be installed too. To go on meanwhile: `export NCCL_NVLS_ENABLE=0`. In a "
        "container or virtual machine only the host can.",
        confirm="nvidia-smi -q | grep -A3 Fabric && systemctl status nvidia-fabricmanager && NCCL_NVLS_ENABLE=0 wiretax check --quick",
    )


def _between_hosts(run: Run) -> Iterator[Finding]:
    """NVLink between hosts (GB200 NVL72 and its kin) needs an IMEX channel in every process; the fabric manager is another thing."""
    broken = [o for o in seen.warnings(run, "mnnvl") if "not working" in seen.text(o, "message")]
    if not broken:
        return
    yield Finding(
        code="fabric-not-ready",
        severity="problem",
        confidence="likely",
        title="NVLink between hosts is there, but this process may not use it: its IMEX channel is missing or not set up",
        evidence=seen.lines((*seen.warnings(run, "cuda_failure"), *broken), 4),
        effect="NCCL stops at its start.",
        remedy="Give the process the channel: `ls /dev/nvidia-caps-imex-channels` must show channel0 (in a container pass that device; in "
        "Kubernetes a ComputeDomain), and `nvidia-imex-ctl -N` must show all hosts ready. To go on meanwhile, over the network between "
        "hosts: `export NCCL_MNNVL_ENABLE=0`.",
        confirm="ls /dev/nvidia-caps-imex-channels && nvidia-imex-ctl -N",
    )


def _has_switches(run: Run) -> bool:
    """Whether the machine is one with NVSwitches, as far as names and states tell."""
    if any(o.kind == "nvswitch.sxid" for o in run.observations) or seen.of(run, "fabric.nvswitch", present=True):
        return True
    if run.machine is not None and any(gpu.fabric_state in ("completed", "in_progress", "not_started") for gpu in run.machine.gpus):
        return True
    return any("HBM3" in name or "SXM" in name or "HGX" in name or "B200" in name or "B300" in name for name in seen.gpu_names(run))


def _partition(run: Run) -> Iterator[Finding]:
    """A virtual machine with NVSwitch GPUs whose partition was not activated by the host."""
    found = [
        o
        for o in seen.of(run, "gpu.fabric")
        if re.search(r"partition_assigned (?:No|False)|incorrect_configuration [^;]{0,20}partition", seen.text(o, "health"), re.IGNORECASE)
    ]
    found += [
        o
        for o in seen.of(run, "fabric.manager")
        if re.search(r"partition.{0,60}(?:fail|not|error|inactive)", seen.text(o, "message"), re.IGNORECASE)
    ]
    if found:
        yield Finding(
            code="nvswitch-partition-missing",
            severity="problem",
            confidence="likely",
            title="The NVSwitch partition of these GPUs is not active",
            evidence=seen.lines(found),
            effect="Their NVLinks lead nowhere: CUDA fails to start, or data goes over PCIe.",
            remedy="The host's fabric manager must activate the partition for this virtual machine before it boots (`fmpm -a "
            "PARTITION`); ask "
            "the provider.",
            confirm="nvidia-smi -q | grep -A12 Fabric && nvidia-smi topo -m",
        )


def _unhealthy(run: Run) -> Iterator[Finding]:
    """What the driver itself says of a GPU's place in the fabric, apart from its partition."""
    lame = [o for o in seen.of(run, "gpu.fabric") if re.search(r"bandwidth Degraded", seen.text(o, "health"), re.IGNORECASE)]
    wrong = [
        o
        for o in seen.of(run, "gpu.fabric")
        if re.search(
            r"route_unhealthy (?:True|Yes)|incorrect_configuration (?!None|No\b|False|N/A|[^;]{0,20}partition)\w",
            seen.text(o, "health"),
            re.IGNORECASE,
        )
    ]
    for code, lines, what in (
        ("nvlink-partial", lame, ("runs with a part of its NVLink bandwidth", "run with a part of their NVLink bandwidth")),
        ("fabric-not-ready", wrong, ("has a fault in its way through the fabric", "have a fault in their way through the fabric")),
    ):
        if lines:
            gpus = sorted({gpu for o in lines if (gpu := seen.whole(o, "gpu")) is not None})
            yield Finding(
                code=code,
                severity="problem",
                confidence="certain",
                title=f"{gpus_are(gpus, *what)}, says the driver",
                evidence=seen.lines(lines),
                effect="Every collective waits for it.",
                remedy="Reset the GPUs or reboot; if it stays, return the machine. In a virtual machine only the host can.",
                confirm="nvidia-smi -q | grep -A12 Fabric && nvidia-smi nvlink -s",
            )


def _xid(run: Run) -> Iterator[Finding]:
    lines = [
        *(o for o in seen.of(run, "xid") if _nvlink_code(o) is not None),
        *seen.of(run, "nvlink.fatal"),
        *(o for o in seen.of(run, "nvswitch.sxid") if o.values.get("fatal")),
        *(o for o in (*seen.of(run, "torch.cuda_error"), *seen.warnings(run, "cuda_failure")) if "NVLink error" in seen.text(o, "error")),
    ]
    if lines:
        codes = sorted({code for o in seen.of(run, "xid") if (code := _nvlink_code(o)) is not None})
        passing = codes and all("Nonfatal" in seen.text(o, "message") for o in lines)
        only_cuda = not any(o.kind in ("xid", "nvlink.fatal", "nvswitch.sxid") for o in lines)
        yield Finding(
            code="nvlink-xid",
            severity="warning" if passing else "problem",
            confidence="certain",
            title="CUDA reports an NVLink error that could not be corrected"
            if only_cuda
            else f"The kernel log holds NVLink errors (Xid {', '.join(map(str, codes)) or '74'})" + (", none fatal" if passing else "")
            if any(o.kind != "nvswitch.sxid" for o in lines)
            else "The kernel log holds fatal errors of an NVSwitch",
            evidence=seen.lines(lines, 8),
            effect="The link failed at least once; a job on these GPUs stops when it happens again.",
            remedy="Reset the GPUs or reboot; if it returns, reseat bridge or board, or return the machine.",
            confirm="sudo dmesg | grep -iE 'xid|sxid' && nvidia-smi nvlink -e",
        )
        return
    lesser = seen.of(run, "nvswitch.sxid")
    if lesser:
        codes = sorted({code for o in lesser if (code := seen.whole(o, "code")) is not None})
        yield Finding(
            code="nvlink-xid",
            severity="info",
            confidence="likely",
            title=f"The kernel log holds errors of an NVSwitch, none called fatal (SXid {', '.join(map(str, codes))})",
            evidence=seen.lines(lesser, 4),
            effect="One that passes costs nothing; one that returns ends the job that uses the link.",
            remedy="Look up the number in NVIDIA's guide to the fabric manager, and for an Xid of a GPU at the same time; reset GPUs and "
            "switches, or reboot, when it returns.",
            confirm="sudo dmesg | grep -iE 'xid|sxid' && nvidia-smi nvlink -e",
        )


def _nvlink_code(xid: Observation) -> int | None:
    """The NVLink error behind an Xid: its own, or the one before (``Xid 45 ... caused by previous Xid 145``: its program ended)."""
    match = re.search(r"caused by previous Xid (\d{1,4})", seen.text(xid, "message"))
    codes = (seen.whole(xid, "code"), int(match[1]) if match else None)
    return next((code for code in codes if code in NVLINK_XIDS), None)

"""NVSwitch machines whose fabric is not ready, and NVLink faults that the kernel logged."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge.facts import evidence, gpus_list
from wiretax.model.finding import Evidence, Finding
from wiretax.model.run import Run

NVLINK_XID = 74
"""NVIDIA's Xid list: 74 is an NVLink error."""


def check(run: Run) -> Iterator[Finding]:
    """``not_supported`` is normal for cards without NVSwitch, and an unread state says nothing."""
    yield from _fabric(run)
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
        title=f"GPU {gpus_list(gpu.index for gpu in both)} is not registered with the NVSwitch fabric",
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


def _xid(run: Run) -> Iterator[Finding]:
    seen = [
        Evidence(source=o.source, line=o.line or None, text=f"Xid {NVLINK_XID}")
        for o in run.observations
        if o.kind == "xid" and NVLINK_XID in (o.values.get("xid"), o.values.get("number"), o.values.get("code"))
    ]
    if seen:
        yield Finding(
            code="nvlink-xid",
            severity="problem",
            confidence="certain",
            title="The kernel log holds NVLink errors (Xid 74)",
            evidence=tuple(seen[:8]),
            effect="The link failed at least once; a job on these GPUs stops when it happens again.",
            remedy="Reset the GPUs or reboot; if it returns, reseat bridge or board, or return the machine.",
            confirm="sudo dmesg | grep -i 'xid.*74' && nvidia-smi nvlink -e",
        )

"""The kernel's log and the driver's complaints: GPUs that fell off the bus, memory errors, PCIe errors, a driver that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.model.finding import Confidence, Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import percent

LOST = frozenset({79})
MEMORY = frozenset({48, 64, 94, 95, 140})
PENDING = frozenset({63})
HUNG = frozenset({119, 120})
APPLICATION = frozenset({13, 31, 43, 45, 68, 109})
ECHO = frozenset({154})
"""Numbers of NVIDIA's Xid list (https://docs.nvidia.com/deploy/xid-errors): 79 fallen off the bus; 48, 94, 95 uncorrectable memory
errors, 63 and 64 row remapping, 140 unrecovered ECC; 119 and 120 the GPU's own processor does not answer; 13, 31, 43, 45, 68 and
109 (a time-out of the switch between programs) mostly follow from a fault of the program or from its end; 154 only says what to do
about the one before it."""

UNKNOWN_ERROR = 999
"""``cudaErrorUnknown``."""


def check(run: Run) -> Iterator[Finding]:
    """Hardware faults are named as such: no NCCL setting cures them."""
    xids = seen.of(run, "xid")
    yield from _lost(run, xids)
    yield from _memory(run, xids)
    yield from _hung(run)
    yield from _pcie(run)
    yield from _driver(run)
    yield from _unknown_error(run, xids)
    yield from _application(xids)
    yield from _memory_fault(run)


def _coded(xids: tuple[Observation, ...], codes: frozenset[int]) -> list[Observation]:
    return [o for o in xids if seen.whole(o, "code") in codes]


def _lost(run: Run, xids: tuple[Observation, ...]) -> Iterator[Finding]:
    told = [*_coded(xids, LOST), *seen.of(run, "gpu.lost")]
    lost = told or _not_recovered(run)
    if not lost:
        return
    where = sorted({seen.text(o, "pci_bus_id") or seen.text(o, "device") for o in lost} - {""})
    errors = [o for o in seen.of(run, "pcie.aer") if o.values.get("severity") != "corrected"]
    yield Finding(
        code="gpu-lost",
        severity="critical",
        confidence="certain" if told else "likely",
        title=f"{'GPU ' + ', '.join(where[:4]) if where else 'A GPU'} fell off the bus"
        + ("" if told else ": its PCIe link failed, and the kernel could not bring it back"),
        evidence=seen.lines((*lost, *errors)),
        effect="It is gone until the machine is power-cycled; jobs that used it stop or hang, and NCCL's time-outs are only the echo.",
        remedy=(
            "PCIe errors came with it, so look at the link first: riser, slot, cable and its power; try another slot, or a lower "
            "generation "
            "in the BIOS."
            if errors
            else "No PCIe error came with it, so think of power first (supply, cables, spikes: `sudo nvidia-smi -pl WATTS`), then of "
            "driver and "
            "card."
        )
        + " Power-cycle; on a rented machine give it back.",
        confirm="nvidia-smi -L && sudo dmesg | grep -iE 'xid|aer'",
    )


def _not_recovered(run: Run) -> list[Observation]:
    """GPUs that the kernel gave up after an error of their link that is no corrected one."""
    grave = any(o.values.get("severity") != "corrected" for o in seen.of(run, "pcie.aer"))
    return [o for o in seen.of(run, "pcie.not_recovered") if grave and seen.text(o, "driver") in ("nvidia", "amdgpu")]


def _memory(run: Run, xids: tuple[Observation, ...]) -> Iterator[Finding]:
    bad = [
        *_coded(xids, MEMORY),
        *(o for o in seen.of(run, "gpu.remapped_rows") if o.values.get("failed") not in (None, False, "No", 0)),
        *(o for o in seen.of(run, "torch.cuda_error") if "ECC" in seen.text(o, "error")),
        *seen.of(run, "amd.ras", block="umc"),
    ]
    pending = [
        *_coded(xids, PENDING),
        *(o for o in seen.of(run, "gpu.remapped_rows") if o.values.get("pending") not in (None, False, "No", 0)),
        *(o for o in seen.of(run, "gpu.retired_pages") if o.values.get("pending") not in (None, False, "No", 0)),
    ]
    if bad:
        yield Finding(
            code="ecc-uncorrectable",
            severity="problem",
            confidence="certain",
            title="A GPU's memory has uncorrectable errors",
            evidence=seen.lines((*bad, *pending)),
            effect="A job that touches the bad rows is killed, and the other ranks hang.",
            remedy="Drain the GPU and reset it (`sudo nvidia-smi --gpu-reset -i INDEX`); replace it when the count grows or remapping "
            "failed.",
            confirm="nvidia-smi -q -d ECC,ROW_REMAPPER",
        )
    elif pending:
        yield Finding(
            code="ecc-uncorrectable",
            severity="info",
            confidence="certain",
            title="A GPU repaired its memory, and the repair waits for a reset",
            evidence=seen.lines(pending),
            effect="Nothing yet; the rows are replaced at the next reset.",
            remedy="Reset the GPU when it is free: `sudo nvidia-smi --gpu-reset -i INDEX`.",
            confirm="nvidia-smi -q -d ROW_REMAPPER",
        )


def signs_of_a_hung_driver(run: Run) -> tuple[list[Observation], list[Observation], tuple[Observation, ...]]:
    """Xids of a GPU that does not answer, tasks that wait for the driver, and commands that did not come back."""
    stuck = _coded(seen.of(run, "xid"), HUNG)
    tasks = [o for o in seen.of(run, "kernel.hung_task") if "nv" in seen.text(o, "task").lower() or "cuda" in seen.text(o, "task").lower()]
    return stuck, tasks, seen.of(run, "driver.failure", failure="hung")


def _hung(run: Run) -> Iterator[Finding]:
    stuck, tasks, silent = signs_of_a_hung_driver(run)
    if not stuck and not tasks and not silent:
        return
    yield Finding(
        code="gpu-hung",
        severity="critical",
        confidence="certain" if stuck or silent else "likely",
        title="A GPU or its driver no longer answers",
        evidence=seen.lines((*stuck, *silent, *tasks)),
        effect="Everything that touches that GPU stands still; its processes cannot be killed.",
        remedy="Reboot the machine, power-cycle if that does not help; upgrade the driver when it comes back. On a rented machine give "
        "it back.",
        confirm="timeout 20 nvidia-smi",
    )


def _pcie(run: Run) -> Iterator[Finding]:
    errors = seen.of(run, "pcie.aer")
    if errors and not _coded(seen.of(run, "xid"), LOST) and not seen.of(run, "gpu.lost") and not _not_recovered(run):
        grave = [o for o in errors if o.values.get("severity") != "corrected"]
        many = sum(seen.whole(o, "count") or 1 for o in errors)
        confidence: Confidence = "likely"
        yield Finding(
            code="pcie-errors",
            severity="warning" if grave or many >= 10 else "info",
            confidence=confidence,
            title=f"The kernel counts PCIe errors ({many} in this text)" + ("" if grave else ", all corrected"),
            evidence=seen.lines((*grave, *errors)),
            effect="Each is sent again and costs time; a link that gets worse loses its GPU (Xid 79).",
            remedy="Reseat card and riser, or try a lower PCIe generation for that slot in the BIOS; watch whether they grow.",
            confirm="sudo dmesg | grep -i aer | tail",
        )
    narrow = [
        o
        for o in seen.of(run, "pcie.bandwidth_limited")
        if (seen.whole(o, "width") or 0) < (seen.whole(o, "capable_width") or 0) and (seen.whole(o, "width") or 0) > 0
    ]
    if narrow:
        now, most = seen.whole(narrow[0], "width") or 0, seen.whole(narrow[0], "capable_width") or 1
        yield Finding(
            code="pcie-width-low",
            severity="problem" if now / most < 0.3 else "warning",
            confidence="likely",
            title=f"The kernel found a PCIe link of x{now} where x{most} is possible ({seen.text(narrow[0], 'device')})",
            evidence=seen.lines(narrow),
            effect=f"Everything over that link runs at most at {percent(now / most)} of what it could.",
            remedy="Move the card to a full-width slot, or reseat card and riser.",
            confirm="nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
        )


def _unknown_error(run: Run, xids: tuple[Observation, ...]) -> Iterator[Finding]:
    """CUDA's own catch-all, which NCCL and torch only pass on; the kernel's log has the cause if anything has."""
    failed = [o for o in seen.warnings(run, "cuda_failure") if seen.whole(o, "code") == UNKNOWN_ERROR]
    if failed and not xids and not seen.of(run, "gpu.lost"):
        yield Finding(
            code="driver-error",
            severity="info",
            confidence="possible",
            title="CUDA failed with error 999 (unknown): the fault lies below NCCL, in the driver or its state",
            evidence=seen.lines(failed, 3),
            effect="The job stops; the number does not say why.",
            remedy="Look for the driver's own words at that time: `sudo dmesg | grep -iE 'nvrm|xid'`. If there are none, reload its memory "
            "module (`sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`) or reboot; in WSL2 update the Windows driver, then `wsl "
            "--shutdown`.",
            confirm="sudo dmesg | grep -iE 'nvrm|xid' | tail",
        )


def _driver(run: Run) -> Iterator[Finding]:
    """Failures of the driver that the machine's own state does not already say."""
    state = run.machine.driver_state if run.machine else None
    mismatch = [
        *seen.of(run, "driver.failure", failure="mismatch"),
        *(
            o
            for o in seen.of(run, "torch.cuda_init")
            if seen.whole(o, "code") == 803 or "unsupported display driver" in seen.text(o, "error")
        ),
    ]
    if mismatch and state != "mismatch":
        yield Finding(
            code="driver-library-mismatch",
            severity="critical",
            confidence="certain",
            title="The driver's library and its kernel module are of different versions",
            evidence=seen.lines(mismatch),
            effect="No CUDA program starts.",
            remedy="Reboot, or reload the module: `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`. In a "
            "container, recreate it so that it gets the host's library.",
            confirm="nvidia-smi",
        )
    failed = [
        o
        for o in seen.of(run, "driver.failure")
        if seen.text(o, "failure") in ("init_failed", "bar_invalid", "unknown_error") and state not in ("error", "mismatch", "hung")
    ]
    if failed:
        yield Finding(
            code="driver-error",
            severity="problem",
            confidence="likely",
            title="The driver could not start a GPU",
            evidence=seen.lines(failed),
            effect="That GPU is missing from nvidia-smi and CUDA.",
            remedy="Read the lines around it; for 'BAR' errors switch 'Above 4G decoding' on in the BIOS; else reseat the card, "
            "upgrade the driver.",
            confirm="sudo dmesg | grep -i nvrm",
        )
    absent = [o for o in seen.of(run, "driver.failure") if seen.text(o, "failure") in ("no_devices", "absent")]
    absent += [o for o in seen.of(run, "torch.cuda_init") if _sees_no_gpu(seen.text(o, "error"))]
    if absent and not (run.machine and run.machine.gpus):
        yield Finding(
            code="no-gpu",
            severity="info",
            confidence="certain",
            title="The driver or CUDA sees no GPU there",
            evidence=seen.lines(absent),
            effect="Nothing on that machine, or in that container, can use a GPU.",
            remedy="In a container start it with `--gpus all` (AMD: `--device=/dev/kfd --device=/dev/dri --group-add video`, and the group "
            "that owns /dev/kfd); look at CUDA_VISIBLE_DEVICES; on the host: `nvidia-smi` and `lspci | "
            "grep -i nvidia`.",
            confirm="nvidia-smi -L",
        )


def _sees_no_gpu(error: str) -> bool:
    """Whether a CUDA message says that there is no GPU or no driver at all."""
    return "No CUDA GPUs" in error or "No HIP GPUs" in error or "Found no NVIDIA driver" in error or "no CUDA-capable device" in error


def _application(xids: tuple[Observation, ...]) -> Iterator[Finding]:
    # Xid 45 that names another as its cause is only the end of that one's victims.
    found = [o for o in _coded(xids, APPLICATION) if seen.whole(o, "previous") is None]
    if not found or len(found) < len([o for o in xids if seen.whole(o, "code") not in ECHO]):
        return
    codes = ", ".join(str(code) for code in sorted({seen.whole(o, "code") or 0 for o in found}))
    yield Finding(
        code="gpu-application-error",
        severity="info",
        confidence="likely",
        title=f"The kernel logged Xid {codes}: mostly a fault of the program, or its end",
        evidence=seen.lines(found),
        effect="The process lost its GPU context; other ranks wait for it.",
        remedy="Look for an illegal memory access in the program's own log (`CUDA_LAUNCH_BLOCKING=1`); if it moves with the card, test "
        "the card.",
        confirm="sudo dmesg | grep -i xid",
    )


def _memory_fault(run: Run) -> Iterator[Finding]:
    faults = seen.of(run, "amd.memory_fault")
    if faults:
        yield Finding(
            code="gpu-application-error",
            severity="info",
            confidence="likely",
            title="A program touched memory of an AMD GPU that is not mapped: mostly a fault of the program or of a library's version",
            evidence=seen.lines(faults, 3),
            effect="That process ended; other ranks wait for it.",
            remedy="Try one GPU alone, then a ROCm and torch of matching releases; where only several GPUs fail, `NCCL_P2P_DISABLE=1`.",
            confirm="HIP_LAUNCH_BLOCKING=1 AMD_LOG_LEVEL=3 python ...",
        )

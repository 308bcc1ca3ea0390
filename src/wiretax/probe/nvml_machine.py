"""All GPUs and pairs as NVML sees them. One bad GPU never hides the others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from wiretax.model.machine import Gpu, GpuPair, P2pStatus, PcieLink
from wiretax.probe.nvml import (
    DEAD,
    LOAD_QUESTIONS,
    Handle,
    NvmlSession,
    Sheet,
    Unread,
    call,
    error_text,
    fabric,
    first_of,
    pci_address,
    positive,
    text,
)
from wiretax.probe.nvml_answer import NvmlAnswer
from wiretax.probe.nvml_links import read_links
from wiretax.probe.nvml_words import (
    ANCESTOR_PATHS,
    FABRIC_STATES,
    P2P_CODES,
    P2pIndex,
    ReturnCode,
    cuda_version,
    fabric_troubles,
    list_text,
    nvlink_path,
)

MASK_WORDS = 64
"""64-bit words of an affinity mask: 4096 CPUs, more than any host has."""


def read_machine(progress: Callable[[NvmlAnswer], None] = lambda _: None) -> NvmlAnswer:
    """Asks NVML for everything it knows.

    Args:
        progress: called before each part with what is known so far and what comes next, so that a hang loses nothing.

    Returns:
        The whole answer; ``driver_state`` says whether NVML could be asked at all.
    """
    progress(NvmlAnswer(driver_state="error", asking="NVML to start"))
    with NvmlSession() as session:
        if session.state != "ok":
            return NvmlAnswer(driver_state=session.state, driver_detail=session.detail, missing=_no_versions(session.detail or ""))
        return _read_open(session, progress)


def _no_versions(reason: str) -> dict[str, str]:
    return {"driver": reason, "cuda": reason}


def _read_open(session: NvmlSession, progress: Callable[[NvmlAnswer], None]) -> NvmlAnswer:
    sheet = Sheet()
    sheet.read("driver", lambda: text(call("nvmlSystemGetDriverVersion")))
    sheet.read(
        "cuda",
        lambda: cuda_version(positive(first_of(("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")))),
    )
    gpus: list[Gpu] = []
    mig_devices: dict[str, int] = {}

    def so_far(asking: str | None, pairs: tuple[GpuPair, ...] = ()) -> NvmlAnswer:
        return NvmlAnswer(
            driver_state="ok",
            gpus=tuple(gpus),
            pairs=pairs,
            mig_devices=dict(mig_devices),
            missing=dict(sheet.missing),
            asking=asking,
            **sheet.values,
        )

    progress(so_far("how many GPUs there are"))
    try:
        count = session.count()
    except Unread as refusal:
        return NvmlAnswer(
            driver_state="error",
            driver_detail=f"NVML starts but does not say how many GPUs there are ({refusal.reason}).",
            missing=sheet.missing,
            **sheet.values,
        )
    for index in range(count):
        progress(so_far(f"GPU {index}"))
        gpus.append(_read_gpu(session, index))
        if gpus[-1].mig == "enabled":
            mig_devices.update(_read_mig_devices(session.handle(index), index))
    progress(so_far("the pairs"))
    return so_far(None, _read_pairs(session, gpus))


def _read_gpu(session: NvmlSession, index: int) -> Gpu:
    sheet = Sheet()
    try:
        handle = session.handle(index)
    except Unread as refusal:
        # Not "lost" for other codes: a forbidden GPU (a container's device rules) is healthy and somebody else's.
        return _unread_gpu(index, "lost" if refusal.code == ReturnCode.GPU_IS_LOST else "unusable", refusal.reason)
    read = sheet.read
    read("pci_bus_id", lambda: pci_address(call("nvmlDeviceGetPciInfo", handle)))
    read("name", lambda: text(call("nvmlDeviceGetName", handle)))
    read("uuid", lambda: text(call("nvmlDeviceGetUUID", handle)))
    _read_memory(sheet, handle)
    for field, question in LOAD_QUESTIONS.items():
        if not field.startswith("pcie"):
            read(field, lambda question=question: question(handle))  # type: ignore[misc]
    read("max_sm_clock_mhz", lambda: positive(int(call("nvmlDeviceGetMaxClockInfo", handle, 1))))
    read("power_limit_watts", lambda: first_of(("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), handle) / 1000)
    read("compute_capability", lambda: ".".join(str(part) for part in call("nvmlDeviceGetCudaComputeCapability", handle)))
    read("mig", lambda: "enabled" if call("nvmlDeviceGetMigMode", handle)[0] else "disabled")
    read("ecc_uncorrected_errors", lambda: int(call("nvmlDeviceGetTotalEccErrors", handle, 1, 0)))
    read("utilization_fraction", lambda: _fraction(call("nvmlDeviceGetUtilizationRates", handle).gpu))
    read("display_attached", lambda: _display(handle))
    read("other_processes", lambda: _other_processes(handle))
    read("numa_node", lambda: _single_node(call("nvmlDeviceGetMemoryAffinity", handle, MASK_WORDS, 0)))
    read("cpu_affinity", lambda: _cpu_list(call("nvmlDeviceGetCpuAffinity", handle, MASK_WORDS)))
    _read_fabric(sheet, handle)
    pcie = _read_pcie(sheet, handle)
    links = read("nvlinks", lambda: read_links(handle))
    if links is None:
        sheet.missing["nvlinks_active"] = sheet.missing.pop("nvlinks")
    else:
        sheet.values["nvlinks_active"] = sum(link.active for link in links)
    if sheet.dead is not None:
        sheet.values["status"] = DEAD[sheet.dead.code]
        sheet.values["status_reason"] = sheet.dead.reason
    return Gpu(index=index, pcie=pcie, missing=sheet.missing, **sheet.values)


def _unread_gpu(index: int, status: Any, reason: str) -> Gpu:
    unknown = [field.name for field in fields(Gpu) if field.default is None and field.name not in Gpu.none_is_an_answer]
    pcie = PcieLink(missing=dict.fromkeys(("generation", "width", "max_generation", "max_width"), reason))
    return Gpu(index=index, status=status, status_reason=reason, pcie=pcie, missing=dict.fromkeys(unknown, reason))


def _read_memory(sheet: Sheet, handle: Handle) -> None:
    def question() -> Any:
        try:  # version 2 keeps the driver's own reserve out of "used", as nvidia-smi prints it
            return call("nvmlDeviceGetMemoryInfo", handle, 0x02000028)
        except Unread as refusal:
            if refusal.code in DEAD:
                raise
            return call("nvmlDeviceGetMemoryInfo", handle)

    memory = sheet.read("memory_bytes", question)
    if memory is None:
        sheet.missing["memory_used_bytes"] = sheet.missing["memory_bytes"]
    else:
        sheet.values.update(memory_bytes=int(memory.total), memory_used_bytes=int(memory.used))


def _read_pcie(sheet: Sheet, handle: Handle) -> PcieLink:
    link = Sheet()
    link.dead = sheet.dead
    link.read("generation", lambda: LOAD_QUESTIONS["pcie_generation"](handle))
    link.read("width", lambda: LOAD_QUESTIONS["pcie_width"](handle))
    link.read("max_generation", lambda: positive(call("nvmlDeviceGetMaxPcieLinkGeneration", handle)))
    link.read("max_width", lambda: positive(call("nvmlDeviceGetMaxPcieLinkWidth", handle)))
    sheet.dead = link.dead
    return PcieLink(missing=link.missing, **link.values)


def _read_fabric(sheet: Sheet, handle: Handle) -> None:
    answer = sheet.read("fabric_state", lambda: fabric(handle))
    if answer is None:
        sheet.missing["fabric_status"] = sheet.missing["fabric_state"]
        return
    state, status, health = answer
    if state >= len(FABRIC_STATES):
        del sheet.values["fabric_state"]
        sheet.missing["fabric_state"] = sheet.missing["fabric_status"] = f"NVML: fabric state {state} has no name yet"
        return
    sheet.values["fabric_state"] = FABRIC_STATES[state]
    if FABRIC_STATES[state] != "completed":
        sheet.missing["fabric_status"] = "this GPU has no NVSwitch fabric" if state == 0 else "known once registration is completed"
        return
    words = "success" if status == 0 else error_text(status).lower()
    troubles = fabric_troubles(health)
    sheet.values["fabric_status"] = f"{words}; health: {', '.join(troubles)}" if troubles else words


def _read_mig_devices(handle: Handle, index: int) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        for slot in range(int(call("nvmlDeviceGetMaxMigDeviceCount", handle))):
            try:
                found[text(call("nvmlDeviceGetUUID", call("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)))] = index
            except Unread:
                continue  # an empty slot
    except Unread:
        return found
    return found


def _read_pairs(session: NvmlSession, gpus: Sequence[Gpu]) -> tuple[GpuPair, ...]:
    return tuple(_read_pair(session, source, target) for source in gpus for target in gpus if source.index != target.index)


def _read_pair(session: NvmlSession, source: Gpu, target: Gpu) -> GpuPair:
    unwell = next((gpu for gpu in (source, target) if gpu.status != "ok"), None)
    if unwell is not None:
        reason = f"GPU {unwell.index} is {unwell.status}"
        p2p = P2pStatus(missing=dict.fromkeys(("read", "write", "nvlink", "atomics", "pci"), reason))
        return GpuPair(source_gpu=source.index, target_gpu=target.index, p2p=p2p, missing={"path": reason})
    here, there = session.handle(source.index), session.handle(target.index)
    codes = Sheet()
    for question in P2pIndex:
        codes.read(question.name.lower(), lambda question=question: _p2p_code(call("nvmlDeviceGetP2PStatus", here, there, int(question))))  # type: ignore[misc]
    p2p = P2pStatus(missing=codes.missing, **codes.values)
    path = nvlink_path(source, target, nvlink_peers=p2p.nvlink == "OK")
    missing = {}
    if path is None:
        try:
            path = _ancestor_path(call("nvmlDeviceGetTopologyCommonAncestor", here, there))
        except Unread as refusal:
            missing["path"] = refusal.reason
    return GpuPair(source_gpu=source.index, target_gpu=target.index, path=path, p2p=p2p, missing=missing)


def _p2p_code(code: int) -> str:
    if not 0 <= code < len(P2P_CODES):
        raise Unread(f"NVML: P2P status {code} has no name yet")
    return P2P_CODES[code]


def _ancestor_path(level: int) -> str:
    if level not in ANCESTOR_PATHS:
        raise Unread(f"NVML: topology level {level} has no name yet")
    return ANCESTOR_PATHS[level]


def _fraction(percent: int) -> float:
    if not 0 <= percent <= 100:
        raise Unread(f"NVML: answered {percent} %")
    return percent / 100


def _display(handle: Handle) -> bool:
    """Newer drivers withdraw the question about the connector; a display that is in use still tells."""
    try:
        return bool(call("nvmlDeviceGetDisplayMode", handle))
    except Unread as refusal:
        if call("nvmlDeviceGetDisplayActive", handle):
            return True
        raise Unread(f"{refusal.reason}; no display is in use") from None


def _other_processes(handle: Handle) -> int:
    processes = first_of(
        ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"),
        handle,
    )
    pids = {int(process.pid) for process in processes}
    ours = _ancestors(os.getpid())
    # The process that asked (our parent) may itself hold the GPU, and so may ranks it started.
    return sum(1 for pid in pids if pid not in ours and os.getppid() not in _ancestors(pid))


def _ancestors(pid: int) -> set[int]:
    """The process and those above it, up to but without init."""
    chain: set[int] = set()
    while pid > 1 and pid not in chain:
        chain.add(pid)
        try:
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except OSError:
            break
        parent = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
        pid = int(parent.group(1)) if parent else 0
    return chain


def _bits(mask: Sequence[int]) -> list[int]:
    return [word * 64 + bit for word, value in enumerate(mask) for bit in range(64) if value >> bit & 1]


def _cpu_list(mask: Sequence[int]) -> str:
    cpus = _bits(mask)
    if not cpus:
        raise Unread("NVML: an empty CPU mask")
    return list_text(cpus)


def _single_node(mask: Sequence[int]) -> int:
    nodes = _bits(mask)
    if len(nodes) != 1:
        raise Unread(f"NVML: near {len(nodes)} NUMA nodes")
    return nodes[0]

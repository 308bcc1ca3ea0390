"""The whole machine as it is now: NVML asked in a child, Linux's files, software, surroundings, joined into one document."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from wiretax.data.gpus import find_gpu
from wiretax.model.machine import Gpu, GpuPair, Machine, Software, Surroundings
from wiretax.probe.ask_nvml import DEADLINE_SECONDS, Question
from wiretax.probe.cuda_order import cuda_ordinals
from wiretax.probe.files import read_word
from wiretax.probe.nvml_answer import NvmlAnswer
from wiretax.probe.nvml_words import bus_id
from wiretax.probe.software import NEEDS_RANK, kernel_module_version, library_version, read_software
from wiretax.probe.surroundings import read_surroundings
from wiretax.probe.sysfs import PciGpu, iommu_mode, numa, pci_gpus, pcie_path


def inspect_machine(
    *, deadline_seconds: float = DEADLINE_SECONDS, root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> Machine:
    """Looks at this machine, read-only and without load. Never raises for a bad machine.

    Args:
        deadline_seconds: how long the driver may take to answer; a hung one ends as ``driver_state="hung"``.
        root: where ``/proc``, ``/sys``, ``/dev`` and ``/etc`` are read; NVML is always that of the running system.
        environment: of the process, also given to the child that asks NVML.

    Returns:
        The machine, ``origin="live"``. Everything missing has its reason; ``nccl_loaded`` and ``peer_access`` need a rank.
    """
    with Question(deadline_seconds, environment) as question:
        # The child spends its time starting Python and the driver; the files are read meanwhile.
        software = read_software(root=root, environment=environment)
        surroundings = read_surroundings(root=root, environment=environment)
        listed = pci_gpus(root)
        answer = question.answer()
    answer = explain_state(answer, listed, root)
    gpus = _complete_gpus(answer, listed, root, environment)
    pairs = tuple(_complete_pair(pair) for pair in answer.pairs)
    hostname = read_word(root / "proc/sys/kernel/hostname") or platform.node() or None
    return Machine(
        hostname=hostname,
        origin="live",
        gpus=gpus,
        pairs=pairs,
        software=_complete_software(software, answer, gpus, pairs),
        surroundings=_complete_surroundings(surroundings, gpus, root),
        driver_state=answer.driver_state,
        driver_detail=answer.driver_detail,
        missing={} if hostname else {"hostname": "the system has no name"},
    )


def explain_state(answer: NvmlAnswer, listed: Sequence[PciGpu], root: Path = Path("/")) -> NvmlAnswer:
    """Tells "no driver because no GPU" from "a GPU is there, but unusable", and names both versions of a mismatch.

    Args:
        answer: NVML's.
        listed: the GPUs on the PCI bus.
        root: where ``/proc`` is.
    """
    detail = answer.driver_detail or ""
    module = kernel_module_version(root)
    if answer.driver_state == "mismatch":
        library = library_version(root)
        versions = ", ".join(f"{what} {version}" for what, version in (("kernel module", module), ("library", library)) if version)
        if versions:
            detail = f"{detail} ({versions})"
        return replace(answer, driver_detail=detail)
    if answer.driver_state != "absent":
        return answer
    nvidia = [gpu for gpu in listed if gpu.vendor == "NVIDIA"]
    if nvidia:
        drivers = sorted({gpu.driver for gpu in nvidia if gpu.driver})
        held = f", held by the driver {' and '.join(drivers)}" if drivers else ", held by no driver"
        detail = f"{detail} Linux lists {len(nvidia)} NVIDIA GPU(s) ({nvidia[0].address}, ...){held}."
        return replace(answer, driver_state="error", driver_detail=detail)
    if module:
        detail = f"{detail} The kernel module {module} is loaded: is this a container started without GPUs (--gpus all)?"
        return replace(answer, driver_state="error", driver_detail=detail)
    others = [gpu for gpu in listed if gpu.vendor != "NVIDIA"]
    if others:
        detail = f"{detail} Linux lists {len(others)} {others[0].vendor} GPU(s), which are not read here."
    return replace(answer, driver_detail=detail)


def _complete_gpus(answer: NvmlAnswer, listed: Sequence[PciGpu], root: Path, environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    gpus = _address_of_the_lost(answer.gpus, listed)
    ordinals = cuda_ordinals(gpus, environment, answer.mig_devices)
    return tuple(_complete_gpu(gpu, ordinals[gpu.index], root) for gpu in gpus)


def _complete_gpu(gpu: Gpu, ordinal: int | str, root: Path) -> Gpu:
    missing = dict(gpu.missing)
    missing.pop("cuda_ordinal", None)
    if isinstance(ordinal, str):
        missing["cuda_ordinal"] = ordinal
    gpu = replace(gpu, cuda_ordinal=ordinal if isinstance(ordinal, int) else None)
    if gpu.pci_bus_id is None:
        missing["pcie_path"] = "the GPU's PCI address is not known"
        return replace(gpu, missing=missing)
    path = pcie_path(gpu.pci_bus_id, root)
    if not path.hops:
        missing["pcie_path"] = path.reason
    place = numa(gpu.pci_bus_id, root)
    if gpu.numa_node is None and place.node is not None:
        gpu = replace(gpu, numa_node=place.node)
        missing.pop("numa_node", None)
    if gpu.cpu_affinity is None and place.cpus is not None:
        gpu = replace(gpu, cpu_affinity=place.cpus)
        missing.pop("cpu_affinity", None)
    return replace(gpu, pcie_path=path.hops, missing=missing)


def _address_of_the_lost(gpus: Sequence[Gpu], listed: Sequence[PciGpu]) -> tuple[Gpu, ...]:
    """A single GPU that NVML no longer names and the single PCI device nobody else has are one and the same: the slot to look at."""
    nameless = [gpu for gpu in gpus if gpu.pci_bus_id is None]
    taken = {gpu.pci_bus_id for gpu in gpus}
    free = [bus_id(gpu.address) for gpu in listed if gpu.vendor == "NVIDIA" and bus_id(gpu.address) not in taken]
    if len(nameless) != 1 or len(free) != 1 or len(gpus) < 2:
        return tuple(gpus)
    lost = nameless[0]
    missing = {name: reason for name, reason in lost.missing.items() if name != "pci_bus_id"}
    return tuple(replace(lost, pci_bus_id=free[0], missing=missing) if gpu is lost else gpu for gpu in gpus)


def _complete_pair(pair: GpuPair) -> GpuPair:
    return replace(pair, missing={**pair.missing, "peer_access": NEEDS_RANK})


def _complete_software(software: Software, answer: NvmlAnswer, gpus: Sequence[Gpu], pairs: Sequence[GpuPair]) -> Software:
    missing = dict(software.missing)
    driver = answer.driver or software.driver
    for name, value in (("driver", driver), ("cuda", answer.cuda)):
        if value is None:
            missing[name] = answer.missing.get(name) or answer.driver_detail or "NVML did not say"
    flavour = "unofficial" if _offers_what_no_stock_driver_does(gpus, pairs) else software.driver_flavour
    return replace(software, driver=driver, cuda=answer.cuda, driver_flavour=flavour, missing=missing)


def _offers_what_no_stock_driver_does(gpus: Sequence[Gpu], pairs: Sequence[GpuPair]) -> bool:
    """P2P over PCIe between GPUs whose stock driver never offers it."""
    names = {gpu.index: gpu.name for gpu in gpus}
    for pair in pairs:
        if pair.path is not None and not pair.path.startswith("NV") and pair.p2p.read == "OK" and pair.p2p.write == "OK":
            facts = [find_gpu(names.get(index) or "") for index in (pair.source_gpu, pair.target_gpu)]
            if all(fact is not None and fact.stock_driver_p2p_over_pcie is False for fact in facts):
                return True
    return False


def _complete_surroundings(surroundings: Surroundings, gpus: Sequence[Gpu], root: Path) -> Surroundings:
    missing = dict(surroundings.missing)
    inside = surroundings.virtual_machine not in (None, "none")
    addresses = [gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id is not None]
    iommu, reason = iommu_mode(addresses, root)
    if inside and iommu in (None, "off"):
        iommu, reason = None, "a virtual machine: the host's IOMMU cannot be seen from inside"
    if iommu is None:
        missing["iommu"] = reason
    acs, reason = _acs(gpus)
    if inside and acs != "on":
        acs, reason = None, "a virtual machine: the host's switches cannot be seen from inside"
    if acs is None:
        missing["acs"] = reason
    return replace(surroundings, iommu=iommu, acs=acs, missing=missing)


def _acs(gpus: Sequence[Gpu]) -> tuple[Literal["on", "off"] | None, str]:
    bridges = [hop for gpu in gpus for hop in gpu.pcie_path if hop.kind != "gpu"]
    if any(hop.acs_redirects for hop in bridges):
        return "on", ""
    unread = next((hop.missing.get("acs_redirects", "") for hop in bridges if hop.acs_redirects is None), None)
    if unread is not None:
        return None, unread
    if not bridges:
        return None, "there is no GPU" if not gpus else "Linux shows no bridge above a GPU"
    return "off", ""

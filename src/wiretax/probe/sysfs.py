"""What Linux says of PCIe, NUMA and the IOMMU. Needs no driver and no rights, except for ACS.

All paths hang under ``root``, so that a recorded tree can stand in for ``/``.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wiretax.model.machine import PcieHop, PcieLink
from wiretax.probe.files import count_list, names, read_bytes, read_int, read_text, read_word

IommuMode = Literal["off", "passthrough", "translated"]
HopKind = Literal["gpu", "switch_down", "switch_up", "bridge", "root_port", "unknown"]

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
"""GT/s per lane to the PCIe generation (PCI Express base specification)."""

VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD"}
_GPU_CLASSES = (0x0300, 0x0302, 0x0380, 0x1200)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NO_WIDTH = (0, 63, 255)
"""What Linux and lspci print where the port reports none."""
_PORT_KINDS: dict[int, HopKind] = {0x4: "root_port", 0x5: "switch_up", 0x6: "switch_down", 0x7: "bridge", 0x8: "bridge"}
_PCIE_CAPABILITY, _ACS_CAPABILITY = 0x10, 0x000D
_ACS_REDIRECTS = 0x04 | 0x08  # P2P request redirect, P2P completion redirect (PCIe base specification, 7.7.11.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """A GPU as Linux lists it, whether or not a driver speaks for it."""

    address: str
    vendor: str
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciePath:
    """The hops from a GPU to its root port, or why there are none."""

    hops: tuple[PcieHop, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numa:
    """Where a GPU hangs in the host."""

    node: int | None = None
    cpus: str | None = None
    missing: dict[str, str] = field(default_factory=dict)


def sysfs_address(bus_id: str) -> str:
    """An address as Linux names it (``0000:e1:00.0``) from one as nvidia-smi prints it (``00000000:E1:00.0``)."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return bus_id.strip().lower()


def pcie_generation(speed: str | None) -> int | None:
    """The PCIe generation of a lane's speed as Linux, lspci and NCCL write it (``16.0 GT/s PCIe``, ``16GT/s``, ``16``)."""
    match = re.match(r"\d{1,3}(?:\.\d{1,3})?(?![\d.])", speed or "")
    return _GENERATIONS.get(float(match.group())) if match else None


def pci_gpus(root: Path = Path("/")) -> tuple[PciGpu, ...]:
    """NVIDIA and AMD GPUs on the PCI bus, in order of address; empty where Linux shows none."""
    devices = root / "sys/bus/pci/devices"
    found = []
    for address in names(devices) or ():
        vendor = VENDORS.get(read_int(devices / address / "vendor", 16) or 0)
        kind = read_int(devices / address / "class", 16)
        if vendor and kind is not None and kind >> 8 in _GPU_CLASSES:
            try:
                driver: str | None = os.path.basename(os.readlink(devices / address / "driver"))
            except OSError:
                driver = None
            found.append(PciGpu(address=address, vendor=vendor, driver=driver))
    return tuple(found)


def pcie_path(bus_id: str, root: Path = Path("/")) -> PciePath:
    """Every link from the GPU up to the root port: a x4 slot behind a switch shows here and nowhere else.

    Args:
        bus_id: the GPU's address, as nvidia-smi or Linux writes it.
        root: where ``/sys`` is.

    Returns:
        The hops, the GPU first. Each switch port has its own end of a link, so a link is seen from both of its ends.
    """
    device = root / "sys/bus/pci/devices" / sysfs_address(bus_id)
    if not device.exists():
        return PciePath(reason=f"Linux shows no PCI device {sysfs_address(bus_id)}")
    real = Path(os.path.realpath(device))
    chain = []
    for folder in (real, *real.parents):
        if not _ADDRESS.fullmatch(folder.name):
            break
        chain.append(folder)
    if len(chain) < 2:
        return PciePath(reason="Linux shows no bridge above the GPU, as in most virtual machines")
    return PciePath(hops=tuple(_hop(folder, place, len(chain)) for place, folder in enumerate(chain)))


def numa(bus_id: str, root: Path = Path("/")) -> Numa:
    """NUMA node and near CPUs of a GPU; on a host with one node that node is the answer, whatever the device says."""
    device = root / "sys/bus/pci/devices" / sysfs_address(bus_id)
    node = read_int(device / "numa_node")
    cpus = read_word(device / "local_cpulist")
    missing = {}
    if node is None or node < 0:
        if numa_nodes(root) == 1:
            node = 0
        else:
            missing["node"] = "Linux knows no NUMA node of the GPU" if node == -1 else f"no numa_node for {sysfs_address(bus_id)} in /sys"
            node = None
    if cpus is None:
        missing["cpus"] = f"no local_cpulist for {sysfs_address(bus_id)} in /sys"
    return Numa(node=node, cpus=cpus, missing=missing)


def numa_nodes(root: Path = Path("/")) -> int | None:
    """How many NUMA nodes are online; None where Linux does not say."""
    return count_list(read_word(root / "sys/devices/system/node/online"))


def iommu_mode(bus_ids: Iterable[str], root: Path = Path("/")) -> tuple[IommuMode | None, str]:
    """Whether an IOMMU translates what the GPUs send, with the reason where that is not known.

    The domain type of each GPU's own group decides; the kernel's command line only where groups have no type.
    """
    devices = root / "sys/bus/pci/devices"
    types = {read_word(devices / sysfs_address(bus_id) / "iommu_group/type") for bus_id in bus_ids} - {None}
    if any(kind is not None and kind.startswith("DMA") for kind in types):
        return "translated", ""
    if types == {"identity"}:
        return "passthrough", ""
    units = names(root / "sys/class/iommu")
    if units is None:
        return None, "no /sys/class/iommu here"
    if not units:
        return "off", ""
    options = (read_text(root / "proc/cmdline") or "").split()
    if {"iommu=pt", "iommu.passthrough=1"} & set(options):
        return "passthrough", ""
    if {"intel_iommu=off", "amd_iommu=off", "iommu=off"} & set(options):
        return "off", ""
    return None, f"an IOMMU is there ({units[0]}), but Linux does not show the mode of the GPUs' groups"


def _hop(device: Path, place: int, count: int) -> PcieHop:
    config = read_bytes(device / "config", 4096) or b""
    kind: HopKind = "gpu" if place == 0 else _port_kind(config) or _kind_by_place(device, place, count)
    redirects, reason = (None, "a GPU is no bridge") if place == 0 else _acs(config)
    missing = {"acs_redirects": reason} if redirects is None else {}
    return PcieHop(address=device.name, kind=kind, link=_link(device), acs_redirects=redirects, missing=missing)


def _link(device: Path) -> PcieLink:
    values: dict[str, int] = {}
    missing: dict[str, str] = {}
    for name, now in (("", "current"), ("max_", "max")):
        speed = read_word(device / f"{now}_link_speed")
        generation = pcie_generation(speed) if speed and "GT/s" in speed else None
        if generation is not None:
            values[f"{name}generation"] = generation
        else:
            missing[f"{name}generation"] = f"no {now}_link_speed in /sys" if speed is None else f"Linux says {speed[:40]!r}"
        width = read_int(device / f"{now}_link_width")
        if width is None or width in NO_WIDTH or width < 0:
            missing[f"{name}width"] = f"no {now}_link_width in /sys" if width is None else f"Linux reports no width ({width})"
        else:
            values[f"{name}width"] = width
    return PcieLink(missing=missing, **values)


def _kind_by_place(device: Path, place: int, count: int) -> HopKind:
    """The kind where only the first 64 bytes can be read, as by any user but root: ports come in pairs below the root port."""
    class_code = read_int(device / "class", 16)
    if class_code is not None and class_code >> 8 != 0x0604:
        return "unknown"
    above = count - 1 - place
    if above == 0:
        return "root_port"
    return "switch_up" if above % 2 else "switch_down"


def _port_kind(config: bytes) -> HopKind | None:
    """The port's own word for its kind, in the PCI Express capability."""
    if len(config) <= 64 or not config[6] & 0x10:
        return None
    pointer = config[0x34] & ~3
    for _ in range(48):
        if pointer < 64 or pointer + 4 > min(len(config), 256):
            return None
        if config[pointer] == _PCIE_CAPABILITY:
            return _PORT_KINDS.get(config[pointer + 2] >> 4, "unknown")
        pointer = config[pointer + 1] & ~3
    return None


def _acs(config: bytes) -> tuple[bool | None, str]:
    """Whether the port sends peer traffic up to the root complex; a port without the ACS capability cannot."""
    if not config:
        return None, "the configuration space cannot be read"
    if config[:4] == b"\xff\xff\xff\xff":
        return None, "the configuration space reads as all ones: the device does not answer"
    if len(config) <= 256:
        return None, f"only {len(config)} bytes of the configuration space can be read: needs root on the host"
    offset = 0x100
    for _ in range(960):
        if offset < 0x100 or offset + 8 > len(config):
            break
        (header,) = struct.unpack_from("<I", config, offset)
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == _ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return bool(control & _ACS_REDIRECTS), ""
        offset = header >> 20 & ~3
    return False, ""

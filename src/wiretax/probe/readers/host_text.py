"""Reads what people paste of the host itself.

``lscpu``, ``uname -a``, ``free -h``, ``df /dev/shm``, ``mount``, kernel command line and configuration, ``lsmod``, ``modinfo nvidia``,
``/proc/driver/nvidia/*``, ``systemd-detect-virt``.

Observations:
    ``kernel.cmdline``: ``option`` (``iommu``, ``intel_iommu``, ``amd_iommu``, ``pcie_acs_override``, ``pci``, ``iommu.passthrough``),
    ``value``, ``active`` (False for a line of GRUB's configuration).
    ``kernel.cmdline_seen``: a whole command line was pasted; ``has_iommu_option``.
    ``kernel.config``: ``option`` (``CONFIG_IOMMU_DEFAULT_PASSTHROUGH``, ...), ``value`` (``y``, ``m``, ``n``).
    ``kernel.module``: ``name``, ``users``: a loaded module that matters (nvidia_peermem, gdrdrv, ...).
    ``driver.license``: ``open_kernel_module``.
    ``driver.module``: ``version``, ``open_kernel_module``, ``build``. ``driver.registry``: ``option`` set for the NVIDIA module.
    ``infiniband.device_files``: ``present``: what a look at /dev/infiniband showed.
    ``host.dev_shm``: ``bytes``, ``free_bytes``, ``used_bytes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from wiretax.model.machine import Software, Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.pasted import Notes
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "host information"
Facts = dict[str, Any]
_SHM = "/dev/shm"  # noqa: S108 - where the kernel mounts shared memory; only looked for in text
_SIZE = r"(\d{1,13}(?:\.\d{1,3})?[KMGT]?i?B?)"
_DF_HEADING = re.compile(r"\s*\S{2,20}\s{1,40}(1K|1M|1G|1T|512B|1B|1024|512)-\w{2,10}\s")
"""The heading of ``df`` names the size of a block in every language; 1 KiB is usual, ``-m`` and ``-BG`` make it another."""
_BLOCKS = {"1M": "MiB", "1G": "GiB", "1T": "TiB", "1B": "B"}
_DF = re.compile(rf"\s*\S{{1,60}}\s{{1,40}}{_SIZE}\s{{1,20}}{_SIZE}\s{{1,20}}{_SIZE}\s{{1,20}}\d{{1,3}}%\s{{1,8}}/dev/shm\s*$")
_MOUNT = re.compile(r"\s*\S{1,60} (?:on )?/dev/shm (?:type )?tmpfs .{0,200}?\bsize=(\d{1,16}[kmgKMG]?)(?![\w.%])")
_UNAME = re.compile(r"\s*Linux (\S{1,64}) (\d{1,2}\.\d{1,3}\S{0,60}) #\S{1,40} ")
_RELEASE = re.compile(
    r"\s*(\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.\d{1,3})?-\S{0,50}(?:microsoft|generic|aws|azure|gcp|oracle|amd64|el\d|fc\d)\S{0,30})\s*$"
)
_LSCPU = re.compile(
    r"\s*(CPU\(s\)|Vendor ID|Model name|Hypervisor vendor|NUMA node\(s\)|Flags):"
    r"\s{1,60}(\S.*)$"
)
_LSCPU_OTHER = re.compile(
    r"\s*(?:On-line CPU\(s\) list|Architecture|Socket\(s\)|CPU op-mode|Address sizes|Byte Order|"
    r"CPU family|Model|Thread\(s\) per core|Core\(s\) per socket|Stepping|BogoMIPS|"
    r"CPU (?:max|min)? ?MHz|Virtualization(?: type)?|L\d[a-z]? cache|NUMA node\d{1,3} CPU\(s\)|Vulnerability [\w -]{2,40}|"
    r"Frequency boost|CPU\(s\) scaling MHz):\s"
)
_HARMLESS = re.compile(
    r"\s*(?:total\s{1,20}used\s{1,20}free\b|Filesystem\s{1,20}Size\s|(?:Mem|Swap):\s{1,20}\d|"
    r"(?:PRETTY_NAME|NAME|VERSION|VERSION_ID|VERSION_CODENAME|ID|ID_LIKE|UBUNTU_CODENAME|(?:HOME|SUPPORT|BUG_REPORT|PRIVACY_POLICY)_URL)=)"
)
"""Headings and lines of ``free``, ``df`` and ``/etc/os-release`` that say nothing of the wire."""
_VENDORS = {"genuineintel": "intel", "authenticamd": "amd", "arm": "arm", "hygongenuine": "hygon", "centaurhauls": "zhaoxin", "ibm": "ibm"}
_HYPERVISORS = {
    "kvm": "kvm",
    "vmware": "vmware",
    "microsoft": "hyperv",
    "xen": "xen",
    "oracle": "virtualbox",
    "bhyve": "bhyve",
    "qemu": "qemu",
}
_FREE = re.compile(r"\s*Mem:\s{1,20}(\d{1,8}(?:\.\d{1,3})?(?:[KMGT]i?B?|[KMGT]))\s")
_CMDLINE = re.compile(r"(?:BOOT_IMAGE=\S{1,200}|Kernel command line: |Command line: |root=(?:UUID|PARTUUID|LABEL|/dev)\S{1,80})")
_GRUB = re.compile(r"\s*GRUB_CMDLINE_LINUX(?:_DEFAULT)?=[\"'](.{0,600})[\"']")
_OPTION = re.compile(r"(?:^|\s)(iommu|intel_iommu|amd_iommu|pcie_acs_override|iommu\.passthrough|iommu\.strict|pci)=(\S{1,60})")
_CONFIG = re.compile(
    r"\s*(?:# )?(CONFIG_(?:IOMMU_DEFAULT_\w{2,30}|INTEL_IOMMU_DEFAULT_ON|AMD_IOMMU|PCI_P2PDMA|HSA_AMD_P2P))(?:=([ymn])| is not set)\s*$"
)
_LSMOD = re.compile(
    r"\s*(nvidia_peermem|nv_peer_mem|gdrdrv|nvidia_uvm|nvidia_drm|nvidia|amdgpu|ib_uverbs|mlx5_ib|nouveau)\s{1,30}\d{3,10}\s{1,4}(-?\d{1,6})\b"
)
_MODINFO_VERSION = re.compile(r"\s*version:\s{1,20}(\d{3}\.[\w.-]{1,20})\s*$")
_MODINFO_FILE = re.compile(r"\s*filename:\s{1,20}\S{0,200}/nvidia(?:-open)?\.ko\S{0,6}\s*$")
_LICENSE = re.compile(r"\s*license:\s{1,20}(NVIDIA|Dual MIT/GPL)\s*$")
_PROC_VERSION = re.compile(
    r"NVRM version:\s{0,4}NVIDIA UNIX (Open )?.{0,40}?Kernel Module (?:for \S{1,12} )?\s{0,4}(\d{3}\.[\w.-]{1,20})(.{0,80})"
)
_REGISTRY = re.compile(r"(?:NVreg_RegistryDwords\s?=\s?|RegistryDwords:\s?)\"?([^\"]{3,200})\"?|\b(NVreg_\w{3,40}=\S{1,60})")
_NO_INFINIBAND = re.compile(r"/dev/infiniband\S{0,20}:? No such file or directory")
_UVERBS = re.compile(r"(?:^|\s)uverbs\d{1,3}(?:\s|$)")
_VIRT = re.compile(r"\s*(?:kvm|qemu|vmware|microsoft|wsl|xen|oracle|amazon|none|docker|podman|lxc)\s*$")
_RELEVANT = (
    _SHM, "Linux ", "CPU", "Vendor ID", "Model name", "Hypervisor", "NUMA", "Flags", "Mem:", "BOOT_IMAGE", "ommand line", "GRUB_",
    "CONFIG_", "nvidia", "nv_peer_mem", "gdrdrv", "amdgpu", "mlx5", "nouveau", "version:", "license:", "NVRM", "NVreg", "root=", "Dwords",
    "detect-virt", "ib_uverbs", "/dev/infiniband", "uverbs", "microsoft", "-generic", "-aws", "-azure", "-gcp", "-oracle", "-amd64", ".el",
    ".fc",
)  # fmt: skip


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream says of its host, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = Notes(source, stream.lines)
    facts: Facts = {}
    lines: set[int] = set()
    others: set[int] = set()
    for position, line in enumerate(stream.lines):
        text = line.text
        if "-" in text and len(text) < 200 and (heading := _DF_HEADING.match(text)):
            facts["df_block"] = heading.group(1)
            others.add(line.number)
            continue
        if len(text) > 6000 or not any(word in text for word in _RELEVANT):
            if _is_harmless(text):
                others.add(line.number)
            continue
        if any(rule(line, notes, facts) for rule in _RULES):
            lines.add(line.number)
        elif _is_harmless(text):
            others.add(line.number)
        elif "detect-virt" in text and position + 1 < len(stream.lines):
            below = stream.lines[position + 1]
            if len(below.text) < 40 and _VIRT.match(below.text):
                facts.setdefault("virtual_machine", {"microsoft": "hyperv", "wsl": "wsl2"}.get(below.text.strip(), below.text.strip()))
                lines.update((line.number, below.number))
    if not lines:
        return None
    if facts.get("lscpu_flags") and "virtual_machine" not in facts and "hypervisor" not in facts["lscpu_flags"]:
        facts["virtual_machine"] = "none"
    names = {"dev_shm_bytes", "dev_shm_free_bytes", "iommu", "cpu_model", "cpu_vendor", "cpus_total", "numa_nodes", "memory_bytes"}
    known = {name: value for name, value in facts.items() if name in names | {"virtual_machine"}}
    software = Software(
        driver=facts.get("driver"),
        kernel=facts.get("kernel"),
        driver_flavour="unofficial" if "p2p" in facts.get("driver", "") else "unknown",
    )
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=facts.get("hostname", stream.host), software=software, surroundings=Surroundings(**known)),
        observations=notes.observations(),
        understood=frozenset(lines | others),
    )


def _is_harmless(text: str) -> bool:
    return len(text) < 400 and (_LSCPU_OTHER.match(text) is not None or _HARMLESS.match(text) is not None)


def _storage(line: Line, notes: Notes, facts: Facts) -> bool:
    df = _DF.match(line.text) if _SHM in line.text else None
    if df:
        # df counts in KiB unless its heading names another block, or -h gives a unit, which is binary, too.
        block = facts.get("df_block", "1K")
        total, used, free = (pasted.num_bytes(value, _BLOCKS.get(block, "KiB")) for value in df.groups())
        if block.startswith("512"):
            total, used, free = (None if value is None else value // 2 for value in (total, used, free))
        notes.add(line.number, "host.dev_shm", bytes=total, free_bytes=free, used_bytes=used)
        facts["dev_shm_bytes"], facts["dev_shm_free_bytes"] = total, free
        return True
    mount = _MOUNT.match(line.text) if _SHM in line.text else None
    if mount:
        facts.setdefault("dev_shm_bytes", pasted.num_bytes(mount.group(1)))
        notes.add(line.number, "host.dev_shm", bytes=facts["dev_shm_bytes"], free_bytes=None, used_bytes=None)
        return True
    memory = _FREE.match(line.text)
    if memory:
        facts.setdefault("memory_bytes", pasted.num_bytes(memory.group(1)))
    return memory is not None


def _processor(line: Line, _notes: Notes, facts: Facts) -> bool:
    uname = _UNAME.match(line.text)
    if uname:
        facts.setdefault("hostname", uname.group(1))
        facts.setdefault("kernel", uname.group(2))
        if "wsl2" in uname.group(2).lower():
            facts["virtual_machine"] = "wsl2"
        return True
    release = _RELEASE.match(line.text)
    if release:
        facts.setdefault("kernel", release.group(1))
        if "wsl2" in release.group(1).lower():
            facts["virtual_machine"] = "wsl2"
        return True
    match = _LSCPU.match(line.text)
    if not match:
        return False
    label, value = match.group(1), match.group(2).strip()
    if label == "CPU(s)" and value.isdecimal():
        facts.setdefault("cpus_total", int(value))
    elif label == "Vendor ID":
        facts.setdefault("cpu_vendor", _VENDORS.get(value.lower(), value.lower()))
    elif label == "Model name":
        facts.setdefault("cpu_model", value)
    elif label == "Hypervisor vendor":
        facts.setdefault("virtual_machine", _HYPERVISORS.get(value.lower(), value.lower()))
    elif label == "NUMA node(s)" and value.isdecimal():
        facts.setdefault("numa_nodes", int(value))
    elif label == "Flags":
        facts["lscpu_flags"] = frozenset(value.split())
    return True


def _command_line(line: Line, notes: Notes, facts: Facts) -> bool:
    config = _CONFIG.match(line.text)
    if config:
        notes.add(line.number, "kernel.config", option=config.group(1), value=config.group(2) or "n")
        return True
    grub = _GRUB.match(line.text)
    active = grub is None and _CMDLINE.search(line.text) is not None
    if not grub and not active:
        return False
    options = _OPTION.findall(grub.group(1) if grub else line.text)
    for option, value in options:
        notes.add(line.number, "kernel.cmdline", option=option, value=value, active=active)
    if active:
        named = {option: value for option, value in options if "iommu" in option}
        notes.add(line.number, "kernel.cmdline_seen", has_iommu_option=bool(named))
        if named.get("iommu") == "pt" or named.get("iommu.passthrough") == "1":
            facts["iommu"] = "passthrough"
        elif "off" in (named.get("iommu"), named.get("intel_iommu"), named.get("amd_iommu")):
            facts["iommu"] = "off"
        elif named.get("iommu") in ("nopt", "force") or named.get("iommu.passthrough") == "0":
            facts["iommu"] = "translated"
    return True


def _driver(line: Line, notes: Notes, facts: Facts) -> bool:
    text = line.text
    module = _LSMOD.match(text)
    if module:
        notes.add(line.number, "kernel.module", name=module.group(1), users=int(module.group(2)))
        return True
    proc = _PROC_VERSION.search(text)
    if proc:
        facts["driver"] = proc.group(2)
        notes.add(line.number, "driver.module", version=proc.group(2), open_kernel_module=bool(proc.group(1)), build=proc.group(3).strip())
        return True
    if _MODINFO_FILE.match(text):
        facts["modinfo"] = True
        return True
    version, license_ = _MODINFO_VERSION.match(text), _LICENSE.match(text)
    if facts.get("modinfo") and (version or license_):
        if version:
            facts["driver"] = version.group(1)
            notes.add(line.number, "driver.module", version=version.group(1), open_kernel_module=None, build=None)
        elif license_:
            notes.add(line.number, "driver.license", open_kernel_module=license_.group(1) != "NVIDIA")
        return True
    registry = _REGISTRY.search(text)
    if registry:
        notes.add(line.number, "driver.registry", option=(registry.group(1) or registry.group(2)).strip())
    return registry is not None


def _infiniband(line: Line, notes: Notes, _facts: Facts) -> bool:
    absent = _NO_INFINIBAND.search(line.text) is not None
    present = not absent and len(line.text) < 400 and _UVERBS.search(line.text) is not None
    if absent or present:
        notes.add(line.number, "infiniband.device_files", present=present)
    return absent or present


_RULES: tuple[Callable[[Line, Notes, Facts], bool], ...] = (_storage, _processor, _command_line, _driver, _infiniband)

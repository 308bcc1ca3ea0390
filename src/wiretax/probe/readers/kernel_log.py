"""Reads ``dmesg`` and the journal: Xid errors, lost GPUs, PCIe errors, IOMMU faults, and what the kernel says of IOMMU and links.

Repeats of one event are one observation with ``count`` and the line of the first.

Observations:
    ``xid``: ``pci_bus_id``, ``code``, ``message``, ``process``, ``previous`` (the Xid that it names as its
    cause). ``nvswitch.sxid``: ``pci_bus_id``, ``code``, ``fatal``, ``message``.
    ``gpu.lost``: ``pci_bus_id``, ``gpu`` (None), ``message``: fallen off the bus.
    ``nvlink.fatal``: ``pci_bus_id``, ``link``, ``message`` (of Xid 74).
    ``pcie.aer``: ``device`` (that reports or is reported), ``severity`` (``corrected``, ``nonfatal``, ``fatal``), ``layer``.
    ``pcie.not_recovered``: ``device``, ``driver``: a fatal error after which the kernel could not bring the device back.
    ``pcie.bandwidth_limited``: ``device``, ``available_gbit_per_second``, ``limited_by``, ``generation``, ``width``,
    ``capable_gbit_per_second``, ``capable_generation``, ``capable_width``: the kernel's own finding at boot.
    ``pcie.link_down``: ``device``, ``message``.
    ``iommu.fault``: ``what`` (``IO_PAGE_FAULT`` or ``DMAR``), ``device``, ``direction``, ``driver`` where the kernel names the device's.
    ``iommu.state``: ``state`` (``translated``, ``passthrough``, ``enabled``, ``disabled``), ``message``.
    ``acs.override``: the kernel was told to pretend that bridges isolate.
    ``driver.module``: ``version``, ``open_kernel_module``, ``build``.
    ``driver.failure``: ``failure`` (``mismatch``, ``init_failed``, ``bar_invalid``), ``library_version``, ``message``, ``pci_bus_id``.
    ``kernel.hung_task``: ``task``, ``seconds``. ``kernel.oom``: ``process``, ``cgroup`` (a container's limit).
    ``hardware.error``: ``message`` (machine check).
    ``amd.ras``: ``pci_bus_id``, ``block``: memory or logic of an AMD GPU failed. ``amd.memory_fault``: ``message``: a program touched what
    is not mapped. A hang of an AMD GPU, or of the processor that runs an NVIDIA GPU, is a ``driver.failure`` (``hung``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from wiretax.model.machine import Software, Surroundings
from wiretax.model.observation import Scalar
from wiretax.probe.readers import pasted
from wiretax.probe.readers.pasted import Notes, pci_bus_id
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams
from wiretax.probe.sysfs import pcie_generation

FORMAT = "kernel log"
_ADDRESS = rf"{pasted.PCI_DEVICE}(?:\.[0-9A-Fa-f])?"
_NUMBER = r"\d{1,5}(?:\.\d{1,4})?"
_KERNEL_TIME = re.compile(r"\s{0,2}(?:<\d{1,3}>)?\[\s{0,8}\d{1,8}\.\d{3,9}\]|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ")
_SYSLOG = re.compile(r"(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,24})? ?([\w.-]{1,64}) kernel(?:\[\d+\])?: ")

_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_ADDRESS})\): (\d{{1,4}})(?:, pid=([^,]{{1,20}}))?(?:, name=([^,]{{0,60}}))?,? ?(.{{0,240}})")
_SXID = re.compile(rf"SXid \((?:PCI:)?({_ADDRESS})\): (\d{{4,6}}), (Fatal|Non-fatal)?,? ?(.{{0,200}})", re.IGNORECASE)
_LOST = re.compile(rf"(?:NVRM|nvidia).{{0,80}}?({_ADDRESS}).{{0,60}}?fallen off the bus", re.IGNORECASE)
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU ({_ADDRESS})\s*$")
_LOST_BELOW = re.compile(r"NVRM:\s{1,40}fallen off the bus", re.IGNORECASE)
"""Newer drivers break the sentence: the address on one line, what became of the GPU two lines below."""
_PREVIOUS = re.compile(r"\bprevious Xid (\d{1,4})\b")
_LINK = re.compile(r"NVLink: .{0,60}?link (\d{1,2})", re.IGNORECASE)
_AER = re.compile(
    rf"AER: (?:Multiple )?(Corrected|Uncorrected|Uncorrectable|Correctable)(?: \((Fatal|Non-Fatal)\))? error.{{0,30}}?({_ADDRESS})"
)
_BUS_ERROR = re.compile(
    rf"({_ADDRESS}): (?:AER: )?PCIe Bus Error: severity=(Corrected|Uncorrected|Uncorrectable)"
    r"(?: \((Fatal|Non-Fatal)\))?, type=([\w ]{3,30})"
)
_NOT_RECOVERED = re.compile(rf"([\w-]{{2,24}}) ({_ADDRESS}): (?:AER: can't recover|device has no AER-aware driver)")
_LIMITED = re.compile(
    rf"({_ADDRESS}): ({_NUMBER}) Gb/s available PCIe bandwidth, "
    rf"limited by ({_NUMBER}) GT/s(?: PCIe)? x(\d{{1,2}}) link at ({_ADDRESS})"
    rf"(?: \(capable of ({_NUMBER}) Gb/s with ({_NUMBER}) GT/s(?: PCIe)? x(\d{{1,2}}) link\))?"
)
_LINK_DOWN = re.compile(rf"({_ADDRESS}).{{0,60}}?(?:Link Down|Card not present|link is not active|lost connection)")
_PAGE_FAULT = re.compile(rf"(?:(?:([\w-]{{1,24}}) )?({_ADDRESS}): )?AMD-Vi: Event logged \[IO_PAGE_FAULT(?: device=({_ADDRESS}))?")
_DMAR = re.compile(rf"DMAR: \[(DMA (?:Read|Write)[^\]]{{0,20}})\] Request device \[?({_ADDRESS})\]?")
_IOMMU: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), state)
    for pattern, state in (
        (r"iommu: Default domain type: Translated", "translated"),
        (r"iommu: Default domain type: Passthrough|iommu: .{0,30}Hardware Pass ?Through|Using passthrough mode", "passthrough"),
        (r"DMAR: IOMMU enabled|AMD-Vi: (?:AMD IOMMUv2|Interrupt remapping enabled|Found IOMMU)|iommu: Adding device", "enabled"),
        (r"DMAR: IOMMU disabled|AMD-Vi: AMD IOMMU(?:v2)? (?:disabled|functionality not available)", "disabled"),
    )
)
_MODULE = re.compile(r"NVIDIA UNIX (Open )?(?:\S{1,12} )?Kernel Module (?:for \S{1,12} )? {0,2}(\d{3}\.[\w.-]{1,20})(.{0,80})")
_MISMATCH = re.compile(r"NVRM: API mismatch: .{0,40}?client.{0,20}? has the version (\d{3}[\d.]{1,12})")
_INIT_FAILED = re.compile(rf"NVRM: (?:GPU )?({_ADDRESS})?:? ?(?:RmInitAdapter|rm_init_adapter) failed.{{0,60}}")
_GSP_SILENT = re.compile(r"NVRM: GPU\d{1,3} _kgsp(?:IsHeartbeatTimedOut: Heartbeat timed out|LogRpcTimeout: \*+ GSP Timeout)")
_BAR = re.compile(rf"NVRM: BAR\d is 0M @ 0x0 \(PCI:({_ADDRESS})\)")
_HUNG = re.compile(r"INFO: task ([\w.:/-]{1,40}):\d{1,8} blocked for more than (\d{1,6}) seconds")
_OOM = re.compile(r"(Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process \d{1,8} \(([^)]{1,40})\)")
_AMD_RAS = re.compile(rf"amdgpu ({_ADDRESS}): .{{0,40}}?uncorrectable hardware errors? detected in (\w{{2,12}}) block")
_AMD_HUNG = re.compile(
    rf"(?:amdgpu ({_ADDRESS}): .{{0,40}}?)?(?:GPU reset begin|uncorrectable hardware error ?\(ERREVENT"
    r"|HW Exception by GPU node-\d{1,4} .{0,60}reason ?: ?GPU Hang)"
)
_AMD_FAULT = re.compile(r"Memory access fault by GPU node-\d{1,4} .{0,160}")
_MCE = re.compile(r"(?:mce: )?\[Hardware Error\]: (.{5,120})|mce: .{0,40}Machine check events logged")


def read(text: Text) -> tuple[Piece, ...]:
    """The kernel messages of each stream, as one piece a stream and host."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = Notes(source, stream.lines)
    lines: set[int] = set()
    harmless: set[int] = set()
    facts: dict[str, str] = {}
    host = stream.host
    for line in stream.lines:
        text = line.text
        if len(text) > 1200:
            continue
        if any(rule(text, line.number, notes, facts) for rule in _RULES):
            lines.add(line.number)
            prefix = _SYSLOG.match(text)
            if prefix and host is None:
                host = prefix.group(1)
        elif _KERNEL_TIME.match(text):
            harmless.add(line.number)
    if not lines:
        return None
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(
            FORMAT,
            hostname=host,
            software=Software(driver=facts.get("driver")),
            surroundings=Surroundings(iommu=facts.get("iommu")),  # type: ignore[arg-type]
            driver_state="mismatch" if "mismatch" in facts else None,
            driver_detail=facts.get("mismatch"),
        ),
        observations=notes.observations(),
        understood=frozenset(lines | harmless),
    )


def _xid(text: str, number: int, notes: Notes, facts: dict[str, str]) -> bool:
    if "NVRM" not in text and "SXid" not in text and "fallen off" not in text:
        return False
    found = _XID.search(text)
    if found:
        address, code, _, process, message = found.groups()
        bus = pci_bus_id(address)
        previous = _PREVIOUS.search(message)
        values: dict[str, Scalar] = {"previous": int(previous.group(1))} if previous else {}
        notes.add(number, "xid", pci_bus_id=bus, code=int(code), message=message.strip()[:160], process=pasted.said(process), **values)
        if "fallen off the bus" in message or int(code) == 79:
            notes.add(number, "gpu.lost", pci_bus_id=bus, gpu=None, message=f"Xid {code}, {message.strip()[:120]}")
        link = _LINK.search(message)
        if link:
            notes.add(number, "nvlink.fatal", pci_bus_id=bus, link=int(link.group(1)), message=message.strip()[:120])
        return True
    switch = _SXID.search(text)
    if switch:
        address, code, fatal, message = switch.groups()
        is_fatal = None if fatal is None else fatal.lower() == "fatal"
        notes.add(number, "nvswitch.sxid", pci_bus_id=pci_bus_id(address), code=int(code), fatal=is_fatal, message=message.strip()[:160])
        return True
    lost = _LOST.search(text)
    if lost:
        notes.add(number, "gpu.lost", pci_bus_id=pci_bus_id(lost.group(1)), gpu=None, message="GPU has fallen off the bus")
        return True
    named = _NAMED.search(text)
    if named:
        facts["named_gpu"] = named.group(1)
        return True
    if _LOST_BELOW.search(text):
        last_named = facts.pop("named_gpu", None)
        where = pci_bus_id(last_named) if last_named else None
        notes.add(number, "gpu.lost", pci_bus_id=where, gpu=None, message="GPU has fallen off the bus")
        return True
    return False


def _pcie(text: str, number: int, notes: Notes, _facts: dict[str, str]) -> bool:
    received, error = (_AER.search(text), _BUS_ERROR.search(text)) if "AER" in text or "Bus Error" in text else (None, None)
    if received:
        kind, fatal, device = received.groups()
        notes.add(number, "pcie.aer", device=pci_bus_id(device), severity=_severity(kind, fatal), layer=None)
        return True
    if error:
        device, kind, fatal, layer = error.groups()
        notes.add(number, "pcie.aer", device=pci_bus_id(device), severity=_severity(kind, fatal), layer=layer.strip())
        return True
    given_up = _NOT_RECOVERED.search(text) if "AER" in text else None
    if given_up:
        notes.add(number, "pcie.not_recovered", device=pci_bus_id(given_up.group(2)), driver=given_up.group(1))
        return True
    limited = _LIMITED.search(text) if "limited by" in text else None
    if limited:
        device, available, speed, width, at, capable, capable_speed, capable_width = limited.groups()
        notes.add(
            number,
            "pcie.bandwidth_limited",
            device=pci_bus_id(device),
            available_gbit_per_second=float(available),
            limited_by=pci_bus_id(at),
            generation=pcie_generation(speed),
            width=int(width),
            capable_gbit_per_second=float(capable) if capable else None,
            capable_generation=pcie_generation(capable_speed),
            capable_width=int(capable_width) if capable_width else None,
        )
        return True
    down = _LINK_DOWN.search(text)
    if down:
        notes.add(number, "pcie.link_down", device=pci_bus_id(down.group(1)), message=down.group()[-60:])
    return down is not None


def _severity(kind: str, fatal: str | None) -> str:
    if kind.lower().startswith("correct"):
        return "corrected"
    return "nonfatal" if fatal == "Non-Fatal" else "fatal" if fatal == "Fatal" else "uncorrected"


def _iommu(text: str, number: int, notes: Notes, facts: dict[str, str]) -> bool:
    if "AMD-Vi" not in text and "DMAR" not in text and "iommu" not in text.lower() and "ACS" not in text:
        return False
    fault = _PAGE_FAULT.search(text)
    if fault:
        driver, named, given = fault.groups()
        device = named or given
        bus = pci_bus_id(device) if device else None
        notes.add(number, "iommu.fault", what="IO_PAGE_FAULT", device=bus, direction=None, driver=driver)
        return True
    dmar = _DMAR.search(text)
    if dmar:
        notes.add(number, "iommu.fault", what="DMAR", device=pci_bus_id(dmar.group(2)), direction=dmar.group(1).lower(), driver=None)
        return True
    for pattern, state in _IOMMU:
        found = pattern.search(text)
        if found:
            notes.add(number, "iommu.state", state=state, message=found.group())
            if state in ("translated", "passthrough"):
                facts["iommu"] = state
            elif state == "disabled":
                facts.setdefault("iommu", "off")
            return True
    if "PCIe ACS overrides enabled" in text:
        notes.add(number, "acs.override")
        return True
    return False


def _driver(text: str, number: int, notes: Notes, facts: dict[str, str]) -> bool:
    if "NVRM" not in text and "NVIDIA UNIX" not in text:
        return False
    module = _MODULE.search(text)
    if module:
        is_open, version, build = module.groups()
        notes.add(number, "driver.module", version=version, open_kernel_module=bool(is_open), build=build.strip() or None)
        facts["driver"] = version
        return True
    mismatch = _MISMATCH.search(text)
    failed, bar, silent = _INIT_FAILED.search(text), _BAR.search(text), _GSP_SILENT.search(text)
    if mismatch:
        facts["mismatch"] = text.strip()[-160:]
        notes.add(
            number, "driver.failure", failure="mismatch", library_version=mismatch.group(1), message=facts["mismatch"], pci_bus_id=None
        )
    elif failed or bar:
        address = failed.group(1) if failed else bar.group(1) if bar else None
        notes.add(
            number,
            "driver.failure",
            failure="init_failed" if failed else "bar_invalid",
            library_version=None,
            message=text.strip()[-120:],
            pci_bus_id=pci_bus_id(address) if address else None,
        )
    elif silent:
        notes.add(number, "driver.failure", failure="hung", library_version=None, message=text.strip()[-120:], pci_bus_id=None)
    return bool(mismatch or failed or bar or silent)


def _host(text: str, number: int, notes: Notes, _facts: dict[str, str]) -> bool:
    hung = _HUNG.search(text) if "blocked for" in text else None
    out_of_memory = _OOM.search(text) if "ut of memory" in text else None
    machine_check = _MCE.search(text) if "Hardware Error" in text or "mce:" in text else None
    if hung:
        notes.add(number, "kernel.hung_task", task=hung.group(1), seconds=int(hung.group(2)))
    elif out_of_memory:
        notes.add(number, "kernel.oom", process=out_of_memory.group(2), cgroup=bool(out_of_memory.group(1)))
    elif machine_check:
        notes.add(number, "hardware.error", message=machine_check.group().strip()[:120])
    return bool(hung or out_of_memory or machine_check)


def _amd(text: str, number: int, notes: Notes, _facts: dict[str, str]) -> bool:
    if "amdgpu" not in text and "GPU node-" not in text:
        return False
    failed, hung, fault = _AMD_RAS.search(text), _AMD_HUNG.search(text), _AMD_FAULT.search(text)
    if failed:
        notes.add(number, "amd.ras", pci_bus_id=pci_bus_id(failed.group(1)), block=failed.group(2))
    elif hung:
        bus = pci_bus_id(hung.group(1)) if hung.group(1) else None
        notes.add(number, "driver.failure", failure="hung", library_version=None, message=text.strip()[-160:], pci_bus_id=bus)
    elif fault:
        notes.add(number, "amd.memory_fault", message=fault.group()[:160])
    return bool(failed or hung or fault)


_RULES: tuple[Callable[[str, int, Notes, dict[str, str]], bool], ...] = (_xid, _pcie, _iommu, _driver, _host, _amd)

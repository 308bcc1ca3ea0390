"""Reads ``lspci -v``, ``-vv``, ``-vvv`` and excerpts grepped out of them: link state, ACS, IOMMU group, driver.

Observations:
    ``pci.link``: a device whose link is stated; ``address``, ``description``, ``is_gpu``, ``is_bridge``, ``generation``, ``width``,
    ``max_generation``, ``max_width``, ``downgraded`` (lspci's own word; None where it does not print it).
    ``pci.acs``: ``address`` (None in an excerpt), ``description``, ``is_bridge``, ``request_redirect``, ``completion_redirect``,
    ``upstream_forwarding``, ``direct_translated``: what ACSCtl says is switched on.
    ``pci.driver``: ``address``, ``driver`` in use by a GPU (``nvidia``, ``vfio-pci``, ``nouveau``).
    ``pci.iommu_group``: ``address`` of a GPU, ``group``.
    ``pci.unreadable``: capabilities were denied (lspci ran without root); ``devices``.
    ``pci.bar``: ``address``, ``largest_bytes``: the largest memory region of a GPU (small without resizable BAR).
    ``gpu.index_assumed``: ``gpu``, ``pci_bus_id``: numbered by bus address, as NVML does, but of what lspci lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from wiretax.model.machine import Gpu, PcieHop, PcieLink, Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, mentions, streams
from wiretax.probe.sysfs import NO_WIDTH, pcie_generation

FORMAT = "lspci"
_DEVICE = re.compile(
    rf"\s{{0,8}}({pasted.PCI_ADDRESS})\s{{1,4}}\"?([A-Z0-9][\w /()-]{{2,50}}?)(?: \[[0-9a-f]{{4}}\])?\"?:\s{{1,4}}(\S.{{1,200}})$"
)
_LINK = re.compile(
    r"\s*(LnkCap|LnkSta):\s.{0,60}?Speed ([\d.]{1,5}|unknown)\s?(?:GT/s)?(?: \((\w{2,12})\))?, ?Width x(\d{1,2})(?: \((\w{2,12})\))?"
)
_ACS = re.compile(
    r"\s*ACSCtl:\s{0,8}SrcValid[+-]\s?TransBlk[+-]\s?ReqRedir([+-])\s?CmpltRedir([+-])\s?UpstreamFwd([+-])(?:.{0,30}DirectTrans([+-]))?"
)
_GROUP = re.compile(r"\s*IOMMU group:\s{0,4}(\d{1,5})")
_DRIVER = re.compile(r"\s*Kernel driver in use:\s{0,4}([\w-]{2,40})")
_REGION = re.compile(r"\s*(?:Region \d|Memory at).{0,80}\[size=(\d{1,6}[KMGT]?)\]")
_BUSES = re.compile(r"\s*Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_PORT = re.compile(
    r"\s*Capabilities: \[[0-9a-f]{2,4}(?: v\d)?\] Express (?:\(v\d\) )?((?:Root|Upstream|Downstream) Port|(?:Legacy )?Endpoint)"
)
_NUMA = re.compile(r"\s*NUMA node:\s{0,4}(\d{1,3})")
_GPU_CLASSES = ("vga compatible controller", "3d controller", "display controller", "processing accelerators")


@dataclass(slots=True)
class _Device:
    address: str | None
    description: str
    kind: str
    line: int
    links: dict[str, tuple[str, int | None, str | None]] = field(default_factory=dict)
    group: int | None = None
    numa: int | None = None
    driver: str | None = None
    largest_bytes: int = 0
    denied: bool = False
    buses: tuple[int, int] | None = None
    port: str | None = None
    redirects: bool | None = None

    def is_above(self, other: _Device) -> bool:
        """Whether this is a bridge on the way from the other device up to the root."""
        if self.buses is None or self.address is None or other.address is None or self.address[:8] != other.address[:8]:
            return False
        return self.buses[0] <= int(other.address[9:11], 16) <= self.buses[1]

    @property
    def is_gpu(self) -> bool:
        """A display or accelerator device of NVIDIA or AMD; an on-board ASPEED console is none."""
        return self.kind.lower() in _GPU_CLASSES and re.search(r"NVIDIA|Advanced Micro|AMD/ATI", self.description) is not None

    @property
    def is_bridge(self) -> bool:
        """A bridge or switch port, which is where ACS redirects peer traffic."""
        return "bridge" in self.kind.lower()


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream's ``lspci`` lines say, as one piece a stream."""
    if not any(mentions(line, ("LnkCap", "LnkSta", "ACSCtl", "controller", "accelerators", "bridge")) for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    devices: list[_Device] = []
    acs: list[tuple[bool, bool]] = []
    for line in stream.lines:
        text = line.text
        if len(text) > 400:
            continue
        head = _DEVICE.match(text)
        if head:
            address, kind, description = head.groups()
            devices.append(_Device(pasted.pci_bus_id(address), description.strip(), kind.strip(), line.number))
            lines.add(line.number)
            continue
        if _detail(text, line.number, devices, acs, notes):
            lines.add(line.number)
    if not lines or not (acs or any(device.links or device.is_gpu for device in devices)):
        return None
    for device in devices:
        _note(device, notes)
    denied = sum(device.denied for device in devices)
    if denied:
        notes.add(min(lines), "pci.unreadable", devices=denied)
    found = sorted(_gpus(devices), key=lambda device: device.address or "")
    gpus = [_gpu(index, device, devices, notes) for index, device in enumerate(found)]
    above = [device.redirects for device in devices if device.redirects is not None and any(device.is_above(gpu) for gpu in found)]
    # Where the text does not say which bridges lie above a GPU (an excerpt), every bridge counts.
    on_bridges = above or [redirects for redirects, is_bridge in acs if is_bridge]
    state: Literal["on", "off"] | None = None if not on_bridges else "on" if any(on_bridges) else "off"
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(
            FORMAT, hostname=stream.host, gpus=gpus, surroundings=Surroundings(acs=state), origin_note=pasted.NUMBERED_BY_ADDRESS
        ),
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _gpus(devices: list[_Device]) -> list[_Device]:
    """The GPUs that carry load: where NVIDIA cards are present, an AMD display of the processor is no GPU of the job."""
    found = [device for device in devices if device.is_gpu and device.address]
    nvidia = [device for device in found if "NVIDIA" in device.description]
    return nvidia or found


def _detail(text: str, number: int, devices: list[_Device], acs: list[tuple[bool, bool]], notes: pasted.Notes) -> bool:
    """Keeps an indented line of the last device; the parts that an excerpt can hold are kept without a device, too."""
    device = devices[-1] if devices else None
    acs_match, link = _ACS.match(text), _LINK.match(text)
    if acs_match:
        redirect, completion, upstream, direct = (None if sign is None else sign == "+" for sign in acs_match.groups())
        is_bridge = device is None or device.is_bridge
        acs.append((bool(redirect or completion), is_bridge))
        if device is not None:
            device.redirects = bool(redirect or completion)
        notes.add(
            number,
            "pci.acs",
            address=device.address if device else None,
            description=device.description if device else None,
            is_bridge=is_bridge if device else None,
            request_redirect=redirect,
            completion_redirect=completion,
            upstream_forwarding=upstream,
            direct_translated=direct,
        )
        return True
    if device is None:
        if not link:
            return False
        device = _Device(None, "", "", number)
        devices.append(device)
    if link:
        what, speed, speed_word, width, width_word = link.groups()
        if device.address is None and what in device.links:
            device = _Device(None, "", "", number)
            devices.append(device)
        words = [word for word in (speed_word, width_word) if word]
        word = "downgraded" if "downgraded" in words else words[0] if words else None
        device.links[what] = (speed, int(width) if int(width) not in NO_WIDTH else None, word)
        return True
    for pattern, name in ((_GROUP, "group"), (_NUMA, "numa")):
        match = pattern.match(text)
        if match:
            setattr(device, name, int(match.group(1)))
            return True
    buses, port = _BUSES.match(text), _PORT.match(text)
    if buses:
        device.buses = (int(buses.group(2), 16), int(buses.group(3), 16))
        return True
    if port:
        device.port = port.group(1)
        return True
    driver, region = _DRIVER.match(text), _REGION.match(text)
    if driver:
        device.driver = driver.group(1)
    elif region:
        device.largest_bytes = max(device.largest_bytes, pasted.num_bytes(region.group(1)) or 0)
    elif "Capabilities: <access denied>" in text:
        device.denied = True
    return bool(driver or region or "Capabilities: <access denied>" in text)


def _link(device: _Device) -> PcieLink:
    now, most = device.links.get("LnkSta"), device.links.get("LnkCap")
    return PcieLink(
        generation=pcie_generation(now[0]) if now else None,
        width=now[1] if now else None,
        max_generation=pcie_generation(most[0]) if most else None,
        max_width=most[1] if most else None,
    )


def _note(device: _Device, notes: pasted.Notes) -> None:
    link = _link(device)
    if device.links:
        word = device.links["LnkSta"][2] if "LnkSta" in device.links else None
        notes.add(
            device.line,
            "pci.link",
            address=device.address,
            description=device.description or None,
            is_gpu=device.is_gpu,
            is_bridge=device.is_bridge,
            generation=link.generation,
            width=link.width,
            max_generation=link.max_generation,
            max_width=link.max_width,
            downgraded=None if word is None else word == "downgraded",
        )
    if device.is_gpu:
        if device.driver:
            notes.add(device.line, "pci.driver", address=device.address, driver=device.driver)
        if device.group is not None:
            notes.add(device.line, "pci.iommu_group", address=device.address, group=device.group)
        if device.largest_bytes:
            notes.add(device.line, "pci.bar", address=device.address, largest_bytes=device.largest_bytes)


_HopKind = Literal["root_port", "switch_up", "switch_down", "bridge"]
_PORT_KINDS: dict[str | None, _HopKind] = {
    None: "bridge",
    "Root Port": "root_port",
    "Upstream Port": "switch_up",
    "Downstream Port": "switch_down",
}


def _path(device: _Device, devices: list[_Device]) -> tuple[PcieHop, ...]:
    """The hops from the GPU up to its root port, as far as the bridges in the text say which buses lie below them."""
    bridges = [other for other in devices if other.is_above(device)]
    if not bridges or device.address is None:
        return ()
    bridges.sort(key=lambda other: other.buses or (0, 0), reverse=True)
    hops = [PcieHop(address=device.address, kind="gpu", link=_link(device))]
    for other in bridges:
        kind = _PORT_KINDS.get(other.port, "bridge")
        hops.append(PcieHop(address=other.address or "", kind=kind, link=_link(other), acs_redirects=other.redirects))
    return tuple(hops)


def _gpu(index: int, device: _Device, devices: list[_Device], notes: pasted.Notes) -> Gpu:
    notes.add(device.line, "gpu.index_assumed", gpu=index, pci_bus_id=device.address)
    words = re.findall(r"\[([^\[\]]{3,60})\]", re.split(r" \((?:rev|prog-if)", device.description)[0])
    products = [word for word in words if word != "AMD/ATI" and not re.fullmatch(r"[0-9a-f]{4}(?::[0-9a-f]{4})?", word)]
    return Gpu(
        index=index,
        name=products[-1] if products else None,
        pci_bus_id=device.address,
        pcie=_link(device),
        pcie_path=_path(device, devices),
        numa_node=device.numa,
    )

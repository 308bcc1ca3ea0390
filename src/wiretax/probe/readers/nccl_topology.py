"""NCCL's topology dump (``NCCL_TOPO_DUMP_FILE``, or the file a cloud hands to ``NCCL_TOPO_FILE``) and its graph dump.

The XML is read with expat. A document that declares entities is refused, so nothing can expand; nothing is fetched. Link speed and
width are what the slot and the card could do at most, not what they do now (``src/graph/xml.cc`` of https://github.com/NVIDIA/nccl).
NCCL flattens PCI switches and knows no NODE, so only NVLink counts and SYS become paths of pairs; the rest are observations.

========================= ======================================================================================================
kind                      values
========================= ======================================================================================================
nccl.topology_pair        source_gpu, target_gpu, path (NV<k>, PIX, PXB, PHB, SYS) as the dump's tree shows it
nccl.topology_nic         device, speed_bits_per_second, numa_node, gdr, index
nccl.topology_dump        num_gpus, num_cpus, on_nvswitch (GPUs with links to an NVSwitch), given: true where no GPU carries a number
                          (a file for NCCL to read, not what it found)
nccl.graph                pattern, num_channels, intra_, inter_bandwidth_bytes_per_second, intra_path, inter_path
========================= ======================================================================================================
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from xml.parsers import expat

from wiretax.model.machine import Gpu, GpuPair, Machine, PcieLink, Surroundings
from wiretax.probe.readers.pasted import Notes, machine, pci_bus_id
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.sysfs import pcie_generation

FORMAT = "NCCL topology dump"

_BEGIN = re.compile(r"\s*<(?P<root>system|graphs) version=")
_PREAMBLE = re.compile(r"\s*<\?xml[^>]{0,200}>\s*")
_MAX_DEPTH = 64
_MAX_ELEMENTS = 100_000
_MAX_GPUS = 256
_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "hygon", "CentaurHauls": "zhaoxin", "  Shanghai  ": "zhaoxin"}
_NVSWITCH_CLASS = "0x068000"


@dataclass(slots=True)
class _Card:
    """One GPU of the dump: where it hangs, and its NVLinks by target bus id."""

    line: int
    bus_id: str
    host: str
    numa: int | None
    above: tuple[str, ...]
    speed: str
    width: str
    dev: int | None = None
    sm: int | None = None
    nvlinks: dict[str, int] = field(default_factory=dict)
    switch_links: int = 0


@dataclass(slots=True)
class _Dump:
    cards: list[_Card] = field(default_factory=list)
    cpus: list[dict[str, str]] = field(default_factory=list)
    nics: list[tuple[int, dict[str, str], int | None]] = field(default_factory=list)
    graphs: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    last_line: int = 0
    finished: bool = False
    trouble: str = ""


def read(text: Text) -> tuple[Piece, ...]:
    """Reads every topology or graph dump in the text."""
    found: list[Piece] = []
    position = 0
    while position < len(text.lines):
        begin = _BEGIN.match(text.lines[position])
        if begin is None:
            position += 1
            continue
        dump = _parse(text, position)
        end = max(position, dump.last_line)
        found += _pieces(text, position, end, dump)
        position = end + 1
    return tuple(found)


def _parse(text: Text, start: int) -> _Dump:
    """Feeds lines to expat until the root element ends or the XML breaks."""
    dump = _Dump()
    parser = expat.ParserCreate()
    stack: list[tuple[str, dict[str, str]]] = []
    elements = 0
    line = start

    def refuse(*_: object) -> None:
        raise ValueError("it declares entities, which a topology dump never does")

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        if len(stack) >= _MAX_DEPTH or elements > _MAX_ELEMENTS:
            raise ValueError("it is larger than any topology")
        _element(dump, text.numbers[line], name, attributes, stack)
        stack.append((name, attributes))

    def closed(_: str) -> None:
        stack.pop()
        dump.finished = not stack

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.EntityDeclHandler = refuse
    parser.StartDoctypeDeclHandler = refuse
    for line in range(start, len(text.lines)):
        try:
            parser.Parse(text.lines[line] + "\n", False)
        except expat.ExpatError as error:
            if not dump.finished:
                dump.trouble = f"the XML breaks off: {expat.ErrorString(error.code)}"
            break
        except ValueError as error:
            dump.trouble = str(error)
            break
        dump.last_line = line
        if dump.finished:
            break
    else:
        dump.trouble = "the XML ends before its root element does"
    return dump


def _element(dump: _Dump, line: int, name: str, attributes: dict[str, str], stack: list[tuple[str, dict[str, str]]]) -> None:
    cpu = next((values for tag, values in stack if tag == "cpu"), {})
    numa = _whole(cpu.get("numaid"))
    numa = numa if numa is not None and numa >= 0 else None
    if name == "cpu":
        dump.cpus.append(attributes)
    elif name == "pci" and attributes.get("class", "").startswith("0x03") and len(dump.cards) < _MAX_GPUS:
        above = tuple(values.get("busid", "") for tag, values in stack if tag == "pci")
        host = cpu.get("host_hash", "")
        bus_id = pci_bus_id(attributes.get("busid", ""))
        dump.cards.append(_Card(line, bus_id, host, numa, above, attributes.get("link_speed", ""), attributes.get("link_width", "")))
    elif name == "gpu" and dump.cards:
        dump.cards[-1].dev, dump.cards[-1].sm = _whole(attributes.get("dev")), _whole(attributes.get("sm"))
    elif name == "nvlink" and dump.cards:
        count = min(_whole(attributes.get("count")) or 0, 64)
        target = pci_bus_id(attributes.get("target", ""))
        if attributes.get("tclass", "").startswith("0x03"):
            dump.cards[-1].nvlinks[target] = dump.cards[-1].nvlinks.get(target, 0) + count
        elif attributes.get("tclass", "") == _NVSWITCH_CLASS:
            dump.cards[-1].switch_links += count
    elif name == "net":
        dump.nics.append((line, attributes, numa))
    elif name == "graph":
        dump.graphs.append((line, attributes))


def _pieces(text: Text, start: int, end: int, dump: _Dump) -> list[Piece]:
    notes = Notes(text.source)
    number = text.numbers[start]
    for line, values, numa in dump.nics:
        speed = _whole(values.get("speed"))
        known = {
            "device": values.get("name"),
            "index": _whole(values.get("dev")),
            "speed_bits_per_second": speed * 1_000_000 if speed else None,
            "numa_node": numa,
            "gdr": values["gdr"] != "0" if "gdr" in values else None,
        }
        notes.add(line, "nccl.topology_nic", **{name: value for name, value in known.items() if value is not None})
    for line, values in dump.graphs:
        _graph(line, values, notes)
    hosts = dict.fromkeys(card.host for card in dump.cards)
    machines = [_machine([card for card in dump.cards if card.host == host], dump, notes) for host in hosts]
    if dump.cards:
        switches = sum(1 for card in dump.cards if card.switch_links)
        notes.add(
            number, "nccl.topology_dump", num_gpus=len(dump.cards), num_cpus=len(dump.cpus), on_nvswitch=switches,
            given=all(card.dev is None for card in dump.cards),
        )  # fmt: skip
    begin = start - 1 if start and _PREAMBLE.fullmatch(text.lines[start - 1]) else start
    understood = frozenset(text.numbers[begin : end + 1])
    damaged = ((text.numbers[end], dump.trouble),) if dump.trouble else ()
    first = Piece(
        source=text.source,
        format=FORMAT,
        first_line=number,
        machine=machines[0] if machines else None,
        observations=notes.observations(),
        understood=understood,
        damaged=damaged,
    )
    return [first, *(Piece(source=text.source, format=FORMAT, first_line=number, machine=other) for other in machines[1:])]


def _graph(line: int, values: dict[str, str], notes: Notes) -> None:
    rates = {
        f"{name}_bandwidth_bytes_per_second": float(values[key]) * 1e9
        for name, key in (("intra", "speedintra"), ("inter", "speedinter"))
        if re.fullmatch(r"\d{1,7}(?:\.\d{1,9})?", values.get(key, ""))
    }
    counts = {name: _whole(values.get(key)) for name, key in (("pattern", "pattern"), ("num_channels", "nchannels"))}
    paths = {name: values.get(key) for name, key in (("intra_path", "typeintra"), ("inter_path", "typeinter"))}
    known = {name: value for name, value in {**counts, **rates, **paths}.items() if value is not None}
    notes.add(line, "nccl.graph", **known)


def _machine(cards: list[_Card], dump: _Dump, notes: Notes) -> Machine:
    """One host. Where no card carries an NVML index, they are numbered in the order of their PCI addresses."""
    note = None
    if any(card.dev is None for card in cards) or len({card.dev for card in cards}) < len(cards):
        order = sorted(range(len(cards)), key=lambda position: cards[position].bus_id)
        numbers = {position: index for index, position in enumerate(order)}
        note = "GPUs are numbered in the order of their PCI addresses: the dump does not state NVML indices"
    else:
        numbers = {position: card.dev or 0 for position, card in enumerate(cards)}
    pairs = []
    for a, first in enumerate(cards):
        for b, second in enumerate(cards):
            if a == b:
                continue
            path = _path(first, second)
            notes.add(first.line, "nccl.topology_pair", source_gpu=numbers[a], target_gpu=numbers[b], path=path)
            if path.startswith("NV") or path == "SYS":
                pairs.append(GpuPair(source_gpu=numbers[a], target_gpu=numbers[b], path=path))
            else:
                reason = f"NCCL's tree says {path}, but it flattens switches and knows no NODE"
                pairs.append(GpuPair(source_gpu=numbers[a], target_gpu=numbers[b], missing={"path": reason}))
    cpus = [cpu for cpu in dump.cpus if not cards[0].host or cpu.get("host_hash", cards[0].host) == cards[0].host]
    vendors = [_VENDORS.get(cpu.get("vendor", ""), "arm" if cpu.get("arch") == "arm64" else None) for cpu in cpus]
    gpus = [_gpu(numbers[position], card) for position, card in enumerate(cards)]
    found = machine(
        "NCCL's topology dump",
        gpus=sorted(gpus, key=lambda gpu: gpu.index),
        pairs=pairs,
        surroundings=Surroundings(cpu_vendor=next(iter(filter(None, vendors)), None), numa_nodes=len(cpus) or None),
    )
    return dataclasses.replace(found, origin_note=note)


def _gpu(index: int, card: _Card) -> Gpu:
    links = sum(card.nvlinks.values()) + card.switch_links
    return Gpu(
        index=index,
        pci_bus_id=card.bus_id,
        numa_node=card.numa,
        compute_capability=f"{card.sm // 10}.{card.sm % 10}" if card.sm else None,
        nvlinks_active=links if links or card.dev is not None else None,
        pcie=PcieLink(max_generation=pcie_generation(card.speed), max_width=_whole(card.width)),
    )


def _path(first: _Card, second: _Card) -> str:
    """How two cards are joined in the tree: NVLinks, the same switch, nested switches, the same CPU, or neither."""
    direct = first.nvlinks.get(second.bus_id)
    if direct:
        return f"NV{direct}"
    if first.switch_links and second.switch_links:
        return f"NV{min(first.switch_links, second.switch_links)}"
    shared = [bridge for bridge in first.above if bridge in second.above]
    if shared:
        return "PIX" if first.above[-1:] == second.above[-1:] else "PXB"
    return "PHB" if first.numa is not None and first.numa == second.numa else "SYS"


def _whole(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"-?\d{1,12}", value) else None

"""NCCL and RCCL logs: what the scanner kept, as pieces with machines and observations.

The kinds of observation and their values are listed in ``nccl_facts`` and ``nccl_warnings``; this file adds:

===================== ==========================================================================================================
kind                  values
===================== ==========================================================================================================
nccl.transport        source_rank, target_rank, source_gpu and target_gpu (NVML indices) or source_bus_id and target_bus_id,
                      transport (as printed), family (P2P, SHM, NET, COLLNET), net, gdr, direction (send, receive), lines
nccl.transport_total  transport (without device numbers), family, pairs, lines: all connections of a host that move data this way
nccl.communicator     communicator_id, num_ranks, ranks_seen, started, completed, destroyed, aborted, num_hosts
nccl.calls            operation, calls: collective calls of subsystem COLL (line: the last one)
nccl.log              lines, num_hosts, num_ranks, last_line: the whole log; left_out where there was more than is kept
===================== ==========================================================================================================

:func:`transports` and :func:`ranks` serve the live tool, which reads its own ranks' debug files.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wiretax.model.machine import Gpu, Machine, NcclLibrary, Software
from wiretax.model.observation import Observation, Scalar
from wiretax.probe.readers import pasted
from wiretax.probe.readers.nccl_facts import facts
from wiretax.probe.readers.nccl_lines import LEVEL, Connection, connection, head
from wiretax.probe.readers.nccl_scan import Entry, Scanner
from wiretax.probe.readers.nccl_warnings import Values
from wiretax.probe.readers.piece import Piece

FORMAT = "NCCL log"

_MAX_A_KIND = 2_000
_MAX_PAIRS = 1_024
_MAX_MACHINES = 256
_MAX_GPUS = 128
_COLLECTOR = re.compile(r'(?:\\n)?","stream":".*|(?: ?\[repeated \d{1,9}x across cluster\]).*')
_DIRTY = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\ufffd]")


def transports(text: bytes | str) -> list[tuple[int, int, str, int]]:
    """The connections that NCCL's debug output names.

    Args:
        text: the debug file of one or more ranks of one communicator.

    Returns:
        (source rank, target rank, transport as printed, channel) for each connection, once, in order of appearance.
    """
    found: dict[tuple[int, int, str, int], None] = {}
    for _, message in _messages(text):
        link = connection(message)
        if link is not None:
            found[link.source_rank, link.target_rank, link.name, link.channel] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class RankDevice:
    """The GPU of a rank, as NCCL's init line states it."""

    nvml_device: int | None
    """The NVML index (stated from NCCL 2.18 on)."""
    cuda_device: int
    bus_id: str | None
    """In NVML's long form (``00000000:C1:00.0``)."""


def ranks(text: bytes | str) -> dict[int, RankDevice]:
    """Rank to GPU, from the init lines of NCCL's debug output; the first communicator wins where there are several."""
    found: dict[int, RankDevice] = {}
    for level, message in _messages(text):
        for kind, values in facts(level, message, None):
            if kind == "nccl.init":
                device = RankDevice(_whole(values.get("nvml_device")), _whole(values["cuda_device"]) or 0, _bus_id(values.get("bus_id")))
                found.setdefault(_whole(values["rank"]) or 0, device)
    return found


def _messages(text: bytes | str) -> Iterator[tuple[bytes, str]]:
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    for line in raw.splitlines():
        level = LEVEL.search(line)
        if level:
            yield level.group(), _clean(line[level.end() :])


def _clean(raw: bytes) -> str:
    """Text of bytes of unknown encoding, without control bytes and what Docker's and Ray's log collectors put behind a line."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        text = _DIRTY.sub("", text.replace("\xa0", " "))
    return _COLLECTOR.sub("", text) if "repeated" in text or '","stream' in text else text


def _whole(value: Scalar) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _bus_id(value: Scalar) -> str | None:
    """NCCL prints a PCI address as one hexadecimal number: domain, bus (8 bits), device (8 bits), function (4 bits)."""
    try:
        number = int(str(value), 16) if value is not None else None
    except ValueError:
        return None
    if number is None:
        return None
    return f"{number >> 20:08X}:{number >> 12 & 0xFF:02X}:{number >> 4 & 0xFF:02X}.{number & 0xF:X}"


@dataclass(slots=True)
class _Fact:
    line: int
    text: str
    count: int
    hosts: dict[str, None]


def pieces(source: str, scanner: Scanner) -> tuple[Piece, ...]:
    """What a scanned log says: one piece with all observations and the first host's machine, one more per further host.

    Args:
        source: the file's name as the user gave it.
        scanner: after the last line was fed to it.
    """
    if not scanner.nccl_lines:
        return ()
    raw = [fact for entry in scanner.facts.values() for fact in _facts_of(entry)]
    links = [(entry, host, link) for entry in scanner.connections.values() for host, link in _link_of(entry)]
    hosts = dict.fromkeys(host for *_, host in raw if host)
    hosts.update(dict.fromkeys(host for _, host, _ in links if host))
    numbering = _numbering(raw, links)
    observations = [
        *_joined(source, raw),
        *_communicators(source, raw),
        *_transports(source, links, numbering),
        *(
            Observation(
                source=source,
                line=entry.line,
                kind="nccl.calls",
                values={"operation": name, "calls": entry.count, "text": _clean(entry.text)[:300]},
            )
            for name, entry in scanner.calls.items()
        ),
        _summary(source, scanner, raw, links, len(hosts)),
    ]
    said: dict[str | None, list[_Raw]] = {}
    for fact in raw:
        said.setdefault(fact[3], []).append(fact)
    joined: dict[str | None, list[Connection]] = {}
    for _, host, link in links:
        joined.setdefault(host, []).append(link)
    anyone = said.get(None, [])
    named: list[str | None] = [*list(hosts)[:_MAX_MACHINES]] or [None]
    machines = [_machine(host, [*anyone, *(said.get(host, []) if host else [])], joined.get(host, []), numbering) for host in named]
    understood = frozenset(entry.line for entry in (*scanner.facts.values(), *scanner.connections.values()))
    first = Piece(
        source=source,
        format=FORMAT,
        first_line=scanner.first_line,
        machine=machines[0],
        observations=tuple(observations),
        understood=understood,
    )
    more = (Piece(source=source, format=FORMAT, first_line=scanner.first_line, machine=machine) for machine in machines[1:])
    return (first, *more)


_Raw = tuple[str, Values, Entry, str | None]
"""Kind, values, the entry, the host."""

_Link = tuple[Entry, str | None, Connection]


def _facts_of(entry: Entry) -> Iterator[_Raw]:
    level = LEVEL.search(entry.text)
    by = head(entry.text[: level.start()]) if level else None
    message = _clean(entry.text[level.end() if level else 0 :])
    for kind, values in facts(level.group() if level else b"", message, by.file if by else None):
        if kind == "nccl.link":
            if not entry.source:
                continue
            values = {"source": _clean(entry.source), **values}
        yield kind, values, entry, by.host if by else None


def _link_of(entry: Entry) -> Iterator[tuple[str | None, Connection]]:
    level = LEVEL.search(entry.text)
    if level:
        link = connection(_clean(entry.text[level.end() :]))
        if link is not None:
            yield head(entry.text[: level.start()]).host, link


def _joined(source: str, raw: Iterable[_Raw]) -> Iterator[Observation]:
    """Facts that agree in all but host are one observation; ``count`` is the number of lines."""
    found: dict[tuple[str, tuple[tuple[str, Scalar], ...]], _Fact] = {}
    of_kind: Counter[str] = Counter()
    left_out: dict[str, _Fact] = {}
    for kind, values, entry, host in raw:
        key = (kind, tuple(values.items()))
        fact = found.get(key)
        if fact is None:
            of_kind[kind] += 1
            fact = _Fact(entry.line, _clean(entry.text).strip()[:300], 0, {})
            if of_kind[kind] > _MAX_A_KIND:
                fact = left_out.setdefault(kind, fact)
            else:
                found[key] = fact
        fact.count += entry.count
        if host and len(fact.hosts) < 1024:
            fact.hosts[host] = None
    for (kind, pairs), fact in found.items():
        yield Observation(source=source, line=fact.line, kind=kind, values={**dict(pairs), **_where(fact)})
    for kind, fact in left_out.items():
        yield Observation(source=source, line=fact.line, kind="nccl.more", values={"of": kind, "count": fact.count, "text": fact.text})


def _where(fact: _Fact) -> Values:
    values: Values = {}
    if len(fact.hosts) == 1:
        values["host"] = next(iter(fact.hosts))
    elif fact.hosts:
        values["num_hosts"] = len(fact.hosts)
        values["hosts"] = ", ".join(list(fact.hosts)[:8]) + (", ..." if len(fact.hosts) > 8 else "")
    if fact.count > 1:
        values["count"] = fact.count
    values["text"] = fact.text
    return values


def _communicators(source: str, raw: Iterable[_Raw]) -> Iterator[Observation]:
    """Init lines joined by communicator: a rank that started and did not complete shows here."""
    started: dict[Scalar, set[tuple[Scalar, Scalar]]] = {}
    phases: dict[Scalar, Counter[str]] = {}
    about: dict[Scalar, tuple[int, Values, set[str | None]]] = {}
    identity: dict[tuple[str | None, Scalar], Scalar] = {}
    for kind, values, entry, host in raw:
        if kind != "nccl.init":
            continue
        phase = str(values["phase"])
        pointer = (host, values["communicator"])
        if "communicator_id" in values:
            identity[pointer] = values["communicator_id"]
        # Before 2.17 no id is printed and the pointer is another one in each rank: then all of one size count as one.
        key: Scalar = identity.get(pointer) or values.get("parent") or f"{values['num_ranks']} ranks"
        started.setdefault(key, set()).add((values["rank"], host))
        phases.setdefault(key, Counter())[phase] += 1
        about.setdefault(key, (entry.line, values, set()))[2].add(host)
    for key, (line, values, hosts) in list(about.items())[:_MAX_A_KIND]:
        count = phases[key]
        yield Observation(
            source=source,
            line=line,
            kind="nccl.communicator",
            values={
                **({"communicator_id": values["communicator_id"]} if "communicator_id" in values else {}),
                "num_ranks": values["num_ranks"],
                "ranks_seen": len({rank for rank, _ in started[key]}),
                "started": count["start"],
                "completed": count["complete"],
                "destroyed": count["destroy"],
                "aborted": count["abort"],
                "num_hosts": len(hosts - {None}),
            },
        )


def _numbering(raw: Iterable[_Raw], links: Iterable[_Link]) -> str:
    """What stands in the brackets behind a rank: ``bus`` (2.5 to 2.16, all RCCL) or ``nvml`` (from 2.17 on)."""
    for kind, values, *_ in raw:
        if kind == "nccl.version":
            major, minor = (int(part) for part in str(values["version"]).split(".")[:2])
            return "bus" if values.get("library") == "RCCL" or (major, minor) < (2, 17) else "nvml"
    numbers = {text for _, _, link in links for text in (link.source, link.target) if text}
    if any(len(text) > 2 or not text.isdecimal() for text in numbers):
        return "bus"
    return "bus" if numbers and all(len(text) == 2 and text.endswith("0") for text in numbers) else "nvml"


def _transports(source: str, links: list[_Link], numbering: str) -> Iterator[Observation]:
    totals: dict[tuple[str | None, str], tuple[Entry, set[tuple[int, int]], list[int]]] = {}
    shown: Counter[str] = Counter()
    for entry, host, link in links:
        family, name, extra = _family(link.name)
        total = totals.setdefault((host, name), (entry, set(), [0]))
        total[1].add((link.source_rank, link.target_rank))
        total[2][0] += entry.count
        shown[name] += 1
        if shown[name] > _MAX_PAIRS:
            continue
        values: Values = {
            "source_rank": link.source_rank,
            "target_rank": link.target_rank,
            "transport": link.name,
            "family": family,
            **extra,
        }
        for end, text in (("source", link.source), ("target", link.target)):
            if text is None:
                continue
            if numbering == "bus":
                values[f"{end}_bus_id"] = _bus_id(text)
            elif text.isdecimal():
                values[f"{end}_gpu"] = int(text)
        if link.direction:
            values["direction"] = link.direction
        if host:
            values["host"] = host
        values["lines"] = entry.count
        values["text"] = _clean(entry.text).strip()[:300]
        known: Values = {key: value for key, value in values.items() if value is not None}
        yield Observation(source=source, line=entry.line, kind="nccl.transport", values=known)
    for (host, name), (entry, pairs, lines) in list(totals.items())[:_MAX_A_KIND]:
        total_values: Values = {
            "transport": name,
            "family": _family(name)[0],
            "pairs": len(pairs),
            "lines": lines[0],
            "text": _clean(entry.text).strip()[:300],
        }
        if host:
            total_values["host"] = host
        yield Observation(source=source, line=entry.line, kind="nccl.transport_total", values=total_values)


def _family(name: str) -> tuple[str, str, Values]:
    """Family, the name without device numbers, and what a network name tells (``NET/IB/0/GDRDMA``)."""
    if name == "direct shared memory":
        return "SHM", name, {}
    family = name.split("/", 1)[0]
    if family in ("NET", "COLLNET"):
        parts = name.split("/")
        net = parts[1] if len(parts) > 1 else ""
        gdr = any(part.startswith("GDRDMA") for part in parts)
        return family, f"{family}/{net}" + ("/GDRDMA" if gdr else ""), {"net": net, "gdr": gdr}
    return (family if family in ("P2P", "SHM") else "other"), re.sub(r"/\d{1,7}\[\w{1,16}\]", "", name), {}


def _summary(source: str, scanner: Scanner, raw: list[_Raw], links: list[_Link], num_hosts: int) -> Observation:
    seen = {values["rank"] for kind, values, *_ in raw if kind == "nccl.init"}
    values: Values = {
        "lines": scanner.nccl_lines,
        "num_hosts": num_hosts,
        "ranks_seen": len(seen),
        "connections": len(links),
        "last_line": scanner.last_line,
        "text": _clean(scanner.last_text).strip()[:300],
    }
    sizes = [int(str(values["num_ranks"])) for kind, values, *_ in raw if kind in ("nccl.init", "nccl.nodes")]
    if sizes:
        values["num_ranks"] = max(sizes)
    if scanner.facts_left_out or scanner.connections_left_out:
        values["left_out"] = scanner.facts_left_out + scanner.connections_left_out
    return Observation(source=source, line=scanner.first_line, kind="nccl.log", values=values)


def _machine(host: str | None, raw: Sequence[_Raw], links: Sequence[Connection], numbering: str) -> Machine:
    """One host, from the facts that name it and those that name none (which hold for every host)."""
    mine = [(kind, values) for kind, values, *_ in raw]
    versions = [str(values["version"]) for kind, values in mine if kind == "nccl.version"]
    drivers = [str(values["cuda"]) for kind, values in mine if kind == "nccl.driver"]
    paths = [str(values["library_path"]) for kind, values in mine if kind == "nccl.rocm" and "library_path" in values]
    names = [str(values["hostname"]) for kind, values in mine if kind == "nccl.rocm" and "hostname" in values]
    library = NcclLibrary(path=paths[0] if paths else "path not stated in the log", version=versions[0]) if versions else None
    gpus, note = _gpus(mine, links, numbering)
    found = pasted.machine(
        "an NCCL log",
        hostname=host or next(iter(names), None),
        gpus=gpus,
        software=Software(
            cuda=next(iter(drivers), None),
            nccl_loaded=library,
            nccl_environment={str(values["name"]): str(values["value"]) for kind, values in mine if kind == "nccl.environment"},
        ),
    )
    return dataclasses.replace(found, origin_note=note)


def _gpus(mine: Sequence[tuple[str, Values]], links: Sequence[Connection], numbering: str) -> tuple[list[Gpu], str | None]:
    """The GPUs that init lines and same-host connections name, and how they are numbered where that is not NVML's way."""
    fabric = {_bus_id(values["bus_id"]): str(values["state"]) for kind, values in mine if kind == "nccl.fabric"}
    inits = [values for kind, values in mine if kind == "nccl.init"]
    local = [text for link in links if link.name.startswith(("P2P", "SHM", "direct")) for text in (link.source, link.target) if text]
    found: dict[int, tuple[str | None, int | None]] = {}
    note = None
    if any("nvml_device" in values for values in inits) or (numbering == "nvml" and local):
        for values in inits:
            index = _whole(values.get("nvml_device"))
            if index is not None:
                found.setdefault(index, (_bus_id(values.get("bus_id")), _whole(values["cuda_device"])))
        for text in local:
            if numbering == "nvml" and text.isdecimal():
                found.setdefault(int(text), (None, None))
    elif numbering == "bus":
        buses = {_bus_id(values.get("bus_id")): _whole(values["cuda_device"]) for values in inits}
        for text in local:
            buses.setdefault(_bus_id(text), None)
        known = sorted(bus for bus in buses if bus)
        found = {index: (bus, buses[bus]) for index, bus in enumerate(known)}
        note = "GPUs are numbered in the order of their PCI addresses: this NCCL does not state NVML indices" if known else None
    else:
        for values in inits:
            found.setdefault(_whole(values["cuda_device"]) or 0, (_bus_id(values.get("bus_id")), _whole(values["cuda_device"])))
        note = "GPU numbers are CUDA ordinals: these lines do not state NVML indices"
    gpus = [
        Gpu(index=index, pci_bus_id=bus, cuda_ordinal=ordinal, fabric_state=fabric.get(bus) if bus else None)
        for index, (bus, ordinal) in sorted(found.items())[:_MAX_GPUS]
    ]
    return gpus, note if gpus else None

"""Reads ``ip addr`` (long, ``-br`` and ``-o``), ``ifconfig`` (old and new), ``ip route``, ``ibstat`` and ``ibdev2netdev``.

Observations:
    ``network.interface``: ``name``, ``is_up``, ``ipv4`` (with prefix length, or None), ``is_virtual`` (docker, bridge, veth,
    tunnel, VPN or loopback by its name).
    ``network.speed``: ``name``, ``mbit_per_second``: what ``ethtool`` says.
    ``network.same_subnet``: ``first``, ``second``, ``subnet``: two interfaces that are up and real and share a subnet.
    ``network.route``: ``destination``, ``via``, ``device``.
    ``network.infiniband``: ``device``, ``port``, ``state`` (``Active``, ``Down``, ...), ``rate_gbit_per_second``, ``link_layer``.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from dataclasses import dataclass, field

from wiretax.model.machine import Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "network addresses"
_NAME = r"[\w.@:-]{1,40}"
_IP_LINK = re.compile(rf"\s{{0,4}}\d{{1,5}}: ({_NAME}?)(?:@[\w.-]{{1,30}})?: <([A-Z_,-]{{2,120}})>.{{0,120}}?(?:\bstate (\w{{2,14}}))?")
_IP_STATE = re.compile(r"\bstate (UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\b")
_INET = re.compile(r"\s{1,12}inet (\d{1,3}(?:\.\d{1,3}){3})(?:/(\d{1,2}))?(?:\s{1,4}(?:netmask (\d{1,3}(?:\.\d{1,3}){3})))?")
_INET6 = re.compile(r"\s{1,12}inet6 [\da-fA-F:]{2,40}")
_ONE_LINE = re.compile(rf"\s{{0,4}}\d{{1,5}}: ({_NAME})\s{{1,20}}inet (\d{{1,3}}(?:\.\d{{1,3}}){{3}})/(\d{{1,2}})\s")
_ONE_LINE_6 = re.compile(rf"\s{{0,4}}\d{{1,5}}: {_NAME}\s{{1,20}}inet6 ")
_BRIEF = re.compile(rf"\s{{0,4}}({_NAME})\s{{1,30}}(UP|DOWN|UNKNOWN)\s{{1,20}}((?:[\da-fA-F.:]{{2,40}}/\d{{1,3}}\s{{0,4}}){{0,12}})\s*$")
_IFCONFIG = re.compile(rf"({_NAME}?):? {{1,8}}(?:flags=\d{{1,6}}<([A-Z_,]{{2,120}})>|Link encap:(\S{{2,20}}))")
_OLD_INET = re.compile(r"\s{1,12}inet addr:(\d{1,3}(?:\.\d{1,3}){3}).{0,60}?Mask:(\d{1,3}(?:\.\d{1,3}){3})")
_OLD_UP = re.compile(r"\s{1,12}UP(?: [A-Z]{2,14}){0,8}\s{1,6}MTU")
_ROUTE = re.compile(rf"(default|\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?:/\d{{1,2}})?) (?:via (\S{{2,40}}) )?dev ({_NAME})\b")
_IB_DEVICE = re.compile(r"CA '([\w.-]{2,40})'|^hca_id:\s{1,8}([\w.-]{2,40})")
_IB_PORT = re.compile(r"\s{1,16}Port (\d{1,2}):|\s{1,16}port:\s{1,8}(\d{1,2})\s*$")
_IB_FIELD = re.compile(r"\s{1,24}(State|Rate|Link layer|state|link_layer|active_speed):\s{1,16}(?:PORT_)?([\w.() ]{1,30})")
_IBDEV = re.compile(rf"\s*([\w.-]{{2,40}}) port (\d{{1,2}}) ==> ({_NAME}) \((Up|Down)\)")
_ETHTOOL = re.compile(rf"\s{{0,4}}Settings for ({_NAME}?):\s*$")
_SPEED = re.compile(r"\s{1,16}Speed: (\d{1,7})Mb/s")
_OTHER = re.compile(r"\s{1,12}(?:link/\w{2,20}|altname|valid_lft|RX |TX |ether |inet6|vlan|bond|HWaddr|collisions|Interrupt|Memory:|loop )")
_VIRTUAL = re.compile(
    r"lo\d?$|docker|br-|veth|virbr|tun|tap|cali|flannel|cni|tailscale|wg\d|zt|Cloudflare|ovs|kube|vxlan|nodelocaldns|cilium|lxc|dummy|ppp|utun|"
    r"zerotier|podman|vmnet|awdl|bridge",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Interface:
    name: str
    line: int
    is_up: bool | None
    ipv4: str | None = None

    @property
    def is_virtual(self) -> bool:
        return _VIRTUAL.match(self.name) is not None


@dataclass(slots=True)
class _Found:
    interfaces: dict[str, _Interface] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)
    infiniband: list[dict[str, str | int | float | None]] = field(default_factory=list)


def read(text: Text) -> tuple[Piece, ...]:
    """The interfaces of each stream; a name that comes back with another address begins another host's list."""
    return tuple(piece for stream in streams(text) for piece in _pieces(text.source, stream))


def _pieces(source: str, stream: Stream) -> list[Piece]:
    pieces: list[Piece] = []
    found, notes = _Found(), pasted.Notes(source, stream.lines)
    current: _Interface | None = None
    ethtool: str | None = None
    for line in stream.lines:
        text = line.text
        if len(text) > 500 or not text.strip():
            continue
        interface = _interface(line)
        if interface is not None:
            if interface.name in found.interfaces and not interface.ipv4:
                pieces.extend(_piece(source, stream.host, found, notes))
                found, notes = _Found(), pasted.Notes(source, stream.lines)
            current = interface
            found.interfaces.setdefault(interface.name, interface)
            found.lines.add(line.number)
            continue
        named, speed = _ETHTOOL.match(text), _SPEED.match(text)
        if named:
            ethtool = named.group(1)
            continue
        if speed and ethtool:
            notes.add(line.number, "network.speed", name=ethtool, mbit_per_second=int(speed.group(1)))
            found.lines.add(line.number)
            continue
        if _infiniband(line, found) or _route(line, notes) or (found.lines and _ONE_LINE_6.match(text)):
            found.lines.add(line.number)
            continue
        if current is None:
            continue
        if _address(text, current) or _INET6.match(text) or _OTHER.match(text):
            found.lines.add(line.number)
        elif _OLD_UP.match(text):
            current.is_up = True
            found.lines.add(line.number)
        elif not text.startswith((" ", "\t")):
            current = None
    pieces.extend(_piece(source, stream.host, found, notes))
    return pieces


def _interface(line: Line) -> _Interface | None:
    text = line.text
    match = _IP_LINK.match(text) if "<" in text else None
    if match:
        name, flags = match.group(1), match.group(2).split(",")
        state = _IP_STATE.search(text)
        up = "UP" in flags and "NO-CARRIER" not in flags and (state is None or state.group(1) in ("UP", "UNKNOWN"))
        return _Interface(name, line.number, up)
    match = _ONE_LINE.match(text)
    if match:
        # "ip -o addr" shows addresses without the state of their interface.
        return _Interface(match.group(1), line.number, None, _with_prefix(match.group(2), match.group(3)))
    match = _IFCONFIG.match(text)
    if match:
        flags_text = match.group(2)
        running = None if flags_text is None else "UP" in flags_text.split(",") and "RUNNING" in flags_text.split(",")
        return _Interface(match.group(1).rstrip(":"), line.number, running)
    match = _BRIEF.match(text) if " UP " in text or " DOWN " in text or " UNKNOWN " in text else None
    if match and match.group(3).strip():
        ipv4 = next((part for part in match.group(3).split() if "." in part), None)
        return _Interface(match.group(1).partition("@")[0], line.number, match.group(2) != "DOWN", ipv4)
    return None


def _address(text: str, current: _Interface) -> bool:
    match, old = _INET.match(text), _OLD_INET.match(text)
    if match:
        address, prefix, mask = match.groups()
        current.ipv4 = current.ipv4 or _with_prefix(address, prefix or mask)
    elif old:
        current.ipv4 = current.ipv4 or _with_prefix(old.group(1), old.group(2))
    return bool(match or old)


def _with_prefix(address: str, prefix: str | None) -> str | None:
    try:
        if prefix is None:
            return str(ipaddress.IPv4Address(address))
        return str(ipaddress.IPv4Interface(f"{address}/{prefix}"))
    except ValueError:
        return None


def _route(line: Line, notes: pasted.Notes) -> bool:
    match = _ROUTE.match(line.text)
    if match:
        destination, via, device = match.groups()
        notes.add(line.number, "network.route", destination=destination, via=via, device=device)
    return match is not None


def _infiniband(line: Line, found: _Found) -> bool:
    text = line.text
    mapped = _IBDEV.match(text)
    if mapped:
        device, port, _, state = mapped.groups()
        found.infiniband.append({"line": line.number, "device": device, "port": int(port), "state": state})
        return True
    device_line, port_line = _IB_DEVICE.search(text), _IB_PORT.match(text)
    if device_line:
        found.infiniband.append({"line": line.number, "device": device_line.group(1) or device_line.group(2), "port": None, "state": None})
        return True
    if not found.infiniband:
        return False
    last = found.infiniband[-1]
    if port_line:
        port_number = int(port_line.group(1) or port_line.group(2))
        if last["port"] is not None:
            last = {"line": line.number, "device": last["device"], "port": None, "state": None}
            found.infiniband.append(last)
        last["port"] = port_number
        return True
    value = _IB_FIELD.match(text)
    if value:
        label, content = value.group(1).lower(), value.group(2).strip()
        if label == "state":
            last["state"] = content.split(" (")[0].capitalize()
        elif label == "rate":
            last["rate"] = pasted.number(content)
        elif label in ("link layer", "link_layer"):
            last["link_layer"] = content
        return True
    return re.match(r"\s{1,24}[A-Za-z][\w ]{2,30}:\s", text) is not None and line.number - int(last["line"] or 0) < 30


def _piece(source: str, host: str | None, found: _Found, notes: pasted.Notes) -> list[Piece]:
    if not found.lines:
        return []
    for interface in found.interfaces.values():
        notes.add(
            interface.line,
            "network.interface",
            name=interface.name,
            is_up=interface.is_up,
            ipv4=interface.ipv4,
            is_virtual=interface.is_virtual,
        )
    real = [interface for interface in found.interfaces.values() if interface.is_up and interface.ipv4 and not interface.is_virtual]
    for first, second in itertools.combinations(real[:64], 2):
        one, other = _network(first.ipv4), _network(second.ipv4)
        if one is not None and other is not None and one.prefixlen < 32 and one.overlaps(other):
            notes.add(second.line, "network.same_subnet", first=first.name, second=second.name, subnet=str(one))
    for entry in found.infiniband:
        notes.add(
            int(entry["line"] or 0),
            "network.infiniband",
            device=entry["device"],
            port=entry["port"],
            state=entry["state"],
            rate_gbit_per_second=entry.get("rate"),
            link_layer=entry.get("link_layer"),
        )
    addresses = {interface.name: interface.ipv4 for interface in found.interfaces.values() if interface.ipv4}
    return [
        Piece(
            source=source,
            format=FORMAT,
            first_line=min(found.lines),
            machine=pasted.machine(FORMAT, hostname=host, surroundings=Surroundings(network_interfaces=addresses)),
            observations=notes.observations(),
            understood=frozenset(found.lines),
        )
    ]


def _network(address: str | None) -> ipaddress.IPv4Network | None:
    if address is None or "/" not in address:
        return None
    try:
        return ipaddress.IPv4Interface(address).network
    except ValueError:
        return None

"""Network interfaces and their addresses, as NCCL and gloo see them. Sends nothing."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from wiretax.probe.files import read_text

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h


def network_interfaces(root: Path = Path("/")) -> dict[str, str]:
    """Interface name to its address with prefix length; IPv4 where there is one, as NCCL prefers. Without an address: left out.

    Args:
        root: where ``/proc`` is. IPv4 addresses come from the kernel itself and only for the real root.
    """
    found = parse_if_inet6(read_text(root / "proc/net/if_inet6"))
    if root == Path("/"):
        found.update(_ipv4())
    return dict(sorted(found.items()))


def parse_if_inet6(text: str | None) -> dict[str, str]:
    """``/proc/net/if_inet6``: the first address of each interface that is more than link-local, else the first."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        parts = line.split()
        try:
            address = ipaddress.IPv6Address(bytes.fromhex(parts[0]))
            interface = ipaddress.IPv6Interface((address, int(parts[2], 16)))
            name = parts[5]
        except (IndexError, ValueError):
            continue
        if name not in found or (ipaddress.IPv6Interface(found[name]).is_link_local and not address.is_link_local):
            found[name] = str(interface)
    return found


def _ipv4() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        interfaces = socket.if_nameindex()
        query = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return found
    with query:
        for _, name in interfaces:
            request = struct.pack("256s", name.encode()[:15])
            try:
                address = socket.inet_ntoa(fcntl.ioctl(query.fileno(), _SIOCGIFADDR, request)[20:24])
                netmask = socket.inet_ntoa(fcntl.ioctl(query.fileno(), _SIOCGIFNETMASK, request)[20:24])
                found[name] = str(ipaddress.IPv4Interface(f"{address}/{netmask}"))
            except (OSError, ValueError):
                continue
    return found

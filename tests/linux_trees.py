"""Small copies of /proc and /sys, made in a temporary folder."""

from __future__ import annotations

import os
import struct
from pathlib import Path

SWITCHED = ("0000:00:01.1", "0000:01:00.0", "0000:02:08.0", "0000:03:00.0")
"""Root port, upstream and downstream port of a switch, GPU."""


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def pci_device(root: Path, chain: tuple[str, ...], **files: str | bytes) -> Path:
    """A device below the bridges of its chain, with the link that Linux puts under /sys/bus/pci/devices."""
    bus = f"pci{chain[0].rsplit(':', 1)[0]}"
    folder = root / "sys/devices" / bus / Path(*chain)
    folder.mkdir(parents=True, exist_ok=True)
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    if not (listed / chain[-1]).is_symlink():
        (listed / chain[-1]).symlink_to(os.path.relpath(folder, listed))
    write(folder, files)
    return folder


def link(speed: str = "32.0 GT/s PCIe", width: str = "16", max_speed: str = "32.0 GT/s PCIe", max_width: str = "16") -> dict[str, str]:
    return {"current_link_speed": speed, "current_link_width": width, "max_link_speed": max_speed, "max_link_width": max_width}


def config_space(port_type: int, *, acs_control: int | None = None, size: int = 4096) -> bytes:
    """A configuration space with a PCI Express capability and, if given, an ACS one behind another extended capability."""
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, 0x1022, 0x1483)
    data[6] = 0x10  # the device has a list of capabilities
    data[0x34] = 0x50
    data[0x50:0x52] = bytes((0x01, 0x60))  # power management, then
    data[0x60:0x64] = bytes((0x10, 0x00, port_type << 4, 0x00))  # PCI Express
    if acs_control is not None:
        struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | 0x2A0 << 20)  # error reporting, then
        struct.pack_into("<IHH", data, 0x2A0, 0x000D | 1 << 16, 0x1F, acs_control)
    return bytes(data[:size])

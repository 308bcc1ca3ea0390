"""Reads what ``nvidia-smi`` says when the driver does not answer or a GPU is gone.

Observations:
    ``gpu.lost``: the driver lost a GPU; ``pci_bus_id`` (None where not said), ``gpu`` (None where not said), ``message``.
    ``driver.failure``: ``failure`` (``mismatch``, ``absent``, ``no_devices``, ``hung``, ``unknown_error``), ``library_version``,
    ``message``.
"""

from __future__ import annotations

import re

from wiretax.probe.readers import pasted
from wiretax.probe.readers.pasted import PCI_ADDRESS, PCI_DEVICE
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "an nvidia-smi error"
_HANDLE = re.compile(rf"Unable to determine the device handle for (?:gpu|GPU)\s?(\d{{1,3}}(?=:\s|\s))?:?\s?({PCI_ADDRESS})?")
_FAILURES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"Driver/library version mismatch", re.IGNORECASE), "mismatch", "mismatch"),
    (re.compile(r"couldn't communicate with the NVIDIA driver", re.IGNORECASE), "absent", "absent"),
    (re.compile(r"Failed to initialize NVML: (?:Driver Not Loaded|could not load NVML|N/A)", re.IGNORECASE), "absent", "absent"),
    (re.compile(r"(?:nvidia-smi|nvidia_smi)(?:: command not found|'? is not recognized)", re.IGNORECASE), "absent", "absent"),
    (re.compile(r"^\s*No devices were found", re.IGNORECASE), "error", "no_devices"),
    (re.compile(r"Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions)", re.IGNORECASE), "error", "unknown_error"),
    (re.compile(r"Failed to initialize NVML: (?:Timeout|GPU is lost)", re.IGNORECASE), "error", "unknown_error"),
    (re.compile(r"task nvidia-smi:\d{1,8} blocked for more than|nvidia-smi .{0,40}(?:hangs|timed out)", re.IGNORECASE), "hung", "hung"),
)
_LOST = re.compile(
    rf"\bXID:? 79\b.{{0,60}}?(?:PCI:)?({PCI_ADDRESS}|(?=[0-9A-Fa-f]{{4,8}}:){PCI_DEVICE})?$"
    r"|\b(?:NVML_)?ERROR_GPU_IS_LOST\b|\bGPU is lost\b"
)
"""What daemons (gpud, DCGM, exporters) write of a GPU that fell off the bus; the kernel's own line is read elsewhere."""
_LIBRARY = re.compile(r"NVML library version:\s?([\d.]{3,20})")


def read(text: Text) -> tuple[Piece, ...]:
    """All errors of a text as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    state: str | None = None
    detail: str | None = None
    for position, line in enumerate(stream.lines):
        text = line.text
        if len(text) > 600:
            continue
        handle = _HANDLE.search(text) if "device handle" in text else None
        if handle:
            index, bus = handle.groups()
            notes.add(
                line.number,
                "gpu.lost",
                pci_bus_id=pasted.pci_bus_id(bus) if bus else None,
                gpu=int(index) if index else None,
                message=text.strip(),
            )
            state, detail = state or "error", detail or text.strip()
            lines.add(line.number)
            continue
        lost = _LOST.search(text) if ("79" in text or "LOST" in text or "lost" in text) and "NVRM" not in text else None
        if lost and "Failed to initialize" not in text:
            bus = lost.group(1)
            notes.add(line.number, "gpu.lost", pci_bus_id=pasted.pci_bus_id(bus) if bus else None, gpu=None, message=text.strip()[:240])
            lines.add(line.number)
            continue
        for pattern, driver_state, failure in _FAILURES:
            if pattern.search(text):
                library = _library(stream.lines, position, lines)
                notes.add(line.number, "driver.failure", failure=failure, library_version=library, message=text.strip())
                state, detail = state or driver_state, detail or text.strip()
                lines.add(line.number)
                break
    if not lines:
        return None
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=stream.host, driver_state=state, driver_detail=detail),
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _library(lines: tuple[Line, ...], position: int, used: set[int]) -> str | None:
    for line in lines[position : position + 3]:
        match = _LIBRARY.search(line.text[:200])
        if match:
            used.add(line.number)
            return match.group(1)
    return None

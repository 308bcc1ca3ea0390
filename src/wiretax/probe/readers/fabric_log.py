"""Reads the NVIDIA fabric manager's log, its journal lines and ``systemctl status``.

Observations:
    ``fabric.manager``: ``event`` (``nothing_to_do``: no NVSwitch was found; ``version_mismatch``, ``failed``, ``running``,
    ``inactive``, ``configured``, ``starting``), ``message``.
    ``fabric.nvswitch``: ``present`` (False where the text says that the host has none).
"""

from __future__ import annotations

import re

from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "fabric manager log"
_OURS = re.compile(r"nv-?fabric-?manager|nvidia-fabricmanager|fabric ?manager|NVLSM|nvlsm|NVSwitch|NV_WARN_NOTHING_TO_DO", re.IGNORECASE)
_EVENTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), event)
    for pattern, event in (
        (r"NV_WARN_NOTHING_TO_DO|no NVSwitch.{0,30}(?:found|detected)", "nothing_to_do"),
        (r"version mismatch|don'?t match with driver version|does not match.{0,20}driver", "version_mismatch"),
        (r"status=\d{1,3}/FAILURE|Failed to start|control process exited|Failed with result|Job for \S{1,60} failed", "failed"),
        (r"Active: failed|failed to initialize|exit-code|\[ERROR\]", "failed"),
        (r"Active: inactive|inactive \(dead\)|Stopped (?:\S{1,40} - )?\W?NVIDIA fabric|could not be found|not loaded", "inactive"),
        (r"Successfully configured|Connected to \d", "configured"),
        (r"Active: active \(running\)|Started (?:\S{1,40} - )?\W?NVIDIA fabric|is running with", "running"),
        (r"Starting (?:\S{1,40} - )?\W?NVIDIA fabric|Starting Fabric", "starting"),
    )
)
_HOST = re.compile(r"\s*\w{3} [ \d]\d \d\d:\d\d:\d\d ([\w.-]{1,64}) (?:systemd|nv-fabricmanager)")
_UNIT = re.compile(r"nvidia-fabricmanager\.service")


def read(text: Text) -> tuple[Piece, ...]:
    """The fabric manager's lines of each stream, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    host = stream.host
    unit_at = -10
    for position, line in enumerate(stream.lines):
        text = line.text
        if len(text) > 1000:
            continue
        ours = _OURS.search(text) is not None
        if _UNIT.search(text):
            unit_at = position
        # "Active: failed" stands a few lines under the unit's name in systemctl's output.
        if not ours and not (text.strip().startswith("Active:") and position - unit_at <= 6):
            continue
        if re.search(r"\bno NVSwitch\b|without NVSwitch", text, re.IGNORECASE):
            notes.add(line.number, "fabric.nvswitch", present=False)
            lines.add(line.number)
        for pattern, event in _EVENTS:
            if pattern.search(text):
                notes.add(line.number, "fabric.manager", event=event, message=text.strip()[:240])
                lines.add(line.number)
                break
        named = _HOST.match(text)
        if named and host is None:
            host = named.group(1)
    if not lines:
        return None
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=host) if host else None,
        observations=notes.observations(),
        understood=frozenset(lines),
    )

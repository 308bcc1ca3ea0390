"""What a list of runs needs, without decoding every run: a summary a file, kept in an index beside them.

The files are the truth. A summary is used only while its file has the same size and time of change; anything else is read anew, and
an index that is damaged, missing or of another version costs time and nothing else.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wiretax.store.folder import run_files, runs_folder, write_atomically

INDEX_NAME = ".index.msgpack"
INDEX_VERSION = 1
SMALL_CHANGE = 20
"""New files up to which an index of a hundred times as many is not rewritten: listing must stay cheaper than writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One run in a list. ``problem`` says why its file cannot be read, where that is so."""

    path: str
    run_id: str
    created_at: str = ""
    command: str = ""
    hostname: str | None = None
    gpus: str = ""
    num_gpus: int = 0
    decision: str | None = None
    keep_box: bool | None = None
    status: str | None = None
    worst: str | None = None
    """The highest severity among its findings."""
    codes: tuple[str, ...] = ()
    busbw_bytes_per_second: float | None = None
    """The best all-reduce over the wire as found."""
    tags: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(slots=True)
class _Gpu:
    name: str | None = None


@dataclass(slots=True)
class _Machine:
    hostname: str | None = None
    gpus: list[_Gpu] = field(default_factory=list)


@dataclass(slots=True)
class _Point:
    busbw_bytes_per_second: float = 0.0


@dataclass(slots=True)
class _Collective:
    operation: str = ""
    wire: str = ""
    points: list[_Point] = field(default_factory=list)


@dataclass(slots=True)
class _Measurements:
    collectives: list[_Collective] = field(default_factory=list)


@dataclass(slots=True)
class _Finding:
    code: str
    severity: str


@dataclass(slots=True)
class _Verdict:
    decision: str | None = None
    keep_box: bool | None = None


@dataclass(slots=True)
class _Outcome:
    status: str | None = None


@dataclass(slots=True)
class _Part:
    """The parts of a run document that a list shows; the decoder skips all others without making objects of them."""

    run_id: str
    schema_version: int
    created_at: str = ""
    command: str = ""
    machine: _Machine | None = None
    measurements: _Measurements = field(default_factory=_Measurements)
    findings: list[_Finding] = field(default_factory=list)
    verdict: _Verdict | None = None
    outcome: _Outcome | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    size: int
    changed_ns: int
    summary: Summary


@dataclass(slots=True)
class _Index:
    version: int
    entries: dict[str, _Entry] = field(default_factory=dict)


_SEVERITIES = ("info", "warning", "problem", "critical")
_decoder = msgspec.json.Decoder(_Part)


def summaries(folder: Path | None = None) -> list[Summary]:
    """A summary of every run, newest first. The index is brought up to date on the way, where the folder may be written.

    Args:
        folder: of runs; the user's when None.

    Raises:
        BadInput: there is one, but it is no folder or may not be read.
    """
    base = folder if folder is not None else runs_folder()
    index = _read(base / INDEX_NAME)
    found: dict[str, _Entry] = {}
    fresh = 0
    for name, status in run_files(base):
        known = index.entries.get(name)
        if known is None or (known.size, known.changed_ns) != (status.st_size, status.st_mtime_ns):
            fresh += 1
            known = _Entry(status.st_size, status.st_mtime_ns, summarize(base / name))
        found[name] = known
    gone = len(index.entries) - (len(found) - fresh)
    if fresh or gone:
        few = fresh + gone <= SMALL_CHANGE and len(found) > 100 * SMALL_CHANGE
        if not few:
            # A folder that may only be read is listed all the same, more slowly.
            with contextlib.suppress(OSError):
                write_atomically(base / INDEX_NAME, msgspec.msgpack.encode(_Index(INDEX_VERSION, found)))
    return sorted((entry.summary for entry in found.values()), key=lambda one: (one.created_at, one.run_id), reverse=True)


def summarize(path: Path) -> Summary:
    """The summary of one file; a damaged one has its problem in it instead."""
    try:
        part = _decoder.decode(path.read_bytes())
    except OSError as error:
        return Summary(path=str(path), run_id=path.stem, problem=f"cannot be read: {error.strerror or error}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Summary(path=str(path), run_id=path.stem, problem=f"no run document: {error}")
    machine = part.machine or _Machine()
    counts: dict[str, int] = {}
    for gpu in machine.gpus:
        counts[gpu.name or "unknown GPU"] = counts.get(gpu.name or "unknown GPU", 0) + 1
    as_found = {"default"} if machine.gpus else {"default", "gloo"}
    severities = {finding.severity for finding in part.findings}
    rates = [
        point.busbw_bytes_per_second
        for series in part.measurements.collectives
        if series.operation == "all_reduce" and series.wire in as_found
        for point in series.points
    ]
    return Summary(
        path=str(path),
        run_id=part.run_id,
        created_at=part.created_at,
        command=part.command,
        hostname=machine.hostname,
        gpus=" + ".join(f"{count} x {name}" for name, count in counts.items()) or "no GPU",
        num_gpus=len(machine.gpus),
        decision=part.verdict.decision if part.verdict is not None else None,
        keep_box=part.verdict.keep_box if part.verdict is not None else None,
        status=part.outcome.status if part.outcome is not None else None,
        worst=next((name for name in reversed(_SEVERITIES) if name in severities), None),
        codes=tuple(dict.fromkeys(finding.code for finding in part.findings)),
        busbw_bytes_per_second=max(rates, default=None),
        tags=tuple(part.tags),
    )


def _read(path: Path) -> _Index:
    try:
        index: Any = msgspec.msgpack.decode(path.read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError):
        return _Index(INDEX_VERSION)
    return index if index.version == INDEX_VERSION else _Index(INDEX_VERSION)

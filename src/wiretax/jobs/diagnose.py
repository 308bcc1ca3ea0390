"""Cause and fix from pasted text: every input is read, sorted into machines and runs, judged, and traced back to its lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from wiretax import __version__
from wiretax.jobs.provenance import Kept, Lines, traced
from wiretax.jobs.share import shared
from wiretax.judge.diagnosis import Diagnosis, Subject
from wiretax.judge.diagnosis import diagnose as judge_subjects
from wiretax.model.finding import Verdict
from wiretax.model.machine import Machine
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation
from wiretax.model.pasted import InputNote, Part
from wiretax.model.run import Outcome, Run, Tool
from wiretax.probe.readers.input import read_files
from wiretax.probe.readers.join import Group, join
from wiretax.probe.readers.piece import Problem
from wiretax.store.folder import new_run_id

T = TypeVar("T")


def diagnose(files: Sequence[str | Path], *, stdin: BinaryIO | None = None) -> Run:
    """Says what is wrong with the machines and jobs that these texts speak of; the same as ``wiretax diagnose FILE...``.

    Args:
        files: paths; ``-`` is standard input. Order does not matter; several texts may share a file.
        stdin: standard input, where it is not the process's own.

    Returns:
        A run with ``findings`` (most severe first, each with its lines), ``machine``, ``observations``, ``parts`` where the texts are of
        several machines or runs, and ``input_notes``. A file that cannot be read is a note, and the others are judged.
    """
    started = time.monotonic()
    names = [str(name) for name in files]
    kept = Kept(stdin or sys.stdin.buffer) if "-" in names else None
    pieces, problems = read_files(names, kept)  # type: ignore[arg-type]
    groups = join(pieces)
    run = _document(groups, problems, datetime.now(UTC))
    if not groups and problems and all(problem.kind == "unreadable" for problem in problems):
        return replace(run, verdict=_nothing_read(), outcome=Outcome(status="complete", duration_seconds=time.monotonic() - started))
    subjects = [_subject(group, groups, problems, run) for group in groups]
    diagnosis = judge_subjects(subjects)
    return replace(
        run,
        findings=traced(diagnosis.findings, groups, Lines(kept)),
        verdict=diagnosis.verdict,
        parts=_parts(groups, subjects, diagnosis) if len(groups) > 1 else (),
        outcome=Outcome(status="complete", duration_seconds=time.monotonic() - started),
    )


def unreadable(run: Run) -> tuple[InputNote, ...]:
    """What could not be read at all, or only in part: with any of it the command ends with exit code 2."""
    return tuple(note for note in run.input_notes if note.kind == "unreadable")


def redacted(run: Run) -> tuple[Run, tuple[str, ...]]:
    """The run as it may be shown to strangers, and what was taken out, in words.

    Beside what every shared run loses, the hosts that log lines name and the users in paths are replaced wherever they stand.
    """
    return shared(run, _hosts(run))


def _hosts(run: Run) -> tuple[str, ...]:
    """Names of hosts in observations and machines, the longest first."""
    found = {part.machine.hostname for part in run.parts if part.machine is not None and part.machine.hostname}
    for observation in run.observations:
        for key in ("host", "hostname", "hosts"):
            value = observation.values.get(key)
            found.update(name for name in str(value or "").split(", ") if name and name != "...")
    return tuple(sorted(found, key=len, reverse=True))


def _nothing_read() -> Verdict:
    reason = "no input could be read"
    return Verdict(
        decision="cannot_judge",
        num_gpus=None,
        keep_box=None,
        sentence="No input could be read, so nothing was judged.",
        missing={"num_gpus": reason, "keep_box": reason},
    )


def _document(groups: Sequence[Group], problems: Sequence[Problem], now: datetime) -> Run:
    """The run without its conclusions. What fits several groups is in it once."""
    observations = _once(o for group in groups for o in group.observations)
    machine = _main_machine(groups)
    return Run(
        run_id=new_run_id(now),
        created_at=now.isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command="diagnose",
        outcome=Outcome(status="complete"),
        machine=machine,
        observations=observations,
        measurements=Measurements(
            copies=_once(entry for group in groups for entry in group.measurements.copies),
            peer_truth=_once(entry for group in groups for entry in group.measurements.peer_truth),
            collectives=_once(entry for group in groups for entry in group.measurements.collectives),
            compute=_once(entry for group in groups for entry in group.measurements.compute),
        ),
        input_notes=tuple(
            InputNote(source=p.source, line=p.line or None, kind=p.kind, text=p.text, count=p.count, do=p.do) for p in problems
        ),
        missing={"machine": "no text speaks of a machine"} if machine is None else {},
    )


def _once(entries: Iterable[T]) -> tuple[T, ...]:
    """Equal entries once, in order; they hold dictionaries, so their text is the key."""
    return tuple({repr(entry): entry for entry in entries}.values())


def _main_machine(groups: Sequence[Group]) -> Machine | None:
    """The machine that the texts tell most of; the first of equals."""
    machines = [group.machine for group in groups if group.machine is not None]
    return max(machines, key=lambda machine: len(machine.gpus) + len(machine.pairs), default=None)


def _kind(group: Group) -> Literal["machine", "state", "run"] | None:
    kinds = {apart.kind for apart in group.apart}
    for kind in _KINDS:
        if kind in kinds:
            return kind
    return None


_KINDS: tuple[Literal["machine", "state", "run"], ...] = ("machine", "state", "run")


def _label(group: Group, groups: Sequence[Group]) -> str:
    """The host where it tells groups apart, else the files that only this group has."""
    host = group.machine.hostname if group.machine is not None else None
    hosts = [other.machine.hostname for other in groups if other.machine is not None]
    if host and hosts.count(host) == 1:
        return host
    own = {piece.source for piece in group.pieces}
    others = {piece.source for other in groups if other is not group for piece in other.pieces}
    return ", ".join(Path(name).name if name != "-" else "standard input" for name in sorted(own - others or own)[:4])


def _subject(group: Group, groups: Sequence[Group], problems: Sequence[Problem], document: Run) -> Subject:
    """A group as what is judged alone, with the damage to its texts as observations."""
    sources = {piece.source for piece in group.pieces}
    damaged = tuple(
        Observation(source=p.source, line=p.line, kind="input.damaged", values={"what": p.text, "count": p.count})
        for p in problems
        if p.kind == "damaged" and p.source in sources
    )
    run = replace(
        document,
        machine=group.machine,
        measurements=group.measurements,
        observations=(*group.observations, *damaged),
        input_notes=(),
    )
    return Subject(
        run=run,
        label=_label(group, groups),
        differs=_kind(group),
        because=_because(group),
        conflicts={apart.group: apart.because for apart in group.apart},
    )


def _because(group: Group) -> str:
    return group.apart[0].because if group.apart else group.ambiguous


def _parts(groups: Sequence[Group], subjects: Sequence[Subject], diagnosis: Diagnosis) -> tuple[Part, ...]:
    return tuple(
        Part(
            label=subject.label,
            sources=tuple(dict.fromkeys(f"{piece.source}: {piece.format}" for piece in group.pieces)),
            differs=subject.differs,
            because=subject.because,
            machine=group.machine,
            findings=codes,
            missing={"machine": "its texts do not speak of a machine"} if group.machine is None else {},
        )
        for group, subject, codes in zip(groups, subjects, diagnosis.codes, strict=True)
    )

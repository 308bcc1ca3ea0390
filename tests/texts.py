"""Pasted text as a check of the judge gets it: read, joined, and with its gaps explained, but not yet judged."""

from __future__ import annotations

from wiretax.judge.diagnosis import prepare
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation
from wiretax.model.run import Outcome, Run, Tool
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.join import join


def text_run(*texts: str) -> Run:
    """The run of these texts, which must be of one machine."""
    pieces, problems = [], []
    for number, text in enumerate(texts):
        found, worries = read_bytes(f"{number}.txt", text.encode())
        pieces += found
        problems += worries
    groups = join(pieces)
    assert len(groups) <= 1, [group.apart for group in groups]
    damaged = tuple(
        Observation(source=p.source, line=p.line, kind="input.damaged", values={"what": p.text, "count": p.count})
        for p in problems
        if p.kind == "damaged"
    )
    run = Run(
        run_id="test",
        created_at="2026-11-30T00:00:00Z",
        tool=Tool(version="0"),
        command="diagnose",
        outcome=Outcome(status="complete"),
        machine=groups[0].machine if groups else None,
        observations=(*groups[0].observations, *damaged) if groups else damaged,
        measurements=groups[0].measurements if groups else Measurements(),
    )
    return prepare(run)

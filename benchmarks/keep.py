"""Keeps a run document as evidence: ``python benchmarks/keep.py RUN.json NAME`` writes ``benchmarks/results/NAME.json``.

Host names, addresses, UUIDs and paths are taken out and the findings are drawn anew; every figure and raw sample stays.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from wiretax.judge.verdict import judge
from wiretax.probe.recorded import redact
from wiretax.store.codec import encode
from wiretax.store.folder import load_run

RESULTS = Path(__file__).parent / "results"


def keep(source: Path, name: str) -> Path:
    """Writes the redacted document and returns its path."""
    run = load_run(source)
    if run.machine is not None:
        run = dataclasses.replace(run, machine=redact(run.machine))
    incidents = tuple(
        dataclasses.replace(incident, detail=re.sub(r"/[^\s:'\"]+/", "<path>/", incident.detail)) for incident in run.measurements.incidents
    )
    run = judge(dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, incidents=incidents)))
    target = RESULTS / f"{name}.json"
    target.write_bytes(encode(run, indent=False))
    return target


if __name__ == "__main__":
    print(keep(Path(sys.argv[1]), sys.argv[2]))

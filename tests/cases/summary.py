"""Prints for each case of an ``expected.json`` whether the diagnosis is right: ``make cases``, or this file with a folder of cases."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from diagnosed import wrong
from wiretax.jobs.diagnose import diagnose

HANDED = Path(__file__).parents[1] / "data" / "cases"


def main(folder: Path) -> int:
    """One line a case, then the sum; 0 when all are right."""
    entries = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    right = forbidden = 0
    for entry in entries:
        run = diagnose([folder / name for name in entry["files"]])
        problems = wrong(run, entry["expect"], entry["forbid"])
        right += not problems
        forbidden += any(problem.startswith("forbidden") for problem in problems)
        said = ", ".join(f"{finding.code} ({finding.severity}, {finding.confidence})" for finding in run.findings)
        print(f"{entry['id']:5} {'right' if not problems else 'WRONG'}  {'; '.join(problems) or said}")
    print(f"{right} of {len(entries)} right, {len(entries) - right} wrong, {forbidden} with a forbidden answer")
    return 0 if right == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HANDED))

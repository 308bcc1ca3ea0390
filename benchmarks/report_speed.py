"""How long a page takes from a cold start: ``wiretax report`` of 8 GPUs with every part, beside a bare start of the program.

    python benchmarks/report_speed.py [--write benchmarks/results/report_speed.json]

Prints the best of five, by processor time (what the code takes) and by the clock (what one waits), and exits 1 when a page takes more
than 3 s of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import report_runs  # noqa: E402
from wiretax.store.folder import save_run  # noqa: E402
from wiretax.train.bare import cpu_name  # noqa: E402

MOST_SECONDS = 3.0
REPEATS = 5


def timed(command: list[str]) -> tuple[float, float]:
    """Processor seconds and wall seconds of a command."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return processor, time.perf_counter() - began


def best(command: list[str]) -> dict[str, float]:
    """Of several, since other programs only ever add time."""
    found = [timed(command) for _ in range(REPEATS)]
    return {"processor_seconds": round(min(one[0] for one in found), 3), "wall_seconds": round(min(one[1] for one in found), 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = save_run(report_runs.many(8, everything=True), Path(folder) / "run.json")
        wiretax = [sys.executable, "-m", "wiretax"]
        report = best([*wiretax, "report", str(path), "--html", str(Path(folder) / "page.html")])
        start = best([*wiretax, "--version"])
        page_bytes = (Path(folder) / "page.html").stat().st_size
    found = {"report": report, "start": start, "page_bytes": page_bytes, "cpu": cpu_name(), "cpus": os.cpu_count()}
    found |= {"python": sys.version.split()[0], "date": datetime.now(UTC).date().isoformat()}
    print(json.dumps(found, indent=1))
    if arguments.write:
        arguments.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if report["processor_seconds"] <= MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

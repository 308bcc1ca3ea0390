"""Writes docs/agreement.md: our collectives beside nccl-tests on the same machine, from the raw output of both.

``python docs/make_agreement.py``; a test fails when the page is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wiretax.store.folder import load_run
from wiretax.units import size

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import against_nccl_tests  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "h200x2"
PAGE = Path(__file__).with_name("agreement.md")
SHOWN = (8, 1 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30)


def comparisons() -> list[Any]:
    """Every operation and wire that both tools measured, in the order of the page."""
    theirs, ours = [], []
    for path in sorted(RESULTS.glob("nccl_tests_*.txt")):
        wire = next(name for name in ("default", "p2p_off", "socket") if f"_{name}_" in path.name)
        operation, world_size, figures = against_nccl_tests.read_nccl_tests(path.read_text(encoding="utf-8"), path.name)
        theirs.append(((wire, operation, world_size), figures))
    for path in sorted(RESULTS.glob("ours_*.json")):
        ours.extend(against_nccl_tests.read_run(json.loads(path.read_text(encoding="utf-8")), path.name).items())
    left, right = against_nccl_tests.merge(ours), against_nccl_tests.merge(theirs)
    return [against_nccl_tests.compare(key, left[key], right[key]) for key in sorted(right) if key in left]


def page() -> str:
    """The page as text."""
    run = load_run(RESULTS / "ours_default_0.json")
    machine = run.machine
    assert machine is not None
    software = machine.software
    loaded = software.nccl_loaded.version if software.nccl_loaded else "unknown"
    versions = f"driver {software.driver}, torch {software.torch}, NCCL {loaded}, {run.created_at[:10]}"
    heading = "| size | ours, us | theirs, us | ours, busbw GB/s | theirs, busbw GB/s | ratio |"
    lines = [
        "# Beside nccl-tests",
        "",
        "The same collectives on the same two GPUs, measured in turns, three rounds of each tool. Theirs is the median over rounds and",
        "placements of nccl-tests 2.19.6, ours the median over rounds of the better of CUDA graph and pipelined eager.",
        "The raw output of both lies in `benchmarks/results/h200x2/`; this page is made by `docs/make_agreement.py`.",
        "",
        f"Machine: {len(machine.gpus)} x {machine.gpus[0].name}, {versions}.",
        "",
    ]
    for comparison in comparisons():
        lines += [f"## {comparison.key[1]} over {comparison.key[0]}", "", heading, "| ---: | ---: | ---: | ---: | ---: | ---: |"]
        for row in comparison.rows:
            if row.num_bytes in SHOWN:
                lines.append(
                    f"| {size(row.num_bytes)} | {row.our_seconds * 1e6:.1f} | {row.their_seconds * 1e6:.1f} "
                    f"| {row.our_busbw / 1e9:.2f} | {row.their_busbw / 1e9:.2f} | {row.busbw_ratio:.3f} |"
                )
        lines.append("")
        lines += [f"- {name}: {value:.3f}" for name, value in comparison.figures.items()]
        lines += [f"- not agreed: {failure}" for failure in comparison.failures]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

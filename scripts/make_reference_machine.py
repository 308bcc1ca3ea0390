"""Writes a reference machine (``wiretax.data.references``) from a run document.

python scripts/make_reference_machine.py RUN.json NAME "TITLE" "SOURCE"
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from wiretax.show.series import Labelled, best_points, pair_rates, wire_points
from wiretax.store.codec import decode_run

CARRIED_BY = {"P2P": "pcie_p2p", "SHM": "host_memory", "NET": "socket", "gloo": "gloo"}
OUT = Path(__file__).parents[1] / "src" / "wiretax" / "data" / "reference_machines"


def four_digits(value: float) -> float:
    """What a comparison needs of a figure."""
    return float(f"{value:.4g}")


def main(source: str, name: str, title: str, note: str) -> None:
    """Writes the file; see the module."""
    run = decode_run(Path(source).read_bytes(), source)
    item = Labelled("", run)
    transports = {c.wire: (c.transport or "").partition("/")[0] for c in run.measurements.collectives if c.transport}
    nvlink = run.machine is not None and all((pair.path or "").startswith("NV") for pair in run.machine.pairs)
    grouped: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for point in best_points(wire_points([item])):
        wire = CARRIED_BY[transports[point.wire]]
        wire = "nvlink" if wire == "pcie_p2p" and nvlink else wire
        grouped.setdefault((point.operation, wire, point.world_size), []).append((point.num_bytes, four_digits(point.busbw)))
    pairs = [row.measured for row in pair_rates([item]) if row.measured and row.route == "direct"]
    host = [
        c.bandwidth_bytes_per_second
        for c in run.measurements.copies
        if c.route == "host" and c.direction == "one_way" and c.concurrency == "alone" and c.bandwidth_bytes_per_second
    ]
    flops = [c.matmul_flops_per_second for c in run.measurements.compute if c.matmul_flops_per_second]
    document = {
        "name": name,
        "title": title,
        "origin": "measured",
        "source": note,
        "date": run.created_at[:10],
        "num_gpus": len(run.machine.gpus) if run.machine else 0,
        "curves": [
            {"operation": operation, "wire": wire, "world_size": world_size, "points": sorted(points)}
            for (operation, wire, world_size), points in grouped.items()
        ],
        "pair_copy_bytes_per_second": four_digits(min(pairs)) if pairs else None,
        "host_copy_bytes_per_second": four_digits(min(host)) if host else None,
        "matmul_flops_per_second": four_digits(min(flops)) if flops else None,
    }
    lines = json.dumps(document, separators=(",", ":")).replace('{"operation"', '\n{"operation"')
    (OUT / f"{name}.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

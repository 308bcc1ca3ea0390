"""Predicts the recorded pair's peak memory from ONE other H200's profiles.

    python benchmarks/predict_memory.py [--write benchmarks/results/memory_recording.json]

The truth is ``torch.cuda.max_memory_allocated`` of two H200s (``tests/data/h200x2``), the profiles are those of ``results/h200``. FSDP2 of
the 124 M model is left out: it ran in the process of the large model, whose memory it still held. Exits 1 when a peak lies outside its
interval, or is more than 5 % off where launches agree within 2 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_h200x2 import DATE, MACHINE, Truth, truths  # noqa: E402
from wiretax.model.profile import Profile  # noqa: E402
from wiretax.predict.memory import predict_memory  # noqa: E402

PROFILES = ROOT / "benchmarks" / "results" / "h200"
AGREE, CLOSE = 0.02, 0.05


def cases() -> list[dict[str, Any]]:
    """One a workload, strategy, batch and backend: NCCL's wires hold the same, gloo holds less."""
    grouped: dict[tuple[str, str, int, str], list[Truth]] = {}
    for one in truths():
        if (one.workload, one.strategy) != ("gpt124m", "fsdp2"):
            backend = "gloo" if one.wire == "gloo" else "nccl"
            grouped.setdefault((one.workload, one.strategy, one.batch_size, backend), []).append(one)
    found = []
    for (workload, strategy, batch, backend), group in grouped.items():
        profile = msgspec.json.decode((PROFILES / f"profile_{workload}_b{batch}.json").read_bytes(), type=Profile)
        memory = predict_memory(profile, strategy, 2)
        assert memory is not None
        peaks = [one.peak_bytes for one in group]
        found.append(
            {
                "workload": workload,
                "strategy": strategy,
                "backend": backend,
                "num_gpus": 2,
                "batch_per_gpu": batch,
                "predicted_bytes": round(memory.peak.expected),
                "low_bytes": round(memory.peak.low),
                "high_bytes": round(memory.peak.high),
                "measured_bytes": round(median(peaks)),
                "measured_least_bytes": min(peaks),
                "measured_most_bytes": max(peaks),
                "launches": len(group),
                "machine": f"{MACHINE}; profiles of another H200",
                "date": DATE,
            }
        )
    return found


def right(case: dict[str, Any]) -> bool:
    """Every launch inside the interval, and close where the launches agree."""
    inside = case["low_bytes"] <= case["measured_least_bytes"] and case["measured_most_bytes"] <= case["high_bytes"]
    agreed = (case["measured_most_bytes"] - case["measured_least_bytes"]) / case["measured_bytes"] <= AGREE and case["launches"] > 1
    return inside and (not agreed or abs(case["predicted_bytes"] / case["measured_bytes"] - 1) <= CLOSE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the cases as JSON")
    arguments = parser.parse_args()
    found = cases()
    for one in found:
        sizes = " ".join(f"{one[key] / 1e9:7.2f}" for key in ("low_bytes", "predicted_bytes", "high_bytes", "measured_bytes"))
        name = f"{one['workload']} {one['strategy']} {one['backend']} B{one['batch_per_gpu']}"
        print(f"{name:<28}{sizes} GB {one['predicted_bytes'] / one['measured_bytes'] - 1:+.1%} {'right' if right(one) else 'WRONG'}")
    if arguments.write:
        arguments.write.write_text(json.dumps({"cases": found}, indent=1) + "\n", encoding="utf-8")
    return 0 if all(map(right, found)) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Predicts the recorded pair of H200s from its one-GPU recordings and its sweeps, and sets that beside what was measured.

    python benchmarks/predict_recording.py [--write benchmarks/results/prediction_recording.json]

Prints every launch and every case (launches of one case together, their median as the truth), with the simpler predictors beside
ours. Needs no GPU: the recording lies in ``tests/data/h200x2``, and ``tests/recorded_h200x2.py`` says what of it goes in. Exits 1 when a
target is missed: NCCL DDP 4 % in the mean, FSDP2 of the large model over the two slow wires 6 % each, 90 % of the cases inside.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_h200x2 import DATE, MACHINE, MULTIPROCESSORS, Truth, channels, measurements, profile, truths  # noqa: E402
from wiretax.predict.baselines import baselines  # noqa: E402
from wiretax.predict.contention import contention  # noqa: E402
from wiretax.predict.forecast import predict  # noqa: E402
from wiretax.predict.wire_curve import Wire  # noqa: E402

LINKS = {"default": "nvlink_hopper", "shm": "pcie5", "net": "socket", "gloo": None}
BASELINES = ("linear", "no_overlap", "perfect_overlap", "tuner")
DDP_MEAN, FSDP_WORST, COVERAGE = 0.04, 0.06, 0.90


def rows() -> list[dict[str, Any]]:
    """One prediction a recorded launch, each from the sweep and the bare step of its own launch."""
    return [_row(truth) for truth in truths()]


def _row(truth: Truth) -> dict[str, Any]:
    found = measurements(truth.wire, truth.launch)
    wire = Wire.measured(found, truth.wire)
    own = profile(truth.workload, truth.batch_size, truth.launch)
    beside = contention(found.overlap, truth.wire, 2, channels=channels(truth.wire), multiprocessors=MULTIPROCESSORS)
    step = predict(own, wire, truth.strategy, 2, contention=beside).forecast.step_seconds
    assert step is not None
    simple = baselines(own, wire, 2, link=LINKS[truth.wire], traffic=1.5 if truth.strategy == "fsdp2" else 1.0)
    return {
        "workload": truth.workload,
        "strategy": truth.strategy,
        "wire": truth.wire,
        "batch_per_gpu": truth.batch_size,
        "launch": truth.launch,
        "predicted_seconds": step.expected,
        "low_seconds": step.low,
        "high_seconds": step.high,
        "measured_seconds": truth.step_seconds,
        "baselines": {name: getattr(simple, name) for name in BASELINES},
    }


def cases(launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches of one case together; medians of truth and prediction, spread from three launches on."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in launches:
        grouped.setdefault((row["workload"], row["strategy"], row["wire"], row["batch_per_gpu"]), []).append(row)
    found = []
    for (workload, strategy, wire, batch), group in grouped.items():
        truth = [row["measured_seconds"] for row in group]
        spread = (max(truth) - min(truth)) / median(truth) if len(truth) >= 3 else None
        case = {
            "workload": workload,
            "strategy": strategy,
            "wire": wire,
            "num_gpus": 2,
            "batch_per_gpu": batch,
            **{key: median(row[key] for row in group) for key in ("predicted_seconds", "low_seconds", "high_seconds")},
            "measured_seconds": median(truth),
            "measured_spread_fraction": spread,
            "launches": len(group),
            "listed": _listed(workload, strategy, wire),
            "held_out": False,
            "device": "cuda",
            "machine": MACHINE,
            "date": DATE,
            "baselines": {name: _median_or_none(row["baselines"][name] for row in group) for name in BASELINES},
        }
        found.append(case)
    return found


def _listed(workload: str, strategy: str, wire: str) -> str:
    """Which cases count by their error: gloo is a fault to report, launch-bound FSDP2 is judged by its interval."""
    if wire == "gloo":
        return "apart"
    if strategy == "fsdp2" and (wire == "default" or workload == "gpt124m"):
        return "interval_only"
    return "error"


def _median_or_none(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def error(row: dict[str, Any]) -> float:
    """Signed relative error."""
    return float(row["predicted_seconds"] / row["measured_seconds"] - 1)


def inside(row: dict[str, Any]) -> bool:
    """Whether the interval holds the truth."""
    return bool(row["low_seconds"] <= row["measured_seconds"] <= row["high_seconds"])


def summary(found: Sequence[dict[str, Any]]) -> dict[str, float | int]:
    """Mean and worst absolute error, share inside, and the baselines' mean error."""
    result: dict[str, float | int] = {
        "cases": len(found),
        "mean": mean(abs(error(row)) for row in found),
        "worst": max(abs(error(row)) for row in found),
        "inside": mean(inside(row) for row in found),
    }
    for name in BASELINES:
        known = [row for row in found if row["baselines"][name] is not None]
        if known:
            result[name] = mean(abs(row["baselines"][name] / row["measured_seconds"] - 1) for row in known)
    return result


def groups(found: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The groups that targets are stated for."""
    nccl = [row for row in found if row["wire"] != "gloo"]
    slow = [row for row in nccl if row["strategy"] == "fsdp2" and row["workload"] == "gpt1.7b" and row["wire"] in ("shm", "net")]
    return {
        "DDP over NCCL": [row for row in nccl if row["strategy"] == "ddp"],
        "FSDP2, large model, slow wires": slow,
        "FSDP2, launch-bound": [row for row in nccl if row["strategy"] == "fsdp2" and row not in slow],
        "DDP over gloo": [row for row in found if row["wire"] == "gloo"],
    }


def _table(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{'case':<32}{'low':>9}{'expected':>9}{'high':>9}{'measured':>10}{'error':>8}      " + "".join(f"{name:>16}" for name in BASELINES)
    ]
    for row in found:
        name = f"{row['workload']} {row['strategy']} {row['wire']} B{row['batch_per_gpu']}" + (
            f" L{row['launch']}" if "launch" in row else ""
        )
        times = "".join(f"{row[key] * 1e3:>9.1f}" for key in ("low_seconds", "predicted_seconds", "high_seconds"))
        others = "".join(
            f"{'-':>16}" if row["baselines"][key] is None else f"{row['baselines'][key] / row['measured_seconds'] - 1:>16.1%}"
            for key in BASELINES
        )
        lines.append(
            f"{name:<32}{times}{row['measured_seconds'] * 1e3:>10.1f}{error(row):>8.1%} {'in ' if inside(row) else 'OUT'}  {others}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the cases as JSON")
    arguments = parser.parse_args()
    launches = rows()
    found = cases(launches)
    print("Every launch (milliseconds; error of the simpler predictors on the right)\n" + _table(launches))
    print("\nEvery case (median of its launches)\n" + _table(found))
    for title, table in (("launches", groups(launches)), ("cases", groups(found))):
        print(f"\nBy {title}")
        for name, group in table.items():
            print(
                f"  {name:<32}",
                "  ".join(f"{key} {value}" if key == "cases" else f"{key} {value:.1%}" for key, value in summary(group).items()),
            )
    if arguments.write:
        arguments.write.write_text(json.dumps({"cases": found}, indent=1) + "\n", encoding="utf-8")
    grouped = groups(found)
    judged = [row for row in found if row["wire"] != "gloo"]
    kept = {
        "DDP mean error": summary(grouped["DDP over NCCL"])["mean"] <= DDP_MEAN,
        "FSDP2 worst error over slow wires": summary(grouped["FSDP2, large model, slow wires"])["worst"] <= FSDP_WORST,
        "intervals": mean(inside(row) for row in judged) >= COVERAGE,
    }
    for target, reached in kept.items():
        print(f"{target}: {'reached' if reached else 'MISSED'}")
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

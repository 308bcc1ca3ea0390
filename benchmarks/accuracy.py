"""Writes docs/accuracy.md from benchmarks/results/prediction_*.json: every predicted case beside its measurement.

python benchmarks/accuracy.py            writes the page
python benchmarks/accuracy.py --check    exits 1 when the page is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "accuracy.md"
REPEATABLE = 0.04
MEMORY = (
    "Peak memory of one GPU (`torch.cuda.max_memory_allocated`), predicted from ONE GPU's profile or from the model's shape alone;\n"
    "*free* is communication made free: the buffers are there, nothing is sent.\n"
)
"""A case whose launches spread by more is judged by its interval alone."""

ANCHORS = (
    ("SimAI", "1.9 %", "", "128 to 1,024 GPUs, packet-level, hours (NSDI'25)"),
    ("Phantora", "2.9 %", "8.5 %", "TorchTitan FSDP2 against published reports, one GPU (arXiv 2505.01616)"),
    ("Proteus", "3.0 %", "", "three machines, models rewritten in its API (arXiv 2306.02267)"),
    ("Phantora", "6.6 %", "8.1 %", "2 to 8 RTX 3090, two a server, over Ethernet (same paper)"),
    ("vTrain", "8.4 %", "", "one node of 8 A100, Megatron only (arXiv 2312.12391)"),
)
BASELINES = {
    "linear": "linear scaling",
    "no_overlap": "step + 2(N-1)/N x bytes / busbw",
    "perfect_overlap": "perfect overlap",
    "tuner": "NCCL-tuner constants",
}


def load(kind: str = "prediction", folder: Path = RESULTS) -> list[tuple[str, list[dict[str, Any]]]]:
    """File name and cases of every result of a kind, by name."""
    return [(path.name, json.loads(path.read_text(encoding="utf-8"))["cases"]) for path in sorted(folder.glob(f"{kind}_*.json"))]


def error(case: dict[str, Any]) -> float:
    """Signed relative error."""
    return float(case["predicted_seconds"] / case["measured_seconds"] - 1)


def inside(case: dict[str, Any]) -> bool:
    """Whether the interval holds the truth."""
    return bool(case["low_seconds"] <= case["measured_seconds"] <= case["high_seconds"])


def counts(case: dict[str, Any]) -> bool:
    """Whether the error of a case counts: its launches repeat, or nothing says that they do not, and it is not listed apart."""
    spread = case["measured_spread_fraction"]
    return case.get("listed", "error") == "error" and (spread is None or spread <= REPEATABLE)


def page(results: Sequence[tuple[str, list[dict[str, Any]]]], memory: Sequence[tuple[str, list[dict[str, Any]]]] = ()) -> str:
    """The page as text, of steps and of memory."""
    parts = [
        "# How accurate the predictions are\n",
        (
            "Written by `benchmarks/accuracy.py` from `benchmarks/results/{prediction,memory}_*.json`; do not edit. Each row is one\n"
            "case: one workload, strategy, wire, batch and number of GPUs. Predicted from ONE GPU's profile and the measured wire;\n"
            "nothing is fitted on the steps it predicts. The truth is the median of the launches; their spread is given from three\n"
            "launches on. *Held out* says that the case was not looked at while the method was built.\n"
        ),
        "## Summary\n",
        _summary(results),
        "\nPublished errors of other predictors, for comparison (their own cases, not these):\n",
        "| predictor | mean | worst | on |\n|---|---|---|---|",
        "\n".join(f"| {name} | {average} | {worst or '-'} | {where} |" for name, average, worst, where in ANCHORS),
    ]
    for name, found in results:
        parts += [f"\n## {name}\n", _machines(found), _cases(found)]
    for name, found in memory:
        parts += [f"\n## {name}\n", MEMORY, _memory_machines(found), _memory_summary(found), _memory(found)]
    return "\n".join(parts) + "\n"


def _summary(results: Sequence[tuple[str, list[dict[str, Any]]]]) -> str:
    lines = [
        "| file | strategy | cases | mean error | worst | inside the 90 % interval | " + " | ".join(BASELINES.values()) + " |",
        "|---|---|---|---|---|---|" + "---|" * len(BASELINES),
    ]
    for name, found in results:
        for strategy in dict.fromkeys(case["strategy"] for case in found):
            of_strategy = [case for case in found if case["strategy"] == strategy]
            for title, group in (
                (strategy, [case for case in of_strategy if counts(case)]),
                (f"{strategy}, by interval only", [case for case in of_strategy if not counts(case) and case.get("listed") != "apart"]),
                (f"{strategy}, listed apart", [case for case in of_strategy if case.get("listed") == "apart"]),
            ):
                if group:
                    lines.append(_summary_row(name, title, group))
    return "\n".join(lines)


def _summary_row(name: str, title: str, group: Sequence[dict[str, Any]]) -> str:
    errors = [abs(error(case)) for case in group]
    others = []
    for key in BASELINES:
        known = [
            abs(case["baselines"][key] / case["measured_seconds"] - 1) for case in group if case.get("baselines", {}).get(key) is not None
        ]
        others.append(_percent(mean(known)) if known else "-")
    cells = [
        name,
        title,
        str(len(group)),
        _percent(mean(errors)),
        _percent(max(errors)),
        f"{sum(map(inside, group))} of {len(group)}",
        *others,
    ]
    return "| " + " | ".join(cells) + " |"


def _percent(fraction: float, sign: str = "") -> str:
    """``6.2 %``, with ``+`` as sign ``+6.2 %``: always one decimal, so that a column can be compared."""
    return f"{fraction * 100:{sign}.1f} %"


def _machines(found: Sequence[dict[str, Any]]) -> str:
    return "\n".join(dict.fromkeys(f"{case['machine']}, {case['date']}, {case['device']}.\n" for case in found))


def _cases(found: Sequence[dict[str, Any]]) -> str:
    titles = (
        *("workload", "strategy", "GPUs", "wire", "batch", "low ms", "predicted ms", "high ms", "measured ms"),
        *("error", "inside", "spread", "launches", "held out", "listed"),
    )
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for case in found:
        spread = case["measured_spread_fraction"]
        times = [f"{case[key] * 1e3:.1f}" for key in ("low_seconds", "predicted_seconds", "high_seconds", "measured_seconds")]
        listed = "by error" if counts(case) else "apart" if case.get("listed") == "apart" else "by interval"
        cells = [
            case["workload"],
            case["strategy"],
            str(case["num_gpus"]),
            case["wire"],
            str(case.get("batch_per_gpu", "-")),
            *times,
            _percent(error(case), "+"),
            "yes" if inside(case) else "no",
            "-" if spread is None else _percent(spread),
            str(case.get("launches", "-")),
            "yes" if case["held_out"] else "no",
            listed,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _memory_machines(found: Sequence[dict[str, Any]]) -> str:
    return "\n".join(dict.fromkeys(f"{case['machine']}, {case['date']}.\n" for case in found))


def _memory_summary(found: Sequence[dict[str, Any]]) -> str:
    """One line a way of predicting, with those held out apart."""
    lines = []
    for source in dict.fromkeys(case.get("from", "profile") for case in found):
        for held_out in (False, True):
            group = [case for case in found if case.get("from", "profile") == source and bool(case.get("held_out")) == held_out]
            if group:
                errors = [abs(case["predicted_bytes"] / case["measured_bytes"] - 1) for case in group]
                within = sum(
                    case["low_bytes"] <= case["measured_least_bytes"] and case["measured_most_bytes"] <= case["high_bytes"]
                    for case in group
                )
                what = f"From the {source}{', held out' if held_out else ''}"
                lines.append(
                    f"- {what}: mean error {_percent(mean(errors))}, worst {_percent(max(errors))}, {within} of {len(group)} inside."
                )
    return "\n".join(lines) + "\n"


def _memory(found: Sequence[dict[str, Any]]) -> str:
    titles = (
        "workload",
        "strategy",
        "GPUs",
        "backend",
        "batch",
        "from",
        "low GB",
        "predicted GB",
        "high GB",
        "measured GB",
        "of",
        "error",
        "inside",
        "held out",
    )
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for case in found:
        low, predicted, high, measured, least, most = (
            case[f"{key}_bytes"] for key in ("low", "predicted", "high", "measured", "measured_least", "measured_most")
        )
        cells = [
            *(case["workload"], case["strategy"], str(case["num_gpus"]), case["backend"], str(case["batch_per_gpu"])),
            case.get("from", "profile"),
            *(f"{one / 1e9:.2f}" for one in (low, predicted, high)),
            f"{measured / 1e9:.2f}" + ("" if most / least < 1.005 else f" ({least / 1e9:.2f} to {most / 1e9:.2f})"),
            f"{case['launches']} launches" if case["launches"] > 1 else "1 launch",
            _percent(predicted / measured - 1, "+"),
            "yes" if low <= least and most <= high else "no",
            "yes" if case.get("held_out") else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    text = page(load(), load("memory"))
    if parser.parse_args().check:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        print(f"{PAGE.name} is {'stale: run python benchmarks/accuracy.py' if stale else 'up to date'}")
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Predicted steps beside measured ones: rows of single launches, cases of several, and the table of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

BASELINES = ("linear", "no_overlap", "perfect_overlap", "tuner")

Row = dict[str, Any]


def row(prediction: Any, simple: Any, measured_seconds: float, **what: Any) -> Row:
    """One prediction beside one launch.

    Args:
        prediction: of ``wiretax.predict.forecast.predict``.
        simple: of ``wiretax.predict.baselines.baselines``.
        measured_seconds: of the launch.
        what: workload, strategy, wire, num_gpus, batch_per_gpu, launch.
    """
    step = prediction.forecast.step_seconds
    return {
        **what,
        "predicted_seconds": step.expected,
        "low_seconds": step.low,
        "high_seconds": step.high,
        "measured_seconds": measured_seconds,
        "baselines": {name: getattr(simple, name) for name in BASELINES},
    }


def cases(launches: Sequence[Row], **common: Any) -> list[Row]:
    """Launches of one case together: medians of truth and prediction, and the spread from three launches on.

    Args:
        launches: rows of :func:`row`.
        common: what every case says: device, machine, date.
    """
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for one in launches:
        grouped.setdefault(tuple(one[key] for key in ("workload", "strategy", "wire", "num_gpus", "batch_per_gpu")), []).append(one)
    found = []
    for (workload, strategy, wire, num_gpus, batch), group in grouped.items():
        truth = [one["measured_seconds"] for one in group]
        found.append(
            {
                "workload": workload,
                "strategy": strategy,
                "wire": wire,
                "num_gpus": num_gpus,
                "batch_per_gpu": batch,
                **{key: median(one[key] for one in group) for key in ("predicted_seconds", "low_seconds", "high_seconds")},
                "measured_seconds": median(truth),
                "measured_spread_fraction": (max(truth) - min(truth)) / median(truth) if len(truth) >= 3 else None,
                "launches": len(group),
                **common,
                "baselines": {name: _median_or_none(one["baselines"][name] for one in group) for name in BASELINES},
            }
        )
    return found


def error(one: Row) -> float:
    """Signed relative error."""
    return float(one["predicted_seconds"] / one["measured_seconds"] - 1)


def inside(one: Row) -> bool:
    """Whether the interval holds the truth."""
    return bool(one["low_seconds"] <= one["measured_seconds"] <= one["high_seconds"])


def summary(found: Sequence[Row]) -> dict[str, float | int]:
    """Mean and worst absolute error, share inside, and the baselines' mean error."""
    result: dict[str, float | int] = {
        "cases": len(found),
        "mean": mean(abs(error(one)) for one in found),
        "worst": max(abs(error(one)) for one in found),
        "inside": mean(inside(one) for one in found),
    }
    for name in BASELINES:
        known = [one for one in found if one["baselines"][name] is not None]
        if known:
            result[name] = mean(abs(one["baselines"][name] / one["measured_seconds"] - 1) for one in known)
    return result


def summary_line(name: str, found: Sequence[Row]) -> str:
    """A group's summary as one line."""
    parts = (f"{key} {value}" if key == "cases" else f"{key} {value:.1%}" for key, value in summary(found).items())
    return f"  {name:<32}" + "  ".join(parts)


def table(found: Sequence[Row]) -> str:
    """Milliseconds, the error, whether the interval holds the truth, and the simpler predictors' errors."""
    titles = f"{'case':<40}{'low':>9}{'expected':>9}{'high':>9}{'measured':>10}{'error':>8}      "
    lines = [titles + "".join(f"{name:>16}" for name in BASELINES)]
    for one in found:
        name = f"{one['workload']} {one['strategy']} {one['wire']} N{one['num_gpus']} B{one['batch_per_gpu']}"
        name += f" L{one['launch']}" if "launch" in one else ""
        times = "".join(f"{one[key] * 1e3:>9.1f}" for key in ("low_seconds", "predicted_seconds", "high_seconds"))
        others = "".join(_beside(one, key) for key in BASELINES)
        lines.append(
            f"{name:<40}{times}{one['measured_seconds'] * 1e3:>10.1f}{error(one):>8.1%} {'in ' if inside(one) else 'OUT'}  {others}"
        )
    return "\n".join(lines)


def _beside(one: Row, key: str) -> str:
    value = one["baselines"][key]
    return f"{'-':>16}" if value is None else f"{value / one['measured_seconds'] - 1:>16.1%}"


def _median_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

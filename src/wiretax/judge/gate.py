"""``--fail-if``: expressions over the metrics of a run, for scripts that gate a machine.

    METRIC<VALUE  METRIC<=VALUE  METRIC>VALUE  METRIC>=VALUE    against an absolute value
    METRIC:-5%    METRIC:+5%                                    against what this machine should reach (or a baseline run):
                                                                more than 5 % below, or above, is true

An example: ``all_reduce_busbw_peak_bytes_per_second.default.2<20GB/s``.
``METRIC`` may hold ``*``; the expression is true when it holds for any metric that fits. Values may carry a unit: B/s, kB/s, MB/s,
GB/s, TB/s (decimal), us, ms, s, GFLOP/s, TFLOP/s, or % (of one).

Metrics (see :func:`as_metrics`), with OP one of the six operations, WIRE a wire name, N the world size, GPU a NVML index:

    OP_busbw_peak_bytes_per_second.WIRE.N       the headline: best busbw among the largest sizes, eager or graph
    OP_seconds.WIRE.N.BYTES                     median time at one size, the better of eager and graph
    OP_latency_seconds.WIRE.N                   median time at the smallest size, the better of eager and graph
    pair_copy_bytes_per_second.ROUTE.A-B        one way, alone; and .ROUTE.min over all pairs
    host_copy_bytes_per_second.GPU              the slower direction; and .min
    matmul_flops_per_second.GPU                 alone; and .min
    memory_bytes_per_second.GPU                 alone; and .min
    findings.SEVERITY                           number of findings
    speedup.STRATEGY.WIRE.N                     of a forecast
    step_seconds.STRATEGY.WIRE.N                expected, of a forecast
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from wiretax.errors import UsageError
from wiretax.judge import facts
from wiretax.judge.metric_names import check_metric, units_of
from wiretax.model.finding import SEVERITIES
from wiretax.model.measurement import Collective
from wiretax.model.run import Run
from wiretax.units import figure

UNITS = {
    "": 1.0,
    "%": 0.01,
    "B/s": 1.0,
    "kB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "TB/s": 1e12,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "GFLOP/s": 1e9,
    "TFLOP/s": 1e12,
}

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ABSOLUTE = re.compile(rf"(?P<metric>[\w.*-]+)\s*(?P<sign><=|>=|<|>)\s*(?P<value>{_NUMBER})\s*(?P<unit>[A-Za-z/%]*)")
_RELATIVE = re.compile(r"(?P<metric>[\w.*-]+):(?P<sign>[+-])(?P<percent>\d+\.?\d*)%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A parsed expression. ``bound`` is in the metric's own unit, or a fraction where ``relative``."""

    text: str
    metric: str
    sign: str
    bound: float
    relative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an expression came to: ``true`` means fail; ``reasons`` has one sentence for each metric that made it so."""

    true: bool
    reasons: tuple[str, ...]


def parse(text: str) -> Gate:
    """Reads one expression.

    Raises:
        UsageError: with the two forms, when it is neither; a metric that no run can have; a unit that is not the metric's.
    """
    stripped = text.strip()
    relative = _RELATIVE.fullmatch(stripped)
    if relative is not None:
        bound = float(relative["percent"]) / 100
        if not bound < (1 if relative["sign"] == "-" else math.inf):
            raise _no_expression(text, f"Nothing can be {relative['sign']}{relative['percent']} % off.")
        check_metric(relative["metric"])
        return Gate(text=stripped, metric=relative["metric"], sign=relative["sign"], bound=bound, relative=True)
    absolute = _ABSOLUTE.fullmatch(stripped)
    if absolute is None:
        raise _no_expression(text, "It is neither METRIC<VALUE nor METRIC:-5%.")
    metric, unit = absolute["metric"], absolute["unit"]
    if unit not in UNITS:
        raise _no_expression(text, f"The unit {unit!r} is not known.")
    bound = float(absolute["value"]) * UNITS[unit]
    if not math.isfinite(bound):
        raise _no_expression(text, f"{absolute['value']} is too large for a number.")
    check_metric(metric)
    fitting = units_of(metric)
    if unit and unit not in fitting:
        raise _no_expression(text, f"{metric} is not in {unit}; write {', '.join(fitting)}." if fitting else f"{metric} has no unit.")
    return Gate(text=stripped, metric=metric, sign=absolute["sign"], bound=bound, relative=False)


def _no_expression(text: str, why: str) -> UsageError:
    return UsageError(
        f"--fail-if {text!r} is not an expression.",
        why=why,
        do="Example: all_reduce_busbw_peak_bytes_per_second.default.2<20GB/s, or ...default.2:-20%",
    )


def evaluate(gate: Gate, metrics: Mapping[str, float], expected: Mapping[str, float]) -> Outcome:
    """Whether an expression holds.

    Args:
        gate: from :func:`parse`.
        metrics: of this run, from :func:`as_metrics`.
        expected: for ``METRIC:-5%``: what each should be, from :func:`as_expected` or the metrics of a baseline run.

    Raises:
        UsageError: when no metric of the run has that name, or none of those has an expected value.
    """
    names = sorted(fnmatch.filter(metrics, gate.metric))
    if not names:
        near = difflib.get_close_matches(gate.metric, metrics, n=3, cutoff=0.3)
        raise UsageError(
            f"This run has no metric {gate.metric!r}.",
            why="It was not measured, or the name is wrong.",
            do=f"Near names: {', '.join(near)}." if near else "`wiretax check --json` shows what was measured.",
        )
    if gate.relative:
        names = [name for name in names if name in expected]
        if not names:
            raise UsageError(
                f"There is nothing to compare {gate.metric!r} with.",
                why="What this machine should reach is not known for it.",
                do="Give an absolute value (METRIC<VALUE) or a baseline run.",
            )
    reasons = []
    for name in names:
        value = metrics[name]
        bound = expected[name] * (1 + gate.bound if gate.sign == "+" else 1 - gate.bound) if gate.relative else gate.bound
        sign = {"+": ">", "-": "<"}.get(gate.sign, gate.sign)
        if {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}[sign]:
            shown, against = figure(name, value), figure(name, bound)
            if shown == against:  # the difference is beyond the digits that are worth showing
                shown, against = f"{value:.6g}", f"{bound:.6g}"
            reasons.append(f"{name} is {shown}, {'below' if '<' in sign else 'above'} {against}")
    return Outcome(true=bool(reasons), reasons=tuple(reasons))


def as_metrics(run: Run) -> dict[str, float]:
    """The run as flat numbers; the names are listed at the top of this module. What was not measured has no name."""
    metrics: dict[str, float] = {}
    grouped: dict[tuple[str, str, int], list[Collective]] = {}
    for collective in run.measurements.collectives:
        if collective.points:
            grouped.setdefault((collective.operation, collective.wire, collective.world_size), []).append(collective)
    for (operation, wire, world), found in grouped.items():
        end = f"{wire}.{world}"
        head = facts.headline(found)
        # On a CPU no message may reach the size from which bandwidth is judged: then the best of all is the peak.
        peak = head[1].busbw_bytes_per_second if head else max(p.busbw_bytes_per_second for c in found for p in c.points)
        metrics[f"{operation}_busbw_peak_bytes_per_second.{end}"] = peak
        seconds: dict[int, float] = {}
        for collective in found:
            for point in collective.points:
                seconds[point.num_bytes] = min(seconds.get(point.num_bytes, float("inf")), point.seconds)
        for num_bytes, taken in sorted(seconds.items()):
            metrics[f"{operation}_seconds.{end}.{num_bytes}"] = taken
        metrics[f"{operation}_latency_seconds.{end}"] = seconds[min(seconds)]
    for route in ("direct", "staged"):
        copies = {f"{a}-{b}": c.bandwidth_bytes_per_second or 0.0 for (a, b), c in facts.pair_copies(run, route=route).items()}
        _with_least(metrics, f"pair_copy_bytes_per_second.{route}", copies)
    gpus = run.machine.gpus if run.machine else ()
    host = {str(gpu.index): min(rates) for gpu in gpus if (rates := facts.host_copies(run, gpu.index))}
    _with_least(metrics, "host_copy_bytes_per_second", host)
    alone = [c for c in run.measurements.compute if c.gpu is not None and not c.together]
    _with_least(metrics, "matmul_flops_per_second", {str(c.gpu): c.matmul_flops_per_second for c in alone if c.matmul_flops_per_second})
    _with_least(metrics, "memory_bytes_per_second", {str(c.gpu): c.memory_bytes_per_second for c in alone if c.memory_bytes_per_second})
    for severity in SEVERITIES:
        metrics[f"findings.{severity}"] = float(sum(finding.severity == severity for finding in run.findings))
    for forecast in run.forecasts:
        end = f"{forecast.strategy}.{forecast.wire}.{forecast.num_gpus}"
        if forecast.speedup is not None:
            metrics[f"speedup.{end}"] = forecast.speedup
        if forecast.step_seconds is not None:
            metrics[f"step_seconds.{end}"] = forecast.step_seconds.expected
    return metrics


def as_expected(run: Run) -> dict[str, float]:
    """What this machine should reach, under the same names, from the ``expectations`` of a judged run."""
    expected: dict[str, float] = {}
    for row in run.expectations:
        if row.subject == "pair_copy":
            expected[f"pair_copy_bytes_per_second.{row.wire}.{row.source_gpu}-{row.target_gpu}"] = row.expected_bytes_per_second
        elif row.world_size is not None:
            expected[f"{row.subject}_busbw_peak_bytes_per_second.{row.wire}.{row.world_size}"] = row.expected_bytes_per_second
    return expected


def _with_least(metrics: dict[str, float], name: str, values: Mapping[str, float]) -> None:
    for key, value in values.items():
        metrics[f"{name}.{key}"] = value
    if values:
        metrics[f"{name}.min"] = min(values.values())

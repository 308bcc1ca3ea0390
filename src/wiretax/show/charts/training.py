"""What the wire means for training: speed-up on 1..N GPUs, and where a step's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from wiretax.model.run import Run
from wiretax.show.charts import Chart, Table
from wiretax.show.charts.colours import Palette
from wiretax.show.charts.parts import WIDTH, colour_scale, digits, dressed, menu, rows
from wiretax.show.series import Labelled, Phase, phases, scaling_rows, wire_order, workers
from wiretax.units import duration, percent, significant

PHASE_ORDER = ("forward", "backward", "optimizer", "computing", "slowed by the wire", "other", "waiting for the wire")
SHORT_PARTS = "replace(datum.label, / (by|for) the wire/, '')"
"""Names of parts as a telephone has room for them; the caption says what they are."""
DASH = "\u2013"

ROOM = {"left": 24, "right": 52, "top": 5, "bottom": 5}
"""Beside bars with long names: a browser's font may be wider than the one they were measured with, and the first letters were cut off;
and behind the longest bar its time, which on a telephone takes more than a share of the drawing."""


def scaling(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """Speed-up over one GPU: the predicted band of each wire, the measured points on it, and the ideal line."""
    predicted = [row for item in items for row in _predicted(item)]
    measured = [row for item in items for row in _measured(item)]
    if not any(row["n"] > 1 for row in [*predicted, *measured]):
        return None
    both = {row["workload"] for row in measured} & {row["workload"] for row in predicted}
    workloads = sorted(dict.fromkeys(row["workload"] for row in [*predicted, *measured]), key=lambda name: name not in both)
    strategies = list(dict.fromkeys(row["strategy"] for row in [*measured, *predicted]))
    wires = wire_order(row["wire"] for row in [*predicted, *measured])
    most = max(row["n"] for row in [*predicted, *measured])
    counts = sorted({1, *(row["n"] for row in [*predicted, *measured])})
    parameters = []
    filters = []
    for name, label, options in (("load", "workload ", workloads), ("strategy", "strategy ", strategies)):
        if len(options) > 1:
            parameters.append(menu(name, label, options))
            filters.append(f"datum.{'workload' if name == 'load' else 'strategy'} === {name}")
    keep = " && ".join(filters) or "true"
    several = len(items) > 1
    kinds = workers(items[0].run, 2).partition(" ")[2]
    colour = alt.Color("wire:N").scale(colour_scale(wires, palette)).legend(symbolType="stroke", symbolOpacity=1)
    x = alt.X("n:Q").scale(domain=[1, most * 1.02], nice=False).axis(values=counts, title=kinds, format="d", grid=False)
    y = alt.Y("speedup:Q").scale(domainMin=0).axis(title="as fast as one, \u00d7", tickCount=6)
    dash = {"strokeDash": alt.StrokeDash("run:N").scale(domain=[i.label for i in items]).legend(symbolStrokeColor=palette.ink)}
    tip = [
        "wire:N",
        alt.Tooltip("n:Q", title=kinds),
        alt.Tooltip("speedup:Q", format=".3~g", title="as fast as one"),
        alt.Tooltip("tax:Q", format=".0%", title="wire tax"),
    ]
    ideal = alt.Chart(rows([{"n": 1, "speedup": 1}, {"n": most, "speedup": most}]))
    layers: list[Any] = [ideal.mark_line(strokeDash=[3, 4], strokeWidth=1.4, color=palette.quiet).encode(x=x, y=y)]
    if predicted:
        base = alt.Chart(rows(predicted)).transform_filter(keep).encode(x=x, color=colour)
        layers.append(base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q"), y2="high:Q", detail=["strategy:N", "run:N"]))
        layers.append(base.mark_line(strokeWidth=2.2).encode(y=y, detail="strategy:N", tooltip=tip, **dash if several else {}))
    if measured:
        base = alt.Chart(rows(measured)).transform_filter(keep).encode(x=x, y=y, color=colour)
        layers.append(base.mark_point(size=95, filled=True, opacity=1, stroke=palette.paper, strokeWidth=1.5).encode(tooltip=tip))
    chart = alt.layer(*layers).properties(width=WIDTH, height=340)
    chart = chart.add_params(*parameters) if parameters else chart
    words = [*(["bands and lines are predicted"] if predicted else []), *(["dots are measured"] if measured else []), "dashed is the ideal"]
    return Chart(
        name="scaling",
        title=f"From 1 to N {kinds}",
        caption="; ".join(words)[0].upper() + "; ".join(words)[1:] + f". Workload: {workloads[0]}.",
        says=_scaling_says(predicted, measured, most, kinds),
        spec=dressed(chart, palette),
        table=_scaling_table(items, kinds),
        controls=bool(parameters),
    )


def phases_chart(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """A bar a configuration, cut into the parts of a step."""
    found = [replace(phase, kind=workers(item.run, phase.num_gpus)) for item in items for phase in phases(item)]
    if not found:
        return None
    several = len(items) > 1
    names = [name for name in PHASE_ORDER if any(p.name == name for p in found)]
    colours = dict(
        zip(PHASE_ORDER, (*palette.phases[:3], palette.phases[0], palette.phases[5], palette.phases[3], palette.phases[4]), strict=True)
    )
    keys = list(dict.fromkeys(_key(p, several) for p in found))
    top = max(sum(p.seconds for p in found if _key(p, several) == key) for key in keys)
    factor, unit = (1e3, "ms") if top < 2 else (1.0, "s")
    values = [
        {
            "key": _key(p, several),
            "part": p.name,
            "order": names.index(p.name),
            "t": digits(p.seconds * factor),
            "of": _share(p, found, several),
        }
        for p in found
    ]
    totals = [
        {"key": key, "t": digits(sum(p.seconds for p in found if _key(p, several) == key) * factor), "text": _total(found, key, several)}
        for key in keys
    ]
    y = (
        alt.Y("key:N")
        .scale(domain=keys, paddingInner=0.4)
        .axis(title=None, domain=False, ticks=False, grid=False, labelPadding=8, labelLimit=240)
    )
    base = alt.Chart(rows(values)).encode(y=y)
    bars = base.mark_bar().encode(
        x=alt.X("t:Q", stack="zero").axis(title=f"one step, {unit}", tickCount=6).scale(domain=[0, top * factor * 1.02], nice=False),
        color=alt.Color("part:N").scale(domain=names, range=[colours[n] for n in names]).legend(symbolType="square", labelExpr=SHORT_PARTS),
        order=alt.Order("order:Q"),
        tooltip=["key:N", "part:N", alt.Tooltip("t:Q", title=unit), alt.Tooltip("of:N", title="of the step")],
    )
    text = alt.Chart(rows(totals)).mark_text(align="left", dx=7, fontWeight=600).encode(y=y, x="t:Q", text="text:N")
    measured = found[0].measured
    return Chart(
        name="step",
        title="Where a step's time goes",
        caption=("Measured" if measured else "Predicted, the middle of each range") + f"; {found[0].workload}. Waiting is the part of the "
        "communication that nothing hides."
        + (" Slowed: computing takes longer beside it, and DDP copies its buckets." if "slowed by the wire" in names else ""),
        says=_phases_says(found, keys, several),
        spec=dressed(alt.layer(bars, text).properties(width=WIDTH - 60, height=max(34 * len(keys), 70), padding=ROOM), palette),
        table=Table(
            ("configuration", "part", "time", "of the step"),
            tuple((_key(p, several), p.name, duration(p.seconds), _share(p, found, several)) for p in found),
        ),
    )


def _predicted(item: Labelled) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for workload, joined in scaling_rows(item.run).items():
        for row in joined:
            if row.speedup.low is None or row.speedup.high is None or row.num_gpus == 1:
                continue
            middle = _expected(item.run, workload, row.strategy, row.wire, row.num_gpus) or (row.speedup.low + row.speedup.high) / 2
            common = {"run": item.label, "workload": workload, "strategy": row.strategy, "wire": row.wire}
            at = {"n": row.num_gpus, "low": digits(row.speedup.low), "high": digits(row.speedup.high), "speedup": digits(middle)}
            if not any(r["n"] == 1 and all(r[k] == v for k, v in common.items()) for r in found):
                found.append({**common, "n": 1, "low": 1.0, "high": 1.0, "speedup": 1.0, "tax": 0.0})
            found.append({**common, **at, "tax": digits(1 - middle / row.num_gpus)})
    return found


def _expected(run: Run, workload: str, strategy: str, wire: str, num_gpus: int) -> float | None:
    """The one forecast's own expectation; None where two are the bounds of one configuration."""
    mine = [
        f.speedup
        for f in run.forecasts
        if (f.workload, f.strategy, f.wire, f.num_gpus) == (workload, strategy, wire, num_gpus) and f.speedup is not None
    ]
    return mine[0] if len(mine) == 1 else None


def _measured(item: Labelled) -> list[dict[str, Any]]:
    return [
        {
            "run": item.label,
            "workload": s.workload,
            "strategy": s.strategy,
            "wire": s.wire,
            "n": s.num_gpus,
            "speedup": digits(s.efficiency_fraction * s.num_gpus),
            "tax": digits(1 - s.efficiency_fraction),
        }
        for s in item.run.training.steps
        if s.efficiency_fraction is not None and s.num_gpus > 1
    ]


def _scaling_says(predicted: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]], most: int, kinds: str) -> str:
    several = len({r["run"] for r in [*predicted, *measured]}) > 1

    def wire(r: dict[str, Any]) -> str:
        return f"{r['run']} over {r['wire']}" if several else str(r["wire"])

    parts = [f"{wire(r)} {significant(r['low'], 2)} to {significant(r['high'], 2)} times" for r in predicted if r["n"] == most]
    text = f"{most} {kinds}, against one, predicted: {', '.join(parts)}. " if parts else ""
    real = [f"{wire(r)} {significant(r['speedup'])} times" for r in measured if r["n"] == most]
    return text + (f"Measured: {', '.join(real)}." if real else "")


def _scaling_table(items: Sequence[Labelled], kinds: str) -> Table:
    lines: list[tuple[str, ...]] = []
    several = len(items) > 1
    for item in items:
        first = [item.label] if several else []
        for workload, joined in scaling_rows(item.run).items():
            for row in joined:
                step, speed, tax = (
                    _range(r.low, r.high, w) for r, w in ((row.step_seconds, duration), (row.speedup, _times), (row.tax, percent))
                )
                lines.append((*first, workload, row.strategy, row.wire, str(row.num_gpus), "predicted", step, speed, tax))
        for s in item.run.training.steps:
            e = s.efficiency_fraction
            speed, tax = (DASH, DASH) if e is None else (_times(e * s.num_gpus), percent(1 - e))
            lines.append((*first, s.workload, s.strategy, s.wire, str(s.num_gpus), "measured", duration(s.step_seconds), speed, tax))
    headings = ("workload", "strategy", "wire", kinds, "kind", "step", "as fast as one", "wire tax")
    return Table((*(["run"] if several else []), *headings), tuple(lines))


def _times(value: float) -> str:
    return f"{significant(value)} \u00d7"


def _range(low: float | None, high: float | None, words: Any) -> str:
    if low is None or high is None:
        return DASH
    a, b = words(low), words(high)
    return a if a == b else f"{a} to {b}"


def _key(p: Phase, several: bool) -> str:
    where = p.kind if p.num_gpus == 1 else f"{p.wire}, {p.kind}"
    strategy = "" if p.strategy == "ddp" or p.num_gpus == 1 else f"{p.strategy}, "
    return f"{p.label}: {strategy}{where}" if several else f"{strategy}{where}"


def _share(p: Phase, found: Sequence[Phase], several: bool) -> str:
    whole = sum(q.seconds for q in found if _key(q, several) == _key(p, several))
    return percent(p.seconds / whole) if whole else DASH


def _total(found: Sequence[Phase], key: str, several: bool) -> str:
    return duration(sum(p.seconds for p in found if _key(p, several) == key))


def _phases_says(found: Sequence[Phase], keys: Sequence[str], several: bool) -> str:
    parts = []
    for key in keys:
        waiting = next((p for p in found if _key(p, several) == key and p.name == "waiting for the wire"), None)
        slowed = next((p for p in found if _key(p, several) == key and p.name == "slowed by the wire"), None)
        words = [f"{_share(part, found, several)} of it {word}" for part, word in ((slowed, "slowed"), (waiting, "waiting")) if part]
        parts.append(", ".join([f"{key}: {_total(found, key, several)}", *words]))
    return "; ".join(parts) + "."

"""What each GPU computes: one bar a GPU, so that a straggler is seen."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import altair as alt

from wiretax.show.charts import Chart, Table
from wiretax.show.charts.colours import Palette
from wiretax.show.charts.parts import WIDTH, by_run, digits, dressed, rows
from wiretax.show.gpus import SLOW_FRACTION
from wiretax.show.series import GpuRate, Labelled, gpu_rates
from wiretax.units import flops, percent, rate

FIGURE_ROOM, LAGGARD_ROOM = 48, 96
"""Pixels beside the longest bar: for its figure, and for how far behind it is. A share of the drawing is too little on a telephone."""
MOST_BARS = 24
"""Bars drawn; of more GPUs the slowest are, and the table has them all."""


def bars(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """A bar a GPU with all computing, a tick for the same one alone, a line at the median."""
    rates = gpu_rates(items)
    if not rates:
        return None
    top = max(r.together or r.alone or 0.0 for r in rates)
    scale, unit = (1e12, "TFLOP/s") if top >= 1e12 else (1e9, "GFLOP/s")
    ranked = sorted(rates, key=lambda r: r.together or r.alone or 0.0)[:MOST_BARS] if len(rates) > MOST_BARS else rates
    drawn = sorted(ranked, key=lambda r: (r.order, r.label))
    several = len(items) > 1
    order = list(dict.fromkeys(r.name for r in drawn))
    values = [
        {
            "run": r.label,
            "gpu": r.name,
            "rate": digits((r.together or r.alone or 0.0) / scale),
            "alone": digits(r.alone / scale) if r.alone else None,
            "end": digits(max(r.together or 0.0, r.alone or 0.0) / scale),
            "state": "slow" if r.behind >= SLOW_FRACTION else "ok",
            "text": flops(r.together or r.alone or 0.0).partition(" ")[0]
            + (f"  -{percent(r.behind)}" if r.behind >= SLOW_FRACTION else ""),
            "held": r.held_back,
        }
        for r in drawn
    ]
    base = alt.Chart(rows(values)).encode(
        y=alt.Y("gpu:N").scale(domain=order, paddingInner=0.35).axis(title=None, domain=False, ticks=False, grid=False, labelPadding=8),
        **({"yOffset": alt.YOffset("run:N").scale(domain=[i.label for i in items])} if several else {}),
    )
    if several:
        colour: Any = alt.Color("run:N").scale(domain=[i.label for i in items], range=list(palette.runs)).legend(symbolType="square")
    else:
        colour = alt.Color("state:N").scale(domain=["ok", "slow"], range=[palette.wires["default"], palette.bad]).legend(None)
    x = alt.X("rate:Q").scale(domain=[0, top / scale * 1.02], nice=False).axis(title=f"matrix products, {unit}", grid=True, tickCount=5)
    tip = ["gpu:N", alt.Tooltip("rate:Q", title=unit), alt.Tooltip("alone:Q", title="alone"), alt.Tooltip("held:N", title="held back by")]
    layers = [
        base.mark_bar(cornerRadiusEnd=3).encode(x=x, color=colour, tooltip=tip),
        base.mark_tick(thickness=2, color=palette.ink, bandSize=22).encode(x="alone:Q"),
        base.mark_text(align="left", dx=7, fontSize=12, fontWeight=600).encode(x="end:Q", text="text:N"),
    ]
    known = [r.together or r.alone or 0.0 for r in rates]
    if len(known) > 2:
        middle = alt.Chart(rows([{"x": digits(statistics.median(known) / scale)}]))
        layers.insert(1, middle.mark_rule(strokeDash=[4, 4], color=palette.quiet).encode(x="x:Q"))
    room = {"left": 5, "top": 5, "bottom": 5, "right": LAGGARD_ROOM if any(r.behind >= SLOW_FRACTION for r in drawn) else FIGURE_ROOM}
    count = len(order) * (len(items) if several else 1)
    return Chart(
        name="compute",
        title="What each GPU computes" if rates[0].name.startswith("GPU") else "What each rank computes",
        caption="Bars: all at the same time. "
        + ("Ticks: the same one alone. " if any(r.alone for r in rates) else "")
        + ("Dashed: the median. " if len(known) > 2 else "")
        + ("Only the slowest are drawn; the table has all." if len(rates) > MOST_BARS else ""),
        says=by_run(items, rates, _says),
        spec=dressed(alt.layer(*layers).properties(width=WIDTH, height=max(36 * len(order), 24 * count), padding=room), palette),
        table=_table(rates, several=several),
    )


def _says(rates: Sequence[GpuRate]) -> str:
    slow = [r for r in rates if r.behind >= SLOW_FRACTION]
    known = sorted(r.together or r.alone or 0.0 for r in rates)
    text = f"Matrix products run at {flops(known[0])} to {flops(known[-1])}."
    if not slow:
        return text + " None is far behind the others."
    return text + " Far behind: " + ", ".join(f"{r.name} by {percent(r.behind)} (held back by {r.held_back})" for r in slow[:6]) + "."


def _table(rates: Sequence[GpuRate], *, several: bool) -> Table:
    def words(value: float | None) -> str:
        return flops(value) if value else "\u2013"

    lines = [
        (
            *([r.label] if several else []),
            r.name,
            words(r.alone),
            words(r.together),
            rate(r.memory) if r.memory else "\u2013",
            r.held_back,
        )
        for r in rates
    ]
    return Table((*(["run"] if several else []), "GPU", "alone", "all at once", "memory", "held back by"), tuple(lines))

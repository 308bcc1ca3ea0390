"""The planner in the page: sliders for price, GPUs, efficiency or a measured wire, batch, accumulation, deadline and interruptions.

Everything is a Vega-Lite parameter and a calculated column, so the page needs no code of its own for it. The formulas are those of
``wiretax.plan``: ``hours = H / (N e)``, ``cost = price x N x hours``, Daly's interval, and his mean wall clock with interruptions. A test
moves the sliders in a browser and compares.

Over a measured wire the efficiency at another batch and accumulation is ``1 / (1 + w / (b k))``: ``w`` is the wait for the wire over the
one-GPU step in the forecast, ``b`` the batch over the forecast's and ``k`` the micro-steps between two reductions. A larger batch hides
no more here than in the forecast, so the figure is a careful one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from wiretax.model.run import Run
from wiretax.show.charts import Chart, Table
from wiretax.show.charts.colours import Palette
from wiretax.show.charts.parts import digits, dressed, menu, rows, slider
from wiretax.show.series import Labelled, num_gpus, wire_order
from wiretax.show.training import box_per_hour
from wiretax.units import percent

TYPED = "typed"
DEFAULT_PRICE = 2.0
DEFAULT_HOURS = 40.0
DEFAULT_EFFICIENCY = 0.8
COUNTS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait for the wire over the one-GPU step, as forecast for one strategy, wire and number of GPUs."""

    source: str
    num_gpus: int
    share: float


def planner(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """Speed-up, hours and money for 1..N GPUs, with sliders; for the first run, where its machine has a GPU."""
    run = items[0].run
    if run.machine is None or not run.machine.gpus:
        return None
    box = box_per_hour(run)
    price = box / len(run.machine.gpus) if box else DEFAULT_PRICE
    currency = run.price.currency if run.price is not None and box else "USD"
    found = waits(run)
    sources = list(dict.fromkeys(w.source for w in found))
    counts = sorted(
        {*COUNTS[: COUNTS.index(8) + 1], *(n for n in COUNTS if n <= num_gpus(run)), *(w.num_gpus for w in found), num_gpus(run)}
    )
    values = [{"s": TYPED, "n": n, "w": 0.0} for n in counts]
    values += [{"s": source, "n": n, "w": digits(extended(found, source, n), 6)} for source in sources for n in counts]
    batch = next((f.batch_per_gpu for f in run.forecasts if f.batch_per_gpu), None)
    parameters = [
        # Text out of a document never becomes part of an expression.
        alt.param(name="currency", value=currency),
        slider("price", f"{currency} per GPU-hour", digits(price) or 0.0, 0.05, max(10.0, 2 * price), 0.01),
        slider("hours", "hours on one GPU", DEFAULT_HOURS, 1, 2000, 1),
        alt.param(name="gpus", value=min(num_gpus(run), max(counts)), bind=alt.binding_select(options=counts, name="GPUs")),
        menu("source", "efficiency from", [*sources, TYPED]),
        slider("eff", "efficiency, when typed", DEFAULT_EFFICIENCY, 0.05, 1, 0.01),
        slider(
            "batch",
            "batch per GPU" if batch else "batch, as a multiple",
            batch or 1,
            1 if batch else 0.25,
            (batch or 1) * 8,
            1 if batch else 0.25,
        ),
        slider("accumulate", "micro-steps per update", 1, 1, 64, 1),
        slider("deadline", "deadline in hours (0: none)", 0, 0, 500, 1),
        slider("interruptions", "interruptions a day (0: none)", 0, 0, 24, 0.5),
        slider("checkpoint", "seconds a checkpoint takes", 60, 5, 900, 5),
        slider("restart", "minutes until training again", 5, 0, 60, 1),
    ]
    chart = _chart(values, counts, batch or 1, currency, palette).add_params(*parameters)
    return Chart(
        name="planner",
        title="What would it cost?",
        caption=(f"For {items[0].label}. " if len(items) > 1 else "")
        + "Move the sliders: speed-up, hours and money for each number of GPUs follow at once. "
        + ("The price is an assumption; say yours with --price. " if box is None else "")
        + (
            "The efficiency comes from the forecast over each wire; choose typed to set your own."
            + _beyond(max(w.num_gpus for w in found), counts[-1])
            if sources
            else "No step was predicted in this run, so the efficiency is typed."
        ),
        says=f"Hours and cost for {', '.join(map(str, counts))} GPUs by the same formulas as wiretax plan.",
        spec=dressed(chart, palette),
        table=_table(found, counts, price, currency),
        controls=True,
    )


def _beyond(forecast: int, drawn: int) -> str:
    return f" Beyond {forecast} GPUs, which nothing forecast, the wire may be quite another." if forecast < drawn else ""


def waits(run: Run) -> list[Wait]:
    """From the forecasts of the first workload; several of one configuration are its bounds, and their mean is taken."""
    first = next((f.workload for f in run.forecasts if f.num_gpus > 1 and f.efficiency_fraction), None)
    shares: dict[tuple[str, str, int], list[float]] = {}
    for f in run.forecasts:
        if f.workload == first and f.num_gpus > 1 and f.efficiency_fraction:
            shares.setdefault((f.strategy, f.wire, f.num_gpus), []).append(max(1 / f.efficiency_fraction - 1, 0.0))
    wires = wire_order(wire for _, wire, _ in shares)
    several = len({strategy for strategy, _, _ in shares}) > 1
    ordered = sorted(shares, key=lambda key: (wires.index(key[1]), key[0], key[2]))
    return [Wait(f"{w}, {s}" if several else w, n, sum(shares[s, w, n]) / len(shares[s, w, n])) for s, w, n in ordered]


def extended(found: Sequence[Wait], source: str, count: int) -> float:
    """The wait at any number of GPUs: the forecast's own, else the nearest one scaled by the volume a ring moves, 2 (N - 1) / N."""
    if count == 1:
        return 0.0
    mine = [w for w in found if w.source == source]
    nearest = min(mine, key=lambda w: (abs(w.num_gpus - count), w.num_gpus))
    return nearest.share * ((count - 1) / count) / ((nearest.num_gpus - 1) / nearest.num_gpus)


_MEAN_GAP = "86400 / max(interruptions, 1e-9)"
_PART = f"(checkpoint / (2 * ({_MEAN_GAP})))"
_DALY = (
    f"checkpoint >= 2 * ({_MEAN_GAP}) ? {_MEAN_GAP} : "
    f"sqrt(2 * checkpoint * ({_MEAN_GAP})) * (1 + sqrt({_PART}) / 3 + {_PART} / 9) - checkpoint"
)


def _piece(length: str) -> str:
    """``M exp(R / M) (exp((T + C) / M) - 1)``: mean seconds until a piece of work and its checkpoint are done."""
    return f"({_MEAN_GAP}) * exp(restart * 60 / ({_MEAN_GAP})) * (exp((({length}) + checkpoint) / ({_MEAN_GAP})) - 1)"


def _chart(values: list[dict[str, Any]], counts: Sequence[int], batch: float, currency: str, palette: Palette) -> Any:
    base = (
        alt.Chart(rows(values))
        .transform_filter("datum.s === source")
        .transform_calculate(
            e=f"datum.n === 1 ? 1 : datum.s === '{TYPED}' ? eff : 1 / (1 + datum.w / (batch / {batch:g} * accumulate))",
            label="datum.n + ''",
        )
        .transform_calculate(work="hours * 3600 / (datum.n * datum.e)", speedup="datum.n * datum.e")
        .transform_calculate(interval=f"min({_DALY}, datum.work)")
        .transform_calculate(whole="floor(datum.work / datum.interval * (1 + 1e-12))")
        .transform_calculate(rest="max(datum.work - datum.whole * datum.interval, 0)")
        .transform_calculate(
            seconds=f"interruptions <= 0 ? datum.work : datum.whole * ({_piece('datum.interval')})"
            f" + (datum.rest > 1e-9 * datum.work ? {_piece('datum.rest')} : 0)"
        )
        .transform_calculate(wall="datum.seconds / 3600")
        .transform_calculate(cost="price * datum.n * datum.wall", late="deadline > 0 && datum.wall > deadline ? 1 : 0")
    )
    x = (
        alt.X("label:N")
        .scale(domain=[str(n) for n in counts], paddingInner=0.25)
        .axis(title="GPUs", labelAngle=0, grid=False, ticks=False, domain=True)
    )
    chosen = alt.condition("datum.n === gpus", alt.value(1), alt.value(0.38))
    colour = alt.condition("datum.late === 1", alt.value(palette.bad), alt.value(palette.wires["default"]))
    tip = [
        alt.Tooltip("n:Q", title="GPUs"),
        alt.Tooltip("e:Q", title="efficiency", format=".1%"),
        alt.Tooltip("wall:Q", title="hours", format=".4~g"),
        alt.Tooltip("cost:Q", title=currency, format=",.2f"),
    ]
    size: dict[str, Any] = {"width": 262, "height": 210}

    def bars(column: str, title: str, form: str) -> Any:
        shared = base.encode(x=x)
        bar = shared.mark_bar(cornerRadiusTopLeft=3, cornerRadiusTopRight=3).encode(
            y=alt.Y(f"{column}:Q").axis(title=None, tickCount=4, format="~s", grid=True), opacity=chosen, color=colour, tooltip=tip
        )
        text = (
            shared.transform_filter("datum.n === gpus")
            .transform_calculate(shown=f"format(datum.{column}, '{form}')")
            .mark_text(dy=-8, fontWeight=700, fontSize=13)
            .encode(y=f"{column}:Q", text="shown:N")
        )
        return alt.layer(bar, text).properties(title=title, **size)

    speed, hours, cost = (
        bars("speedup", "as fast as one GPU, \u00d7", ".3~g"),
        bars("wall", "hours", ".4~g"),
        bars("cost", currency, ",.2f"),
    )
    rule = (
        alt.Chart(rows([{"k": 0}]))
        .transform_calculate(deadline_at="max(deadline, 0)")
        .mark_rule(strokeDash=[4, 3], color=palette.bad, strokeWidth=1.5)
        .encode(y="deadline_at:Q", opacity=alt.condition("deadline > 0", alt.value(1), alt.value(0)))
    )
    said = (
        base.transform_filter("datum.n === gpus")
        .transform_calculate(
            sentence="datum.n + (datum.n === 1 ? ' GPU: ' : ' GPUs: ') + format(datum.wall, '.4~g') + ' h, ' + format(datum.cost, ',.2f')"
            " + ' ' + currency + ', efficiency ' + format(datum.e * 100, '.0f') + ' %'"
            " + (datum.n === 1 ? '' : ', wire tax ' + format(100 - datum.e * 100, '.0f') + ' %')"
            " + (interruptions > 0 ? ', a checkpoint every ' + format(datum.interval / 60, '.3~g') + ' min' : '')"
            " + (datum.late === 1 ? '. Too late.' : deadline > 0 ? '. In time.' : '.')"
        )
        .mark_text(align="left", fontSize=16, fontWeight=600)
        .encode(x=alt.value(0), y=alt.value(10), text="sentence:N", color=colour)
        .properties(width=size["width"] * 3, height=22)
    )
    hours = alt.layer(hours, rule).properties(title="hours", **size)
    return alt.vconcat(said, alt.hconcat(speed, hours, cost, spacing=34), spacing=14)


def _table(found: Sequence[Wait], counts: Sequence[int], price: float, currency: str) -> Table:
    """The numbers as the page opens: without scripts there are no sliders to move."""
    sources = list(dict.fromkeys(w.source for w in found)) or [TYPED]
    lines = []
    for source in sources:
        for n in counts:
            e = 1.0 if n == 1 else DEFAULT_EFFICIENCY if source == TYPED else 1 / (1 + extended(found, source, n))
            wall = DEFAULT_HOURS / (n * e)
            lines.append((source, str(n), percent(e), f"{wall:.2f}", f"{price * n * wall:.2f}"))
    return Table(("efficiency from", "GPUs", "efficiency", f"hours, of {DEFAULT_HOURS:g} on one GPU", f"cost, {currency}"), tuple(lines))

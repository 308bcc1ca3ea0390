"""The pairs of GPUs as a heat map: measured beside what they should reach, with the path the driver claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from wiretax.show.charts import Chart, Table
from wiretax.show.charts.colours import SPEED_COLOURS, SPEED_STEPS, Palette, speed_step
from wiretax.show.charts.parts import WIDTH, by_run, digits, dressed, rows
from wiretax.show.series import Labelled, PairRate, pair_rates
from wiretax.units import gigabytes_per_second, rate

LARGEST_PICTURE = 16
"""GPUs up to which the matrix is a drawn heat map; beyond, a coloured table is the smaller and the better picture."""

DASH = "\u2013"


def matrix(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """Rows copy to columns; the colour is measured GB/s."""
    rates = pair_rates(items)
    if not any(r.measured for r in rates):
        return None
    indices = sorted({r.source for r in rates} | {r.target for r in rates})
    large = len(indices) > LARGEST_PICTURE
    return Chart(
        name="pairs",
        title="Every pair of GPUs",
        caption="One copy at a time, from the row's GPU to the column's, in GB/s"
        + (
            "."
            if large
            else "; below it the path as the driver names it. Left what was measured, right what these links should reach."
            if any(r.expected for r in rates) and len(items) == 1
            else "; below it the path as the driver names it."
        ),
        says=by_run(items, [r for r in rates if r.measured is not None], _says),
        spec=None if large else _spec(items, rates, indices, palette),
        table=_wide_table(items, rates, indices) if large else _long_table(items, rates),
        heat=_heat(items, rates, indices) if large else (),
    )


def _spec(items: Sequence[Labelled], rates: Sequence[PairRate], indices: Sequence[int], palette: Palette) -> dict[str, Any]:
    panels: dict[str, list[dict[str, Any]]] = {}
    several = len(items) > 1
    for r in rates:
        common = {"from": f"GPU{r.source}", "to": f"GPU{r.target}", "path": r.path or "?", "p2p": r.p2p or "?"}
        if r.measured is not None:
            title = f"{r.label}: measured" if several else "Measured"
            panels.setdefault(title, []).append({**common, **_figure(r.measured), "route": r.route})
    for r in [] if several else rates:
        if r.expected is not None:
            common = {"from": f"GPU{r.source}", "to": f"GPU{r.target}", "path": r.path or "?", "p2p": r.p2p or "?"}
            panels.setdefault("Should reach", []).append({**common, **_figure(r.expected), "route": r.route})
    columns = min(len(panels), 2)
    side = min(WIDTH / columns - 110, max(96 * len(indices), 220) if len(indices) < 4 else 84 * len(indices), 400)
    names = [f"GPU{k}" for k in indices]
    drawn = [_panel(title, values, names, side, palette) for title, values in panels.items()]
    return dressed(alt.concat(*drawn, columns=columns, spacing=46).resolve_scale(color="shared"), palette)


def _figure(value: float) -> dict[str, Any]:
    return {"rate": digits(value / 1e9), "text": gigabytes_per_second(value), "dark": int(speed_step(value) in (0, 4, 5, 6))}


def _panel(title: str, values: list[dict[str, Any]], names: list[str], side: float, palette: Palette) -> Any:
    cell = side / len(names)
    scale = alt.Scale(type="threshold", domain=[edge / 1e9 for edge in SPEED_STEPS], range=list(SPEED_COLOURS))
    base = alt.Chart(rows(values)).encode(
        x=alt.X("to:N").scale(domain=names).axis(title="to", orient="top", labelAngle=0, domain=False, ticks=False, grid=False),
        y=alt.Y("from:N").scale(domain=names).axis(title="from", domain=False, ticks=False, grid=False),
    )
    squares = base.mark_rect(cornerRadius=5, stroke=palette.paper, strokeWidth=3).encode(
        color=alt.Color("rate:Q").scale(scale).legend(None),
        tooltip=["from:N", "to:N", alt.Tooltip("rate:Q", title="GB/s"), "path:N", alt.Tooltip("p2p:N", title="P2P"), "route:N"],
    )
    ink = alt.condition("datum.dark === 1", alt.value("#ffffff"), alt.value("#1b1e24"))
    layers = [squares]
    if cell >= 34:
        layers.append(base.mark_text(fontSize=15 if cell >= 60 else 11, fontWeight=600, dy=-6).encode(text="text:N", color=ink))
        layers.append(base.mark_text(fontSize=11 if cell >= 60 else 9, dy=9, opacity=0.9).encode(text="path:N", color=ink))
    elif cell >= 20:
        layers.append(base.mark_text(fontSize=9).encode(text="text:N", color=ink))
    return alt.layer(*layers).properties(width=side, height=side, title=title)


def _says(rates: Sequence[PairRate]) -> str:
    known = sorted((r for r in rates if r.measured is not None), key=lambda r: r.measured or 0.0)
    slow, fast = known[0], known[-1]
    ends = rate(slow.measured or 0.0), rate(fast.measured or 0.0)
    text = f"The slowest pair, GPU{slow.source} to GPU{slow.target}, copies at {ends[0]}; the fastest at {ends[1]}."
    under = sum(1 for r in known if r.low is not None and (r.measured or 0) < r.low)
    bounded = any(r.low is not None for r in known)
    if not bounded:
        return text
    return text + (
        f" {under} of {len(known)} stay below what their links should reach." if under else " All reach what their links should."
    )


def _long_table(items: Sequence[Labelled], rates: Sequence[PairRate]) -> Table:
    several = len(items) > 1
    lines = [
        (
            *([r.label] if several else []),
            f"GPU{r.source} to GPU{r.target}",
            r.path or "unknown",
            r.p2p or "unknown",
            r.route or DASH,
            gigabytes_per_second(r.measured) if r.measured else DASH,
            gigabytes_per_second(r.expected) if r.expected else DASH,
        )
        for r in rates
    ]
    headings = ("pair", "path", "P2P", "way", "measured, GB/s", "should reach, GB/s")
    return Table(((*(["run"] if several else []), *headings)), tuple(lines))


def _wide_table(items: Sequence[Labelled], rates: Sequence[PairRate], indices: Sequence[int]) -> Table:
    several = len(items) > 1
    lines = []
    for item in items:
        cells = {(r.source, r.target): r for r in rates if r.label == item.label}
        for a in indices:
            own = [cells.get((a, b)) for b in indices]
            figures = ["" if r is None else "?" if r.measured is None else gigabytes_per_second(r.measured) for r in own]
            lines.append((f"{item.label} GPU{a}" if several else f"{a}", *figures))
    return Table(("GPU", *(str(k) for k in indices)), tuple(lines))


def _heat(items: Sequence[Labelled], rates: Sequence[PairRate], indices: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    lines = []
    for item in items:
        cells = {(r.source, r.target): r for r in rates if r.label == item.label}
        for a in indices:
            own = [cells.get((a, b)) for b in indices]
            lines.append(("", *("" if r is None or r.measured is None else f"s{speed_step(r.measured)}" for r in own)))
    return tuple(lines)

"""What the wires deliver: bandwidth against message size, and the time of small messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from wiretax.data.references import Curve, Reference, references
from wiretax.show.charts import Chart, Table
from wiretax.show.charts.colours import Palette
from wiretax.show.charts.parts import WIDTH, by_run, colour_scale, digits, dressed, log_ticks, menu, rows, size_axis
from wiretax.show.series import Labelled, WirePoint, best_points, num_gpus, operation_order, wire_order, wire_points
from wiretax.units import duration, gigabytes_per_second, rate, size

SMALL_BYTES = 64 * 2**10
"""Up to here start-up time rules, not bandwidth."""

NO_REFERENCE = "none"


def busbw(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """Bus bandwidth against message size for every wire, on log axes, with what this machine should reach and a reference machine."""
    points = wire_points(items)
    if not points:
        return None
    operations = operation_order(p.operation for p in points)
    worlds = sorted({p.world_size for p in points}, reverse=True)
    wires = wire_order(p.wire for p in points)
    modes = sorted({p.mode for p in points})
    known = [machine for machine in references() if any(c.operation in operations for c in machine.curves)]
    shown = sorted((m for m in known if not _is_like(items, m)), key=lambda m: -_detail(m, operations[0])) or known
    on_gpus = any(item.run.machine is not None and item.run.machine.gpus for item in items)
    parameters = [menu("op", "operation ", operations)]
    parameters += [menu("n", "GPUs " if on_gpus else "ranks ", worlds)] if len(worlds) > 1 else []
    parameters += [menu("mode", "timing ", ["best", *modes], ["best of both", *modes])] if len(modes) > 1 else []
    if on_gpus:
        titles = {machine.name: f"{machine.title} ({machine.origin})" for machine in shown}
        names = [*titles, NO_REFERENCE]
        parameters.append(menu("ref", "compare with ", names, [*titles.values(), NO_REFERENCE]))
    ranks = "datum.n === n" if len(worlds) > 1 else "true"
    mode = "(mode === 'best' || datum.mode === mode)" if len(modes) > 1 else "true"
    colour = alt.Color("wire:N").scale(colour_scale(wires, palette)).legend(symbolType="stroke", symbolOpacity=1)
    x = size_axis([p.num_bytes for p in points])
    y = alt.Y("busbw:Q").scale(type="log", nice=False).axis(title="busbw, GB/s", tickCount=3, labelExpr="format(datum.value, '~g')")
    several = len(items) > 1
    base = (
        alt.Chart(rows([_row(p) for p in points]))
        .transform_filter(f"datum.op === op && {ranks} && {mode}")
        .transform_aggregate(busbw="max(busbw)", seconds="min(seconds)", groupby=["run", "wire", "size"])
        .encode(x=x, y=y, color=colour)
    )
    dash = {"strokeDash": alt.StrokeDash("run:N").scale(domain=[i.label for i in items]).legend(symbolStrokeColor=palette.ink)}
    tip = [
        alt.Tooltip("wire:N"),
        alt.Tooltip("size:Q", format="~s", title="bytes"),
        alt.Tooltip("busbw:Q", format=".4~g", title="busbw, GB/s"),
        alt.Tooltip("seconds:Q", format=".4~s", title="seconds"),
    ]
    line = base.mark_line(strokeWidth=2.4).encode(**dash if several else {})
    dots = base.mark_point(size=22, filled=True, opacity=1).encode(tooltip=[*([alt.Tooltip("run:N")] if several else []), *tip])
    layers: list[Any] = [*_limits(items, points, colour, palette, ranks, on_gpus=on_gpus)]
    layers += _reference_layer(shown, operations, palette, max(p.num_bytes for p in points)) if on_gpus else []
    chart = alt.layer(*layers, line, dots).add_params(*parameters).properties(width=WIDTH, height=400)
    return Chart(
        name="busbw",
        title="What each wire delivers",
        caption=_caption(on_gpus=on_gpus, limits=any(item.run.expectations for item in items)),
        says=by_run(items, points, lambda own: _says(own, wires)),
        spec=dressed(chart, palette),
        table=_busbw_table(points, wires, several=several),
        controls=True,
    )


def latency(items: Sequence[Labelled], palette: Palette) -> Chart | None:
    """Time of an all-reduce at small sizes, where start-up rules; eager and CUDA graph apart."""
    worlds: dict[str, int] = {}
    points = [p for p in wire_points(items) if p.operation == "all_reduce" and p.num_bytes <= SMALL_BYTES]
    for p in points:
        worlds[p.label] = max(worlds.get(p.label, 0), p.world_size)
    points = [p for p in points if p.world_size == worlds[p.label]]
    if not points:
        return None
    wires = wire_order(p.wire for p in points)
    several = len(items) > 1
    keys = [f"{p.label}, {p.mode}" if several else p.mode for p in points]
    dashes = [[1, 0], [5, 4], [2, 3], [8, 3, 2, 3], [1, 4], [10, 4]]
    names = sorted(dict.fromkeys(keys))
    values = [{**_row(p), "us": digits(p.seconds * 1e6), "line": key} for p, key in zip(points, keys, strict=True)]
    dash = alt.StrokeDash("line:N").scale(domain=names, range=[dashes[k % len(dashes)] for k in range(len(names))])
    base = alt.Chart(rows(values)).encode(
        x=size_axis([p.num_bytes for p in points]),
        y=alt.Y("us:Q")
        .scale(type="log", nice=False)
        .axis(title="time, us", labelExpr="format(datum.value, '~g')", **log_ticks([p.seconds * 1e6 for p in points])),
        color=alt.Color("wire:N").scale(colour_scale(wires, palette)).legend(symbolType="stroke", symbolOpacity=1),
        tooltip=["line:N", "wire:N", alt.Tooltip("size:Q", title="bytes"), alt.Tooltip("us:Q", format=".4~g", title="us")],
    )
    line = base.mark_line(strokeWidth=2.2).encode(
        strokeDash=dash.legend(symbolStrokeColor=palette.ink) if len(names) > 1 else dash.legend(None)
    )
    dots = base.mark_point(size=18, filled=True, opacity=1)
    return Chart(
        name="latency",
        title="Small messages",
        caption="Time of one all-reduce where start-up rules."
        + (" Eager is what a training loop pays, a CUDA graph what the wire needs." if any(p.mode == "graph" for p in points) else ""),
        says=by_run(items, points, lambda own: _latency_says(own, wires)),
        spec=dressed(alt.layer(line, dots).properties(width=WIDTH, height=260), palette),
        table=_latency_table(points, wires, several=several),
    )


def _row(p: WirePoint) -> dict[str, Any]:
    return {
        "run": p.label,
        "wire": p.wire,
        "op": p.operation,
        "n": p.world_size,
        "mode": p.mode,
        "size": p.num_bytes,
        "busbw": digits(p.busbw / 1e9),
        "seconds": digits(p.seconds),
    }


def _limits(
    items: Sequence[Labelled], points: Sequence[WirePoint], colour: alt.Color, palette: Palette, ranks: str, *, on_gpus: bool
) -> list[Any]:
    """At the right edge: from low to high what each wire should reach; across: what the links can carry at most."""
    measured = {(p.label, p.operation, p.wire, p.world_size) for p in points}
    largest = max(p.num_bytes for p in points)
    values: list[dict[str, Any]] = []
    tops: dict[tuple[str, int], float] = {}
    for item in items:
        for e in item.run.expectations:
            if e.world_size is None or (item.label, e.subject, e.wire, e.world_size) not in measured:
                continue
            row = {"op": e.subject, "wire": e.wire, "n": e.world_size, "size": int(largest * 1.35)}
            ends = {
                "low": digits(e.low_bytes_per_second / 1e9),
                "mid": digits(e.expected_bytes_per_second / 1e9),
                "high": digits(e.high_bytes_per_second / 1e9),
            }
            values.append({**row, **ends})
            if e.limit_bytes_per_second and e.wire in ("default", "clean"):
                key = (e.subject, e.world_size)
                tops[key] = max(tops.get(key, 0.0), e.limit_bytes_per_second / 1e9)
    if not values:
        return []
    base = alt.Chart(rows(values)).transform_filter(f"datum.op === op && {ranks}").encode(color=colour)
    tip = [alt.Tooltip("wire:N", title="should reach over"), "low:Q", alt.Tooltip("mid:Q", title="expected"), "high:Q"]
    layers: list[Any] = [
        base.mark_rule(strokeWidth=9, opacity=0.35, strokeCap="butt").encode(x="size:Q", y="low:Q", y2="high:Q", tooltip=tip),
        base.mark_tick(thickness=2.5, width=14, orient="horizontal").encode(x="size:Q", y="mid:Q", tooltip=tip),
    ]
    if tops and on_gpus:
        top = [
            {"op": op, "n": n, "busbw": digits(value), "text": f"{value:.4g} GB/s: what the links carry"} for (op, n), value in tops.items()
        ]
        rule = alt.Chart(rows(top)).transform_filter(f"datum.op === op && {ranks}").encode(y="busbw:Q")
        layers.insert(0, rule.mark_rule(strokeDash=[3, 3], strokeWidth=1.2, color=palette.quiet))
        layers.insert(1, rule.mark_text(align="left", dx=4, dy=-7, color=palette.quiet, fontSize=11).encode(x=alt.value(0), text="text:N"))
    return layers


def _reference_layer(machines: Sequence[Reference], operations: Sequence[str], palette: Palette, largest: int) -> list[Any]:
    values = [
        {"ref": machine.name, "op": curve.operation, "size": num_bytes, "busbw": digits(busbw / 1e9), "title": machine.title}
        for machine in machines
        for curve in machine.curves
        if curve.operation in operations and curve == fastest(machine, curve.operation)
        for num_bytes, busbw in curve.points
        if num_bytes <= largest * 1.3
    ]
    base = alt.Chart(rows(values)).transform_filter("datum.ref === ref && datum.op === op").encode(x="size:Q", y="busbw:Q")
    tip = [alt.Tooltip("title:N", title="reference"), alt.Tooltip("busbw:Q", title="busbw, GB/s")]
    return [
        base.mark_line(strokeDash=[2, 4], strokeWidth=1.8, color=palette.quiet),
        base.mark_point(shape="diamond", size=26, filled=True, opacity=0.9, color=palette.quiet).encode(tooltip=tip),
    ]


def _detail(machine: Reference, operation: str) -> int:
    """Points of its curve: a whole curve says more than a peak."""
    curve = fastest(machine, operation)
    return len(curve.points) if curve else 0


def fastest(machine: Reference, operation: str) -> Curve | None:
    """The curve of a reference machine's best wire for an operation, at its most GPUs."""
    found = [curve for curve in machine.curves if curve.operation == operation]
    return max(found, key=lambda curve: (curve.world_size, max(busbw for _, busbw in curve.points)), default=None)


def _is_like(items: Sequence[Labelled], machine: Reference) -> bool:
    """Whether the page is about the very kind of machine the reference was measured on."""
    names = {gpu.name for item in items if item.run.machine is not None for gpu in item.run.machine.gpus}
    return machine.num_gpus == max((num_gpus(item.run) for item in items), default=0) and any(
        (name or "").rpartition(" ")[2] in machine.title for name in names
    )


def _caption(*, on_gpus: bool, limits: bool) -> str:
    text = "Bus bandwidth as nccl-tests counts it, up is better."
    if limits:
        text += " At the right edge, the bar is what this machine should reach over that wire and its tick the expected value."
    return text + (" Dotted: a reference machine." if on_gpus else "")


def _says(points: Sequence[WirePoint], wires: Sequence[str]) -> str:
    operation = operation_order(p.operation for p in points)[0]
    parts = []
    for wire in wires:
        best = max((p for p in points if p.wire == wire and p.operation == operation), key=lambda p: p.busbw, default=None)
        if best is not None:
            parts.append(f"{wire} {rate(best.busbw)} at {size(best.num_bytes)}")
    return f"Best {operation.replace('_', '-')} bandwidth of each wire: {', '.join(parts)}."


def _latency_says(points: Sequence[WirePoint], wires: Sequence[str]) -> str:
    smallest = min(p.num_bytes for p in points)
    least = {w: min((p.seconds for p in points if p.wire == w and p.num_bytes == smallest), default=None) for w in wires}
    said = ", ".join(f"{w} {duration(seconds)}" for w, seconds in least.items() if seconds is not None)
    return f"An all-reduce of {size(smallest)} takes, at best: {said}."


def _busbw_table(points: Sequence[WirePoint], wires: Sequence[str], *, several: bool) -> Table:
    """A row an operation, number of ranks and size; a column a wire, in GB/s."""
    best = best_points(points)
    cells = {(p.label, p.operation, p.world_size, p.num_bytes, p.wire): p for p in best}
    order = operation_order(p.operation for p in best)
    keys = sorted({k[:4] for k in cells}, key=lambda k: (k[0], order.index(k[1]), -k[2], k[3]))
    lines = []
    for key in keys:
        found = [cells.get((*key, wire)) for wire in wires]
        figures = [("~" if p.unstable else "") + gigabytes_per_second(p.busbw) if p else "\u2013" for p in found]
        lines.append((*([key[0]] if several else []), key[1], str(key[2]), size(key[3]), *figures))
    return Table((*(["run"] if several else []), "operation", "ranks", "size", *(f"{wire}, GB/s" for wire in wires)), tuple(lines))


def _latency_table(points: Sequence[WirePoint], wires: Sequence[str], *, several: bool) -> Table:
    cells = {(p.label, p.mode, p.num_bytes, p.wire): p for p in points}
    lines = []
    for key in sorted({k[:3] for k in cells}):
        found = [cells.get((*key, wire)) for wire in wires]
        lines.append((*([key[0]] if several else []), key[1], size(key[2]), *(duration(p.seconds) if p else "\u2013" for p in found)))
    return Table((*(["run"] if several else []), "timing", "size", *wires), tuple(lines))

"""What the wires deliver: a bar for each wire against this machine's own limit, and every operation in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.text import Text

from wiretax.model.measurement import OPERATIONS, Collective, Expected, Incident, Measurements, Point
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented, listed, spread_fraction
from wiretax.units import duration, gigabytes_per_second, percent, rate, size

WIRE_WORDS = {
    "default": "as found",
    "clean": "without the variables that switch P2P or SHM off",
    "p2p_forced": "P2P forced at any distance",
    "p2p_off": "P2P switched off",
    "socket": "TCP sockets",
    "gloo": "gloo, the backend for CPUs",
    "ethernet": "the network card",
}
MEBIBYTE = 1 << 20
LEAST_BAR = 8
"""Columns below which a bar says nothing; then what stands right of it moves to the line below."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One wire of the ladder: its best point and what stands beside it."""

    wire: str
    world_size: int
    transport: str | None
    peak: Point
    mebibyte: Point | None
    smallest: dict[str, Point]
    """Mode to its smallest size."""
    sweep: tuple[Point, ...]
    """The sizes of the mode that holds the peak."""
    limit: Expected | None
    renamed_from: str | None
    verified: bool | None


def ladder(run: Run, width: int, symbols: Symbols) -> list[RenderableType]:
    """The all-reduce bars, one wire a rung, fastest first; wires that failed keep a rung that says why.

    Args:
        run: a cleaned run.
        width: columns to draw in.
        symbols: the sign set of the stream.
    """
    rungs = _rungs(run)
    failed = _failed_wires(run.measurements, {rung.wire for rung in rungs})
    if not rungs and not failed:
        return []
    scale = max((max(_rate(r.peak), r.limit.expected_bytes_per_second if r.limit else 0.0) for r in rungs), default=1.0)
    names = [r.wire for r in rungs] + [wire for wire, _ in failed]
    name_width = min(14, max(cell_len(name) for name in names))
    transport_width = min(16, max([cell_len(_transport_words(r.transport)) for r in rungs] + [1]))
    share_width = max([_share(r).cell_len for r in rungs] + [0])
    beside = width - 2 - (name_width + 2) - (transport_width + 2) - 2 - (10 + 2)
    narrow = beside - share_width < LEAST_BAR
    bar_width = max(LEAST_BAR, beside if narrow else beside - share_width)
    on_gpus = bool(run.machine is not None and run.machine.gpus)
    details = {rung.wire: _details(rung, on_gpus, symbols, with_share=narrow) for rung in rungs}
    curves = {rung.wire: _curve(rung.sweep, symbols) for rung in rungs}
    dot = Text(symbols.dot, style="dim")
    has_room = all(4 + name_width + dot.join(details[wire]).cell_len + 2 + len(curves[wire]) <= width for wire in details)
    parts: list[RenderableType] = []
    for rung in rungs:
        colour = _colour(rung)
        bar = _bar(rung, scale, bar_width, colour, symbols)
        parts.append(
            Text.assemble(
                "  ",
                (set_cell_size(rung.wire, name_width), "bold"),
                "  ",
                set_cell_size(_transport_words(rung.transport), transport_width),
                "  ",
                bar,
                " " * (bar_width - bar.cell_len + 2),
                (((symbols.unstable if rung.peak.unstable else "") + rate(_rate(rung.peak))).rjust(10), f"bold {colour}"),
                Text() if narrow else Text("  ").append(_share(rung)),
            )
        )
        line = _flowed(details[rung.wire], dot, width - 4 - name_width)
        if has_room and curves[rung.wire]:
            line.append("  ").append(curves[rung.wire], style=colour)
        parts.append(indented(line, 4 + name_width))
    for wire, reason in failed:
        line = Text.assemble((wire.ljust(name_width), "bold"), "  ", (f"{symbols.bad} no figure: {reason}", "bold red"))
        parts.append(indented(line))
    if any(point.unstable for row in _best(run).values() for point in row.values()):
        parts.append(indented(Text(f"{symbols.unstable} unstable: its samples differ much; measure again on a quiet host", style="yellow")))
    return parts


def one_rank(run: Run, symbols: Symbols) -> list[RenderableType]:
    """What a single rank shows of NCCL and gloo: that they start, capture and compute rightly; never a rate."""
    alone = [series for series in run.measurements.collectives if series.world_size == 1 and series.points]
    if not alone or run.measurements.between_ranks:
        return []
    wrong = [series for series in alone if series.verified is False]
    operations = ", ".join(name.replace("_", "-") for name in OPERATIONS if any(series.operation == name for series in alone))
    wires = ", ".join(dict.fromkeys(series.wire for series in alone))
    modes = " and in CUDA graphs" if any(series.mode == "graph" for series in alone) else ""
    state = f"{symbols.bad} with wrong values" if wrong else f"{symbols.ok} with right values"
    text = f"{operations} ran on one rank with the settings of {wires}, eager{modes}, {state}; nothing crossed a wire."
    return [indented(Text(text))]


def ladder_caption(run: Run) -> str:
    """What the bars show: the world size and how the figure is counted."""
    rungs = _rungs(run)
    kind = "GPUs" if run.machine is not None and run.machine.gpus else "CPU ranks"
    worlds = listed(sorted({rung.world_size for rung in rungs}))
    graph = any(c.mode == "graph" and c.points for c in run.measurements.between_ranks)
    best = ", best of eager and CUDA graph" if graph else ""
    return f"busbw of all-reduce on {worlds} {kind}{best}" if rungs else "all-reduce"


def operations(run: Run, symbols: Symbols) -> list[RenderableType]:
    """The best busbw of every operation, world size and wire in one table; empty when there is nothing beyond the ladder."""
    found = _best(run)
    largest = max((world for _, world in found), default=0)
    if not [key for key in found if key != ("all_reduce", largest)]:
        return []
    wires = [rung.wire for rung in _rungs(run)]
    wires += sorted({wire for row in found.values() for wire in row} - set(wires))
    table = Figures(keys=2)
    table.add_column("operation", no_wrap=True)
    table.add_column("ranks", justify="right", no_wrap=True)
    for wire in wires:
        table.add_column(Text(f"{wire}\nGB/s"), justify="right", overflow="fold")
    order: dict[str, int] = {name: k for k, name in enumerate(OPERATIONS)}
    for (operation, world_size), row in sorted(found.items(), key=lambda item: (order.get(item[0][0], 99), item[0][1])):
        cells = []
        for wire in wires:
            point = row.get(wire)
            text = symbols.dash if point is None else (symbols.unstable if point.unstable else "") + gigabytes_per_second(_rate(point))
            cells.append(Text(text, style="dim" if point is None else ""))
        table.add_row(Text(operation), Text(str(world_size)), *cells)
    spreads = [s for row in found.values() for point in row.values() if (s := spread_fraction(point.samples_seconds)) is not None]
    note = f"{symbols.plus_minus}{percent(max(spreads))} at most within a figure" if spreads else "one sample each"
    return [indented(table), indented(Text(note, style="dim"))]


def _best(run: Run) -> dict[tuple[str, int], dict[str, Point]]:
    """The fastest point of each wire, by operation and number of ranks: the points whose figures are shown."""
    found: dict[tuple[str, int], dict[str, Point]] = {}
    for collective in run.measurements.between_ranks:
        peak = _peak([collective])
        if peak is not None:
            row = found.setdefault((collective.operation, collective.world_size), {})
            if collective.wire not in row or _rate(peak) > _rate(row[collective.wire]):
                row[collective.wire] = peak
    return found


def overlap_lines(run: Run) -> list[RenderableType]:
    """How much a matrix product and an all-reduce slow each other, the worst rank of each wire."""
    worst: dict[str, tuple[float, float, int]] = {}
    for item in run.measurements.overlap:
        factors = (
            item.matmul_beside_seconds / item.matmul_alone_seconds if item.matmul_alone_seconds else 1.0,
            item.all_reduce_beside_seconds / item.all_reduce_alone_seconds if item.all_reduce_alone_seconds else 1.0,
        )
        before = worst.get(item.wire, (0.0, 0.0, 0))
        worst[item.wire] = (max(before[0], factors[0]), max(before[1], factors[1]), item.num_bytes)
    return [
        indented(
            Text(f"Side by side over {wire}: a matmul takes {a:.2f} times as long, an all-reduce of {size(n)} {b:.2f} times.", style="dim")
        )
        for wire, (a, b, n) in worst.items()
    ]


def _rungs(run: Run) -> list[Rung]:
    by_wire: dict[str, list[Collective]] = {}
    for collective in run.measurements.between_ranks:
        if collective.operation == "all_reduce" and collective.points:
            by_wire.setdefault(collective.wire, []).append(collective)
    rungs = []
    for wire, collectives in by_wire.items():
        world_size = max(c.world_size for c in collectives)
        largest = [c for c in collectives if c.world_size == world_size]
        peak = _peak(largest)
        if peak is None:
            continue
        near = [p for c in largest for p in c.points if p.num_bytes == MEBIBYTE]
        limit = next((e for e in run.expectations if (e.subject, e.wire, e.world_size) == ("all_reduce", wire, world_size)), None)
        rungs.append(
            Rung(
                wire=wire,
                world_size=world_size,
                transport=next((c.transport for c in largest if c.transport), None),
                peak=peak,
                mebibyte=max(near, key=_rate) if near else None,
                smallest={c.mode: min(c.points, key=lambda p: p.num_bytes) for c in largest},
                sweep=next((c.points for c in largest if peak in c.points), ()),
                limit=limit,
                renamed_from=next((c.wire_requested for c in largest if c.wire_requested and c.wire_requested != wire), None),
                verified=False if any(c.verified is False for c in largest) else next((c.verified for c in largest), None),
            )
        )
    return sorted(rungs, key=lambda rung: -_rate(rung.peak))


def _peak(collectives: Sequence[Collective]) -> Point | None:
    return max((p for c in collectives for p in c.points), key=_rate, default=None)


def _rate(point: Point) -> float:
    return point.busbw_bytes_per_second


def _failed_wires(measurements: Measurements, measured: set[str]) -> list[tuple[str, str]]:
    """Wires that an incident stopped before they had a figure, with the reason."""
    found: dict[str, str] = {}
    for incident in measurements.incidents:
        if incident.wire is not None and incident.wire not in measured and incident.kind != "skipped":
            found.setdefault(incident.wire, incident_words(incident))
    return list(found.items())


def incident_words(incident: Incident) -> str:
    """An incident in words, with what is known of where it happened."""
    words = {
        "hang": "no answer",
        "rank_died": "a rank died",
        "error": "an error",
        "out_of_time": "out of time",
        "survived_kill": "a process survived SIGKILL",
        "skipped": "left out",
        "wrong_data": "wrong data",
        "start_failed": "the ranks did not start",
    }[incident.kind]
    where = [
        *([f"rank {incident.rank}"] if incident.rank is not None else []),
        *([f"GPU{incident.gpu}"] if incident.gpu is not None else []),
        *([incident.operation] if incident.operation else []),
        *([f"over {incident.wire}"] if incident.wire else []),
        *([f"at {size(incident.num_bytes)}"] if incident.num_bytes is not None else []),
        *([f"signal {incident.signal}"] if incident.signal is not None else []),
        *([f"exit code {incident.exit_code}"] if incident.exit_code is not None else []),
        *([f"pid {incident.pid}"] if incident.pid is not None else []),
    ]
    detail = incident.detail.removeprefix(words).lstrip(": ")
    if incident.kind == "out_of_time" and detail == f"{incident.operation} was under way when the time ended":
        detail = ""  # said already: it ran out of time at this
    text = words + (f" ({', '.join(where)})" if where else "")
    return f"{text}: {detail}" if detail else text


def _colour(rung: Rung) -> str:
    if rung.verified is False:
        return "red"
    if rung.limit is None:
        return "cyan"
    if _rate(rung.peak) >= rung.limit.low_bytes_per_second:
        return "green"
    return "yellow" if _rate(rung.peak) >= 0.5 * rung.limit.low_bytes_per_second else "red"


def _bar(rung: Rung, scale: float, width: int, colour: str, symbols: Symbols) -> Text:
    """A bar on the scale of the fastest limit; the tick marks this wire's own limit where it is beyond the bar."""
    exact = _rate(rung.peak) / scale * width
    whole = int(exact)
    bar = symbols.full * whole
    if symbols.parts and whole < width:
        eighths = int((exact - whole) * 8)
        bar += symbols.parts[eighths - 1] if eighths else ""
    if not bar:
        bar = symbols.parts[0] if symbols.parts else symbols.full
    text = Text(bar, style=colour)
    if rung.limit is not None:
        tick = min(width, round(rung.limit.expected_bytes_per_second / scale * width))
        if tick > len(bar):
            text.append(symbols.rest * (tick - len(bar) - 1), style="dim")
            text.append(symbols.limit, style="bold")
    return text


def _transport_words(transport: str | None) -> str:
    """The kinds NCCL chose, without which buffers and which card: ``SHM/direct/direct+NET/Socket/0`` is ``SHM/direct+NET/Socket``."""
    if transport is None:
        return "?"
    return "+".join(dict.fromkeys("/".join(kind.split("/")[:2]) for kind in transport.split("+")))


def _share(rung: Rung) -> Text:
    if rung.limit is None or rung.limit.expected_bytes_per_second <= 0:
        return Text("limit unknown", style="dim")
    limit = rung.limit.expected_bytes_per_second
    return Text(f"{percent(_rate(rung.peak) / limit)} of {rate(limit)}")


def _details(rung: Rung, on_gpus: bool, symbols: Symbols, *, with_share: bool) -> list[Text]:
    """What stands under a bar: where the peak is and its spread, 1 MiB, the smallest message, and what is doubtful."""
    spread = spread_fraction(rung.peak.samples_seconds)
    parts = [_share(rung).plain] if with_share else []
    parts += [WIRE_WORDS[rung.wire]] if on_gpus and rung.wire in WIRE_WORDS else []
    at = size(rung.peak.num_bytes)
    parts.append(f"{at} {symbols.plus_minus}{percent(spread)}" if spread is not None else f"{at}, one sample")
    if rung.mebibyte is not None:
        parts.append(f"1 MiB {rate(_rate(rung.mebibyte))}")
    if rung.smallest:
        fastest = min(rung.smallest.values(), key=lambda p: p.seconds)
        eager = rung.smallest.get("eager")
        text = f"{size(fastest.num_bytes)} in {duration(fastest.seconds)}"
        if eager is not None and eager is not fastest:
            text += f", eager {duration(eager.seconds)}"
        parts.append(text)
    found = [Text(part, style="dim") for part in parts]
    if rung.renamed_from:
        found.append(Text(f"asked for as {rung.renamed_from}", style="yellow"))
    if rung.peak.unstable:
        found.append(Text(f"{symbols.unstable} unstable", style="yellow"))
    if rung.verified is False:
        found.append(Text(f"{symbols.bad} wrong values arrived", style="bold red"))
    return found


def _flowed(parts: Sequence[Text], dot: Text, width: int) -> Text:
    """The parts in lines of at most ``width`` columns, broken between parts: a figure stays beside its unit."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + dot.cell_len + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], dot, part)
        else:
            lines.append(part)
    return Text("\n").join(lines)


def _curve(points: Sequence[Point], symbols: Symbols) -> str:
    """How busbw grows with the size, as a row of small columns on a logarithmic scale of four decades below the best."""
    if not symbols.levels or len(points) < 4:
        return ""
    top = max(_rate(p) for p in points)
    chosen = [points[round(k * (len(points) - 1) / 11)] for k in range(12)] if len(points) > 12 else points
    heights = (1 + math.log10(max(_rate(p) / top, 1e-4)) / 4 for p in chosen)
    return "".join(symbols.levels[min(7, int(height * 8))] for height in heights)

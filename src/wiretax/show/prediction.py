"""What is predicted, in tables: whole steps with their ranges, the bare all-reduce, and the ladder of links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented, listed
from wiretax.show.training import forecasts as bounds
from wiretax.units import duration, gigabytes_per_second, memory, percent

MOST_NOTES = 14
"""Assumptions shown; all are in the document."""

Cell = Text | str


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading and what stands in it for a forecast; numbers stand on the right."""

    heading: str
    cell: Callable[[Forecast], Cell]
    right: bool = True


def predictions(run: Run, symbols: Symbols) -> list[RenderableType]:
    """All forecasts of a run, each kind in its own table.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    if run.expectations and all(one.all_reduce_seconds is not None for one in run.forecasts) and run.command == "predict":
        return _ladder(run, symbols)
    parts: list[RenderableType] = []
    whole = [one for one in run.forecasts if _is_step(one)]
    for workload, batch in dict.fromkeys((one.workload, one.batch_per_gpu) for one in whole):
        own = [one for one in whole if (one.workload, one.batch_per_gpu) == (workload, batch)]
        parts += _table(f"{workload}, batch {batch} a GPU", own, _step_columns(own, symbols), symbols)
    bare = [one for one in run.forecasts if _is_formula(one)]
    for workload in dict.fromkeys(one.workload for one in bare):
        own = [one for one in bare if one.workload == workload]
        parts += _table(workload, own, _formula_columns(own, symbols), symbols)
    parts += _notes([*whole, *bare], symbols)
    rest = tuple(one for one in run.forecasts if not _is_step(one) and not _is_formula(one))
    return parts + bounds(replace(run, forecasts=rest), symbols)


def _is_step(forecast: Forecast) -> bool:
    """Predicted from a profile: the bounds of a check know no batch, the formula no step."""
    return forecast.step_seconds is not None and forecast.batch_per_gpu is not None


def _is_formula(forecast: Forecast) -> bool:
    return forecast.step_seconds is None and (forecast.all_reduce_seconds is not None or forecast.peak_memory_bytes is not None)


def milliseconds(seconds: float) -> str:
    """A time as people compare steps: ``9.1 ms``, ``15.9 ms``; other sizes as everywhere."""
    return f"{seconds * 1e3:.1f} ms" if 0.00095 <= seconds < 0.9995 else duration(seconds)


def _step_columns(items: Sequence[Forecast], symbols: Symbols) -> list[Column]:
    columns = [
        Column("low", lambda one: milliseconds(_step(one).low)),
        Column("expected", lambda one: Text(milliseconds(_step(one).expected), style="bold")),
        Column("high", lambda one: milliseconds(_step(one).high)),
        Column("speed-up", lambda one: _speedup(one, symbols)),
        Column(
            "wire\ntax", lambda one: symbols.dash if one.wire_tax_fraction is None or one.num_gpus == 1 else percent(one.wire_tax_fraction)
        ),
    ]
    return columns + _memory_columns(items, symbols)


def _formula_columns(items: Sequence[Forecast], symbols: Symbols) -> list[Column]:
    columns = [
        Column(
            "all-reduce",
            lambda one: Text(milliseconds(one.all_reduce_seconds), style="bold") if one.all_reduce_seconds is not None else symbols.dash,
        )
    ]
    return columns + _memory_columns(items, symbols)


def _memory_columns(items: Sequence[Forecast], symbols: Symbols) -> list[Column]:
    if not any(one.peak_memory_bytes is not None for one in items):
        return []
    room_known = any(one.fits is not None for one in items)
    return [Column("memory\na GPU", lambda one: _memory(one, symbols, room_known=room_known))]


def _memory(forecast: Forecast, symbols: Symbols, *, room_known: bool) -> Text:
    """The expected peak, and whether it fits; ``?`` where the GPU's memory lies within the range of the peak."""
    peak = forecast.peak_memory_bytes
    if peak is None:
        return Text(symbols.dash)
    if forecast.fits is False:
        return Text(f"{memory(peak.expected)} {symbols.bad} too much", style="bold red")
    if forecast.fits is None and room_known:
        return Text(f"{memory(peak.expected)} ?", style="yellow")
    return Text(f"{memory(peak.expected)}{f' {symbols.ok}' if forecast.fits else ''}")


def _speedup(forecast: Forecast, symbols: Symbols) -> Text:
    if forecast.speedup is None or forecast.num_gpus == 1:
        return Text(symbols.dash)
    share = forecast.speedup / forecast.num_gpus
    style = "bold red" if forecast.speedup < 1 else "green" if share >= 0.7 else "yellow" if share < 0.5 else ""
    return Text(f"{forecast.speedup:.2f} {symbols.times}", style=style)


def _step(forecast: Forecast) -> Interval:
    assert forecast.step_seconds is not None
    return forecast.step_seconds


def _table(title: str, items: Sequence[Forecast], columns: Sequence[Column], symbols: Symbols) -> list[RenderableType]:
    """Rows by strategy, wire and number of GPUs; what all rows share stands in the title."""
    many = [one for one in items if one.num_gpus > 1] or list(items)
    strategies, wires = (list(dict.fromkeys(getattr(one, name) for one in many)) for name in ("strategy", "wire"))
    leading: list[Column] = []
    if len(strategies) > 1:
        leading.append(Column("strategy", lambda one: symbols.dash if one.num_gpus == 1 else one.strategy, right=False))
    if len(wires) > 1:
        leading.append(Column("wire", lambda one: symbols.dash if one.num_gpus == 1 else one.wire, right=False))
    shared = [strategies[0]] if len(strategies) == 1 else []
    shared += [f"over {wires[0]}"] if len(wires) == 1 else []
    table = Figures(keys=len(leading) + 1, gap=1 if len(leading) > 1 else 2)
    for column in (*leading, Column("GPUs", lambda one: str(one.num_gpus)), *columns):
        table.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for one in items:
        table.add_row(*(column.cell(one) for column in (*leading, Column("", lambda item: str(item.num_gpus)), *columns)))
    return [indented(Text(f"{title}{': ' if shared else ''}{' '.join(shared)}")), indented(table)]


def _notes(items: Sequence[Forecast], symbols: Symbols) -> list[RenderableType]:
    """Every assumption once, with the rows it is made for where that is not all of them."""
    many = [one for one in items if one.num_gpus > 1]
    made: dict[str, list[Forecast]] = {}
    for one in many:
        for text in dict.fromkeys(one.assumptions):
            made.setdefault(text, []).append(one)
    lines = [text for text, rows in made.items() if len(rows) == len(many)]
    lines += [f"{_rows(rows, many)}: {text}" for text, rows in made.items() if len(rows) < len(many)]
    more = [f"and {len(lines) - MOST_NOTES} more, with --json"] if len(lines) > MOST_NOTES else []
    return [indented(Text(f"{symbols.severity['info']} {text}", style="dim")) for text in [*lines[:MOST_NOTES], *more]]


def _rows(rows: Sequence[Forecast], of: Sequence[Forecast]) -> str:
    """Which rows: by workload, strategy, wire and number of GPUs, each where not all are meant."""
    words = []
    for name in ("workload", "strategy", "wire"):
        everything = {getattr(one, name) for one in of}
        own = list(dict.fromkeys(getattr(one, name) for one in rows))
        if len(own) < len(everything):
            words.append(", ".join(own))
    counts = {one.num_gpus for one in rows}
    if len(counts) < len({one.num_gpus for one in of}):
        words.append(f"on {listed(sorted(counts))}")
    return " ".join(words) or "some"


def _ladder(run: Run, symbols: Symbols) -> list[RenderableType]:
    """Links from slow to fast, what healthy machines reach, and what the gradients then take."""
    counts = list(dict.fromkeys(one.num_gpus for one in run.forecasts))
    seconds = {(one.wire, one.num_gpus): one.all_reduce_seconds for one in run.forecasts}
    table = Figures()
    table.add_column("link", no_wrap=True)
    table.add_column("busbw GB/s", justify="right", no_wrap=True)
    for count in counts:
        table.add_column(f"{count} GPUs", justify="right", no_wrap=True)
    for rung in run.expectations:
        low, high = gigabytes_per_second(rung.low_bytes_per_second), gigabytes_per_second(rung.high_bytes_per_second)
        times = [seconds.get((rung.wire, count)) for count in counts]
        table.add_row(
            Text(rung.wire, style="bold"), f"{low} to {high}", *(symbols.dash if one is None else milliseconds(one) for one in times)
        )
    workload = run.forecasts[0].workload if run.forecasts else ""
    note = Text(
        f"{symbols.severity['info']} times at what is usual between the two; measured on two GPUs of one host, taken for more",
        style="dim",
    )
    return [indented(Text(f"{workload}: one all-reduce, 2 (N - 1) / N x bytes / busbw")), indented(table), indented(note)]

"""What the wires mean for training and for money: forecasts as ranges with what they assume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.money import Price
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented
from wiretax.units import duration, money, percent


@dataclass(frozen=True, slots=True)
class Range:
    """A range of one figure; both ends are None where it is unknown."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """All forecasts of one configuration joined to ranges."""

    strategy: str
    wire: str
    num_gpus: int
    step_seconds: Range
    speedup: Range
    tax: Range


def forecasts(run: Run, symbols: Symbols) -> list[RenderableType]:
    """A table a workload: step time, speed-up and wire tax as ranges, in money too when a price is known.

    Two forecasts of one configuration are its two bounds; a single one gives its own interval.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    parts: list[RenderableType] = []
    for workload in dict.fromkeys(f.workload for f in run.forecasts):
        mine = [f for f in run.forecasts if f.workload == workload]
        if all(f.step_seconds is None for f in mine):
            reasons = dict.fromkeys(f.missing.get("step_seconds", "no reason recorded") for f in mine)
            parts.append(indented(Text(f"not predicted for {workload}: {'; '.join(reasons)}", style="dim")))
            continue
        parts.append(indented(Text(workload)))
        parts.append(indented(_table(run, joined_rows(mine), symbols)))
        parts.extend(_assumptions(mine, symbols))
    return parts


def _assumptions(items: list[Forecast], symbols: Symbols) -> list[RenderableType]:
    """What several forecasts assume, then what the first on several GPUs assumes alone; the others' own are in the document."""
    counts = Counter(text for item in items for text in dict.fromkeys(item.assumptions))
    lines = [text for text, count in counts.items() if count > 1]
    lines += [text for item in items if item.num_gpus == 1 for text in item.assumptions if counts[text] == 1]
    first = next((item for item in items if item.num_gpus > 1), None)
    own = [text for text in first.assumptions if counts[text] == 1] if first is not None else []
    lines += [f"{first.wire} on {first.num_gpus}: {text}" for text in own] if first is not None else []
    rest = len(counts) - len(lines)
    more = [f"and {rest} more of the other rows, with --json"] if rest else []
    reasons = dict.fromkeys(f"{item.wire}: {reason}" for item in items for name, reason in item.missing.items() if name == "step_seconds")
    return [indented(Text(f"{symbols.severity['info']} {text}", style="dim")) for text in [*reasons, *lines, *more]]


def money_lines(run: Run, symbols: Symbols) -> list[RenderableType]:
    """What the box costs and what this run cost; nothing without a price."""
    box = box_per_hour(run)
    if run.price is None or box is None:
        return []
    parts = [f"{money(box, run.price.currency)} per hour for the box"]
    count = len(run.machine.gpus) if run.machine is not None else 0
    if count > 1:
        parts.append(f"{money(box / count, run.price.currency)} per GPU-hour")
    if run.outcome is not None and run.outcome.duration_seconds is not None:
        parts.append(f"this run cost {money(box * run.outcome.duration_seconds / 3600, run.price.currency)}")
    return [indented(Text(symbols.dot.join(parts)))]


def box_per_hour(run: Run) -> float | None:
    """Money per hour for all GPUs of the machine; None without a price, or for a price per GPU where there is no GPU."""
    price: Price | None = run.price
    if price is None:
        return None
    if price.per == "box_hour":
        return price.amount
    count = len(run.machine.gpus) if run.machine is not None else 0
    return price.amount * count if count else None


def _table(run: Run, rows: list[Row], symbols: Symbols) -> Figures:
    box, count = box_per_hour(run), len(run.machine.gpus) if run.machine is not None else 0
    priced = box is not None and count > 0 and run.price is not None
    strategies = len({row.strategy for row in rows}) > 1
    table = Figures(keys=2 + strategies)
    if strategies:
        table.add_column("strategy", no_wrap=True)
    table.add_column("wire", no_wrap=True)
    table.add_column("GPUs", justify="right", no_wrap=True)
    for heading in ("step time", "as fast as\none GPU", "wire tax"):
        table.add_column(heading, justify="right", no_wrap=True)
    if priced:
        table.add_column("wire tax,\nper hour", justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(row.strategy)] if strategies else []
        cells += [
            Text("alone" if row.num_gpus == 1 else row.wire, style="bold"),
            Text(str(row.num_gpus)),
            Text(_span(row.step_seconds, duration, symbols)),
        ]
        cells.append(Text(_span(row.speedup, lambda factor: f"{factor:.2f}", symbols, f" {symbols.times}"), style=_speedup_style(row)))
        cells.append(Text(_span(row.tax, percent, symbols)))
        if priced and box is not None and run.price is not None:
            used, currency = box / count * row.num_gpus, run.price.currency
            paid = Range(*(None if end is None else end * used for end in (row.tax.low, row.tax.high)))
            cells.append(Text(_span(paid, lambda amount: f"{amount:.2f}", symbols, f" {currency}")))
        table.add_row(*cells)
    return table


def joined_rows(items: list[Forecast]) -> list[Row]:
    """One row a configuration; the step of one GPU, where it is among the forecasts, is what the others are compared with."""
    alone = next((item.step_seconds for item in items if item.num_gpus == 1), None)
    groups: dict[tuple[str, str, int], list[Forecast]] = {}
    for item in items:
        groups.setdefault((item.strategy, item.wire, item.num_gpus), []).append(item)
    return [_row(key, group, alone) for key, group in groups.items()]


def _row(key: tuple[str, str, int], group: list[Forecast], alone: Interval | None) -> Row:
    strategy, wire, num_gpus = key
    steps: list[float] = []
    ratios: list[float] = []
    for item in group:
        step = item.step_seconds
        ends = [] if step is None else [step.expected] if len(group) > 1 else [step.low, step.high]
        steps.extend(ends)
        if item.efficiency_fraction is None or step is None:
            continue
        if alone is not None and len(group) == 1:
            # Like beside like: the best step of one GPU against the best of many, the worst against the worst.
            ratios += [alone.low / step.low, alone.high / step.high]
        else:
            ratios += [item.efficiency_fraction * step.expected / end for end in ends]
    efficiencies = [min(ratio, 1.0) for ratio in ratios]
    return Row(strategy, wire, num_gpus, _ends(steps), _ends([num_gpus * e for e in efficiencies]), _ends([1 - e for e in efficiencies]))


def _ends(values: list[float]) -> Range:
    return Range(min(values, default=None), max(values, default=None))


def _span(ends: Range, words: Callable[[float], str], symbols: Symbols, unit: str = "") -> str:
    """``1.77 to 2.00 x``: the unit once where both ends share it."""
    if ends.low is None or ends.high is None:
        return symbols.dash
    low, high = words(ends.low), words(ends.high)
    if low == high:
        return f"{high}{unit}"
    number, _, own = low.partition(" ")
    if own and own == high.partition(" ")[2]:
        low = number
    return f"{low} to {high}{unit}"


def _speedup_style(row: Row) -> str:
    if row.speedup.low is None or row.speedup.high is None:
        return ""
    if row.num_gpus > 1 and row.speedup.high < 1:
        return "bold red"
    if row.num_gpus > 1 and row.speedup.low < 1:
        return "yellow"
    return "green" if row.speedup.low >= 0.7 * row.num_gpus else ""

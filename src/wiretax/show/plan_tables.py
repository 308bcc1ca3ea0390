"""The tables of a plan, each with as many columns as there is room for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from wiretax.model.forecast import Interval
from wiretax.model.money import Plan, PlanOption
from wiretax.show.plain import Symbols
from wiretax.units import hours, memory, percent, significant

BAR = 20
LONGEST_BAR = 4.0
"""Times the choice's cost; longer bars end in an arrow."""

BASIS = {"exact": "", "typed": "typed", "measured": "measured", "predicted": "predicted", "class": "estimated"}
"""Where an efficiency is from, in a word."""

_ROOMY = Console(file=io.StringIO(), width=1000, color_system=None)
"""Measures how wide a table would like to be."""

Column = tuple[str, JustifyMethod, Callable[[PlanOption], Text]]
"""Heading, side, and what a row says in it."""


def training_table(plan: Plan, shown: Sequence[int], width: int, symbols: Symbols) -> Table:
    """The widest of the layouts that there is room for: bars go first, then ranges, then where an efficiency is from."""
    for detail in (4, 3, 2, 1):
        table = _detailed(plan, shown, detail, symbols)
        if _wide(table) <= width - 2:
            return table
    return _detailed(plan, shown, 0, symbols)


def _detailed(plan: Plan, shown: Sequence[int], detail: int, symbols: Symbols) -> Table:
    options = [plan.options[index] for index in shown]
    names = any(option.offer not in (option.gpu, "GPU") for option in options)
    cards = any(option.gpu and (not names or option.gpu not in (option.offer or "")) for option in options)
    memories = any(option.peak_memory_bytes is not None for option in options)
    timed = any(option.hours is not None for option in options)
    certain = plan.checkpointing.quantile if plan.checkpointing is not None else None
    ranges = timed and any(option.hours_range is not None for option in options)
    scale = _scale(plan, options)
    columns: list[Column] = [("GPUs", "left" if cards else "right", lambda one: Text(cards_text(one) if cards else str(one.num_gpus)))]
    if names:
        columns.append(("offer", "left", lambda one: Text(one.offer or "")))
    if memories:
        columns += [
            ("strategy", "left", lambda one: Text(one.strategy or "")),
            ("memory\nof a GPU", "right", lambda one: _memory(one, symbols)),
        ]
    if len({(option.batch_per_gpu, option.accumulation_steps) for option in options}) > 1:
        columns.append(("batch\nof a GPU", "right", lambda one: _batch(one, symbols)))
    columns.append(("efficiency", "right", lambda one: _efficiency(one, symbols)))
    if detail >= 1 and any(option.efficiency_range is not None for option in options):
        columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.efficiency_range, symbols, _percent)))
    if detail >= 2 and any(option.num_gpus > 1 for option in options):
        columns.append(("", "left", lambda one: Text(BASIS.get(one.basis or "", ""), style="dim")))
    if timed:
        columns.append(("time", "right", lambda one: _time(one, symbols)))
        if ranges and detail >= 1:
            columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.hours_range, symbols, hours)))
        if certain is not None:
            columns.append((f"{percent(certain)}\nsure in", "right", lambda one: _late(one, symbols)))
        columns.append((f"cost,\n{plan.currency}", "right", lambda one: _cost(one, symbols)))
        if ranges and detail >= 3:
            columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.cost_range, symbols, "{:.2f}".format)))
        if detail >= 4:
            columns.append(("", "left", lambda one: _bar(one, scale, symbols)))
    else:
        columns.append((f"an hour,\n{plan.currency}", "right", lambda one: Text(f"{one.hourly_cost or 0:.2f}")))
    return _drawn(plan, shown, columns, symbols)


def service_table(plan: Plan, shown: Sequence[int], width: int, symbols: Symbols) -> Table:
    """The same for a service: tokens a second in place of a time."""
    for detail in (2, 1):
        table = _service(plan, shown, detail, symbols)
        if _wide(table) <= width - 2:
            return table
    return _service(plan, shown, 0, symbols)


def _service(plan: Plan, shown: Sequence[int], detail: int, symbols: Symbols) -> Table:
    options = [plan.options[index] for index in shown]
    fastest = max((option.tokens_per_second or 0.0 for option in options if option.fits is not False), default=0.0)
    columns: list[Column] = [
        ("GPUs", "left", lambda one: Text(cards_text(one))),
        ("model", "left", lambda one: Text({"tp": "split", "replicas": "copies"}.get(one.strategy or "", "whole"))),
        ("memory\nof a GPU", "right", lambda one: _memory(one, symbols)),
        ("tokens/s", "right", lambda one: _rate(one, symbols)),
    ]
    if detail >= 1:
        words = lambda value: significant(value, 2)  # noqa: E731 - one word of a table
        columns.append(
            (f"from{symbols.dash}to", "left", lambda one: _span(None if one.fits is False else one.tokens_per_second_range, symbols, words))
        )
    columns += [
        (f"an hour,\n{plan.currency}", "right", lambda one: Text(f"{one.hourly_cost or 0:.2f}")),
        (f"1M tokens,\n{plan.currency}", "right", lambda one: _a_million(one, symbols)),
    ]
    if detail >= 2:
        columns.append(("", "left", lambda one: _rate_bar(one, fastest, symbols)))
    return _drawn(plan, shown, columns, symbols)


def _rate(option: PlanOption, symbols: Symbols) -> Text:
    rate = option.tokens_per_second
    return Text(symbols.dash if rate is None or option.fits is False else significant(rate, 2))


def _a_million(option: PlanOption, symbols: Symbols) -> Text:
    each = option.cost_per_token
    return Text(symbols.dash if each is None or option.fits is False else significant(each * 1e6))


def _rate_bar(option: PlanOption, fastest: float, symbols: Symbols) -> Text:
    rate = option.tokens_per_second
    if rate is None or option.fits is False or fastest <= 0:
        return Text("")
    return Text(symbols.full * max(round(BAR * rate / fastest), 1), style="cyan")


def _drawn(plan: Plan, shown: Sequence[int], columns: Sequence[Column], symbols: Symbols) -> Table:
    """The table of some options; the choice stands out, what does not fit stands back."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading, justify, _ in columns:
        table.add_column(heading, justify=justify, no_wrap=heading != "offer")
    for index in shown:
        option, chosen = plan.options[index], index == plan.choice
        style = "bold" if chosen else "dim" if option.fits is False else ""
        table.add_row(_mark(option, chosen, symbols), *(cell(option) for _, _, cell in columns), style=style)
    return table


def _wide(table: Table) -> int:
    return Measurement.get(_ROOMY, _ROOMY.options, table).maximum


def _mark(option: PlanOption, chosen: bool, symbols: Symbols) -> Text:
    if chosen:
        return Text(symbols.to, style="bold green")
    if option.fits is False or option.meets_deadline is False or option.within_budget is False:
        return Text(symbols.bad, style="red")
    return Text(" ")


def cards_text(option: PlanOption) -> str:
    """``4x RTX 4090``, or the bare number where no card is named."""
    return f"{option.num_gpus}x {option.gpu}" if option.gpu else str(option.num_gpus)


def _batch(option: PlanOption, symbols: Symbols) -> Text:
    if option.batch_per_gpu is None:
        return Text(symbols.dash, style="dim")
    steps = option.accumulation_steps or 1
    return Text(f"{option.batch_per_gpu}" + (f" {symbols.times} {steps}" if steps > 1 else ""))


def _efficiency(option: PlanOption, symbols: Symbols) -> Text:
    value = option.efficiency_fraction
    if option.num_gpus == 1:
        return Text(symbols.dash, style="dim")
    if value is None:
        return Text("not known", style="dim")
    return Text(percent(value), style="green" if value >= 0.7 else "yellow" if value >= 0.4 else "red")


def _time(option: PlanOption, symbols: Symbols) -> Text:
    if option.hours is None:
        return Text(symbols.dash, style="dim")
    return Text(hours(option.hours), style={True: "green", False: "red", None: ""}[option.meets_deadline])


def _late(option: PlanOption, symbols: Symbols) -> Text:
    late = option.hours_at_quantile
    return Text(symbols.dash, style="dim") if late is None else Text(hours(late))


def _cost(option: PlanOption, symbols: Symbols) -> Text:
    if option.cost is None:
        return Text(symbols.dash, style="dim")
    return Text(f"{option.cost:.2f}", style={True: "", False: "red", None: ""}[option.within_budget])


def _percent(fraction: float) -> str:
    return percent(min(fraction, 1.0))


def _span(span: Interval | None, symbols: Symbols, words: Callable[[float], str]) -> Text:
    """Both ends, the unit once where they share it."""
    if span is None:
        return Text("")
    low, high = words(span.low), words(span.high)
    number, _, unit = low.partition(" ")
    if unit and unit == high.partition(" ")[2]:
        low = number
    return Text(f"{low}{symbols.dash}{high}", style="dim")


def _memory(option: PlanOption, symbols: Symbols) -> Text:
    peak = option.peak_memory_bytes
    if peak is None:
        return Text(symbols.dash, style="dim")
    sign = {True: symbols.ok, False: symbols.bad, None: "?"}[option.fits]
    return Text(f"{memory(peak.expected)} {sign}", style={True: "green", False: "red", None: "yellow"}[option.fits])


def _scale(plan: Plan, options: Sequence[PlanOption]) -> float:
    """Cost of a full bar: the dearest shown, but no more than a few times the choice."""
    costs = [option.cost for option in options if option.cost is not None and option.fits is not False]
    if not costs:
        return 0.0
    chosen = plan.options[plan.choice].cost if plan.choice is not None else None
    return min(max(costs), LONGEST_BAR * (chosen or min(costs)))


def _bar(option: PlanOption, scale: float, symbols: Symbols) -> Text:
    """Cost as a bar: what pays for work, then what pays for waiting."""
    if option.cost is None or scale <= 0 or option.fits is False:
        return Text("")
    whole = option.cost / scale * BAR
    cut = whole > BAR + 0.5
    length = BAR if cut else max(round(whole), 1)
    efficiency = min(option.efficiency_fraction if option.efficiency_fraction is not None else 1.0, 1.0)
    work = max(round(whole * efficiency), 1)
    text = Text(symbols.full * min(work, length), style="cyan")
    text.append(symbols.rest * max(length - work, 0), style="red")
    return text.append(symbols.to if cut else "", style="dim")

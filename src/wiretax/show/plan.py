"""A plan as people read it: the job, every way to do it with its time and cost, why the others lost, and what to rent last."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from wiretax.data.gpus import find_gpu
from wiretax.model.forecast import Interval
from wiretax.model.money import Plan, PlanOption
from wiretax.show.plain import Symbols, indented
from wiretax.units import duration, memory, money, percent, significant

MOST_ROWS = 12
"""Options shown that may fit; the others are in the document."""

MOST_MISSES = 3
"""Options shown that do not."""

_ROOMY = Console(file=io.StringIO(), width=1000, color_system=None)
"""Measures how wide a table would like to be."""

SERVICE_WIDE = 104
"""Columns from which a service's table has room for bars."""

BAR = 20
LONGEST_BAR = 4.0
"""Times the choice's cost; longer bars end in an arrow."""

BASIS = {"exact": "", "typed": "typed", "measured": "measured", "predicted": "predicted", "class": "like boxes"}
"""Where an efficiency is from, in a word."""

CONSTRAINT = {
    "none": "nothing forces more than one GPU",
    "does_not_fit": "it does not fit on one GPU",
    "too_slow": "one GPU is too slow",
}


@dataclass(frozen=True, slots=True)
class Block:
    """A titled part of the page."""

    title: str
    caption: str
    parts: tuple[RenderableType, ...]


def blocks(plan: Plan, width: int, symbols: Symbols) -> Iterator[Block]:
    """The page but for its verdict.

    Args:
        plan: cleaned.
        width: columns there are.
        symbols: the sign set of the stream.
    """
    if plan.job:
        yield Block("The job", "", tuple(indented(Text(line)) for line in plan.job))
    shown = _shown(plan)
    table = _service_table(plan, shown, width, symbols) if plan.purpose == "inference" else _table(plan, shown, width, symbols)
    # Only a table with bars has a last column without a heading.
    bars = plan.purpose == "training" and table.columns[-1].header == ""
    yield Block("Ways to do it", _caption(plan, symbols, bars=bars), (indented(table), *_left_out(plan, shown)))
    why = _why(plan, shown)
    if why:
        yield Block("Why not", "", why)
    if plan.checkpointing is not None:
        yield Block("Checkpoints", "", (indented(Text(plan.checkpointing.sentence)),))
    if plan.remedies:
        bullets = tuple(indented(Text(f"{symbols.severity['info']} {line}")) for line in plan.remedies)
        yield Block("What would make it fit on one", "", bullets)
    notes = [*plan.assumptions, *_known_from(plan, shown)]
    if notes:
        yield Block("Taken for granted", "", tuple(indented(Text(f"{symbols.severity['info']} {line}", style="dim")) for line in notes))


def verdict(plan: Plan, symbols: Symbols) -> Panel:
    """What to rent, in a frame, the constraint first."""
    chosen = None if plan.choice is None else plan.options[plan.choice]
    colour = "red" if chosen is None else "green" if plan.constraint == "none" else "yellow"
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    left = "NOTHING MEETS EVERY LIMIT" if chosen is None else _who(chosen)
    right = "" if chosen is None else symbols.dot.join(_figures(chosen))
    head.add_row(Text(left, style=f"bold {colour}"), Text(right, style=f"bold {colour}"))
    return Panel(
        Group(head, Text(plan.sentence)),
        title=Text.assemble(("Plan", "bold"), symbols.dot, CONSTRAINT[plan.constraint]),
        title_align="left",
        border_style=colour,
        box=box.ROUNDED,
        padding=(0, 2),
    )


def _shown(plan: Plan) -> list[int]:
    """Which options have a row: the choice, the front, one GPU, the smallest set, then the cheapest; in the document's order."""
    options = plan.options
    first = [index for index in (plan.choice, plan.fewest_that_fit) if index is not None]
    first += [index for index, option in enumerate(options) if option.on_front]
    possible = [index for index, option in enumerate(options) if option.fits is not False]
    first += sorted(possible, key=lambda index: _money(options[index]))
    # Of what does not fit the nearest misses say most.
    misses = sorted((index for index in range(len(options)) if index not in possible), key=lambda index: _need(options[index]))
    return sorted([*list(dict.fromkeys(first))[:MOST_ROWS], *misses[:MOST_MISSES]])


def _need(option: PlanOption) -> float:
    """What it needs over what a GPU has."""
    card = find_gpu(option.gpu or "")
    peak = option.peak_memory_bytes
    return peak.expected / card.memory_bytes if peak is not None and card is not None else float("inf")


def _money(option: PlanOption) -> float:
    return option.cost if option.cost is not None else option.hourly_cost if option.hourly_cost is not None else float("inf")


def _caption(plan: Plan, symbols: Symbols, *, bars: bool) -> str:
    if plan.purpose == "inference":
        return "tokens a second of all requests together, while answering"
    limits = []
    if plan.deadline_hours is not None:
        limits.append(f"deadline {_hours(plan.deadline_hours)}")
    if plan.budget is not None and plan.currency:
        limits.append(f"budget {money(plan.budget, plan.currency)}")
    if bars:
        limits.append(f"{symbols.full} paid for work, {symbols.rest} for waiting on the wire")
    return ", ".join(limits)


def _table(plan: Plan, shown: Sequence[int], width: int, symbols: Symbols) -> Table:
    """The widest of the layouts that there is room for: bars go first, then ranges, then where an efficiency is from."""
    for detail in (4, 3, 2, 1):
        table = _detailed(plan, shown, detail, symbols)
        if Measurement.get(_ROOMY, _ROOMY.options, table).maximum <= width - 2:
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
    columns: list[tuple[str, JustifyMethod, Callable[[PlanOption], Text]]] = [
        ("GPUs", "left" if cards else "right", lambda one: Text(_cards(one) if cards else str(one.num_gpus)))
    ]
    if names:
        columns.append(("offer", "left", lambda one: Text(one.offer or "")))
    if memories:
        columns += [
            ("strategy", "left", lambda one: Text(one.strategy or "")),
            ("memory\nof a GPU", "right", lambda one: _memory(one, symbols)),
        ]
    columns.append(("efficiency", "right", lambda one: _efficiency(one, symbols)))
    if detail >= 1 and any(option.efficiency_range is not None for option in options):
        columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.efficiency_range, symbols, _percent)))
    if detail >= 2 and any(option.num_gpus > 1 for option in options):
        columns.append(("", "left", lambda one: Text(BASIS.get(one.basis or "", ""), style="dim")))
    if timed:
        columns.append(("time", "right", lambda one: _time(one, symbols)))
        if ranges and detail >= 1:
            columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.hours_range, symbols, _hours)))
        if certain is not None:
            columns.append((f"{percent(certain)}\nsure in", "right", lambda one: _late(one, symbols)))
        columns.append((f"cost,\n{plan.currency}", "right", lambda one: _cost(one, symbols)))
        if ranges and detail >= 3:
            columns.append((f"from{symbols.dash}to", "left", lambda one: _span(one.cost_range, symbols, "{:.2f}".format)))
        if detail >= 4:
            columns.append(("", "left", lambda one: _bar(one, scale, symbols)))
    else:
        columns.append((f"an hour,\n{plan.currency}", "right", lambda one: Text(f"{one.hourly_cost or 0:.2f}")))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading, justify, _ in columns:
        table.add_column(heading, justify=justify, no_wrap=heading != "offer")
    for index, option in zip(shown, options, strict=True):
        chosen = index == plan.choice
        style = "bold" if chosen else "dim" if option.fits is False else ""
        table.add_row(_mark(option, chosen, symbols), *(cell(option) for _, _, cell in columns), style=style)
    return table


def _service_table(plan: Plan, shown: Sequence[int], width: int, symbols: Symbols) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("GPUs", no_wrap=True)
    table.add_column("model", no_wrap=True)
    table.add_column("memory\nof a GPU", justify="right", no_wrap=True)
    table.add_column("tokens/s", justify="right", no_wrap=True)
    table.add_column(f"from{symbols.dash}to", no_wrap=True)
    table.add_column(f"an hour,\n{plan.currency}", justify="right", no_wrap=True)
    table.add_column(f"a million\ntokens, {plan.currency}", justify="right", no_wrap=True)
    bars = width >= SERVICE_WIDE
    if bars:
        table.add_column("", no_wrap=True)
    options = [plan.options[index] for index in shown]
    fastest = max((option.tokens_per_second or 0.0 for option in options if option.fits is not False), default=0.0)
    for index, option in zip(shown, options, strict=True):
        chosen = index == plan.choice
        rate = option.tokens_per_second if option.fits is not False else None
        length = round(BAR * rate / fastest) if rate is not None and fastest else 0
        cells = [
            _mark(option, chosen, symbols),
            Text(_cards(option)),
            Text({"tp": "shared out", "replicas": "a copy on each"}.get(option.strategy or "", "whole")),
            _memory(option, symbols),
            Text(symbols.dash if rate is None else significant(rate, 2)),
            Text("") if rate is None else _span(option.tokens_per_second_range, symbols, lambda value: significant(value, 2)),
            Text(f"{option.hourly_cost or 0:.2f}"),
            Text(symbols.dash if rate is None or option.cost_per_token is None else significant(option.cost_per_token * 1e6)),
            *([Text(symbols.full * length, style="cyan")] if bars else []),
        ]
        table.add_row(*cells, style="bold" if chosen else "dim" if option.fits is False else "")
    return table


def _mark(option: PlanOption, chosen: bool, symbols: Symbols) -> Text:
    if chosen:
        return Text(symbols.to, style="bold green")
    if option.fits is False or option.meets_deadline is False or option.within_budget is False:
        return Text(symbols.bad, style="red")
    return Text(" ")


def _cards(option: PlanOption) -> str:
    return f"{option.num_gpus}x {option.gpu}" if option.gpu else str(option.num_gpus)


def _who(option: PlanOption) -> str:
    if option.num_gpus == 1:
        text = f"ONE {option.gpu}" if option.gpu else "ONE GPU"
    else:
        text = f"{option.num_gpus}x {option.gpu}" if option.gpu else f"{option.num_gpus} GPUs"
    named = option.offer not in (None, option.gpu, "GPU")
    return text + (f" ({option.offer})" if named else "")


def _figures(option: PlanOption) -> list[str]:
    currency = option.currency or ""
    if option.tokens_per_second is not None and option.hourly_cost is not None:
        return [f"{significant(option.tokens_per_second, 2)} tokens/s", f"{money(option.hourly_cost, currency)}/h"]
    if option.hours is not None and option.cost is not None:
        return [_hours(option.hours), money(option.cost, currency)]
    return [f"{money(option.hourly_cost, currency)}/h"] if option.hourly_cost is not None else []


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
    return Text(_hours(option.hours), style={True: "green", False: "red", None: ""}[option.meets_deadline])


def _late(option: PlanOption, symbols: Symbols) -> Text:
    late = option.hours_at_quantile
    return Text(symbols.dash, style="dim") if late is None else Text(_hours(late))


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


def _why(plan: Plan, shown: Sequence[int]) -> tuple[RenderableType, ...]:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    grouped: dict[str, list[str]] = {}
    for index in shown:
        option = plan.options[index]
        if index != plan.choice and option.why:
            grouped.setdefault(option.why, []).append(_label(option, plan))
    if not grouped:
        return ()
    for text, labels in grouped.items():
        several = f"{labels[0]} and {len(labels) - 1} more" if len(labels) > 2 else " and ".join(labels)
        table.add_row(Text(several, style="bold"), Text(text))
    return (indented(table),)


def _label(option: PlanOption, plan: Plan) -> str:
    alike = [one for one in plan.options if (one.gpu, one.num_gpus, one.billing) == (option.gpu, option.num_gpus, option.billing)]
    text = f"{option.num_gpus}x {option.gpu}" if option.gpu else f"{option.num_gpus} GPU{'s' if option.num_gpus > 1 else ''}"
    if option.billing == "spot":
        text += " spot"
    if len({one.offer for one in alike}) > 1:
        text = f"{option.num_gpus} of {option.offer}"
    return text


def _left_out(plan: Plan, shown: Sequence[int]) -> list[RenderableType]:
    rest = len(plan.options) - len(shown)
    ranked = f"{plan.num_considered:,} plans were ranked" if plan.num_considered > len(plan.options) else ""
    more = f"{rest} more with --json" if rest > 0 else ""
    line = "; ".join(one for one in (ranked, more) if one)
    return [indented(Text(line, style="dim"))] if line else []


def _known_from(plan: Plan, shown: Sequence[int]) -> list[str]:
    """What the choice stands on, then what the other shown rows do, each sentence once; the rest is in the document."""
    order = [plan.choice] if plan.choice is not None else []
    order += [index for index in shown if index not in order]
    found = dict.fromkeys(note for index in order for note in plan.options[index].assumptions)
    kept = list(found)[:5]
    return kept + ([f"and {len(found) - 5} more, with --json"] if len(found) > 5 else [])


def _hours(hours: float) -> str:
    """``12.5 h``, ``40 h``; days from four days on, as people say it."""
    if hours >= 96:
        return f"{significant(hours / 24)} days"
    text = duration(hours * 3600)
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"

"""A plan as people read it: the job, every way to do it with its time and cost, why the others lost, and what to rent last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from wiretax.data.gpus import find_gpu
from wiretax.model.money import Plan, PlanOption
from wiretax.show.plain import Symbols, indented
from wiretax.show.plan_tables import service_table, training_table
from wiretax.units import hours, money, percent, significant

MOST_ROWS = 12
"""Options shown that may fit; the others are in the document."""

MOST_MISSES = 3
"""Options shown that do not, beside the single GPU that comes nearest."""

MOST_BREAK_EVEN = 4

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
    table = service_table(plan, shown, width, symbols) if plan.purpose == "inference" else training_table(plan, shown, width, symbols)
    # Only a table with bars has a last column without a heading.
    bars = plan.purpose == "training" and table.columns[-1].header == ""
    yield Block("Ways to do it", _caption(plan, symbols, bars=bars), (indented(table), *_left_out(plan, shown)))
    why = _why(plan, shown)
    if why:
        yield Block("Why not", "", why)
    even = _break_even(plan, shown, symbols)
    if even:
        yield Block("Wire tax", "and what several GPUs would have to reach to cost no more than one", even)
    if plan.checkpointing is not None:
        yield Block("Checkpoints", "", (indented(Text(plan.checkpointing.sentence)),))
    if plan.remedies:
        yield Block("What would make it fit on one", "", _bullets(plan.remedies, "", symbols))
    notes = [*plan.assumptions, *_known_from(plan, shown)]
    if notes:
        yield Block("Taken for granted", "", _bullets(notes, "dim", symbols))


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


def _bullets(lines: Sequence[str], style: str, symbols: Symbols) -> tuple[RenderableType, ...]:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(Text(symbols.severity["info"], style=style), Text(line, style=style))
    return (indented(table),)


def _shown(plan: Plan) -> list[int]:
    """Which options have a row: the choice, the front, one GPU, the smallest set, then the cheapest; in the document's order."""
    options = plan.options
    first = [index for index in (plan.choice, plan.fewest_that_fit) if index is not None]
    first += [index for index, option in enumerate(options) if option.on_front]
    possible = [index for index, option in enumerate(options) if option.fits is not False]
    first += sorted(possible, key=lambda index: _money(options[index]))
    # Of what does not fit the nearest misses say most.
    misses = sorted((index for index in range(len(options)) if index not in possible), key=lambda index: _need(options[index]))
    single = [index for index in misses if options[index].num_gpus == 1][:1]
    return sorted({*list(dict.fromkeys(first))[:MOST_ROWS], *single, *misses[:MOST_MISSES]})


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
        limits.append(f"deadline {hours(plan.deadline_hours)}")
    if plan.budget is not None and plan.currency:
        limits.append(f"budget {money(plan.budget, plan.currency)}")
    if bars:
        limits.append(f"{symbols.full} paid for work, {symbols.rest} for waiting on the wire")
    return ", ".join(limits)


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
        return [hours(option.hours), money(option.cost, currency)]
    return [f"{money(option.hourly_cost, currency)}/h"] if option.hourly_cost is not None else []


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


def _break_even(plan: Plan, shown: Sequence[int], symbols: Symbols) -> tuple[RenderableType, ...]:
    """Wire tax in money, and where several GPUs would cost no more than one; of each number of GPUs of a card the cheapest."""
    found: dict[str, PlanOption] = {}
    for index in sorted(shown, key=lambda index: _money(plan.options[index])):
        if plan.options[index].break_even_gpu_hour_price is not None:
            found.setdefault(_label(plan.options[index], plan), plan.options[index])
    if not found:
        return ()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for heading in (
        f"wire tax,\n{plan.currency} an hour",
        "as cheap as one\nat efficiency",
        f"or at a price,\n{plan.currency} per GPU-hour",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, option in list(found.items())[:MOST_BREAK_EVEN]:
        tax, efficiency = option.wire_tax_per_hour, option.break_even_efficiency_fraction
        possible = efficiency is not None and efficiency <= 1.0 + 1e-9
        table.add_row(
            Text(label, style="bold"),
            Text(symbols.dash) if tax is None else Text(_amount(tax), style="red" if tax > 0 else ""),
            Text(percent(efficiency) if possible and efficiency is not None else "none"),
            Text(_amount(option.break_even_gpu_hour_price or 0.0)),
        )
    return (indented(table),)


def _amount(amount: float) -> str:
    """Money under a heading that has the currency."""
    return money(amount, "").strip()


def _label(option: PlanOption, plan: Plan) -> str:
    alike = [one for one in plan.options if (one.gpu, one.num_gpus, one.billing) == (option.gpu, option.num_gpus, option.billing)]
    text = f"{option.num_gpus}x {option.gpu}" if option.gpu else f"{option.num_gpus} GPU{'s' if option.num_gpus > 1 else ''}"
    if option.billing == "spot":
        text += " spot"
    if plan.purpose == "inference" and option.num_gpus > 1:
        text += {"tp": ", split", "replicas": ", copies"}.get(option.strategy or "", "")
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

"""A comparison and a list of runs on a terminal."""

from __future__ import annotations

import re

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wiretax.model.comparison import Comparison, Difference
from wiretax.show.facts import when
from wiretax.show.plain import ASCII, UNICODE, Symbols, plain
from wiretax.units import figure

STYLES = {"better": "green", "worse": "bold red", "same": "dim", "unknown": "yellow"}


def render_comparison(comparison: Comparison, console: Console, *, everything: bool = False) -> None:
    """Prints the sentence, what differs, what changed, which findings came and went, and the gates.

    Args:
        comparison: cleaned here.
        console: where to.
        everything: also the figures that are the same.
    """
    symbols = ASCII if console.options.ascii_only else UNICODE
    clean = plain(comparison, console.encoding)
    for side in clean.sides:
        console.print(Text.assemble((side.label, "bold"), f"  {side.title}", (f"  {when(side.created_at)}  {side.run_id}", "dim")))
    shown = [d for d in clean.differences if everything or d.outcome in ("better", "worse")]
    if shown:
        console.print()
        console.print(_table(clean, shown, symbols, console.width))
    left_out = len(clean.differences) - len(shown)
    if left_out:
        console.print(Text(f"{left_out} more figures are the same or cannot be told apart; --all lists them", style="dim"))
    if clean.changes:
        console.print()
        console.print(Text("Changed around it", style="bold"))
        for change in clean.changes:
            values = f" {symbols.to} ".join("unknown" if value is None else value for value in change.values)
            console.print(Text.assemble("  ", (change.subject, "bold"), f": {values}"))
    moved = {code: has for code, has in clean.findings.items() if len(set(has)) > 1}
    if moved:
        console.print()
        console.print(Text("Findings that not all have", style="bold"))
        for code, has in moved.items():
            where = ", ".join(side.label for side, one in zip(clean.sides, has, strict=True) if one)
            console.print(Text(f"  {code}: {where}"))
    console.print()
    console.print(Text(clean.sentence))
    for gate in clean.gates:
        if gate.true:
            label = clean.sides[gate.side].label
            console.print(Text(f"{symbols.bad} {gate.text} is true of {label}: {'; '.join(gate.reasons)}", style="bold red"))


WIDE = 112
"""Columns from which the intervals are shown too."""
FIGURES = 36
"""Columns that the figures of two runs and their change take at most."""
LEAST_NAME = 20


def _table(comparison: Comparison, shown: list[Difference], symbols: Symbols, width: int) -> Table:
    """The figures; metric names are whole, as gates need them: a narrow terminal shows no intervals and breaks the names between words."""
    several = len(comparison.sides) > 2
    wide = width >= WIDE
    labels = max(len(side.label) for side in comparison.sides) + 2 if several else 0
    room = max(width - FIGURES - labels, LEAST_NAME)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("figure", overflow="fold")
    if several:
        table.add_column("run", no_wrap=True)
    for heading in (
        comparison.sides[0].label,
        "then" if several else comparison.sides[1].label,
        "change",
        *(["99 % interval"] if wide else []),
    ):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for d in shown:
        change = symbols.dash if d.ratio is None else f"{(d.ratio - 1) * 100:+.1f} %"
        interval = d.reason if d.low is None or d.high is None else f"{(d.low - 1) * 100:+.1f} to {(d.high - 1) * 100:+.1f} %"
        cells = [Text(_folded(d.metric, room))] + ([Text(comparison.sides[d.side].label)] if several else [])
        cells += [Text(figure(d.metric, d.base)), Text(figure(d.metric, d.value)), Text(change, style=STYLES[d.outcome])]
        cells += [Text(interval, style="dim")] if wide else []
        table.add_row(*cells)
    return table


def _folded(name: str, room: int) -> str:
    """A metric's name in lines of at most so many characters, broken at its dots and between its words."""
    lines = [""]
    for part in re.split(r"(?=[._])", name):
        if lines[-1].strip() and len(lines[-1]) + len(part) > room:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(lines)

"""Tables of figures that never cut one: what is too wide for the terminal goes on below, headed by the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

LEAST_PROSE = 18
"""Columns that a cell of words needs to be worth reading; words may wrap, figures may not."""


class Figures(Table):
    """A borderless table. On a terminal too narrow for it, its columns are dealt out to several tables, one below the other.

    A figure that ends in an ellipsis is a wrong figure, so no column is ever narrower than what stands in it; only columns that
    may wrap (``no_wrap`` is False) are.
    """

    def __init__(self, keys: int = 1, gap: int = 2) -> None:
        """Args: keys: leading columns that say what a row is about, repeated in each part. gap: blanks between columns."""
        super().__init__(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
        self.keys = keys
        self.gap = gap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table itself where it fits, else its parts."""
        needs = [_need(column) for column in self.columns]
        parts = _dealt(needs, min(self.keys, len(needs)), self.gap, options.max_width)
        if len(parts) == 1:
            yield from super().__rich_console__(console, options)
            return
        for position, part in enumerate(parts):
            if position:
                yield Text()
            yield self._part([self.columns[index] for index in part])

    def _part(self, columns: Sequence[Column]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, self.gap, 0, 0), header_style="dim")
        above = min(_empty_lines(column.header) for column in columns)
        for column in columns:
            header = str(column.header)[above:] if isinstance(column.header, str) else column.header
            table.add_column(header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
        for cells in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*cells)
        return table


def _empty_lines(header: RenderableType) -> int:
    """How many line ends stand before the words of a heading: it was levelled with taller ones, which may be in another part."""
    return len(header) - len(header.lstrip("\n")) if isinstance(header, str) else 0


def _need(column: Column) -> int:
    widest = max(_width(part) for part in (column.header, *column.cells))
    return widest if column.no_wrap else min(widest, LEAST_PROSE)


def _width(part: RenderableType) -> int:
    text = part.plain if isinstance(part, Text) else str(part)
    return max((cell_len(line) for line in text.split("\n")), default=0)


def _dealt(needs: Sequence[int], keys: int, gap: int, room: int) -> list[list[int]]:
    """Column numbers of each part: the keys, then as many others as there is room for, at least one."""
    head = list(range(keys))
    used = sum(needs[k] + gap for k in head)
    parts: list[list[int]] = [[*head]]
    width = used
    for index in range(keys, len(needs)):
        if width + needs[index] > room and len(parts[-1]) > keys:
            parts.append([*head])
            width = used
        parts[-1].append(index)
        width += needs[index] + gap
    return parts

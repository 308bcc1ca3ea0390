"""The charts of a report as Vega-Lite: data and grammar, no pixels. Altair is imported here only, and only when a chart is asked for.

One specification serves the page in both themes: colours are the page's CSS variables (:data:`PAGE`), so a switch of the theme draws
nothing anew. Single pictures for other programs are made with plain colours (:data:`PAPER`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wiretax.show.charts.colours import PAGE, PAPER, Palette
from wiretax.show.series import Labelled

__all__ = ["PAGE", "PAPER", "Chart", "Palette", "Table", "charts_of"]


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a chart, as text: a heading a column, a row a line. The first column heads its row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart with all that makes it readable without looking at it.

    Attributes:
        name: short, for links and ``--svg NAME``.
        title: what it shows.
        caption: how to read it, one or two sentences.
        says: what is seen in it, in words; the picture's alternative text.
        spec: Vega-Lite, data included; None where the table itself is the picture.
        table: the same numbers as text.
        heat: for a table that is itself the picture: the colour class of each cell, "" for none.
        controls: whether the specification has sliders or menus.
    """

    name: str
    title: str
    caption: str
    says: str
    spec: dict[str, Any] | None
    table: Table
    heat: tuple[tuple[str, ...], ...] = field(default=())
    controls: bool = False


def charts_of(items: Sequence[Labelled], palette: Palette = PAGE) -> list[Chart]:
    """Every chart for which the runs hold something, in the order of the page.

    Args:
        items: one run, or several to be shown side by side in each chart.
        palette: colours.

    Raises:
        MissingDependency: Altair is not installed.
    """
    from wiretax.errors import INSTALL_REPORT, MissingDependency

    try:
        from altair.utils.schemapi import debug_mode

        from wiretax.show.charts import compute, pairs, planner, training, wires
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("altair"):
            raise
        raise MissingDependency("Charts need Altair, which is not installed.", do=INSTALL_REPORT) from None
    # Altair would check every piece against the grammar's schema, a second a page; our tests draw each chart instead.
    with debug_mode(False):
        found = (
            pairs.matrix(items, palette),
            wires.busbw(items, palette),
            wires.latency(items, palette),
            compute.bars(items, palette),
            training.scaling(items, palette),
            training.phases_chart(items, palette),
            planner.planner(items, palette),
        )
    return [chart for chart in found if chart is not None]

"""Pieces that several charts share: axes of sizes and rates, the look, menus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import altair as alt

from wiretax.show.charts.colours import Palette
from wiretax.show.series import Labelled


class OfRun(Protocol):
    """Anything that belongs to a run of a picture."""

    @property
    def label(self) -> str:
        """What that run is called."""


Row = TypeVar("Row", bound=OfRun)

WIDTH = 900
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"

SIZE_WORDS = (
    "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB' : "
    "datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' : datum.value / 1073741824 + ' GiB'"
)
"""A Vega expression: a message size in words."""


class _Held:
    """Rows that Altair hands on without looking at them: it would copy every cell at each step of building a chart."""

    def __init__(self, values: Sequence[dict[str, Any]]) -> None:
        self.values = list(values)


def by_run(items: Sequence[Labelled], found: Sequence[Row], says: Callable[[Sequence[Row]], str]) -> str:
    """What a picture shows in words; of several runs one after the other, each with its label.

    Args:
        items: the runs.
        found: rows of all of them, with a label each.
        says: the words of the rows of one run.
    """
    if len(items) < 2:
        return says(found)
    own = {item.label: [one for one in found if one.label == item.label] for item in items}
    return " ".join(f"{label}: {says(some)}" for label, some in own.items() if some)


def rows(values: Sequence[dict[str, Any]]) -> alt.Data:
    """Rows as inline data."""
    return alt.Data(values=_Held(values))


def _released(spec: Any) -> Any:
    """The specification with its rows put in."""
    if isinstance(spec, _Held):
        return spec.values
    if isinstance(spec, dict):
        return {key: _released(value) for key, value in spec.items()}
    return [_released(value) for value in spec] if isinstance(spec, list) else spec


def size_axis(values: Sequence[int], title: str = "message size") -> alt.X:
    """A logarithmic axis of message sizes with a label at every third power of two or so."""
    low, high = min(values), max(values)
    steps = [2**k for k in range(50) if low <= 2**k <= high]
    every = max(1, round(len(steps) / 9))
    return (
        alt.X("size:Q")
        .scale(type="log", base=2, nice=False, domain=[low, high * 1.6])
        .axis(values=steps[::every], labelExpr=SIZE_WORDS, title=title, grid=False, labelFlush=False, labelSeparation=5)
    )


def log_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Where a logarithmic axis that spans a few decades or less has its labels: the fewest round numbers that make three."""
    low, high = min(values), max(values)
    for steps in ((1,), (1, 2, 5), (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [float(f"{step}e{power}") for power in range(-9, 10) for step in steps if low <= float(f"{step}e{power}") <= high]
        if len(ticks) >= 3:
            return {"values": ticks}
    return {"tickCount": 5}


def digits(value: float | None, count: int = 4) -> float | None:
    """A number with as many significant digits as a picture can show; keeps pages small."""
    return None if value is None else float(f"{value:.{count}g}")


def dressed(chart: Any, palette: Palette) -> dict[str, Any]:
    """The specification with the look of the page: quiet axes, no frame, the page's own font."""
    spec: dict[str, Any] = _released(chart.to_dict(validate=False))
    spec.pop("config", None)
    spec["background"] = "transparent"
    text = {"labelColor": palette.quiet, "titleColor": palette.quiet, "labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal"}
    spec["config"] = {
        "font": FONT,
        "view": {"stroke": None, "fill": None},
        "axis": {**text, "gridColor": palette.line, "domainColor": palette.line, "tickColor": palette.line, "titlePadding": 10},
        "legend": {
            **text,
            "orient": "top",
            "title": None,
            "symbolStrokeWidth": 3,
            "symbolOpacity": 1,
            "columnPadding": 18,
            "labelLimit": 220,
            "offset": 18,
        },
        "header": {"labelColor": palette.ink, "titleColor": palette.quiet, "labelFontSize": 13, "labelFontWeight": 600},
        "title": {"color": palette.ink, "fontSize": 14, "fontWeight": 600, "anchor": "start"},
        "text": {"color": palette.ink},
        "line": {"strokeCap": "round", "strokeJoin": "round"},
    }
    return spec


def colour_scale(names: Sequence[str], palette: Palette) -> alt.Scale:
    """Wires to their colours."""
    listed = list(names)
    return alt.Scale(domain=listed, range=[palette.wire(name, listed) for name in listed])


def menu(name: str, label: str, options: Sequence[Any], words: Sequence[str] | None = None, value: Any = None) -> alt.Parameter:
    """A drop-down menu as a Vega-Lite parameter."""
    return alt.param(
        name=name,
        value=options[0] if value is None else value,
        bind=alt.binding_select(options=list(options), labels=list(words or [str(o) for o in options]), name=label),
    )


def slider(name: str, label: str, value: float, low: float, high: float, step: float) -> alt.Parameter:
    """A slider as a Vega-Lite parameter; a value outside the range widens it."""
    return alt.param(name=name, value=value, bind=alt.binding_range(min=min(low, value), max=max(high, value), step=step, name=label))

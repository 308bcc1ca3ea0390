"""Really trained steps: how much faster more GPUs are, where the time goes, and what had been predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.run import Run
from wiretax.model.training import StepTiming
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented, spread_fraction
from wiretax.show.prediction import milliseconds
from wiretax.units import memory, percent, significant

Part = tuple[str, str, list[RenderableType]]

CLOSE, FAR = 0.05, 0.15
"""Errors of a prediction that are drawn green and red."""


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cell: Callable[[StepTiming], Text | str]
    right: bool = True


def scaling(run: Run, symbols: Symbols) -> list[Part]:
    """Title, caption and parts of each section; none where nothing was trained.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    if not run.training.steps:
        return []
    kind = "GPUs" if run.machine is None or run.machine.gpus else "ranks"
    measured: list[RenderableType] = []
    phases: list[RenderableType] = []
    for workload in dict.fromkeys(one.workload for one in run.training.steps):
        own = [one for one in run.training.steps if one.workload == workload]
        measured += [indented(Text(workload)), indented(_table(own, _speed_columns(own, symbols), kind, symbols))]
        phases += [indented(Text(workload)), indented(_table(own, _phase_columns(own, symbols), kind, symbols))]
    parts: list[Part] = [("Scaling", "really trained", measured), ("Where the time goes", "of one optimizer step", phases)]
    beside = predicted_beside_measured(run)
    if beside:
        parts.append(
            ("Predicted beside measured", f"from one {kind.removesuffix('s')}'s profile and the wire alone", _beside(beside, kind, symbols))
        )
    return parts


def predicted_beside_measured(run: Run) -> list[tuple[Forecast, StepTiming]]:
    """Each real step on several GPUs with the forecast of the same configuration, where there is one."""
    forecasts = {(one.workload, one.strategy, one.wire, one.num_gpus, one.batch_per_gpu): one for one in run.forecasts if one.step_seconds}
    found = []
    for step in run.training.steps:
        forecast = forecasts.get((step.workload, step.strategy, step.wire, step.num_gpus, step.batch_per_gpu))
        if step.num_gpus > 1 and forecast is not None:
            found.append((forecast, step))
    return found


def _speed_columns(items: Sequence[StepTiming], symbols: Symbols) -> list[_Column]:
    columns = [
        _Column("step", lambda one: _with_spread(one, symbols)),
        _Column("samples/s", lambda one: significant(one.samples_per_second)),
        _Column("speed-up", lambda one: _speedup(one, symbols)),
        _Column("efficiency", lambda one: symbols.dash if one.efficiency_fraction is None else percent(one.efficiency_fraction)),
        _Column(
            "wire tax",
            lambda one: symbols.dash if one.efficiency_fraction is None or one.num_gpus == 1 else percent(1 - one.efficiency_fraction),
        ),
    ]
    if any(one.peak_memory_bytes is not None for one in items):
        columns.append(_Column("memory", lambda one: symbols.dash if one.peak_memory_bytes is None else memory(one.peak_memory_bytes)))
    return columns


def _phase_columns(_items: Sequence[StepTiming], symbols: Symbols) -> list[_Column]:
    def phase(name: str) -> Callable[[StepTiming], Text | str]:
        def cell(one: StepTiming) -> Text | str:
            seconds = getattr(one.phases, name) if one.phases is not None else None
            return symbols.dash if seconds is None else milliseconds(seconds)

        return cell

    return [
        _Column("forward", phase("forward")),
        _Column("backward", phase("backward")),
        _Column("optimizer", phase("optimizer")),
        _Column("of it, waiting\nfor the wire", phase("exposed_communication")),
    ]


def _with_spread(step: StepTiming, symbols: Symbols) -> Text:
    spread = spread_fraction(step.samples_seconds)
    text = Text(milliseconds(step.step_seconds))
    return text if spread is None else text.append(f" {symbols.plus_minus}{percent(spread)}", style="yellow" if spread > 0.1 else "dim")


def _speedup(step: StepTiming, symbols: Symbols) -> Text:
    if step.efficiency_fraction is None or step.num_gpus == 1:
        return Text(symbols.dash)
    factor = step.efficiency_fraction * step.num_gpus
    style = "bold red" if factor < 1 else "green" if step.efficiency_fraction >= 0.7 else ""
    return Text(f"{factor:.2f} {symbols.times}", style=style)


def _table(items: Sequence[StepTiming], columns: Sequence[_Column], kind: str, symbols: Symbols) -> Figures:
    """Rows in the order in which they were trained."""
    leading = [_Column(kind, lambda one: str(one.num_gpus))]
    leading.append(_Column("strategy", lambda one: symbols.dash if one.num_gpus == 1 else one.strategy, right=False))
    if len({one.wire for one in items if one.num_gpus > 1}) > 1:
        leading.append(_Column("wire", lambda one: symbols.dash if one.num_gpus == 1 else one.wire, right=False))
    if len({one.batch_per_gpu for one in items}) > 1:
        leading.append(_Column("batch", lambda one: str(one.batch_per_gpu)))
    table = Figures(keys=len(leading))
    for column in (*leading, *columns):
        table.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for one in items:
        table.add_row(*(column.cell(one) for column in (*leading, *columns)))
    return table


def _beside(pairs: Sequence[tuple[Forecast, StepTiming]], kind: str, symbols: Symbols) -> list[RenderableType]:
    """Step times, and peaks of memory where both are known."""
    times = [(forecast, step, forecast.step_seconds, step.step_seconds) for forecast, step in pairs]
    peaks = [(forecast, step, forecast.peak_memory_bytes, step.peak_memory_bytes) for forecast, step in pairs]
    found = _compared(times, milliseconds, kind, "low", symbols)
    return found + _compared(peaks, memory, kind, "memory: low", symbols)


def _compared(
    rows: Sequence[tuple[Forecast, StepTiming, Interval | None, float | None]],
    words: Callable[[float], str],
    kind: str,
    first: str,
    symbols: Symbols,
) -> list[RenderableType]:
    """One quantity of all configurations in which it was predicted and measured, with the errors summed up below."""
    known = [(step, predicted, measured) for _, step, predicted, measured in rows if predicted is not None and measured]
    if not known:
        return []
    several = {name: len({getattr(step, name) for step, _, _ in known}) > 1 for name in ("workload", "wire", "batch_per_gpu")}
    table = Figures(keys=2 + sum(several.values()))
    for heading in (kind, "strategy", *(name.partition("_")[0] for name, are in several.items() if are)):
        table.add_column(heading, justify="right" if heading in (kind, "batch") else "left", no_wrap=True)
    for heading in (first, "predicted", "high", "measured", "error", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    errors, inside = [], 0
    for step, predicted, measured in known:
        error = predicted.expected / measured - 1
        held = predicted.low <= measured <= predicted.high
        errors.append(abs(error))
        inside += held
        cells: list[Text | str] = [str(step.num_gpus), step.strategy, *(str(getattr(step, name)) for name, are in several.items() if are)]
        cells += [words(value) for value in (predicted.low, predicted.expected, predicted.high)]
        cells.append(Text(words(measured), style="bold"))
        style = "green" if abs(error) <= CLOSE else "red" if abs(error) > FAR else "yellow"
        cells += [Text(f"{100 * error:+.1f} %", style=style), Text(symbols.ok if held else symbols.bad, style="" if held else "red")]
        table.add_row(*cells)
    summary = f"error {percent(mean(errors))} in the mean, {percent(max(errors))} at worst; {inside} of {len(known)} inside their range"
    return [indented(table), indented(Text(summary, style="dim"))]

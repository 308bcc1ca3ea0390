"""Reads tables in which people set GPU counts or settings against rates and times, in markdown, CSV, tabs or aligned columns.

Observations:
    ``training.rate``, ``training.run_time``, ``training.phase``, ``bandwidth.collective``: as in
    :mod:`wiretax.probe.readers.training_text`, one a cell, ``label`` being the row's words and the column's heading.
    ``training.scope_check``: from a table that has both a run time and samples a second; ``num_gpus``, ``strategy``,
    ``wire``, ``series`` (what else the row names), ``counted_fraction``: run time times rate over the same product of the one-GPU row.
    1 / num_gpus means that the rate counts one process of several, 1 that it counts all.
    ``training.data_wait``: from a table with a column of data loading time beside the whole.
    ``bench.value``: ``row``, ``column``, ``value``, ``unit``, ``num_gpus``, ``setting`` (``NAME=VALUE`` of the row, or None),
    ``operation``, ``measure`` and the value under the name of its dimension (``bytes_per_second``, ...): a cell of a table of settings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from wiretax.model.observation import Scalar
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams
from wiretax.probe.readers.training_clauses import Context, context_of, may_count, measure_in, operation_in, rates_of
from wiretax.probe.readers.training_words import Dimension, Word, number_of, unit_of, words

FORMAT = "a table of timings"
_COUNT_HEADING = re.compile(
    r"^(?:#|number of|num(?:ber)?|n|no\.?|total)?[\s_]*(?:of )?(?:gpus?|cards?|devices?|n|k|world[ _]?size|processes|ranks?|"
    r"nproc\w{0,16})$",
    re.IGNORECASE,
)
_HEADING_HINT = re.compile(
    r"/\s?s|per[_ ]s|[Rr]un[_ ]?time|[Tt]ime\b|s/it|FLOP|bps|bus ?bw|[aA]lg ?[bB][wW]|"
    r"[kKnN]=\d|\d\s?GPU|\d\s?[x\u00d7]\s?[A-Z\d]|GPUs?\b|through|\(ms|\(s\)|\(min|ms\b|sec"
)
_MEASURE_HEADING = re.compile(r"\b(?:busbw|algbw|bandwidth|bw|speed|rate)\b", re.IGNORECASE)
_SETTING = re.compile(r"\b[A-Z][A-Z0-9]{1,12}_[A-Z0-9_]{1,40}=\S{1,40}")
_RULE = re.compile(r"[\s|:+=-]+")
_NUMBER = re.compile(
    r"\s*[~\u2248]?((?!0,)\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,9})?|0,\d{1,9}|\d{1,15},\d{1,2}|\d{1,15}(?:\.\d{1,9})?)"
    r"\s?(?:[a-zA-Z\u00b5%/]{0,14})?\s*(?:\([^)]{0,40}\))?\s*"
)
_THOUSANDS = re.compile(r"\s?[kK](?![A-Za-z])")
_COUNTED = frozenset({"tokens_per_second", "samples_per_second"})
"""What people write in thousands: ``1.8k``."""
_NOTHING = re.compile(r"\s*(?:-+|\u2013|\u2014|n/?a|nan|oom|x|\?)?\s*", re.IGNORECASE)
_MEASURES = (
    "steps_per_second",
    "seconds_per_step",
    "samples_per_second",
    "tokens_per_second",
    "flops_per_second",
    "seconds",
    "bytes_per_second",
)
_PHASE_HEADING = re.compile(r"\b(forward|fwd|backward|bwd|optimizer|data|comm\w{0,14}|all-?reduce)\b", re.IGNORECASE)


@dataclass(slots=True)
class _Table:
    title: str
    heading: list[str]
    heading_line: int
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)


def read(text: Text) -> tuple[Piece, ...]:
    """The tables of each stream, one piece each."""
    return tuple(
        piece for stream in streams(text) for table in _tables(stream) if (piece := _piece(text.source, table, stream)) is not None
    )


def _cells(text: str) -> list[str] | None:
    """The cells of a line by the clearest separator that it has."""
    stripped = text.strip().lstrip("#").strip() if not text.strip().startswith("#|") else text.strip()
    if stripped.count("|") >= 2 or (stripped.startswith("|") and stripped.endswith("|")):
        return [cell.strip(" *`") for cell in stripped.strip("|").split("|")]
    for separator in ("\t", r"\s{2,}"):
        cells = [cell.strip() for cell in re.split(separator, stripped) if cell.strip()]
        if len(cells) >= 2:
            return cells
    if stripped.count(",") >= 1 and not re.search(r",\s?\w+\s\w+\s\w+", stripped):
        return [cell.strip() for cell in stripped.split(",")]
    words_only = stripped.split()
    return words_only if 2 <= len(words_only) <= 6 and all(re.fullmatch(r"[\w./%()-]{1,24}", word) for word in words_only) else None


def _tables(stream: Stream) -> list[_Table]:
    tables: list[_Table] = []
    current: _Table | None = None
    title = ""
    for line in stream.lines:
        text = line.text
        if len(text) > 1000 or not text.strip():
            current = None
            continue
        if _RULE.fullmatch(text):
            if current is not None:
                current.lines.add(line.number)
            continue
        cells = _cells(text) if current is not None or _HEADING_HINT.search(text) else None
        if current is not None and cells is not None and _row(current, line, cells):
            continue
        current = None
        if cells is not None and _is_heading(cells):
            current = _Table(title, cells, line.number, lines={line.number})
            tables.append(current)
        title = text.strip(" #*:")[:200]
    return tables


def _is_heading(cells: list[str]) -> bool:
    """A heading names a measure in one of its cells, or counts in two of them: then title or cells name the measure."""
    if any(_NUMBER.fullmatch(cell) and not _counts_gpus(cell) for cell in cells) or len(cells) > 24:
        return False
    if any((unit := unit_of(cell)) is not None and unit[0] in _MEASURES for cell in cells if len(cell) < 80):
        return True
    if any(_is_rate(cell) for cell in cells if len(cell) < 80):
        return True
    if len(cells) >= 2 and any(_COUNT_HEADING.match(cell) for cell in cells):
        return True  # "GPUs | Speed": the cells below say in what
    return sum(context_of(words(cell)).num_gpus is not None for cell in cells if may_count(cell)) >= 2


def _counts_gpus(cell: str) -> bool:
    """Whether a cell is ``2 GPUs``, which is a heading, and no figure with a unit."""
    return may_count(cell) and context_of(words(cell)).num_gpus is not None


def _row(table: _Table, line: Line, cells: list[str]) -> bool:
    if len(cells) != len(table.heading):
        # A label of several words falls apart where only blanks separate the columns.
        surplus = len(cells) - len(table.heading)
        if surplus < 0 or "|" in line.text:
            return False
        cells = [" ".join(cells[: surplus + 1]), *cells[surplus + 1 :]]
    values = [
        cell
        for cell in cells[1:]
        if (_NUMBER.fullmatch(cell) and not _counts_gpus(cell)) or _NOTHING.fullmatch(cell) or re.fullmatch(r"[\d./]{3,40}", cell)
    ]
    if not values or not any(character.isdecimal() for cell in cells for character in cell):
        return "|" in line.text  # a row of words within a table
    table.rows.append((line.number, cells))
    table.lines.add(line.number)
    return True


def _piece(source: str, table: _Table, stream: Stream) -> Piece | None:
    if not table.rows:
        return None
    notes = pasted.Notes(source, stream.lines)
    title_unit = unit_of(table.title)
    columns = []
    for place, heading in enumerate(table.heading):
        in_cells = _unit_in_cells(heading, [cells[place] for _, cells in table.rows])
        bandwidth = in_cells if _is_rate(heading) else None
        columns.append(_column(heading, title_unit or bandwidth, in_cells))
    if not any(column.dimension for column in columns) or not _is_about_gpus(table, columns):
        return None
    around = context_of(words(table.title))
    products: list[_Product] = []
    for number, cells in table.rows:
        _read_row(number, cells, columns, around, table, notes, products)
    for product in products:
        base = next((one for one in products if one.series == product.series and one.context.num_gpus == 1), None)
        if base is not None and base.samples > 0 and product.context.num_gpus != 1:
            counted = round(product.samples / base.samples, 4)
            tags = product.context.tags()
            notes.add(product.line, "training.scope_check", counted_fraction=counted, series=" ".join(product.series) or None, **tags)
    observations = notes.observations()
    if not observations:
        return None
    return Piece(source=source, format=FORMAT, first_line=table.heading_line, observations=observations, understood=frozenset(table.lines))


def _is_about_gpus(table: _Table, columns: list[_Column]) -> bool:
    """Whether heading or rows name GPU counts, strategies or settings; tables of benchmarks that do not are other readers'."""
    if any(
        column.is_count or column.borrowed or column.context.num_gpus is not None or column.context.phase == "data" for column in columns
    ):
        return True
    labels = [" ".join(cell for cell, column in zip(cells, columns, strict=True) if column.dimension is None) for _, cells in table.rows]
    return any(
        (context := _row_context(label)).num_gpus is not None or context.strategy is not None or _SETTING.search(label) for label in labels
    )


def _is_rate(heading: str) -> bool:
    names_measure = _MEASURE_HEADING.search(heading)
    return names_measure is not None and (operation_in(heading) is not None or names_measure.group().lower() in ("busbw", "algbw"))


def _unit_in_cells(heading: str, cells: list[str]) -> tuple[Dimension, float, str] | None:
    """The unit that every figure of a column carries itself, where the heading has none."""
    if not _is_rate(heading):
        return None if unit_of(heading) is not None or _COUNT_HEADING.match(heading.strip()) else _unit_of_figures(cells)
    units = {unit_of(re.sub(r"^[\s~\d.,]+", "", cell)) for cell in cells if cell.strip()}
    found = units.pop() if len(units) == 1 else None
    return found if found is not None and found[0] == "bytes_per_second" else None


def _unit_of_figures(cells: list[str]) -> tuple[Dimension, float, str] | None:
    """The one unit of "11.4 samples/sec" in every cell that has a figure; None where cells differ, or count GPUs."""
    filled = [cell for cell in cells if not _NOTHING.fullmatch(cell)]
    figures = [figure for cell in filled if (figure := _alone(cell)) is not None]
    units = {(str(figure.dimension), round((figure.si_value or 0.0) / (figure.value or 1.0), 9), str(figure.unit)) for figure in figures}
    if len(figures) < len(filled) or len(units) != 1:
        return None
    _, factor, unit = units.pop()
    return figures[0].dimension or "seconds", factor, unit


def _alone(cell: str) -> Word | None:
    """The figure of a cell that holds nothing else, with its unit: "11.4 samples/sec"."""
    tokens = words(cell)
    figure = tokens[0] if len(tokens) == 1 and tokens[0].kind == "quantity" else None
    return figure if figure is not None and figure.value and figure.dimension in _MEASURES else None


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    is_count: bool
    dimension: Dimension | None
    factor: float
    unit: str | None
    context: Context
    borrowed: bool


def _column(heading: str, title_unit: tuple[Dimension, float, str] | None, cell_unit: tuple[Dimension, float, str] | None) -> _Column:
    context = context_of(words(heading))
    is_count = _COUNT_HEADING.match(heading.strip()) is not None
    own = None if is_count else unit_of(heading)
    borrowed = own is None and not is_count and title_unit is not None and (context.num_gpus is not None or _is_rate(heading))
    dimension, factor, unit = own or (title_unit if borrowed and title_unit else cell_unit or (None, 1.0, None))
    return _Column(heading, is_count, dimension, factor, unit, context, borrowed)


@dataclass(frozen=True, slots=True)
class _Product:
    """Run time times samples a second of one row: the samples that the rate has counted."""

    line: int
    series: tuple[str, ...]
    context: Context
    samples: float


def _read_row(
    number: int,
    cells: list[str],
    columns: list[_Column],
    around: Context,
    table: _Table,
    notes: pasted.Notes,
    products: list[_Product],
) -> None:
    labels = [
        cell
        for cell, column in zip(cells, columns, strict=True)
        if column.dimension is None and not column.is_count and column.context.num_gpus is None
    ]
    label = " ".join(cell for cell in labels if cell).strip()
    context = _row_context(label)
    for cell, column in zip(cells, columns, strict=True):
        if column.is_count and (match := re.match(r"\s*(\d{1,4})\b", cell)):
            context = replace(context, num_gpus=int(match.group(1)))
    context = context.over(around)
    seconds = samples = None
    for cell, column in zip(cells, columns, strict=True):
        if column.dimension is None and column.context.num_gpus is not None and (figure := _alone(cell)) is not None:
            # "| | 1x 3090 | 2x 3090 |": each row measures something else, and its cells say in what.
            own = replace(column, dimension=figure.dimension, factor=(figure.si_value or 0.0) / (figure.value or 1.0), unit=figure.unit)
            _note(number, figure.value or 0.0, own, column.context.over(context), label, table, notes)
            continue
        match = _NUMBER.fullmatch(cell)
        if column.dimension is None or not match:
            continue
        value = number_of(match.group(1))
        if column.dimension in _COUNTED and _THOUSANDS.match(cell, match.end(1)):
            value *= 1e3
        here = column.context.over(context)
        _note(number, value, column, here, label, table, notes)
        if column.dimension == "seconds" and not _PHASE_HEADING.search(column.heading):
            seconds = value * column.factor
        elif column.dimension == "samples_per_second":
            samples = value
    if seconds and samples:
        series = tuple(cell for cell in labels if cell.isdecimal() or _row_context(cell) == Context())
        products.append(_Product(number, series, context, seconds * samples))
    times: dict[str, float] = {}
    for cell, column in zip(cells, columns, strict=True):
        if column.dimension in ("seconds", "seconds_per_step") and (match := _NUMBER.fullmatch(cell)):
            name = column.context.phase or ("total" if "total" in column.heading.lower() else "run")
            times[name] = number_of(match.group(1)) * column.factor
    whole = times.get("total") or times.get("step") or times.get("run")
    if whole and "data" in times:
        tags = context.tags() | {"workload": "training", "label": label[:80]}
        notes.add(number, "training.data_wait", step_seconds=whole, data_seconds=times["data"], fraction=times["data"] / whole, **tags)


def _row_context(label: str) -> Context:
    """GPUs and strategy of a row's words, among them the short forms ``2:DDP``, ``DDP 2`` and ``DDP_no_NV``."""
    # Underscores join words in labels, but not in NAME=VALUE.
    context = context_of(words(label if "=" in label else label.replace("_", " ")))
    leading = re.match(r"\s*(\d{1,3})\s?(?::|$)", label)
    return replace(context, num_gpus=int(leading.group(1))) if leading and context.num_gpus is None else context


def _note(number: int, value: float, column: _Column, context: Context, label: str, table: _Table, notes: pasted.Notes) -> None:
    text = " / ".join(part for part in (label, column.heading) if part)[:100]
    tags: dict[str, Scalar] = context.tags() | {"workload": _workload(table), "label": text}
    measured = value * column.factor
    setting = _SETTING.search(label)
    if column.borrowed:
        notes.add(
            number,
            "bench.value",
            row=label[:80],
            column=column.heading[:80],
            value=value,
            unit=column.unit,
            num_gpus=context.num_gpus,
            setting=setting.group() if setting else None,
            operation=operation_in(f"{column.heading} {table.title}"),
            measure=measure_in(f"{column.heading} {table.title}"),
            **{str(column.dimension): measured},
        )
    elif column.dimension == "seconds":
        phase = _PHASE_HEADING.search(column.heading)
        if phase:
            name = {"fwd": "forward", "bwd": "backward"}.get(phase.group(1).lower(), phase.group(1).lower())
            name = "communication" if name.startswith(("comm", "all")) else name
            notes.add(number, "training.phase", phase=name, seconds=measured, includes=None, **tags)
        else:
            per = "epoch" if "epoch" in column.heading.lower() else None
            notes.add(number, "training.run_time", seconds=measured, steps=None, per=per, **tags)
    elif column.dimension == "bytes_per_second":
        backend = context.wire if context.wire in ("nccl", "gloo") else None
        notes.add(
            number,
            "bandwidth.collective",
            operation=operation_in(f"{column.heading} {table.title}"),
            measure=measure_in(f"{column.heading} {table.title}"),
            backend=backend,
            value=value,
            unit=column.unit,
            bandwidth_bytes_per_second=measured,
            **tags,
        )
    else:
        per_gpu = column.unit is not None and re.search(r"/\s?(?:gpu|device|process)|per (?:gpu|device)", column.heading, re.IGNORECASE)
        scope = "per_process" if per_gpu else "global" if context.num_gpus == 1 else context.scope or "unknown"
        rates = rates_of(column.dimension, measured)
        notes.add(number, "training.rate", value=value, unit=column.unit, **rates, scope=scope, **tags)


def _workload(table: _Table) -> str | None:
    text = f"{table.title} {' '.join(table.heading)}"
    return "training" if re.search(r"train|epoch|step", text, re.IGNORECASE) else None

"""A run as something to look at or to send: a page, single charts, text for an issue thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from wiretax.errors import UsageError, unwritable
from wiretax.jobs.share import shared
from wiretax.model.run import Run
from wiretax.store.folder import load_run, write_atomically


def report(run: Run | str | Path, out: Path | None = None, *, share: bool = False, interactive: bool = True) -> str:
    """The run as one HTML page that needs nothing else; the same as ``wiretax report RUN``.

    Args:
        run: a run, its id or its file.
        out: also write it there.
        share: without host names, addresses, UUIDs, serial numbers, users and paths; the page says what was removed.
        interactive: with the script that redraws the charts (about 400 kB).

    Raises:
        BadInput: no such run, or it cannot be read.
        MissingDependency: ``wiretax[report]`` is not installed.
        UsageError: ``out`` cannot be written.
    """
    from wiretax.show.html import as_html

    found, removed = loaded(run, share=share)
    page = as_html(found, removed=removed, interactive=interactive)
    if out is not None:
        write(out, page.encode("utf-8"))
    return page


def report_markdown(run: Run | str | Path, *, share: bool = True) -> str:
    """The run as Markdown to paste into an issue thread; redacted unless told otherwise."""
    from wiretax.show.markdown import as_markdown

    found, removed = loaded(run, share=share)
    return as_markdown(found, removed=removed)


def report_charts(
    run: Run | str | Path, folder: Path, form: Literal["svg", "png"], names: Sequence[str] = (), *, share: bool = False
) -> list[Path]:
    """Single charts as files ``<name>.svg`` or ``<name>.png``.

    Args:
        run: a run, its id or its file.
        folder: made when it is not there.
        form: of the files.
        names: of charts; all there are when empty.
        share: see :func:`report`.

    Returns:
        The files written.

    Raises:
        UsageError: a name that this run has no chart for, or the folder cannot be written.
        BadInput: see :func:`report`.
        MissingDependency: see :func:`report`.
    """
    from wiretax.show import svg
    from wiretax.show.charts import PAPER, charts_of
    from wiretax.show.plain import plain
    from wiretax.show.series import Labelled

    found, _ = loaded(run, share=share)
    charts = {chart.name: chart.spec for chart in charts_of([Labelled("this run", plain(found))], PAPER) if chart.spec}
    unknown = [name for name in names if name not in charts]
    if unknown:
        raise UsageError(f"This run has no chart {unknown[0]!r}.", do=f"It has: {', '.join(charts) or 'none'}.")
    written = []
    for name in names or charts:
        spec = charts[name]
        assert spec is not None
        data = svg.picture(spec).encode("utf-8") if form == "svg" else svg.bitmap(spec)
        written.append(folder / f"{name}.{form}")
        write(written[-1], data)
    return written


def loaded(run: Run | str | Path, *, share: bool) -> tuple[Run, tuple[str, ...]]:
    """A run by value, id or file, and what was taken out of it where it is to be shared."""
    found = run if isinstance(run, Run) else load_run(run)
    return shared(found) if share else (found, ())


def write(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
        CannotWrite: the disk is full.
    """
    try:
        write_atomically(path, data)
    except OSError as error:
        raise unwritable(path, error) from None

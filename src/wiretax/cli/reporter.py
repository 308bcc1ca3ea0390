"""Shows progress on stderr: a bar with time left and money spent on a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Any, Self, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from wiretax.cli.output import write_line
from wiretax.jobs.progress import Progress
from wiretax.show.plain import clean, short
from wiretax.units import money, percent

SECONDS_BETWEEN_LINES = 5.0


class _Unbroken:
    """A stream whose terminal may go away (an ssh connection that breaks) without ending the measurement."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Like the stream's, or as if."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Like the stream's, or not at all."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self._stream, name)


class Reporter:
    """Takes the reports of a job; use it as a context manager around the job."""

    def __init__(self, console: Console | None = None) -> None:
        """Args: console: of stderr; made here when None."""
        self._console = console or (Console(stderr=True) if sys.stderr is None else Console(file=cast("TextIO", _Unbroken(sys.stderr))))
        # A dumb terminal cannot redraw a line.
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last_line: float | None = None

    def __enter__(self) -> Self:
        """Starts the bar, where there is one."""
        if self._live:
            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("starting", total=1.0, left="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Shows one report."""
        room = max(20, self._console.width - 24 - 34)
        what = short(clean(progress.stage) + (f": {clean(progress.detail)}" if progress.detail else ""), room if self._live else 200)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=min(1.0, max(0.0, progress.fraction)), description=what, left=_rest(progress))
            return
        due = self._last_line is None or progress.seconds_elapsed - self._last_line >= SECONDS_BETWEEN_LINES
        if due:
            self._last_line = progress.seconds_elapsed
            write_line(sys.stderr, f"wiretax: {what} ({progress.seconds_elapsed:.0f} s, {_rest(progress)})")


def _rest(progress: Progress) -> str:
    """Time left, and money spent where a price is known."""
    parts = [f"{progress.seconds_left:.0f} s left"] if progress.seconds_left is not None else [f"{percent(progress.fraction)} done"]
    if progress.money_spent is not None and progress.currency is not None:
        parts.append(f"{money(progress.money_spent, clean(progress.currency))} so far")
    return ", ".join(parts)

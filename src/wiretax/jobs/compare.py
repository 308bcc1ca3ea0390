"""Runs side by side: the same machine before and after, two providers, two versions of NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from wiretax.errors import UsageError
from wiretax.jobs.report import loaded, write
from wiretax.judge.compare import compare as _compare
from wiretax.judge.gate import parse
from wiretax.model.comparison import Comparison
from wiretax.model.run import Run


def compare(
    runs: Sequence[Run | str | Path],
    *,
    labels: Sequence[str] = (),
    fail_if: Sequence[str] = (),
    every_size: bool = False,
    html: Path | None = None,
    share: bool = False,
) -> Comparison:
    """Compares runs with the first one; the same as ``wiretax compare A B``.

    Args:
        runs: two or more runs, ids or files.
        labels: what to call them; ``A``, ``B``, ... where there are fewer.
        fail_if: gates such as ``all_reduce_busbw_peak_bytes_per_second.default.2:-5%``, against the first run.
        every_size: also the time at each message size.
        html: also write a page with all runs in each chart.
        share: redact the runs first, see :func:`wiretax.jobs.report.report`.

    Raises:
        UsageError: fewer than two runs, labels that are not one each, an expression that is none or names what was not measured.
        BadInput: a run that is not there or cannot be read.
        MissingDependency: with ``html``, ``wiretax[report]`` is not installed.
    """
    comparison, page = compared(runs, labels=labels, fail_if=fail_if, every_size=every_size, share=share)
    if html is not None:
        write(html, page().encode("utf-8"))
    return comparison


def compared(
    runs: Sequence[Run | str | Path],
    *,
    labels: Sequence[str] = (),
    fail_if: Sequence[str] = (),
    every_size: bool = False,
    share: bool = False,
) -> tuple[Comparison, Callable[[], str]]:
    """The comparison, and what draws its page: see :func:`compare`."""
    if len(runs) < 2:
        raise UsageError("A comparison needs two runs or more.", do="wiretax compare RUN1 RUN2")
    if len(labels) > len(runs) or len(set(labels)) != len(labels):
        raise UsageError("Labels must be different, and at most one for each run.", do="--label before --label after")
    gates = [parse(text) for text in fail_if]
    found = [loaded(run, share=share) for run in runs]
    comparison = _compare([run for run, _ in found], labels, gates=gates, every_size=every_size)

    def page() -> str:
        from wiretax.show.html import comparison_as_html

        removed = tuple(dict.fromkeys(text for _, gone in found for text in gone))
        return comparison_as_html(comparison, [run for run, _ in found], removed=removed)

    return comparison, page

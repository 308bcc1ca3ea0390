"""The runs on this disk: list, tag, remove, export; and a run as flat numbers for a tracker."""

from __future__ import annotations

import csv
import fnmatch
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wiretax.errors import BadDocument, UsageError, unwritable
from wiretax.judge.gate import as_metrics as _as_metrics
from wiretax.model.run import Run
from wiretax.show.series import Labelled, wire_points
from wiretax.store.codec import decode_run
from wiretax.store.folder import find_run, read_bytes, runs_folder, save_run
from wiretax.store.index import Summary, summaries

CSV_COLUMNS = (
    "run_id",
    "created_at",
    "gpus",
    "tags",
    "operation",
    "wire",
    "world_size",
    "mode",
    "num_bytes",
    "seconds",
    "busbw_bytes_per_second",
    "unstable",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs; every part that is given must fit.

    Attributes:
        gpu: part of a GPU's name, any case.
        tags: all of them.
        command: ``check``, ``inspect``, ...
        code: a finding's code; ``*`` stands for anything.
        since: not older than this.
        decision: of the verdict.
    """

    gpu: str | None = None
    tags: tuple[str, ...] = ()
    command: str | None = None
    code: str | None = None
    since: timedelta | None = None
    decision: str | None = None


def list_runs(chosen: Filter | None = None, folder: Path | None = None, *, now: datetime | None = None) -> list[Summary]:
    """The runs that fit, newest first. A file that is no run is listed with its problem, unless a filter is given.

    Args:
        chosen: all when None.
        folder: the user's runs when None.
        now: for ``since``.
    """
    wanted = chosen or Filter()
    oldest = ((now or datetime.now(UTC)) - wanted.since) if wanted.since is not None else None
    return [one for one in summaries(folder) if _fits(one, wanted, oldest)]


def tag_run(name: str | Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """Changes the tags of a run and saves it; nothing else of the document changes.

    Returns:
        Its tags now.

    Raises:
        BadInput: no such run, or it cannot be read.
        UsageError: a tag is empty or holds a comma, or the file cannot be written.
    """
    path = find_run(name)
    run = decode_run(read_bytes(path), str(path))
    for tag in add:
        if not tag.strip() or "," in tag or not tag.isprintable():
            raise UsageError(f"{tag!r} is no tag.", do="Use a word or two without commas.")
    gone = set(remove)
    tags = tuple(tag for tag in dict.fromkeys([*run.tags, *add]) if tag not in gone)
    try:
        save_run(replace(run, tags=tags), path)
    except OSError as error:
        raise unwritable(path, error) from None
    return tags


def prune_runs(
    *,
    keep: int | None = None,
    older_than: timedelta | None = None,
    folder: Path | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> list[Summary]:
    """Removes old runs; tagged ones and files that are no runs always stay.

    Args:
        keep: the newest so many stay.
        older_than: only runs older than this go.
        folder: the user's runs when None.
        dry_run: only says which.
        now: for ``older_than``.

    Returns:
        What was (or would be) removed, newest first.

    Raises:
        UsageError: neither bound is given, or a file cannot be removed.
    """
    if keep is None and older_than is None:
        raise UsageError("Nothing says which runs may go.", do="--keep 100 or --older-than 30d")
    known = [one for one in summaries(folder) if one.problem is None]
    doomed = known[keep:] if keep is not None else known
    if older_than is not None:
        oldest = (now or datetime.now(UTC)) - older_than
        doomed = [one for one in doomed if (made := _time(one)) is not None and made < oldest]
    doomed = [one for one in doomed if not one.tags]
    for one in [] if dry_run else doomed:
        try:
            Path(one.path).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{one.path} cannot be removed: {error.strerror or error}.") from None
    return doomed


def points_csv(runs: Sequence[Summary]) -> str:
    """One table of every measured point of these runs, a row a message size; runs that cannot be read are left out."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for one in runs:
        if one.problem is not None:
            continue
        try:
            run = decode_run(read_bytes(Path(one.path)), one.path)
        except BadDocument:
            continue
        for p in wire_points([Labelled("", run)]):
            first = (_text(one.run_id), one.created_at, _text(one.gpus), _text(" ".join(one.tags)), p.operation, _text(p.wire))
            writer.writerow((*first, p.world_size, p.mode, p.num_bytes, p.seconds, p.busbw, int(p.unstable)))
    return page.getvalue()


def as_metrics(run: Run) -> dict[str, float]:
    """A run as flat numbers for TensorBoard, MLflow, W&B or a gate: the names ``--fail-if`` knows (``wiretax.judge.gate`` lists them)."""
    return _as_metrics(run)


def folder_of_runs() -> Path:
    """Where the user's runs are kept."""
    return runs_folder()


def _fits(one: Summary, wanted: Filter, oldest: datetime | None) -> bool:
    if one.problem is not None:
        return wanted == Filter()
    made = _time(one)
    return (
        (wanted.gpu is None or wanted.gpu.lower() in one.gpus.lower())
        and set(wanted.tags) <= set(one.tags)
        and (wanted.command is None or wanted.command == one.command)
        and (wanted.code is None or bool(fnmatch.filter(one.codes, wanted.code)))
        and (wanted.decision is None or wanted.decision == one.decision)
        and (oldest is None or (made is not None and made >= oldest))
    )


def _time(one: Summary) -> datetime | None:
    try:
        made = datetime.fromisoformat(one.created_at)
    except ValueError:
        return None
    return made if made.tzinfo is not None else made.replace(tzinfo=UTC)


def _text(value: str) -> str:
    """A cell that a spreadsheet takes as text: one that begins like a formula gets an apostrophe."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value

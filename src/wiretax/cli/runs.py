"""``wiretax runs``: the runs kept on this disk."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wiretax.cli.quantities import Whole
from wiretax.cli.values import Kind

if TYPE_CHECKING:
    from rich.console import Console

    from wiretax.store.index import Summary

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|w)")
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


class Age(Kind):
    """``12h``, ``30d``, ``2w``: a time span back from now."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The span of a text."""
        if isinstance(value, timedelta):
            return value
        match = _AGE.fullmatch(str(value).strip().lower())
        if match is None or float(match[1]) * _DAYS[match[2]] > 36500:
            self.fail(f"{value!r} is no age; write 12h, 30d or 2w.", param, ctx)
        return timedelta(days=float(match[1]) * _DAYS[match[2]])


def _filters(function: Any) -> Any:
    """The options that choose runs, the same for every sub-command."""
    for option in (
        click.option("--decision", help="Only with this verdict: use_all, use_one, fix_first, ..."),
        click.option("--since", type=Age(), help="Only from the last 12h, 30d, 2w."),
        click.option("--code", help="Only with this finding; * stands for anything: p2p-*."),
        click.option("--command", "made_by", help="Only made by this command: check, inspect, ..."),
        click.option("--tag", "tags", multiple=True, help="Only with this tag. Repeatable."),
        click.option("--gpu", help="Only on machines with such a GPU: 4090."),
    ):
        function = option(function)
    return function


@click.group("runs", short_help="List, show, tag, prune and export the runs kept here.", invoke_without_command=True)
@_filters
@click.option("--json", is_flag=True, help="Print the list as JSON on stdout.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """List the runs kept on this disk, newest first; or show, tag, prune or export them."""
    if context.invoked_subcommand is not None:
        return 0
    return _list(options)


@command.command("list", short_help="List them, newest first.")
@_filters
@click.option("--json", is_flag=True, help="Print the list as JSON on stdout.")
def list_command(**options: Any) -> int:
    """List the runs kept on this disk, newest first."""
    return _list(options)


@command.command("show", short_help="Show one as it was shown when it was made.")
@click.argument("run")
@click.option("--json", is_flag=True, help="Print the run document.")
def show_command(run: str, json: bool) -> int:
    """Show a run as it was shown when it was made. RUN is an id, the beginning of one, or a file."""
    from wiretax.cli.output import print_run
    from wiretax.store.folder import load_run

    print_run(load_run(run), as_json=json)
    return 0


@command.command("tag", short_help="Add tags to one, or remove them.")
@click.argument("run")
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag away. Repeatable.")
def tag_command(run: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> int:
    """Add TAGS to a run; tagged runs are never pruned."""
    from wiretax.cli.output import say
    from wiretax.jobs.runs import tag_run

    if not tags and not remove:
        raise click.UsageError("give a tag, or --remove TAG.")
    now = tag_run(run, tags, remove)
    say(f"tags: {', '.join(now) or 'none'}")
    return 0


@command.command("prune", short_help="Remove old ones; tagged runs stay.")
@click.option("--keep", type=Whole(0, 10**9), help="Keep the newest so many.")
@click.option("--older-than", type=Age(), help="Remove only runs older than 12h, 30d, 2w.")
@click.option("--dry-run", is_flag=True, help="Only say which would go.")
def prune_command(keep: int | None, older_than: timedelta | None, dry_run: bool) -> int:
    """Remove old runs for good; runs with a tag stay."""
    from wiretax.cli.output import print_text, say
    from wiretax.jobs.runs import prune_runs

    gone = prune_runs(keep=keep, older_than=older_than, dry_run=dry_run)
    print_text("".join(f"{one.run_id}\n" for one in gone))
    say(f"{'would remove' if dry_run else 'removed'} {len(gone)} run{'' if len(gone) == 1 else 's'}")
    return 0


@command.command("export", short_help="All measured points as one CSV table.")
@_filters
@click.option("--csv", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead of stdout.")
def export_command(path: Path | None, **options: Any) -> int:
    """Write every measured point of the chosen runs as one CSV table, a row a message size."""
    from wiretax.cli.output import check_writable, print_text, say
    from wiretax.jobs.report import write
    from wiretax.jobs.runs import list_runs, points_csv

    check_writable(path)
    text = points_csv(list_runs(_chosen(options)))
    if path is None:
        print_text(text)
    else:
        write(path, text.encode("utf-8"))
        say(f"written to {path}: {text.count(chr(10)) - 1} points")
    return 0


def _chosen(options: dict[str, Any]) -> Any:
    from wiretax.jobs.runs import Filter

    return Filter(
        gpu=options["gpu"],
        tags=options["tags"],
        command=options["made_by"],
        code=options["code"],
        since=options["since"],
        decision=options["decision"],
    )


def _list(options: dict[str, Any]) -> int:
    import msgspec

    from wiretax.cli.output import print_rendered, print_text, say
    from wiretax.jobs.runs import folder_of_runs, list_runs

    found = list_runs(_chosen(options))
    if options["json"]:
        print_text(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n")
    elif found:
        print_rendered(lambda console: _render(found, console))
    else:
        say(f"no such run in {folder_of_runs()}; `wiretax check` makes one")
    return 0


def _render(found: list[Summary], console: Console) -> None:
    """A line a run. Plain text lines: a table of ten thousand rows would take longer to lay out than to read from disk."""
    from wiretax.show.plain import clean
    from wiretax.units import rate

    width = max(len(one.run_id[:32]) for one in found)
    gpus = min(34, max(len(one.gpus) for one in found))
    lines = []
    for one in found:
        if one.problem is not None:
            lines.append(f"{clean(one.run_id, 32):{width}}  {clean(one.problem, 120)}")
            continue
        speed = rate(one.busbw_bytes_per_second) if one.busbw_bytes_per_second else ""
        keep = {True: "keep", False: "give back", None: ""}[one.keep_box]
        words = ", ".join(
            word for word in ((one.decision or "").replace("_", " "), keep, one.worst if one.worst != "info" else None) if word
        )
        tags = f"  [{clean(', '.join(one.tags), 60)}]" if one.tags else ""
        made = clean(one.created_at, 25)[:16].replace("T", " ")
        what = clean(one.gpus, 200)[:gpus]
        start = f"{clean(one.run_id, 32):{width}}  {made:16}  {clean(one.command, 9):8}"
        lines.append(f"{start}  {what:{gpus}}  {speed:>9}  {words}{tags}".rstrip())
    if console.is_terminal:  # other programs read lines of runs, or --json
        lines.insert(0, f"{'run':{width}}  {'made':16}  {'command':8}  {'machine':{gpus}}  {'busbw':>9}  verdict")
    text = "\n".join(lines)
    console.file.write(text.encode(console.encoding, "replace").decode(console.encoding) + "\n")

"""``wiretax report``: a run as a page, as text to paste, as single charts."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report", short_help="Make a page, charts or text of a saved run.")
@click.argument("run")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file; RUN_ID.html by default.")
@click.option("--share", is_flag=True, help="Leave out host names, addresses, UUIDs, serials, users and paths, and say what was removed.")
@click.option("--markdown", is_flag=True, help="Print text for an issue thread instead; redacted unless --no-redact is given.")
@click.option("--svg", "svg", type=click.Path(path_type=Path, file_okay=False), help="Write each chart as an SVG file into this folder.")
@click.option("--png", "png", type=click.Path(path_type=Path, file_okay=False), help="Write each chart as a PNG file into this folder.")
@click.option("--chart", "charts", multiple=True, metavar="NAME", help="With --svg or --png: only this one. Repeatable.")
@click.option("--still", is_flag=True, help="A page without scripts: still pictures only, 400 kB smaller.")
@click.option("--no-redact", is_flag=True, help="With --markdown: keep names, addresses and paths.")
def command(
    run: str,
    html: Path | None,
    share: bool,
    markdown: bool,
    svg: Path | None,
    png: Path | None,
    charts: tuple[str, ...],
    still: bool,
    no_redact: bool,
) -> int:
    """Make one HTML page of a run that needs nothing else: no server, no network, readable without scripts, prints.

    RUN is an id (`wiretax runs` lists them), the beginning of one, or a file. Charts need
    what `make report` installs in a clone, or pip install 'wiretax[report]'.
    """
    from wiretax.cli.output import check_writable, print_text, say
    from wiretax.jobs.report import report, report_charts, report_markdown
    from wiretax.jobs.share import shared
    from wiretax.store.folder import load_run

    if charts and svg is None and png is None:
        raise click.UsageError("--chart goes with --svg or --png.")
    if no_redact and (share or not markdown):
        raise click.UsageError("--no-redact goes with --markdown, and not with --share.")
    found = load_run(run)
    if markdown:
        print_text(report_markdown(found, share=not no_redact))
    for form, folder in (("svg", svg), ("png", png)):
        if folder is not None:
            for path in report_charts(found, folder, form, charts, share=share):  # type: ignore[arg-type]
                say(f"written to {path}")
    if html is None and (markdown or svg is not None or png is not None):
        return 0
    target = html if html is not None else Path(f"{_file_name(found.run_id)}.html")
    check_writable(target)
    report(found, target, share=share, interactive=not still)
    if share:
        removed = shared(found)[1]
        say(f"removed: {', '.join(removed) if removed else 'nothing, there were no names, addresses, UUIDs or private paths'}")
    say(f"written to {target}")
    return 0


def _file_name(run_id: str) -> str:
    """A run's id as a plain file name, whatever a document claims its id is."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in run_id)[:80].lstrip(".") or "run"

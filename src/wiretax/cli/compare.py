"""``wiretax compare``: runs side by side, and gates on the difference."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("compare", short_help="Say what differs between saved runs, and how surely.")
@click.argument("runs", nargs=-1, required=True, metavar="A B [C]...")
@click.option("--label", "labels", multiple=True, help="What to call A, then B, ...: --label before --label after.")
@click.option("--fail-if", multiple=True, metavar="METRIC:-5%", help="Exit with 1 when this is true of any run against A. Repeatable.")
@click.option("--all", "everything", is_flag=True, help="List the figures that are the same too, and the time at each message size.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with all runs in each chart to this file.")
@click.option("--markdown", is_flag=True, help="Print text for an issue thread; redacted.")
@click.option("--share", is_flag=True, help="Leave out host names, addresses, UUIDs, serials, users and paths.")
@click.option("--json", is_flag=True, help="Print the comparison as one JSON document, and nothing else, on stdout.")
def command(
    runs: tuple[str, ...],
    labels: tuple[str, ...],
    fail_if: tuple[str, ...],
    everything: bool,
    html: Path | None,
    markdown: bool,
    share: bool,
    json: bool,
) -> int:
    """Say what differs between runs and how surely: before and after a change, two providers, two versions of NCCL.

    Every run is set against the first. A figure differs when the interval of the ratio (bootstrap, 99 %) leaves out 1 and the medians are
    more than 2 % apart. Two runs of an unchanged but busy machine may differ more than their samples show.

    \b
    --fail-if METRIC:-5%      true when METRIC fell by more than 5 % against A
    --fail-if METRIC:+10%     ... rose by more than 10 %, for times
    --fail-if METRIC<20GB/s   an absolute value
    """
    import msgspec

    from wiretax.cli.output import check_writable, print_rendered, print_text, say
    from wiretax.jobs.compare import compared
    from wiretax.jobs.report import write
    from wiretax.show.comparison import render_comparison
    from wiretax.show.markdown import comparison_as_markdown

    if json and markdown:
        raise click.UsageError("--json and --markdown exclude each other.")
    check_writable(html)
    found, page = compared(runs, labels=labels, fail_if=fail_if, every_size=everything, share=share or markdown)
    try:
        if html is not None:
            write(html, page().encode("utf-8"))
            say(f"written to {html}")
    finally:  # what differs is shown, whatever became of the page
        if json:
            print_text(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n")
        elif markdown:
            print_text(comparison_as_markdown(found))
        else:
            print_rendered(lambda console: render_comparison(found, console, everything=everything))
    closed = [gate for gate in found.gates if gate.true]
    for gate in closed:
        for reason in gate.reasons:
            say(f"--fail-if {gate.text} is true of {found.sides[gate.side].label}: {reason}")
    return 1 if closed else 0

"""``wiretax diagnose``: cause and fix from pasted text."""

from __future__ import annotations

import click


@click.command("diagnose", short_help="Name cause and fix from pasted text or logs; no GPU needed.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--markdown", is_flag=True, help="Print Markdown to paste into an issue thread; redacted.")
@click.option("--redact/--no-redact", default=None, help="Take out host names, addresses, UUIDs, users and paths. Default with --markdown.")
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning too.")
def command(files: tuple[str, ...], json: bool, markdown: bool, redact: bool | None, strict: bool) -> int:
    """Name cause and fix from what people paste: no GPU, no torch, no network.

    Reads nvidia-smi in all its forms, NCCL and RCCL logs, nccl-tests, nvbandwidth, torch's watchdog, dmesg, lspci, ip, ulimit,
    rocm-smi, package lists and training timings, however they are cut, prefixed or mixed; `-` is standard input, gzip is unpacked.
    Each finding has the lines it rests on, how sure it is, what to do, and the command that would prove it wrong.

    \b
    wiretax diagnose topo.txt nccl.log
    nvidia-smi topo -m | wiretax diagnose -
    wiretax diagnose --markdown *.log > answer.md
    """
    from wiretax.cli.output import print_rendered, print_run, print_text, say
    from wiretax.jobs.diagnose import diagnose, redacted, unreadable
    from wiretax.judge.exit_code import USAGE, exit_code
    from wiretax.show.diagnosis import render_diagnosis
    from wiretax.show.diagnosis_markdown import diagnosis_as_markdown

    if json and markdown:
        raise click.UsageError("--json and --markdown exclude each other.")
    run = diagnose(files)
    for note in unreadable(run):
        say(f"error: {note.text} {note.do}".rstrip())
    shown, removed = redacted(run) if (markdown if redact is None else redact) else (run, ())
    if markdown:
        print_text(diagnosis_as_markdown(shown, removed=removed))
    elif json:
        print_run(shown, as_json=True)
    else:
        print_rendered(lambda console: render_diagnosis(shown, console))
    return USAGE if unreadable(run) else exit_code(run, strict=strict)

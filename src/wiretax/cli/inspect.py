"""``wiretax inspect``: facts only, no load."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("inspect", short_help="List what the driver and Linux say, without any load.")
@click.option(
    "--record", type=click.Path(path_type=Path, dir_okay=False), help="Write the machine, without names and addresses, to this file."
)
@click.option("--machine", help="Show a recorded machine instead of this one: a file, or the name of one that comes with wiretax.")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--no-redact", is_flag=True, help="With --record: keep host name, addresses, UUIDs and paths.")
def command(record: Path | None, machine: str | None, json: bool, no_redact: bool) -> int:
    """List what the driver and Linux say of this machine, without any load and without torch.

    GPUs, how each pair is joined, peer-to-peer status, PCIe links, software and surroundings; what cannot be read says why.
    """
    from wiretax.cli.output import check_writable, print_run, say
    from wiretax.jobs.inspect import inspect, record_machine
    from wiretax.judge.exit_code import exit_code

    if no_redact and record is None:
        raise click.UsageError("--no-redact goes with --record.")
    check_writable(record)
    run = inspect(machine=machine)
    try:
        if record is not None and run.machine is not None:
            record_machine(run.machine, record, redacted=not no_redact)
            say(f"written to {record}")
    finally:  # what was found is shown, whatever became of the file
        print_run(run, as_json=json)
    return exit_code(run)

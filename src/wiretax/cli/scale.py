"""``wiretax scale``: really trains, and prints predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wiretax.cli.quantities import Counts, Words
from wiretax.cli.training_options import subject_of, subject_options
from wiretax.cli.values import Amount, Currency, TimeSpan, price_of


@click.command("scale", short_help="Really train at 1..N GPUs; predicted beside measured.")
@subject_options
@click.option("--gpus", type=Counts("GPUs"), help="Numbers of GPUs (or CPU ranks): 1,2,4. Without it 1, 2, 4, ... up to all.")
@click.option(
    "--strategy", type=Words(), default="ddp", show_default=True, help="Also fsdp2, fsdp2_grad_op, hsdp, tp, tp_ddp, zero1; FULL_SHARD, ..."
)
@click.option(
    "--scaling",
    type=click.Choice(["weak", "strong"]),
    default="weak",
    show_default=True,
    help="weak: --batch is per GPU. strong: over all.",
)
@click.option("--wires", type=Words(), help="Train over these: default,p2p_off,socket,gloo. Without it the wire as found.")
@click.option("--steps", type=click.IntRange(5, 1000), default=20, show_default=True, help="Timed for each configuration.")
@click.option("--budget", type=TimeSpan(), help="Hard limit for everything; 10m without it.")
@click.option("--price", type=Amount(), help="What one GPU costs an hour.")
@click.option("--box-price", type=Amount(), help="What the whole box costs an hour.")
@click.option("--currency", type=Currency(), help="Of the price: EUR, USD, ...")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the run document to this file as well.")
@click.option("--no-save", is_flag=True, help="Do not keep the run in the folder of runs.")
def command(**options: Any) -> int:
    """Really train at 1, 2, 4, ... N GPUs, and set what one GPU had predicted beside it.

    \b
    wiretax scale --gpus 1,2,4 --preset gpt1.7b --strategy ddp,FULL_SHARD
    wiretax scale --gpus 1,2 --device cpu

    Measures the wire, profiles the step on one GPU, then trains every configuration in a process of its own. A rank that dies or
    hangs costs its own configuration; what was measured is kept, and the exit code is 3.
    """
    from wiretax.cli.main import STARTED
    from wiretax.cli.output import check_writable, keep, print_run
    from wiretax.cli.reporter import Reporter
    from wiretax.jobs.scale import BUDGET_SECONDS, ScaleOptions, scale
    from wiretax.judge.exit_code import CANNOT_JUDGE, exit_code

    check_writable(options["out"])
    given = any(options[name] is not None for name in ("preset", "config", "step"))
    changed = options["sequence_length"] or options["precision"] or options["checkpointing"] or options["compiled"]
    if not given and (changed or options["accumulation_steps"] > 1 or options["settings"]):
        raise click.UsageError("say which step these settings are for: --preset, --config or --step.")
    wanted = ScaleOptions(
        subject=subject_of(options) if given else None,
        batches=options["batch"] or (),
        counts=options["gpus"],
        strategies=options["strategy"],
        scaling=options["scaling"],
        wires=options["wires"],
        steps=options["steps"],
        device=options["device"],
        budget_seconds=options["budget"] or BUDGET_SECONDS,
        price=price_of(options["price"], options["box_price"], options["currency"]),
        started=STARTED,
    )
    with Reporter() as reporter:
        run = scale(wanted, reporter)
    kept = keep(run, save=not options["no_save"], out=options["out"])
    print_run(run, as_json=options["json"])
    return exit_code(run) if kept else CANNOT_JUDGE

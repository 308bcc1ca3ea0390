"""``wiretax check``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from wiretax.cli.values import Amount, Currency, GpuList, NameList, TimeSpan, price_of
from wiretax.model.measurement import OPERATIONS

WIRES = ("default", "clean", "p2p_off", "p2p_forced", "socket", "gloo")
Level = Literal["quick", "default", "full"]


@click.command("check", short_help="Measure this machine and judge it.")
@click.option("--quick", is_flag=True, help="20 s: the wire as found and with P2P off, two operations.")
@click.option("--full", is_flag=True, help="Up to 10 minutes: every wire, operation and size.")
@click.option("--budget", type=TimeSpan(), help="All the time it may take, start-up included: 60, 60s, 2m.")
@click.option("--price", type=Amount(), help="What one GPU costs an hour; adds money to the answer.")
@click.option("--box-price", type=Amount(), help="What the whole box costs an hour.")
@click.option("--currency", type=Currency(), help="Of the price: EUR, USD, ...")
@click.option("--gpus", type=GpuList(), help="Only these CUDA ordinals: 0,1.")
@click.option("--cpu-ranks", type=click.IntRange(1, 64), help="Measure that many CPU ranks over gloo instead of GPUs.")
@click.option("--fail-if", multiple=True, metavar="METRIC:-5%", help="Exit with 1 when this is true; also METRIC<VALUE. Repeatable.")
@click.option("--operations", type=NameList(OPERATIONS), help="Only these collectives: all_reduce,all_gather.")
@click.option("--wires", type=NameList(WIRES), help="Only these wires, and nothing else: default,p2p_off,socket,gloo.")
@click.option("--require-gpu", is_flag=True, help="Without a GPU, exit with 3 instead of measuring CPU ranks.")
@click.option("--strict", is_flag=True, help="Exit with 1 for a warning too.")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the run document to this file as well.")
@click.option("--no-save", is_flag=True, help="Do not keep the run in the folder of runs.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """Measure this machine and judge it.

    Says how the GPUs are joined, what the wires between them deliver against what this machine should deliver, what is wrong
    and what to do, and whether to keep the box. Takes about a minute. Without a GPU, CPU ranks are measured.

    \b
    --fail-if METRIC:-5%      true when METRIC is 5 % below what it should reach
    --fail-if METRIC<20GB/s   true when METRIC is below that

    A METRIC is called like all_reduce_busbw_peak_bytes_per_second.default.2; a wrong one lists the near names.
    """
    from wiretax.cli.gates import closed_gates
    from wiretax.cli.main import STARTED
    from wiretax.cli.output import check_writable, keep, print_run
    from wiretax.cli.reporter import Reporter
    from wiretax.jobs.check import CheckOptions, check
    from wiretax.judge.exit_code import CANNOT_JUDGE, exit_code
    from wiretax.judge.gate import parse

    check_writable(options["out"])
    gates = [parse(text) for text in options["fail_if"]]
    if options["gpus"] is not None and options["cpu_ranks"] is not None:
        raise click.UsageError("--gpus and --cpu-ranks exclude each other.")
    if options["require_gpu"] and options["cpu_ranks"] is not None:
        raise click.UsageError("--require-gpu and --cpu-ranks exclude each other.")
    wanted = CheckOptions(
        level=_level(context),
        budget_seconds=options["budget"],
        gpus=options["gpus"],
        cpu_ranks=options["cpu_ranks"],
        require_gpu=options["require_gpu"],
        operations=options["operations"],
        wires=options["wires"],
        price=price_of(options["price"], options["box_price"], options["currency"]),
        started=STARTED,
    )
    with Reporter() as reporter:
        run = check(wanted, reporter)
    kept = keep(run, save=not options["no_save"], out=options["out"])
    print_run(run, as_json=options["json"])
    code = exit_code(run, strict=options["strict"])
    if gates and code < CANNOT_JUDGE:
        code = exit_code(run, strict=options["strict"], fail_if_true=closed_gates(run, gates))
    return code if kept else max(code, CANNOT_JUDGE)


def _level(context: click.Context) -> Level:
    """``--quick`` or ``--full``; where a file or variable says one and the command line the other, the command line wins.

    Raises:
        click.UsageError: both come from the same place.
    """
    strength = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)
    said = {name: context.get_parameter_source(name) for name in ("quick", "full") if context.params[name]}
    if len(said) == 2:
        if said["quick"] == said["full"]:
            raise click.UsageError("--quick and --full exclude each other.")
        strongest = next(source for source in strength if source in said.values())
        return "quick" if said["quick"] == strongest else "full"
    if "quick" in said:
        return "quick"
    return "full" if "full" in said else "default"

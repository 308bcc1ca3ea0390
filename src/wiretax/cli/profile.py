"""``wiretax profile``: one training step on one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wiretax.cli.quantities import MOST_GPUS, Counts, Whole, Words
from wiretax.cli.training_options import subject_of, subject_options
from wiretax.cli.values import TimeSpan


@click.command("profile", short_help="Profile a training step on ONE GPU; predict needs no more.")
@subject_options
@click.option(
    "--strategy",
    type=Words(),
    default="ddp,fsdp2,tp",
    show_default=True,
    help="Profiled with communication free; also fsdp2_grad_op, zero1, ...",
)
@click.option(
    "--world-size", type=Counts("GPUs"), default="2", show_default=True, help="GPUs that FSDP2 and TP are to think there are: 2,4,8."
)
@click.option("--gpu", type=Whole(0, MOST_GPUS), help="CUDA ordinal of the GPU; the first usable one without it.")
@click.option(
    "--cpu-ranks", type=click.IntRange(1, 64), default=2, show_default=True, help="Without a GPU: CPU ranks that run the step at once."
)
@click.option("--budget", type=TimeSpan(), help="Hard limit for everything; 3m without it. Rarely a third of it is needed.")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the run document, with the profile, to this file.")
@click.option("--no-save", is_flag=True, help="Do not keep the run in the folder of runs.")
def command(**options: Any) -> int:
    """Profile one training step on ONE GPU, bare and under each strategy with communication made free.

    \b
    wiretax profile --preset gpt1.7b --batch 4 --out profile.json
    wiretax profile --step my_training:step --batch 8,16 --strategy ddp,fsdp2 --out profile.json
    wiretax predict --profile profile.json --wire RUN --gpus 2,4,8

    Your own step is a function that takes a device and returns wiretax.Step(model, make_optimizer, make_batch, loss); the module is
    looked for in this folder. Needs torch; works on CPU ranks too.
    """
    from wiretax.cli.main import STARTED
    from wiretax.cli.output import check_writable, keep, print_run
    from wiretax.cli.reporter import Reporter
    from wiretax.jobs.profile import BUDGET_SECONDS, ProfileOptions, profile
    from wiretax.judge.exit_code import CANNOT_JUDGE, exit_code

    check_writable(options["out"])
    wanted = ProfileOptions(
        subject=subject_of(options),
        batches=options["batch"] or (),
        strategies=options["strategy"],
        world_sizes=options["world_size"],
        device=options["device"],
        gpu=options["gpu"],
        cpu_ranks=options["cpu_ranks"],
        budget_seconds=options["budget"] or BUDGET_SECONDS,
        started=STARTED,
    )
    with Reporter() as reporter:
        run = profile(wanted, reporter)
    kept = keep(run, save=not options["no_save"], out=options["out"])
    print_run(run, as_json=options["json"])
    return exit_code(run) if kept else CANNOT_JUDGE

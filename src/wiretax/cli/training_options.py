"""What `profile` and `scale` both ask: which step, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wiretax.cli.quantities import MOST_MICRO_STEPS, MOST_TOKENS, Counts, Whole

if TYPE_CHECKING:
    from wiretax.jobs.training_stages import Subject

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--preset", help="A built-in workload: gpt124m, gpt350m, gpt1.7b, llama350m, encoder110m, resnet50, ..."),
    click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="A Hugging Face config.json, trained on random words."),
    click.option("--step", metavar="MODULE:FUNCTION", help="Your own step: a function that takes a device and returns a wiretax.Step."),
    click.option(
        "--batch", type=Counts("batch sizes", 2**30), help="Samples per GPU and micro-step; several: 4,16. Presets have their own."
    ),
    click.option("--sequence-length", type=Whole(1, MOST_TOKENS), help="Tokens a sample; the preset's own without it."),
    click.option("--precision", type=click.Choice(["mixed", "bf16", "fp32"]), help="mixed: fp32 weights under bf16 autocast."),
    click.option(
        "--accumulation-steps", type=Whole(1, MOST_MICRO_STEPS), default=1, show_default=True, help="Micro-steps an optimizer step."
    ),
    click.option("--checkpointing", is_flag=True, help="Checkpoint activations, block by block."),
    click.option("--compile", "compiled", is_flag=True, help="torch.compile each block."),
    click.option("--set", "settings", multiple=True, metavar="LEVER=VALUE", help="A lever by torch's name: bucket_cap_mb=50. Repeatable."),
    click.option(
        "--device", type=click.Choice(["auto", "cuda", "cpu"]), default="auto", show_default=True, help="auto: GPUs where there are any."
    ),
)


def subject_options(command: Command) -> Command:
    """Adds the options to a command, above its own."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def subject_of(options: dict[str, Any]) -> Subject:
    """The step that the options describe.

    Args:
        options: of the command.

    Raises:
        click.UsageError: no source, or two.
        UsageError: a lever that is not there.
    """
    from wiretax.cli.quantities import levers
    from wiretax.jobs.training_stages import Subject
    from wiretax.train.strategy import Options
    from wiretax.train.workload import Settings

    given = [name for name in ("preset", "config", "step") if options[name] is not None]
    if len(given) > 1:
        raise click.UsageError(f"--{given[0]} and --{given[1]} are two steps; give one.")
    if not given:
        raise click.UsageError("say which step: --preset gpt124m, --config config.json, or --step module:function.")
    source = str(options[given[0]])
    if given == ["step"] and ":" not in source:
        raise click.UsageError(f"--step {source}: write module:function.")
    if given == ["config"] and not source.endswith(".json"):
        raise click.UsageError(f"--config {source}: a config.json is named ....json.")
    return Subject(
        source=source,
        settings=Settings(
            sequence_length=options["sequence_length"],
            precision=options["precision"],
            accumulation_steps=options["accumulation_steps"],
            activation_checkpointing=options["checkpointing"],
            compiled=options["compiled"],
        ),
        levers=levers(options["settings"], Options),
    )

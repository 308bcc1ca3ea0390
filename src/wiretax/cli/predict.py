"""``wiretax predict``: from saved or typed figures, without a GPU and without torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wiretax.cli.quantities import MOST_MICRO_STEPS, MOST_TOKENS, Counts, Parameters, Rate, ShortTime, Size, Whole, Words

if TYPE_CHECKING:
    from wiretax.jobs.model_size import ModelSize


@click.command("predict", short_help="What N GPUs will take, from one GPU's profile and a wire.")
@click.option("--profile", metavar="FILE|RUN", help="One GPU's profile: a file or run of `wiretax profile` (or `scale`).")
@click.option("--wire", metavar="RUN", help="A run that measured the wire: a file or id of `wiretax check` (or `scale`).")
@click.option("--wires", type=Words(), help="Which wires of that run: default,p2p_off,socket. Without it: default.")
@click.option(
    "--from", "tables", multiple=True, metavar="FILE", help="The wire from output of nccl-tests instead. Repeatable, an operation each."
)
@click.option("--busbw", type=Rate(), help="The wire as one typed busbw instead: 22GB/s, 176Gbit/s.")
@click.option("--latency", type=ShortTime(), help="With --busbw: start-up of one call on 2 GPUs: 20us.")
@click.option(
    "--strategy",
    type=Words(),
    default="ddp",
    show_default=True,
    help="Also fsdp2, fsdp2_grad_op, hsdp, tp, tp_ddp, zero1, zero2, pp, powersgd; FULL_SHARD, ...",
)
@click.option("--gpus", type=Counts("GPUs"), default="2,4,8", show_default=True, help="Numbers of GPUs.")
@click.option("--batch", type=Counts("batch sizes", 2**30), help="Samples per GPU and micro-step; the profile's own without it.")
@click.option("--accumulation-steps", type=Whole(1, MOST_MICRO_STEPS), help="Micro-steps an optimizer step.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="LEVER=VALUE",
    help="A lever by torch's name: bucket_cap_mb=50, comm_hook=bf16_compress. Repeatable.",
)
@click.option("--grad-bytes", type=Size(), help="Without a profile: bytes of gradients, 200MB. Gives the bare all-reduce.")
@click.option("--params", type=Parameters(), help="Without a profile: number of parameters, 7e9 or 1.7B.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Without a profile: a Hugging Face config.json; memory too."
)
@click.option("--preset", help="Without a profile: the shape of a built-in workload (gpt1.7b); memory too.")
@click.option(
    "--recipe",
    help="Bytes a parameter, for --params, --config, --preset: adamw_bf16, adamw_mixed, adamw_fp32, adamw_master, sgd, lora, ...",
)
@click.option("--sequence-length", type=Whole(1, MOST_TOKENS), help="Tokens a sample, for --config and --preset.")
@click.option("--checkpointing", is_flag=True, help="Activations are checkpointed, for --config and --preset.")
@click.option("--gpu-memory", type=Size(), help="Memory of one GPU, to say what fits: 24GiB.")
@click.option(
    "--step-time",
    type=ShortTime(),
    help="The step as timed on ONE GPU of the wire's machine, 90ms: stretches a profile taken elsewhere; without a profile it bounds the "
    "efficiency.",
)
@click.option("--ladder", is_flag=True, help="What kinds of links give, from sockets over PCIe 3 to 6 to NVLink.")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the run document to this file as well.")
@click.option("--save", is_flag=True, help="Keep the run in the folder of runs.")
def command(**options: Any) -> int:
    """What a training step takes on N GPUs, from ONE GPU's profile and the measured wire.

    \b
    wiretax predict --profile profile.json --wire RUN --strategy ddp,fsdp2,tp --gpus 2,4,8
    wiretax predict --profile profile.json --wire RUN --step-time 92ms
    wiretax predict --profile profile.json --from all_reduce.txt --gpus 2
    wiretax predict --grad-bytes 200MB --busbw 22GB/s --gpus 2,8
    wiretax predict --ladder --params 7e9

    Every figure is a range that should hold the truth 9 times out of 10, with what it assumes. Units are read strictly: MB is
    10^6 bytes, MiB is 2^20, Gbit/s is an eighth of a GB/s.
    """
    from wiretax.cli.output import check_writable, keep, print_run
    from wiretax.cli.quantities import levers
    from wiretax.jobs.predict import PredictOptions, predict
    from wiretax.judge.exit_code import CANNOT_JUDGE, exit_code
    from wiretax.predict.options import Options

    check_writable(options["out"])
    if options["wires"] is not None and options["wire"] is None:
        raise click.UsageError("--wires chooses among the wires of --wire RUN.")
    if options["latency"] is not None and options["busbw"] is None:
        raise click.UsageError("--latency goes with --busbw.")
    model = _model(options)
    if options["profile"] is not None and model is not None:
        raise click.UsageError("--profile knows the sizes; leave out --grad-bytes, --params, --config and --preset.")
    own = {"accumulation_steps": options["accumulation_steps"]} if options["accumulation_steps"] is not None else {}
    run = predict(
        PredictOptions(
            profile=options["profile"],
            wire=options["wire"],
            wires=options["wires"],
            tables=options["tables"],
            busbw_bytes_per_second=options["busbw"],
            latency_seconds=options["latency"] or 0.0,
            model=model,
            one_gpu_seconds=options["step_time"],
            strategies=options["strategy"],
            gpus=options["gpus"],
            batches=options["batch"] or (),
            levers=levers(options["settings"], Options, **own),
            ladder=options["ladder"],
        )
    )
    kept = keep(run, save=options["save"], out=options["out"])
    print_run(run, as_json=options["json"])
    return exit_code(run) if kept else CANNOT_JUDGE


def _model(options: dict[str, Any]) -> ModelSize | None:
    """The size that was given instead of a profile, or None.

    Raises:
        click.UsageError: two sizes, or what describes one without one.
    """
    from wiretax.jobs.model_size import ModelSize

    names = [name for name in ("grad_bytes", "params", "config", "preset") if options[name] is not None]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join('--' + name.replace('_', '-') for name in names)} are two sizes; give one.")
    details = [name for name in ("recipe", "sequence_length", "gpu_memory") if options[name] is not None]
    details += ["checkpointing"] if options["checkpointing"] else []
    if not names:
        if details:
            raise click.UsageError(f"--{details[0].replace('_', '-')} goes with a size: --grad-bytes, --params, --config or --preset.")
        return None
    if options["grad_bytes"] is not None:
        return ModelSize.of_gradients(options["grad_bytes"])
    recipe = options["recipe"]
    if options["params"] is not None:
        return ModelSize.of_parameters(options["params"], recipe or "adamw_bf16")
    made = (
        ModelSize.of_preset(options["preset"], recipe)
        if options["preset"]
        else ModelSize.of_config(options["config"], recipe or "adamw_bf16")
    )
    return replace(
        made,
        batch_size=options["batch"][0] if options["batch"] else made.batch_size,
        sequence_length=options["sequence_length"] or made.sequence_length,
        checkpointing=options["checkpointing"],
        memory_bytes=options["gpu_memory"],
    )

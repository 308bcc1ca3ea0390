"""``wiretax plan``: what it costs and what to rent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wiretax.cli.plan_values import Deadline, Efficiencies, Hours, Quantity, Rates
from wiretax.cli.quantities import Counts, Parameters, Rate
from wiretax.cli.values import Amount, Currency, TimeSpan, price_of
from wiretax.model.money import Price

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("plan", short_help="What it costs and what to rent: GPUs, offer, strategy, deadline, spot.")
@click.option("--hours", type=Hours(), help="The job takes that long on ONE GPU: 40, 40h, 1d16h.")
@click.option("--samples", type=Quantity(), help="Samples to train on: 1e6, 10M.")
@click.option("--tokens", type=Quantity(), help="Tokens to train on, in place of samples.")
@click.option("--throughput", type=Rates(), help="Measured samples/s of all GPUs together: 1:15.4,2:4.5,4:14.0.")
@click.option("--efficiency", type=Efficiencies(), help="On more than one GPU, typed: 0.8, or 2:0.9,4:0.8.")
@click.option("--on", "measured_on", metavar="GPU", help="The GPU that --hours or --throughput was measured on.")
@click.option("--profile", metavar="FILE", help="A one-GPU profile of the step: predicts efficiency, time and memory.")
@click.option("--wire", "machines", multiple=True, metavar="RUN", help="A measured machine (id or file of a check). Repeatable.")
@click.option("--all-runs", "all_machines", is_flag=True, help="Use every run kept here as a measured machine.")
@click.option("--busbw", type=Rate(), help="All-reduce bus bandwidth of the wire, typed: 22GB/s.")
@click.option("--preset", metavar="NAME", help="The model, for memory: one that comes with wiretax.")
@click.option("--config", type=FILE, help="The model, for memory: its Hugging Face config.json.")
@click.option("--params", type=Parameters(), help="The model's size, where nothing else is known: 7e9, 70B.")
@click.option("--recipe", metavar="NAME", help="What training keeps: adamw_bf16, adamw_master, adamw_8bit, lora, qlora, ...")
@click.option("--trainable", type=click.FloatRange(0, 1, min_open=True), help="Share of a LoRA's parameters in the model's: 0.005.")
@click.option("--sequence", type=click.IntRange(1), help="Tokens a sample.")
@click.option("--activation-checkpointing", is_flag=True, help="Activations are recomputed, layer by layer.")
@click.option(
    "--mfu", type=click.FloatRange(0, 1, min_open=True), help="Typed model FLOPs utilisation: time on one GPU without a measurement."
)
@click.option("--batch", "batches", type=Counts("batch sizes"), help="Per GPU, to try: 4,8,16.")
@click.option("--accumulation", "accumulations", type=Counts("micro-steps"), help="Micro-steps an update, to try: 1,4.")
@click.option("--strategy", "strategies", metavar="LIST", help="Only these: ddp,fsdp2,tp.")
@click.option("--gpus", type=Counts("numbers of GPUs"), help="Numbers of GPUs to look at: 1,2,4.")
@click.option("--price", type=Amount(), help="What one GPU costs an hour.")
@click.option("--box-price", type=Amount(), help="What a box with the largest number of --gpus costs an hour, all of it.")
@click.option("--spot-price", type=Amount(), help="The same on spot, per GPU or box as the price beside it.")
@click.option("--currency", type=Currency(), help="Of the prices: EUR, USD, ...")
@click.option("--gpu", metavar="NAME", help="The GPU that the typed price is for.")
@click.option("--offers", type=FILE, multiple=True, help="A list of offers: .toml, .csv or .json. Repeatable.")
@click.option("--known-offers", is_flag=True, help="The few dated prices that come with wiretax.")
@click.option("--live", multiple=True, metavar="PROVIDER", help="Ask gpuhunt's catalogue over the network. Repeatable.")
@click.option("--deadline", type=Deadline(), help="Must be done by then: 24h, 2d, 2026-12-05T18:00.")
@click.option("--budget", type=Amount(), help="Must not cost more (with --inference: an hour).")
@click.option("--mtbf", type=TimeSpan(), help="Mean time between interruptions of a box: 6h.")
@click.option("--checkpoint", type=TimeSpan(), help="Time to save a checkpoint, upload included: 60s.")
@click.option("--restart", type=TimeSpan(), help="From losing a box to training again. Default: 5m.")
@click.option("--checkpoint-every", type=TimeSpan(), help="Work between checkpoints, in place of the best.")
@click.option("--quantile", type=float, default=0.95, show_default=True, help="Certainty with which the deadline must hold.")
@click.option("--inference", is_flag=True, help="Plan a service in place of a training job.")
@click.option("--weights", default="bf16", show_default=True, help="With --inference: bf16, fp8, int8, int4.")
@click.option("--cache", default="bf16", show_default=True, help="With --inference: type of keys and values.")
@click.option("--context", type=click.IntRange(1), default=4096, show_default=True, help="With --inference: tokens of a request.")
@click.option("--requests", type=click.IntRange(1), default=1, show_default=True, help="With --inference: answered at a time.")
@click.option("--tokens-per-second", type=float, help="With --inference: wanted, all requests together.")
@click.option("--json", is_flag=True, help="Print the run document, and nothing else, on stdout.")
@click.option("--out", type=FILE, help="Write the run document to this file as well.")
def command(**options: Any) -> int:
    """What it costs and what to rent.

    First names the constraint: the job does not fit on one GPU, or one is too slow for the deadline. With neither, one GPU it is.
    Then the cheapest offer, number of GPUs and strategy that fit, with why each of the others lost. Works on any laptop.

    \b
    wiretax plan --hours 40 --price 2 --currency USD --gpus 1,4 --efficiency 0.8
    wiretax plan --samples 1M --throughput 1:15.4,4:14.0 --on "RTX 4090" --known-offers
    wiretax plan --profile step.json --wire check.json --samples 10M --offers mine.toml --deadline 24h
    wiretax plan --params 8e9 --inference --weights int4 --gpu "RTX 4090" --price 0.4 --currency EUR
    """
    from wiretax.cli.output import check_writable, keep, print_run
    from wiretax.jobs.plan import PlanOptions, Serving, plan
    from wiretax.judge.exit_code import CANNOT_JUDGE, exit_code
    from wiretax.plan.request import RESTART_SECONDS

    check_writable(options["out"])
    price = price_of(options["price"], options["box_price"], options["currency"])
    run = plan(
        PlanOptions(
            **{name: options[name] for name in _SAME_NAMES},
            throughput=options["throughput"] or {},
            trainable_fraction=options["trainable"],
            sequence_length=options["sequence"],
            batches=options["batches"] or (),
            accumulations=options["accumulations"] or (),
            strategies=_names(options["strategies"]),
            price=price,
            spot_price=_spot(options["spot_price"], price, options["currency"]),
            deadline_hours=options["deadline"],
            mean_gap_seconds=options["mtbf"],
            checkpoint_seconds=options["checkpoint"],
            restart_seconds=RESTART_SECONDS if options["restart"] is None else options["restart"],
            checkpoint_every_seconds=options["checkpoint_every"],
            serving=Serving(
                weights=options["weights"].lower(),
                cache=options["cache"].lower(),
                context=options["context"],
                requests=options["requests"],
                tokens_per_second=options["tokens_per_second"],
            )
            if options["inference"]
            else None,
        )
    )
    kept = keep(run, save=False, out=options["out"])
    print_run(run, as_json=options["json"])
    return exit_code(run) if kept else CANNOT_JUDGE


_SAME_NAMES = (
    "hours",
    "samples",
    "tokens",
    "efficiency",
    "measured_on",
    "profile",
    "machines",
    "all_machines",
    "busbw",
    "preset",
    "config",
    "params",
    "recipe",
    "activation_checkpointing",
    "mfu",
    "gpus",
    "gpu",
    "offers",
    "known_offers",
    "live",
    "currency",
    "budget",
    "quantile",
)
"""Options whose names and values are those of :class:`wiretax.jobs.plan.PlanOptions`."""


def _names(text: str | None) -> tuple[str, ...] | None:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    return names or None


def _spot(amount: float | None, price: Price | None, currency: str | None) -> Price | None:
    """A spot price is for the same thing as the price beside it; alone it is for one GPU.

    Raises:
        click.UsageError: it has no currency.
    """
    if amount is None:
        return None
    if currency is None:
        raise click.UsageError("a price needs its currency, such as --currency EUR.")
    return Price(amount=amount, currency=currency, per=price.per if price is not None else "gpu_hour")

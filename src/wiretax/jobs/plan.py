"""What it costs and what to rent: reads what is known (profile, measured machines, model, offers) and plans; no GPU, no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from wiretax import __version__
from wiretax.data.gpus import GpuFacts
from wiretax.data.models import TransformerShape, preset, shape_from_config
from wiretax.errors import BadInput, UsageError
from wiretax.jobs.inputs import load_profiles, nearest_profile
from wiretax.jobs.live_offers import live_offers
from wiretax.jobs.offer_files import load_offers, published_offers
from wiretax.model.forecast import Forecast
from wiretax.model.money import Plan, Price
from wiretax.model.profile import Profile
from wiretax.model.run import Run, Tool
from wiretax.plan.findings import findings_of
from wiretax.plan.inference import Service, make_inference_plan
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.knowledge import Setting
from wiretax.plan.offers import Offer, gpu_named, told_apart
from wiretax.plan.planner import make_plan
from wiretax.plan.request import RESTART_SECONDS, Interrupting, Request
from wiretax.store.folder import list_run_files, load_run, new_run_id, read_bytes

DEFAULT_COUNTS = (1, 2, 4, 8)
"""Looked at where only a price is given."""

A_MILLION = 1e6
"""Samples that are planned for where a speed is known but no amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What ``--inference`` asks; see :class:`~wiretax.plan.inference.Service`."""

    weights: str = "bf16"
    cache: str = "bf16"
    context: int = 4096
    requests: int = 1
    tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The question, as the command line asks it. Everything is optional but a price and something that tells the work.

    Attributes:
        hours: of the job on one GPU.
        samples: to train on.
        tokens: to train on, in place of samples.
        throughput: measured samples per second by number of GPUs.
        efficiency: typed, one for all numbers of GPUs above one, or by number.
        measured_on: the GPU that hours and throughput are from.
        profile: file or run with the profile of a step.
        machines: runs (ids or files) of measured machines.
        all_machines: also every run that is kept here.
        busbw: typed all-reduce bus bandwidth, bytes per second.
        preset: built-in model.
        config: a Hugging Face ``config.json``.
        params: size of a model of which nothing else is known.
        recipe: of training memory; a profile knows its own.
        trainable_fraction: of a LoRA.
        sequence_length: tokens a sample.
        activation_checkpointing: whether activations are recomputed.
        mfu: typed, for the time on one GPU where nothing was measured.
        batches: per GPU, to try.
        accumulations: micro-steps an update, to try.
        strategies: to try.
        gpus: numbers of GPUs to look at.
        price: of one GPU or the box.
        spot_price: of the same, interruptible.
        gpu: the card that the typed price is for.
        offers: files.
        known_offers: also the prices that come with wiretax.
        live: providers to ask.
        currency: picks among known and live prices; a user's own file is never filtered.
        deadline_hours: from now.
        budget: for the whole job (an hour of a service).
        mean_gap_seconds: between interruptions of a box.
        checkpoint_seconds: to save, upload included.
        restart_seconds: until training goes on.
        checkpoint_every_seconds: typed interval.
        quantile: certainty with which the deadline must hold under interruptions.
        serving: plan a service in place of a training job.
        now: of ages and dates.
    """

    hours: float | None = None
    samples: float | None = None
    tokens: float | None = None
    throughput: Mapping[int, float] = field(default_factory=dict)
    efficiency: float | Mapping[int, float] | None = None
    measured_on: str | None = None
    profile: str | None = None
    machines: tuple[str, ...] = ()
    all_machines: bool = False
    busbw: float | None = None
    preset: str | None = None
    config: Path | None = None
    params: float | None = None
    recipe: str | None = None
    trainable_fraction: float | None = None
    sequence_length: int | None = None
    activation_checkpointing: bool = False
    mfu: float | None = None
    batches: tuple[int, ...] = ()
    accumulations: tuple[int, ...] = ()
    strategies: tuple[str, ...] | None = None
    gpus: tuple[int, ...] | None = None
    price: Price | None = None
    spot_price: Price | None = None
    gpu: str | None = None
    offers: tuple[Path, ...] = ()
    known_offers: bool = False
    live: tuple[str, ...] = ()
    currency: str | None = None
    deadline_hours: float | None = None
    budget: float | None = None
    mean_gap_seconds: float | None = None
    checkpoint_seconds: float | None = None
    restart_seconds: float = RESTART_SECONDS
    checkpoint_every_seconds: float | None = None
    quantile: float = 0.95
    serving: Serving | None = None
    now: datetime | None = None


def plan(options: PlanOptions) -> Run:
    """Plans; the same as ``wiretax plan``.

    Returns:
        A run with ``plan``, the forecasts it stands on, and findings on old prices or units that look mixed up. Not saved.

    Raises:
        UsageError: what was asked makes no sense; says what to give.
        BadInput: a file that cannot be read, with line and key.
        MissingDependency: live prices without gpuhunt.
    """
    now = options.now or datetime.now(UTC)
    today = now.date()
    offers, notes = _offers(options, today)
    job = _job(options, offers)
    if options.serving is not None:
        made = _service_plan(options, job, offers)
    else:
        made = make_plan(job, offers, _request(options, job))
    made = dataclasses.replace(made, assumptions=(*made.assumptions, *notes))
    return Run(
        run_id=new_run_id(now),
        created_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command="plan",
        price=options.price,
        forecasts=_forecasts(made, job),
        findings=findings_of(made, offers, options.throughput, today),
        plan=made,
        missing={"machine": "a plan needs none"},
    )


# -------------------------------------------------------------------- offers


def _offers(options: PlanOptions, today: date) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    found = [*_typed(options)]
    notes: list[str] = []
    for path in options.offers:
        found += load_offers(path, today)
    listed = list(published_offers(today)) if options.known_offers else []
    if options.live:
        live, left_out = live_offers(options.live, today)
        listed += live
        notes += left_out
    wanted = options.currency or next((offer.currency for offer in found), None)
    if wanted is not None:
        others = [offer for offer in listed if offer.currency != wanted]
        if others:
            notes.append(
                f"{len(others)} listed prices in {', '.join(sorted({one.currency for one in others}))} were left out, not {wanted}"
            )
        listed = [offer for offer in listed if offer.currency == wanted]
    return told_apart((*found, *listed)), tuple(notes)


def _typed(options: PlanOptions) -> list[Offer]:
    card = gpu_named(options.gpu, "--gpu", UsageError) if options.gpu is not None else None
    counts = options.gpus or DEFAULT_COUNTS
    typed = []
    for price, billing in ((options.price, "on_demand"), (options.spot_price, "spot")):
        if price is None:
            continue
        if price.amount < 0:
            raise UsageError(f"a price of {price.amount:g} is impossible.", do="A price is 0 or more.")
        what = "box of " + str(max(counts)) if price.per == "box_hour" else card.name if card is not None else "GPU"
        name = f"{what}{' on spot' if billing == 'spot' else ''}"
        typed.append(
            Offer(
                name=name,
                gpu=card,
                num_gpus=max(counts),
                price=price.amount,
                price_low=price.amount,
                price_high=price.amount,
                currency=price.currency,
                per=price.per,
                billing="spot" if billing == "spot" else "on_demand",
                note=f"the whole box of {max(counts)} is paid for" if price.per == "box_hour" else "",
            )
        )
    if card is not None and not typed:
        raise UsageError(f"There is no price for {card.name}.", do="Give --price (one GPU, one hour) or --box-price, with --currency.")
    return typed


# -------------------------------------------------------------------- the job


def _job(options: PlanOptions, offers: Sequence[Offer]) -> Job:
    profile = _profile(options)
    shape, name, sequence = _shape(options)
    on = gpu_named(options.measured_on, "--on", UsageError) if options.measured_on is not None else None
    cards = {offer.gpu.name: offer.gpu for offer in offers if offer.gpu is not None}
    if on is None and profile is None and (options.hours is not None or options.throughput):
        if len(cards) > 1:
            raise UsageError(
                f"The offers have {len(cards)} kinds of GPU, and the time on one GPU depends on which.",
                do=f"Say where it was measured: --on {next(iter(cards))!r}.",
            )
        on = _only(cards)
    samples = options.samples
    if options.hours is None and samples is None and options.tokens is None and (options.throughput or profile is not None):
        if options.deadline_hours is not None or options.budget is not None:
            raise UsageError(
                "How much is to be trained is missing, so a deadline or budget cannot be judged.", do="Give --samples or --tokens."
            )
        samples = A_MILLION
    recipe = options.recipe or "adamw_bf16"
    return Job(
        hours=options.hours,
        samples=samples,
        tokens=options.tokens,
        throughput=options.throughput,
        efficiency=options.efficiency,
        measured_on=on,
        profile=profile,
        runs=_runs(options),
        busbw=options.busbw,
        shape=shape,
        shape_name=name,
        shape_is_guess=options.params is not None,
        recipe=recipe,
        trainable_fraction=options.trainable_fraction,
        sequence_length=sequence,
        activation_checkpointing=options.activation_checkpointing,
        mfu=options.mfu,
    )


def _only(cards: Mapping[str, GpuFacts]) -> GpuFacts | None:
    return next(iter(cards.values()), None)


def _profile(options: PlanOptions) -> Profile | None:
    if options.profile is None:
        return None
    profiles = load_profiles(options.profile)
    names = list(dict.fromkeys(one.workload.name for one in profiles))
    if len(names) > 1:
        raise UsageError(f"{options.profile} holds profiles of {', '.join(names)}.", do="Give a file with one of them.")
    return nearest_profile(profiles, names[0], options.batches[0] if options.batches else None)


def _shape(options: PlanOptions) -> tuple[TransformerShape | None, str, int | None]:
    """The model's shape, its name, and tokens a sample."""
    given = [one for one in ("preset", "config", "params") if getattr(options, one) is not None]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} both name a model.", do="Give one of them.")
    sequence = options.sequence_length
    if options.preset is not None:
        known = preset(options.preset)
        if not isinstance(known.shape, TransformerShape):
            raise UsageError(f"Memory of {options.preset} cannot be computed from its shape.", do="Profile it: wiretax profile.")
        return known.shape, options.preset, sequence or known.sequence_length
    if options.config is not None:
        return _config(options.config), options.config.name, sequence
    if options.params is not None:
        return shape_of_size(options.params), "model", sequence
    return None, "", sequence


def _config(path: Path) -> TransformerShape:
    try:
        document = msgspec.json.decode(read_bytes(path))
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path} is no config.json: it holds no object.")
    return shape_from_config(document, str(path))


def _runs(options: PlanOptions) -> tuple[Run, ...]:
    """Measured machines; of all that are kept a damaged one is passed over, one asked for by name is an error."""
    runs = [load_run(name) for name in options.machines]
    if options.all_machines:
        for path in list_run_files():
            try:
                runs.append(load_run(path))
            except BadInput:
                continue
    return tuple(runs)


# -------------------------------------------------------------------- the request


def _request(options: PlanOptions, job: Job) -> Request:
    interrupting = None
    if options.checkpoint_seconds is not None:
        interrupting = Interrupting(
            checkpoint_seconds=options.checkpoint_seconds,
            restart_seconds=options.restart_seconds,
            mean_gap_seconds=options.mean_gap_seconds,
            every_seconds=options.checkpoint_every_seconds,
        )
    elif options.mean_gap_seconds is not None or options.checkpoint_every_seconds is not None:
        raise UsageError(
            "How long saving takes is missing.",
            why="It decides how often to save and what an interruption costs.",
            do="Give it, upload included: --checkpoint 60s.",
        )
    settings = None
    if options.batches or options.accumulations:
        own = job.profile.workload.batch_size if job.profile is not None else 1
        settings = tuple(
            Setting(batch_size=batch, accumulation_steps=steps)
            for batch in options.batches or (own,)
            for steps in options.accumulations or (1,)
        )
    if job.shape is not None and job.profile is None and job.sequence is None:
        raise UsageError("Memory of a model depends on its sequence length.", do="Give it: --sequence 2048.")
    typed = options.price is not None or options.spot_price is not None
    counts = options.gpus or (DEFAULT_COUNTS if typed and not (options.offers or options.known_offers or options.live) else None)
    return Request(
        deadline_hours=options.deadline_hours,
        budget=options.budget,
        counts=counts,
        strategies=options.strategies,
        settings=settings,
        interrupting=interrupting,
        quantile=options.quantile,
    )


def _service_plan(options: PlanOptions, job: Job, offers: Sequence[Offer]) -> Plan:
    serving = options.serving
    assert serving is not None
    if job.shape is None:
        raise UsageError("What is to be served is missing.", do="Name the model: --preset, --config config.json, or --params 8e9.")
    service = Service(
        shape=job.shape,
        name=job.shape_name,
        weights=serving.weights,
        cache=serving.cache,
        context=serving.context,
        requests=serving.requests,
        tokens_per_second=serving.tokens_per_second,
    )
    return make_inference_plan(service, offers, counts=options.gpus, budget_per_hour=options.budget, job=job)


# -------------------------------------------------------------------- what else the run says


def _forecasts(made: Plan, job: Job) -> tuple[Forecast, ...]:
    """Predicted efficiencies of the options as forecasts, so that a report draws them like any other."""
    if job.profile is None:
        return ()
    reason = "the plan keeps hours, not steps: `wiretax predict` has the step"
    return tuple(
        Forecast(
            strategy=option.strategy or "ddp",
            num_gpus=option.num_gpus,
            wire=option.offer or "",
            workload=job.profile.workload.name,
            efficiency_fraction=option.efficiency_fraction,
            wire_tax_fraction=1 - option.efficiency_fraction,
            speedup=option.efficiency_fraction * option.num_gpus,
            batch_per_gpu=option.batch_per_gpu,
            peak_memory_bytes=option.peak_memory_bytes,
            fits=option.fits,
            assumptions=option.assumptions,
            missing={"step_seconds": reason},
        )
        for option in made.options
        if option.basis in ("predicted", "class") and option.efficiency_fraction is not None
    )

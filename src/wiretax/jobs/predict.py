"""``wiretax predict``: the step on N GPUs from one GPU's profile and a wire, or the bare all-reduce from two numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from wiretax import __version__
from wiretax.data.gpus import find_gpu
from wiretax.errors import UsageError
from wiretax.jobs.inputs import KnownWire, load_profiles, nearest_profile, typed_wire, wire_of_tables, wires_of_run
from wiretax.jobs.model_size import ModelSize
from wiretax.judge.scaling import predicted_verdict
from wiretax.model.finding import Evidence, Finding, Verdict
from wiretax.model.forecast import Forecast, Interval
from wiretax.model.machine import Machine
from wiretax.model.measurement import Compute, Expected
from wiretax.model.profile import Profile
from wiretax.model.run import Outcome, Run, Tool
from wiretax.model.training import Training
from wiretax.plan.other_gpus import as_measured
from wiretax.predict.contention import measured_contention
from wiretax.predict.forecast import predict as predict_step
from wiretax.predict.formula import formula_forecasts, ladder
from wiretax.predict.options import DEFAULTS, Options, strategy_name
from wiretax.predict.profile_model import OTHER_GPU_SIGMA
from wiretax.store.folder import load_run, new_run_id
from wiretax.units import rate, size

LADDER_BYTES = 200e6
"""Of gradients, where a ladder is asked for without a size: a 100 M model in 16 bits."""

MIDDLE_90 = 1.645
"""Standard deviations on each side of the middle 90 % of a normal law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """What to predict.

    Attributes:
        profile: a file or a run with profiles; where None, those of ``wire``'s run, unless ``model`` is given.
        wire: a run that measured wires.
        wires: which of them; ``default``, or the only one, when None.
        tables: files with output of nccl-tests instead.
        busbw_bytes_per_second: one typed number instead.
        latency_seconds: of a typed wire, added to each call on 2 GPUs.
        model: sizes for the bare formula and the arithmetic of memory, instead of a profile.
        one_gpu_seconds: the bare step as timed on one GPU of the wire's machine, of one workload at one batch: a profile taken elsewhere
            is stretched to it. Where only ``model`` is known it bounds the efficiency.
        strategies: by any of their names.
        gpus: numbers of GPUs.
        batches: per GPU and micro-step; the profiles' own when empty.
        levers: of all strategies.
        ladder: list what kinds of links give instead of one wire.
    """

    profile: str | None = None
    wire: str | None = None
    wires: tuple[str, ...] | None = None
    tables: tuple[str, ...] = ()
    busbw_bytes_per_second: float | None = None
    latency_seconds: float = 0.0
    model: ModelSize | None = None
    one_gpu_seconds: float | None = None
    strategies: tuple[str, ...] = ("ddp",)
    gpus: tuple[int, ...] = (2, 4, 8)
    batches: tuple[int, ...] = ()
    levers: Options = DEFAULTS
    ladder: bool = False


@dataclass(slots=True)
class _Found:
    """What a prediction gathers on its way into the run."""

    machine: Machine | None = None
    profiles: list[Profile] = field(default_factory=list)
    forecasts: list[Forecast] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    expectations: tuple[Expected, ...] = ()


def predict(options: PredictOptions) -> Run:
    """Predicts; the run is not saved.

    Args:
        options: a profile or a size, and a wire or the ladder.

    Returns:
        A run with ``forecasts``, and a verdict where whole steps of one workload were predicted.

    Raises:
        UsageError: what is asked for does not fit together, or nothing was measured over a wire.
        BadInput: a file or run cannot be read.
    """
    began = time.monotonic()
    names = tuple(dict.fromkeys(strategy_name(one) for one in options.strategies))
    found = _Found()
    if options.ladder:
        _on_the_ladder(options, found)
    else:
        run = load_run(options.wire) if options.wire is not None else None
        known = _wires(options, run, found)
        found.machine = run.machine if run is not None else None
        profiles = _profiles(options, run)
        if profiles:
            _steps(options, names, known, profiles, found)
        elif options.model is not None:
            _sizes(options, options.model, names, known, found)
        else:
            raise UsageError(
                "There is nothing to predict: neither a profile nor a size of the gradients.",
                do="Give --profile FILE (`wiretax profile` makes one), or --grad-bytes 200MB, --params 7e9, --config config.json.",
            )
    return Run(
        run_id=new_run_id(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command="predict",
        machine=found.machine,
        outcome=Outcome(status="complete", duration_seconds=round(time.monotonic() - began, 6)),
        expectations=found.expectations,
        training=Training(profiles=tuple(found.profiles)),
        forecasts=tuple(found.forecasts),
        findings=tuple(found.findings),
        verdict=_verdict(found.forecasts),
        missing={} if found.machine is not None else {"machine": "predicted from files or typed numbers, not on a machine"},
    )


def _wires(options: PredictOptions, run: Run | None, found: _Found) -> tuple[KnownWire, ...]:
    """The wires, from the one source that was given."""
    given = [name for name, there in (("--wire", run), ("--from", options.tables), ("--busbw", options.busbw_bytes_per_second)) if there]
    if len(given) != 1:
        raise UsageError(
            f"{' and '.join(given)} are two wires." if given else "There is no wire to predict for.",
            do="Give one of --wire RUN, --from nccl-tests.txt, --busbw 22GB/s.",
        )
    if run is not None:
        return wires_of_run(run, options.wires)
    if options.busbw_bytes_per_second is not None:
        return (typed_wire(options.busbw_bytes_per_second, options.latency_seconds),)
    known, worries = wire_of_tables(options.tables)
    if worries:
        found.findings.append(
            Finding(
                code="input-degraded",
                severity="warning",
                confidence="certain",
                title=f"{len(worries)} rows of the table could not be read",
                evidence=tuple(Evidence(source="input", text=text) for text in worries[:5]),
                effect="The wire is known at fewer sizes.",
                remedy="Give the whole output, as nccl-tests printed it.",
            )
        )
    return (known,)


def _profiles(options: PredictOptions, run: Run | None) -> tuple[Profile, ...]:
    if options.profile is not None:
        return load_profiles(options.profile)
    return run.training.profiles if run is not None and options.model is None else ()


def _steps(options: PredictOptions, names: Sequence[str], known: Sequence[KnownWire], profiles: tuple[Profile, ...], found: _Found) -> None:
    """Whole steps of every workload: each wire, strategy, batch and number of GPUs."""
    _one_step(options, profiles)
    for workload in dict.fromkeys(one.workload.name for one in profiles):
        own = dict.fromkeys(one.workload.batch_size for one in profiles if one.workload.name == workload)
        for batch in options.batches or tuple(own):
            profile = nearest_profile(profiles, workload, batch)
            if profile not in found.profiles:
                found.profiles.append(profile)
            for number, wire in enumerate(known):
                gpus, widen = _rates(profile, wire, found, timed=options.one_gpu_seconds is not None)
                counts = ([1] if number == 0 else []) + [count for count in options.gpus if count > 1]
                found.forecasts += _forecasts(options, names, wire, profile, batch, counts, gpus, widen)


def _one_step(options: PredictOptions, profiles: Sequence[Profile]) -> None:
    """One time is that of one workload at one batch.

    Raises:
        UsageError: a time was given and there are more.
    """
    workloads = {one.workload.name for one in profiles}
    batches = options.batches or {one.workload.batch_size for one in profiles}
    if options.one_gpu_seconds is not None and (len(workloads) > 1 or len(batches) > 1):
        raise UsageError(
            f"One step time for {len(workloads)} workloads at {len(batches)} batch sizes.",
            do="Give a profile of one workload, and with --batch the batch size that the step was timed at.",
        )


def _forecasts(
    options: PredictOptions,
    names: Sequence[str],
    known: KnownWire,
    profile: Profile,
    batch: int,
    counts: Sequence[int],
    gpus: Sequence[Compute],
    widen: float,
) -> Iterator[Forecast]:
    for name in names:
        for count in counts if name == names[0] else [one for one in counts if one > 1]:
            beside = measured_contention(known.measurements, profile, known.wire.name, count)
            step = predict_step(
                profile,
                known.wire,
                name if count > 1 else "ddp",
                count,
                batch_size=batch,
                options=options.levers,
                contention=beside,
                gpus=gpus,
                one_gpu_seconds=options.one_gpu_seconds,
            ).forecast
            if count == 1:
                yield _widened(replace(step, wire="none"), widen)
            else:
                yield _widened(replace(step, assumptions=(f"the wire {known.wire.name} is {known.source}", *step.assumptions)), widen)


def _rates(profile: Profile, known: KnownWire, found: _Found, *, timed: bool) -> tuple[Sequence[Compute], float]:
    """Rates of the GPUs that the wire joins, and a spread to add where they are another kind and their rates are not known.

    Where the step itself was timed there, rates only say how much all GPUs slow each other down.
    """
    measured = [one for one in known.measurements.compute if one.matmul_flops_per_second and one.memory_bytes_per_second]
    on_cpu = not any(one.gpus for one in known.measurements.collectives)
    names = sorted({gpu.name for gpu in found.machine.gpus if gpu.name}) if found.machine is not None and not on_cpu else []
    unknown = not known.measurements.collectives or not (on_cpu or names)
    if unknown or (profile.device == "cpu" if on_cpu else all(_same_model(name, profile.device_name) for name in names)):
        return measured, 0.0
    there = "CPU ranks" if on_cpu else ", ".join(names)
    scaled: Sequence[Compute] | None = measured if measured and profile.matmul_flops_per_second and profile.device == "cuda" else None
    how = "Its device time is scaled by the measured rates of matrix products and memory, and the interval is wider."
    if scaled is None:
        own, other = find_gpu(profile.device_name), find_gpu(names[0]) if len(names) == 1 else None
        scaled = as_measured(profile, own, other) if own is not None and other is not None else None
        how = "Its device time is scaled by the data sheets of both, and the interval is wider."
    if timed:
        scaled, how = measured, "Its times are stretched to the step timed there; how that splits over the phases is not known."
    if scaled is None:
        how = "Rates of both are not known, so nothing is scaled: the interval is far wider, and may still not hold the truth."
    finding = Finding(
        code="profile-from-other-gpu",
        severity="warning",
        confidence="certain",
        title=f"The profile was taken on {profile.device_name}, the wire joins {there}",
        evidence=(Evidence(source="profile", text=f"device_name = {profile.device_name}"), Evidence(source="wire", text=there)),
        effect=how,
        remedy=f"Profile the step on one of {there} (`wiretax profile`), or time one step there and give --step-time.",
        confirm="wiretax profile",
    )
    if finding not in found.findings:
        found.findings.append(finding)
    return (scaled, OTHER_GPU_SIGMA / 2 if timed else 0.0) if scaled is not None else ((), 2 * OTHER_GPU_SIGMA)


def _same_model(name: str, other: str) -> bool:
    """Whether two names are those of one model of GPU; ``H200`` is the driver's ``NVIDIA H200``."""
    known = find_gpu(name)
    return name == other or (known is not None and known == find_gpu(other))


def _widened(forecast: Forecast, sigma: float) -> Forecast:
    """A wider interval around the same expectation, combined with what is there as independent spreads are."""
    step = forecast.step_seconds
    if step is None or sigma <= 0:
        return forecast

    def further(end: float) -> float:
        return math.exp(math.hypot(math.log(end / step.expected), MIDDLE_90 * sigma))

    wider = Interval(low=step.expected / further(step.low), expected=step.expected, high=step.expected * further(step.high))
    return replace(forecast, step_seconds=wider)


def _sizes(options: PredictOptions, model: ModelSize, names: Sequence[str], known: Sequence[KnownWire], found: _Found) -> None:
    """The bare all-reduce of the gradients, and memory where the shape is known."""
    for wire in known:
        for count in options.gpus:
            for name in names:
                formula = _all_reduce(options, model, wire, count)
                if name != "ddp":
                    reason = f"{name} does not reduce all gradients at once; profile the step (wiretax profile) for a prediction"
                    formula = replace(
                        formula, strategy=name, all_reduce_seconds=None, assumptions=(), missing=dict.fromkeys(formula.missing, reason)
                    )
                found.forecasts.append(model.with_memory(formula, options.levers))


def _all_reduce(options: PredictOptions, model: ModelSize, known: KnownWire, count: int) -> Forecast:
    """The formula with a typed busbw, or with the measured one of this size and number of GPUs."""
    num_bytes = model.gradient_bytes
    typed = known.busbw_bytes_per_second
    curve = known.wire.curve("all_reduce", count)
    busbw = typed if typed is not None else curve.busbw(num_bytes) if count > 1 else 1.0
    (forecast,) = formula_forecasts(
        num_bytes,
        busbw,
        [count],
        latency_seconds=options.latency_seconds if typed is not None else 0.0,  # a measured busbw has it in it
        one_gpu_seconds=options.one_gpu_seconds,
        wire=known.wire.name,
    )
    notes = forecast.assumptions
    if typed is None:
        beyond = curve.beyond(num_bytes)
        at = (
            f"one message of {size(num_bytes)} at {rate(busbw)}, {known.source}; DDP's buckets are smaller"
            if count > 1
            else "nothing is sent"
        )
        notes = (at, *curve.assumptions, *((beyond,) if beyond else ()), *notes[1:])
    return replace(forecast, workload=model.name, assumptions=(*notes, *model.notes))


def _on_the_ladder(options: PredictOptions, found: _Found) -> None:
    """Every kind of link with the busbw that healthy machines reach, and what that makes of the gradients."""
    if options.wire is not None or options.tables or options.busbw_bytes_per_second is not None or options.profile is not None:
        raise UsageError("--ladder goes through kinds of links; it takes no wire and no profile.")
    model = options.model or ModelSize.of_gradients(LADDER_BYTES)
    rungs = ladder()
    found.expectations = tuple(
        Expected(
            subject="all_reduce",
            wire=rung.name,
            world_size=2,
            low_bytes_per_second=rung.low,
            expected_bytes_per_second=rung.expected,
            high_bytes_per_second=rung.high,
            because=(rung.source,),
        )
        for rung in rungs
    )
    for rung in rungs:
        for forecast in formula_forecasts(
            model.gradient_bytes, rung.expected, options.gpus, one_gpu_seconds=options.one_gpu_seconds, wire=rung.name
        ):
            found.forecasts.append(replace(forecast, workload=model.name))


def _verdict(forecasts: Sequence[Forecast]) -> Verdict | None:
    """Of one workload at one batch over one wire; several are compared by the reader."""
    whole = [one for one in forecasts if one.step_seconds is not None]
    kinds = {(one.workload, one.batch_per_gpu, one.wire) for one in whole if one.num_gpus > 1}
    return predicted_verdict(whole) if len(kinds) == 1 else None

"""From a job, offers and limits to a plan: ask what is known of every kind, rank everything, describe what matters, decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wiretax.errors import UsageError
from wiretax.model.forecast import Interval
from wiretax.model.money import Checkpointing, Plan, PlanOption
from wiretax.plan.checkpointing import best_interval, expected_seconds
from wiretax.plan.cost import one_currency
from wiretax.plan.decision import Single, decide
from wiretax.plan.evaluate import Choice, evaluate, wall_over_work
from wiretax.plan.job import Job
from wiretax.plan.knowledge import Knowledge, Setting
from wiretax.plan.offers import Offer
from wiretax.plan.remedies import remedies
from wiretax.plan.request import Request
from wiretax.plan.search import FITS, OPEN, TOO_LARGE, Ranking, Space, rank
from wiretax.predict.options import strategy_name
from wiretax.units import duration, percent
from wiretax.units import hours as in_hours

if TYPE_CHECKING:
    Array = Any

WITH_MEMORY = ("ddp", "zero1", "fsdp2", "tp")
"""Tried where memory is known: plain copies, sharded optimizer states, everything sharded, the layers themselves cut."""

WITHOUT_MEMORY = ("ddp",)
"""Where nobody asked whether it fits, the others can only be slower."""

MOST_OPTIONS = 60
"""Options described in the document; the others are counted."""

LONG_JOB_HOURS = 24.0
"""Work for which the stretch by interruptions is ranked where hours differ by kind; listed options are computed with their own."""


@dataclass(frozen=True, slots=True)
class _Axes:
    offers: tuple[Offer, ...]
    counts: tuple[int, ...]
    strategies: tuple[str, ...]
    settings: tuple[Setting, ...]

    def choice(self, place: tuple[int, int, int, int]) -> Choice:
        offer, count, strategy, setting = place
        return Choice(
            offer=self.offers[offer],
            num_gpus=self.counts[count],
            strategy=self.strategies[strategy],
            setting=self.settings[setting],
        )


def make_plan(job: Job, offers: Sequence[Offer], request: Request) -> Plan:
    """The plan.

    Args:
        job: what is to be done.
        offers: what can be rented, all in one currency.
        request: limits and choices.

    Raises:
        UsageError: no offers, mixed currencies, or no offer has any of the wanted counts.
    """
    if not offers:
        raise UsageError("There is nothing to rent.", do="Give --price, --box-price, or an --offers file.")
    currency = one_currency(offer.currency for offer in offers)
    knowledge = Knowledge(job)
    axes = _axes(job, offers, request)
    any_spot = any(offer.billing == "spot" for offer in offers)
    space, wanted = _space(axes, knowledge, request, any_spot=any_spot)
    ranking = rank(space, within=wanted)
    places, unranked = _places(ranking, wanted, request)
    places += [_representative(axes, space, knowledge, *pair) for pair in unranked]
    batch_known = job.profile is not None or request.settings is not None
    evaluated = [evaluate(axes.choice(place), knowledge, request, any_spot=any_spot, batch_known=batch_known) for place in places]
    options = _ordered(evaluated)
    singles = [_single(knowledge, offer, axes.settings[0], request, any_spot=any_spot) for offer in _one_of_each_gpu(offers)]
    decision = decide(options, singles, request, baseline=_baseline(axes, space, knowledge, request, any_spot=any_spot))
    pairs = int(wanted.sum())
    left_out = pairs - len({(option.offer, option.num_gpus) for option in options})
    return Plan(
        constraint=decision.constraint,
        options=decision.options,
        choice=decision.choice,
        sentence=decision.sentence,
        deadline_hours=request.deadline_hours,
        budget=request.budget,
        currency=currency,
        one_gpu_hours=decision.one_gpu_hours,
        fewest_that_fit=decision.fewest_that_fit,
        num_considered=int(wanted.sum()) * len(axes.strategies) * len(axes.settings),
        checkpointing=_checkpointing(offers, decision.options, decision.choice, request, any_spot=any_spot),
        job=_job_lines(job, knowledge, request),
        remedies=remedies(knowledge, offers, axes.settings[0]) if decision.does_not_fit_on_one else (),
        assumptions=_assumptions(offers, left_out),
    )


def _axes(job: Job, offers: Sequence[Offer], request: Request) -> _Axes:
    counts = sorted({1, *(count for offer in offers for count in offer.counts(request.counts))})
    if not any(offer.counts(request.counts) for offer in offers):
        raise UsageError(
            f"No offer has {' or '.join(map(str, request.counts or ()))} GPUs.",
            do=f"The largest has {max(offer.num_gpus for offer in offers)}.",
        )
    strategies = tuple(dict.fromkeys(strategy_name(one) for one in request.strategies or ()))
    if not strategies:
        strategies = WITH_MEMORY if job.knows_memory else WITHOUT_MEMORY
    batch = job.profile.workload.batch_size if job.profile is not None else 1
    settings = request.settings or (Setting(batch_size=batch),)
    return _Axes(tuple(offers), tuple(counts), strategies, settings)


def _space(axes: _Axes, knowledge: Knowledge, request: Request, *, any_spot: bool) -> tuple[Space, Array]:
    """The arrays, and which offers and counts were wanted."""
    import numpy as np

    keys = [knowledge.kind_key(offer) for offer in axes.offers]
    distinct = list(dict.fromkeys(keys))
    shape = (len(distinct), len(axes.counts), len(axes.strategies), len(axes.settings))
    hours = np.full(shape, np.nan)
    memory = np.full(shape, OPEN, dtype=np.int8)
    hourly = np.full((len(axes.offers), len(axes.counts)), np.nan)
    wanted = np.zeros(hourly.shape, dtype=bool)
    for row, offer in enumerate(axes.offers):
        mine = offer.counts(request.counts)
        for column, count in enumerate(axes.counts):
            if count in mine or (count == 1 and (offer.per == "gpu_hour" and offer.hosts == 1)):
                hourly[row, column] = offer.hourly(count)[1]
                wanted[row, column] = count in mine
    for kind, key in enumerate(distinct):
        rows = [row for row, own in enumerate(keys) if own == key]
        offer = axes.offers[rows[0]]
        for column, count in enumerate(axes.counts):
            if any(np.isfinite(hourly[row, column]) for row in rows):
                _fill(hours[kind, column], memory[kind, column], axes, offer, count, knowledge)
    # Where something surely fits, what only may fit is not looked at.
    sure = (memory == FITS).any(axis=(2, 3), keepdims=True)
    memory = np.where(sure & (memory == OPEN), np.int8(TOO_LARGE), memory)
    stretches = np.ones(len(axes.offers))
    kinds = np.asarray([distinct.index(key) for key in keys])
    if request.interrupting is not None:
        for row, offer in enumerate(axes.offers):
            known = request.interrupting.of(offer, any_spot=any_spot)
            if known is not None:
                longest = np.nanmax(hours[kinds[row]]) if np.isfinite(hours[kinds[row]]).any() else LONG_JOB_HOURS
                stretches[row] = wall_over_work(float(longest), known, request.interrupting.every_seconds)
    return Space(hourly, kinds, hours, memory, stretches), wanted


def _fill(hours: Array, memory: Array, axes: _Axes, offer: Offer, count: int, knowledge: Knowledge) -> None:
    """Hours and memory of one kind at one count, for every strategy and setting that makes sense there."""
    for position, strategy in enumerate(axes.strategies):
        if count == 1 and position > 0:
            continue  # One GPU has nothing to share out.
        if knowledge.forbidden(offer, strategy, count) is not None:
            memory[position, :] = TOO_LARGE
            continue
        for column, setting in enumerate(axes.settings):
            peak = knowledge.memory(strategy, count, setting)
            if peak is not None and offer.gpu is not None:
                fits = peak.fits(offer.gpu.memory_bytes)
                memory[position, column] = OPEN if fits is None else FITS if fits else TOO_LARGE
            if memory[position, column] == TOO_LARGE:
                continue  # Its time would not be read, and predictions take milliseconds.
            alone = knowledge.hours(offer.gpu, setting)
            efficiency = knowledge.efficiency(offer, strategy, count, setting)
            if not isinstance(alone, str) and not isinstance(efficiency, str):
                hours[position, column] = alone.range.expected / (count * efficiency.range.expected)


def _places(ranking: Ranking, wanted: Array, request: Request) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]]:
    """The plans worth describing (the front, the best by each measure, the best of every offer and count), and what cannot be ranked."""
    import numpy as np

    space = ranking.space
    strategies, settings = space.shape[2:]
    found: list[int] = [int(one) for one in ranking.front[:MOST_OPTIONS]]
    limits = [ranking.cheapest_by(request.deadline_hours)] if request.deadline_hours is not None else []
    limits += [ranking.fastest_within(request.budget)] if request.budget is not None else []
    found += [one for one in limits if one is not None]
    pairs = ranking.order // (strategies * settings)
    firsts = np.unique(pairs, return_index=True)[1]
    found += [int(one) for one in np.sort(firsts)[:MOST_OPTIONS]]
    if request.deadline_hours is not None:
        in_time = np.flatnonzero(ranking.hours <= request.deadline_hours)
        found += [int(in_time[one]) for one in np.sort(np.unique(pairs[in_time], return_index=True)[1])[:MOST_OPTIONS]]
    # One GPU is what everything is compared with.
    singles = np.flatnonzero((pairs % space.shape[1]) == 0)
    found += [int(singles[0])] if len(singles) else []
    places = [ranking.place(one) for one in dict.fromkeys(found)]
    done = {place[:2] for place in places} | {(int(pair) // space.shape[1], int(pair) % space.shape[1]) for pair in pairs[firsts]}
    rest = [(int(offer), int(count)) for offer, count in zip(*np.nonzero(wanted), strict=True) if (int(offer), int(count)) not in done]
    return places[:MOST_OPTIONS], rest[: MOST_OPTIONS // 2]


def _representative(axes: _Axes, space: Space, knowledge: Knowledge, offer: int, count: int) -> tuple[int, int, int, int]:
    """The plan that stands for an offer and count of which none can be ranked: one that may fit, else the one that needs least."""
    import numpy as np

    memory = space.memory[space.kinds[offer], count]
    strategy, setting = (int(one) for one in np.unravel_index(int(np.argmax(memory)), memory.shape))
    if memory[strategy, setting] == TOO_LARGE:
        allowed = [
            (peak.peak.expected, index)
            for index, name in enumerate(axes.strategies)
            if knowledge.forbidden(axes.offers[offer], name, axes.counts[count]) is None
            and (peak := knowledge.memory(name, axes.counts[count], axes.settings[0])) is not None
        ]
        strategy, setting = min(allowed)[1] if allowed else 0, 0
    return offer, count, strategy, setting


def _ordered(options: Iterable[PlanOption]) -> tuple[PlanOption, ...]:
    """Fewest GPUs first, then by cost; what is the same but for its strategy or batch stands together."""
    unknown = float("inf")
    return tuple(
        sorted(
            options,
            key=lambda one: (one.num_gpus, one.cost if one.cost is not None else unknown, one.hourly_cost or 0.0, one.offer or ""),
        )
    )


def _one_of_each_gpu(offers: Sequence[Offer]) -> list[Offer]:
    """On demand where it can be had: interruptions are no property of the card."""
    ordered = sorted(offers, key=lambda offer: offer.billing != "spot")
    return list({offer.gpu.name if offer.gpu is not None else "": offer for offer in ordered}.values())


def _single(knowledge: Knowledge, offer: Offer, setting: Setting, request: Request, *, any_spot: bool) -> Single:
    """One GPU of a kind, whether or not it can be rented alone: what names the constraint."""
    alone = knowledge.hours(offer.gpu, setting)
    memory = knowledge.memory("none", 1, setting)
    fits = None if memory is None or offer.gpu is None else memory.fits(offer.gpu.memory_bytes)
    work = wall = None if isinstance(alone, str) else alone.range
    known = request.interrupting.of(offer, any_spot=any_spot) if request.interrupting is not None else None
    if work is not None and known is not None and request.interrupting is not None:
        factor = wall_over_work(work.expected, known, request.interrupting.every_seconds)
        wall = Interval(low=work.low * factor, expected=work.expected * factor, high=work.high * factor)
    return Single(
        gpu=offer.gpu.name if offer.gpu is not None else None,
        memory_bytes=offer.gpu.memory_bytes if offer.gpu is not None else None,
        peak=memory.peak if memory is not None else None,
        fits=fits,
        hours=work,
        wall=wall,
    )


def _baseline(axes: _Axes, space: Space, knowledge: Knowledge, request: Request, *, any_spot: bool) -> PlanOption | None:
    """The cheapest way on one GPU that fits, also where that count was not asked for."""
    import numpy as np

    ranking = rank(space, within=np.asarray([[count == 1 for count in axes.counts]] * len(axes.offers)))
    if not len(ranking.order):
        return None
    return evaluate(axes.choice(ranking.place(0)), knowledge, request, any_spot=any_spot, batch_known=False)


def _checkpointing(
    offers: Sequence[Offer], options: Sequence[PlanOption], choice: int | None, request: Request, *, any_spot: bool
) -> Checkpointing | None:
    """How often to save on the chosen offer, or on the cheapest one that is interrupted."""
    if request.interrupting is None:
        return None
    by_name = {offer.name: offer for offer in offers}
    ordered = [options[choice]] if choice is not None else []
    ordered += [one for one in options if one.hours is not None]
    for option in ordered:
        offer = by_name.get(option.offer or "")
        known = request.interrupting.of(offer, any_spot=any_spot) if offer is not None else None
        if known is None or option.hours is None or option.hours_of_work is None:
            continue
        work = option.hours_of_work * 3600
        every, method = best_interval(work, known)
        typed = request.interrupting.every_seconds
        interval = min(typed or every, work)
        waste = 1 - work / expected_seconds(work, interval, known)
        how = "Daly's formula" if method == "daly" else "simulation, as Daly's formula does not hold where saving takes this long"
        how = f"as typed; best is {duration(every)} ({how})" if typed else how
        when = f"Save after every {duration(interval)}" if interval < work else f"Save once, after all {duration(interval)}"
        return Checkpointing(
            interval_seconds=interval,
            method="typed" if typed else "daly" if method == "daly" else "simulation",
            checkpoint_seconds=known.checkpoint,
            restart_seconds=known.restart,
            mean_seconds_between_interruptions=known.mean_gap,
            waste_fraction=waste,
            applies_to="spot" if any_spot else "all",
            quantile=request.quantile,
            sentence=f"{when} of work ({how}); saves, lost work and restarts take {percent(waste)} of all.",
        )
    return None


def _job_lines(job: Job, knowledge: Knowledge, request: Request) -> tuple[str, ...]:
    lines = []
    where = f" ({knowledge.known_on.name})" if knowledge.known_on is not None else ""
    if job.one_gpu_hours is not None:
        lines.append(f"{in_hours(job.one_gpu_hours)} on one GPU{where}")
    if job.num_samples is not None:
        lines.append(f"{job.num_samples:,.0f} samples" + (f", {job.num_tokens:,.0f} tokens" if job.num_tokens is not None else ""))
    if job.throughput:
        lines.append("measured: " + ", ".join(f"{rate:g} samples/s on {count}" for count, rate in sorted(job.throughput.items())))
    if job.profile is not None:
        load = job.profile.workload
        lines.append(f"profile of {load.name}, batch {load.batch_size} a GPU, on {job.profile.device_name}")
    if job.shape is not None:
        guess = ", shape guessed from its size" if job.shape_is_guess else ""
        lines.append(
            f"{job.shape_name or 'model'}: {job.shape.num_parameters / 1e9:.3g} billion parameters{guess}, trained as {job.recipe}"
        )
    if job.shape is not None and job.profile is None and request.settings is None:
        lines.append("one sample a GPU at a time (--batch for more)")
    if isinstance(job.efficiency, float):
        lines.append(f"efficiency {percent(job.efficiency)} on more than one GPU, as typed")
    elif job.efficiency:
        lines.append("efficiency as typed: " + ", ".join(f"{percent(one)} on {count}" for count, one in sorted(job.efficiency.items())))
    return tuple(lines)


def _assumptions(offers: Sequence[Offer], left_out: int) -> tuple[str, ...]:
    notes = []
    illustrative = [offer.name for offer in offers if offer.illustrative]
    if illustrative:
        notes.append(f"illustrative prices, not offers: {', '.join(dict.fromkeys(illustrative))}")
    if left_out > 0:
        notes.append(f"{left_out} more offers and counts were ranked and are not listed")
    return tuple(notes)

"""One plan in full: an offer, a number of GPUs, a strategy and a batch, with time, money, memory, ranges and limits."""

from __future__ import annotations

from dataclasses import dataclass

from wiretax.model.forecast import Interval
from wiretax.model.money import PlanOption
from wiretax.plan.checkpointing import Interruptions, best_interval, expected_seconds, quantile_seconds, simulate
from wiretax.plan.cost import wire_tax_per_hour
from wiretax.plan.knowledge import Knowledge, Setting, combined
from wiretax.plan.offers import Offer
from wiretax.plan.request import Request
from wiretax.units import memory as memory_text

NO_MEMORY = "memory was not asked about: give --profile, --preset, --config or --params"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be evaluated."""

    offer: Offer
    num_gpus: int
    strategy: str
    setting: Setting


def evaluate(choice: Choice, knowledge: Knowledge, request: Request, *, any_spot: bool, batch_known: bool) -> PlanOption:
    """The plan as an option of the document, without what needs the other options (``why``, the front, break-even).

    Args:
        choice: offer, count, strategy, batch.
        knowledge: of the job.
        request: limits and interruptions.
        any_spot: whether some offer is a spot offer, so that only those are interrupted.
        batch_known: whether anybody named a batch; otherwise none is stated.
    """
    offer, count, setting = choice.offer, choice.num_gpus, choice.setting
    missing: dict[str, str] = {}
    notes: list[str] = []
    forbidden = knowledge.forbidden(offer, choice.strategy, count)
    if forbidden is not None:
        return _forbidden(choice, forbidden)
    alone = knowledge.hours(offer.gpu, setting)
    efficiency = knowledge.efficiency(offer, choice.strategy, count, setting)
    work: Interval | None = None
    if isinstance(alone, str):
        missing |= dict.fromkeys(("hours", "cost"), alone)
    else:
        notes += alone.notes
    if isinstance(efficiency, str):
        missing |= dict.fromkeys(("efficiency_fraction", "basis"), efficiency)
        missing.setdefault("hours", efficiency)
        missing.setdefault("cost", efficiency)
    else:
        notes += efficiency.notes
        if not isinstance(alone, str):
            work = combined(alone.range, efficiency.range, count)
    low, hourly, high = offer.hourly(count)
    known = request.interrupting.of(offer, any_spot=any_spot) if request.interrupting is not None else None
    wall, late = (work, None) if work is None or known is None else _interrupted(work, known, request)
    if offer.billing == "spot" and known is None:
        notes.append("how often this spot offer is interrupted is not known (--mtbf): hours are without any interruption")
    if work is not None and wall is None:
        missing |= dict.fromkeys(("hours", "cost"), "interruptions come so often that it is never finished")
    fits, peak, largest = _memory(choice, knowledge, missing)
    if fits is False:
        # A time and a cost of what cannot run would be read as an offer.
        work = wall = late = None
        missing |= dict.fromkeys(("hours", "cost"), "it does not fit")
    cost = None if wall is None else hourly * wall.expected
    cost_range = None if wall is None else Interval(low=low * wall.low, expected=hourly * wall.expected, high=high * wall.high)
    samples, tokens = knowledge.job.num_samples, knowledge.job.num_tokens
    if cost is None or samples is None:
        missing["cost_per_sample"] = missing.get("cost", "the number of samples is not known: give --samples")
    if work is None:
        missing["hours_of_work"] = missing["hours"]
    unsure = offer.billing == "spot" and known is None
    return PlanOption(
        num_gpus=count,
        offer=offer.name,
        strategy="none" if count == 1 else choice.strategy,
        hours=None if wall is None else wall.expected,
        hours_of_work=None if work is None else work.expected,
        cost=cost,
        currency=offer.currency,
        efficiency_fraction=None if isinstance(efficiency, str) else efficiency.range.expected,
        cost_per_sample=None if cost is None or samples is None else cost / samples,
        meets_deadline=_in_time(wall, late, request, unsure=unsure),
        gpu=offer.gpu.name if offer.gpu is not None else None,
        billing=offer.billing,
        hourly_cost=hourly,
        basis=None if isinstance(efficiency, str) else efficiency.basis,
        efficiency_range=None if isinstance(efficiency, str) or _exact(efficiency.range) else efficiency.range,
        hours_range=None if wall is None or _exact(wall) else wall,
        cost_range=None if cost_range is None or _exact(cost_range) else cost_range,
        hours_at_quantile=late.expected if late is not None else None,
        cost_per_token=None if cost is None or tokens is None else cost / tokens,
        wire_tax_per_hour=None if isinstance(efficiency, str) else wire_tax_per_hour(hourly, efficiency.range.expected),
        batch_per_gpu=setting.batch_size if batch_known else None,
        accumulation_steps=setting.accumulation_steps if batch_known else None,
        fits=fits,
        peak_memory_bytes=peak,
        largest_batch_per_gpu=largest,
        within_budget=_affordable(cost_range, request.budget),
        assumptions=tuple(dict.fromkeys([*notes, *([offer.note] if offer.note else [])])),
        missing=missing | ({"gpu": "no GPU was named: give --gpu"} if offer.gpu is None else {}),
    )


def _forbidden(choice: Choice, reason: str) -> PlanOption:
    """An offer and count for which no strategy makes sense."""
    offer = choice.offer
    unknown = ("strategy", "hours", "hours_of_work", "cost", "cost_per_sample", "efficiency_fraction", "basis", "fits")
    return PlanOption(
        num_gpus=choice.num_gpus,
        offer=offer.name,
        currency=offer.currency,
        gpu=offer.gpu.name if offer.gpu is not None else None,
        billing=offer.billing,
        hourly_cost=offer.hourly(choice.num_gpus)[1],
        basis=None,
        missing=dict.fromkeys(unknown, reason) | ({"gpu": "no GPU was named: give --gpu"} if offer.gpu is None else {}),
    )


def wall_over_work(work_hours: float, known: Interruptions, every: float | None) -> float:
    """Expected wall clock over work, for ranking."""
    seconds = work_hours * 3600
    interval = every or best_interval(seconds, known)[0]
    return expected_seconds(seconds, min(interval, seconds), known) / seconds


def _interrupted(work: Interval, known: Interruptions, request: Request) -> tuple[Interval | None, Interval | None]:
    """Wall clock with interruptions: its expectation, and what is kept with the wanted certainty, each over the range of the work."""
    every = request.interrupting.every_seconds if request.interrupting is not None else None
    means, quantiles = [], []
    for hours in (work.low, work.expected, work.high):
        seconds = hours * 3600
        interval = min(every or best_interval(seconds, known)[0], seconds)
        means.append(expected_seconds(seconds, interval, known) / 3600)
        quantiles.append(quantile_seconds(simulate(seconds, interval, known), request.quantile) / 3600)
    if means[2] == float("inf") or quantiles[2] == float("inf"):
        return None, None
    return (
        Interval(low=means[0], expected=means[1], high=means[2]),
        Interval(low=quantiles[0], expected=quantiles[1], high=quantiles[2]),
    )


def _memory(choice: Choice, knowledge: Knowledge, missing: dict[str, str]) -> tuple[bool | None, Interval | None, int | None]:
    memory = knowledge.memory(choice.strategy, choice.num_gpus, choice.setting)
    gpu = choice.offer.gpu
    if memory is None:
        missing["fits"] = NO_MEMORY
        return None, None, None
    if gpu is None:
        missing["fits"] = "no GPU was named, so its memory is not known: give --gpu"
        return None, memory.peak, None
    fits = memory.fits(gpu.memory_bytes)
    if fits is None:
        span = f"{memory_text(memory.peak.low)} to {memory_text(memory.peak.high)}"
        missing["fits"] = f"it needs {span} of the {memory_text(gpu.memory_bytes)} there, the context not counted: measure it"
    return fits, memory.peak, knowledge.largest_batch(gpu, choice.strategy, choice.num_gpus, choice.setting)


def _in_time(wall: Interval | None, late: Interval | None, request: Request, *, unsure: bool) -> bool | None:
    """None without a deadline, or where the range leaves it open."""
    deadline = request.deadline_hours
    span = late or wall
    if deadline is None or span is None:
        return None
    if span.low > deadline:
        return False
    return True if span.high <= deadline and not unsure else None


def _affordable(cost: Interval | None, budget: float | None) -> bool | None:
    if budget is None or cost is None:
        return None
    if cost.low > budget:
        return False
    return True if cost.high <= budget else None


def _exact(one: Interval) -> bool:
    return one.low == one.high

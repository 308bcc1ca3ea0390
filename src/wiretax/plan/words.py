"""The plan in words: one sentence that names the constraint and the choice, and for each option why it won or lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.forecast import Interval
from wiretax.model.money import Constraint, PlanOption
from wiretax.plan.request import Request
from wiretax.units import hours as in_hours
from wiretax.units import memory, money, percent, significant

SAME = 0.005
"""Costs or times closer than this are called the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that a reason may need."""

    constraint: Constraint
    request: Request
    options: Sequence[PlanOption]
    choice: int | None
    fewest: int | None
    baseline: PlanOption | None

    @property
    def chosen(self) -> PlanOption | None:
        """The option chosen, if any."""
        return None if self.choice is None else self.options[self.choice]


def who(option: PlanOption) -> str:
    """``4x RTX 4090``, ``one A100 PCIe 80GB``, ``4 GPUs`` where nobody named the card, with `` on spot``."""
    card = option.gpu
    one = f"one {card}" if card else "one GPU"
    many = f"{option.num_gpus}x {card}" if card else f"{option.num_gpus} GPUs"
    return (one if option.num_gpus == 1 else many) + (" on spot" if option.billing == "spot" else "")


def reason(index: int, standing: Standing) -> str:
    """Why this option won, or why it lost."""
    option, request, chosen = standing.options[index], standing.request, standing.chosen
    if option.fits is False:
        return _too_large(option)
    if option.hours is None:
        if index == standing.choice:
            return "the lowest price an hour of what fits; how long it takes is not known"
        return f"time not known: {option.missing.get('hours', 'no source for it')}"
    if option.meets_deadline is False and request.deadline_hours is not None:
        return _too_late(option, request)
    if option.within_budget is False and request.budget is not None and option.cost is not None and option.currency:
        return f"costs {money(option.cost, option.currency)}, more than the budget of {money(request.budget, option.currency)}"
    doubts = _doubts(option, request)
    if index == standing.choice:
        return "; ".join([_why_chosen(option, standing), *doubts])
    if chosen is None:
        return "; ".join(doubts) or "possible, but something else is missing"
    return "; ".join([*doubts, _against_choice(option, chosen, standing)])


def sentence(standing: Standing, one_gpu_hours: float | None, largest: tuple[str | None, int | None, Interval | None] | None) -> str:
    """The verdict: the constraint, the choice, and what else there would be.

    Args:
        standing: options, choice and limits.
        one_gpu_hours: of the best single GPU.
        largest: name, memory and need of the single GPU with most memory.
    """
    parts = [_constraint(standing, one_gpu_hours, largest)]
    chosen = standing.chosen
    if chosen is None:
        parts.append(_nothing(standing))
    elif standing.constraint == "none" and chosen.num_gpus == 1:
        parts += _instead(standing, chosen)
    else:
        parts.append(_rent(standing, chosen))
    return " ".join(part for part in parts if part)


def _constraint(standing: Standing, hours: float | None, largest: tuple[str | None, int | None, Interval | None] | None) -> str:
    deadline, chosen = standing.request.deadline_hours, standing.chosen
    if standing.constraint == "does_not_fit" and largest is not None:
        name, there, peak = largest
        need = f"it needs {memory(peak.expected)} and {name} has {memory(there or 0)}" if peak is not None else ""
        return f"It does not fit on one GPU: {need}."
    if standing.constraint == "too_slow" and hours is not None and deadline is not None:
        return f"One GPU is too slow: {in_hours(hours)} against a deadline of {in_hours(deadline)}."
    if chosen is not None and chosen.num_gpus == 1:
        return _one_is_enough(chosen, deadline)
    if hours is None:
        return "Nothing known forces more than one GPU."
    in_time = f", within {in_hours(deadline)}" if deadline is not None else ""
    return f"One GPU would do ({in_hours(hours)}{in_time}), but it is not among the options."


def _one_is_enough(chosen: PlanOption, deadline: float | None) -> str:
    told = "One GPU is enough" if chosen.gpu is None else f"{who(chosen)[0].upper()}{who(chosen)[1:]} is enough"
    facts = []
    if chosen.fits and chosen.peak_memory_bytes is not None:
        facts.append(f"it fits ({memory(chosen.peak_memory_bytes.expected)})")
    if chosen.hours is not None and chosen.cost is not None and chosen.currency:
        limit = f", before the deadline of {in_hours(deadline)}" if deadline is not None else ""
        takes = f"takes {in_hours(chosen.hours)}{limit} and costs {money(chosen.cost, chosen.currency)}"
        facts.append(takes if facts else f"the job {takes}")
    elif chosen.hours is None:
        facts.append(f"how long it takes is not known ({chosen.missing.get('hours', 'no source for it')})")
    return f"{told}: {', '.join(facts)}." if facts else f"{told}."


def _instead(standing: Standing, chosen: PlanOption) -> list[str]:
    """The strongest argument for more GPUs, and what it would cost."""
    if chosen.hours is None or chosen.cost is None or not chosen.currency:
        return []
    others = [
        one for one in standing.options if one.num_gpus > 1 and one.fits is not False and one.hours is not None and one.cost is not None
    ]
    cheaper = min((one for one in others if (one.cost or 0.0) < chosen.cost * (1 - SAME)), key=lambda one: one.cost or 0.0, default=None)
    if cheaper is not None and cheaper.cost is not None and cheaper.hours is not None:
        cost, time = money(cheaper.cost, chosen.currency), in_hours(cheaper.hours)
        return [f"{_begin(who(cheaper))} would cost {cost} in {time}, but nothing forces it and one GPU is simpler."]
    sooner = [one for one in others if (one.hours or 0.0) < chosen.hours * (1 - SAME)]
    if sooner:
        best = min(sooner, key=lambda one: one.extra_cost_per_hour_saved if one.extra_cost_per_hour_saved is not None else float("inf"))
        assert best.hours is not None
        assert best.cost is not None
        saved = chosen.hours - best.hours
        more = best.cost - chosen.cost
        time, cost = in_hours(best.hours), money(best.cost, chosen.currency)
        if more <= SAME * chosen.cost:
            return [f"{_begin(who(best))} would take {time} for the same money ({cost}), but nothing forces it."]
        each = money(more / saved, chosen.currency)
        return [f"{_begin(who(best))} would take {time} for {cost}: {in_hours(saved)} sooner at {each} for each hour saved."]
    if others:
        best = min(others, key=lambda one: one.hours or 0.0)
        assert best.hours is not None
        assert best.cost is not None
        times = best.cost / chosen.cost if chosen.cost > 0 else None
        cost = f"at {significant(times, 2)} times the cost" if times else f"for {money(best.cost, chosen.currency)}"
        return [f"{_begin(who(best))} would not even be sooner ({in_hours(best.hours)}), {cost}."]
    return []


def _rent(standing: Standing, chosen: PlanOption) -> str:
    how = f" with {chosen.strategy}" if chosen.num_gpus > 1 and chosen.peak_memory_bytes is not None else ""
    what = f"{who(chosen)}{how}"
    smallest = (
        "the smallest set that works" if standing.constraint == "does_not_fit" and standing.choice == standing.fewest else "the cheapest"
    )
    if chosen.hours is None or chosen.cost is None or not chosen.currency:
        price = f" at {money(chosen.hourly_cost, chosen.currency)} an hour" if chosen.hourly_cost is not None and chosen.currency else ""
        return f"{_begin(smallest)} that fits is {what}{price}." if smallest == "the cheapest" else f"{_begin(smallest)} is {what}{price}."
    text = f"Rent {what}: done in {in_hours(chosen.hours)}"
    if chosen.hours_at_quantile is not None:
        text += f" (with {percent(standing.request.quantile)} certainty in {in_hours(chosen.hours_at_quantile)})"
    text += f" for {money(chosen.cost, chosen.currency)}"
    one = standing.baseline
    if one is not None and one.cost and standing.constraint != "does_not_fit":
        change = chosen.cost / one.cost - 1
        text += f", {percent(abs(change))} {'more' if change > 0 else 'less'} than one GPU would cost" if abs(change) > SAME else ""
    if standing.constraint == "does_not_fit":
        text += f". It is {smallest}" if smallest != "the cheapest" else f". {_begin(_smallest(standing))}"
    if doubts := _doubts(chosen, standing.request):
        text += f". But {', and '.join(doubts)}"
    return text + "."


def _smallest(standing: Standing) -> str:
    if standing.fewest is None:
        return "it is the cheapest of what may fit"
    fewest = standing.options[standing.fewest]
    return f"the smallest set that works is {who(fewest)} with {fewest.strategy}, but it is not the cheapest"


def _nothing(standing: Standing) -> str:
    """How far the nearest option is from being possible."""
    request, options = standing.request, standing.options
    holding = [one for one in options if one.fits is not False]
    if not holding:
        best = min(
            (one for one in options if one.peak_memory_bytes is not None),
            key=lambda one: one.peak_memory_bytes.expected if one.peak_memory_bytes else 0.0,
            default=None,
        )
        if best is None or best.peak_memory_bytes is None:
            return "None of these offers holds it."
        return (
            f"None of these offers holds it: {who(best)} with {best.strategy} still needs {memory(best.peak_memory_bytes.expected)} a GPU."
        )
    timed = [one for one in holding if one.hours is not None]
    if not timed:
        return f"No time is known: {holding[0].missing.get('hours', 'no source for it')}."
    deadline, budget = request.deadline_hours, request.budget
    soonest = min(timed, key=lambda one: (_sure_hours(one), one.cost or 0.0))
    late = deadline is not None and _sure_hours(soonest) > deadline
    if late and deadline is not None:
        how = f" with {percent(request.quantile)} certainty" if soonest.hours_at_quantile is not None else ""
        return (
            f"Nothing here is in time: the soonest is {who(soonest)} in {in_hours(_sure_hours(soonest))}{how}, "
            f"{in_hours(_sure_hours(soonest) - deadline)} late."
        )
    in_time = [one for one in timed if deadline is None or _sure_hours(one) <= deadline]
    cheapest = min(in_time, key=lambda one: one.cost or 0.0)
    if budget is not None and cheapest.cost is not None and cheapest.currency:
        return (
            f"Nothing{' in time' if deadline is not None else ''} is within the budget of {money(budget, cheapest.currency)}: "
            f"the cheapest is {who(cheapest)} for {money(cheapest.cost, cheapest.currency)}."
        )
    return "Nothing here meets every limit."


def _too_large(option: PlanOption) -> str:
    need = option.peak_memory_bytes
    text = f"does not fit: it needs {memory(need.expected)} on each GPU" if need is not None else "does not fit"
    if option.largest_batch_per_gpu:
        return f"{text}; a batch of {option.largest_batch_per_gpu} would fit"
    return text


def _too_late(option: PlanOption, request: Request) -> str:
    deadline = request.deadline_hours or 0.0
    hours = _sure_hours(option)
    how = f" with {percent(request.quantile)} certainty" if option.hours_at_quantile is not None else ""
    return f"too slow: {in_hours(hours)}{how}, {in_hours(max(hours - deadline, 0.0))} after the deadline"


def _doubts(option: PlanOption, request: Request) -> list[str]:
    found = []
    if option.fits is None and option.peak_memory_bytes is not None and option.gpu is not None:
        found.append(f"it may not fit: {option.missing.get('fits', 'the range leaves it open')}")
    deadline, span = request.deadline_hours, option.hours_range
    if deadline is not None and option.meets_deadline is None and option.hours is not None:
        if span is not None and span.high > deadline:
            found.append(f"it may be late: {in_hours(span.low)} to {in_hours(span.high)} against {in_hours(deadline)}")
        elif option.billing == "spot" and option.hours_at_quantile is None:
            found.append("it may be late: how often it is interrupted is not known")
        else:
            found.append("it may be late")
    cost = option.cost_range
    if request.budget is not None and option.within_budget is None and cost is not None and option.currency:
        found.append(f"it may cost up to {money(cost.high, option.currency)}")
    return found


def _why_chosen(option: PlanOption, standing: Standing) -> str:
    if standing.constraint == "none" and option.num_gpus == 1:
        return "one GPU does it, and nothing forces more"
    limits = [
        *(["fits"] if option.fits else []),
        *(["is in time"] if standing.request.deadline_hours is not None else []),
        *(["is within the budget"] if standing.request.budget is not None else []),
    ]
    return f"the cheapest that {' and '.join(limits)}" if limits else "the cheapest"


def _against_choice(option: PlanOption, chosen: PlanOption, standing: Standing) -> str:
    """Money and time against the choice."""
    if option.cost is None or chosen.cost is None or option.hours is None or chosen.hours is None or not option.currency:
        return "cannot be compared: a cost is not known"
    dearer = _change(option.cost, chosen.cost, "dearer", "cheaper")
    slower = _change(option.hours, chosen.hours, "slower", "sooner")
    if option.cost >= chosen.cost * (1 - SAME) and option.hours < chosen.hours * (1 - SAME):
        each = money((option.cost - chosen.cost) / (chosen.hours - option.hours), option.currency)
        what = "nothing forces it" if standing.constraint == "none" else "the deadline does not ask for it"
        what = what if standing.constraint != "does_not_fit" or standing.request.deadline_hours is not None else "nothing asks for it"
        sooner = f"{in_hours(chosen.hours - option.hours)} sooner"
        if option.cost <= chosen.cost * (1 + SAME):
            return f"{sooner} for the same money, but {what}"
        return f"{sooner} but {dearer}: {each} for each hour saved, and {what}"
    if option.cost < chosen.cost * (1 - SAME):
        tail = "one GPU is enough and simpler" if standing.constraint == "none" and chosen.num_gpus == 1 else "less sure"
        return f"{dearer}, {slower}; {tail}"
    if dearer == "as dear" and slower == "as fast":
        return (
            "as dear and as fast as the choice, with more GPUs"
            if option.num_gpus > chosen.num_gpus
            else "as dear and as fast as the choice"
        )
    return f"{dearer} and {slower}"


def _change(value: float, reference: float, more: str, less: str) -> str:
    if reference <= 0:
        return f"{more}" if value > 0 else f"as {'dear' if more == 'dearer' else 'fast'}"
    ratio = value / reference
    if abs(ratio - 1) <= SAME:
        return "as dear" if more == "dearer" else "as fast"
    if ratio >= 2:
        return f"{significant(ratio, 2)} times as {'dear' if more == 'dearer' else 'long'}"
    return f"{percent(abs(ratio - 1))} {more if ratio > 1 else less}"


def _sure_hours(option: PlanOption) -> float:
    """With interruptions the wall clock that is kept with the wanted certainty."""
    return option.hours_at_quantile if option.hours_at_quantile is not None else option.hours or 0.0


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]

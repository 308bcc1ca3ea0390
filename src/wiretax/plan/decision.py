"""The decision: name the constraint first, then choose, and say of every other option in words why it lost.

There are two reasons for more than one GPU: the job does not fit on one, or one is too slow for the deadline. With neither, one GPU is
chosen, and the plan says so, whatever faster or slightly cheaper sets there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wiretax.model.forecast import Interval
from wiretax.model.money import Constraint, PlanOption
from wiretax.plan.cost import break_even_efficiency, break_even_gpu_hour_price, extra_cost_per_hour_saved
from wiretax.plan.request import Request
from wiretax.plan.search import front_of
from wiretax.plan.words import Standing, reason, sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """One GPU of a kind, alone."""

    gpu: str | None
    memory_bytes: int | None
    peak: Interval | None
    fits: bool | None
    hours: Interval | None
    """Of work."""
    wall: Interval | None
    """With interruptions; may be infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is chosen, and the options with what each is against the others."""

    constraint: Constraint
    options: tuple[PlanOption, ...]
    choice: int | None
    sentence: str
    one_gpu_hours: float | None
    fewest_that_fit: int | None
    does_not_fit_on_one: bool


def decide(options: Sequence[PlanOption], singles: Sequence[Single], request: Request, *, baseline: PlanOption | None) -> Decision:
    """Names the constraint and chooses.

    Args:
        options: evaluated, in the order of the document.
        singles: one GPU of each kind on offer, also where it cannot be rented alone.
        request: limits.
        baseline: the cheapest way on one GPU, which costs are compared with; None where there is none.
    """
    does_not_fit = bool(singles) and all(single.fits is False for single in singles)
    constraint = constraint_of(singles, request)
    placed = _compared(options, baseline)
    choice = choose(placed, constraint, request, timed=any(single.hours is not None for single in singles))
    fewest = _fewest(placed)
    hours = [single.hours.expected for single in singles if single.hours is not None]
    wall = [single.wall.expected for single in singles if single.wall is not None and math.isfinite(single.wall.expected)]
    standing = Standing(constraint=constraint, request=request, options=placed, choice=choice, fewest=fewest, baseline=baseline)
    largest = max((one for one in singles if one.memory_bytes is not None), key=lambda one: one.memory_bytes or 0, default=None)
    explained = tuple(replace(option, why=reason(index, standing)) for index, option in enumerate(placed))
    return Decision(
        constraint=constraint,
        options=explained,
        choice=choice,
        sentence=sentence(
            standing, min(wall, default=None), (largest.gpu, largest.memory_bytes, largest.peak) if largest is not None else None
        ),
        one_gpu_hours=min(hours, default=None),
        fewest_that_fit=fewest,
        does_not_fit_on_one=does_not_fit,
    )


def constraint_of(singles: Sequence[Single], request: Request) -> Constraint:
    """Why one GPU will not do, if it will not: the best single GPU on offer decides. What is not known constrains nothing."""
    if singles and all(single.fits is False for single in singles):
        return "does_not_fit"
    deadline = request.deadline_hours
    known = [single.wall for single in singles if single.fits is not False and single.wall is not None]
    if deadline is not None and known and all(hours.expected > deadline for hours in known):
        return "too_slow"
    return "none"


def choose(options: Sequence[PlanOption], constraint: Constraint, request: Request, *, timed: bool = True) -> int | None:
    """The cheapest option that fits, is in time and within the budget; of one GPU where nothing forces more.

    What is sure counts before what only should be so (a range that holds the limit). Where no time is known the lowest price per hour
    decides, so that "what holds this model" has an answer.

    Args:
        options: evaluated.
        constraint: why one GPU will not do.
        request: limits.
        timed: whether the time on some GPU is known, so that an option without one is no answer.
    """
    memory_known = any(option.fits is not None for option in options)
    pool: list[tuple[int, int]] = []
    for index, option in enumerate(options):
        doubts = 0
        if option.fits is False or option.strategy is None or (timed and option.hours is None):
            continue
        doubts += option.fits is None and memory_known
        for sure, likely in (_in_time(option, request), _affordable(option, request)):
            if not likely:
                break
            doubts += not sure
        else:
            pool.append((doubts, index))
    if not pool:
        return None

    def merit(entry: tuple[int, int]) -> tuple[float, ...]:
        doubts, index = entry
        option = options[index]
        money = option.cost if option.cost is not None else option.hourly_cost or 0.0
        return (min(doubts, 1), money, option.num_gpus, option.hours or 0.0, index)

    if constraint == "none":
        single = [entry for entry in pool if options[entry[1]].num_gpus == 1]
        pool = single or pool
    return min(pool, key=merit)[1]


def _in_time(option: PlanOption, request: Request) -> tuple[bool, bool]:
    """Surely, and at all likely."""
    deadline = request.deadline_hours
    if deadline is None:
        return True, True
    if option.meets_deadline is not None:
        return option.meets_deadline, option.meets_deadline
    expected = option.hours_at_quantile if option.hours_at_quantile is not None else option.hours
    return False, expected is not None and expected <= deadline


def _affordable(option: PlanOption, request: Request) -> tuple[bool, bool]:
    if request.budget is None:
        return True, True
    if option.within_budget is not None:
        return option.within_budget, option.within_budget
    return False, option.cost is not None and option.cost <= request.budget


def _compared(options: Sequence[PlanOption], baseline: PlanOption | None) -> tuple[PlanOption, ...]:
    """Adds the front, and what each option is against one GPU and against fewer GPUs of its own offer."""
    usable = [index for index, option in enumerate(options) if option.fits is not False and option.hours is not None]
    hours = [options[index].hours or 0.0 for index in usable]
    costs = [options[index].cost or 0.0 for index in usable]
    front = {usable[int(position)] for position in front_of(hours, costs)} if usable else set()
    placed = []
    for index, option in enumerate(options):
        changed = replace(option, on_front=index in front)
        if baseline is not None and option.num_gpus > 1:
            changed = _against_one(changed, baseline)
        placed.append(_against_fewer(changed, options))
    return tuple(placed)


def _against_one(option: PlanOption, one: PlanOption) -> PlanOption:
    if option.hours is None or option.cost is None or one.hours is None or one.cost is None or option.hourly_cost is None:
        return option
    efficiency = option.efficiency_fraction
    alone = option.hours * option.num_gpus * efficiency if efficiency is not None else None
    return replace(
        option,
        extra_cost_per_hour_saved=extra_cost_per_hour_saved(option.cost, option.hours, one.cost, one.hours),
        break_even_efficiency_fraction=None
        if alone is None
        else break_even_efficiency(option.hourly_cost, option.num_gpus, alone, one.cost),
        break_even_gpu_hour_price=break_even_gpu_hour_price(option.num_gpus, option.hours, one.cost),
    )


def _against_fewer(option: PlanOption, options: Sequence[PlanOption]) -> PlanOption:
    fewer = [
        one
        for one in options
        if one.offer == option.offer and one.num_gpus < option.num_gpus and one.hours is not None and one.fits is not False
    ]
    if option.hours is None or option.cost is None or not fewer:
        return option
    nearest = max(fewer, key=lambda one: one.num_gpus)
    assert nearest.hours is not None
    saved = extra_cost_per_hour_saved(option.cost, option.hours, nearest.cost or 0.0, nearest.hours)
    return replace(option, marginal_cost_per_hour_saved=saved)


def _fewest(options: Sequence[PlanOption]) -> int | None:
    """The smallest set that surely fits; of equal ones the cheapest."""
    holding = [index for index, option in enumerate(options) if option.fits]
    return min(
        holding,
        key=lambda index: (options[index].num_gpus, options[index].cost or options[index].hourly_cost or 0.0),
        default=None,
    )

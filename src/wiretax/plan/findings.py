"""What a plan warns about: prices that are old, units that look mixed up, limits that nothing meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from wiretax.model.finding import Evidence, Finding
from wiretax.model.money import Plan
from wiretax.plan.offers import OLD_AFTER_DAYS, WARN_AFTER_DAYS, Offer, age_days

SUPERLINEAR = 1.05
"""Measured efficiencies above this are more likely a mix-up of units than a cache effect."""


def findings_of(plan: Plan, offers: Sequence[Offer], throughput: Mapping[int, float], today: date) -> tuple[Finding, ...]:
    """All of them; none where nothing is wrong.

    Args:
        plan: as made.
        offers: all that were looked at.
        throughput: as measured by the user, by number of GPUs.
        today: for the age of prices.
    """
    return (*_old_prices(offers, today), *_mixed_units(throughput), *_impossible(plan))


def _old_prices(offers: Sequence[Offer], today: date) -> list[Finding]:
    old = [(age, offer) for offer in offers if (age := age_days(offer, today)) is not None and age > WARN_AFTER_DAYS]
    if not old:
        return []
    oldest = max(age for age, _ in old)
    year = " (a year or more)" if oldest >= OLD_AFTER_DAYS else ""
    return [
        Finding(
            code="prices-old",
            severity="warning",
            confidence="certain",
            title=f"Prices of {len(old)} offer{'s' if len(old) > 1 else ''} are up to {oldest} days old{year}.",
            evidence=tuple(Evidence(source=offer.source or offer.name, text=f"{offer.name}: seen {offer.seen}") for _, offer in old[:5]),
            effect="Prices of rented GPUs move within weeks: the choice may no longer be the cheapest.",
            remedy="Look the prices up again and write the new date beside them (seen = ...), or ask a catalogue with --live.",
            confirm="open the provider's page of the chosen offer",
        )
    ]


def _mixed_units(throughput: Mapping[int, float]) -> list[Finding]:
    alone = throughput.get(1)
    beyond = {
        count: rate / (count * alone) for count, rate in throughput.items() if alone and count > 1 and rate / (count * alone) > SUPERLINEAR
    }
    if not beyond:
        return []
    count, value = max(beyond.items(), key=lambda item: item[1])
    return [
        Finding(
            code="unit-trap",
            severity="warning",
            confidence="likely",
            title=f"{count} GPUs are said to do {value * count:.2g} times the work of one, more than {count} times.",
            evidence=(Evidence(source="--throughput", text=f"{throughput[count]:g} samples/s on {count}, {alone:g} on one"),),
            effect="If one of the two numbers is in other units, every time and cost for more than one GPU is wrong.",
            remedy="Give samples per second of all GPUs together, at the same batch per GPU, for each number of GPUs.",
            confirm="wiretax scale",
        )
    ]


def _impossible(made: Plan) -> list[Finding]:
    if made.choice is not None:
        return []
    return [
        Finding(
            code="plan-impossible",
            severity="problem",
            confidence="certain",
            title="No offer meets every limit.",
            evidence=(Evidence(source="plan", text=made.sentence),),
            effect="Renting any of them misses the deadline, the budget, or the memory that the job needs.",
            remedy=made.remedies[0][:1].upper() + made.remedies[0][1:] + "."
            if made.remedies
            else "Give it more time or money, or more offers.",
            confirm="wiretax plan without --deadline and --budget",
        )
    ]

"""Live prices from gpuhunt's catalogues, only when asked for by name of the provider: the one place of a plan that uses the network.

gpuhunt names cards without their form ("A100", 80 GB). Where that can be two cards the slower is assumed and said; a card that is not
known here is left out and counted, never taken for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from importlib import import_module
from typing import Any

from wiretax.data.gpus import GpuFacts, find_gpu
from wiretax.errors import CannotMeasure, MissingDependency
from wiretax.plan.offers import Offer

CURRENCY = "USD"
"""Of all catalogues (gpuhunt's ``CatalogItem.price`` is dollars an hour for the whole instance)."""

FORMS: dict[tuple[str, int], tuple[str, str]] = {
    ("A100", 40): ("A100 PCIe 40GB", "the catalogue does not say which A100: the slower PCIe card is assumed"),
    ("A100", 80): ("A100 PCIe 80GB", "the catalogue does not say which A100: the slower PCIe card is assumed"),
    ("H100", 80): ("H100 PCIe", "the catalogue does not say which H100: the slower PCIe card is assumed"),
    ("H100NVL", 94): ("H100 NVL", ""),
    ("H200", 141): ("H200 SXM", ""),
    ("H200NVL", 141): ("H200 NVL", ""),
    ("B200", 180): ("B200 SXM", ""),
    ("B200", 192): ("B200 SXM", ""),
    ("MI300X", 192): ("MI300X", ""),
    ("RTXPRO6000", 96): (
        "RTX PRO 6000 Blackwell Server",
        "the catalogue does not say which RTX PRO 6000: the slower Server card is assumed",
    ),
    ("V100", 16): ("V100 SXM2 16GB", "the catalogue does not say which V100: the SXM2 card is assumed"),
    ("V100", 32): ("V100 SXM2 32GB", "the catalogue does not say which V100: the SXM2 card is assumed"),
}
"""Names and memory in GB as gpuhunt has them, where they are not a card's own name."""


def live_offers(providers: Sequence[str], today: date) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """What providers ask at this moment.

    Args:
        providers: names as gpuhunt has them (``vastai``, ``runpod``, ``lambdalabs``, ...).
        today: the date of the prices.

    Returns:
        The offers, and notes on what was left out.

    Raises:
        MissingDependency: gpuhunt is not installed.
        CannotMeasure: the catalogue could not be asked.
    """
    try:
        gpuhunt = import_module("gpuhunt")
    except ImportError:
        raise MissingDependency("Live prices need gpuhunt.", do="pip install gpuhunt, or write an offers file.") from None
    try:
        items = gpuhunt.query(provider=list(providers), min_gpu_count=1)
    except Exception as error:
        # Any of a dozen clouds' clients may fail in its own way; the user can only try again or do without.
        raise CannotMeasure(
            f"The catalogue of {', '.join(providers)} could not be asked ({type(error).__name__}: {error}).",
            do="Look at the network and the provider's name, or write an offers file.",
        ) from error
    return offers_of(items, today)


def offers_of(items: Iterable[Any], today: date) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """Catalogue items as offers; like ones of one provider (other regions, other processors) only at their lowest price."""
    cheapest: dict[tuple[Any, ...], tuple[float, Any, GpuFacts, str]] = {}
    unknown: Counter[str] = Counter()
    for item in items:
        if not item.gpu_count or not item.gpu_name or not item.price or item.price <= 0:
            continue
        card, note = _card(item.gpu_name, item.gpu_memory)
        if card is None:
            unknown[f"{item.gpu_name} {item.gpu_memory:g} GB" if item.gpu_memory else item.gpu_name] += 1
            continue
        key = (item.provider, card.name, item.gpu_count, bool(item.spot))
        if key not in cheapest or item.price < cheapest[key][0]:
            cheapest[key] = (float(item.price), item, card, note)
    offers = tuple(_offer(price, item, card, note, today) for price, item, card, note in cheapest.values())
    notes = (f"left out, as these cards are not known here: {', '.join(sorted(unknown))}",) if unknown else ()
    return offers, notes


def _offer(price: float, item: Any, card: GpuFacts, note: str, today: date) -> Offer:
    count = int(item.gpu_count)
    return Offer(
        name=f"{item.provider} {item.instance_name}{' spot' if item.spot else ''}",
        gpu=card,
        num_gpus=count,
        price=price,
        price_low=price,
        price_high=price,
        currency=CURRENCY,
        per="box_hour",
        billing="spot" if item.spot else "on_demand",
        provider=str(item.provider),
        seen=today,
        source=f"gpuhunt, {item.location}",
        note=note,
    )


def _card(name: str, memory: float | None) -> tuple[GpuFacts | None, str]:
    """The card by gpuhunt's name and memory; both must agree, so that a 48 GB card is never taken for a 24 GB one."""
    formed = FORMS.get((name, round(memory or 0)))
    if formed is not None:
        return find_gpu(formed[0]), formed[1]
    found = find_gpu(name)
    if found is None or memory is None or abs(found.memory_bytes / 2**30 / memory - 1) > 0.1:
        return None, ""
    return found, ""

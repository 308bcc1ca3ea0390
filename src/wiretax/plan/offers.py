"""What can be rented: offers as the user, a dated list or a catalogue states them, joined with what is known of the GPU.

An offer is read strictly. A key that is not known, a GPU that is not known, a price that is none: each is an error that names the
place, because an offer read wrongly is money spent wrongly.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from wiretax.data.gpus import GpuFacts, close_matches, find_gpu
from wiretax.errors import BadInput, WiretaxError
from wiretax.model.money import Billing
from wiretax.units import money

MOST_GPUS_A_HOST = 16
"""No rentable host holds more GPUs (AWS p2.16xlarge, HGX-2); more in one offer are several hosts."""

WARN_AFTER_DAYS = 90
"""Spot and budget prices move within weeks, so an older list gets a warning."""

OLD_AFTER_DAYS = 365
"""From here on a list is called what it is: a year old."""

PRICES = ("price", "box_price", "spot_price", "spot_box_price")
KEYS = (
    "name",
    "provider",
    "gpu",
    "num_gpus",
    "hosts",
    *PRICES,
    "currency",
    "nvlink",
    "p2p",
    "mtbf",
    "seen",
    "source",
    "illustrative",
    "note",
)
"""Keys of an offer in a file, a dictionary or a column heading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something to rent, at one price. A spot price of the same box is another offer."""

    name: str
    gpu: GpuFacts | None = None
    """None where the user named no GPU: then neither memory nor speed of it is known."""
    num_gpus: int
    """In the box; of a price per GPU the most that can be had together."""
    hosts: int = 1
    price: float
    """Middle of the range, in ``currency`` for what ``per`` says."""
    price_low: float
    price_high: float
    currency: str
    per: Literal["gpu_hour", "box_hour"]
    billing: Billing = "on_demand"
    nvlink: bool | None = None
    """Whether NVLinks join the GPUs; None where nobody said."""
    p2p: bool | None = None
    """Whether GPUs reach each other over PCIe; None where nobody said."""
    mean_seconds_between_interruptions: float | None = None
    provider: str = ""
    seen: date | None = None
    source: str = ""
    illustrative: bool = False
    note: str = ""

    def counts(self, wanted: Sequence[int] | None) -> tuple[int, ...]:
        """Numbers of GPUs that can be used: those wanted; else powers of two up to the box, or the whole box where it is one price."""
        if self.hosts > 1:
            whole = (self.num_gpus,)
            return whole if wanted is None else tuple(count for count in wanted if count in whole)
        if wanted is not None:
            return tuple(count for count in wanted if count <= self.num_gpus)
        if self.per == "box_hour":
            return (self.num_gpus,)
        powers = [2**power for power in range(self.num_gpus.bit_length()) if 2**power <= self.num_gpus]
        return tuple(sorted({*powers, self.num_gpus}))

    def hourly(self, num_gpus: int) -> tuple[float, float, float]:
        """Money an hour for so many GPUs: low, middle, high. A whole box costs the same whatever part of it is used."""
        factor = num_gpus if self.per == "gpu_hour" else 1
        return self.price_low * factor, self.price * factor, self.price_high * factor


@dataclass(frozen=True, slots=True)
class Row:
    """An offer as it stands somewhere, with the place of each key for messages."""

    values: Mapping[str, Any]
    place: str
    """``offers.toml, offer 2``."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """``line 12`` by key, where known."""

    def at(self, key: str) -> str:
        """The place of one key."""
        line = self.lines.get(key)
        return f"{self.place}{f' ({line})' if line else ''}: {key}"


def read_offers(rows: Sequence[Row], *, common: Mapping[str, Any] | None = None, today: date) -> tuple[Offer, ...]:
    """Offers of rows: one for each price a row has.

    Args:
        rows: as read from a file.
        common: ``currency``, ``seen``, ``source``, ``illustrative`` for rows that do not say it.
        today: for dates.

    Raises:
        BadInput: with place and key; says what to write instead.
    """
    found: list[Offer] = []
    for row in rows:
        values = {**{key: value for key, value in (common or {}).items() if value is not None}, **_given(row)}
        found += _offers_of(Row(values, row.place, row.lines), today)
    return tuple(found)


def gpu_named(name: str, place: str = "", error: type[WiretaxError] = BadInput) -> GpuFacts:
    """The GPU of this name, never one that only looks like it.

    Raises:
        WiretaxError: of the given kind; the near names are listed.
    """
    found = find_gpu(name)
    if found is not None:
        return found
    near = close_matches(name)
    raise error(
        f"{place}{': ' if place else ''}{name!r} is no GPU that is known here.",
        do=f"Did you mean {' or '.join(near)}?"
        if near
        else "Leave it out and give --hours and --efficiency, or use a name such as RTX 4090.",
    )


def age_days(offer: Offer, today: date) -> int | None:
    """How old its price is; None where nobody wrote down when it was seen."""
    return None if offer.seen is None else (today - offer.seen).days


def told_apart(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers, those of one name by their provider too, or else by their price, so that a table's rows cannot be confused.

    Args:
        offers: of all files and lists together.
    """
    groups: dict[tuple[str, str, int], list[Offer]] = {}
    for offer in offers:
        groups.setdefault((offer.name, offer.billing, offer.num_gpus), []).append(offer)

    def named(offer: Offer) -> Offer:
        alike = groups[offer.name, offer.billing, offer.num_gpus]
        if len(alike) == 1:
            return offer
        providers = [one.provider for one in alike]
        if all(providers) and len(set(providers)) == len(alike):
            return replace(offer, name=f"{offer.name}, {offer.provider}")
        price = f"{money(offer.price, offer.currency)}{'' if offer.per == 'box_hour' else ' a GPU'}"
        cards = {one.gpu.name if one.gpu else "" for one in alike}
        more = [offer.provider, offer.gpu.name if offer.gpu and len(cards) > 1 else ""]
        return replace(offer, name=", ".join([offer.name, *filter(None, more), price]))

    return tuple(named(offer) for offer in offers)


def _given(row: Row) -> dict[str, Any]:
    """The keys of a row with values; an empty cell of a table is none."""
    given = {key: value for key, value in row.values.items() if value is not None and value != ""}
    unknown = [key for key in given if key not in KEYS]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), KEYS, n=1)
        raise BadInput(
            f"{row.at(unknown[0])} is no key of an offer.", do=f"Did you mean {near[0]}?" if near else f"Keys: {', '.join(KEYS)}."
        )
    return given


def _offers_of(row: Row, today: date) -> list[Offer]:
    values = row.values
    gpu = gpu_named(_text(row, "gpu"), row.at("gpu")) if "gpu" in values else None
    if gpu is None:
        raise BadInput(f"{row.place}: gpu is missing.", do='Name the GPU, for example gpu = "RTX 4090".')
    num_gpus = _count(row, "num_gpus", 1)
    hosts = _count(row, "hosts", 1)
    if num_gpus % hosts:
        raise BadInput(f"{row.at('hosts')}: {num_gpus} GPUs do not divide over {hosts} hosts.")
    if num_gpus // hosts > MOST_GPUS_A_HOST:
        raise BadInput(
            f"{row.at('num_gpus')}: no host has {num_gpus // hosts} GPUs.",
            do=f"If these are several hosts, say so: hosts = {math.ceil(num_gpus / 8)}.",
        )
    currency = _currency(row)
    prices = [key for key in PRICES if key in values]
    if not prices:
        raise BadInput(
            f"{row.place}: there is no price.", do="Write price = 2.0 (one GPU, one hour) or box_price = 0.58 (the whole box, one hour)."
        )
    if {"price", "box_price"} <= set(prices) or {"spot_price", "spot_box_price"} <= set(prices):
        raise BadInput(f"{row.place}: a price per GPU and one for the box exclude each other.", do="Keep the one you would be billed for.")
    gap = _span(row, "mtbf") if "mtbf" in values else None
    alone = num_gpus == 1 or not any(key.endswith("box_price") for key in prices)
    named = _text(row, "name") if "name" in values else gpu.name if alone else f"{num_gpus}x {gpu.name} box"
    provider = _text(row, "provider") if "provider" in values else ""
    offers = []
    for key in prices:
        low, high = _amounts(row, key)
        spot = key.startswith("spot_")
        offers.append(
            Offer(
                name=f"{named} spot" if spot and len(prices) > 1 else named,
                gpu=gpu,
                num_gpus=num_gpus,
                hosts=hosts,
                price=(low + high) / 2,
                price_low=low,
                price_high=high,
                currency=currency,
                per="box_hour" if key.endswith("box_price") else "gpu_hour",
                billing="spot" if spot else "on_demand",
                nvlink=_truth(row, "nvlink"),
                p2p=_truth(row, "p2p"),
                mean_seconds_between_interruptions=gap,
                provider=provider,
                seen=_date(row, today),
                source=_text(row, "source") if "source" in values else "",
                illustrative=bool(_truth(row, "illustrative")),
                note=_text(row, "note") if "note" in values else "",
            )
        )
    return offers


def _text(row: Row, key: str) -> str:
    value = row.values[key]
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{row.at(key)} must be a text, not {value!r}.")
    return value.strip()


def _count(row: Row, key: str, default: int) -> int:
    value = row.values.get(key, default)
    number = _number(value)
    if number is None or number != int(number) or number < 1:
        raise BadInput(f"{row.at(key)} is {value!r}, but must be a whole number from 1 up.")
    return int(number)


def _amounts(row: Row, key: str) -> tuple[float, float]:
    """One price, or the two ends of a range."""
    value = row.values[key]
    ends = list(value) if isinstance(value, (list, tuple)) else _range_text(value)
    numbers = [_number(one) for one in ends]
    if len(numbers) not in (1, 2) or any(one is None for one in numbers):
        raise BadInput(
            f"{row.at(key)} is {value!r}, which is no price.",
            do="Write a number, such as 0.58, and the currency in its own key; a range as [0.80, 1.20].",
        )
    amounts = [one for one in numbers if one is not None]
    if min(amounts) < 0:
        raise BadInput(f"{row.at(key)} is negative ({min(amounts):g}).", do="A price is 0 or more.")
    return min(amounts), max(amounts)


def _range_text(value: Any) -> list[Any]:
    """``0.80-1.20`` of a table's cell as two numbers."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d*\.?\d+)\s*(?:-|to|\u2013)\s*(\d*\.?\d+)\s*", value)):
        return [match[1], match[2]]
    return [value]


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _currency(row: Row) -> str:
    value = row.values.get("currency")
    if value is None:
        raise BadInput(f"{row.place}: the price has no currency.", do='Write currency = "EUR" beside it, or once at the top of the file.')
    text = str(value).strip().upper()
    if not (len(text) == 3 and text.isascii() and text.isalpha()):
        raise BadInput(f"{row.at('currency')} is {value!r}, which is no currency.", do="Write a code such as EUR or USD.")
    return text


def _truth(row: Row, key: str) -> bool | None:
    value = row.values.get(key)
    if value is None or isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = words.get(str(value).strip().lower())
    if found is None:
        raise BadInput(f"{row.at(key)} is {value!r}, but must be true or false.", do="Leave it out where it is not known.")
    return found


_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _span(row: Row, key: str) -> float:
    value = row.values[key]
    match = _SPAN.fullmatch(str(value).strip())
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not seconds > 0:
        raise BadInput(f"{row.at(key)} is {value!r}, which is no time span.", do='Write one with its unit, such as "6h".')
    return seconds


def _date(row: Row, today: date) -> date | None:
    value = row.values.get("seen")
    if value is None:
        return None
    if isinstance(value, date):
        found = date(value.year, value.month, value.day)
    else:
        try:
            found = date.fromisoformat(str(value).strip()[:10])
        except ValueError:
            raise BadInput(f"{row.at('seen')} is {value!r}, which is no date.", do="Write it as 2026-11-30.") from None
    if (found - today).days > 1:
        raise BadInput(f"{row.at('seen')} is {found}, which is still to come.", do="Write the day on which the price was seen.")
    return found

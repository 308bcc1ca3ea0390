"""The kinds of values options take: a time span, a list of GPUs, a price with its currency."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from wiretax.model.money import Price

if TYPE_CHECKING:
    Kind = click.ParamType[Any]
else:
    Kind = click.ParamType  # Not subscriptable before click 8.4.

MOST_DIGITS = 18
"""Of a whole number: no count of GPUs, ranks or samples has more."""
_SPAN = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?)?", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def whole_number(text: str) -> int | None:
    """The number that a few plain digits spell; None for anything else (Python itself gives up at thousands of digits)."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


class TimeSpan(Kind):
    """``60``, ``60s``, ``2m``, ``1.5h``: seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds of a text or a bare number."""
        match = _SPAN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no time span; write 60s, 2m or 1h.", param, ctx)
        seconds = float(match["number"]) * _SECONDS[(match["unit"] or "s")[0].lower()]
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} must be more than nothing.", param, ctx)
        return seconds


class GpuList(Kind):
    """``0,1``: CUDA ordinals, as PyTorch numbers the visible GPUs."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers of a text."""
        if isinstance(value, tuple):
            return value
        numbers = tuple(number for part in str(value).split(",") if (number := whole_number(part)) is not None)
        if len(numbers) <= str(value).count(","):
            self.fail(f"{value!r} is no list of GPU numbers; write 0,1.", param, ctx)
        if len(set(numbers)) != len(numbers):
            self.fail(f"{value!r} names a GPU twice.", param, ctx)
        return numbers


class NameList(Kind):
    """``all_reduce,all_gather``: some of a set of known names."""

    name = "list"

    def __init__(self, known: Sequence[str]) -> None:
        """Knows the names that are allowed."""
        self.known = tuple(known)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names of a text, in the order given."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(part.strip() for part in str(value).split(",")))
        unknown = [name for name in names if name not in self.known]
        if unknown:
            self.fail(f"{unknown[0]!r} is none of {', '.join(self.known)}.", param, ctx)
        return names


class Amount(Kind):
    """A price: a finite number that is not negative."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The amount as a number."""
        try:
            amount = float(value)
        except (TypeError, ValueError):
            amount = math.nan
        if isinstance(value, bool) or not math.isfinite(amount) or amount < 0:
            self.fail(f"{value!r} is no price; write a number such as 0.58.", param, ctx)
        return amount


class Currency(Kind):
    """A currency code of three letters."""

    name = "code"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The code in capitals."""
        text = str(value).strip().upper()
        if not (len(text) == 3 and text.isascii() and text.isalpha()):
            self.fail(f"{value!r} is no currency; write a code such as EUR or USD.", param, ctx)
        return text


def price_of(price: float | None, box_price: float | None, currency: str | None) -> Price | None:
    """The price that two options and a currency make, or None without any.

    Raises:
        click.UsageError: both prices, or a price without a currency.
    """
    if price is None and box_price is None:
        return None
    if price is not None and box_price is not None:
        raise click.UsageError("give --price (one GPU, one hour) or --box-price (the whole box, one hour), not both.")
    if currency is None:
        raise click.UsageError("a price needs its currency, such as --currency EUR.")
    if price is not None:
        return Price(amount=price, currency=currency, per="gpu_hour")
    assert box_price is not None
    return Price(amount=box_price, currency=currency, per="box_hour")

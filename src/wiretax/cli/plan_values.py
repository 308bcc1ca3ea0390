"""The kinds of values only ``wiretax plan`` takes: hours, deadlines, efficiencies, figures by number of GPUs, large counts."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

import click

from wiretax.cli.values import Kind, whole_number
from wiretax.errors import WiretaxError
from wiretax.plan.cost import check_efficiency

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(days?|d|hours?|h|minutes?|min|m|seconds?|sec|s)", re.IGNORECASE)
_HOURS = {"d": 24.0, "h": 1.0, "m": 1 / 60, "s": 1 / 3600}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)\s*([kKmMbBgGtT]?)")
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


class Hours(Kind):
    """``40``, ``40h``, ``2400m``, ``1d16h``: hours; a bare number is hours."""

    name = "hours"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The hours of a text or a bare number."""
        text = str(value).strip()
        hours = _bare(text)
        if hours is None:
            hours = _span(text)
        if hours is None:
            self.fail(f"{value!r} is no time; write 40h, 2400m or 1d16h.", param, ctx)
        if not 0 < hours < math.inf:
            self.fail(f"{value!r} must be more than nothing.", param, ctx)
        return hours


class Deadline(Kind):
    """``24h``, ``2d``, or a date and time in local time (``2026-12-05T18:00``): hours from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The hours from now."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        hours = _span(text)
        if hours is None and _bare(text) is not None:
            self.fail(f"{value!r} has no unit; write {text}h, or a date such as 2026-12-05T18:00.", param, ctx)
        if hours is None:
            try:
                then = datetime.fromisoformat(text)
            except ValueError:
                self.fail(f"{value!r} is no deadline; write 24h, 2d, or a date such as 2026-12-05T18:00.", param, ctx)
            hours = (then.astimezone() - datetime.now().astimezone()).total_seconds() / 3600
            if hours <= 0:
                self.fail(f"{value!r} has passed {_ago(-hours)} ago.", param, ctx)
        if not 0 < hours < math.inf:
            self.fail(f"{value!r} must be more than nothing.", param, ctx)
        return hours


class Efficiencies(Kind):
    """``0.8`` for every number of GPUs above one, or ``2:0.9,4:0.8``."""

    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | dict[int, float]:
        """One fraction, or fractions by number of GPUs."""
        if isinstance(value, dict):
            return value
        text = str(value).strip()
        if ":" in text:
            return {count: self._fraction(one, param, ctx) for count, one in _by_count(self, text, param, ctx).items()}
        return self._fraction(text, param, ctx)

    def _fraction(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if text.endswith("%"):
            percent = _bare(text[:-1].strip())
            instead = f"write {percent / 100:g}" if percent is not None else "write a fraction such as 0.8"
            self.fail(f"{text!r} is a percentage; {instead}.", param, ctx)
        number = _bare(text)
        if number is None:
            self.fail(f"{text!r} is no efficiency; write a fraction such as 0.8, or 2:0.9,4:0.8.", param, ctx)
        try:
            return check_efficiency(number)
        except WiretaxError as error:
            self.fail(str(error), param, ctx)


class Rates(Kind):
    """``1:15.4,2:4.5,4:14.0``: samples per second of all GPUs together, by number of GPUs."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, float]:
        """The rates by number of GPUs."""
        if isinstance(value, dict):
            return value
        text = str(value).strip()
        if ":" not in text and (alone := _bare(text)) is not None and alone > 0:
            return {1: alone}
        found = {}
        for count, one in _by_count(self, text, param, ctx).items():
            rate = _bare(one)
            if rate is None or not rate > 0:
                self.fail(f"{one!r} is no throughput; write samples per second, such as 15.4.", param, ctx)
            found[count] = rate
        return found


class Quantity(Kind):
    """``1e6``, ``10M``, ``300B``: a large count."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The count of a text or a bare number."""
        match = _NUMBER.fullmatch(str(value).strip().replace("_", ""))
        number = float(match[1]) * _SCALE[match[2].lower()] if match else 0.0
        if not 0 < number < math.inf:
            self.fail(f"{value!r} is no count; write 1000000, 1e6 or 1M.", param, ctx)
        return number


def _by_count(kind: Kind, text: str, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, str]:
    found: dict[int, str] = {}
    for part in text.split(","):
        count, colon, value = (one.strip() for one in part.partition(":"))
        number = whole_number(count) or 0
        if not colon or number < 1:
            kind.fail(f"{part.strip()!r} must be GPUs:value, such as 4:0.8.", param, ctx)
        if number in found:
            kind.fail(f"{text!r} names {count} GPUs twice.", param, ctx)
        found[number] = value
    return found


def _bare(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _span(text: str) -> float | None:
    """Hours of ``1d16h``, ``40 h``; None where the text is not made of such parts."""
    if not text or _PART.sub("", text).strip():
        return None
    return sum(float(number) * _HOURS[unit[0].lower()] for number, unit in _PART.findall(text))


def _ago(hours: float) -> str:
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} hours"

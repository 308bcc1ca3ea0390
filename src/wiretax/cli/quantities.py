"""Options that take quantities: bytes, rates, counts of parameters, short times, lists of numbers, levers of a strategy.

Units are read strictly, because a factor of 8 or 1.07 is exactly what this tool is about: MB is 10^6 bytes, MiB 2^20, Mbit a million
bits. What can be read in two ways is refused with what to write instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import click
import msgspec

from wiretax.cli.values import Kind, whole_number
from wiretax.errors import UsageError
from wiretax.show.plain import short
from wiretax.units import significant

Levers = TypeVar("Levers")

MOST_GPUS = 65536

MOST_BYTES = 1e18
"""Of a size, and in a second of a rate: far above any model and any wire. Beyond, figures would only be absurd or too large to reckon."""
MOST_PARAMETERS = 1e17
MOST_SECONDS = 1e6
"""Of a training step or a start-up: eleven days."""
MOST_TOKENS = 2**30
MOST_MICRO_STEPS = 2**20

_NUMBER = r"(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)\s*"
_SIZE = re.compile(_NUMBER + r"(?P<unit>[A-Za-z]*)")
_RATE = re.compile(_NUMBER + r"(?P<unit>[A-Za-z]+?)\s*(?P<per>/\s*s(?:ec(?:ond)?)?|ps)?")
_COUNT = re.compile(_NUMBER + r"(?P<unit>[kKmMbBtT]?)")
_SHORT_TIME = re.compile(_NUMBER + r"(?P<unit>us|µs|ms|s)?")

BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} | {
    name: float(2**power) for name, power in (("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40))
}
BITS = {"bit": 1.0} | {prefix + word: scale for word in ("bit", "b") for prefix, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))}


class Size(Kind):
    """``200MB``, ``1.5GiB``, ``200000000``: bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The bytes of a text or a bare number."""
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size; write 200MB, 1.5GiB or a number of bytes.", param, ctx)
        unit = match["unit"] or "B"
        if unit not in BYTES:
            self.fail(_which_bytes(str(value), match["number"], unit, ""), param, ctx)
        return _within(self, value, float(match["number"]) * BYTES[unit], (1.0, MOST_BYTES), param, ctx)


class Rate(Kind):
    """``22GB/s``, ``22GiB/s``, ``176Gbit/s``: bytes per second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The bytes per second of a text."""
        match = _RATE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} has no unit that is a rate; write 22GB/s, or 176Gbit/s.", param, ctx)
        unit = match["unit"]
        if match["per"] is None:
            self.fail(f"{value!r} is an amount, not a rate; write {match['number']}{unit}/s.", param, ctx)
        if unit == "GT":
            self.fail(f"{value!r} counts transfers on one lane, not bytes; write the rate, such as 22GB/s.", param, ctx)
        if unit not in BYTES and unit not in BITS:
            self.fail(_which_bytes(str(value), match["number"], unit, "/s"), param, ctx)
        scale = BYTES[unit] if unit in BYTES else BITS[unit] / 8
        return _within(self, value, float(match["number"]) * scale, (1.0, MOST_BYTES), param, ctx)


class Parameters(Kind):
    """``7e9``, ``1.7B``, ``124M``: how many parameters a model has."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The count of a text."""
        match = _COUNT.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no number of parameters; write 7e9, 1.7B or 124M.", param, ctx)
        scale = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}[match["unit"].lower()]
        return _within(self, value, float(match["number"]) * scale, (1.0, MOST_PARAMETERS), param, ctx)


class ShortTime(Kind):
    """``90ms``, ``0.09s``, ``15us``: seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds of a text with its unit."""
        match = _SHORT_TIME.fullmatch(str(value).strip())
        if match is None or match["unit"] is None:
            self.fail(f"{value!r} is no time with a unit; write 90ms, 0.09s or 15us.", param, ctx)
        scale = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[match["unit"]]
        return _within(self, value, float(match["number"]) * scale, (1e-12, MOST_SECONDS), param, ctx)


class Whole(Kind):
    """``1024``: one whole number within what makes sense."""

    name = "integer"

    def __init__(self, least: int, most: int) -> None:
        """Knows both ends, which belong to it."""
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of a text."""
        number = whole_number(str(value))
        if number is None or not self.least <= number <= self.most:
            self.fail(f"{short(str(value), 40)!r} is no whole number from {self.least} to {self.most}.", param, ctx)
        return number


class Counts(Kind):
    """``1,2,4,8``: whole numbers above zero, each once, in the order given."""

    name = "list"

    def __init__(self, what: str, most: int = MOST_GPUS) -> None:
        """Knows what is counted, for messages, and the largest number that makes sense."""
        self.what = what
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers of a text."""
        if isinstance(value, tuple):
            return value
        numbers = [whole_number(part) or 0 for part in str(value).split(",")]
        if not all(0 < number <= self.most for number in numbers):
            self.fail(f"{value!r} is no list of {self.what}; write 1,2,4 (each from 1 to {self.most}).", param, ctx)
        return tuple(dict.fromkeys(numbers))


class Words(Kind):
    """``ddp,fsdp2``: names, each once; what they may be is known to whoever uses them."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names of a text, in the order given."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(part.strip() for part in str(value).split(",")))
        if not all(names):
            self.fail(f"{value!r} is no list of names; write a,b.", param, ctx)
        return names


def levers(texts: Sequence[str], kind: type[Levers], **known: Any) -> Levers:
    """The levers of ``--set NAME=VALUE``, by torch's names.

    Args:
        texts: as given.
        kind: a dataclass of levers; its fields are the names.
        known: levers that options of their own have set.

    Raises:
        UsageError: not NAME=VALUE, no such lever, or a value it cannot have.
    """
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    found: dict[str, Any] = dict(known)
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lower().replace("-", "_")
        if not equals:
            raise UsageError(f"{text!r} is no lever.", do=f"Write --set NAME=VALUE, such as --set {names[0]}=1.")
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            raise UsageError(f"There is no lever {name!r}.", do=f"Did you mean {close[0]}?" if close else f"There are {', '.join(names)}.")
        if name in found:
            raise UsageError(f"The lever {name} is set twice.")
        found[name] = value.strip()
    for name, value in found.items():
        try:
            msgspec.convert({name: value}, kind, strict=False)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0]
            raise UsageError(f"{name} cannot be {value!r}: {what[:1].lower()}{what[1:]}.") from None
    return msgspec.convert(found, kind, strict=False)


def _which_bytes(value: str, number: str, unit: str, end: str) -> str:
    """What to write instead of a unit that is not known, or that may be bits or bytes."""
    by_letters = {name.lower(): name for name in BYTES}
    if unit in BITS:
        as_bytes = significant(float(number) * BITS[unit] / 8 / 1e6)
        return f"{value!r} counts bits; write {as_bytes}MB{end} for those, or {number}{by_letters.get(unit.lower(), 'MB')}{end} for bytes."
    if unit.lower() in by_letters:
        meant = by_letters[unit.lower()]
        return f"{value!r} can be bits or bytes; write {number}{meant}{end} for bytes or {number}{meant[0]}bit{end} for bits."
    if unit.lower() in ("k", "m", "g", "t"):
        letter = unit.upper()
        return f"{value!r} can be {letter}B (decimal) or {letter}iB (binary); write one of them."
    return f"{value!r} has the unknown unit {unit!r}; there are {', '.join(name for name in BYTES if name != 'KB')}."


def _within(
    kind: Kind, value: Any, number: float, ends: tuple[float, float], param: click.Parameter | None, ctx: click.Context | None
) -> float:
    low, high = ends
    if not number > 0:
        kind.fail(f"{short(str(value), 40)!r} must be more than nothing.", param, ctx)
    if not low <= number <= high:
        kind.fail(f"{short(str(value), 40)!r} is {'less' if number < low else 'more'} than there can be.", param, ctx)
    return number

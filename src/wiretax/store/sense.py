"""What a document cannot say, although its types allow it: nonsense that would be shown as if it were a machine, and broken text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from wiretax.errors import BadDocument
from wiretax.model.forecast import Interval
from wiretax.model.machine import Machine
from wiretax.model.profile import Profile
from wiretax.model.run import Run

MEASURED = re.compile(r"(seconds|bytes|per_second|elements|size|multiprocessors|num_\w+)(\[\d+\])?$")
"""Paths whose numbers cannot be below zero; units are in the names."""

HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""How JSON spells half of a surrogate pair; most files have none, and need no closer look."""


def refuse_nonsense(machine: Machine, source: str) -> None:
    """Raises where a recorded machine contradicts itself.

    Args:
        machine: as read from a file.
        source: the file's name.

    Raises:
        BadDocument: two GPUs of one index, an index or size below zero, a pair of a GPU with itself; the message has the path.
    """
    indices: set[int] = set()
    for number, gpu in enumerate(machine.gpus):
        where = f"{source}: $.gpus[{number}]"
        if gpu.index < 0 or gpu.index in indices:
            raise BadDocument(f"{where}.index: {gpu.index} is {'less than 0' if gpu.index < 0 else 'there twice'}.")
        if gpu.memory_bytes is not None and gpu.memory_bytes < 0:
            raise BadDocument(f"{where}.memory_bytes: {gpu.memory_bytes} is less than 0.")
        indices.add(gpu.index)
    for number, pair in enumerate(machine.pairs):
        if pair.source_gpu == pair.target_gpu:
            raise BadDocument(f"{source}: $.pairs[{number}]: both ends are GPU {pair.source_gpu}.")


def refuse_impossible(run: Run, source: str) -> None:
    """Raises where a run holds figures that nothing can have, and by which everybody who shows or compares it divides.

    Args:
        run: as read from a file.
        source: the file's name.

    Raises:
        BadDocument: a size, time, rate or count of none or less; the message has the path.
    """
    for place, value in _divisors(run):
        if not value > 0:
            raise BadDocument(f"{source}: {place}: {value} is not more than 0.", do="The file is damaged or was edited by hand.")


def _divisors(run: Run) -> Iterator[tuple[str, float]]:
    for number, series in enumerate(run.measurements.collectives):
        at = f"$.measurements.collectives[{number}]"
        yield f"{at}.world_size", series.world_size
        for n, point in enumerate(series.points):
            yield f"{at}.points[{n}].num_bytes", point.num_bytes
            yield f"{at}.points[{n}].seconds", point.seconds
    for number, row in enumerate(run.expectations):
        yield f"$.expectations[{number}].expected_bytes_per_second", row.expected_bytes_per_second
    for number, step in enumerate(run.training.steps):
        yield f"$.training.steps[{number}].num_gpus", step.num_gpus
        yield f"$.training.steps[{number}].step_seconds", step.step_seconds
    for number, forecast in enumerate(run.forecasts):
        yield f"$.forecasts[{number}].num_gpus", forecast.num_gpus
        for name in ("step_seconds", "peak_memory_bytes"):
            interval: Interval | None = getattr(forecast, name)
            for end in ("low", "expected", "high") if interval is not None else ():
                yield f"$.forecasts[{number}].{name}.{end}", getattr(interval, end)


def refuse_unreal(profile: Profile, source: str, where: str = "$") -> None:
    """Raises where a profile holds what no step can have: the predictor reckons with every figure of it.

    Args:
        profile: as read from a file.
        source: the file's name.
        where: path of the profile in it.

    Raises:
        BadDocument: a time, size or count below 0, a batch or world of none, a step without time, an index of nothing, a lever that
            is no number; the message has the path.
    """
    for place, why in _unreal(profile, where):
        raise BadDocument(f"{source}: {place}: {why}.", do="The file is damaged or was edited by hand; take the profile again.")


def _unreal(profile: Profile, where: str) -> Iterator[tuple[str, str]]:
    yield from _below_zero(msgspec.to_builtins(profile), where)
    ones = [(f"{where}.workload.batch_size", profile.workload.batch_size)]
    ones += [(f"{where}.memory[{number}].batch_size", one.batch_size) for number, one in enumerate(profile.memory)]
    ones += [(f"{where}.free_steps[{number}].world_size", one.world_size) for number, one in enumerate(profile.free_steps)]
    yield from ((place, f"{value} is less than 1") for place, value in ones if value < 1)
    if not profile.bare.step.seconds > 0:
        yield f"{where}.bare.step.seconds", "a step that takes no time"
    parameters, segments = range(len(profile.parameters)), range(len(profile.segments))
    indices: list[tuple[str, int, range]] = []
    for number, parameter in enumerate(profile.parameters):
        if parameter.segment is not None:
            indices.append((f"{where}.parameters[{number}].segment", parameter.segment, segments))
    ready = [one.parameter for one in profile.gradient_ready]
    indices += [(f"{where}.gradient_ready[{number}].parameter", one, parameters) for number, one in enumerate(ready)]
    for number, free in enumerate(profile.free_steps):
        at = f"{where}.free_steps[{number}]"
        indices += [
            (f"{at}.buckets[{n}].parameters", one, parameters) for n, bucket in enumerate(free.buckets) for one in bucket.parameters
        ]
        indices += [(f"{at}.groups[{n}].segments", one, segments) for n, group in enumerate(free.groups) for one in group.segments]
        yield from ((f"{at}.options.{name}", f"{free.options[name]!r} is no number above 0") for name in _no_levers(free.options))
    yield from ((place, f"{index}, and there are {len(known)}") for place, index, known in indices if index not in known)
    if len(set(ready)) < len(ready):
        yield f"{where}.gradient_ready", "one parameter is there twice"


def _no_levers(options: Mapping[str, str]) -> Iterator[str]:
    """Names of the levers that should be numbers and are not."""
    for name, kind in (("bucket_cap_mb", float), ("shard_group_size", int)):
        text = options.get(name, "None")
        try:
            if text not in ("", "None") and not 0 < kind(text) < 1e9:
                yield name
        except ValueError:
            yield name


def _below_zero(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Times, sizes, counts and rates of a document that are less than nothing."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _below_zero(one, f"{where}.{name}")
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _below_zero(one, f"{where}[{number}]")
    elif isinstance(value, (int, float)) and value < 0 and MEASURED.search(where):
        yield where, f"{value} is less than 0"


def as_text(value: Any) -> Any:
    """The same plain data with a mark of replacement for what is no character.

    Python keeps bytes of variables and paths that are no UTF-8 as halves of surrogate pairs, which no file can hold.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if _escaped(value) else _replaced(value)
    if isinstance(value, dict):
        return {as_text(key): as_text(one) for key, one in value.items()}
    return [as_text(one) for one in value] if isinstance(value, list) else value


def _escaped(text: str) -> bool:
    return all("\udc80" <= character <= "\udcff" for character in text if "\ud800" <= character <= "\udfff")


def _replaced(text: str) -> str:
    return "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= character <= "\udfff" else character for character in text)

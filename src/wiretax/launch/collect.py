"""From the files of the ranks to measurements: half a line, a killed rank or a full disk cost only what they cut off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from wiretax.launch import worker
from wiretax.launch.plan import LaunchPlan
from wiretax.model.measurement import Collective, Compute, Copy, Incident, Measurements, Overlap, PeerTruth, Point
from wiretax.model.profile import FreeStep, MemoryPoint, Profile
from wiretax.model.training import StepTiming

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Copy, Compute, Overlap, PeerTruth, Incident, StepTiming, Profile, FreeStep, MemoryPoint)
}


@dataclass(slots=True, kw_only=True)
class Collected:
    """What the ranks left behind.

    Attributes:
        measurements: merged; incidents reported by ranks included.
        steps: real training steps.
        profiles: of one-GPU steps, each with the strategies and peaks of memory that were taken after it.
        facts: by name, one value per rank that stated it, in rank order.
        unreadable: descriptions of lines that could not be read.
    """

    measurements: Measurements = field(default_factory=Measurements)
    steps: tuple[StepTiming, ...] = ()
    profiles: tuple[Profile, ...] = ()
    facts: dict[str, list[Any]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def collect(folder: Path, plan: LaunchPlan) -> Collected:
    """Reads everything the ranks of a launch wrote.

    A size measured twice (first quickly, then better) counts once, as measured last. A pair's peer truth that was begun and
    never decided is a hang.
    """
    collected = Collected()
    found: dict[str, list[Any]] = {name: [] for name in _KINDS}
    series: dict[tuple[Any, ...], tuple[Collective, dict[int, Point]]] = {}
    for rank in range(plan.world_size):
        for number, line in _lines(worker.results_file(folder, rank)):
            try:
                _take(msgspec.json.decode(line), found, series, collected.facts)
            except (msgspec.MsgspecError, KeyError, ValueError, TypeError) as error:
                collected.unreadable.append(f"rank {rank}, record {number}: {error}")
    collectives = tuple(
        dataclasses.replace(header, points=tuple(points[size] for size in sorted(points))) for header, points in series.values()
    )
    collected.measurements = Measurements(
        copies=tuple(found["Copy"]),
        peer_truth=_last_of_each(found["PeerTruth"], lambda truth: (truth.source_gpu, truth.target_gpu)),
        collectives=collectives,
        compute=_last_of_each(found["Compute"], lambda compute: (compute.rank, compute.together)),
        overlap=tuple(found["Overlap"]),
        incidents=tuple(found["Incident"]),
    )
    collected.steps = tuple(found["StepTiming"])
    collected.profiles = tuple(found["Profile"])
    return collected


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    *whole, _cut_off = data.split(b"\n")  # a line without its end was being written when the rank was killed or the disk was full
    for number, line in enumerate(whole, start=1):
        if line:
            yield number, line


def _take(
    record: Any,
    found: dict[str, list[Any]],
    series: dict[tuple[Any, ...], tuple[Collective, dict[int, Point]]],
    facts: dict[str, list[Any]],
) -> None:
    name = record["record"]
    if name == "Point":
        header = msgspec.convert(record["series"], Collective)
        key = (header.backend, header.operation, header.wire, header.world_size, header.gpus, header.mode)
        points = series[key][1] if key in series else {}
        if record["value"] is not None:
            point = msgspec.convert(record["value"], Point)
            points[point.num_bytes] = point
        series[key] = (header, points)
    elif name == "Fact":
        facts.setdefault(record["name"], []).append(record["value"])
    elif name in ("FreeStep", "MemoryPoint"):
        _add_to_profile(found["Profile"], msgspec.convert(record["value"], _KINDS[name]))
    else:
        found[name].append(msgspec.convert(record["value"], _KINDS[name]))


def _add_to_profile(profiles: list[Profile], part: FreeStep | MemoryPoint) -> None:
    """A strategy's step or a peak of memory belongs to the profile before it.

    Raises:
        ValueError: there is none.
    """
    if not profiles:
        raise ValueError(f"a {type(part).__name__} without the bare step before it")
    last = profiles[-1]
    if isinstance(part, FreeStep):
        profiles[-1] = dataclasses.replace(last, free_steps=(*last.free_steps, part))
    else:
        profiles[-1] = dataclasses.replace(last, memory=(*last.memory, part))


def _last_of_each(results: list[Any], key: Callable[[Any], Any]) -> tuple[Any, ...]:
    """A later word on the same thing takes the earlier one's place."""
    return tuple({key(result): result for result in results}.values())

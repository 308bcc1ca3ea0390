"""``wiretax profile``: one training step on one device, bare and under each strategy with communication made free (DESIGN 6.1).

Each part is best run in a process of its own, so that peaks of memory are its own: :func:`profile_stage` does one part for a
launcher, :func:`join` puts them together. :func:`profile` does all of them here, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from wiretax.errors import WiretaxError
from wiretax.measure.host_load import HostLoadMeter, meter_of
from wiretax.model.measurement import HostLoad, Incident
from wiretax.model.profile import FreeStep, MemoryPoint, Profile, Workload
from wiretax.train import imports
from wiretax.train.bare import profile_bare
from wiretax.train.free_step import profile_strategy
from wiretax.train.memory import allocated, forget
from wiretax.train.sampling import Effort
from wiretax.train.strategy import Options, strategy_name
from wiretax.train.workload import Settings, Step, load_workload

if TYPE_CHECKING:
    import torch

    from wiretax.measure.rank import Rank

BARE = "bare"
"""The part that no strategy is named for; every profile starts with it."""

RANKS_AT_ONCE = "ranks_at_once"
"""Key of ``Profile.environment``: how many ranks ran the same step beside each other while it was timed."""

before_forks = imports.before_forks

Source = str | Callable[["torch.device"], tuple[Step, Workload]]
"""What :func:`wiretax.train.workload.load_workload` takes, or a function that builds the step anew each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part gave: a profile without strategies, or one strategy's step."""

    bare: Profile | None = None
    step: FreeStep | None = None
    memory: tuple[MemoryPoint, ...] = ()


def profile_part(
    part: str,
    source: Source,
    device: torch.device,
    *,
    settings: Settings | None = None,
    world_size: int = 2,
    options: Options | None = None,
    effort: Effort | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Part:
    """One part, in this process. No process group may exist.

    Args:
        part: ``bare``, or a strategy by any of its names.
        source: the workload.
        device: where it runs.
        settings: how it is trained.
        world_size: GPUs that the strategy is to think there are.
        options: the strategy's levers.
        effort: how long to sample.
        tick: called after each step.

    Raises:
        UsageError: there is no such workload or strategy, or this workload cannot have it.
        BadInput: the user's step cannot be trained.
        CannotMeasure: memory runs out; says at what batch it would fit.
    """
    effort = effort or Effort()
    if device.type == "cuda":
        import torch

        torch.cuda.set_device(device)
    forget(device)
    base = allocated(device)
    step, workload = load_workload(source, device, settings) if isinstance(source, str) else source(device)
    if part == BARE:
        meter = HostLoadMeter([os.getpid()])
        found = profile_bare(step, workload, device, effort, base_bytes=base, tick=tick)
        return Part(bare=replace(found, host_load=meter.read(), created_at=datetime.now(UTC).isoformat(timespec="seconds")))
    result = profile_strategy(
        strategy_name(part), step, workload, device, effort, world_size=world_size, options=options, base_bytes=base, tick=tick
    )
    return Part(step=result.step, memory=result.memory)


def join(bare: Profile, parts: Sequence[Part], failed: Mapping[str, str] | None = None) -> Profile:
    """The whole profile.

    Args:
        bare: from the part ``bare``.
        parts: of the strategies.
        failed: reasons by strategy, of those that could not be profiled; they become notes.
    """
    steps = tuple(one.step for one in parts if one.step is not None)
    memory = tuple(point for one in parts for point in one.memory)
    notes = tuple(f"{strategy} was not profiled: {why}" for strategy, why in (failed or {}).items())
    return replace(
        bare,
        free_steps=(*bare.free_steps, *steps),
        memory=(*bare.memory, *memory),
        notes=(*bare.notes, *notes),
    )


def profile(
    source: Source,
    device: torch.device | str = "cuda",
    *,
    settings: Settings | None = None,
    strategies: Sequence[str] = ("ddp", "fsdp2", "tp"),
    world_size: int = 2,
    options: Options | None = None,
    effort: Effort | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Profile:
    """All parts one after the other in this process.

    A strategy that this workload cannot have is left out, with its reason among the notes.

    Args:
        source: a preset, ``module:function``, a ``config.json``, or a function that builds the step.
        device: where it runs.
        settings: how it is trained.
        strategies: by any of their names.
        world_size: GPUs that the strategies are to think there are.
        options: levers of all strategies.
        effort: how long to sample each part.
        tick: called after each step.

    Raises:
        UsageError: there is no such workload or strategy.
        BadInput: the user's step cannot be trained.
        CannotMeasure: memory runs out in the bare step.
    """
    import torch

    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    names = [strategy_name(one) for one in strategies]
    common: dict[str, Any] = {"settings": settings, "world_size": world_size, "options": options, "effort": effort, "tick": tick}
    bare = profile_part(BARE, source, place, **common).bare
    assert bare is not None
    parts: list[Part] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            parts.append(profile_part(name, source, place, **common))
        except WiretaxError as error:
            failed[name] = str(error)
    return join(bare, parts, failed)


def profile_stage(
    rank: Rank,
    *,
    part: str,
    source: str,
    settings: dict[str, Any] | None = None,
    world_size: int = 2,
    options: dict[str, Any] | None = None,
    seconds: float = 3.0,
) -> None:
    """One part as a stage of a launch.

    On GPUs only rank 0 works and the others wait for it. CPU ranks share processors, caches and memory, so there all do the same
    at once, as they will in training; rank 0 keeps its own.

    Keeps the records ``Profile`` (from ``bare``), ``FreeStep`` and ``MemoryPoint``, or an incident with the reason why there are none.

    Args:
        rank: this rank.
        part: ``bare`` or a strategy.
        source: the workload, as text.
        settings: fields of :class:`Settings`.
        world_size: GPUs that the strategy is to think there are.
        options: fields of :class:`Options`.
        seconds: of sampling.
    """
    rank.at(f"profile {part}", world_size=world_size)
    meter = meter_of(rank)  # knows all ranks: what they take is not taken by others
    if rank.rank == 0 or not rank.is_cuda:
        found = _attempt(
            rank,
            part,
            source,
            settings=msgspec.convert(settings or {}, Settings),
            world_size=world_size,
            options=msgspec.convert(options or {}, Options),
            effort=Effort(seconds=seconds),
        )
        if found is not None and rank.rank == 0:
            _keep(rank, found, meter.read())
    rank.exchange("profile/done", True)


def _attempt(rank: Rank, part: str, source: str, **how: Any) -> Part | None:
    """The part, or None with an incident that says why not and a fact that says whose fault it is."""
    try:
        return profile_part(part, source, rank.device, tick=rank.tick, **how)
    except WiretaxError as error:
        if rank.rank == 0:
            # a strategy that a workload cannot have is a result; without the bare step there is none
            kind: Literal["error", "skipped"] = "error" if part == BARE else "skipped"
            rank.emit(Incident(kind=kind, stage=f"profile:{part}", rank=rank.rank, gpu=rank.gpu, detail=str(error)))
            rank.emit_fact("refused", [part, type(error).__name__, error.what, error.why, error.do])
        return None


def _keep(rank: Rank, found: Part, load: HostLoad) -> None:
    if found.bare is not None:
        environment = found.bare.environment | {RANKS_AT_ONCE: "1" if rank.is_cuda else str(rank.world_size)}
        rank.results.write("Profile", value=replace(found.bare, environment=environment, host_load=load))
    if found.step is not None:
        rank.results.write("FreeStep", value=found.step)
    for point in found.memory:
        rank.results.write("MemoryPoint", value=point)

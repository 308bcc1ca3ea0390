"""Merges what several pieces say of one machine into one :class:`Machine`.

GPUs are numbered as NVML does where any piece is; a piece that numbers them otherwise is renumbered by PCI address, or taken as it
is where all cards are alike (CUDA then numbers them in the order of their addresses, as NVML does).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from wiretax.model.machine import Gpu, GpuPair, Machine, P2pStatus, PcieLink, Software, Surroundings
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation
from wiretax.probe.readers import pasted
from wiretax.probe.readers.join_conflicts import names_agree
from wiretax.probe.readers.piece import Piece

T = TypeVar("T")

_NOWHERE = "not in the pasted text"
_GPU_KEYS = ("gpu", "source_gpu", "target_gpu", "first_gpu", "second_gpu")
_UNDER_LOAD = ("pcie", "sm_clock_mhz", "throttle_reasons", "power_watts", "temperature_celsius", "utilization_fraction")
"""Fields that change from moment to moment; the busiest moment says most."""
_WEAK = ("notes in prose",)
"""Formats whose word counts only where no tool speaks."""


def merge(pieces: Sequence[Piece]) -> tuple[Machine | None, Measurements, tuple[Observation, ...]]:
    """One machine, its measurements and observations.

    Args:
        pieces: what belongs together, in the order of the files.

    Returns:
        The machine (None where no piece speaks of one), and the rest in the numbering of its GPUs.
    """
    ordered = sorted(pieces, key=lambda piece: piece.format in _WEAK)
    reference = _reference(ordered)
    renumbered = [_renumber(piece, reference) for piece in ordered]
    machines = [piece.machine for piece in renumbered if piece.machine is not None]
    measurements = Measurements(
        **{
            field.name: tuple(entry for piece in renumbered for entry in getattr(piece.measurements, field.name))
            for field in dataclasses.fields(Measurements)
        }
    )
    observations = tuple(entry for piece in renumbered for entry in piece.observations)
    if not machines:
        return None, measurements, observations
    joined = _machine(machines)
    return _name_by_prose(joined, observations), measurements, observations


def _reference(pieces: Sequence[Piece]) -> Machine | None:
    """The piece whose numbers count: NVML's own, with addresses if there are any."""
    numbered = [piece.machine for piece in pieces if piece.machine is not None and piece.machine.gpus and piece.machine.origin_note is None]
    return max(numbered, key=lambda machine: sum(gpu.pci_bus_id is not None for gpu in machine.gpus), default=None)


def _renumber(piece: Piece, reference: Machine | None) -> Piece:
    machine = piece.machine
    if machine is None or machine.origin_note is None or reference is None:
        return piece
    indices = {gpu.pci_bus_id: gpu.index for gpu in reference.gpus if gpu.pci_bus_id}
    mapping = {gpu.index: indices[gpu.pci_bus_id] for gpu in machine.gpus if gpu.pci_bus_id in indices}
    if len(mapping) < len(machine.gpus):
        names = {gpu.name for gpu in (*machine.gpus, *reference.gpus) if gpu.name}
        alike = all(names_agree(one, other) for one in names for other in names)
        if mapping or not alike or {gpu.index for gpu in machine.gpus} - {gpu.index for gpu in reference.gpus}:
            # What cannot be numbered stays an observation; only facts about the whole machine are kept.
            return dataclasses.replace(piece, machine=dataclasses.replace(machine, gpus=(), pairs=(), origin_note=None))
        mapping = {gpu.index: gpu.index for gpu in machine.gpus}
    gpus = tuple(dataclasses.replace(gpu, index=mapping[gpu.index]) for gpu in machine.gpus)
    pairs = tuple(
        dataclasses.replace(pair, source_gpu=mapping[pair.source_gpu], target_gpu=mapping[pair.target_gpu])
        for pair in machine.pairs
        if pair.source_gpu in mapping and pair.target_gpu in mapping
    )
    if all(before == after for before, after in mapping.items()):
        return dataclasses.replace(piece, machine=dataclasses.replace(machine, gpus=gpus, pairs=pairs, origin_note=None))
    return dataclasses.replace(
        piece,
        machine=dataclasses.replace(machine, gpus=gpus, pairs=pairs, origin_note=None),
        measurements=_renumber_measurements(piece.measurements, mapping),
        observations=tuple(_renumber_observation(entry, mapping) for entry in piece.observations),
    )


def _renumber_measurements(found: Measurements, mapping: dict[int, int]) -> Measurements:
    def number(gpu: int | None) -> int | None:
        return gpu if gpu is None else mapping.get(gpu, gpu)

    return dataclasses.replace(
        found,
        copies=tuple(
            dataclasses.replace(copy, source_gpu=number(copy.source_gpu), target_gpu=number(copy.target_gpu)) for copy in found.copies
        ),
        peer_truth=tuple(
            dataclasses.replace(
                truth,
                source_gpu=mapping.get(truth.source_gpu, truth.source_gpu),
                target_gpu=mapping.get(truth.target_gpu, truth.target_gpu),
            )
            for truth in found.peer_truth
        ),
        collectives=tuple(
            dataclasses.replace(entry, gpus=tuple(mapping.get(gpu, gpu) for gpu in entry.gpus)) for entry in found.collectives
        ),
        compute=tuple(dataclasses.replace(entry, gpu=number(entry.gpu)) for entry in found.compute),
    )


def _renumber_observation(entry: Observation, mapping: dict[int, int]) -> Observation:
    changed = {key: mapping.get(value, value) for key in _GPU_KEYS if isinstance(value := entry.values.get(key), int)}
    return dataclasses.replace(entry, values=entry.values | changed) if changed else entry


def _machine(machines: Sequence[Machine]) -> Machine:
    gpus: dict[int, list[Gpu]] = {}
    pairs: dict[tuple[int, int], list[GpuPair]] = {}
    for machine in machines:
        for gpu in machine.gpus:
            gpus.setdefault(gpu.index, []).append(gpu)
        for pair in machine.pairs:
            pairs.setdefault((pair.source_gpu, pair.target_gpu), []).append(pair)
    states = [(machine.driver_state, machine.driver_detail) for machine in machines if machine.driver_state]
    state, detail = states[0] if states else (None, None)
    found = Machine(
        hostname=next((machine.hostname for machine in machines if machine.hostname), None),
        origin="pasted",
        origin_note=next((machine.origin_note for machine in machines if machine.origin_note and machine.gpus), None),
        gpus=tuple(_gpu(gpus[index]) for index in sorted(gpus)),
        pairs=tuple(_pair(pairs[key]) for key in sorted(pairs)),
        software=_fields([machine.software for machine in machines], Software),
        surroundings=_fields([machine.surroundings for machine in machines], Surroundings),
        driver_state=state,
        driver_detail=detail,
    )
    return pasted.explained(found, _NOWHERE)


def _gpu(gpus: Sequence[Gpu]) -> Gpu:
    busiest = sorted(gpus, key=lambda gpu: gpu.utilization_fraction if gpu.utilization_fraction is not None else -1.0, reverse=True)
    merged = _fields(gpus, Gpu)
    changes: dict[str, Any] = {name: _first(busiest, name) for name in _UNDER_LOAD if name != "pcie"}
    changes["pcie"] = _fields([gpu.pcie for gpu in busiest], PcieLink)
    names = [gpu.name for gpu in gpus if gpu.name]
    if names:
        # The longest spelling that was not cut off says most.
        changes["name"] = max(names, key=lambda name: (not name.endswith("..."), len(name)))
    unwell = next((gpu for gpu in gpus if gpu.status != "ok"), None)
    if unwell is not None:
        changes |= {"status": unwell.status, "status_reason": unwell.status_reason}
    missing = {name: reason for name, reason in merged.missing.items() if changes.get(name) is None}
    return dataclasses.replace(merged, **changes, missing=missing)


def _pair(pairs: Sequence[GpuPair]) -> GpuPair:
    merged = _fields(pairs, GpuPair)
    nvlink = next((pair.path for pair in pairs if pair.path and pair.path.startswith("NV")), None)
    return dataclasses.replace(merged, path=nvlink or merged.path, p2p=_fields([pair.p2p for pair in pairs], P2pStatus))


def _first(values: Sequence[Any], name: str) -> Any:
    return next((value for entry in values if (value := getattr(entry, name)) is not None), None)


def _fields(values: Sequence[T], kind: type[T]) -> T:
    """Each field from the first value that states it; dictionaries united; the best reason where none does."""
    changes: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name == "missing":
            continue
        stated = [getattr(value, field.name) for value in values]
        if any(isinstance(entry, dict) for entry in stated):
            changes[field.name] = {key: item for entry in reversed(stated) for key, item in (entry or {}).items()}
            continue
        if field.name == "driver_flavour":
            changes[field.name] = next((entry for entry in stated if entry != "unknown"), "unknown")
            continue
        chosen = next((entry for entry in stated if entry is not None and entry != ()), None)
        if chosen is None and () in stated:
            chosen = ()
        changes[field.name] = chosen
        if chosen is None:
            reasons = [reason for value in values if (reason := getattr(value, "missing", {}).get(field.name))]
            best = next((reason for reason in reasons if not reason.startswith("not in ")), None)
            if best:
                missing[field.name] = best
    model: Any = kind
    built: T = model(**changes, missing=missing)
    return built


def _name_by_prose(machine: Machine, observations: Sequence[Observation]) -> Machine:
    """Gives nameless GPUs the name of the one sentence that counts as many ("4x RTX 4090")."""
    if not machine.gpus or any(gpu.name for gpu in machine.gpus):
        return machine
    mentions = {
        str(entry.values["name"])
        for entry in observations
        if entry.kind == "gpu.mention" and entry.values.get("count") == len(machine.gpus) and entry.values.get("name")
    }
    if len(mentions) != 1:
        return machine
    name = mentions.pop()
    gpus = tuple(
        dataclasses.replace(gpu, name=name, missing={key: reason for key, reason in gpu.missing.items() if key != "name"})
        for gpu in machine.gpus
    )
    return dataclasses.replace(machine, gpus=gpus)

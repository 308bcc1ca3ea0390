"""Joins the pieces of pasted texts into machines.

Facts that agree are one machine. Pieces that conflict in host, GPU count, names or matrix are different machines or two states of one;
they are kept apart, each with what it came from and why, so that each can be judged alone and then compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wiretax.model.machine import Machine
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation
from wiretax.probe.readers.join_conflicts import Conflict, Kind, conflict, same_machine
from wiretax.probe.readers.join_merge import merge
from wiretax.probe.readers.piece import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Why a group is not joined with another.

    Attributes:
        group: the other group's place in the list.
        kind: ``machine``: another machine. ``state``: the same GPUs as far as can be told, in another state. ``run``: another run of a job.
        because: the first conflict that was found, as half a sentence ("one shows 4 GPUs, the other 8").
    """

    group: int
    kind: Kind
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One machine in one state, as far as the texts tell.

    Attributes:
        machine: None where no piece speaks of a machine (timings alone).
        measurements: numbers of this machine.
        observations: facts and events of this machine.
        pieces: where it came from, in the order of the files. A piece that fits several runs of one machine is in each of them.
        apart: the groups it conflicts with.
        ambiguous: why pieces stand alone although they conflict with nothing; empty for all others.
    """

    machine: Machine | None
    measurements: Measurements
    observations: tuple[Observation, ...]
    pieces: tuple[Piece, ...]
    apart: tuple[Apart, ...] = ()
    ambiguous: str = ""


MAX_DISTINCT = 200
"""Pieces that differ and are compared one with another; a paste of more is not of a few machines."""


def join(pieces: Sequence[Piece]) -> list[Group]:
    """Sorts pieces into machines, in the order in which the files name them.

    Args:
        pieces: everything that was read from all files.

    Returns:
        At least one group for any piece. Pieces that conflict with none and fit several machines equally well stand in a group of
        their own: to guess would blame one machine for another's trouble.
    """
    order = sorted(range(len(pieces)), key=lambda number: (pieces[number].source, pieces[number].first_line, pieces[number].format, number))
    return _as_given(_join([pieces[number] for number in order]), pieces)


def _as_given(groups: list[Group], pieces: Sequence[Piece]) -> list[Group]:
    """Groups in the order in which the user named their files; what fits no machine stands last."""
    place = {id(piece): number for number, piece in enumerate(pieces)}
    new = sorted(
        range(len(groups)),
        key=lambda old: (bool(groups[old].ambiguous), min((place[id(piece)] for piece in groups[old].pieces), default=0)),
    )
    moved = {old: position for position, old in enumerate(new)}
    return [
        replace(
            groups[old], apart=tuple(sorted((replace(one, group=moved[one.group]) for one in groups[old].apart), key=lambda one: one.group))
        )
        for old in new
    ]


def _join(pieces: Sequence[Piece]) -> list[Group]:
    """The groups of pieces in a fixed order, so that the order of the files decides nothing."""
    alike = _alike(pieces)
    numbers = [members[0] for members in alike[:MAX_DISTINCT]]
    conflicts: dict[tuple[int, int], Conflict] = {}
    for position, first in enumerate(numbers):
        for second in numbers[position + 1 :]:
            found = conflict(pieces[first], pieces[second])
            if found is not None:
                conflicts[(first, second)] = found
                conflicts[(second, first)] = found
    repeats = {members[0]: members for members in alike}
    in_conflict = sorted({first for first, _ in conflicts})
    groups = _settle(in_conflict, pieces, conflicts)
    neutral = [number for number in numbers if number not in set(in_conflict)]
    if not groups and neutral:
        groups, neutral = [neutral], []
    alone: list[int] = []
    for number in neutral:
        homes = _homes(number, pieces, groups, conflicts)
        for home in homes:
            groups[home].append(number)
        if not homes:
            alone.append(number)
    result = [_group(group, repeats, pieces, _apart(position, groups, conflicts)) for position, group in enumerate(groups)]
    speaking = [number for number in alone if pieces[number].machine is not None]
    silent = [number for number in alone if pieces[number].machine is None]
    uncompared = [members[0] for members in alike[MAX_DISTINCT:]]
    for rest, why in (
        (speaking, "fits several of the machines equally well"),
        (silent, "does not say of which machine it speaks"),
        (uncompared, f"not compared: the texts hold more than {MAX_DISTINCT} different pieces"),
    ):
        if rest:
            result.append(_group(rest, repeats, pieces, ambiguous=why))
    return result


def _alike(pieces: Sequence[Piece]) -> list[list[int]]:
    """Numbers of the pieces that say the same of their machine (a command repeated every second), by first appearance."""
    found: dict[object, list[int]] = {}
    for number, piece in enumerate(pieces):
        found.setdefault(_signature(number, piece), []).append(number)
    return list(found.values())


def _signature(number: int, piece: Piece) -> object:
    machine = piece.machine
    if piece.format.startswith("NCCL log"):
        return number
    if machine is None:
        return (piece.source, piece.format)
    gpus = tuple(
        (gpu.index, gpu.name, gpu.uuid, gpu.pci_bus_id, gpu.mig, gpu.fabric_state, gpu.nvlinks_active, tuple(x.active for x in gpu.nvlinks))
        for gpu in machine.gpus
    )
    pairs = tuple((pair.source_gpu, pair.target_gpu, pair.path, repr(pair.p2p), pair.peer_access) for pair in machine.pairs)
    settings = tuple(sorted(machine.software.nccl_environment.items()))
    about = (piece.source, piece.format, machine.hostname, machine.origin_note, machine.software.driver, machine.driver_state, settings)
    return (about, gpus, pairs)


def _settle(in_conflict: Sequence[int], pieces: Sequence[Piece], conflicts: dict[tuple[int, int], Conflict]) -> list[list[int]]:
    """Groups of the pieces that conflict with any other: each goes where nothing contradicts it and most ties it."""
    groups: list[list[int]] = []
    for number in in_conflict:
        fitting = [group for group in groups if not any((number, member) in conflicts for member in group)]
        if not fitting:
            groups.append([number])
            continue
        ties = [(_ties(number, group, pieces), -groups.index(group)) for group in fitting]
        fitting[ties.index(max(ties))].append(number)
    return groups


def _ties(number: int, group: Sequence[int], pieces: Sequence[Piece]) -> int:
    """How strongly a piece belongs to a group: by identity first, by standing in the same file second."""
    identity = any(same_machine(pieces[number], pieces[member]) for member in group)
    same_file = any(pieces[number].source == pieces[member].source for member in group)
    return 2 * identity + same_file


def _homes(number: int, pieces: Sequence[Piece], groups: Sequence[Sequence[int]], conflicts: dict[tuple[int, int], Conflict]) -> list[int]:
    """The groups that a piece without conflicts belongs to; none where it could be any of several machines."""
    everywhere = list(range(len(groups)))
    for strength in (2, 1):
        tied = [place for place in everywhere if _ties(number, groups[place], pieces) >= strength]
        if len(tied) == 1:
            # What is true of the machine is true of each run on it.
            return _runs_beside(tied[0], groups, conflicts)
        if tied and all(place in _runs_beside(tied[0], groups, conflicts) for place in tied):
            return tied
    return everywhere if everywhere == _runs_beside(0, groups, conflicts) else []


def _runs_beside(place: int, groups: Sequence[Sequence[int]], conflicts: dict[tuple[int, int], Conflict]) -> list[int]:
    """The group and all others that differ from it only as runs on one machine."""
    beside = []
    for other, group in enumerate(groups):
        kinds = {conflicts[(a, b)].kind for a in groups[place] for b in group if (a, b) in conflicts}
        if other == place or kinds == {"run"}:
            beside.append(other)
    return beside


def _apart(place: int, groups: Sequence[Sequence[int]], conflicts: dict[tuple[int, int], Conflict]) -> tuple[Apart, ...]:
    found = []
    for other, group in enumerate(groups):
        between = [conflicts[(a, b)] for a in groups[place] for b in group if (a, b) in conflicts]
        if other != place and between:
            strongest = min(between, key=lambda entry: ("machine", "state", "run").index(entry.kind))
            found.append(Apart(group=other, kind=strongest.kind, because=strongest.because))
    return tuple(found)


def _group(
    numbers: Sequence[int],
    repeats: dict[int, list[int]],
    pieces: Sequence[Piece],
    apart: tuple[Apart, ...] = (),
    ambiguous: str = "",
) -> Group:
    members = tuple(pieces[number] for number in sorted(number for first in numbers for number in repeats[first]))
    machine, measurements, observations = merge(members)
    return Group(machine=machine, measurements=measurements, observations=observations, pieces=members, apart=apart, ambiguous=ambiguous)

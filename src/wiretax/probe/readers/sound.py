"""The last look at what readers made of a text: no figure that cannot be one gets past, whatever reader let it through.

A run of digits that no tool prints (thirty nines in a width, an exponent of 999) is damage or malice. It becomes None with a reason,
and its line is told as damaged.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from wiretax.model.observation import Observation
from wiretax.model.reading import not_finite
from wiretax.probe.readers.piece import Piece

REASON = "the text gives a number that cannot be one"


class _Nothing(Exception):
    """The value cannot stand without the figure that was taken out."""


def sound(piece: Piece) -> Piece:
    """The piece without NaN, infinities and whole numbers beyond 63 bits.

    What cannot be said without such a figure (a rate without its size) is left out whole.
    """
    if next(not_finite(piece), None) is None:
        return piece
    damaged = dict(piece.damaged)
    observations: list[Observation] = []
    for observation in piece.observations:
        bad = {key for key, value in observation.values.items() if next(not_finite(value), None)}
        if bad:
            values = {key: None if key in bad else value for key, value in observation.values.items()}
            observation = dataclasses.replace(observation, values=values)
            damaged.setdefault(observation.line or piece.first_line, f"{REASON} for {', '.join(sorted(bad))}")
        observations.append(observation)
    changes: dict[str, Any] = {}
    for name in ("machine", "measurements"):
        value = getattr(piece, name)
        worst = next(not_finite(value, name), None)
        if worst is not None:
            changes[name] = _without(value)
            damaged.setdefault(piece.first_line, f"{REASON} for {worst}")
    return dataclasses.replace(piece, observations=tuple(observations), damaged=tuple(sorted(damaged.items())), **changes)


def _without(value: Any) -> Any:
    """A copy without bad figures; raises ``_Nothing`` where nothing is left to say."""
    if isinstance(value, (int, float)):
        if next(not_finite(value), None) is not None:
            raise _Nothing
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = typing.get_type_hints(type(value))
        changes: dict[str, Any] = {}
        missing = dict(getattr(value, "missing", {}))
        for field in dataclasses.fields(value):
            try:
                changes[field.name] = _without(getattr(value, field.name))
            except _Nothing:
                if not _may_be_none(kinds[field.name]):
                    raise
                changes[field.name] = None
                missing[field.name] = REASON
        if "missing" in changes:
            changes["missing"] = missing
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(kept for inner in value for kept in _kept(inner))
    if isinstance(value, Mapping):
        return {key: kept for key, inner in value.items() for kept in _kept(inner)}
    return value


def _kept(value: Any) -> tuple[Any, ...]:
    try:
        return (_without(value),)
    except _Nothing:
        return ()


def _may_be_none(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) and types.NoneType in typing.get_args(kind)

"""A value that may be missing, and the rule that it is never missing silently.

Every dataclass of the run document that has optional fields carries ``missing``, a mapping from the name of a field that is
``None`` to the reason why. Fields for which ``None`` is itself the statement ("no plan was asked for") are listed in the class
variable ``none_is_an_answer``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

REASON_NOT_RECORDED = "reason not recorded"
"""Written by the store beside a null that its author left unexplained; tests assert that no document holds it."""


def unexplained(value: Any, path: str = "$") -> Iterator[str]:
    """Yields the path of each ``None`` in a document that has no reason beside it.

    Args:
        value: any dataclass of the model, or a tuple or mapping of them.
        path: where ``value`` stands, in the notation of msgspec (``$.machine.gpus[0].name``).
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        answers: frozenset[str] = getattr(value, "none_is_an_answer", frozenset())
        missing: Mapping[str, str] = getattr(value, "missing", {})
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if inner is None:
                if field.name not in answers and not missing.get(field.name):
                    yield f"{path}.{field.name}"
            else:
                yield from unexplained(inner, f"{path}.{field.name}")
    elif isinstance(value, (tuple, list)):
        for position, inner in enumerate(value):
            yield from unexplained(inner, f"{path}[{position}]")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from unexplained(inner, f"{path}.{key}")


def not_finite(value: Any, path: str = "$") -> Iterator[str]:
    """Yields the path of each NaN or infinity in a document: JSON has no word for them and they are never a measurement.

    A whole number beyond 63 bits counts as one of them: no reader of JSON need keep it.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif isinstance(value, int):
        if abs(value) >= 2**63:
            yield path
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from not_finite(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, (tuple, list)):
        for position, inner in enumerate(value):
            yield from not_finite(inner, f"{path}[{position}]")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from not_finite(inner, f"{path}.{key}")


def explain(value: Any) -> Any:
    """Returns a copy in which each unexplained ``None`` has :data:`REASON_NOT_RECORDED` beside it.

    Saving a run must never fail for want of a reason: the user has already paid for the measurement.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        answers: frozenset[str] = getattr(value, "none_is_an_answer", frozenset())
        missing = dict(getattr(value, "missing", {}))
        has_missing = hasattr(value, "missing")
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if inner is None:
                if has_missing and field.name not in answers and not missing.get(field.name):
                    missing[field.name] = REASON_NOT_RECORDED
            elif field.name != "missing":
                changes[field.name] = explain(inner)
        if has_missing:
            changes["missing"] = missing
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(explain(inner) for inner in value)
    if isinstance(value, dict):
        return {key: explain(inner) for key, inner in value.items()}
    return value

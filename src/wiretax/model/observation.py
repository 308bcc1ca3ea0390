"""Facts, timings and events read from pasted text: what somebody else's tool said, with file and line."""

from __future__ import annotations

from dataclasses import dataclass, field

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One fact out of a text.

    ``kind`` is a dotted name ("nccl.transport", "xid", "training.rate"); each reader documents the kinds it makes and the keys of
    their ``values``. Numbers in ``values`` are in the units of their key's name.
    """

    source: str
    line: int
    """1-based; 0 where the fact belongs to the whole text."""
    kind: str
    values: dict[str, Scalar] = field(default_factory=dict)

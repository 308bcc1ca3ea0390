"""What no piece may have, whatever was read."""

from __future__ import annotations

from collections.abc import Iterable

from wiretax.model.reading import not_finite, unexplained
from wiretax.probe.readers.piece import Piece


def faults(pieces: Iterable[Piece]) -> list[str]:
    """Nulls without a reason, figures that cannot be one, lines that are none; empty where all is sound."""
    found: list[str] = []
    for piece in pieces:
        found += [f"{piece.format}: no reason for {path}" for path in unexplained(piece.machine)]
        found += [f"{piece.format}: no reason for {path}" for path in unexplained(piece.measurements)]
        found += [f"{piece.format}: no figure at {path}" for path in not_finite(piece)]
        if piece.first_line < 1:
            found.append(f"{piece.format}: line {piece.first_line}")
    return found

"""What a document cannot say, although its types allow it: nonsense that would be shown as if it were a machine, and broken text."""

from __future__ import annotations

import re
from typing import Any

from wiretax.errors import BadDocument
from wiretax.model.machine import Machine

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

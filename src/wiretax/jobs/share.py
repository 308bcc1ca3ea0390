"""A run that may be shown to strangers: without names of people and places, and with a list of what was taken out."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from wiretax.model.run import Run
from wiretax.probe.redaction import Redactor

_KINDS = (
    ("host name", re.compile(r"<host(?:-\d+)?>|^host$")),
    ("user name", re.compile(r"<user>")),
    ("private path", re.compile(r"<path(?:-\d+)?>|<file>")),
    ("hardware address", re.compile(r"<mac>")),
    ("serial number", re.compile(r"<serial>")),
    ("UUID", re.compile(r"\b(?:GPU|MIG|UUID)-(?:x?\d+(?![\w-])|<uuid>)")),
)
_NUMBERED = frozenset({"host name", "UUID"})
"""Kinds whose things have a placeholder each, however many lines they stand in."""


def shared(run: Run, hosts: Sequence[str] = ()) -> tuple[Run, tuple[str, ...]]:
    """The run without host names, addresses, UUIDs, serial numbers, users and private paths.

    Equal things get equal placeholders all over the document. What a diagnosis needs stays: models, PCI addresses, versions.

    Args:
        run: any run.
        hosts: names of further hosts that its texts may hold; each gets a placeholder of its own.

    Returns:
        The run, and what was removed in words (``1 host name``, ``4 UUIDs``); empty where nothing was found.
    """
    redactor = Redactor()
    text = msgspec.json.encode(run).decode()
    for user in sorted(set(re.findall(r"/(?:home|Users)/([\w.-]+)", text))):
        redactor.name(user, "<user>")
    machine = run.machine
    for number, host in enumerate(hosts, 1):
        redactor.name(host, f"<host-{number}>" if len(hosts) > 1 else "<host>")
    if machine is not None:
        if machine.hostname is not None and machine.hostname not in hosts:
            redactor.name(machine.hostname, "host")
        for gpu in machine.gpus:
            if gpu.uuid is not None:
                redactor.uuid(gpu.uuid, f"GPU-{gpu.index}")
        interfaces = {name: redactor.interface(address) for name, address in machine.surroundings.network_interfaces.items()}
    clean = redactor.document(run)
    if machine is not None and clean.machine is not None:
        around = dataclasses.replace(clean.machine.surroundings, network_interfaces=interfaces)
        clean = dataclasses.replace(clean, machine=dataclasses.replace(clean.machine, surroundings=around))
    # The id of a run is its name on disk, and says no more than when it was made.
    clean = dataclasses.replace(clean, run_id=run.run_id, created_at=run.created_at)
    return clean, _removed(run, clean)


def _removed(before: Run, after: Run) -> tuple[str, ...]:
    """What went, counted by kind: different placeholders where each thing has its own, else different texts.

    Changed text of no known kind is an address.
    """
    changed = {(a, b) for a, b in zip(_texts(before), _texts(after), strict=False) if a != b}
    counts: Counter[str] = Counter()
    own: dict[str, set[str]] = {}
    for old, new in changed:
        for kind, pattern in _KINDS:
            if kind in _NUMBERED and len(found := pattern.findall(new)) > len(pattern.findall(old)):
                own.setdefault(kind, set()).update(name.strip("<>") for name in found)
        kinds = [kind for kind, pattern in _KINDS if len(pattern.findall(new)) > len(pattern.findall(old))]
        counts.update(kinds or ["network address"])
    counts.update({kind: len(found) - counts[kind] for kind, found in own.items()})
    order = [*(kind for kind, _ in _KINDS), "network address"]
    return tuple(
        f"{counts[kind]} {kind}{'es' if kind.endswith('s') else 's'}" if counts[kind] > 1 else f"1 {kind}" for kind in order if counts[kind]
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)

"""Whether two pieces of pasted text can speak of the same machine in the same state, and if not, why.

Three kinds of conflict, from the strongest:

``machine``: another host, GPU count, GPU or address: two machines.
``state``: the same GPUs as far as can be told, but another matrix, P2P status, link, MIG mode or driver: before and after, or two
machines that look alike.
``run``: two runs of a job on one machine: other transports, another value of an NCCL variable, another communicator.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from wiretax.model.machine import Gpu, Machine
from wiretax.probe.readers.piece import Piece

Kind = Literal["machine", "state", "run"]

_COMPLETE = (
    "nvidia-smi topo",
    "nvidia-smi -L",
    "nvidia-smi --query-gpu",
    "nvidia-smi nvlink",
    "nvidia-smi -q",
    "rocm-smi topology",
)
"""Formats that list every GPU the driver shows; others show those that a job or an excerpt uses."""
_PLACEHOLDER = re.compile(r"(?:GPU-)?0{8}-0{4}|(?:GPU-)?[Xx]{4}")
_VENDORS = frozenset({"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct", "corporation", "gpu"})
_OTHER_CARD = frozenset({"ti", "super", "d", "laptop", "mobile", "max-q", "ada", "s"})
"""Words that make another card of the name before them."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why two pieces are kept apart."""

    kind: Kind
    because: str


def conflict(one: Piece, other: Piece) -> Conflict | None:
    """The strongest conflict between two pieces, or None where both can be true of one machine at one time."""
    if one.machine is None or other.machine is None:
        return None
    first, second = one.machine, other.machine
    reason = _hosts(first, second) or _counts(one, other) or _identities(first, second)
    if reason:
        return Conflict("machine", reason)
    reason = _states(one, other)
    if reason:
        return Conflict("state", reason)
    reason = _runs(one, other)
    return Conflict("run", reason) if reason else None


def is_complete(piece: Piece) -> bool:
    """Whether the piece lists every GPU of its machine."""
    if piece.machine is None or piece.machine.origin_note is not None or piece.damaged:
        return False
    return piece.format == "nvidia-smi" or piece.format.startswith(_COMPLETE)


def same_machine(one: Piece, other: Piece) -> bool:
    """Whether a host name, a GPU's UUID or a set of addresses ties two pieces together."""
    first, second = one.machine, other.machine
    if first is None or second is None:
        return False
    if first.hostname and second.hostname and _host(first.hostname) == _host(second.hostname):
        return True
    uuids = [{gpu.uuid for gpu in machine.gpus if gpu.uuid and not _PLACEHOLDER.match(gpu.uuid)} for machine in (first, second)]
    if uuids[0] & uuids[1]:
        return True
    buses = [{gpu.pci_bus_id for gpu in machine.gpus if gpu.pci_bus_id} for machine in (first, second)]
    # One address is common to many machines (01:00.0 is the first slot of most); several together are not.
    return len(buses[0] & buses[1]) >= 2


def names_agree(one: str, other: str) -> bool:
    """Whether two spellings can name one card: ``RTX 3090`` and ``NVIDIA GeForce RTX 3090``, but not ``RTX 3090 Ti``."""
    if one.endswith("...") or other.endswith("..."):
        short, long = (one, other) if one.endswith("...") else (other, one)
        stem, whole = short.removesuffix("...").strip().lower(), long.removesuffix("...").strip().lower()
        return whole.startswith(stem) or stem.startswith(whole) or not set(stem.split()) - _VENDORS
    first, second = _words(one), _words(other)
    if len(first) > len(second):
        first, second = second, first
    return bool(first) and second[: len(first)] == first and not set(second[len(first) :]) & _OTHER_CARD


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s-]+", name.lower()) if word and word not in _VENDORS]


def _host(name: str) -> str:
    return name.lower().split(".")[0]


def _hosts(first: Machine, second: Machine) -> str | None:
    names = [_host(machine.hostname) if machine.hostname else "" for machine in (first, second)]
    if all(names) and names[0] != names[1] and "localhost" not in names:
        return f"one is of host {first.hostname}, the other of {second.hostname}"
    return None


def _counts(one: Piece, other: Piece) -> str | None:
    assert one.machine is not None
    assert other.machine is not None
    counts = (len(one.machine.gpus), len(other.machine.gpus))
    if not all(counts):
        return None
    complete = (is_complete(one), is_complete(other))
    if all(complete) and counts[0] != counts[1]:
        return f"one shows {counts[0]} GPUs, the other {counts[1]}"
    for whole, part in ((0, 1), (1, 0)):
        if complete[whole] and not complete[part] and counts[part] > counts[whole]:
            return f"one shows {counts[whole]} GPUs in all, the other uses {counts[part]}"
    return None


def _identities(first: Machine, second: Machine) -> str | None:
    if first.origin_note is None and second.origin_note is None:
        for gpu in first.gpus:
            other = second.gpu(gpu.index)
            reason = _differ(gpu, other) if other is not None else None
            if reason:
                return f"GPU {gpu.index}: {reason}"
        return None
    by_bus = {gpu.pci_bus_id: gpu for gpu in second.gpus if gpu.pci_bus_id}
    common = [(gpu, by_bus[gpu.pci_bus_id]) for gpu in first.gpus if gpu.pci_bus_id in by_bus]
    for gpu, other in common:
        reason = _differ(gpu, other)
        if reason:
            return f"the GPU at {gpu.pci_bus_id}: {reason}"
    if by_bus and not common and all(gpu.pci_bus_id for gpu in first.gpus) and first.gpus and len(by_bus) == len(second.gpus):
        return "they list GPUs at different PCI addresses"
    if common:
        return None
    # Numbers mean different things, so only the collections of names can be compared.
    names = [
        Counter(" ".join(_words(gpu.name)) for gpu in machine.gpus if gpu.name and "..." not in gpu.name) for machine in (first, second)
    ]
    if all(names) and not set(names[0]) & set(names[1]):
        pairs = [(a, b) for a in names[0] for b in names[1]]
        if not any(names_agree(a, b) for a, b in pairs):
            return f"one has {_list(names[0])}, the other {_list(names[1])}"
    return None


def _list(names: Counter[str]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _differ(gpu: Gpu, other: Gpu) -> str | None:
    if gpu.uuid and other.uuid and gpu.uuid != other.uuid and not _PLACEHOLDER.match(gpu.uuid) and not _PLACEHOLDER.match(other.uuid):
        return "its UUID differs"
    if gpu.pci_bus_id and other.pci_bus_id and gpu.pci_bus_id != other.pci_bus_id:
        return f"its PCI address is {gpu.pci_bus_id} in one and {other.pci_bus_id} in the other"
    if gpu.name and other.name and not names_agree(gpu.name, other.name):
        return f"it is {gpu.name} in one and {other.name} in the other"
    return None


def _states(one: Piece, other: Piece) -> str | None:
    assert one.machine is not None
    assert other.machine is not None
    first, second = one.machine, other.machine
    comparable = first.origin_note is None and second.origin_note is None
    if comparable:
        reason = _matrices(one, other) or _links(first, second)
        if reason:
            return reason
    drivers = (first.software.driver, second.software.driver)
    if all(drivers) and drivers[0] != drivers[1] and one.format.startswith("nvidia-smi") and other.format.startswith("nvidia-smi"):
        return f"one ran driver {drivers[0]}, the other {drivers[1]}"
    return None


def _matrices(one: Piece, other: Piece) -> str | None:
    assert one.machine is not None
    assert other.machine is not None
    pcie_only = [any(entry.kind == "topology.pcie_only" for entry in piece.observations) for piece in (one, other)]
    for pair in one.machine.pairs:
        twin = other.machine.pair(pair.source_gpu, pair.target_gpu)
        if twin is None:
            continue
        where = f"GPU {pair.source_gpu} to GPU {pair.target_gpu}"
        if pair.path and twin.path and pair.path != twin.path and pcie_only[0] == pcie_only[1]:
            return f"{where} is {pair.path} in one matrix and {twin.path} in the other"
        for name in ("read", "write", "nvlink", "atomics", "pci"):
            codes = (getattr(pair.p2p, name), getattr(twin.p2p, name))
            if all(codes) and codes[0] != codes[1]:
                return f"{where}: P2P {name} is {codes[0]} in one and {codes[1]} in the other"
        if pair.peer_access is not None and twin.peer_access is not None and pair.peer_access != twin.peer_access:
            return f"{where}: peer access is offered in one and not in the other"
    return None


def _links(first: Machine, second: Machine) -> str | None:
    for gpu in first.gpus:
        other = second.gpu(gpu.index)
        if other is None:
            continue
        states = {link.index: link.active for link in other.nvlinks}
        for link in gpu.nvlinks:
            if states.get(link.index, link.active) != link.active:
                return f"NVLink {link.index} of GPU {gpu.index} is up in one and down in the other"
        if gpu.nvlinks_active is not None and other.nvlinks_active is not None and gpu.nvlinks_active != other.nvlinks_active:
            return f"GPU {gpu.index} has {gpu.nvlinks_active} active NVLinks in one and {other.nvlinks_active} in the other"
        for name, word in (("mig", "MIG"), ("fabric_state", "the fabric state")):
            values = (getattr(gpu, name), getattr(other, name))
            if all(values) and values[0] != values[1]:
                return f"{word} of GPU {gpu.index} is {values[0]} in one and {values[1]} in the other"
    return None


def _runs(one: Piece, other: Piece) -> str | None:
    """NCCL logs of two runs; the files of two ranks of one run agree in all of this."""
    if not (_is_nccl(one) and _is_nccl(other)):
        return None
    communicators = [
        {entry.values.get("communicator_id") for entry in piece.observations if entry.kind == "nccl.communicator"} - {None}
        for piece in (one, other)
    ]
    if all(communicators):
        # An identifier that both logs hold proves one run, whatever else differs between its ranks.
        return "their communicators differ" if not communicators[0] & communicators[1] else None
    assert one.machine is not None
    assert other.machine is not None
    variables = (one.machine.software.nccl_environment, other.machine.software.nccl_environment)
    for name in variables[0].keys() & variables[1].keys():
        if variables[0][name] != variables[1][name]:
            return f"{name} is {variables[0][name]} in one and {variables[1][name]} in the other"
    ways = [_transports(piece) for piece in (one, other)]
    for pair in ways[0].keys() & ways[1].keys():
        if not ways[0][pair] & ways[1][pair]:
            return f"ranks {pair[0]} and {pair[1]} talk over {_join(ways[0][pair])} in one and {_join(ways[1][pair])} in the other"
    kinds = [{str(e.values.get("is_all_direct_p2p")) for e in piece.observations if e.kind == "nccl.p2p_check"} for piece in (one, other)]
    return "one found peer-to-peer for all pairs, the other did not" if all(kinds) and not kinds[0] & kinds[1] else None


def _is_nccl(piece: Piece) -> bool:
    return piece.format.startswith("NCCL log")


def _transports(piece: Piece) -> dict[tuple[object, object], set[str]]:
    found: dict[tuple[object, object], set[str]] = {}
    for entry in piece.observations:
        if entry.kind == "nccl.transport":
            key = (entry.values.get("source_rank"), entry.values.get("target_rank"))
            found.setdefault(key, set()).add(str(entry.values.get("transport")))
    return found


def _join(names: set[str]) -> str:
    return " and ".join(sorted(names))

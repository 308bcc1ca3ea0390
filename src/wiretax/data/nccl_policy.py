"""NCCL's rules by version: how far it lets GPUs talk peer to peer, which GPUs it supports, which faults are known."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Policy:
    """The farthest distance at which NCCL joins two GPUs peer to peer, and the reason in a sentence."""

    level: str
    why: str


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A fault of NCCL that others reported, to be named only when its symptom was seen."""

    title: str
    symptom: str
    num_bytes_at_least: int
    good_version: str
    date: str
    source: str
    message: str | None = None
    """The words it prints, as a pattern."""
    unspecific: bool = False
    """Other faults print the same words."""


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(resources.files("wiretax.data").joinpath("nccl_policy.toml").read_text(encoding="utf-8"))


def parse_version(text: str | None) -> Version | None:
    """The three numbers of ``2.28.9+cuda13.0``, ``2.28.9-1`` or ``22809``; None when there are none."""
    if not text:
        return None
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found:
        return int(found[1]), int(found[2]), int(found[3] or 0)
    packed = re.fullmatch(r"\s*(\d{4,5})\s*", text)
    if packed:
        number = int(packed[1])
        # ncclGetVersion: 2.8 and older are X*1000 + Y*100 + Z, newer ones X*10000 + Y*100 + Z (nccl.h.in, NCCL_VERSION).
        if number >= 10000:
            return number // 10000, number // 100 % 100, number % 100
        return number // 1000, number // 100 % 10, number % 100
    return None


def nccl_distance(path: str | None) -> str | None:
    """NCCL's name for a distance that ``nvidia-smi topo -m`` prints.

    NCCL knows one CPU per NUMA node, so NODE (two host bridges of one node) is its PHB; the NVLink count does not matter.
    """
    if path is None:
        return None
    if path.startswith("NV"):
        return "NVL"
    return {"X": "LOC", "NODE": "PHB", "SOC": "SYS"}.get(path, path if path in _facts()["levels"] else None)


def within(path: str | None, level: str) -> bool | None:
    """Whether NCCL at this P2P level joins GPUs at this distance; None when either is unknown."""
    levels: list[str] = _facts()["levels"]
    distance = nccl_distance(path)
    if distance is None or level not in levels:
        return None
    return levels.index(distance) <= levels.index(level)


def user_level(value: str | None) -> str | None:
    """The level that ``NCCL_P2P_LEVEL`` sets, or None where NCCL ignores the value (``NODE`` is not a level it knows)."""
    if value is None:
        return None
    if value in _facts()["levels"]:
        return value
    if re.match(r"\d", value):
        old: list[str] = _facts()["old_levels"]
        return old[min(int(re.match(r"\d+", value)[0]), len(old) - 1)]  # type: ignore[index]
    return None


def default_policy(version: str | None, cpu_vendor: str | None, num_gpus: int) -> Policy | None:
    """NCCL's P2P distance policy when no variable overrides it.

    Args:
        version: of the NCCL library.
        cpu_vendor: ``intel``, ``amd``, ``arm``, ``zhaoxin``; None when unknown.
        num_gpus: GPUs of this host in the communicator.

    Returns:
        The policy, or None when version or vendor would have to be guessed.
    """
    parsed = parse_version(version)
    if parsed is None:
        return None
    for entry in _facts()["policy"]:
        first = parse_version(entry["first_version"])
        if first is None or parsed < first:
            continue
        if "at_most_gpus" in entry and num_gpus > entry["at_most_gpus"]:
            continue
        vendor = entry.get("cpu_vendor")
        if vendor is not None and cpu_vendor is None:
            return None
        if vendor is None or vendor == cpu_vendor:
            return Policy(entry["level"], entry["why"])
    return None


def oldest_for(compute_capability: str | None) -> tuple[str, str] | None:
    """The first NCCL that supports a GPU and its source, or None when no lower bound is known."""
    for entry in _facts()["needs"]:
        if entry["compute_capability"] == compute_capability:
            return entry["version"], entry["source"]
    return None


def bugs(
    version: str | None,
    compute_capability: str | None,
    symptom: str,
    *,
    gpu_names: Collection[str] = (),
    several_hosts: bool = False,
) -> tuple[KnownBug, ...]:
    """Known faults of this version of NCCL.

    Args:
        version: ``2.27.5``.
        compute_capability: of the GPUs; None leaves out the faults of certain GPUs.
        symptom: ``crash``, ``hang``, ``slow`` or ``error``.
        gpu_names: for faults of certain machines.
        several_hosts: for faults of jobs over more than one host.
    """
    parsed = parse_version(version)
    if parsed is None:
        return ()
    found = []
    for entry in _facts()["bug"]:
        first, last = parse_version(entry["first_version"]), parse_version(entry["last_version"])
        if first is None or last is None or not first <= parsed <= last:
            continue
        if "compute_capability" in entry and compute_capability not in entry["compute_capability"]:
            continue
        if "gpu_name" in entry and not any(re.search(entry["gpu_name"], name) for name in gpu_names):
            continue
        if entry["symptom"] == symptom and (several_hosts or not entry.get("several_hosts", False)):
            found.append(
                KnownBug(
                    entry["title"],
                    symptom,
                    entry.get("num_bytes_at_least", 0),
                    entry["good_version"],
                    entry["date"],
                    entry["source"],
                    entry.get("message"),
                    entry.get("unspecific", False),
                )
            )
    return tuple(found)

"""Facts of GPU models: ``gpus.toml`` by the name the driver gives. An unknown GPU is None, never the nearest one."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import ClassVar, Literal

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One model, in any box. Rates are per second and one way; arithmetic is dense with fp32 accumulation.

    Attributes:
        name: short name for people.
        vendor: who makes it.
        driver_names: what drivers call it.
        aliases: other ways people write it.
        compute_capability: CUDA's, such as ``8.9``.
        memory_bytes: all of it, as the driver reports it where that is known.
        memory_bytes_per_second: peak of its memory.
        bf16_flops_per_second: peak.
        tf32_flops_per_second: peak.
        pcie_generation: the card's own; the slot may offer less.
        pcie_width: lanes.
        nvlink_generation: of its NVLink ports, plugged or not.
        nvlink_links: how many can be up.
        nvlink_bytes_per_second: all of them together, payload.
        nvlink_join: ``board`` where they are always joined, ``bridge`` where only plugged bridges join them.
        stock_driver_p2p_over_pcie: whether the vendor's own driver offers peer access over PCIe for it.
        power_watts: the default power limit.
        source: where the facts come from.
        note: what else one should know.
        date: when they were checked.
        missing: why a fact is None.
    """

    name: str
    vendor: Literal["nvidia", "amd"]
    driver_names: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    compute_capability: str | None = None
    memory_bytes: int
    memory_bytes_per_second: float
    bf16_flops_per_second: float | None = None
    tf32_flops_per_second: float | None = None
    pcie_generation: int
    pcie_width: int
    nvlink_generation: int | None = None
    nvlink_links: int | None = None
    nvlink_bytes_per_second: float | None = None
    nvlink_join: Literal["board", "bridge"] | None = None
    stock_driver_p2p_over_pcie: bool | None = None
    power_watts: int
    source: str
    note: str | None = None
    date: str = ""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"note"})


@cache
def all_gpus() -> tuple[GpuFacts, ...]:
    """Every model known, in the order of the file."""
    document = msgspec.toml.decode(resources.files("wiretax.data").joinpath("gpus.toml").read_bytes())
    return tuple(msgspec.convert({**entry, "date": document["checked"]}, GpuFacts) for entry in document["gpu"])


def find_gpu(name: str) -> GpuFacts | None:
    """The model of this name: the driver's ("NVIDIA GeForce RTX 4090", "NVIDIA H200"), or as people write it ("RTX 4090").

    A slice or a virtual GPU ("... MIG 1g.10gb", "GRID A100X-40C") is not the whole card and is unknown.
    """
    return _index().get(_key(name))


def close_matches(name: str, limit: int = 3) -> tuple[str, ...]:
    """Names of known models that look like an unknown one, best first; empty when none does."""
    keys = difflib.get_close_matches(_key(name), _index(), n=3 * limit, cutoff=0.6)
    return tuple(dict.fromkeys(_index()[key].name for key in keys))[:limit]


@cache
def _index() -> dict[str, GpuFacts]:
    index: dict[str, GpuFacts] = {}
    for gpu in all_gpus():
        for name in (gpu.name, *gpu.driver_names, *gpu.aliases):
            index[_key(name)] = gpu
    return index


def _key(name: str) -> str:
    """Lower case, without maker, family and separators, so that "RTX-4090" and "NVIDIA GeForce RTX 4090" are one."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "".join(word for word in words if word not in ("nvidia", "geforce", "tesla", "amd", "instinct"))

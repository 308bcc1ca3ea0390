"""The wire inside an offer: which kind it is by what is stated, and what wires of that kind are known to deliver.

Clouds list GPUs, not wires. What the offer says counts first, then what the card can do at all; where neither tells, the range spans
both possibilities. Shares of a link's rate come from recorded and published machines (``data/links.toml``), efficiencies of whole
training steps from ``data/scaling.toml``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from wiretax.data.gpus import GpuFacts
from wiretax.data.links import fraction, latency, pcie_rate
from wiretax.model.forecast import Interval
from wiretax.plan.offers import Offer
from wiretax.predict.wire_curve import Wire, bus_factor, ring_steps

Kind = Literal["none", "nvlink", "pcie", "staged", "unstated", "network", "unknown"]
"""unstated: PCIe, but nobody says whether peers reach each other. network: several hosts. unknown: not even the card is known."""

WORDS: dict[Kind, str] = {
    "none": "one GPU",
    "nvlink": "NVLink",
    "pcie": "PCIe, peer to peer",
    "staged": "PCIe through host memory, no P2P",
    "unstated": "PCIe, P2P not stated",
    "network": "a network between hosts",
    "unknown": "not known",
}

XGMI_PEERS = 7
"""Links of a GPU in a full mesh of eight (AMD MI300X); a job on fewer GPUs uses only those to its own peers."""


_FAMILIES = {"ddp": "ddp", "zero1": "ddp", "zero2": "ddp", "fsdp2": "fsdp2", "fsdp2_grad_op": "fsdp2", "hsdp": "fsdp2", "zero3": "fsdp2"}


@dataclass(frozen=True, slots=True)
class Known:
    """A range with where it comes from."""

    range: Interval
    source: str


def wire_kind(offer: Offer, num_gpus: int) -> Kind:
    """How so many GPUs of an offer talk to each other, as far as it is stated."""
    if num_gpus == 1:
        return "none"
    if offer.hosts > 1:
        return "network"
    gpu = offer.gpu
    if offer.nvlink or (offer.nvlink is None and gpu is not None and (gpu.nvlink_join == "board" or gpu.vendor == "amd")):
        return "nvlink"
    if offer.p2p is not None:
        return "pcie" if offer.p2p else "staged"
    if gpu is None:
        return "unknown"
    # A driver that never offers peer copies leaves only host memory; one that may is still often switched off by the cloud.
    return "staged" if gpu.stock_driver_p2p_over_pcie is False else "unstated"


def class_busbw(kind: Kind, gpu: GpuFacts, num_gpus: int) -> Known | None:
    """All-reduce busbw of such wires in bytes per second; None where nothing is known (a network, an unknown card)."""
    if kind == "nvlink":
        link = _nvlink_bytes_per_second(gpu, num_gpus)
        return None if link is None else _share("nvlink_ring", "nvlink_ring", link)
    link = pcie_rate(gpu.pcie_generation, gpu.pcie_width)
    if link is None:
        return None
    if kind == "pcie":
        return _share("pcie_ring", "pcie_ring", link)
    if kind == "staged":
        return _share("staged_ring", "staged_ring", link)
    return _share("staged_ring", "pcie_ring", link) if kind == "unstated" else None


def class_wire(busbw: float, kind: Kind, num_gpus: int) -> Wire:
    """Such a wire for the predictor: a typical start-up time and one bus bandwidth at every size."""
    constants = latency()
    step = constants.nvlink_step if kind == "nvlink" else constants.pcie_step
    start = (constants.base + ring_steps("all_reduce", num_gpus) * step) * constants.measured_over_model
    sizes = [float(2**power) for power in range(10, 37)]
    factor = bus_factor("all_reduce", num_gpus)
    points = [(size, start + factor * size / busbw) for size in sizes]
    return Wire.of_points(f"{WORDS[kind]} (class)", "all_reduce", num_gpus, points)


def class_efficiency(kind: Kind, strategy: str, num_gpus: int) -> Known | None:
    """Efficiency of training steps over such a wire, of no model in particular; None where no case is recorded.

    The cases have two GPUs. For N the time on the wire grows by the ring's ``2 (N - 1) / N``, nothing of it hidden anew.
    """
    family = (
        "fsdp2" if strategy in ("fsdp2", "zero3", "hsdp", "fsdp2_grad_op") else "ddp" if strategy in ("ddp", "zero1", "zero2") else None
    )
    if family is None or kind not in ("nvlink", "pcie", "staged", "unstated"):
        return None
    table = _scaling()
    low, high = (table["staged"][family], table["pcie"][family]) if kind == "unstated" else (table[kind][family],) * 2
    expected = low["expected"]
    ends = [_more_gpus(value, num_gpus) for value in (low["low"], expected, high["high"])]
    source = low["source"] if low is high else f"{low['source']}; {high['source']}"
    if num_gpus > 2:
        source = f"{source}; from 2 to {num_gpus} GPUs by the ring's bytes"
    return Known(Interval(low=ends[0], expected=ends[1], high=ends[2]), source)


def _more_gpus(efficiency: float, num_gpus: int) -> float:
    waiting = (1 / efficiency - 1) * bus_factor("all_reduce", num_gpus) / bus_factor("all_reduce", 2)
    return 1 / (1 + waiting)


def _nvlink_bytes_per_second(gpu: GpuFacts, num_gpus: int) -> float | None:
    if gpu.nvlink_bytes_per_second is not None:
        return gpu.nvlink_bytes_per_second
    if gpu.name == "MI300X":
        return 64e9 * min(num_gpus - 1, XGMI_PEERS)
    return None


def _share(low: str, high: str, link: float) -> Known:
    bottom, top = fraction(low), fraction(high)
    source = bottom.source if low == high else f"{bottom.source}; {top.source}"
    return Known(Interval(low=bottom.low * link, expected=bottom.expected * link, high=top.high * link), source)


@cache
def _scaling() -> dict[str, Any]:
    return tomllib.loads(resources.files("wiretax.data").joinpath("scaling.toml").read_text(encoding="utf-8"))

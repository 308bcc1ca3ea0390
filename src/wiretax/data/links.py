"""What links carry, and what healthy paths deliver of it: ``links.toml`` as functions. Facts with a source, no machine names."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

LINE_RATE_TOLERANCE = 0.01
"""Drivers round the line rate to a MB/s or so; generations lie further apart than this."""


@dataclass(frozen=True, slots=True)
class Fraction:
    """How much of a limit healthy machines deliver, with where that comes from."""

    low: float
    expected: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Latency:
    """NCCL's own ring start-up constants, in seconds."""

    base: float
    nvlink_step: float
    pcie_step: float
    measured_over_model: float
    source: str


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(resources.files("wiretax.data").joinpath("links.toml").read_text(encoding="utf-8"))


def nvlink_payload(
    *, driver_bytes_per_second: float | None = None, version: int | None = None, compute_capability: str | None = None
) -> tuple[float, str] | None:
    """The data rate of one NVLink one way, and where it comes from.

    Args:
        driver_bytes_per_second: what the driver states for the link; a line rate, which NVLink 4 and 5 exceed by 1/16.
        version: NVLink version, when the driver tells it.
        compute_capability: of the GPU, as ``"9.0"``; used when the driver states no rate.

    Returns:
        Bytes per second one way and a sentence, or None when nothing known fits.
    """
    generations = _facts()["nvlink_generation"]
    if driver_bytes_per_second is not None and driver_bytes_per_second > 0:
        for generation in generations:
            if version is not None and generation["version"] != version:
                continue
            if any(_close(driver_bytes_per_second, rate) for rate in generation["line_rates"]):
                return float(generation["payload"]), f"NVLink {generation['version']}: {generation['source']}"
        return driver_bytes_per_second, "the rate the driver states for the link"
    if compute_capability is not None:
        for generation in generations:
            if compute_capability in generation["compute_capabilities"]:
                return float(generation["payload"]), f"NVLink {generation['version']}: {generation['source']}"
    return None


def max_nvlinks(compute_capability: str | None) -> int | None:
    """The most NVLinks a GPU of this compute capability can have; None when the capability is unknown or has none."""
    for generation in _facts()["nvlink_generation"]:
        if compute_capability in generation["compute_capabilities"]:
            return int(generation["max_links"])
    return None


def pcie_rate(generation: int, width: int) -> float | None:
    """Bytes per second one way of a PCIe link after line coding; None for a generation nobody has built.

    Source: the PCI-SIG base specifications, see ``links.toml``.
    """
    lane = _facts()["pcie_lane"].get(str(generation))
    return None if lane is None or width <= 0 else float(lane) * width


def fraction(name: str) -> Fraction:
    """What healthy machines deliver of a limit; ``name`` is a key of ``fraction`` in ``links.toml``."""
    entry = _facts()["fraction"][name]
    return Fraction(entry["low"], entry["expected"], entry["high"], entry["source"])


def host_wire(name: str) -> tuple[Fraction, float]:
    """A wire that CPUs carry (``socket``, ``gloo``): all-reduce busbw in bytes per second, and start-up seconds."""
    entry = _facts()["host_wire"][name]
    return Fraction(entry["low"], entry["expected"], entry["high"], entry["source"]), float(entry["start"])


def latency() -> Latency:
    """NCCL's ring start-up constants and how measured operations lie above them."""
    entry = _facts()["latency"]
    return Latency(entry["base"], entry["nvlink_step"], entry["pcie_step"], entry["measured_over_model"], entry["source"])


def _close(value: float, reference: float) -> bool:
    return abs(value - reference) <= LINE_RATE_TOLERANCE * reference

"""The bare formula, 2 (N - 1) / N x bytes / busbw, and what it gives on a ladder of links: for people with two numbers and no GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.data.links import fraction, host_wire, nvlink_payload, pcie_rate
from wiretax.errors import UsageError
from wiretax.model.forecast import Forecast
from wiretax.predict.wire_curve import bus_factor, ring_steps
from wiretax.units import duration, percent, rate

WIDTH = 16
"""Lanes of the ladder's PCIe rungs."""

_NVLINK = (("V100 (NVLink 2, 6 links)", 2, 6), ("A100 (NVLink 3, 12 links)", 3, 12), ("H100, H200 (NVLink 4, 18 links)", 4, 18))
_NVLINK_5 = ("B200 (NVLink 5, 18 links)", 5, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A kind of link and the all-reduce bus bandwidth that healthy machines reach over it, in bytes per second."""

    name: str
    low: float
    expected: float
    high: float
    source: str


def all_reduce_seconds(num_bytes: float, busbw_bytes_per_second: float, world_size: int, *, latency_seconds: float = 0.0) -> float:
    """2 (N - 1) / N x bytes / busbw: the definition of busbw turned round (nccl-tests, PERFORMANCE.md). 0 on one GPU.

    200 MB at 22 GB/s take 9.1 ms on 2 GPUs and 15.9 ms on 8.

    Args:
        num_bytes: of the gradients.
        busbw_bytes_per_second: as nccl-tests prints it for this number of GPUs.
        world_size: GPUs.
        latency_seconds: start-up of one call on 2 GPUs, added to it; on more it grows with the hops of a ring.

    Raises:
        UsageError: a negative size, a rate that is not above 0, or no GPU.
    """
    if not (num_bytes >= 0 and math.isfinite(num_bytes)):
        raise UsageError(f"{num_bytes:g} bytes of gradients cannot be sent.", do="Give a size such as --grad-bytes 200MB.")
    if not (busbw_bytes_per_second > 0 and math.isfinite(busbw_bytes_per_second)):
        raise UsageError(f"A busbw of {busbw_bytes_per_second:g} B/s carries nothing.", do="Give a rate such as --busbw 22GB/s.")
    if world_size < 1:
        raise UsageError(f"{world_size} GPUs cannot reduce anything.", do="Ask for 1 GPU or more.")
    hops = ring_steps("all_reduce", world_size) / ring_steps("all_reduce", 2)
    return hops * latency_seconds + bus_factor("all_reduce", world_size) * num_bytes / busbw_bytes_per_second


def formula_forecasts(
    num_bytes: float,
    busbw_bytes_per_second: float,
    gpus: Sequence[int],
    *,
    latency_seconds: float = 0.0,
    one_gpu_seconds: float | None = None,
    wire: str = "typed",
) -> tuple[Forecast, ...]:
    """The formula as forecasts, one for each number of GPUs.

    Args:
        num_bytes: of the gradients.
        busbw_bytes_per_second: typed or read off a table.
        gpus: numbers of GPUs.
        latency_seconds: see :func:`all_reduce_seconds`.
        one_gpu_seconds: the step on one GPU; with it come bounds of the efficiency in ``assumptions``, as nothing tells the overlap.
        wire: name for the forecasts.

    Raises:
        UsageError: see :func:`all_reduce_seconds`.
    """
    reason = "the formula knows the all-reduce, not the step: profile the step (wiretax profile) for that"
    forecasts = []
    for world_size in gpus:
        seconds = all_reduce_seconds(num_bytes, busbw_bytes_per_second, world_size, latency_seconds=latency_seconds)
        notes = [f"busbw {rate(busbw_bytes_per_second)} at every message size and number of GPUs"]
        if latency_seconds:
            notes.append(f"one call, whose start-up takes {duration(latency_seconds)} on 2 GPUs and grows with the hops of a ring")
        if one_gpu_seconds:
            worst = one_gpu_seconds / (one_gpu_seconds + seconds)
            best = one_gpu_seconds / max(one_gpu_seconds, seconds)
            notes.append(f"efficiency between {percent(worst)} (nothing overlaps) and {percent(best)} (all of it overlaps)")
        forecasts.append(
            Forecast(
                strategy="ddp",
                num_gpus=world_size,
                wire=wire,
                workload=f"{num_bytes:.0f} bytes of gradients",
                all_reduce_seconds=seconds,
                assumptions=tuple(notes),
                missing=dict.fromkeys(("step_seconds", "efficiency_fraction", "wire_tax_fraction", "speedup"), reason),
            )
        )
    return tuple(forecasts)


def ladder() -> tuple[Rung, ...]:
    """Links from slow to fast, two GPUs of one host: what their rate and the recorded fraction of it give for an all-reduce."""
    rungs = []
    for name, title in (("gloo", "gloo (wrong backend)"), ("socket", "TCP sockets on one host")):
        range_, _ = host_wire(name)
        rungs.append(Rung(name=title, low=range_.low, expected=range_.expected, high=range_.high, source=range_.source))
    for generation in (3, 4, 5, 6):
        link = pcie_rate(generation, WIDTH)
        assert link is not None
        for key, how in (("staged_ring", "through host memory"), ("pcie_ring", "P2P")):
            share = fraction(key)
            rungs.append(
                Rung(
                    name=f"PCIe {generation} x{WIDTH}, {how}",
                    low=share.low * link,
                    expected=share.expected * link,
                    high=share.high * link,
                    source=f"{rate(link)} one way; {share.source}",
                )
            )
    share = fraction("nvlink_ring")
    for title, version, links in (*_NVLINK, _NVLINK_5):
        payload = nvlink_payload(driver_bytes_per_second={2: 25.0e9, 3: 25.0e9, 4: 25.0e9, 5: 50.0e9}[version], version=version)
        assert payload is not None
        link = links * payload[0]
        rungs.append(
            Rung(
                name=title,
                low=share.low * link,
                expected=share.expected * link,
                high=share.high * link,
                source=f"{rate(link)} one way; {share.source}",
            )
        )
    return tuple(rungs)

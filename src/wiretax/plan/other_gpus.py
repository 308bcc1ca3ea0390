"""The same work on another kind of GPU: matrix products by the ratio of matrix rates, the rest by the ratio of memory rates.

Expect an error of 10 to 15 % (Habitat, arXiv 2102.00527: 11.8 % in the mean); the range given here holds both ratios and that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wiretax.data.gpus import GpuFacts
from wiretax.model.forecast import Interval
from wiretax.model.measurement import Compute
from wiretax.model.profile import Profile
from wiretax.units import significant

REACHED: Mapping[str, float] = {
    "A100 SXM4 40GB": 0.87,
    "A100 SXM4 80GB": 0.87,
    "A100 PCIe 40GB": 0.81,
    "A100 PCIe 80GB": 0.81,
    "H100 SXM5": 0.80,
    "H200 SXM": 0.80,
    "B200 SXM": 0.78,
    "MI300X": 0.51,
}
"""Best matrix product over the data sheet's dense peak (maximum achievable matmul FLOPS of stas00/ml-engineering)."""

REACHED_ELSEWHERE = 0.80
"""Taken for the others, where nobody published it (the middle of the list above, NVIDIA's)."""

MATMUL_SHARE = 0.7
"""Of a step's device time in matrix products, where no profile tells (as ``wiretax.predict`` takes it)."""

SCALING_ERROR = 0.12
"""Habitat's mean error, added to both ends."""


_UNMEASURED = (
    "matmul_size",
    "clocks_mhz",
    "throttle_reasons",
    "power_watts",
    "temperature_celsius",
    "pcie",
    "layer_seconds",
    "head_seconds",
)


@dataclass(frozen=True, slots=True)
class Factor:
    """Step time on the other GPU over that on the known one, and a sentence."""

    range: Interval
    note: str


def matmul_flops_per_second(gpu: GpuFacts) -> float | None:
    """What matrix products in bf16 reach on it; None where its peak is not known."""
    return None if gpu.bf16_flops_per_second is None else gpu.bf16_flops_per_second * REACHED.get(gpu.name, REACHED_ELSEWHERE)


def step_factor(known: GpuFacts, other: GpuFacts) -> Factor | None:
    """How much longer (above 1) or shorter a training step takes on another GPU; None where a rate is not known.

    Args:
        known: where the step was timed.
        other: where it would run.
    """
    if known.name == other.name:
        return Factor(Interval(low=1.0, expected=1.0, high=1.0), "")
    own, theirs = matmul_flops_per_second(known), matmul_flops_per_second(other)
    if own is None or theirs is None:
        return None
    matmul, memory = own / theirs, known.memory_bytes_per_second / other.memory_bytes_per_second
    expected = MATMUL_SHARE * matmul + (1 - MATMUL_SHARE) * memory
    note = (
        f"{other.name}: step time {significant(expected, 2)} times that on {known.name} "
        f"(matrix products {significant(matmul, 2)}, memory {significant(memory, 2)}), not measured"
    )
    low, high = min(matmul, memory) * (1 - SCALING_ERROR), max(matmul, memory) * (1 + SCALING_ERROR)
    return Factor(Interval(low=low, expected=expected, high=high), note)


def as_measured(profile: Profile, known: GpuFacts, other: GpuFacts) -> tuple[Compute, ...] | None:
    """Rates of another GPU as the predictor takes them, scaled from the profile's own by the data sheets; None where one is missing.

    Args:
        profile: with its own measured rates.
        known: the profile's GPU.
        other: where it would run.
    """
    own, theirs = matmul_flops_per_second(known), matmul_flops_per_second(other)
    if own is None or theirs is None or profile.matmul_flops_per_second is None or profile.memory_bytes_per_second is None:
        return None
    rates = Compute(
        gpu=0,
        rank=0,
        together=False,
        matmul_flops_per_second=profile.matmul_flops_per_second * theirs / own,
        memory_bytes_per_second=profile.memory_bytes_per_second * other.memory_bytes_per_second / known.memory_bytes_per_second,
        missing=dict.fromkeys(_UNMEASURED, "from data sheets, not measured"),
    )
    return (rates,)

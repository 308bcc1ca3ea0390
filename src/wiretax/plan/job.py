"""What is to be done, and all that is known of how long it takes: typed, measured, profiled, or only the model's shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wiretax.data.gpus import GpuFacts
from wiretax.data.models import TransformerShape
from wiretax.errors import UsageError
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.plan.cost import check_efficiency
from wiretax.predict.memory_arithmetic import RECIPES

GUESSED_KV_HEADS = 8
"""Key and value heads where only the size of a model is known: what Llama 3, Mistral and Qwen have from 7 to 400 billion parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job. Where several sources tell the time on one GPU, hours count before throughput, before a profile, before an MFU."""

    hours: float | None = None
    """On one GPU."""
    samples: float | None = None
    tokens: float | None = None
    throughput: Mapping[int, float] = field(default_factory=dict)
    """Measured samples per second of all GPUs together, by number of GPUs."""
    efficiency: float | Mapping[int, float] | None = None
    """Typed, above one GPU: one for all counts, or by number of GPUs."""
    measured_on: GpuFacts | None = None
    """Where hours and throughput hold; the profile names its own GPU."""
    profile: Profile | None = None
    runs: tuple[Run, ...] = ()
    """Measured machines."""
    busbw: float | None = None
    """Typed all-reduce bus bandwidth in bytes per second, of every offer."""
    shape: TransformerShape | None = None
    shape_name: str = ""
    shape_is_guess: bool = False
    """Only the number of parameters is known: heads and layers follow from :func:`shape_of_size`."""
    recipe: str = "adamw_bf16"
    trainable_fraction: float | None = None
    """Of a LoRA's parameters in the model's."""
    sequence_length: int | None = None
    activation_checkpointing: bool = False
    mfu: float | None = None
    """Typed model FLOPs utilisation, for the time on one GPU where nothing was measured."""

    def __post_init__(self) -> None:
        for name, value in (("hours", self.hours), ("samples", self.samples), ("tokens", self.tokens)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"a job of {value:g} {name} is none.", do="Give a number above 0.")
        for count, rate in self.throughput.items():
            if count < 1 or not (rate > 0 and math.isfinite(rate)):
                raise UsageError(f"a throughput of {rate:g} samples/s on {count} GPUs is impossible.", do="Write 1:15.4,2:28.")
        if isinstance(self.efficiency, Mapping):
            for count, value in self.efficiency.items():
                check_efficiency(value, f"the efficiency on {count} GPUs")
                if count == 1 and value != 1:
                    raise UsageError("One GPU is what the others are compared with: its efficiency is 1.")
        elif self.efficiency is not None:
            check_efficiency(self.efficiency)
        if self.mfu is not None:
            check_efficiency(self.mfu, "the MFU")
        if self.recipe not in RECIPES:
            raise UsageError(f"{self.recipe!r} is no recipe of training memory.", do=f"Known: {', '.join(RECIPES)}.")
        if self.tokens is not None and self.samples is not None and self.sequence is not None:
            stated = self.samples * self.sequence
            if abs(stated / self.tokens - 1) > 0.01:
                raise UsageError(
                    f"{self.samples:g} samples of {self.sequence} tokens are {stated:g} tokens, not {self.tokens:g}.",
                    do="Give --samples or --tokens, not both.",
                )
        if self.throughput and 1 not in self.throughput and self.hours is None:
            raise UsageError("The throughput of one GPU is missing.", do="Efficiency compares with one GPU: --throughput 1:15.4,4:14.0.")

    @property
    def sequence(self) -> int | None:
        """Tokens a sample."""
        return self.sequence_length or (self.profile.workload.sequence_length if self.profile else None)

    @property
    def num_samples(self) -> float | None:
        """Samples to train on; None where nothing says how many."""
        if self.samples is not None:
            return self.samples
        if self.tokens is not None and self.sequence:
            return self.tokens / self.sequence
        if self.hours is not None and 1 in self.throughput:
            return self.hours * 3600 * self.throughput[1]
        return None

    @property
    def num_tokens(self) -> float | None:
        """Tokens to train on."""
        if self.tokens is not None:
            return self.tokens
        samples = self.num_samples
        return samples * self.sequence if samples is not None and self.sequence else None

    @property
    def one_gpu_hours(self) -> float | None:
        """Of the whole job where it was measured; None where only a profile or an MFU can tell."""
        if self.hours is not None:
            return self.hours
        if 1 in self.throughput and self.num_samples is not None:
            return self.num_samples / self.throughput[1] / 3600
        return None

    @property
    def knows_memory(self) -> bool:
        """Whether anything says how much memory a step needs."""
        return self.shape is not None or (self.profile is not None and any(one.strategy == "none" for one in self.profile.memory))


def shape_of_size(num_parameters: float) -> TransformerShape:
    """A Llama-like shape of about so many parameters, where only the size is known: width 128 x depth, as the common models have it.

    Twelve widths squared a layer give ``P = 12 x 128^2 x L^3`` beside the embeddings. The vocabulary is 32,000, a head is 128 wide, and
    8 heads hold keys and values.

    Raises:
        UsageError: no size.
    """
    if not (num_parameters >= 1e6 and math.isfinite(num_parameters)):
        raise UsageError(f"a model of {num_parameters:g} parameters is none.", do="Give its size such as --params 7e9.")

    # Depth as if every head had its own keys, which is how the rule counts.
    layers = min(range(2, 400), key=lambda one: abs(replace(_of_depth(one, 0), num_kv_heads=one).num_parameters - num_parameters))
    rough = _of_depth(layers, 0)
    # The MLP's width takes up what is left, so that the count is the one asked for.
    left = (num_parameters - rough.num_parameters) / (3 * rough.hidden_size * layers)
    return _of_depth(layers, max(round(left), rough.hidden_size - rough.mlp_size))


def _of_depth(layers: int, wider: int) -> TransformerShape:
    hidden = 128 * layers
    return TransformerShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=layers,
        num_kv_heads=GUESSED_KV_HEADS,
        head_size=128,
        mlp_size=round(8 * hidden / 3) + wider,
        vocabulary_size=32_000,
        gated_mlp=True,
    )

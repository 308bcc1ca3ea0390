"""What would make it fit: the levers in the order in which people reach for them, each tried by arithmetic and said with its figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wiretax.data.gpus import GpuFacts, all_gpus
from wiretax.plan.knowledge import Knowledge, Setting
from wiretax.plan.offers import Offer
from wiretax.predict.memory_arithmetic import RECIPES
from wiretax.units import memory

LIGHTER = ("adamw_bf16", "adamw_8bit", "adafactor", "lora", "qlora")
"""Recipes of training, heaviest first."""

WORDS = {
    "adamw_bf16": "AdamW with everything in bf16",
    "adamw_8bit": "8-bit AdamW",
    "adafactor": "Adafactor",
    "lora": "LoRA (frozen 16-bit weights, a small adapter is trained)",
    "qlora": "QLoRA (frozen 4-bit weights, a small adapter is trained)",
}

MOST = 6


def remedies(knowledge: Knowledge, offers: Sequence[Offer], setting: Setting) -> tuple[str, ...]:
    """Sentences, each a lever that makes the job fit on one of the largest offered GPU, or the smallest GPU that holds it as it is."""
    cards = [offer.gpu for offer in offers if offer.gpu is not None]
    if not cards:
        return ()
    largest = max(cards, key=lambda gpu: gpu.memory_bytes)
    return tuple(_levers(knowledge, largest, setting))[:MOST]


def _levers(knowledge: Knowledge, gpu: GpuFacts, setting: Setting) -> Iterator[str]:
    there = f"on one {gpu.name} ({memory(gpu.memory_bytes)})"
    batch = knowledge.largest_batch(gpu, "none", 1, setting)
    if batch is not None and 0 < batch < setting.batch_size:
        steps = -(-setting.batch_size // batch)
        yield f"batch {batch} instead of {setting.batch_size} fits {there}; {steps} micro-steps an update give about the same batch"
    job = knowledge.job
    if job.shape is not None and job.profile is None:
        if not job.activation_checkpointing and (peak := _peak(Knowledge(replace(job, activation_checkpointing=True)), gpu, setting)):
            yield f"activation checkpointing (about a third more compute) needs {memory(peak)}: fits {there}"
        yield from _lighter(knowledge, gpu, setting, there)
    peak_now = knowledge.memory("none", 1, setting)
    if peak_now is not None:
        holds = [one for one in all_gpus() if peak_now.fits(one.memory_bytes) is True]
        smallest = min(holds, key=lambda one: one.memory_bytes, default=None)
        if smallest is not None:
            yield f"a bigger GPU: one {smallest.name} ({memory(smallest.memory_bytes)}) holds it as it is"


def _lighter(knowledge: Knowledge, gpu: GpuFacts, setting: Setting, there: str) -> Iterator[str]:
    """Recipes that need less a parameter than the job's own; checkpointing of activations is kept as it is, then added."""
    job = knowledge.job

    def weight(name: str) -> float:
        one = RECIPES[name]
        return one.weights + (0.0 if one.adapter else one.gradients + one.states)

    own = weight(job.recipe)
    for name in LIGHTER:
        if weight(name) >= own or (RECIPES[job.recipe].adapter and not RECIPES[name].adapter):
            continue
        for checkpointing in dict.fromkeys((job.activation_checkpointing, True)):
            lighter = Knowledge(replace(job, recipe=name, activation_checkpointing=checkpointing))
            peak = _peak(lighter, gpu, setting)
            if peak is not None:
                more = " with activation checkpointing" if checkpointing and not job.activation_checkpointing else ""
                yield f"{WORDS[name]}{more} needs {memory(peak)}: fits {there}"
                break


def _peak(knowledge: Knowledge, gpu: GpuFacts, setting: Setting) -> float | None:
    """Expected peak where it surely fits, else None."""
    found = knowledge.memory("none", 1, setting)
    return found.peak.expected if found is not None and found.fits(gpu.memory_bytes) is True else None

"""The recorded pair of H200s as profiles, wires and truths, so that the predictor can be judged without a GPU.

Only one-GPU recordings go into the profiles: the bare step of the truth's own host, DDP at world size 1, FSDP2 on torch's ``fake``
backend at world size 2, a device copy, a matrix product. The wire is the sweep of the truth's own launch. What was not recorded is
derived and said so: the split of a pass into segments and the arrival of gradients by FLOPs and bytes; host time by comparing
elapsed time with that device time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wiretax.model.measurement import Collective, Measurements, Operation, Overlap, Point
from wiretax.model.profile import (
    FreeStep,
    GradientReady,
    GroupTimes,
    MemoryPoint,
    Parameter,
    PhaseTimes,
    Profile,
    Segment,
    Span,
    StepTimes,
    Workload,
)
from wiretax.predict.wire_curve import bus_factor

DATA = Path(__file__).parent / "data" / "h200x2"
SEQUENCE = 1024
SHAPES = {"gpt124m": (12, 768, 50304, 4, 12), "gpt1.7b": (24, 2304, 50304, 2, 18)}
"""Layers, hidden, vocabulary, bytes of a weight, heads."""

MULTIPROCESSORS = 132
"""NVIDIA H200 data sheet."""

MACHINE = "2x NVIDIA H200, NV18, PCIe 5 x16, KVM guest, torch 2.11.0+cu130, NCCL 2.28.9"
DATE = "2026-11-30"
SWEEPS = {
    1: "sweep_and_training_{}.json",
    2: "launch2_sweep_and_training_{}.json",
    3: "launch2_sweep_and_training_{}.json",
}
TRUTHS = {1: "sweep_and_training_{}.json", 2: "launch2_sweep_and_training_{}.json", 3: "launch3_training_{}.json"}
BARE = {1: "training_1gpu.json", 2: "launch2_training_1gpu.json", 3: "launch2_training_1gpu.json"}
LOGS = {"default": "nccl_default.1679.log", "shm": "nccl_shm.1778.log", "net": "nccl_net.1880.log"}


@dataclass(frozen=True)
class Truth:
    """One launch of one case on two GPUs."""

    wire: str
    launch: int
    workload: str
    strategy: str
    batch_size: int
    step_seconds: float
    forward_seconds: float
    backward_seconds: float
    peak_bytes: int

    @property
    def case(self) -> tuple[str, str, str, int]:
        """What launches repeat."""
        return self.wire, self.workload, self.strategy, self.batch_size


@cache
def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def rows(name: str) -> list[dict[str, Any]]:
    document = recorded(name)
    return document if isinstance(document, list) else document["train"]


def truths() -> list[Truth]:
    """Every training row on two GPUs, all wires and launches."""
    found = []
    for wire in ("default", "shm", "net", "gloo"):
        for launch, name in TRUTHS.items():
            if not (DATA / name.format(wire)).exists():
                continue
            for row in rows(name.format(wire)):
                found.append(
                    Truth(
                        wire=wire,
                        launch=launch,
                        workload=row["kind"],
                        strategy={"ddp": "ddp", "fsdp": "fsdp2"}[row["strat"]],
                        batch_size=row["B"],
                        step_seconds=row["step_ms"] / 1e3,
                        forward_seconds=row["fwd_ms"] / 1e3,
                        backward_seconds=row["bwd_ms"] / 1e3,
                        peak_bytes=int(row["mem_gb"] * 2**30),
                    )
                )
    return found


def measurements(wire: str, launch: int) -> Measurements:
    """The sweep that belongs to a launch."""
    name = SWEEPS[launch].format(wire)
    sweep = recorded(name)["sweep"]
    collectives = []
    for operation in dict.fromkeys(one["op"] for one in sweep):
        kind: Operation = {"sendrecv": "send_recv"}.get(operation, operation)
        for mode, key in (("eager", "us"), ("graph", "graph_us")):
            points = []
            for one in sweep:
                if one["op"] == operation and one.get(key):
                    seconds, size = one[key] / 1e6, one["bytes"]
                    algbw = size / seconds
                    points.append(
                        Point(
                            num_bytes=size,
                            seconds=seconds,
                            algbw_bytes_per_second=algbw,
                            busbw_bytes_per_second=algbw * bus_factor(kind, 2),
                        )
                    )
            if points:
                backend = "gloo" if wire == "gloo" else "nccl"
                collectives.append(Collective(backend=backend, operation=kind, wire=wire, world_size=2, mode=mode, points=tuple(points)))
    return Measurements(collectives=tuple(collectives), overlap=overlaps())


@cache
def overlaps() -> tuple[Overlap, ...]:
    """A GEMM beside an all-reduce. The GEMMs outlived the all-reduces, so their slow-down counts over the time they shared."""
    found = []
    for wire in ("default", "shm"):
        one = recorded(f"gemm_beside_all_reduce_{wire}.json")
        alone = one["alone_ms"] / 1e3
        found.append(
            Overlap(
                gpu=0,
                rank=0,
                wire=wire,
                world_size=2,
                num_bytes=2**28,
                matmul_alone_seconds=alone,
                matmul_beside_seconds=alone / (1 - one["excess_ms"] / one["overlap_ms"]),
                all_reduce_alone_seconds=one["ar_alone_ms"] / 1e3,
                all_reduce_beside_seconds=one["ar_both_ms"] / 1e3,
            )
        )
    return tuple(found)


@cache
def channels(wire: str) -> int | None:
    """NCCL's channels, from its own log."""
    if wire not in LOGS:
        return None
    match = re.search(r"(\d+) coll channels", (DATA / LOGS[wire]).read_text(encoding="utf-8"))
    return int(match[1]) if match else None


def matmul_rate() -> float:
    """FLOP/s of an 8192 bf16 product."""
    return 2 * 8192**3 / (recorded("gemm_beside_all_reduce_default.json")["alone_ms"] / 1e3)


def memory_rate() -> float:
    """Bytes read plus written a second by a copy inside one GPU."""
    return 2 * 1e9 * recorded("pair_copies.json")["p2p_bw"][0][0]


@cache
def profile(workload: str, batch_size: int, launch: int) -> Profile:
    """The one-GPU profile for a launch: its own host's bare step, and the free steps of the third host."""
    row = next(one for one in rows(BARE[launch]) if (one["kind"], one["B"]) == (workload, batch_size))
    _, hidden, vocabulary, element, heads = SHAPES[workload]
    names = _parameters(workload)
    parts = _segments(workload, batch_size)
    totals = [sum(part[way] for part in parts) for way in (1, 2)]
    bare = _times(row)
    backward = bare.backward.elapsed.seconds
    clock, ready = 0.0, []
    indices = {name: index for index, (name, _, _) in enumerate(names)}
    for _, _, seconds, arrivals in reversed(parts):
        ready += [GradientReady(parameter=indices[name], seconds=(clock + at) / totals[1] * backward) for name, at in arrivals]
        clock += seconds
    parameters = tuple(
        Parameter(
            name=name,
            num_elements=elements,
            shape=_shape(name, elements, hidden),
            dtype="float32" if element == 4 else "bfloat16",
            num_bytes=elements * element,
            gradient_bytes=elements * element,
            segment=segment,
        )
        for name, elements, segment in names
    )
    segments = tuple(
        Segment(
            name=name,
            role="before" if index == 0 else "after" if index == len(parts) - 1 else "block",
            parameter_bytes=sum(one.num_bytes for one in parameters if one.segment == index),
            gradient_bytes=sum(one.gradient_bytes for one in parameters if one.segment == index),
            forward_seconds=forward / totals[0] * bare.forward.elapsed.seconds,
            backward_seconds=seconds / totals[1] * backward,
            output_bytes=2 * batch_size * SEQUENCE * hidden,
            missing={"forward_host_seconds": "not recorded", "backward_host_seconds": "not recorded"},
        )
        for index, (name, forward, seconds, _) in enumerate(parts)
    )
    free = tuple(one for one in (_ddp_free(workload, batch_size, bare), _fsdp_free(workload, batch_size, segments)) if one is not None)
    return Profile(
        workload=Workload(
            name=workload,
            batch_size=batch_size,
            sequence_length=SEQUENCE,
            hidden_size=hidden,
            vocabulary_size=vocabulary,
            num_heads=heads,
            missing={"flops_per_sample": "not recorded"},
        ),
        device="cuda",
        device_name="NVIDIA H200",
        device_memory_bytes=143771 * 2**20,
        multiprocessors=MULTIPROCESSORS,
        parameters=parameters,
        segments=segments,
        bare=bare,
        gradient_ready=tuple(ready),
        free_steps=free,
        matmul_flops_per_second=matmul_rate(),
        memory_bytes_per_second=memory_rate(),
        memory=tuple(
            MemoryPoint(
                strategy="none",
                batch_size=one["B"],
                peak_bytes=int(one["mem_gb"] * 2**30),
                missing=dict.fromkeys(("at_rest_bytes", "update_peak_bytes"), "not recorded"),
            )
            for one in rows(BARE[launch])
            if one["kind"] == workload
        ),
        missing={"input_pipeline": "not recorded", "optimizer_state_bytes": "not recorded", "host_load": "not recorded"},
    )


def _times(row: dict[str, Any]) -> StepTimes:
    def phase(key: str) -> PhaseTimes:
        unknown = {"device": "only elapsed time was recorded", "host": "only elapsed time was recorded"}
        return PhaseTimes(elapsed=Span(seconds=row[key] / 1e3), missing=unknown)

    samples = tuple(row[key] / 1e3 for key in ("min_ms", "step_ms", "max_ms"))
    return StepTimes(
        step=Span(seconds=row["step_ms"] / 1e3, samples_seconds=samples),
        forward=phase("fwd_ms"),
        backward=phase("bwd_ms"),
        optimizer=phase("opt_ms"),
    )


def _shifted(times: StepTimes, more: dict[str, float]) -> StepTimes:
    def phase(one: PhaseTimes, key: str) -> PhaseTimes:
        return PhaseTimes(elapsed=Span(seconds=one.elapsed.seconds + more[key]), missing=one.missing)

    return StepTimes(
        step=Span(seconds=times.step.seconds + more["step_ms"]),
        forward=phase(times.forward, "fwd_ms"),
        backward=phase(times.backward, "bwd_ms"),
        optimizer=phase(times.optimizer, "opt_ms"),
    )


def _ddp_free(workload: str, batch_size: int, bare: StepTimes) -> FreeStep:
    """DDP at world size 1: what it adds to the bare step on the host where both were recorded, added to this host's bare step.

    It was recorded at the small batch only. At the large one the device is four times as long and hides DDP's host time in
    forward, so only the backward part (hooks and copies, which do not depend on the batch) is carried over.
    """
    wraps = [one for one in rows("training_world1_wraps.json") if one["kind"] == workload]
    small = min(one["B"] for one in wraps)
    keys = ("step_ms", "fwd_ms", "bwd_ms", "opt_ms")
    with_ddp = [one for one in wraps if one["strat"] == "ddp"]
    without = [one for one in wraps if one["strat"] == "none" and one["B"] == small]
    more = {key: _mean(one[key] for one in with_ddp) / 1e3 - _mean(one[key] for one in without) / 1e3 for key in keys}
    if batch_size != small:
        more = {"fwd_ms": 0.0, "opt_ms": 0.0, "bwd_ms": more["bwd_ms"], "step_ms": more["bwd_ms"]}
    return FreeStep(
        strategy="ddp",
        world_size=1,
        method="world_size_1",
        options={"gradient_as_bucket_view": "True"},
        times=_shifted(bare, more),
        missing={"filler_seconds": "nothing is filled at world size 1", "peak_memory_bytes": "the recording's is contaminated"},
    )


def _fsdp_free(workload: str, batch_size: int, segments: tuple[Segment, ...]) -> FreeStep | None:
    """FSDP2 on the fake backend at world size 2.

    Host time a group: where a pass took longer than its device work, the host was the slower one and the pass is its time; where
    not, the small model's host time a group is taken, whose blocks have the same modules.
    """
    found = [
        one for one in rows("training_fake_backend_world2.json") if (one["kind"], one["B"], one["strat"]) == (workload, batch_size, "fsdp")
    ]
    if not found:
        return None
    row = {key: _mean(one[key] for one in found) for key in ("step_ms", "fwd_ms", "bwd_ms", "opt_ms", "min_ms", "max_ms")}
    small = [one for one in rows("training_fake_backend_world2.json") if (one["kind"], one["strat"]) == ("gpt124m", "fsdp")]
    small_groups = SHAPES["gpt124m"][0] + 1
    blocks = [index for index, one in enumerate(segments) if one.role == "block"]
    members = [(0, len(segments) - 1), *((index,) for index in blocks)]
    rate = memory_rate()
    hosts = {}
    for way, key, copies in (("forward", "fwd_ms", 2), ("backward", "bwd_ms", 4)):
        device = sum(getattr(one, f"{way}_seconds") + copies * one.parameter_bytes / rate for one in segments)
        elapsed = row[key] / 1e3
        hosts[way] = elapsed / len(members) if elapsed > 1.05 * device else _mean(one[key] for one in small) / 1e3 / small_groups
    groups = []
    for member in members:
        own = [segments[index] for index in member]
        parameter_bytes = sum(one.parameter_bytes for one in own)
        groups.append(
            GroupTimes(
                segments=member,
                parameter_bytes=parameter_bytes,
                gradient_bytes=sum(one.gradient_bytes for one in own),
                forward_host_seconds=hosts["forward"],
                forward_device_seconds=sum(one.forward_seconds for one in own) + 2 * parameter_bytes / rate,
                backward_host_seconds=hosts["backward"],
                backward_device_seconds=sum(one.backward_seconds for one in own) + 4 * parameter_bytes / rate,
            )
        )
    return FreeStep(
        strategy="fsdp2",
        world_size=2,
        method="fake_backend",
        options={"reshard_after_forward": "True"},
        times=_times(row),
        groups=tuple(groups),
        missing={"filler_seconds": "nothing was filled", "peak_memory_bytes": "recorded for the whole process only"},
    )


def _parameters(workload: str) -> list[tuple[str, int, int]]:
    """Name, elements and segment, in the order of ``model.parameters()``: learned positions, affine norms, no biases, untied head."""
    layers, hidden, vocabulary, _, _ = SHAPES[workload]
    found = [("token", vocabulary * hidden, 0), ("position", SEQUENCE * hidden, 0)]
    for layer in range(layers):
        sizes = {
            "norm1.w": hidden,
            "norm1.b": hidden,
            "qkv": 3 * hidden**2,
            "out": hidden**2,
            "norm2.w": hidden,
            "norm2.b": hidden,
            "up": 4 * hidden**2,
            "down": 4 * hidden**2,
        }
        found += [(f"{layer}.{name}", elements, layer + 1) for name, elements in sizes.items()]
    last = layers + 1
    return [*found, ("norm.w", hidden, last), ("norm.b", hidden, last), ("head", vocabulary * hidden, last)]


def _shape(name: str, elements: int, hidden: int) -> tuple[int, ...]:
    if ".norm" in name or name.startswith("norm"):
        return (elements,)
    return (hidden, elements // hidden) if name.endswith("down") else (elements // hidden, hidden)


def _segments(workload: str, batch_size: int) -> list[tuple[str, float, float, list[tuple[str, float]]]]:
    """Name, forward seconds, backward seconds and arrivals within backward of each segment, by FLOPs and bytes at measured rates."""
    layers, hidden, vocabulary, element, _ = SHAPES[workload]
    tokens = batch_size * SEQUENCE

    autocast = element == 4

    def product(inner: int, outer: int) -> float:
        return 2 * tokens * inner * outer / matmul_rate()

    def passes(elements: float, num_bytes: float) -> float:
        return elements * num_bytes / memory_rate()

    def cast(inner: int, outer: int) -> float:
        return passes(inner * outer, 6) if autocast else 0.0

    # Under autocast norms and the residual stream are float32, with casts around each linear; bytes an element, read and written.
    norm_forward, norm_backward = (
        (passes(tokens * hidden, 14 + 10), passes(tokens * hidden, 38))
        if autocast
        else (
            passes(tokens * hidden, 4 + 6),
            passes(tokens * hidden, 16),
        )
    )
    gelu_forward, gelu_backward = passes(tokens * 4 * hidden, 4), passes(tokens * 4 * hidden, 6)
    # FlashAttention-2 reaches about 350 TFLOP/s on Hopper forward and 200 backward at short causal sequences (arXiv 2407.08608).
    attention = 2 * tokens * SEQUENCE * hidden
    attention_forward, attention_backward = attention / 350e12, 2.5 * attention / 200e12
    parts: list[tuple[str, float, float, list[tuple[str, float]]]] = []
    embedding = passes(vocabulary * hidden, 2 * element) + passes(tokens * hidden, 6)
    parts.append(("before", passes(tokens * hidden, 6), embedding, [("position", embedding * 0.3), ("token", embedding)]))
    for layer in range(layers):
        forward = product(hidden, 12 * hidden) + cast(hidden, 12 * hidden) + attention_forward + 2 * norm_forward + gelu_forward
        at, arrivals = 0.0, []
        for name, seconds in (
            ("down", 2 * product(4 * hidden, hidden) + cast(4 * hidden, hidden)),
            ("up", 2 * product(hidden, 4 * hidden) + cast(hidden, 4 * hidden) + gelu_backward),
            ("norm2.w", norm_backward),
            ("norm2.b", 0.0),
            ("out", 2 * product(hidden, hidden) + cast(hidden, hidden)),
            ("qkv", 2 * product(hidden, 3 * hidden) + cast(hidden, 3 * hidden) + attention_backward),
            ("norm1.w", norm_backward),
            ("norm1.b", 0.0),
        ):
            at += seconds
            arrivals.append((f"{layer}.{name}", at))
        parts.append((f"block{layer}", forward, at, arrivals))
    # Logits in bf16, the loss in float32: forward casts and takes the softmax, backward fills, subtracts and casts back.
    logits = tokens * vocabulary
    head = 2 * product(hidden, vocabulary) + cast(hidden, vocabulary) + passes(logits, 22)
    final = head + norm_backward
    forward = product(hidden, vocabulary) + cast(hidden, vocabulary) + passes(logits, 16) + norm_forward
    parts.append(("after", forward, final, [("head", head), ("norm.w", final), ("norm.b", final)]))
    return parts


def _mean(values: Any) -> float:
    listed = list(values)
    return sum(listed) / len(listed)

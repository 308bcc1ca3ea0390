"""Small made-up profiles and wires for tests of the predictor: round numbers, so that an answer can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from wiretax.model.measurement import Collective, Measurements, Mode, Operation, Point
from wiretax.model.profile import (
    BucketTimes,
    CommunicationCall,
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
from wiretax.predict.wire_curve import Wire, bus_factor

MIB = 2**20


def phase(device: float, host: float | None = None) -> PhaseTimes:
    """A phase; without host time only its elapsed time is known."""
    if host is None:
        return PhaseTimes(elapsed=Span(seconds=device), missing={"device": "not told apart", "host": "not told apart"})
    return PhaseTimes(elapsed=Span(seconds=max(device, host)), device=Span(seconds=device), host=Span(seconds=host))


def times(forward: PhaseTimes, backward: PhaseTimes, optimizer: PhaseTimes, step: float | None = None) -> StepTimes:
    """A step; by default as long as its phases."""
    total = sum(one.elapsed.seconds for one in (forward, backward, optimizer)) if step is None else step
    return StepTimes(step=Span(seconds=total), forward=forward, backward=backward, optimizer=optimizer)


def profile(
    *,
    num_blocks: int = 4,
    block_bytes: int = 32 * MIB,
    root_bytes: int = 64 * MIB,
    forward: float = 0.010,
    backward: float = 0.020,
    optimizer: float = 0.002,
    host: float | None = None,
    free_steps: Sequence[FreeStep] = (),
    device: Literal["cuda", "cpu"] = "cuda",
    memory: Sequence[MemoryPoint] = (),
    input_seconds: float | None = None,
    batch_size: int = 8,
) -> Profile:
    """Blocks of one matrix each between an embedding and a head; backward time evenly over the segments.

    ``host`` is the host's share of each phase's device time; None leaves the clocks untold.
    """
    segments = num_blocks + 2
    sizes = [root_bytes // 2, *([block_bytes] * num_blocks), root_bytes // 2]
    names = ["before", *(f"block {index}" for index in range(num_blocks)), "after"]
    parameters = tuple(
        Parameter(
            name=f"{name}.weight",
            num_elements=size // 2,
            shape=(1024, size // 2048),
            dtype="bfloat16",
            num_bytes=size,
            gradient_bytes=size,
            segment=index,
        )
        for index, (name, size) in enumerate(zip(names, sizes, strict=True))
    )

    def timed(seconds: float) -> PhaseTimes:
        return phase(seconds, None if host is None else seconds * host)

    return Profile(
        workload=Workload(
            name="made up",
            batch_size=batch_size,
            sequence_length=128,
            hidden_size=1024,
            missing={"flops_per_sample": "made up"},
        ),
        device=device,
        device_name="made up",
        device_memory_bytes=24 * 10**9,
        multiprocessors=None if device == "cpu" else 100,
        parameters=parameters,
        segments=tuple(
            Segment(
                name=name,
                role="before" if index == 0 else "after" if index == segments - 1 else "block",
                parameter_bytes=size,
                gradient_bytes=size,
                forward_seconds=forward / segments,
                backward_seconds=backward / segments,
                output_bytes=2 * MIB,
                missing={"forward_host_seconds": "made up", "backward_host_seconds": "made up"},
            )
            for index, (name, size) in enumerate(zip(names, sizes, strict=True))
        ),
        bare=times(timed(forward), timed(backward), timed(optimizer)),
        gradient_ready=tuple(
            GradientReady(parameter=index, seconds=backward * (segments - index) / segments) for index in range(segments - 1, -1, -1)
        ),
        free_steps=tuple(free_steps),
        memory=tuple(memory),
        input_pipeline=None if input_seconds is None else Span(seconds=input_seconds),
        memory_bytes_per_second=1e12,
        matmul_flops_per_second=1e14,
        missing={"input_pipeline": "made up", "optimizer_state_bytes": "made up", "host_load": "made up"},
    )


def ddp_free(*, more_forward: float = 0.0, more_backward: float = 0.0, base: Profile | None = None) -> FreeStep:
    """DDP at world size 1, longer than the bare step by so much."""
    bare = (base or profile()).bare
    return FreeStep(
        strategy="ddp",
        world_size=1,
        method="world_size_1",
        options={"gradient_as_bucket_view": "True"},
        times=times(
            phase(bare.forward.elapsed.seconds + more_forward),
            phase(bare.backward.elapsed.seconds + more_backward),
            phase(bare.optimizer.elapsed.seconds),
        ),
        missing={"filler_seconds": "made up", "peak_memory_bytes": "made up"},
    )


def fsdp_free(base: Profile, *, world_size: int = 2, host: float = 0.001, optimizer_host: float = 0.0005) -> FreeStep:
    """FSDP2 with communication free: the bare device work, and so much host time a group and pass."""
    blocks = [index for index, one in enumerate(base.segments) if one.role == "block"]
    members = [(0, len(base.segments) - 1), *((index,) for index in blocks)]
    groups = tuple(
        GroupTimes(
            segments=member,
            parameter_bytes=sum(base.segments[index].parameter_bytes for index in member),
            gradient_bytes=sum(base.segments[index].gradient_bytes for index in member),
            forward_host_seconds=host,
            forward_device_seconds=sum(base.segments[index].forward_seconds for index in member),
            backward_host_seconds=host,
            backward_device_seconds=sum(base.segments[index].backward_seconds for index in member),
        )
        for member in members
    )
    bare = base.bare
    update = bare.optimizer.elapsed.seconds / world_size
    forward, backward = bare.forward.elapsed.seconds, bare.backward.elapsed.seconds
    whole_host = host * len(members)
    return FreeStep(
        strategy="fsdp2",
        world_size=world_size,
        method="own_communicator",
        times=times(phase(forward, whole_host), phase(backward, whole_host), phase(update, optimizer_host)),
        groups=groups,
        missing={"filler_seconds": "made up", "peak_memory_bytes": "made up"},
    )


def tp_free(base: Profile, *, world_size: int = 2, num_bytes: int = 4 * MIB) -> FreeStep:
    """Tensor parallelism with communication free: half the device work and two blocking all-reduces a block and pass."""
    bare = base.bare
    blocks = sum(one.role == "block" for one in base.segments)
    calls = []
    for name in ("forward", "backward"):
        whole = getattr(bare, name).elapsed.seconds / world_size
        for index in range(2 * blocks):
            calls.append(
                CommunicationCall(
                    operation="all_reduce",
                    num_bytes=num_bytes,
                    phase="forward" if name == "forward" else "backward",
                    blocking=True,
                    host_seconds=0.0,
                    device_seconds=whole * (index + 1) / (2 * blocks + 1),
                )
            )
    return FreeStep(
        strategy="tp",
        world_size=world_size,
        method="fake_backend",
        times=times(
            phase(bare.forward.elapsed.seconds / world_size, 0.0),
            phase(bare.backward.elapsed.seconds / world_size, 0.0),
            phase(bare.optimizer.elapsed.seconds / world_size, 0.0),
        ),
        calls=tuple(calls),
        missing={"filler_seconds": "made up", "peak_memory_bytes": "made up"},
    )


def bucket(num_bytes: int, *, host: float, device: float) -> BucketTimes:
    """A bucket's own cost."""
    return BucketTimes(num_bytes=num_bytes, num_parameters=1, host_seconds=host, device_seconds=device)


def sweep(
    operation: Operation,
    world_size: int,
    points: Sequence[tuple[int, float]],
    *,
    mode: Mode = "eager",
    wire: str = "default",
    samples: Sequence[float] = (),
    gpus: tuple[int, ...] = (),
) -> Collective:
    """A measured curve; ``samples`` are relative to each point's time."""
    return Collective(
        backend="nccl",
        operation=operation,
        wire=wire,
        world_size=world_size,
        gpus=gpus,
        mode=mode,
        points=tuple(
            Point(
                num_bytes=size,
                seconds=seconds,
                algbw_bytes_per_second=size / seconds,
                busbw_bytes_per_second=size / seconds * bus_factor(operation, world_size),
                samples_seconds=tuple(seconds * one for one in samples),
                missing={"p95_seconds": "made up"},
            )
            for size, seconds in points
        ),
    )


def wire(busbw: float, latency: float = 20e-6, *, world_size: int = 2) -> Wire:
    """A wire with measured curves of a constant busbw and a start-up time."""
    sizes = [2**power for power in range(3, 33)]
    operations: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
    sweeps = [
        sweep(one, world_size, [(size, latency + size * bus_factor(one, world_size) / busbw) for size in sizes]) for one in operations
    ]
    return Wire.measured(Measurements(collectives=tuple(sweeps)), "default")

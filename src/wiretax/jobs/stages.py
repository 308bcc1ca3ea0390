"""Which stages a check runs: the order of their worth, so that a budget that ends early has bought the most telling numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.measure.peer_truth import DECIDE_SECONDS
from wiretax.measure.wires import Wire, wires
from wiretax.model.measurement import OPERATIONS, Operation

Level = Literal["quick", "default", "full"]

BUDGET_SECONDS: dict[Level, float] = {"quick": 20.0, "default": 60.0, "full": 600.0}
MAX_BYTES: dict[Level, int] = {"quick": 2**28, "default": 2**30, "full": 2**32}
"""Largest message on GPUs; the time that is left and the free memory decide first."""
ONE_RANK_BYTES = 2**24
ONE_RANK_SECONDS = 2.0
"""A single rank only shows that everything starts and is right; larger messages and more samples tell nothing more."""
MAX_BYTES_CPU: dict[Level, int] = {"quick": 2**22, "default": 2**24, "full": 2**26}
QUICK_OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather")
CUDA_START_SECONDS = 0.8
"""A CUDA context and its libraries in a fresh child."""
NCCL_START_SECONDS = 0.7
"""A communicator and its first collective."""


WEIGHTS = {"default": 4.0, "clean": 3.0, "p2p_off": 2.5, "socket": 2.0, "p2p_forced": 2.0, "gloo": 1.5}
TITLES = {
    "default": "as found",
    "clean": "without the variables that disable P2P or shared memory",
    "p2p_off": "P2P off, through host memory",
    "socket": "TCP sockets",
    "p2p_forced": "P2P at any distance",
    "gloo": "gloo",
}


def world_sizes(num_ranks: int) -> list[int]:
    """2, 4, 8, ... and the whole set: ``6 -> [2, 4, 6]``; one rank is measured alone (settings and graph capture still run)."""
    if num_ranks < 2:
        return [1]
    sizes = [2**power for power in range(1, num_ranks.bit_length()) if 2**power < num_ranks]
    return [*sizes, num_ranks]


def sizes_up_to(max_bytes: int) -> list[int]:
    """Powers of two from 8 bytes."""
    return [2**power for power in range(3, max_bytes.bit_length())]


def gpu_plan(
    level: Level,
    cuda_ordinals: tuple[int, ...],
    gpus: tuple[int, ...],
    environment: Mapping[str, str],
    *,
    configuration: Mapping[str, str] | None = None,
    only_operations: tuple[Operation, ...] | None = None,
    only_wires: tuple[str, ...] | None = None,
) -> LaunchPlan:
    """Stages for one rank per GPU. A single GPU gets a second rank, for the two-process peer test alone."""
    count = len(gpus)
    single = count == 1
    pairs = [[source, target] for source in range(count) for target in range(count) if source != target]
    compute = Stage(
        name="compute",
        title="matrix product and memory of each GPU",
        function="wiretax.measure.compute:compute",
        weight=1.5,
        overhead_seconds=CUDA_START_SECONDS,
        min_seconds=0.5,
        max_seconds=4.0 + 1.0 * count,
        ranks=count,
    )
    copies = Stage(
        name="copies",
        title="copies between GPUs and host",
        function="wiretax.measure.copies:pair_copies",
        arguments={"pairs": pairs},
        weight=1.5,
        overhead_seconds=CUDA_START_SECONDS,
        min_seconds=0.5,
        max_seconds=4.0 + 0.25 * len(pairs),
        ranks=count,
    )
    peer_truth = Stage(
        name="peer_truth",
        title="data written by a peer, read back on both sides",
        function="wiretax.measure.peer_truth:peer_truth",
        weight=0.5 if count <= 2 else 1.0,
        overhead_seconds=CUDA_START_SECONDS + DECIDE_SECONDS,
        min_seconds=0.05,
        max_seconds=2.0 + 0.2 * len(pairs),
    )
    overlap = Stage(
        name="overlap:default",
        title="a matrix product beside an all-reduce",
        function="wiretax.measure.overlap:overlap",
        arguments={"wire": "default", "num_bytes": 2**28},
        weight=0.5,
        overhead_seconds=CUDA_START_SECONDS + NCCL_START_SECONDS,
        min_seconds=0.5,
        max_seconds=3.0,
        wire="default",
        ranks=count,
        needs=("wire:default",),
    )
    wire_stages = {}
    for wire in wires(environment, cuda=True, configuration=configuration, may_force_p2p=not single):
        if only_wires is not None and wire.name not in only_wires:
            continue
        if level == "quick" and wire.name not in ("default", "clean", "p2p_off") and only_wires is None:
            continue
        quick_operations = QUICK_OPERATIONS[:1] if wire.name == "p2p_off" else QUICK_OPERATIONS
        wire_stages[wire.name] = _wire_stage(
            wire,
            operations=only_operations or (quick_operations if level == "quick" else OPERATIONS),
            sizes=sizes_up_to(ONE_RANK_BYTES if single else MAX_BYTES[level]),
            modes=["eager", "graph"] if wire.backend == "nccl" else ["eager"],
            world_sizes=world_sizes(count),
            weight=WEIGHTS.get(wire.name, 1.0),
            overhead_seconds=CUDA_START_SECONDS + (NCCL_START_SECONDS if wire.backend == "nccl" else 0.3),
            max_seconds=ONE_RANK_SECONDS if single else 1e9,
            ranks=count,
        )
    found = [wire_stages.pop(name) for name in ("default", "clean") if name in wire_stages]
    if only_wires is not None or only_operations is not None:
        stages = [*found, *wire_stages.values()]
    else:
        others = [] if single or level == "quick" else [overlap]
        stages = [*found, peer_truth, copies, *_taken(wire_stages, "p2p_off"), compute, *wire_stages.values(), *others]
    ranks = 2 if single else count
    return LaunchPlan(
        world_size=ranks,
        device="cuda",
        cuda_ordinals=cuda_ordinals * ranks if single else cuda_ordinals,
        gpus=gpus * ranks if single else gpus,
        stages=tuple(stages),
    )


def cpu_plan(
    level: Level,
    num_ranks: int,
    *,
    only_operations: tuple[Operation, ...] | None = None,
    only_wires: tuple[str, ...] | None = None,
) -> LaunchPlan:
    """Stages for CPU ranks with gloo: the same questions, asked of the host."""
    of_host = (
        Stage(
            name="compute",
            title="matrix product and memory of each rank",
            function="wiretax.measure.compute:compute",
            weight=1.0,
            max_seconds=4.0,
        ),
        Stage(
            name="copies",
            title="copies in host memory",
            function="wiretax.measure.copies:host_copies",
            weight=0.7,
            max_seconds=3.0,
        ),
    )
    of_wires = tuple(
        _wire_stage(
            wire,
            operations=only_operations or (QUICK_OPERATIONS if level == "quick" else OPERATIONS),
            sizes=sizes_up_to(MAX_BYTES_CPU[level]),
            modes=["eager"],
            world_sizes=world_sizes(num_ranks),
            weight=6.0,
            overhead_seconds=0.5,
            ranks=None,
        )
        for wire in wires({}, cuda=False)
        if only_wires is None or wire.name in only_wires
    )
    return LaunchPlan(world_size=num_ranks, device="cpu", stages=of_wires if only_wires is not None else (*of_host, *of_wires))


def _taken(stages: dict[str, Stage], name: str) -> list[Stage]:
    return [stages.pop(name)] if name in stages else []


def _wire_stage(
    wire: Wire, *, weight: float, overhead_seconds: float, ranks: int | None, max_seconds: float = 1e9, **arguments: Any
) -> Stage:
    return Stage(
        name=f"wire:{wire.name}",
        title=f"collectives: {TITLES.get(wire.name, wire.name)}",
        function="wiretax.measure.collectives:sweep",
        arguments={"backend": wire.backend, "wire": wire.name, "environment": wire.changes, **arguments},
        environment=dict(wire.environment),
        weight=weight,
        overhead_seconds=overhead_seconds,
        min_seconds=0.5,
        max_seconds=max_seconds,
        wire=wire.name,
        ranks=ranks,
    )

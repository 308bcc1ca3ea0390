"""A matrix product beside an all-reduce: how much each slows the other down, which decides what overlapping hides."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from wiretax.measure.compute import MATMUL_SIZE, operands_for
from wiretax.measure.groups import Group, open_group
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.measure.timing import Sampler, timer_for
from wiretax.model.measurement import Incident, Overlap

BESIDE_SECONDS = 0.4
FEWEST = 8
MOST = 400


def overlap(
    rank: Rank,
    *,
    wire: str = "default",
    num_bytes: int = 256 << 20,
    seconds: float | None = None,
    backend: Literal["nccl", "gloo"] = "nccl",
) -> None:
    """Measures both alone, then both at once on two streams; every rank of the stage calls this and keeps its own result.

    Args:
        rank: this rank, on a GPU.
        wire: the name of the wire that the environment of this process asks for.
        num_bytes: size of the all-reduce; less where memory is short.
        seconds: for everything; until the deadline by default.
        backend: of torch.distributed.

    Raises:
        OutOfTimeError: the deadline passed.
        RuntimeError: the backend failed; an incident has been kept.
    """
    if not rank.is_cuda or rank.world_size < 2:
        if rank.rank == 0:
            why = "needs a GPU" if not rank.is_cuda else "needs at least two ranks"
            rank.emit(Incident(kind="skipped", stage="overlap", operation="overlap", wire=wire, detail=why))
        return
    members = tuple(range(rank.world_size))
    left = rank.seconds_left if seconds is None else min(seconds, rank.seconds_left)
    rank.at("connect", wire, None, rank.world_size)
    try:
        with open_group(rank, backend, Group(members=members, index=rank.rank, name="overlap")):
            _measure(rank, wire, num_bytes, left)
    except OutOfTimeError:
        raise
    except RuntimeError as error:
        rank.emit(Incident(kind="error", stage="overlap", rank=rank.rank, gpu=rank.gpu, operation="overlap", wire=wire, detail=str(error)))
        raise


def _measure(rank: Rank, wire: str, num_bytes: int, seconds: float) -> None:
    import torch
    import torch.distributed as dist

    size, matrices = operands_for(rank.device, MATMUL_SIZE)
    room = int(torch.cuda.mem_get_info(rank.device)[0] * 0.3)
    elements = min(rank.exchange("overlap/room", min(num_bytes, room))) // 4
    if not all(rank.exchange("overlap/fits", bool(matrices) and elements > 0)):
        if rank.rank == 0:
            rank.emit(Incident(kind="skipped", stage="overlap", operation="overlap", wire=wire, detail=f"a product of {size} does not fit"))
        return
    left, right, out = matrices
    message = torch.zeros(elements, device=rank.device)  # its sum stays what it is, however often it is taken

    def matmul() -> Any:
        return torch.mm(left, right, out=out)

    def all_reduce() -> None:
        dist.all_reduce(message)

    rank.at("matmul beside nothing", wire, None, rank.world_size)
    timer = timer_for(rank)
    matmul_alone = _alone(rank, timer, matmul, 0.2 * seconds)
    rank.at("all_reduce", wire, 4 * elements, rank.world_size)
    reduce_alone = _alone(rank, timer, all_reduce, 0.2 * seconds)
    rank.at("all_reduce beside matmul", wire, 4 * elements, rank.world_size)
    both = min(BESIDE_SECONDS, 0.2 * seconds)
    matmul_beside, reduce_beside = _beside(rank, (matmul, matmul_alone), (all_reduce, reduce_alone), both)
    rank.emit(
        Overlap(
            gpu=rank.gpu,
            rank=rank.rank,
            wire=wire,
            world_size=rank.world_size,
            num_bytes=4 * elements,
            matmul_alone_seconds=matmul_alone,
            matmul_beside_seconds=matmul_beside,
            all_reduce_alone_seconds=reduce_alone,
            all_reduce_beside_seconds=reduce_beside,
        )
    )


def _alone(rank: Rank, timer: Any, call: Callable[[], Any], seconds: float) -> float:
    """Median of a call while all ranks make it, each seeing its own time; they stop together."""

    def join(samples: list[float], spent: float) -> tuple[list[float], float]:
        everybody = rank.exchange("overlap/samples", [samples, spent])
        return [max(column) for column in zip(*(taken for taken, _ in everybody), strict=True)], everybody[0][1]

    sampler = Sampler(timer, call, join=join, clock=rank.clock)
    sampler.warm_up()
    return sampler.sample(rank.agree("overlap/seconds", seconds)).seconds


def plan_queue(first_seconds: float, second_seconds: float, seconds: float) -> list[bool]:
    """In which order to queue two kinds of work so that both streams always have some: True is the first kind.

    Both lists end at about the same time, after ``seconds`` or at least :data:`FEWEST` of the longer kind.
    """
    seconds = max(seconds, FEWEST * max(first_seconds, second_seconds))
    order: list[bool] = []
    first_at = second_at = 0.0
    while min(first_at, second_at) < seconds and len(order) < 2 * MOST:
        is_first = first_at <= second_at
        order.append(is_first)
        if is_first:
            first_at += first_seconds
        else:
            second_at += second_seconds
    return order


def inside(ends: list[float], until: float) -> list[float]:
    """Durations between successive ends, without the first (nothing ran beside it yet) and what ended after ``until``."""
    return [end - before for before, end in pairwise(ends[1:]) if end <= until]


def _beside(
    rank: Rank, first: tuple[Callable[[], Any], float], second: tuple[Callable[[], Any], float], seconds: float
) -> tuple[float, float]:
    """Median times of both kinds of work while the other is under way; of the slowest rank for the collective."""
    import torch

    order = rank.agree("overlap/order", plan_queue(first[1], second[1], seconds))
    start = torch.cuda.Event(enable_timing=True)
    streams = (torch.cuda.Stream(), torch.cuda.Stream())
    events: tuple[list[Any], list[Any]] = ([], [])
    rank.exchange("overlap/start", True)
    start.record()
    for stream in streams:
        stream.wait_event(start)
    for is_first in order:
        place = 0 if is_first else 1
        with torch.cuda.stream(streams[place]):
            (first if is_first else second)[0]()
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            events[place].append(event)
        rank.tick()
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    timer_for(rank).wait()
    ends = [[start.elapsed_time(event) / 1e3 for event in each] for each in events]
    until = min(ends[0][-1], ends[1][-1])
    firsts, seconds_taken = (inside(each, until) for each in ends)
    slowest = max(rank.exchange("overlap/beside", median(seconds_taken) if seconds_taken else second[1]))
    return (median(firsts) if firsts else first[1]), slowest

"""Compute beside an all-reduce: how much each slows the other down, which decides what overlapping hides.

Two kinds of compute: one large matrix product, and forward and backward of one transformer layer, whose many kernels feel the
collective the way a training step does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from wiretax.measure.compute import MATMUL_SIZE, dtype_of, operands_for
from wiretax.measure.groups import Group, open_group
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.measure.timing import Sampler, Timer, timer_for
from wiretax.measure.transformer import block_step
from wiretax.model.measurement import Incident, Overlap

BESIDE_SECONDS = 0.4
SHARE = 0.15
"""Of the time for each of the five measurements: the all-reduce, and each kind of compute alone and beside it."""
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
        _skipped(rank, wire, "needs a GPU" if not rank.is_cuda else "needs at least two ranks")
        return
    members = tuple(range(rank.world_size))
    end = rank.clock() + (rank.seconds_left if seconds is None else min(seconds, rank.seconds_left))
    rank.at("connect", wire, None, rank.world_size)
    try:
        with open_group(rank, backend, Group(members=members, index=rank.rank, name="overlap"), last=True):
            _measure(rank, wire, num_bytes, rank.agree("overlap/left", max(end - rank.clock(), 0.0)))
    except OutOfTimeError:
        raise
    except RuntimeError as error:
        rank.emit(
            Incident(kind="error", stage=f"overlap:{wire}", rank=rank.rank, gpu=rank.gpu, operation="overlap", wire=wire, detail=str(error))
        )
        raise


def _measure(rank: Rank, wire: str, num_bytes: int, seconds: float) -> None:
    import torch
    import torch.distributed as dist

    elements = min(rank.exchange("overlap/room", min(num_bytes, int(torch.cuda.mem_get_info(rank.device)[0] * 0.2)))) // 4
    message = torch.zeros(max(elements, 1), device=rank.device)  # its sum stays what it is, however often it is taken

    def all_reduce() -> None:
        dist.all_reduce(message)

    timer = timer_for(rank)
    rank.at("all_reduce", wire, 4 * elements, rank.world_size)
    reduce_alone = _alone(rank, timer, all_reduce, SHARE * seconds)
    kinds: tuple[tuple[Literal["matmul", "layer"], Callable[[], Callable[[], Any] | None]], ...] = (
        ("matmul", lambda: _matmul(rank)),
        ("layer", lambda: _layer(rank)),
    )
    for kernel, make in kinds:
        work = make()
        if not all(rank.exchange(f"overlap/{kernel}", work is not None)) or work is None:
            _skipped(rank, wire, f"the {kernel} does not fit into free memory")
            continue
        rank.at(f"{kernel} alone", wire, None, rank.world_size)
        alone = _alone(rank, timer, work, SHARE * seconds)
        rank.at(f"all_reduce beside {kernel}", wire, 4 * elements, rank.world_size)
        beside, reduce_beside = _beside(rank, (work, alone), (all_reduce, reduce_alone), min(BESIDE_SECONDS, SHARE * seconds))
        rank.emit(
            Overlap(
                kernel=kernel,
                gpu=rank.gpu,
                rank=rank.rank,
                wire=wire,
                world_size=rank.world_size,
                num_bytes=4 * elements,
                matmul_alone_seconds=alone,
                matmul_beside_seconds=beside,
                all_reduce_alone_seconds=reduce_alone,
                all_reduce_beside_seconds=reduce_beside,
            )
        )


def _matmul(rank: Rank) -> Callable[[], Any] | None:
    """A product of size 8192, or of what fits; None when nothing does."""
    import torch

    _, operands = operands_for(rank.device, MATMUL_SIZE)
    if not operands:
        return None
    left, right, out = operands
    return lambda: torch.mm(left, right, out=out)


def _layer(rank: Rank) -> Callable[[], Any] | None:
    """Forward and backward of one layer, run once; None when it does not fit."""
    import torch

    try:
        step = block_step(rank.device, dtype_of(rank.device))
        step()
    except torch.OutOfMemoryError:
        return None
    return step


def _skipped(rank: Rank, wire: str, why: str) -> None:
    if rank.rank == 0:
        rank.emit(Incident(kind="skipped", stage=f"overlap:{wire}", operation="overlap", wire=wire, detail=why))


def _alone(rank: Rank, timer: Timer, call: Callable[[], Any], seconds: float) -> float:
    """Median of the slowest rank while all make the same call, for as long as the other measurement takes.

    The length matters: a product that is timed for a few milliseconds runs at a clock that no GPU holds under a lasting load.
    """

    def join(samples: list[float], spent: float) -> tuple[list[float], float]:
        everybody = rank.exchange("overlap/samples", [samples, spent])
        return [max(column) for column in zip(*(taken for taken, _ in everybody), strict=True)], everybody[0][1]

    seconds = rank.agree("overlap/seconds", seconds)
    sampler = Sampler(timer, call, join=join, clock=rank.clock, fill_seconds=seconds)
    sampler.warm_up()
    return sampler.sample(seconds).seconds


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

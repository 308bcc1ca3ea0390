"""Copies between GPUs, to and from host memory, and in host memory: one alone, both ways, and all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wiretax.measure.buffers import free_bytes
from wiretax.measure.host_load import HostLoadMeter, meter_of
from wiretax.measure.lanes import Lane, plain_lane, staged_lane
from wiretax.measure.rank import Rank
from wiretax.measure.timing import measure, timer_for
from wiretax.model.measurement import Copy, Incident

PAIR_BYTES = 256 << 20
HOST_BYTES = 64 << 20
"""Pinning memory is slow, and 64 MiB is far above the latency of any link."""
CPU_COPY_BYTES = 64 << 20
FREE_SHARE = 0.15
CLOSING_SECONDS = 0.1
LATENCY_SHARE = 0.2

Route = Literal["direct", "staged", "to_gpu", "from_gpu"]
Transfer = tuple[int, int]
"""Source and target, by rank; both are the rank itself for copies to and from its host memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Copies that run at the same moment; each is driven by its source's rank."""

    route: Route
    transfers: tuple[Transfer, ...]
    both_ways: bool = False
    all_pairs: bool = False


def pair_copies(rank: Rank, *, pairs: Sequence[Sequence[int]] | None = None, seconds: float | None = None) -> None:
    """Measures copies between GPUs, and between each GPU and pinned host memory; every rank of the stage calls this.

    Each is measured alone and, where there are several, all at once (pairs in the rounds of a tournament), which shows uplinks that
    are shared. A copy by the driver between GPUs without peer access goes through host memory and is kept as ``staged``; with peer
    access the staged way is measured as well, by explicit copies. States the fact ``peer_access``: ``[source, target, yes or no]``
    for each ordered pair of NVML indices.

    Args:
        rank: this rank, on a GPU of its own.
        pairs: ordered pairs of ranks; all by default. On a host where all ranks share one GPU only host copies are left.
        seconds: for everything; until the deadline by default.

    Raises:
        OutOfTimeError: the deadline passed, or a copy does not end.
        RuntimeError: the driver failed; an incident that names the copy has been kept.
    """
    ordinals = rank.exchange("copies/ordinals", int(rank.device.index or 0))
    access = _peer_access(rank, ordinals)
    everybody = range(rank.world_size)
    wanted = [(source, target) for source in everybody for target in everybody] if pairs is None else [(pair[0], pair[1]) for pair in pairs]
    wanted = [(source, target) for source, target in wanted if ordinals[source] != ordinals[target]]
    steps = plan_steps(wanted, access, [ordinals.index(ordinal) for ordinal in sorted(set(ordinals))])
    _run_steps(rank, steps, ordinals, access, seconds)


def host_copies(rank: Rank, *, seconds: float | None = None) -> None:
    """Measures copies in host memory by each CPU rank alone and by all together; every rank calls this.

    Args:
        rank: this rank.
        seconds: for everything; until the deadline by default.

    Raises:
        OutOfTimeError: the deadline passed.
    """
    ranks = range(rank.world_size)
    steps = [Step(route="to_gpu", transfers=((number, number),)) for number in ranks]
    if len(ranks) > 1:
        steps.append(Step(route="to_gpu", transfers=tuple((number, number) for number in ranks), all_pairs=True))
    _run_steps(rank, steps, [0] * rank.world_size, {}, seconds)


def tournament(members: Sequence[int]) -> Iterator[tuple[Transfer, ...]]:
    """Rounds of disjoint pairs in which everybody meets everybody once (the circle method); with an odd number one rests."""
    circle: list[int | None] = [*members, *([None] if len(members) % 2 else [])]
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        yield tuple(
            (first, second)
            for first, second in zip(circle[:half], circle[: half - 1 : -1], strict=True)
            if first is not None and second is not None
        )
        circle = [circle[0], circle[-1], *circle[1:-1]]


def plan_steps(pairs: Sequence[Transfer], access: dict[Transfer, bool], drivers: Sequence[int]) -> list[Step]:
    """All steps, the most telling first, so that what finds no time is told by the others.

    Pairs come in the order of a tournament: with many GPUs the first few steps have shown the link of each. Above two GPUs the host
    copies come between one way and the other.

    Args:
        pairs: ordered pairs of ranks.
        access: whether a pair has peer access.
        drivers: one rank of each GPU.
    """
    wanted = set(pairs)
    rounds = [
        tuple(pair for pair in one if pair in wanted and pair[::-1] in wanted)
        for one in tournament(sorted({member for pair in pairs for member in pair}))
    ]
    rounds = [one for one in rounds if len(one) > 1]
    one_way, other_way = in_rounds(pairs)
    mutual = [pair for pair in one_way if pair[::-1] in wanted]
    ordered = [*one_way, *other_way]
    peers = [pair for pair in ordered if access.get(pair)]
    alone = [Step(route="direct", transfers=(pair,)) for pair in ordered]
    first = len(one_way) if len(drivers) > 2 else len(ordered)
    steps = alone[:first]
    steps += [Step(route=route, transfers=((rank, rank),)) for rank in drivers for route in _HOST_ROUTES]
    at_once = [Step(route=route, transfers=tuple((rank, rank) for rank in drivers), all_pairs=True) for route in _HOST_ROUTES]
    if len(drivers) > 2:
        steps += at_once
    steps += alone[first:]
    steps += [Step(route="direct", transfers=(pair, pair[::-1]), both_ways=True) for pair in mutual]
    steps += [Step(route="direct", transfers=one, all_pairs=True) for one in rounds]
    steps += [Step(route="direct", transfers=(*one, *_reversed(one)), both_ways=True, all_pairs=True) for one in rounds]
    if len(drivers) == 2:
        steps += at_once
    steps += [Step(route="staged", transfers=(pair,)) for pair in peers]
    steps += [Step(route="staged", transfers=(pair, pair[::-1]), both_ways=True) for pair in mutual if access.get(pair)]
    return steps


def in_rounds(pairs: Sequence[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
    """Ordered pairs in the order of a tournament: one way of each, and the other ways."""
    wanted = set(pairs)
    order = [pair for one in tournament(sorted({member for pair in pairs for member in pair})) for pair in one]
    one_way = [pair if pair in wanted else pair[::-1] for pair in order if pair in wanted or pair[::-1] in wanted]
    return one_way, [pair[::-1] for pair in one_way if pair[::-1] in wanted]


_HOST_ROUTES: tuple[Route, ...] = ("to_gpu", "from_gpu")


def _reversed(pairs: Sequence[Transfer]) -> list[Transfer]:
    return [pair[::-1] for pair in pairs]


def _peer_access(rank: Rank, ordinals: list[int]) -> dict[Transfer, bool]:
    """What the driver says of each ordered pair of ranks on different GPUs; kept as a fact."""
    import torch

    own = [
        bool(torch.cuda.can_device_access_peer(ordinals[rank.rank], ordinal)) if ordinal != ordinals[rank.rank] else None
        for ordinal in ordinals
    ]
    answers = rank.exchange("copies/access", own)
    access = {(source, target): bool(can) for source, answer in enumerate(answers) for target, can in enumerate(answer) if can is not None}
    if rank.rank == 0 and access:
        rank.emit_fact("peer_access", [[rank.gpus[source], rank.gpus[target], can] for (source, target), can in access.items()])
    return access


def _run_steps(rank: Rank, steps: Sequence[Step], ordinals: list[int], access: dict[Transfer, bool], seconds: float | None) -> None:
    """All steps that fit into the time, with an equal share of what is left for each."""
    end = min(rank.deadline, rank.clock() + seconds if seconds is not None else rank.deadline) - CLOSING_SECONDS
    meter = meter_of(rank)
    for number, step in enumerate(steps):
        share = rank.agree("copies/share", (end - rank.clock()) / (len(steps) - number))
        if share <= 0:
            if rank.rank == 0:
                left = f"{len(steps) - number} of {len(steps)} steps found no time, from {_words(rank, step)} on"
                rank.emit(Incident(kind="skipped", stage="copies", detail=left))
            return
        own = next((transfer for transfer in step.transfers if transfer[0] == rank.rank), None)
        meter.start()
        lane, why = _make_lane(rank, step, own, ordinals)
        # all who drive a copy start together, and are found ready only when their buffers are
        ready = rank.exchange("copies/ready", lane is not None or own is None)
        if own is not None:
            if lane is None or not all(ready):
                rank.emit(_not_measured(rank, step, own, access, why or "another copy of the same step had no buffers"))
            else:
                together = [transfer[0] for transfer in step.transfers]
                rank.emit(_drive(rank, step, own, lane, 0.8 * share, meter, access, f"copies/start/{number}", together))
        del lane
        rank.exchange("copies/done", True)


def _words(rank: Rank, step: Step) -> str:
    """A step for people: ``GPU 0-3 both ways``, ``GPU 2 from gpu at once``."""
    shown = step.transfers[: len(step.transfers) // 2] if step.both_ways else step.transfers
    names = rank.gpus or range(rank.world_size)
    ends = [f"{names[source]}-{names[target]}" if source != target else f"{names[source]}" for source, target in shown]
    ways = [
        "" if step.route == "direct" or not rank.is_cuda else step.route.replace("_", " "),
        "both ways" if step.both_ways else "",
        "at once" if step.all_pairs else "",
    ]
    return " ".join(["GPU" if rank.is_cuda else "rank", ", ".join(ends), *filter(None, ways)])


def _make_lane(rank: Rank, step: Step, own: Transfer | None, ordinals: list[int]) -> tuple[Lane | None, str]:
    """The buffers of this rank's copy, or why there are none."""
    import torch

    if own is None:
        return None, ""
    here = rank.device
    if step.route in _HOST_ROUTES:
        ends = (torch.device("cpu"), here) if step.route == "to_gpu" else (here, torch.device("cpu"))
    else:
        ends = (here, torch.device("cuda", ordinals[own[1]]))
    make = staged_lane if step.route == "staged" else plain_lane
    try:
        if rank.is_cuda:
            torch.cuda.empty_cache()
        num_bytes = min(_wanted(rank, step), *(int(free_bytes(end) * FREE_SHARE) for end in ends)) // 512 * 512
        return make(num_bytes, *ends), ""
    except (RuntimeError, MemoryError) as error:
        return None, f"the buffers of the copy could not be made: {str(error).splitlines()[0]}"


def _kept(rank: Rank, step: Step, own: Transfer, access: dict[Transfer, bool]) -> dict[str, Any]:
    """What names a copy in the run document."""
    source_gpu, target_gpu = _ends(rank, step.route, own)
    staged = step.route == "staged" or not access.get(own)
    return {
        "source_gpu": source_gpu,
        "target_gpu": target_gpu,
        "route": "host" if step.route in _HOST_ROUTES else "staged" if staged else "direct",
        "direction": "both_ways" if step.both_ways else "one_way",
        "concurrency": "all_pairs" if step.all_pairs else "alone",
    }


def _not_measured(rank: Rank, step: Step, own: Transfer, access: dict[Transfer, bool], why: str) -> Copy:
    missing = dict.fromkeys(("bandwidth_bytes_per_second", "latency_seconds", "verified", "host_load"), why)
    return Copy(**_kept(rank, step, own, access), num_bytes=_wanted(rank, step), missing=missing)


def _drive(
    rank: Rank,
    step: Step,
    own: Transfer,
    lane: Lane,
    seconds: float,
    meter: HostLoadMeter,
    access: dict[Transfer, bool],
    start: str,
    together: list[int],
) -> Copy:
    """Checks and measures this rank's copy of a step; ``together`` are the ranks whose copies run at the same time."""
    name = f"copy {step.route} {own[0]}->{own[1]}" if rank.is_cuda else f"copy in host memory {own[0]}"
    rank.at(name, "", lane.num_bytes, len(together))
    alone = len(together) == 1
    missing: dict[str, str] = {}
    latency = None
    try:
        verified = _verify(rank, lane)
        if alone:
            latency = measure(rank, lane.copy_little, seconds=seconds * LATENCY_SHARE).seconds
        else:
            missing["latency_seconds"] = "measured alone and one way only"
        rank.exchange(start, True, together)
        summary = measure(rank, lane.copy, seconds=seconds * (1 - LATENCY_SHARE), fill=not alone)
    except RuntimeError as error:
        rank.emit(_incident(rank, "error", name, lane, str(error)))
        raise
    if not verified:
        rank.emit(_incident(rank, "wrong_data", name, lane, "the receiving end did not hold the values that were copied"))
    return Copy(
        **_kept(rank, step, own, access),
        num_bytes=lane.num_bytes,
        bandwidth_bytes_per_second=lane.num_bytes / summary.seconds,
        latency_seconds=latency,
        verified=verified,
        samples_seconds=summary.samples_seconds,
        unstable=summary.unstable,
        host_load=meter.read(),
        missing=missing,
    )


def _incident(rank: Rank, kind: Literal["error", "wrong_data"], name: str, lane: Lane, detail: str) -> Incident:
    return Incident(kind=kind, stage="copies", rank=rank.rank, gpu=rank.gpu, operation=name, num_bytes=lane.num_bytes, detail=detail)


def _wanted(rank: Rank, step: Step) -> int:
    if step.route in _HOST_ROUTES:
        return HOST_BYTES if rank.is_cuda else CPU_COPY_BYTES
    return PAIR_BYTES


def _ends(rank: Rank, route: Route, own: Transfer) -> tuple[int | None, int | None]:
    """NVML indices of both ends; None for host memory."""
    if not rank.is_cuda:
        return None, None
    if route == "to_gpu":
        return None, rank.gpu
    if route == "from_gpu":
        return rank.gpu, None
    return rank.gpus[own[0]], rank.gpus[own[1]]


def _verify(rank: Rank, lane: Lane) -> bool:
    """One copy of values that no other rank copies, compared where they arrive."""
    offset = 10 * (rank.rank + 1)
    lane.prepare(offset)
    lane.copy()
    timer_for(rank).wait()
    return lane.is_right(offset)

"""Peer to peer works, and is slower than going through host memory: per operation, and who chose it."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts, statistics
from wiretax.judge.facts import evidence
from wiretax.model.finding import Evidence, Finding
from wiretax.model.machine import PATH_RANK
from wiretax.model.measurement import OPERATIONS, Collective, Point
from wiretax.model.run import Run
from wiretax.units import rate, size

WORTH = 1.10
"""Differences below 10 % are not worth a setting."""

WORTH_UNPROVEN = 1.25
"""Where there are too few samples to test the difference, only a large one counts."""

COPY_WORTH = 1.25


def check(run: Run) -> Iterator[Finding]:
    """Compares the user's wire with ``p2p_off`` where the log says peer to peer, then single copies over both routes."""
    slower = _slower_operations(run)
    if slower:
        yield _finding(run, slower)
    else:
        yield from _copies(run)


def _slower_operations(run: Run) -> list[tuple[str, Point, Point]]:
    """(operation, peer to peer, staged) at the largest size both have, where staged is faster."""
    found: list[tuple[str, Point, Point]] = []
    for operation in OPERATIONS:
        direct = [c for c in facts.user_collectives(run, operation) if facts.transports_of(c) == {"p2p"}]
        if not direct:
            continue
        staged = facts.collectives(run, wire="p2p_off", operation=operation, world_size=direct[0].world_size)
        pair = _same_size(direct, list(staged))
        if pair is not None and _faster(pair[0], pair[1]):
            found.append((operation, *pair))
    return found


def _same_size(first: list[Collective], second: list[Collective]) -> tuple[Point, Point] | None:
    """The best point of each side at the largest size measured on both."""
    sides = []
    for side in (first, second):
        best: dict[int, Point] = {}
        for collective in side:
            for point in collective.points:
                if point.num_bytes >= facts.MIN_JUDGED_BYTES and (
                    point.num_bytes not in best or best[point.num_bytes].busbw_bytes_per_second < point.busbw_bytes_per_second
                ):
                    best[point.num_bytes] = point
        sides.append(best)
    common = sides[0].keys() & sides[1].keys()
    return None if not common else (sides[0][max(common)], sides[1][max(common)])


def _faster(direct: Point, staged: Point) -> bool:
    if direct.busbw_bytes_per_second <= 0:
        return False
    gain = staged.busbw_bytes_per_second / direct.busbw_bytes_per_second
    compared = statistics.compare(staged.samples_seconds, direct.samples_seconds)
    return gain > WORTH and (compared.outcome == "different" or (compared.outcome == "unknown" and gain > WORTH_UNPROVEN))


def _finding(run: Run, slower: list[tuple[str, Point, Point]]) -> Finding:
    level = facts.nccl_setting(run, "NCCL_P2P_LEVEL")
    paths = {
        path
        for both in facts.unordered_pairs(run.machine)
        if (path := facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu)) is not None
    }
    through_cpu = bool(paths) and all(PATH_RANK.get(path, 0) > PATH_RANK["PXB"] for path in paths)
    gains = [staged.busbw_bytes_per_second / direct.busbw_bytes_per_second for _, direct, staged in slower]
    all_operations = {op for op in OPERATIONS if facts.user_collectives(run, op)} == {op for op, _, _ in slower}
    remedy = "`export NCCL_P2P_DISABLE=1`"
    if level is not None:
        code, title = "p2p-forced-slow", f"NCCL_P2P_LEVEL={level[0]} forces peer to peer, and host memory is faster"
        remedy = "`unset NCCL_P2P_LEVEL`" if level[1].startswith("the environment") else f"Remove NCCL_P2P_LEVEL from {level[1]}"
    elif through_cpu:
        code, title = "p2p-through-cpu-slow", "Peer to peer through the CPU is slower here than host memory"
    else:
        code, title = "p2p-slower-than-staged", "Peer to peer is slower here than going through host memory"
    if not all_operations:
        remedy += " only for jobs that spend their time in these operations: " + ", ".join(op for op, _, _ in slower)
    return Finding(
        code=code,
        severity="problem" if max(gains) > 2 else "warning",
        confidence="certain",
        title=title,
        evidence=tuple(
            evidence(
                f"{operation} at {size(direct.num_bytes)}: {rate(direct.busbw_bytes_per_second)} peer to peer, "
                f"{rate(staged.busbw_bytes_per_second)} through host memory"
            )
            for operation, direct, staged in slower
        ),
        effect=f"Up to {max(gains):.1f}x is lost in {', '.join(op for op, _, _ in slower)}.",
        remedy=f"{remedy}.",
        confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
    )


def _copies(run: Run) -> Iterator[Finding]:
    direct, staged = facts.pair_copies(run, route="direct"), facts.pair_copies(run, route="staged")
    seen: list[Evidence] = []
    pairs = []
    for pair in sorted(direct.keys() & staged.keys()):
        fast, slow = staged[pair].bandwidth_bytes_per_second or 0.0, direct[pair].bandwidth_bytes_per_second or 0.0
        if slow > 0 and fast > COPY_WORTH * slow and not (direct[pair].unstable or staged[pair].unstable):
            pairs.append(pair)
            seen.append(
                evidence(f"{pair[0]}-{pair[1]}: {rate(slow)} peer to peer, {rate(fast)} through host memory", "measurements.copies")
            )
    if not pairs:
        return
    yield Finding(
        code="p2p-slower-than-staged",
        severity="warning",
        confidence="certain",
        title=f"Copies between {facts.pairs_text(pairs)} are slower peer to peer than through host memory",
        evidence=tuple(seen[:8]),
        effect="NCCL does not know this and may take the slower way.",
        remedy="Compare whole collectives before setting anything: `NCCL_P2P_DISABLE=1 wiretax check --quick`.",
        confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
    )

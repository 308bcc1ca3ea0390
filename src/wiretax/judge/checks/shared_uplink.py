"""GPUs that share one PCIe uplink: fast alone, slow together; and near pairs that are slower than far ones."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from statistics import median

from wiretax.judge import facts, seen
from wiretax.judge.choice import best_pair_remedy
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding
from wiretax.model.machine import PATH_RANK
from wiretax.model.measurement import Copy
from wiretax.model.run import Run
from wiretax.units import rate

TOGETHER_FRACTION = 0.7
"""Two GPUs sharing an uplink get about half each; copy engines and memory cost healthy ones up to a fifth."""

NEAR_FRACTION = 0.8
"""A pair behind one uplink crosses it twice; published cases lie between 0.3 and 0.75 of the far pairs."""


def check(run: Run) -> Iterator[Finding]:
    """First the direct proof (alone against all at once); where that was not measured, the signature in the staged pair matrix."""
    together, everybody = _slower_together(run)
    if together:
        title = (
            "All copies slow down when all GPUs copy at once: a shared uplink or the host's memory is the limit"
            if everybody
            else f"GPUs {facts.gpus_list(sorted(together))} slow down when all GPUs copy at once: they share a PCIe uplink"
        )
        yield _finding(run, "certain", title, list(dict.fromkeys(line for lines in together.values() for line in lines)))
        return
    groups, seen = near_slower(run)
    if groups:
        listed = "; ".join(facts.gpus_list(members) for members in sorted(sorted(group) for group in groups))
        sure = len(groups) > 1 or len(groups[0]) > 2 or _nearer_inside(run, groups)
        title = f"These GPUs seem to share an uplink: {listed}. Pairs inside such a group are slower than pairs across"
        yield _finding(run, "likely" if sure else "possible", title, seen)


def _finding(run: Run, confidence: Confidence, title: str, seen: list[Evidence]) -> Finding:
    # Where GPUs talk peer to peer over NVLink, host memory only serves the data loader.
    used = {kind for c in facts.user_collectives(run) for kind in facts.transports_of(c)}
    paths = [facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(run.machine)]
    harmless = used == {"p2p"} and bool(paths) and all(facts.nvlinks_between(path) for path in paths)
    return Finding(
        code="shared-uplink",
        severity="info" if confidence == "possible" or harmless else "warning",
        confidence=confidence,
        title=title,
        evidence=tuple(seen[:10]),
        effect="Training does not feel it: these GPUs talk over NVLink."
        if harmless
        else "Through host memory, traffic between two GPUs of one uplink crosses it twice, so the near pair is the slow one.",
        remedy=best_pair_remedy(run) or "For a job on fewer GPUs choose GPUs of different uplinks; measure each pair with `wiretax check`.",
        confirm="wiretax check",
    )


def _slower_together(run: Run) -> tuple[dict[int, list[Evidence]], bool]:
    """GPUs whose copies slow down in company, and whether that is all of them.

    Host copies are the proof. Staged pair copies count only where those are missing and there are at least three GPUs: with two,
    the other direction of the same pair is the only company, and that is no second user of an uplink.
    """
    for route, least in (("host", 2), ("staged", 3)):
        alone = {
            _key(c): c.bandwidth_bytes_per_second
            for c in run.measurements.copies
            if c.route == route and c.concurrency == "alone" and c.bandwidth_bytes_per_second and not c.unstable
        }
        slower: dict[int, list[Evidence]] = {}
        compared: set[int] = set()
        for copy in run.measurements.copies:
            before, after = alone.get(_key(copy)), copy.bandwidth_bytes_per_second
            if copy.route != route or copy.concurrency != "all_pairs" or not before or not after or copy.unstable:
                continue
            ends = [gpu for gpu in (copy.source_gpu, copy.target_gpu) if gpu is not None]
            compared.update(ends)
            if after < TOGETHER_FRACTION * before:
                text = f"{_end(copy.source_gpu)} to {_end(copy.target_gpu)}: {rate(before)} alone, {rate(after)} with all others"
                for gpu in ends:
                    slower.setdefault(gpu, []).append(evidence(text, "measurements.copies"))
        if len(compared) >= least:
            return slower, len(slower) == len(compared)
    return {}, False


def _key(copy: Copy) -> tuple[object, ...]:
    return copy.source_gpu, copy.target_gpu, copy.route, copy.direction


def _end(gpu: int | None) -> str:
    return "host" if gpu is None else f"GPU {gpu}"


def near_slower(run: Run) -> tuple[list[frozenset[int]], list[Evidence]]:
    """Groups whose inner staged copies are slower than those across: "slow" must split the GPUs into disjoint groups, or it is chance."""
    rates: dict[frozenset[int], float] = {}
    for (source, target), copy in facts.pair_copies(run, route="staged").items():
        if source != target and not copy.unstable:
            key = frozenset((source, target))
            rates[key] = min(rates.get(key, float("inf")), copy.bandwidth_bytes_per_second or 0.0)
    said = seen.pair_speeds(run) if not rates else {}
    rates |= {pair: reached for pair, (reached, _) in said.items()}
    gpus = sorted({gpu for pair in rates for gpu in pair})
    if len(gpus) < 3 or len(rates) < 3:
        return [], []
    fast = median(sorted(rates.values())[len(rates) // 2 :])
    slow = {pair for pair, reached in rates.items() if reached < NEAR_FRACTION * fast}
    if not slow or len(slow) == len(rates):
        return [], []
    groups = _disjoint_groups(slow, frozenset(rates))
    if any(not any(gpu in pair and not pair <= group for pair in rates) for group in groups for gpu in group):
        return [], []  # a GPU was copied to nobody outside (the time ended): its own link may be the slow one
    if not groups or _nearer_inside(run, groups) is False:
        return [], []
    if said:
        return groups, [said[pair][1] for pair in (*slow, *(p for p in rates if p not in slow))]
    inside = [rates[pair] for pair in slow]
    across = [reached for pair, reached in rates.items() if pair not in slow]
    return groups, [
        evidence(f"pairs inside a group: {rate(min(inside))} to {rate(max(inside))}", "measurements.copies"),
        evidence(f"pairs across groups: {rate(min(across))} to {rate(max(across))}", "measurements.copies"),
    ]


def _nearer_inside(run: Run, groups: list[frozenset[int]]) -> bool | None:
    """Whether the topology puts the members of a group nearer to each other than to outsiders; None when it was not read."""
    inside: list[int] = []
    across: list[int] = []
    for both in facts.unordered_pairs(run.machine):
        pair = {both[0].source_gpu, both[0].target_gpu}
        distance = PATH_RANK.get(facts.path_between(run.machine, *sorted(pair)) or "")
        if distance is not None:
            (inside if any(pair <= group for group in groups) else across).append(distance)
    if not inside or not across:
        return None
    return max(inside) <= min(across)


def _disjoint_groups(slow: set[frozenset[int]], measured: AbstractSet[frozenset[int]]) -> list[frozenset[int]]:
    """The slow pairs as complete groups, or nothing when they do not form such (one GPU slow to all is a different fault)."""
    parent: dict[int, int] = {}

    def root(gpu: int) -> int:
        while parent.setdefault(gpu, gpu) != gpu:
            gpu = parent[gpu]
        return gpu

    for first, second in (sorted(pair) for pair in slow):
        parent[root(first)] = root(second)
    groups: dict[int, set[int]] = {}
    for gpu in list(parent):
        groups.setdefault(root(gpu), set()).add(gpu)
    for members in groups.values():
        inner = {frozenset((a, b)) for a in members for b in members if a < b}
        if not inner & measured <= slow:
            return []
    return [frozenset(members) for members in groups.values()]

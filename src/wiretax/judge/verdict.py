"""All checks over one run, then one sentence: use all GPUs, fewer, one, or fix something first; keep the box or give it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wiretax.judge import facts, seen, undecided
from wiretax.judge.checks import ALL
from wiretax.judge.choice import best_subset
from wiretax.judge.expectation import Expectation, WireClass, class_of, expect_measured, expectations
from wiretax.judge.facts import evidence
from wiretax.judge.limits import Unknown
from wiretax.model.finding import SEVERITIES, Finding, Verdict
from wiretax.model.measurement import Collective, Point
from wiretax.model.run import Run
from wiretax.units import rate, significant

WORTH_SPEEDUP = 1.2
"""More GPUs must do at least this much more than one, or one is the better deal."""

KEEP_EFFICIENCY = 0.6
"""From this share of perfect scaling on, the GPUs are worth their price for a small-batch job, the hardest case."""

BROKEN_HARDWARE = frozenset(
    {
        "gpu-lost",
        "gpu-hung",
        "ecc-uncorrectable",
        "nvlink-partial",
        "nvlink-xid",
        "p2p-wrong-data",
        "p2p-hang-iommu",
        "p2p-hang-acs",
        "pcie-width-low",
        "pcie-generation-low",
        "pair-slow",
        "fabric-not-ready",
    }
)
"""Faults of the machine that a tenant cannot cure; at ``problem`` or above they are a reason to give it back."""

FIXABLE = frozenset(
    {
        "p2p-disabled-by-environment",
        "p2p-disabled-by-registry",
        "shm-disabled-by-environment",
        "p2p-forced-slow",
        "p2p-through-cpu-slow",
        "p2p-slower-than-staged",
        "transport-unexpected",
        "isolated-ranks-tcp",
        "backend-gloo",
        "dev-shm-too-small",
        "torch-without-cuda",
        "nccl-too-old-for-gpu",
        "nccl-version-bug",
    }
)
"""Faults of the set-up: cured by what their remedy says, and no reason to give the machine back."""

_WAYS: dict[WireClass, str] = {
    "nvlink": "over NVLink",
    "pcie": "peer to peer over PCIe",
    "staged": "through host memory",
    "socket": "over TCP sockets",
    "gloo": "over gloo",
}


@dataclass(frozen=True, slots=True)
class _Wire:
    """The user's own wire at its largest world size, and where it stands."""

    collective: Collective
    point: Point
    wire_class: WireClass | None
    expected: Expectation | None

    @property
    def text(self) -> str:
        transport = self.collective.transport
        way = f" {_WAYS[self.wire_class]}" if self.wire_class else f" over {transport}" if transport else ""
        against = f" (expected {rate(self.expected.low)} to {rate(self.expected.high)})" if self.expected else ""
        return f"{self.collective.world_size} GPUs talk{way} at {rate(self.point.busbw_bytes_per_second)}{against}"


def judge(run: Run) -> Run:
    """Runs every check and concludes.

    Args:
        run: a live, recorded or pasted run, with forecasts already in it where there are any.

    Returns:
        The run with ``expectations``, ``findings`` (most severe first) and ``verdict``. Nothing else is changed.
    """
    findings = findings_of(run)
    return replace(run, expectations=expectations(run), findings=findings, verdict=verdict_of(run, findings))


def findings_of(run: Run) -> tuple[Finding, ...]:
    """All findings without repeats, most severe first; ``healthy`` or ``needs-measurement`` where nothing else is to say."""
    found: dict[tuple[str, str], Finding] = {}
    for check in ALL:
        for finding in check(run):
            found.setdefault((finding.code, finding.title), finding)
    findings = list(found.values())
    concluded = _nothing_wrong(run, findings)
    findings += concluded or (undecided.conclude(run, findings) if seen.is_pasted(run) else [])
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))


def verdict_of(run: Run, findings: Sequence[Finding]) -> Verdict:
    """The decision that follows from findings, the user's own wire and the forecasts."""
    gpus = facts.usable_gpus(run.machine)
    grave = [f for f in findings if f.severity in ("problem", "critical")]
    if run.machine is None or not run.machine.gpus:
        return _without_gpus(run, grave)
    broken = [f for f in grave if f.code in BROKEN_HARDWARE]
    if not gpus:
        return _verdict("fix_first", None, False, f"No GPU of this machine answers: {_lower(grave[0].title) if grave else 'all are lost'}.")
    if any(f.severity == "critical" for f in grave):
        return _critical(run, grave, broken)
    if len(gpus) == 1:
        return _one_gpu(run, grave, broken)
    wire = _user_wire(run)
    if wire is None:
        reason = "the wire between the GPUs was not measured"
        keep = False if broken else None
        unusable = next((f for f in grave if f.code == "torch-without-cuda"), None)
        if unusable is not None:
            return _verdict("fix_first", None, keep, f"Fix this first: {_lower(unusable.title)}.", "known after the repair")
        sentence = f"{len(gpus)} GPUs, but {reason}" + (f"; {_lower(broken[0].title)}" if broken else "") + "."
        return _verdict("cannot_judge", None, keep, sentence, reason)
    fixable = [f for f in grave if f.code in FIXABLE]
    if fixable:
        return _after_repair(run, wire, fixable[0], broken)
    return _scaling(run, wire, len(gpus), broken)


def _after_repair(run: Run, wire: _Wire, fault: Finding, broken: list[Finding]) -> Verdict:
    """The set-up is at fault. Where the wire without the disabling settings was measured and is sound, the machine is too."""
    sentence = f"Fix this first: {_lower(fault.title)}; as it is, {wire.text}"
    reason = "how many GPUs are worth using is known after the repair"
    if broken:
        return _verdict("fix_first", None, False, f"{sentence}.", reason)
    clean = facts.headline(facts.collectives(run, wire="clean", world_size=wire.collective.world_size))
    expected = expect_measured(run, clean[0], clean[1].num_bytes) if clean else None
    if clean is not None and isinstance(expected, Expectation):
        reached = clean[1].busbw_bytes_per_second
        if expected.standing(reached) != "below" and expected.wire_class in ("nvlink", "pcie"):
            return _verdict("fix_first", None, True, f"{sentence}, and {rate(reached)} without it; the machine itself is sound.", reason)
    return _verdict("fix_first", None, None, f"{sentence}.", "known after the set-up is repaired; the machine itself shows no fault")


def _scaling(run: Run, wire: _Wire, count: int, broken: list[Finding]) -> Verdict:
    """Nothing to repair in the set-up: how many GPUs are worth using."""
    fewer = best_subset(run, wire.collective.world_size)
    ahead = _speedups(run)
    head = ahead.get(wire.collective.world_size)
    if fewer is not None and _share_of_gradient_time(fewer, wire) > 1.0:
        listed = facts.gpus_list(fewer[0])
        sentence = f"Use GPUs {listed} ({rate(fewer[1])}): {wire.text}."
        return replace(
            _verdict("use_fewer", len(fewer[0]), False if broken else None, sentence, "depends on the price of the fewer GPUs"),
            gpus=fewer[0],
        )
    if broken:
        return _verdict("use_all", count, False, f"Give it back if you can: {_lower(broken[0].title)}; {wire.text}.")
    if head is None:
        healthy = wire.wire_class in ("nvlink", "pcie")
        if healthy:
            return _verdict("use_all", count, True, f"Keep it: {wire.text}.")
        sentence = f"{wire.text[0].upper()}{wire.text[1:]}; whether more than one GPU pays depends on your job: `wiretax predict` tells."
        return _verdict("use_all", count, None, sentence, "depends on the job: gradients are slow here, large batches hide that")
    low, high = head
    slow, fast = significant(low, 2), significant(high, 2)
    span = f"{slow}x" if slow == fast else f"{slow}x to {fast}x"
    what = f"a 1.7 B model at batch 4 trains {span} as fast on {count} GPUs as on one"
    if high < WORTH_SPEEDUP:
        return _verdict("use_one", 1, False, f"Not for multi-GPU training: {wire.text}, so {what}.")
    if low >= max(WORTH_SPEEDUP, KEEP_EFFICIENCY * count):
        return _verdict("use_all", count, True, f"Keep it: {wire.text}, and {what}.")
    part = ahead.get(len(fewer[0])) if fewer else None
    if fewer is not None and part is not None and part[0] >= max(WORTH_SPEEDUP, KEEP_EFFICIENCY * len(fewer[0])):
        sentence = f"Use GPUs {facts.gpus_list(fewer[0])}, which reach {rate(fewer[1])}: {wire.text}, and {what}."
        return replace(_verdict("use_fewer", len(fewer[0]), None, sentence, "depends on the price of the unused GPUs"), gpus=fewer[0])
    if high < KEEP_EFFICIENCY * count:
        sentence = f"Give it back if you pay for all {count} GPUs: {wire.text}, so {what}."
        return _verdict("use_all" if low >= 1 else "use_one", count if low >= 1 else 1, False, sentence)
    if (low + high) / 2 < WORTH_SPEEDUP:
        return _verdict("use_one", 1, None, f"One GPU is the better deal for small batches: {wire.text}, so {what}.", _DEPENDS)
    return _verdict("use_all", count, None, f"{wire.text[0].upper()}{wire.text[1:]}, so {what}.", _DEPENDS)


_DEPENDS = "depends on the job and the price: large batches and accumulation hide this wire, small ones do not"


def _share_of_gradient_time(fewer: tuple[tuple[int, ...], float], wire: _Wire) -> float:
    """How many times longer all GPUs need for the same gradients than the smaller set, beyond what more GPUs may make up for.

    A ring over n GPUs moves 2(n-1)/n of the gradients, and n GPUs do n times the work; only when the exchange alone takes longer
    by more than that does the smaller set win whatever the model is.
    """
    n, m = wire.collective.world_size, len(fewer[0])
    time_all = (n - 1) / n / wire.point.busbw_bytes_per_second if wire.point.busbw_bytes_per_second > 0 else float("inf")
    time_fewer = (m - 1) / m / fewer[1]
    return time_all / time_fewer / (n / m)


def _speedups(run: Run) -> dict[int, tuple[float, float]]:
    """GPUs to (worst, best) speed-up over one GPU, from forecasts of data parallelism on the user's own wire."""
    single = next((f.step_seconds for f in run.forecasts if f.num_gpus == 1 and f.strategy == "ddp" and f.step_seconds is not None), None)
    if single is None:
        return {}
    found = {}
    for forecast in run.forecasts:
        step = forecast.step_seconds
        if forecast.num_gpus > 1 and forecast.strategy == "ddp" and forecast.wire == "default" and step is not None and step.low > 0:
            # The best step of one GPU against the best of many, the worst against the worst.
            found[forecast.num_gpus] = (forecast.num_gpus * single.high / step.high, forecast.num_gpus * single.low / step.low)
    return found


def _user_wire(run: Run) -> _Wire | None:
    head = facts.headline([c for c in facts.user_collectives(run) if c.gpus and c.world_size > 1])
    if head is None:
        return None
    found = expect_measured(run, head[0], head[1].num_bytes)
    kind = class_of(run, head[0])
    return _Wire(head[0], head[1], None if isinstance(kind, Unknown) else kind, found if isinstance(found, Expectation) else None)


def _without_gpus(run: Run, grave: list[Finding]) -> Verdict:
    if run.machine is not None and run.machine.driver_state in ("hung", "mismatch", "error"):
        title = _lower(grave[0].title) if grave else "the driver does not work"
        keep = False if run.machine.driver_state == "hung" else None
        return _verdict("fix_first", None, keep, f"Fix this first: {title}.", "known after the driver works")
    ranks = [c for c in run.measurements.collectives if not c.gpus and c.points and c.operation == "all_reduce"]
    if not ranks:
        return _verdict("cannot_judge", None, None, "There is no GPU here to judge.", "there is no GPU")
    point = max((p for c in ranks for p in c.points), key=lambda p: p.busbw_bytes_per_second)
    world = max(c.world_size for c in ranks)
    sentence = (
        f"There is no GPU here, so nothing can be said about one: {world} CPU ranks were measured over gloo "
        f"(all-reduce {rate(point.busbw_bytes_per_second)})."
    )
    return _verdict("cannot_judge", None, None, sentence, "there is no GPU; only CPU ranks were measured")


def _critical(run: Run, grave: list[Finding], broken: list[Finding]) -> Verdict:
    worst = next(f for f in grave if f.severity == "critical")
    alive = facts.usable_gpus(run.machine)
    sentence = f"Do not train here yet: {_lower(worst.title)}."
    if broken:
        left = f" {len(alive)} other GPUs answer." if worst.code == "gpu-lost" and alive else ""
        return _verdict(
            "fix_first", None, False, f"{sentence[:-1]};{left or ' give the machine back if you cannot cure it.'}", "known after the repair"
        )
    return _verdict("fix_first", None, None, sentence, "why is not known yet: measure again before giving the machine back")


def _one_gpu(run: Run, grave: list[Finding], broken: list[Finding]) -> Verdict:
    if grave:
        return _verdict("fix_first", 1, False if broken else None, f"Fix this first: {_lower(grave[0].title)}.", "known after the repair")
    if not any(c.gpu is not None for c in run.measurements.compute):
        reason = "nothing was measured on the GPU"
        return _verdict("cannot_judge", None, None, f"One GPU, but {reason}.", reason)
    sentence = "One GPU: its compute, memory and host link were measured; how GPUs talk to each other cannot be seen on it."
    return _verdict("use_one", 1, True, sentence)


def _nothing_wrong(run: Run, findings: list[Finding]) -> list[Finding]:
    gpus = facts.usable_gpus(run.machine)
    if len(gpus) < 2 or any(f.severity != "info" for f in findings):
        return []
    wire = _user_wire(run)
    if wire is not None:
        inside = wire.expected is not None and wire.expected.standing(wire.point.busbw_bytes_per_second) != "below"
        because = [evidence(reason, "expectation") for reason in wire.expected.because[:3]] if wire.expected else []
        return [
            Finding(
                code="healthy",
                severity="info",
                confidence="certain" if inside else "likely",
                title=f"Nothing wrong was found: {wire.text}",
                evidence=(evidence(wire.text), *because),
                effect="The wire delivers what the links of this machine allow."
                if inside
                else "No fault was seen; no limit is known to compare with.",
                remedy="Nothing to do.",
                confirm="wiretax check --full",
            )
        ]
    if seen.is_pasted(run):
        return []
    pairs = facts.unordered_pairs(run.machine)
    paths = [facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in pairs]
    complete = len(pairs) == len(gpus) * (len(gpus) - 1) // 2
    if complete and all(facts.nvlinks_between(path) for path in paths):
        return [
            Finding(
                code="healthy",
                severity="info",
                confidence="likely",
                title=f"NVLink joins all {len(gpus)} GPUs; nothing wrong is visible",
                evidence=(
                    evidence(
                        f"{facts.pairs_text((b[0].source_gpu, b[0].target_gpu) for b in pairs)}: {', '.join(sorted(set(map(str, paths))))}",
                        "machine.pairs",
                    ),
                ),
                effect="The links are there; what they deliver was not measured.",
                remedy="Nothing to do; `wiretax check` measures what they deliver.",
                confirm="wiretax check --quick",
            )
        ]
    return [
        Finding(
            code="needs-measurement",
            severity="info",
            confidence="certain",
            title="What the wire delivers cannot be told from this: it has to be measured",
            evidence=(evidence(f"{len(gpus)} GPUs, {len(pairs)} pairs described, no collective measured", "machine"),),
            effect="Topology and driver status show what could be, not what is.",
            remedy="Run `wiretax check` on the machine.",
            confirm="wiretax check --quick",
        )
    ]


def _verdict(
    decision: Literal["use_all", "use_fewer", "use_one", "fix_first", "cannot_judge"],
    num_gpus: int | None,
    keep_box: bool | None,
    sentence: str,
    reason: str = "known after the repair",
) -> Verdict:
    missing = {name: reason for name, value in (("num_gpus", num_gpus), ("keep_box", keep_box)) if value is None}
    return Verdict(decision=decision, num_gpus=num_gpus, keep_box=keep_box, sentence=sentence, missing=missing)


def _lower(title: str) -> str:
    """A title inside a sentence; abbreviations keep their capitals."""
    return title if title[:2].isupper() or title.startswith(("NVLink", "NCCL", "GPU")) else title[:1].lower() + title[1:]

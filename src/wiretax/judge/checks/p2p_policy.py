"""The driver grants peer access, but NCCL's distance policy declines it: which version's rule, and whether overruling it helps."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.measurement import OPERATIONS
from wiretax.model.run import Run
from wiretax.units import rate

WORTH = 1.10


def check(run: Run) -> Iterator[Finding]:
    """Fires for pairs that could talk peer to peer and are too far apart for NCCL's own rule."""
    machine = run.machine
    if machine is None or any(truth.outcome in ("wrong_data", "hang", "error") for truth in run.measurements.peer_truth):
        return
    if facts.nccl_setting(run, "NCCL_P2P_DISABLE") is not None or facts.nccl_setting(run, "NCCL_P2P_LEVEL") is not None:
        return
    count = len(facts.usable_gpus(machine))
    policy = nccl_policy.default_policy(facts.nccl_version(run), machine.surroundings.cpu_vendor, count)
    if policy is None:
        return
    declined = []
    for both in facts.unordered_pairs(machine):
        first, second = sorted((both[0].source_gpu, both[0].target_gpu))
        path = facts.path_between(machine, first, second)
        if facts.p2p_allowed(machine, first, second) and nccl_policy.within(path, policy.level) is False:
            declined.append((first, second, path or ""))
    used = seen.used(run)
    # The log outranks the rule: where NCCL went peer to peer everywhere, it declined nothing.
    if not declined or used == {"p2p"}:
        return
    needed = "SYS" if any(nccl_policy.nccl_distance(path) == "SYS" for _, _, path in declined) else "PHB"
    severity, confidence, effect, remedy, measured = _what_forcing_brings(run, needed, bool(used))
    yield Finding(
        code="p2p-level-too-low",
        severity=severity,
        confidence=confidence,
        title=f"{len(declined)} pairs could talk peer to peer, but NCCL declines: they are farther apart than {policy.level}",
        evidence=(
            evidence(f"peer access is granted for {facts.pairs_text((a, b) for a, b, _ in declined)}", "machine.pairs"),
            evidence(f"NCCL {facts.nccl_version(run)}: {policy.why}", "nccl policy data"),
            *measured,
        ),
        effect=effect,
        remedy=remedy,
        confirm=f"NCCL_P2P_LEVEL={needed} wiretax check --quick",
    )


def _what_forcing_brings(run: Run, level: str, log_read: bool) -> tuple[Severity, Confidence, str, str, tuple[Evidence, ...]]:
    gains: dict[str, float] = {}
    shown: list[Evidence] = []
    for operation in OPERATIONS:
        default = facts.headline(facts.user_collectives(run, operation))
        forced = facts.headline(
            facts.collectives(run, wire="p2p_forced", operation=operation, world_size=default[0].world_size if default else None)
        )
        if default is None or forced is None:
            continue
        before, after = default[1].busbw_bytes_per_second, forced[1].busbw_bytes_per_second
        if before > 0:
            gains[operation] = after / before
            shown.append(evidence(f"{operation}: {rate(before)} as found, {rate(after)} with peer to peer forced"))
    if not gains:
        confidence: Confidence = "certain" if log_read else "likely"
        text = "Gradients go through host memory. Whether peer to peer is faster here was not measured: over a CPU it may be slower."
        return "info", confidence, text, f"Measure both: `NCCL_P2P_LEVEL={level} wiretax check --quick` against a run without it.", ()
    better = [name for name, gain in gains.items() if gain > WORTH]
    worse = [name for name, gain in gains.items() if gain < 1 / WORTH]
    if not better:
        return "info", "certain", "NCCL's choice is right here: forcing peer to peer brings nothing.", "Leave it as it is.", tuple(shown)
    effect = "Peer to peer would be faster for " + ", ".join(f"{name} ({gains[name]:.1f}x)" for name in better)
    remedy = f"`export NCCL_P2P_LEVEL={level}` before training."
    if any(truth.outcome == "ok" for truth in run.measurements.peer_truth):
        remedy += " The data arrived intact here."
    if worse:
        effect += ", but slower for " + ", ".join(f"{name} ({gains[name]:.2f}x)" for name in worse)
        remedy = f"`export NCCL_P2P_LEVEL={level}` only for jobs that do not use the slower ones."
    return "warning", "certain", f"{effect}.", remedy, tuple(shown)

"""Peer to peer or shared memory switched off, or bounded, by a variable or a nccl.conf file."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, rates, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.run import Run
from wiretax.units import rate

WORTH = 1.10
"""A setting is worth changing when the wire without it is at least this much faster."""


def check(run: Run) -> Iterator[Finding]:
    """Names each setting that keeps GPUs from the fastest path, and what the ``clean`` wire shows without it."""
    if run.machine is None:
        return
    yield from _p2p(run)
    yield from _shm(run)
    yield from _elsewhere(run)
    level = facts.nccl_setting(run, "NCCL_P2P_LEVEL")
    if level is not None and nccl_policy.user_level(level[0]) is None:
        instead = "PHB" if level[0].strip().upper() == "NODE" else "one of LOC, NVL, PIX, PXB, PHB, SYS"
        yield Finding(
            code="nccl-setting-ignored",
            severity="info",
            confidence="certain",
            title=f"NCCL does not know the level {level[0]!r} and ignores NCCL_P2P_LEVEL",
            evidence=(evidence(f"set in {level[1]}", "machine.software"),),
            effect="NCCL's own distance policy decides, as if the variable were not there.",
            remedy=f"Set NCCL_P2P_LEVEL to {instead}, or remove it.",
            confirm="NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep P2P_LEVEL",
        )


def _p2p(run: Run) -> Iterator[Finding]:
    machine = run.machine
    disable = facts.nccl_setting(run, "NCCL_P2P_DISABLE")
    level = facts.nccl_setting(run, "NCCL_P2P_LEVEL")
    pairs = [tuple(sorted((both[0].source_gpu, both[0].target_gpu))) for both in facts.unordered_pairs(machine)]
    barred: list[tuple[int, int]]
    bound: str | None = None
    if disable is not None and disable[0].strip() == "1":
        source, name = disable[1], "NCCL_P2P_DISABLE"
        barred = [(a, b) for a, b in pairs if facts.p2p_allowed(machine, a, b) is not False]
    elif level is not None and (bound := nccl_policy.user_level(level[0])) is not None:
        source, name = level[1], "NCCL_P2P_LEVEL"
        barred = [
            (a, b)
            for a, b in pairs
            if facts.p2p_allowed(machine, a, b) is not False and nccl_policy.within(facts.path_between(machine, a, b), bound) is False
        ]
        # NCCL without the variable would not have joined these either: the setting takes nothing away.
        own = nccl_policy.default_policy(
            facts.nccl_version(run), machine.surroundings.cpu_vendor if machine else None, len(facts.usable_gpus(machine))
        )
        if own is not None:
            barred = [(a, b) for a, b in barred if nccl_policy.within(facts.path_between(machine, a, b), own.level) is not False]
    else:
        return
    if pairs and not barred:
        return
    if _better_with(run, name):
        return
    shown = [evidence(f"set in {source}", "machine.software")]
    if barred:
        shown.append(evidence(f"peer access is not refused for {facts.pairs_text(barred)}", "machine.pairs"))
    severity, confidence, effect, measured = _what_it_costs(run)
    if name == "NCCL_P2P_LEVEL" and not pairs and not measured and bound != "LOC":
        yield _level_of_unknown(run, source, bound)
        return
    remedy = f"Remove it: {_removal(source, name)}."
    if severity == "info" and measured:
        remedy = "Leave it: without it nothing is gained on this machine."
    harmless = _why_harmless(run)
    if harmless and not measured:
        severity, effect, remedy = (
            "info",
            harmless,
            f"To see whether it is still needed, measure without it: `env -u {name} wiretax check`.",
        )
    elif not measured and seen.is_pasted(run) and seen.nvlink_joins_all(run):
        severity, effect = "problem", "These GPUs are joined by NVLink, and their gradients go through host memory or sockets instead."
        shown += seen.lines(seen.nvlink_lines(run), 1)
    title = f"{name} keeps these GPUs from talking peer to peer"
    if seen.of(run, "nccl.environment", means="NCCL_P2P_DISABLE=1"):
        title = "Peer to peer is switched off: NCCL prints NCCL_P2P_DISABLE=1 as NCCL_P2P_LEVEL=LOC"
        if severity != "info":
            remedy = "Remove it: `unset NCCL_P2P_DISABLE` (and NCCL_P2P_LEVEL, if that is what was set), also from nccl.conf."
    yield Finding(
        code="p2p-disabled-by-environment",
        severity=severity,
        confidence=confidence,
        title=title,
        evidence=(*shown, *measured),
        effect=effect,
        remedy=remedy,
        confirm=f"env -u {name} wiretax check --quick",
    )


def _level_of_unknown(run: Run, source: str, level: str | None) -> Finding:
    """A distance is allowed, and no text shows how far apart the GPUs are."""
    return Finding(
        code="p2p-disabled-by-environment",
        severity="info",
        confidence="possible",
        title=f"NCCL_P2P_LEVEL={level} lets only GPUs up to that distance talk peer to peer; how far apart these are is not shown",
        evidence=(
            evidence(f"set in {source}", "machine.software"),
            *seen.lines(seen.of(run, "nccl.environment", name="NCCL_P2P_LEVEL"), 1),
        ),
        effect="Nothing where all GPUs are that near; pairs beyond it go through host memory.",
        remedy="Look at `nvidia-smi topo -m`, and measure without it before removing it.",
        confirm="env -u NCCL_P2P_LEVEL wiretax check --quick",
    )


def _why_harmless(run: Run) -> str | None:
    """Pasted text only: the setting may be a cure, or take nothing away; then it is no fault."""
    if not seen.is_pasted(run):
        return None
    if seen.of(run, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome="ok") or seen.of(run, "symptom", with_p2p=True):
        return "It was set against a hang or wrong data, so it costs speed and keeps the job alive."
    names = {gpu.name for gpu in run.machine.gpus if gpu.name} if run.machine else set()
    if (
        names
        and names == set(seen.without_stock_p2p(run))
        and not any(
            facts.nvlinks_between(facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu))
            for both in facts.unordered_pairs(run.machine)
        )
    ):
        return "It takes nothing away: the stock driver never grants these cards peer access."
    return None


def _elsewhere(run: Run) -> Iterator[Finding]:
    """Set for one command, in a program, or by a framework: that it was in force is likely, not read from NCCL itself."""
    if facts.nccl_setting(run, "NCCL_P2P_DISABLE") is not None or facts.nccl_setting(run, "NCCL_P2P_LEVEL") is not None:
        return
    inside = [
        observation
        for kind in ("environment.command", "environment.code")
        for observation in seen.of(run, kind, name="NCCL_P2P_DISABLE", value="1")
    ]
    by_framework = seen.of(run, "framework.p2p_switched_off")
    # A transport that is peer to peer shows that the setting was not in force.
    if (not inside and not by_framework) or "p2p" in seen.used(run) or (not by_framework and _tried(run)):
        return
    harmless = _why_harmless(run) or (by_framework and "Frameworks do this for cards to which the driver grants no peer access anyway.")
    yield Finding(
        code="p2p-disabled-by-environment",
        severity="info" if harmless else "warning",
        confidence="likely",
        title="The framework switches peer to peer off for these cards, or refuses to run with it (NCCL_P2P_DISABLE)"
        if by_framework
        else "NCCL_P2P_DISABLE=1 is set for this program",
        evidence=seen.lines((*by_framework, *inside)),
        effect=harmless or "Gradients go through host memory although the GPUs might talk directly.",
        remedy="Let it be: `accelerate launch` sets it, and where the framework stops instead, `export NCCL_P2P_DISABLE=1 "
        "NCCL_IB_DISABLE=1` costs these cards nothing (without InfiniBand between hosts)."
        if by_framework
        else "Leave it out unless it is there against a hang, and compare: `env -u NCCL_P2P_DISABLE wiretax check`.",
        confirm="NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep NCCL_P2P",
    )


def _tried(run: Run) -> bool:
    """Whether the text compares runs with and without the setting: an experiment, not how the job is started."""
    return any(gain.after.has("NCCL_P2P_DISABLE", "1") for gain in rates.gains(rates.rates(run)))


def _better_with(run: Run, name: str) -> bool:
    """Whether somebody's own figures show that the setting does good."""
    return any(gain.after.has(name) and gain.factor >= 1 for gain in rates.gains(rates.rates(run)))


def _shm_elsewhere(run: Run) -> Iterator[Finding]:
    """Set in a program or for one command, and the log shows what follows from it."""
    inside = [o for kind in ("environment.command", "environment.code") for o in seen.of(run, kind, name="NCCL_SHM_DISABLE", value="1")]
    log = seen.log(run)
    if not inside or log is None or "net" not in log.by_class:
        return
    yield Finding(
        code="shm-disabled-by-environment",
        severity="problem",
        confidence="likely",
        title="GPUs of one host talk over sockets, because NCCL_SHM_DISABLE=1 is set for this program",
        evidence=(*seen.lines(inside), *seen.lines(log.by_class["net"], 2)),
        effect="GPUs of one host exchange gradients over TCP: ten to a hundred times slower than peer to peer or host memory.",
        remedy="Take it out of the program.",
        confirm="env -u NCCL_SHM_DISABLE wiretax check --quick",
    )


def _shm(run: Run) -> Iterator[Finding]:
    setting = facts.nccl_setting(run, "NCCL_SHM_DISABLE")
    if setting is None:
        yield from _shm_elsewhere(run)
    if setting is None or setting[0].strip() != "1":
        return
    used = seen.used(run)
    if used and "net" not in used:
        return
    severity, confidence, effect, measured = _what_it_costs(run)
    title = "NCCL_SHM_DISABLE=1 leaves only sockets where peer to peer is not possible"
    shown = [evidence(f"set in {setting[1]}", "machine.software")]
    log = seen.log(run)
    if log is not None and "net" in log.by_class:
        severity = "problem"
        also = facts.nccl_setting(run, "NCCL_P2P_DISABLE")
        shown += seen.lines(log.by_class["net"], 2)
        effect = "GPUs of one host exchange gradients over TCP: ten to a hundred times slower than peer to peer or host memory."
        title = (
            "GPUs of one host talk over sockets, because NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 switch off both ways within a host"
            if also is not None and also[0].strip() == "1"
            else "GPUs of one host talk over sockets, because NCCL_SHM_DISABLE=1 switches off the way through host memory"
        )
    yield Finding(
        code="shm-disabled-by-environment",
        severity=severity if used else "info",
        confidence=confidence,
        title=title,
        evidence=(*shown, *measured),
        effect=effect if used else "It costs nothing where all GPUs talk peer to peer; elsewhere it means sockets.",
        remedy=f"Remove it: {_removal(setting[1], 'NCCL_SHM_DISABLE')}.",
        confirm="env -u NCCL_SHM_DISABLE wiretax check --quick",
    )


def _what_it_costs(run: Run) -> tuple[Severity, Confidence, str, tuple[Evidence, ...]]:
    default = facts.headline(facts.user_collectives(run))
    world = default[0].world_size if default else None
    clean = facts.headline(facts.collectives(run, wire="clean", world_size=world))
    if default is None or clean is None:
        return "warning", "certain", "Gradients go through host memory or sockets; how much that costs here was not measured.", ()
    with_it, without = default[1].busbw_bytes_per_second, clean[1].busbw_bytes_per_second
    shown = (evidence(f"all-reduce over {world} GPUs: {rate(with_it)} as found, {rate(without)} without such settings"),)
    if without > with_it * WORTH:
        names = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        both = all((found := facts.nccl_setting(run, name)) is not None and found[0].strip() == "1" for name in names)
        # The clean wire goes without both: the gain is not that of either alone.
        of = f"without {' and '.join(names)}; what each costs alone was not measured" if both else "without it"
        return "problem", "certain", f"All-reduce would be {without / with_it:.1f}x faster {of}.", shown
    return "info", "certain", f"It costs nothing here: {rate(with_it)} with it, {rate(without)} without.", shown


def _removal(source: str, name: str) -> str:
    return f"`unset {name}`" if source.startswith("the environment") else f"delete the line from {source.partition(' (')[0]}"

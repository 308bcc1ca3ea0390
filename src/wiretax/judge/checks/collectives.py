"""What went wrong while measuring: hangs, dead ranks, wrong data, failed starts."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Evidence, Finding, Severity
from wiretax.model.measurement import OPERATIONS, Incident
from wiretax.model.run import Run
from wiretax.units import size

STOPPED_BY_DESIGN = ("peer_truth",)
"""Stages whose failure is judged by a check of their own."""


def check(run: Run) -> Iterator[Finding]:
    """One finding for each kind, operation and wire; a comparison wire that fails is less grave than the user's own."""
    grouped: dict[tuple[str, str, str | None], list[Incident]] = {}
    for incident in run.measurements.incidents:
        if not incident.stage.startswith(STOPPED_BY_DESIGN):
            # Ranks that do not start have no place yet: one finding for all of them.
            place = ("", None) if incident.kind == "start_failed" else (incident.stage, incident.operation)
            grouped.setdefault((incident.kind, *place), []).append(incident)
    for (kind, _, _), incidents in grouped.items():
        if kind == "hang":
            yield _hang(incidents)
        elif kind == "rank_died":
            yield _died(incidents)
        elif kind == "start_failed":
            yield _start_failed(incidents)
        elif kind == "error":
            yield _error(incidents)
    yield from _wrong_data(run)


def _severity(incident: Incident, worst: Severity) -> Severity:
    if incident.wire == "p2p_forced":
        return "info"
    return "problem" if incident.wire in facts.COMPARISON_WIRES and worst == "critical" else worst


def _place(incident: Incident) -> str:
    parts = [incident.operation or incident.stage]
    if incident.wire is not None:
        parts.append(f"over {incident.wire}")
    if incident.num_bytes is not None:
        parts.append(f"at {size(incident.num_bytes)}")
    if incident.world_size is not None:
        parts.append(f"with {incident.world_size} ranks")
    return " ".join(parts)


def _who(incidents: list[Incident]) -> str:
    ranks = sorted({incident.rank for incident in incidents if incident.rank is not None})
    if not ranks:
        return "A rank"
    gpus = sorted({incident.gpu for incident in incidents if incident.gpu is not None})
    return f"Rank {facts.gpus_list(ranks)}" + (f" (GPU {facts.gpus_list(gpus)})" if gpus else "")


def _seen(incidents: list[Incident]) -> tuple[Evidence, ...]:
    return tuple(evidence(f"{_place(i)}: {i.detail or i.kind}", "measurements.incidents") for i in incidents[:4])


def _hang(incidents: list[Incident]) -> Finding:
    first = incidents[0]
    collective = first.wire is not None or first.operation in OPERATIONS
    remedies = {
        "default": "Try `NCCL_P2P_DISABLE=1 wiretax check --quick`: if that works, peer to peer is broken here.",
        "p2p_forced": "Leave peer to peer as NCCL has it: do not set NCCL_P2P_LEVEL on this machine.",
    }
    return Finding(
        code="collective-hang" if collective else "rank-hung",
        severity=_severity(first, "critical"),
        confidence="certain",
        title=f"{_who(incidents)} did not come back from {_place(first)}",
        evidence=_seen(incidents),
        effect="A training job would stand still here until its watchdog ends it. All earlier measurements were kept.",
        remedy=remedies.get(first.wire or "", "Look at the process and at `dmesg`; repeat the measurement to see whether it hangs again."),
        confirm="wiretax check --quick",
    )


def _died(incidents: list[Incident]) -> Finding:
    first = incidents[0]
    how = (
        f"signal {first.signal}"
        if first.signal is not None
        else f"exit code {first.exit_code}"
        if first.exit_code is not None
        else "unknown"
    )
    hint = " Signal 9 without anyone's doing is the kernel or container running out of memory." if first.signal == 9 else ""
    return Finding(
        code="rank-died",
        severity=_severity(first, "critical"),
        confidence="certain",
        title=f"{_who(incidents)} died in {_place(first)} ({how})",
        evidence=_seen(incidents),
        effect="A training job would have ended here. All earlier measurements were kept.",
        remedy=f"Read its last words above, and `sudo dmesg | tail`.{hint}",
        confirm="wiretax check --quick",
    )


def _start_failed(incidents: list[Incident]) -> Finding:
    return Finding(
        code="start-failed",
        severity="problem",
        confidence="certain",
        title="The ranks did not start",
        evidence=_seen(incidents),
        effect="Nothing that needs ranks could be measured.",
        remedy="Read the message above; `python -m torch.distributed.run --help` shows whether torchrun works at all.",
        confirm="wiretax check --quick",
    )


def _error(incidents: list[Incident]) -> Finding:
    first = incidents[0]
    own = first.wire in facts.USER_WIRES
    return Finding(
        code="collective-error" if first.wire is not None else "measurement-error",
        severity=_severity(first, "problem" if own else "warning"),
        confidence="certain",
        title=f"{_place(first)} failed",
        evidence=_seen(incidents),
        effect="A job with these settings would fail in the same way." if own else "This part of the measurement is missing.",
        remedy="Read the message above; `NCCL_DEBUG=INFO wiretax check --quick` shows NCCL's own words.",
        confirm="wiretax check --quick",
    )


def _wrong_data(run: Run) -> Iterator[Finding]:
    shown: list[Evidence] = []
    wires: list[str | None] = []
    for incident in run.measurements.incidents:
        if incident.kind == "wrong_data" and not incident.stage.startswith(STOPPED_BY_DESIGN):
            wires.append(incident.wire)
            shown.append(evidence(f"{_place(incident)}: {incident.detail or 'values differ'}", "measurements.incidents"))
    for collective in run.measurements.collectives:
        if collective.verified is False:
            wires.append(collective.wire)
            shown.append(evidence(f"{collective.operation} over {collective.wire} with {collective.world_size} ranks: values differ"))
    # The tool's own verdict counts also where its table is cut off, or names no operation.
    told = [*seen.of(run, "nccl_tests.out_of_bounds", failed=True), *seen.of(run, "nccl_tests.wrong")]
    if told:
        wires.append(None)
        shown += seen.lines(told, 4)
    if not shown:
        return
    own = any(wire in facts.USER_WIRES or wire is None for wire in wires)
    yield Finding(
        code="collective-wrong-data",
        severity="critical" if own else "problem",
        confidence="certain",
        title=f"Collectives deliver wrong values over {', '.join(sorted({wire or 'a path not named' for wire in wires}))}",
        evidence=tuple(dict.fromkeys(shown))[:8],
        effect="Training on this path silently computes nonsense.",
        remedy="Do not train here before it is cured. Find the guilty path: `NCCL_P2P_DISABLE=1 wiretax check --quick`, then "
        "`NCCL_PROTO=Simple wiretax check --quick`.",
        confirm="wiretax check --quick",
    )

"""Pasted texts judged: every machine, state and run alone by the same checks as a live run, then side by side, then one answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from wiretax.judge import facts, seen
from wiretax.judge.checks import network, nics, rdma, software_text, transport_text
from wiretax.judge.facts import evidence
from wiretax.judge.verdict import findings_of
from wiretax.model.finding import SEVERITIES, Evidence, Finding, Verdict
from wiretax.model.machine import Gpu, Machine, Software, Surroundings
from wiretax.model.measurement import Collective
from wiretax.model.run import Run
from wiretax.units import rate

T = TypeVar("T")

MOST_EVIDENCE = 12

_SUPERSEDED: dict[str, set[str]] = {
    "shm-tuning": {"shm-direct-slow", "dev-shm-too-small", "p2p-forced-slow", "p2p-level-too-low"},
}
"""Offers at ``info`` that another finding makes needless."""

_SYMPTOMS = frozenset({"communication-bound", "collective-timeout", "collective-hang", "pair-slow", "subset-collapse", "fsdp-over-pcie"})
"""What a job suffers; where a cause was found too, the sentence names it."""

_NO_CAUSE = frozenset({"unit-trap", "input-degraded", "states-differ", "nic-far-from-gpu", "gpus-differ"})

_ANSWERS = frozenset({"healthy", "needs-measurement", "single-gpu", "no-gpu"})
"""What answers the question as a whole stands before other notes of its severity."""

_PART = "a pasted text shows a part of a machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One machine in one state, or one run: what is judged alone.

    Attributes:
        run: its machine, measurements and observations.
        label: what to call it where there are several.
        differs: how it differs from the others; None where it is the only one or fits several.
        because: why it stands apart.
        conflicts: the same for each other subject, by its place in the list.
    """

    run: Run
    label: str
    differs: Literal["machine", "state", "run"] | None = None
    because: str = ""
    conflicts: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The findings of all subjects together, the codes of each alone, and one sentence."""

    findings: tuple[Finding, ...]
    codes: tuple[tuple[str, ...], ...]
    verdict: Verdict


def diagnose(subjects: Sequence[Subject]) -> Diagnosis:
    """Judges each subject alone, compares them, and joins what they have in common.

    Args:
        subjects: in the order of the texts; none where nothing was understood.
    """
    prepared = [replace(subject, run=prepare(subject.run)) for subject in subjects]
    alone = [findings_of(subject.run) for subject in prepared]
    compared = list(_compared(prepared))
    surer = {finding.code for finding in compared if finding.severity != "info"}
    joined = [f for f in _joined(prepared, alone) if f.severity != "info" or f.code not in surer]
    findings = [*joined, *compared]
    findings = _settled(prepared, findings)
    if not findings:
        findings = [_nothing_understood()]
    ordered = tuple(sorted(findings, key=lambda f: (-SEVERITIES.index(f.severity), f.code not in _ANSWERS)))
    codes = tuple(tuple(dict.fromkeys(f.code for f in found)) for found in alone)
    return Diagnosis(findings=ordered, codes=codes, verdict=_verdict(ordered))


def prepare(run: Run) -> Run:
    """A run that checks can read: a machine that may be wholly unknown, and other tools' sweeps on the GPUs they can only have run on.

    nccl-tests does not say NVML indices; where a sweep used as many GPUs as the machine has, they are these. The way it took is
    NCCL's, where a log of one way was pasted with it. What a card's name tells of its generation is filled in.
    """
    machine = run.machine if run.machine is not None else _unknown_machine()
    machine = replace(machine, gpus=tuple(_with_capability(gpu) for gpu in machine.gpus))
    indices = tuple(gpu.index for gpu in machine.gpus)
    log = seen.log(run)
    names = (
        seen.transport_names([o for found in log.by_class.values() for o in found], 8) if log is not None and len(log.classes) == 1 else ""
    )
    collectives = tuple(_placed(c, indices, names) for c in run.measurements.collectives)
    return replace(run, machine=machine, measurements=replace(run.measurements, collectives=collectives))


def _placed(collective: Collective, indices: tuple[int, ...], names: str) -> Collective:
    if collective.gpus or collective.backend != "nccl" or collective.world_size != len(indices) or len(indices) < 2:
        return collective
    transport = collective.transport or (names.replace(", ", "+") or None)
    missing = {name: reason for name, reason in collective.missing.items() if name != "transport" or transport is None}
    return replace(collective, gpus=indices, transport=transport, missing=missing)


def _with_capability(gpu: Gpu) -> Gpu:
    capability = seen.capability(gpu)
    if gpu.compute_capability is not None or capability is None:
        return gpu
    missing = {name: reason for name, reason in gpu.missing.items() if name != "compute_capability"}
    return replace(gpu, compute_capability=capability, missing=missing)


def _unknown_machine() -> Machine:
    """A machine of which the text says nothing."""
    return _explained(Machine(origin="pasted", software=_explained(Software()), surroundings=_explained(Surroundings())))


def _explained(part: T) -> T:
    value: Any = part
    answers: frozenset[str] = getattr(value, "none_is_an_answer", frozenset())
    missing = {
        f.name: "not in the pasted text" for f in dataclasses.fields(value) if getattr(value, f.name) is None and f.name not in answers
    }
    described: T = replace(value, missing=missing)
    return described


def _joined(subjects: Sequence[Subject], alone: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Findings of all subjects; the same one of several is one, with the evidence of all."""
    several = len({subject.label for subject in subjects if subject.differs in ("machine", "state")}) > 1
    merged: dict[tuple[str, str], Finding] = {}
    owners: dict[tuple[str, str], list[Subject]] = {}
    for subject, findings in zip(subjects, alone, strict=True):
        for finding in findings:
            key = (finding.code, finding.title)
            before = merged.get(key)
            if before is None:
                merged[key] = finding
            else:
                lines = tuple(dict.fromkeys((*before.evidence, *finding.evidence)))[:MOST_EVIDENCE]
                merged[key] = replace(before, evidence=lines)
            owners.setdefault(key, []).append(subject)
    found = []
    for key, finding in merged.items():
        labels = [s.label for s in owners[key] if s.differs in ("machine", "state") and not _speaks_for_others(s, subjects)]
        if several and labels and len(owners[key]) < len(subjects):
            finding = replace(finding, title=f"{' and '.join(dict.fromkeys(labels))}: {finding.title}")
        found.append(finding)
    return found


def _speaks_for_others(subject: Subject, subjects: Sequence[Subject]) -> bool:
    """Whether its log is of several hosts, so that a finding from it is not of its own host alone."""
    hosts = {other.run.machine.hostname for other in subjects if other is not subject and other.run.machine is not None} - {None}
    return bool(hosts & seen.hosts(subject.run))


def _settled(subjects: Sequence[Subject], findings: list[Finding]) -> list[Finding]:
    """Takes out what another subject's finding makes needless."""
    codes = {finding.code for finding in findings}
    grave = any(finding.severity != "info" for finding in findings)
    kept = [f for f in findings if not (f.severity == "info" and codes & _SUPERSEDED.get(f.code, set()))]
    strangers = any(subject.differs == "machine" for subject in subjects)
    if grave and not strangers:
        kept = [f for f in kept if f.code not in ("healthy", "needs-measurement", "single-gpu")]
        # The same said with more certainty of one run makes the suspicion of another needless.
        sure = {f.code for f in kept if f.severity != "info"}
        kept = [f for f in kept if f.severity != "info" or f.code not in sure or f.confidence == "certain"]
    elif grave and any(_speaks_for_others(subject, subjects) for subject in subjects):
        # Hosts of one log: what is left of the others when the job's lines are told of is no machine of its own.
        kept = [f for f in kept if f.code not in ("needs-measurement", "single-gpu")]
    # Several runs that each leave the question open need one answer, and so do several pairs of states.
    once: dict[str, Finding] = {}
    result: list[Finding] = []
    for finding in kept:
        if finding.code in ("needs-measurement", "states-differ") and finding.code in once:
            first = once[finding.code]
            result[result.index(first)] = once[finding.code] = replace(
                first, evidence=tuple(dict.fromkeys((*first.evidence, *finding.evidence)))[:MOST_EVIDENCE]
            )
            continue
        once.setdefault(finding.code, finding)
        result.append(finding)
    return result


def _compared(subjects: Sequence[Subject]) -> Iterator[Finding]:
    """What only the comparison of two subjects shows."""
    for place, first in enumerate(subjects):
        for number, second in enumerate(subjects[place + 1 :], place + 1):
            if "run" in (first.differs, second.differs) and first.differs == second.differs:
                yield from _two_runs(first, second)
            elif first.differs == second.differs == "state":
                yield _two_states(first, second, first.conflicts.get(number, second.because))
    yield from _one_job(subjects)


def _two_runs(first: Subject, second: Subject) -> Iterator[Finding]:
    """One machine, two runs: another way of the data, and the variable that makes it."""
    slow, fast = first, second
    ways = [seen.used(subject.run) for subject in (first, second)]
    if ways[0] == ways[1]:
        return
    if "p2p" in ways[0] and "p2p" not in ways[1]:
        slow, fast = second, first
    settings = [_settings(subject.run) for subject in (slow, fast)]
    changed = {
        name: settings[1].get(name) for name in settings[1].keys() | settings[0].keys() if settings[0].get(name) != settings[1].get(name)
    }
    level = changed.get("NCCL_P2P_LEVEL")
    logs = [seen.log(subject.run) for subject in (slow, fast)]
    lines = [seen.lines([o for found in log.by_class.values() for o in found], 2) if log is not None else () for log in logs]
    shown: tuple[Evidence, ...] = (*lines[0], *seen.lines(seen.of(fast.run, "nccl.environment", name="NCCL_P2P_LEVEL"), 1), *lines[1])
    speeds = _speeds(slow, fast)
    if "staged" in seen.used(slow.run) and "p2p" in seen.used(fast.run) and level is not None and "NCCL_P2P_DISABLE" not in settings[0]:
        yield Finding(
            code="p2p-level-too-low",
            severity="warning",
            confidence="likely",
            title=f"One run goes through host memory because it lacks NCCL_P2P_LEVEL={level}: with it the other goes peer to peer",
            evidence=(*shown, *speeds),
            effect="NCCL's own distance policy stops short of these pairs; the driver allows them, as the second run shows.",
            remedy=f"Set it for all runs, after the data was checked once: `export NCCL_P2P_LEVEL={level}`; compare the launchers' "
            "environments.",
            confirm=f"NCCL_P2P_LEVEL={level} wiretax check --quick",
        )
        return
    words = (
        ", ".join(f"{name}={value if value is not None else 'unset'}" for name, value in sorted(changed.items()))
        or "no variable in the text"
    )
    yield Finding(
        code="runs-differ",
        severity="info",
        confidence="likely",
        title=f"Two runs move data in different ways ({', '.join(sorted(ways[0]))} and {', '.join(sorted(ways[1]))}): {words} makes the "
        "difference"
        if changed
        else f"Two runs move data in different ways ({', '.join(sorted(ways[0]))} and {', '.join(sorted(ways[1]))}), and no variable "
        "explains it",
        evidence=(*shown, *speeds) or (evidence(second.because, "NCCL logs"),),
        effect="Their speeds cannot be compared without that.",
        remedy="Compare the environments of both launchers (`env | grep NCCL`, nccl.conf), and keep the faster setting.",
        confirm="wiretax check --quick",
    )


def _settings(run: Run) -> dict[str, str]:
    if run.machine is None:
        return {}
    conf = {key.rpartition(":")[2]: value for key, value in run.machine.software.nccl_conf.items()}
    return {**conf, **run.machine.software.nccl_environment}


def _speeds(slow: Subject, fast: Subject) -> tuple[Evidence, ...]:
    """Headline figures of both runs, where each has one."""
    heads = [facts.headline(facts.user_collectives(subject.run)) for subject in (slow, fast)]
    if heads[0] is None or heads[1] is None:
        return ()
    before, after = (head[1].busbw_bytes_per_second for head in heads if head is not None)
    return (evidence(f"all-reduce: {rate(before)} in one, {rate(after)} in the other"),)


def _two_states(first: Subject, second: Subject, because: str) -> Finding:
    drivers = [subject.run.machine.software.driver if subject.run.machine else None for subject in (first, second)]
    by_driver = all(drivers) and drivers[0] != drivers[1]
    return Finding(
        code="states-differ",
        severity="info",
        confidence="certain",
        title="The texts show different machines, or one before and after a change"
        + (f" (driver {drivers[0]} and {drivers[1]})" if by_driver else ""),
        evidence=(evidence(because or "they do not fit together", f"{first.label} and {second.label}"),),
        effect="Each is judged alone; what holds for one need not hold for the other.",
        remedy="Say which text is of which machine and time, or paste them one at a time.",
        confirm=f"wiretax diagnose {second.label}",
    )


def _one_job(subjects: Sequence[Subject]) -> Iterator[Finding]:
    """Hosts of one job, each in a log of its own: what only shows beside each other."""
    hosts = [subject for subject in subjects if subject.differs == "machine"]
    if len(hosts) < 2:
        return
    observations = tuple(o for subject in hosts for o in subject.run.observations)
    joint = replace(hosts[0].run, machine=_unknown_machine(), observations=observations)
    checks = (rdma.check, network.check, nics.check, software_text.check, transport_text.check)
    alone = {finding.code for subject in hosts for check in checks for finding in check(subject.run) if finding.severity != "info"}
    shared = [o for o in observations if o.kind == "nccl.init" and o.values.get("communicator_id")]
    names = {seen.text(o, "communicator_id"): set[str]() for o in shared}
    for observation in shared:
        names[seen.text(observation, "communicator_id")].add(seen.text(observation, "host"))
    one_job = any(len(found - {""}) > 1 for found in names.values())
    wanted = {"hca-set-mismatch", "gdr-missing"} | ({"nccl-version-mismatch", "isolated-ranks-tcp"} if one_job else set())
    for check in checks:
        for finding in check(joint):
            if finding.code in wanted and finding.severity != "info" and finding.code not in alone:
                yield finding


def _nothing_understood() -> Finding:
    return Finding(
        code="needs-measurement",
        severity="info",
        confidence="certain",
        title="Nothing in the text says how GPUs talk to each other",
        evidence=(evidence("no tool's output, log line or timing was recognised", "the input"),),
        effect="No conclusion can be drawn from it.",
        remedy="Paste `nvidia-smi topo -m`, `nvidia-smi topo -p2p r`, and the job's output with NCCL_DEBUG=INFO; or run `wiretax "
        "check` on the "
        "machine.",
        confirm="wiretax check --quick",
    )


def _verdict(findings: Sequence[Finding]) -> Verdict:
    """One sentence: what to do first. How many GPUs to use, and whether to keep the machine, a text cannot say."""
    worst = findings[0]
    title = _lower(worst.title)
    causes = [f for f in findings if f.severity != "info" and f.code not in _SYMPTOMS | _NO_CAUSE]
    if worst.code in _SYMPTOMS and causes:
        title += f". Behind it, most likely: {_lower(causes[0].title)}"
    if worst.severity in ("problem", "critical"):
        decision: Literal["fix_first", "cannot_judge"] = "fix_first"
        sentence = f"Fix this first: {title}."
    elif worst.severity == "warning":
        decision, sentence = "cannot_judge", f"The text shows a limit: {title}. What it costs has to be measured."
    elif any(finding.code == "healthy" for finding in findings):
        healthy = next(finding for finding in findings if finding.code == "healthy")
        decision, sentence = "cannot_judge", f"{healthy.title}."
    else:
        open_ = next((finding for finding in findings if finding.code == "needs-measurement"), worst)
        decision, sentence = "cannot_judge", f"{open_.title}."
    missing = {"num_gpus": _PART, "keep_box": _PART}
    return Verdict(decision=decision, num_gpus=None, keep_box=None, sentence=sentence, missing=missing)


def _lower(title: str) -> str:
    """A title inside a sentence; names and abbreviations keep their capitals."""
    return title if title[:2].isupper() or title.startswith(("NCCL", "NVLink", "GPU")) else title[:1].lower() + title[1:]

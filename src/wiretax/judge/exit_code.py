"""What a run means to the script that called us: the exit codes of DESIGN 3. Needs no findings beyond those in the run."""

from __future__ import annotations

from wiretax.judge import facts
from wiretax.model.finding import SEVERITIES, Severity
from wiretax.model.measurement import Incident
from wiretax.model.run import Run

JUDGED = 0
PROBLEM = 1
USAGE = 2
CANNOT_JUDGE = 3
INTERRUPTED = 130

STAYS_JUDGED = ("peer_truth",)
"""Stages in which a hang or a death is a result (the test of a pair failed), not a reason why nothing can be said."""

_DEFECTS = ("hang", "rank_died", "survived_kill", "start_failed")
_MEASURING = ("check", "scale", "profile", "tune")
"""Commands that start ranks."""
_CALCULATING = ("predict", "plan", "compare", "report")
"""Commands that work on figures of another run: what its machine was like when they are made is no failure of theirs."""


def is_defect(incident: Incident) -> bool:
    """Whether this incident is a reason why the run cannot be judged.

    An error on a wire that is only there to compare with is none; where there is no GPU, gloo is all there is to measure.
    """
    if incident.stage.startswith(STAYS_JUDGED):
        return False
    if incident.kind == "error":
        return incident.gpu is None or incident.wire not in facts.COMPARISON_WIRES
    return incident.kind in _DEFECTS


def exit_code(run: Run, strict: bool = False, fail_if_true: bool = False, require_gpu: bool = False) -> int:
    """The exit code of a judged run.

    Args:
        run: with findings and verdict.
        strict: warnings count as problems.
        fail_if_true: a ``--fail-if`` expression held.
        require_gpu: a machine without usable GPUs cannot be judged.

    Returns:
        0 judged and nothing grave; 1 judged with a problem; 3 could not judge; 130 stopped by the user.
    """
    status = run.outcome.status if run.outcome is not None else "complete"
    if status == "interrupted":
        return INTERRUPTED
    failed = status == "failed" or any(incident.kind != "error" and is_defect(incident) for incident in run.measurements.incidents)
    if failed or _gpus_unusable(run) or (require_gpu and not facts.usable_gpus(run.machine)):
        return CANNOT_JUDGE
    if status == "out_of_budget" and not _enough_measured(run):
        return CANNOT_JUDGE
    limit: Severity = "warning" if strict else "problem"
    grave = any(SEVERITIES.index(f.severity) >= SEVERITIES.index(limit) for f in run.findings)
    return PROBLEM if grave or fail_if_true else JUDGED


def _gpus_unusable(run: Run) -> bool:
    """A GPU or a driver is there, and nothing could be measured on it by a run that tried to."""
    if run.machine is None or run.machine.origin == "pasted" or run.command in _CALCULATING:
        return False
    if run.machine.driver_state in ("hung", "mismatch", "error"):
        return True
    if not run.machine.gpus or run.outcome is None or run.command not in _MEASURING:
        return False
    if run.training.profiles or run.training.steps:  # something was trained where it was asked for, GPU or CPU
        return False
    measured = run.measurements
    if any(series.points and not series.gpus for series in measured.collectives):
        return False  # CPU ranks were asked for, or all GPUs are hidden from CUDA
    on_gpu = any(c.gpu is not None for c in measured.compute) or any(c.gpus for c in measured.collectives)
    return not on_gpu and not any(c.source_gpu is not None or c.target_gpu is not None for c in measured.copies)


def _enough_measured(run: Run) -> bool:
    """Whether a run whose time was spent has what its command is for: a check of several ranks must have seen a wire between them."""
    measured = run.measurements
    if run.command == "check" and len(facts.usable_gpus(run.machine)) != 1:
        return any(series.points for series in measured.between_ranks)
    training = run.training
    return bool(measured.collectives or measured.copies or measured.compute or training.profiles or training.steps)

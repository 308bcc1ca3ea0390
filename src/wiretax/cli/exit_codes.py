"""The exit codes of DESIGN 3, from a run."""

from __future__ import annotations

from wiretax.model.run import Run

JUDGED = 0
PROBLEM = 1
USAGE = 2
CANNOT_JUDGE = 3
INTERRUPTED = 130


def exit_code(run: Run, *, strict: bool = False, gate_closed: bool = False) -> int:
    """What a run means to the script that called us.

    Args:
        run: judged, or as far as it came.
        strict: a warning counts as a problem.
        gate_closed: a ``--fail-if`` came true.
    """
    status = run.outcome.status if run.outcome is not None else "complete"
    if status == "interrupted":
        return INTERRUPTED
    if status == "failed":
        return CANNOT_JUDGE
    severities = {finding.severity for finding in run.findings}
    bad = {"problem", "critical", "warning"} if strict else {"problem", "critical"}
    return PROBLEM if gate_closed or severities & bad else JUDGED

"""``--fail-if``: says which expressions came true."""

from __future__ import annotations

from collections.abc import Sequence

from wiretax.cli.output import say
from wiretax.judge.gate import Gate, as_expected, as_metrics, evaluate
from wiretax.model.run import Run


def closed_gates(run: Run, gates: Sequence[Gate]) -> bool:
    """Whether any expression is true; each that is is said on stderr with its figures.

    Raises:
        UsageError: an expression names what this run did not measure.
    """
    metrics, expected = as_metrics(run), as_expected(run)
    outcomes = [(gate, evaluate(gate, metrics, expected)) for gate in gates]
    for gate, outcome in outcomes:
        for reason in outcome.reasons:
            say(f"--fail-if {gate.text} is true: {reason}")
    return any(outcome.true for _, outcome in outcomes)

"""Pages for tests, each made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import report_runs
import sample_runs
from wiretax.judge.compare import compare
from wiretax.model.money import Price
from wiretax.model.run import Run
from wiretax.show.html import as_html, comparison_as_html


def runs(name: str) -> Run:
    """A run by the name of its page."""
    return {
        "h200_pair": report_runs.h200_pair,
        "eight": lambda: report_runs.many(8, everything=True),
        "sixty_four": lambda: report_runs.many(64),
        "budget_box": report_runs.budget_box,
        "budget_box_priced": lambda: sample_runs.four_4090(Price(amount=2, currency="EUR", per="gpu_hour")),
        "inspected": sample_runs.inspected,
        "cpu_only": sample_runs.cpu_only,
        "hung": sample_runs.hung,
    }[name]()


@cache
def pages(name: str) -> str:
    """The page of a run, or of the comparison of the two H200 samples."""
    if name == "comparison":
        before = sample_runs.h200_pair()
        assert before.machine is not None
        note = "figures of a recorded pair of H200, put together for an example"
        before = replace(before, machine=replace(before.machine, origin="constructed", origin_note=note))
        both = [before, report_runs.p2p_switched_off()]
        return comparison_as_html(compare(both, ["before", "after"]), both)
    return as_html(runs(name))

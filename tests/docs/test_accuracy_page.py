import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def accuracy(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    sys.modules.pop("accuracy", None)
    import accuracy

    return accuracy


def case(**changes):
    return {
        "workload": "w",
        "strategy": "ddp",
        "wire": "default",
        "num_gpus": 2,
        "predicted_seconds": 1.0,
        "low_seconds": 0.9,
        "high_seconds": 1.1,
        "measured_seconds": 1.05,
        "measured_spread_fraction": None,
        "held_out": True,
        "device": "cuda",
        "machine": "m",
        "date": "d",
        **changes,
    }


def test_the_committed_page_is_what_the_results_say(accuracy):
    assert accuracy.PAGE.read_text(encoding="utf-8") == accuracy.page(accuracy.load(), accuracy.load("memory")), (
        "run python benchmarks/accuracy.py"
    )


def test_every_case_and_every_published_error_is_on_the_page(accuracy):
    text = accuracy.page([("prediction_made_up.json", [case(), case(wire="socket")])])

    assert text.count("| w | ddp | 2 |") == 2
    for name, *_ in accuracy.ANCHORS:
        assert name in text


def test_a_case_that_does_not_repeat_is_judged_by_its_interval_alone(accuracy):
    assert accuracy.counts(case(measured_spread_fraction=0.03))
    assert not accuracy.counts(case(measured_spread_fraction=0.05))
    assert not accuracy.counts(case(listed="apart"))


def test_an_interval_that_misses_the_truth_is_shown_as_missing_it(accuracy):
    assert not accuracy.inside(case(measured_seconds=1.2))
    assert "| no |" in accuracy.page([("prediction_x.json", [case(measured_seconds=1.2)])])


def test_a_peak_outside_its_interval_is_shown_as_missed(accuracy):
    peak = {
        "workload": "w",
        "strategy": "ddp",
        "num_gpus": 2,
        "backend": "nccl",
        "batch_per_gpu": 8,
        "launches": 3,
        "machine": "m",
        "date": "d",
        "low_bytes": 9e9,
        "predicted_bytes": 10e9,
        "high_bytes": 11e9,
        "measured_bytes": 10e9,
    }
    found = [{**peak, "measured_least_bytes": 10e9, "measured_most_bytes": most} for most in (10e9, 12e9)]

    first, second = accuracy.page([], [("memory_x.json", found)]).splitlines()[-2:]

    assert "| 10.00 | 3 launches | +0.0 % | yes |" in first
    assert "| 10.00 (10.00 to 12.00) | 3 launches | +0.0 % | no |" in second

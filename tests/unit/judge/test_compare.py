"""Comparing runs: same is same, a real change is named with its size, and noise is not a change."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

import report_runs
import sample_runs
from builders import samples
from wiretax.errors import UsageError
from wiretax.judge.compare import _words, bootstrap_ratio, changes, compare, higher_is_better, sampled
from wiretax.judge.gate import parse
from wiretax.model.run import Run

BUSBW = "all_reduce_busbw_peak_bytes_per_second.default.2"


def slower(run: Run, factor: float, *, wire: str = "default", spread: float = 0.004) -> Run:
    """The run with one wire slower by a factor at every size."""
    found = []
    for c in run.measurements.collectives:
        if c.wire == wire:
            points = tuple(
                replace(
                    p,
                    seconds=p.seconds * factor,
                    samples_seconds=samples(p.seconds * factor, spread),
                    algbw_bytes_per_second=p.algbw_bytes_per_second / factor,
                    busbw_bytes_per_second=p.busbw_bytes_per_second / factor,
                )
                for p in c.points
            )
            c = replace(c, points=points)
        found.append(c)
    return replace(run, measurements=replace(run.measurements, collectives=tuple(found)))


def test_a_run_against_itself_is_the_same_everywhere() -> None:
    run = sample_runs.h200_pair()
    result = compare([run, run])
    assert {d.outcome for d in result.differences} <= {"same", "unknown"}
    assert all(d.ratio == 1 for d in result.differences)
    assert result.changes == ()
    assert "Nothing changed around it" in result.sentence


def test_a_slower_wire_is_worse_by_its_factor_and_other_wires_stay_the_same() -> None:
    run = sample_runs.h200_pair()
    result = compare([run, slower(run, 1.25)])
    found = {d.metric: d for d in result.differences}
    assert found[BUSBW].outcome == "worse"
    assert found[BUSBW].ratio == pytest.approx(0.8)
    low, high = found[BUSBW].low, found[BUSBW].high
    assert low is not None
    assert high is not None
    assert low <= 0.8 <= high < 1
    assert found["all_reduce_latency_seconds.default.2"].outcome == "worse"
    assert found["all_reduce_busbw_peak_bytes_per_second.p2p_off.2"].outcome == "same"
    assert result.differences[0].outcome == "worse"


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("all_reduce_busbw_peak_bytes_per_second.default.2", "all-reduce busbw over default on 2 ranks"),
        ("send_recv_latency_seconds.p2p_off.8", "send-recv latency over p2p_off on 8 ranks"),
        ("step_seconds.ddp.socket.4", "step time of ddp over socket on 4"),
        ("speedup.ddp.socket.4", "speed-up of ddp over socket on 4"),
        ("host_copy_bytes_per_second.min", "host_copy_bytes_per_second.min"),
        ("findings.problem", "findings.problem"),
    ],
)
def test_the_sentence_says_a_metric_in_words(metric: str, words: str) -> None:
    assert _words(metric) == words


def test_the_other_way_round_it_is_better() -> None:
    run = sample_runs.h200_pair()
    found = {d.metric: d for d in compare([slower(run, 1.25), run]).differences}
    assert found[BUSBW].outcome == "better"
    assert found["all_reduce_latency_seconds.default.2"].outcome == "better"


def test_a_sure_difference_too_small_to_matter_is_the_same() -> None:
    run = sample_runs.h200_pair()
    found = {d.metric: d for d in compare([run, slower(run, 1.01, spread=0.0001)]).differences}
    assert found[BUSBW].outcome == "same"


def test_a_large_difference_within_wide_noise_is_the_same() -> None:
    run = slower(sample_runs.h200_pair(), 1.0, spread=0.6)
    found = {d.metric: d for d in compare([run, slower(run, 1.1, spread=0.6)]).differences}
    assert found[BUSBW].outcome == "same"
    assert found[BUSBW].low is not None
    assert found[BUSBW].low < 1


def test_without_samples_nothing_is_claimed() -> None:
    run = report_runs.h200_pair()
    bare = tuple(
        replace(c, points=tuple(replace(p, seconds=p.seconds * 2, busbw_bytes_per_second=p.busbw_bytes_per_second / 2) for p in c.points))
        for c in run.measurements.collectives
    )
    result = compare([run, replace(run, measurements=replace(run.measurements, collectives=bare))])
    found = {d.metric: d for d in result.differences}
    assert found[BUSBW].outcome == "unknown"
    assert found[BUSBW].reason == "no samples"
    assert found[BUSBW].missing["low"] == "no samples"


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    dice = random.Random(7)
    hits = 0
    for _ in range(60):
        a = [dice.lognormvariate(0, 0.1) for _ in range(40)]
        b = [1.1 * dice.lognormvariate(0, 0.1) for _ in range(40)]
        low, high = bootstrap_ratio(a, b)
        hits += low <= 1.1 <= high
    assert hits >= 56


def test_times_are_better_when_smaller_and_rates_when_larger() -> None:
    assert higher_is_better(BUSBW)
    assert higher_is_better("speedup.ddp.default.2")
    assert higher_is_better("matmul_flops_per_second.0")
    assert not higher_is_better("all_reduce_latency_seconds.default.2")
    assert not higher_is_better("step_seconds.ddp.default.2")


def test_each_metrics_samples_have_the_metric_as_their_middle() -> None:
    for name, metric in sampled(sample_runs.h200_pair(), every_size=True).items():
        if metric.samples:
            assert sorted(metric.samples)[len(metric.samples) // 2] == pytest.approx(metric.value, rel=0.02), name


def test_single_sizes_only_when_asked() -> None:
    run = sample_runs.h200_pair()
    assert not any("_seconds." in name and "latency" not in name and "step" not in name for name in sampled(run))
    assert "all_reduce_seconds.default.2.1048576" in sampled(run, every_size=True)


def test_what_changed_around_it_is_listed_and_heat_is_not() -> None:
    before = sample_runs.h200_pair()
    assert before.machine is not None
    software = replace(before.machine.software, driver="590.1", nccl_environment={"NCCL_P2P_DISABLE": "1"})
    gpus = tuple(replace(gpu, temperature_celsius=80.0, power_watts=600.0) for gpu in before.machine.gpus)
    after = replace(before, machine=replace(before.machine, software=software, gpus=gpus))
    found = {change.subject: change.values for change in changes([before, after])}
    assert found == {
        "driver": ("580.159.04", "590.1"),
        "NCCL_NVLS_ENABLE": ("0 (environment)", "not set"),
        "NCCL_P2P_DISABLE": ("not set", "1 (environment)"),
    }


def test_findings_and_metrics_that_not_all_have_are_told() -> None:
    result = compare([sample_runs.h200_pair(), sample_runs.four_4090()], ["pair", "four"])
    assert result.findings["healthy"] == (True, False)
    assert result.findings["p2p-unsupported-chipset"] == (False, True)
    assert result.only_in["all_reduce_busbw_peak_bytes_per_second.default.4"] == (1,)
    assert [side.label for side in result.sides] == ["pair", "four"]
    assert [side.title for side in result.sides] == ["2 x NVIDIA H200", "4 x NVIDIA GeForce RTX 4090"]


def test_three_runs_are_each_set_against_the_first() -> None:
    run = sample_runs.h200_pair()
    result = compare([run, slower(run, 1.25), slower(run, 0.8)])
    outcomes = {d.side: d.outcome for d in result.differences if d.metric == BUSBW}
    assert outcomes == {1: "worse", 2: "better"}


@pytest.mark.parametrize(("factor", "true"), [(1.04, False), (1.2, True)])
def test_a_gate_is_true_when_the_metric_fell_by_more_than_it_allows(factor: float, true: bool) -> None:
    run = sample_runs.h200_pair()
    (gate,) = compare([run, slower(run, factor)], gates=[parse(f"{BUSBW}:-5%")]).gates
    assert gate.true is true
    assert bool(gate.reasons) is true


def test_a_gate_on_what_was_not_measured_is_wrong_usage() -> None:
    run = sample_runs.h200_pair()
    with pytest.raises(UsageError, match="No run has a metric"):
        compare([run, run], gates=[parse("nonsense:-5%")])


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="two runs"):
        compare([sample_runs.h200_pair()])


def test_runs_with_nothing_in_common_compare_to_nothing() -> None:
    result = compare([sample_runs.inspected(), sample_runs.cpu_only()])
    assert not result.differences
    assert "no figure was measured in both" in result.sentence


def test_two_whole_runs_compare_within_a_second() -> None:
    run = sample_runs.h200_pair()
    other = slower(run, 1.1)
    compare([run, other])  # numpy and scipy are imported once.
    took = []
    for _ in range(3):
        before = time.perf_counter()
        compare([run, other])
        took.append(time.perf_counter() - before)
    assert min(took) < 1


def test_a_wire_that_was_not_run_in_one_of_them_is_no_change_of_transport() -> None:
    run = sample_runs.h200_pair()
    kept = tuple(one for one in run.measurements.collectives if one.wire != "p2p_off")
    fewer = replace(run, measurements=replace(run.measurements, collectives=kept))
    assert len(kept) < len(run.measurements.collectives)
    assert changes([run, fewer]) == changes([fewer, run]) == ()

    staged = tuple(replace(one, transport="SHM/direct") if one.wire == "default" else one for one in kept)
    other = replace(run, measurements=replace(run.measurements, collectives=staged))
    without = replace(run, measurements=replace(run.measurements, collectives=()))
    changed = {change.subject: change.values for change in changes([run, other, without])}
    assert changed == {"transport of default, 2 ranks": ("P2P/CUMEM", "SHM/direct", "not run")}

from dataclasses import replace

import pytest

import recording
from boxes import box, compute, copy, host_copies, run, wire
from wiretax.errors import UsageError
from wiretax.judge.gate import as_expected, as_metrics, evaluate, parse
from wiretax.judge.verdict import judge
from wiretax.predict.bounds import bounds

PEAK = "all_reduce_busbw_peak_bytes_per_second.default.2"


@pytest.fixture(scope="module")
def judged():
    recorded = recording.run()
    return judge(replace(recorded, forecasts=bounds(recorded)))


def holds(text, run_):
    return evaluate(parse(text), as_metrics(run_), as_expected(run_)).true


@pytest.mark.parametrize(
    ("expression", "true"),
    [
        (f"{PEAK}<300GB/s", False),
        (f"{PEAK}<400GB/s", True),
        (f"{PEAK} >= 300e9", True),
        (f"{PEAK}>300000MB/s", True),
        (f"{PEAK}:-5%", False),
        (f"{PEAK}:-2%", True),
        (f"{PEAK}:+1%", False),
        ("pair_copy_bytes_per_second.direct.min<100GB/s", False),
        ("pair_copy_bytes_per_second.direct.*:-20%", False),
        ("all_reduce_latency_seconds.default.2>5us", True),
        ("all_reduce_latency_seconds.default.2>1ms", False),
        ("findings.problem>0", False),
        ("speedup.ddp.default.2<1.5", False),
        ("speedup.ddp.p2p_off.2<1.5", True),
        ("speedup.ddp.*.2<1.5", True),
    ],
)
def test_expressions_over_the_recording(judged, expression, true):
    assert holds(expression, judged) is true


def test_a_true_expression_says_which_metric_and_both_numbers(judged):
    outcome = evaluate(parse(f"{PEAK}<1TB/s"), as_metrics(judged), {})
    assert outcome.reasons == (f"{PEAK} is 327 GB/s, below 1.00 TB/s",)


def test_two_numbers_that_look_alike_in_three_digits_are_given_in_full(judged):
    reasons = evaluate(parse(f"{PEAK}<326.91GB/s"), as_metrics(judged), {}).reasons
    assert reasons == (f"{PEAK} is 3.26899e+11, below 3.2691e+11",)


@pytest.mark.parametrize("text", ["", "nonsense", "x<", "x<5furlongs", "x:5%", "x:-5", "x=5", "x<<5", "x:-%"])
def test_what_is_no_expression_is_refused_with_an_example(text):
    with pytest.raises(UsageError) as error:
        parse(text)
    assert "Example" in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{PEAK}<1e999", "too large"),
        (f"{PEAK}<1e308GB/s", "too large"),
        ("findings.problem>" + "9" * 400, "too large"),
        (f"{PEAK}:+1{'0' * 400}%", "Nothing can be"),
        (f"{PEAK}:-100%", "Nothing can be"),
        (f"{PEAK}<20ms", "write B/s"),
        ("all_reduce_latency_seconds.default.2>20GB/s", "write us, ms, s"),
        ("findings.problem>1s", "has no unit"),
        ("matmul_flops_per_second.0<5GB/s", "write GFLOP/s"),
    ],
)
def test_a_value_that_the_metric_cannot_be_set_against_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        parse(text)


@pytest.mark.parametrize(
    "metric",
    [
        "x",
        "nonsense_metric",
        "all_reduce_busbw.default.2",
        "all_reduce_busbw_peak_bytes_per_second.default",
        "all_reduce_busbw_peak_bytes_per_second.default.two",
        "all_reduce_busbw_peak_bytes_per_second.default.2.8",
        "allreduce_busbw_peak_bytes_per_second.*",
        "findings.problems",
        "findings.fatal*",
        "pair_copy_bytes_per_second.direct.0",
        "speedup.2",
        "*x" * 90,
    ],
)
def test_a_metric_that_no_run_can_have_is_refused_before_there_is_a_run(metric):
    with pytest.raises(UsageError, match="No run has a metric"):
        parse(f"{metric}<1")


@pytest.mark.parametrize(
    "metric",
    ["*", "*.gloo.2", "all_*_seconds.*.16.8", "findings.*", "pair_copy*min", "step_seconds.ddp.default.4", "speedup.tp.all_reduce.out.2"],
)
def test_a_metric_that_some_run_can_have_is_taken(metric):
    assert parse(f"{metric}<1").metric == metric


def test_every_metric_of_a_run_can_be_asked_for(judged):
    for name in as_metrics(judged):
        parse(f"{name}<1")


def test_an_unknown_metric_names_near_ones(judged):
    with pytest.raises(UsageError, match=PEAK.replace(".", r"\.")):
        holds("all_reduce_busbw_peak.default.2<5", judged)


def test_a_metric_without_an_expected_value_cannot_be_compared_with_one(judged):
    with pytest.raises(UsageError, match="nothing to compare"):
        holds("all_reduce_latency_seconds.default.2:-5%", judged)


def test_a_baseline_run_can_stand_for_what_is_expected():
    before, after = (as_metrics(run(box(2), wire(gigabytes=rate))) for rate in (20.0, 18.0))
    assert evaluate(parse(f"{PEAK}:-5%"), after, before).true
    assert not evaluate(parse(f"{PEAK}:-15%"), after, before).true


def test_the_metrics_of_a_run_have_the_documented_names():
    metrics = as_metrics(run(box(2), wire(), copy(0, 1, 20), copy(1, 0, 10, "staged"), compute(1, 100), *host_copies(25, 20)))
    assert {name: round(value / 1e9, 3) for name, value in metrics.items() if value > 1} == {
        PEAK: 20,
        "pair_copy_bytes_per_second.direct.0-1": 20,
        "pair_copy_bytes_per_second.direct.min": 20,
        "pair_copy_bytes_per_second.staged.1-0": 10,
        "pair_copy_bytes_per_second.staged.min": 10,
        "host_copy_bytes_per_second.0": 25,
        "host_copy_bytes_per_second.1": 20,
        "host_copy_bytes_per_second.min": 20,
        "matmul_flops_per_second.1": 100000,
        "matmul_flops_per_second.min": 100000,
    }
    assert metrics["findings.critical"] == 0.0
    assert metrics["all_reduce_latency_seconds.default.2"] == metrics["all_reduce_seconds.default.2.268435456"]


def test_what_was_not_measured_has_no_name():
    assert all(name.startswith("findings.") for name in as_metrics(run(None)))

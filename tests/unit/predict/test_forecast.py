import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import ddp_free, fsdp_free, profile, sweep, tp_free, wire
from recorded_h200x2 import measurements, truths
from recorded_h200x2 import profile as recorded_profile
from wiretax.errors import UsageError
from wiretax.model.measurement import Compute, Measurements
from wiretax.model.profile import MemoryPoint
from wiretax.model.reading import not_finite, unexplained
from wiretax.predict.contention import Contention
from wiretax.predict.forecast import predict
from wiretax.predict.options import STRATEGIES, Options
from wiretax.predict.wire_curve import Wire

MIB = 2**20


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_gpu_is_the_profile_itself(strategy):
    own = profile()

    forecast = predict(own, wire(1e9), strategy, 1).forecast

    micro_steps = 8 if strategy == "pp" else 1
    assert forecast.step_seconds.expected == pytest.approx(micro_steps * 0.030 + 0.002)
    assert forecast.efficiency_fraction == pytest.approx(1.0)
    assert forecast.wire_tax_fraction == pytest.approx(0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_gpus", [2, 4, 8])
def test_every_strategy_gives_a_whole_forecast(strategy, num_gpus):
    base = profile(host=0.5)
    own = profile(
        host=0.5,
        free_steps=[ddp_free(base=base), fsdp_free(base), tp_free(base)],
        memory=[MemoryPoint(strategy="none", batch_size=8, peak_bytes=10**9, at_rest_bytes=6 * 10**8)],
    )

    forecast = predict(own, wire(20e9), strategy, num_gpus).forecast

    step = forecast.step_seconds
    assert 0 < step.low <= step.expected <= step.high
    assert 0 < forecast.efficiency_fraction <= 1.05
    assert forecast.wire_tax_fraction == pytest.approx(1 - forecast.efficiency_fraction)
    assert forecast.speedup == pytest.approx(num_gpus * forecast.efficiency_fraction)
    assert forecast.peak_memory_bytes is not None
    assert forecast.fits is True
    assert not list(not_finite(forecast))
    assert not list(unexplained(forecast))


def test_the_same_inputs_give_the_same_forecast():
    own = profile(free_steps=[ddp_free()])

    assert predict(own, wire(5e9), "ddp", 4) == predict(own, wire(5e9), "ddp", 4)


def test_another_seed_moves_the_interval_and_not_what_to_expect():
    own = profile()

    first, second = (predict(own, wire(5e9), "ddp", 2, seed=seed).forecast.step_seconds for seed in (1, 2))

    assert first.expected == second.expected
    assert first.low != second.low
    assert first.high == pytest.approx(second.high, rel=0.03)


def test_what_was_not_measured_widens_the_interval_and_is_named():
    own = profile()
    here = predict(own, wire(5e9, world_size=8), "ddp", 8).forecast
    extrapolated = predict(own, wire(5e9, world_size=2), "ddp", 8).forecast

    def width(one):
        return (one.step_seconds.high - one.step_seconds.low) / one.step_seconds.expected

    assert width(extrapolated) > width(here)
    assert any("ring model" in note for note in extrapolated.assumptions)
    assert not any("ring model" in note for note in here.assumptions)


def test_a_strategy_that_was_not_profiled_is_less_sure():
    base = profile()
    profiled = profile(free_steps=[fsdp_free(base, host=1.2e-3)])

    sure, unsure = (predict(one, wire(1e12), "fsdp2", 2).forecast.step_seconds for one in (profiled, base))

    assert unsure.high / unsure.expected > sure.high / sure.expected


def test_contention_is_felt():
    own = profile()
    beside = Contention(compute=0.6, compute_low=0.5, compute_high=0.7)

    calm, disturbed = (predict(own, wire(12e9), "ddp", 2, **more).forecast.step_seconds for more in ({}, {"contention": beside}))

    assert disturbed.expected > calm.expected


def test_accumulation_raises_the_efficiency_of_ddp_and_leaves_that_of_fsdp():
    own = profile()

    ddp = [predict(own, wire(2e9), "ddp", 2, options=Options(accumulation_steps=k)).forecast.efficiency_fraction for k in (1, 4, 16)]
    fsdp = [predict(own, wire(2e9), "fsdp2", 2, options=Options(accumulation_steps=k)).forecast.efficiency_fraction for k in (1, 16)]

    assert ddp == sorted(ddp)
    assert ddp[2] > ddp[0] + 0.2
    assert fsdp[1] == pytest.approx(fsdp[0], abs=0.05)


def test_a_larger_batch_hides_more_of_the_wire():
    own = profile()

    taxes = [predict(own, wire(5e9), "ddp", 2, batch_size=batch).forecast.wire_tax_fraction for batch in (4, 8, 32)]

    assert taxes == sorted(taxes, reverse=True)


def test_a_slow_input_pipeline_sets_the_length_of_the_step():
    forecast = predict(profile(input_seconds=0.5), wire(10e9), "ddp", 2).forecast

    assert forecast.step_seconds.expected == pytest.approx(0.5)
    assert forecast.efficiency_fraction == pytest.approx(1.0)
    assert any("input pipeline" in note for note in forecast.assumptions)


def test_a_profile_of_another_gpu_is_scaled_and_warned_about():
    forecast = predict(
        profile(),
        wire(10e9),
        "ddp",
        2,
        gpus=[Compute(gpu=0, rank=0, together=True, matmul_flops_per_second=0.5e14, memory_bytes_per_second=0.5e12)],
    ).forecast

    assert forecast.step_seconds.expected > 1.8 * 0.032
    assert any("other speed" in note for note in forecast.assumptions)


def test_tensor_parallel_groups_have_to_divide_the_gpus():
    with pytest.raises(UsageError, match="groups of 2"):
        predict(profile(), wire(10e9), "tp_ddp", 3)


@pytest.mark.parametrize("wrong", [{"num_gpus": 0}, {"strategy": "magic"}])
def test_impossible_questions_are_refused(wrong):
    with pytest.raises(UsageError):
        predict(profile(), wire(1e9), wrong.get("strategy", "ddp"), wrong.get("num_gpus", 2))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(STRATEGIES), st.integers(2, 16), st.floats(2e8, 1e12))
def test_a_wire_never_makes_a_step_shorter_than_without_one(strategy, num_gpus, busbw):
    if strategy == "tp_ddp":
        num_gpus -= num_gpus % 2
    own = profile(host=0.3)

    slow, free = (predict(own, wire(rate), strategy, num_gpus).forecast.step_seconds.expected for rate in (busbw, 1e18))

    assert slow >= free * (1 - 1e-9)


def test_forty_questions_take_less_than_a_second_each_and_two_hundred_and_forty_less_than_ten():
    own = recorded_profile("gpt1.7b", 4, 2)
    found = Wire.measured(measurements("shm", 2), "shm")

    start = time.process_time()
    for strategy in ("ddp", "fsdp2", "fsdp2_grad_op", "hsdp"):
        for num_gpus in (2, 8):
            for batch in (1, 4, 16):
                before = time.process_time()
                predict(own, found, strategy, num_gpus, batch_size=batch)
                assert time.process_time() - before < 1.0
    assert (time.process_time() - start) / 24 * 240 < 10.0


@pytest.fixture(scope="module")
def replayed():
    """Every recorded launch as (truth, forecast)."""
    from recorded_h200x2 import MULTIPROCESSORS, channels
    from wiretax.predict.contention import contention

    found = []
    for truth in truths():
        measured = measurements(truth.wire, truth.launch)
        beside = contention(measured.overlap, truth.wire, 2, channels=channels(truth.wire), multiprocessors=MULTIPROCESSORS)
        own = recorded_profile(truth.workload, truth.batch_size, truth.launch)
        found.append((truth, predict(own, Wire.measured(measured, truth.wire), truth.strategy, 2, contention=beside)))
    return found


def errors(pairs):
    return [abs(one.forecast.step_seconds.expected / truth.step_seconds - 1) for truth, one in pairs]


@pytest.mark.parametrize("launch", [1, None])
def test_recorded_ddp_steps_over_nccl_are_predicted_within_4_percent_in_the_mean(replayed, launch):
    rows = [(truth, one) for truth, one in replayed if truth.strategy == "ddp" and truth.wire != "gloo" and launch in (None, truth.launch)]

    found = errors(rows)

    assert len(rows) == (11 if launch == 1 else 30)
    assert sum(found) / len(found) <= 0.04


def test_recorded_fsdp_steps_over_slow_wires_are_predicted_within_6_percent(replayed):
    rows = [pair for pair in replayed if pair[0].strategy == "fsdp2" and pair[0].workload == "gpt1.7b" and pair[0].wire in ("shm", "net")]

    assert len(rows) == 5
    assert max(errors(rows)) <= 0.06


def test_nine_of_ten_recorded_cases_lie_inside_their_interval(replayed):
    from statistics import median

    cases: dict[tuple, list] = {}
    for truth, one in replayed:
        if truth.wire != "gloo":
            cases.setdefault(truth.case, []).append((truth.step_seconds, one.forecast.step_seconds))
    inside = [
        median(step.low for _, step in group) <= median(seconds for seconds, _ in group) <= median(step.high for _, step in group)
        for group in cases.values()
    ]

    assert len(inside) == 16
    assert sum(inside) / len(inside) >= 0.9


def test_the_recorded_verdict_is_never_wrong_ten_points_from_the_threshold(replayed):
    for truth, one in replayed:
        bare = recorded_profile(truth.workload, truth.batch_size, truth.launch).bare.step.seconds
        measured = bare / truth.step_seconds
        if abs(measured - 0.5) > 0.10 and truth.strategy == "ddp":
            assert (one.forecast.efficiency_fraction > 0.5) == (measured > 0.5)


def test_a_wire_with_all_reduces_only_predicts_sharding_by_assumption():
    found = Wire.measured(Measurements(collectives=(sweep("all_reduce", 2, [(1024, 2e-5), (2**30, 0.1)]),)), "default")

    forecast = predict(profile(), found, "fsdp2", 2).forecast

    assert any("busbw of all_reduce" in note for note in forecast.assumptions)


def test_a_batch_of_another_size_than_profiled_is_named():
    own = replace(profile(), memory=())

    forecast = predict(own, wire(1e10), "ddp", 2, batch_size=32).forecast

    assert forecast.batch_per_gpu == 32
    assert any("grows with the batch" in note for note in forecast.assumptions)


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "fsdp2", "fsdp2_grad_op", "hsdp", "tp"])
def test_accumulation_never_exposes_more_of_the_wire_nor_takes_longer_a_sample(strategy):
    for own in (profile(host=0.7), profile(host=1.5, num_blocks=8, block_bytes=2 * 2**20)):
        found = [predict(own, wire(5e9), strategy, 4, options=Options(accumulation_steps=steps)).forecast for steps in (1, 2, 4, 8)]
        exposed = [one.exposed_communication_seconds.expected / steps for one, steps in zip(found, (1, 2, 4, 8), strict=True)]
        whole = [one.step_seconds.expected / steps for one, steps in zip(found, (1, 2, 4, 8), strict=True)]
        assert all(after <= before * 1.001 + 1e-9 for values in (exposed, whole) for before, after in pairwise(values))
    if strategy.startswith("fsdp2"):
        assert exposed[3] == pytest.approx(exposed[0])  # every micro-step gathers and reduces again


def test_sharding_does_not_issue_a_launch_bound_step_faster_than_one_gpu_does():
    own = profile(host=1.5, num_blocks=8, block_bytes=2 * 2**20)  # the host sets the step's length, and FSDP was not profiled
    assert predict(own, wire(4e11), "fsdp2", 2).forecast.efficiency_fraction < 1.05

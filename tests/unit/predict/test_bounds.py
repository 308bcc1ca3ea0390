from dataclasses import replace

import pytest

import recording
from boxes import box, compute, run, wire
from wiretax.model.reading import unexplained
from wiretax.predict.bounds import GRADIENT_BYTES, bounds

SECONDS = {"layer_seconds": 3e-3, "head_seconds": 1e-2, "memory_bytes_per_second": 2e12}


def of(forecasts, wire_name, num_gpus=2):
    return next(f for f in forecasts if (f.wire, f.num_gpus) == (wire_name, num_gpus))


@pytest.mark.parametrize("launch", ["", "launch2_"])
@pytest.mark.parametrize("wire_name", ["default", "p2p_off", "socket"])
def test_the_recorded_truth_lies_between_the_bounds(launch, wire_name):
    step = of(bounds(recording.run(launch)), wire_name).step_seconds
    truth = recording.training_truth(wire_name, launch)
    assert step.low < truth < step.high, (step, truth)


def test_the_recorded_truth_over_gloo_lies_between_the_bounds_too():
    step = of(bounds(recording.run()), "gloo").step_seconds
    assert step.low < recording.training_truth("gloo") < step.high


@pytest.mark.parametrize("launch", ["", "launch2_"])
def test_one_recorded_gpu_lies_between_its_bounds(launch):
    step = of(bounds(recording.run(launch)), "none", 1).step_seconds
    assert step.low < recording.single_gpu_step(launch)["step_ms"] * 1e-3 < step.high


def test_the_recorded_speedup_through_host_memory_is_about_1():
    forecast = of(bounds(recording.run()), "p2p_off")
    assert forecast.speedup == pytest.approx(1.07, abs=0.05)
    assert forecast.wire_tax_fraction == pytest.approx(1 - forecast.efficiency_fraction)
    assert "no overlap" in forecast.assumptions[0] and "perfect overlap" in forecast.assumptions[0]


def test_no_overlap_adds_the_whole_exchange_and_perfect_overlap_hides_it():
    machine = run(box(2), compute(0, **SECONDS), wire(gigabytes=100.0, num_bytes=25 * 2**20))
    single, both = bounds(machine)
    assert both.step_seconds.high == pytest.approx(single.step_seconds.high + GRADIENT_BYTES / 100e9)
    assert both.step_seconds.low == single.step_seconds.low


def test_the_exchange_of_four_gpus_moves_one_and_a_half_times_as_much():
    machine = run(box(4), compute(0, **SECONDS), *(wire(gigabytes=1.0, world=n, num_bytes=25 * 2**20) for n in (2, 4)))
    found = bounds(machine)
    assert of(found, "default", 4).step_seconds.low == pytest.approx(1.5 * of(found, "default", 2).step_seconds.low)


def test_the_slowest_gpu_decides():
    slow = {**SECONDS, "layer_seconds": 6e-3}
    fast, mixed = (bounds(run(box(2), compute(0, **SECONDS), compute(1, **other), wire())) for other in (SECONDS, slow))
    assert mixed[0].step_seconds.low > 1.5 * fast[0].step_seconds.low


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ([wire()], "layer"),
        ([wire(), compute(0, layer_seconds=3e-3, head_seconds=1e-2)], "memory"),
        ([wire(num_bytes=1024), compute(0, **SECONDS)], "bucket"),
        ([wire("gloo", backend="gloo", kind=None, gpus=()), compute(0, **SECONDS)], "CPU ranks"),
    ],
)
def test_a_missing_input_leaves_null_and_its_reason(measured, reason):
    forecast = bounds(run(box(2), *measured))[-1]
    assert forecast.step_seconds is None and forecast.speedup is None
    assert reason in forecast.missing["step_seconds"]
    assert list(unexplained(forecast)) == []


def test_without_an_all_reduce_of_two_ranks_there_is_no_forecast():
    assert bounds(run(box(2), compute(0, **SECONDS))) == ()
    assert bounds(run(box(2), wire(world=1, gpus=(0,)), wire(operation="all_gather"))) == ()


def test_every_forecast_says_that_it_is_no_prediction():
    recorded = recording.run()
    together = [f for f in bounds(recorded) if f.num_gpus > 1]
    assert together and all("not a prediction" in f.assumptions[0] for f in together)
    assert all(list(unexplained(f)) == [] for f in bounds(replace(recorded)))

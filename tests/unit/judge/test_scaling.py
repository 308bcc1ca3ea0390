"""How many GPUs pay: from forecasts with their ranges, and from real steps."""

import pytest

from wiretax.judge.scaling import Speedup, measured_verdict, predicted_verdict, worth_using
from wiretax.model.forecast import Forecast, Interval
from wiretax.model.training import StepTiming


def forecast(num_gpus, speedup, spread=0.0, strategy="ddp", fits=None):
    step = num_gpus / speedup
    return Forecast(
        strategy=strategy,
        num_gpus=num_gpus,
        wire="default",
        workload="w",
        step_seconds=Interval(low=step * (1 - spread), expected=step, high=step * (1 + spread)),
        speedup=speedup,
        efficiency_fraction=speedup / num_gpus,
        batch_per_gpu=4,
        fits=fits,
    )


def step(num_gpus, speedup, strategy="ddp"):
    return StepTiming(
        strategy=strategy,
        num_gpus=num_gpus,
        wire="default",
        workload="w",
        batch_per_gpu=4,
        step_seconds=num_gpus / speedup,
        samples_per_second=4 * speedup,
        efficiency_fraction=speedup / num_gpus,
    )


ALONE = forecast(1, 1.0)


@pytest.mark.parametrize(
    ("speedups", "decision", "num_gpus"),
    [
        ({2: 1.9, 4: 3.6}, "use_all", 4),
        ({2: 1.7, 4: 1.9}, "use_fewer", 2),
        ({2: 0.3, 4: 0.9}, "use_one", 1),
        ({2: 1.1, 4: 1.15}, "use_one", 1),
        ({2: 0.5, 4: 1.5}, "use_all", 4),
    ],
)
def test_gpus_are_worth_it_where_they_do_a_fifth_more_than_fewer(speedups, decision, num_gpus):
    found = predicted_verdict([ALONE, *(forecast(count, factor) for count, factor in speedups.items())])
    assert (found.decision, found.num_gpus) == (decision, num_gpus)
    measured = measured_verdict([step(count, factor) for count, factor in speedups.items()], on_gpus=True)
    assert (measured.decision, measured.num_gpus) == (decision, num_gpus)


def test_one_gpu_is_said_firmly_only_where_the_whole_range_is_below_the_threshold():
    assert predicted_verdict([ALONE, forecast(2, 0.9, spread=0.1)]).sentence.startswith("Do not scale here")
    assert predicted_verdict([ALONE, forecast(2, 1.1, spread=0.2)]).sentence.startswith("One GPU is probably the better deal")


@pytest.mark.parametrize("true_speedup", [1.4, 1.6, 1.9])
def test_do_not_scale_is_never_said_ten_points_of_efficiency_above_the_threshold(true_speedup):
    for error in (-0.06, 0.0, 0.06):
        found = predicted_verdict([ALONE, forecast(2, true_speedup * (1 + error), spread=0.08)])
        assert found.decision == "use_all"


def test_the_best_strategy_is_named_and_one_that_does_not_fit_is_left_out():
    found = predicted_verdict([ALONE, forecast(2, 1.5), forecast(2, 1.8, strategy="fsdp2"), forecast(2, 1.95, strategy="tp", fits=False)])
    assert "fsdp2 over default" in found.sentence and "10 %" in found.sentence


def test_nothing_is_concluded_without_a_step_on_several_gpus():
    assert predicted_verdict([ALONE]) is None
    assert predicted_verdict([]) is None
    assert measured_verdict([step(1, 1.0)], on_gpus=True) is None


def test_cpu_ranks_say_nothing_about_gpus():
    found = measured_verdict([step(1, 1.0), step(2, 1.6)], on_gpus=False)
    assert (found.decision, found.num_gpus) == ("cannot_judge", None)
    assert "2 CPU ranks trained 1.60x as fast as one (ddp over default)" in found.sentence
    assert set(found.missing) == {"num_gpus", "keep_box"}


def test_a_larger_number_must_beat_the_smaller_one_that_was_chosen():
    def at(count, factor):
        return Speedup(num_gpus=count, strategy="ddp", wire="w", low=factor, expected=factor, high=factor)

    assert worth_using([at(2, 1.9), at(4, 2.0), at(8, 2.5)]).num_gpus == 8
    assert worth_using([at(2, 1.9), at(4, 2.0), at(8, 2.2)]).num_gpus == 2
    assert worth_using([at(2, 1.0)]) is None

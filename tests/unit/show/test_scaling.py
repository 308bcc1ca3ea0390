"""Really trained steps in tables, and predicted beside measured."""

from dataclasses import replace
from pathlib import Path

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.run import Run, Tool
from wiretax.model.training import Phases, StepTiming, Training
from wiretax.show.scaling import predicted_beside_measured
from wiretax.show.terminal import as_text
from wiretax.store.folder import load_run

RUN = Run(run_id="r", created_at="2026-11-30T00:00:00+00:00", tool=Tool(version="0"), command="scale", missing={"machine": "none"})


def step(num_gpus, strategy="ddp", seconds=0.1, efficiency=0.8, **changes):
    given = {"wire": "default" if num_gpus > 1 else "none", "batch_per_gpu": 4, "workload": "gpt1.7b"}
    given |= {"phases": Phases(forward=0.03, backward=0.06, optimizer=0.01, exposed_communication=0.0123 if num_gpus > 1 else None)}
    return StepTiming(
        strategy=strategy,
        num_gpus=num_gpus,
        step_seconds=seconds,
        samples_seconds=(seconds * 0.9, seconds, seconds * 1.1),
        samples_per_second=num_gpus * 4 / seconds,
        efficiency_fraction=1.0 if num_gpus == 1 else efficiency,
        **{**given, **changes},
    )


def forecast(num_gpus, expected, strategy="ddp", **changes):
    given = {"wire": "default", "workload": "gpt1.7b", "batch_per_gpu": 4}
    return Forecast(
        strategy=strategy,
        num_gpus=num_gpus,
        step_seconds=Interval(low=expected * 0.9, expected=expected, high=expected * 1.1),
        **{**given, **changes},
    )


def shown(steps, forecasts=()):
    return as_text(replace(RUN, training=Training(steps=tuple(steps)), forecasts=tuple(forecasts)), 80)


def rows(text, title):
    return [line.split() for line in text.partition(title)[2].partition("\n\n")[0].splitlines()]


def test_the_table_of_scaling_has_throughput_speed_up_and_efficiency():
    text = shown([step(1), step(2), step(4, efficiency=0.2)])
    found = rows(text, "Scaling")
    assert ["2", "ddp", "100.0", "ms", "±10", "%", "80.0", "1.60", "\u00d7", "80", "%", "20", "%"] in found
    assert ["4", "ddp", "100.0", "ms", "±10", "%", "160", "0.80", "\u00d7", "20", "%", "80", "%"] in found
    assert ["1", "\u2013", "100.0", "ms", "±10", "%", "40.0", "\u2013", "100", "%", "\u2013"] in found


def test_where_the_time_goes_has_the_phases_and_the_wait():
    found = rows(shown([step(1), step(2)]), "Where the time goes")
    assert ["2", "ddp", "30.0", "ms", "60.0", "ms", "10.0", "ms", "12.3", "ms"] in found
    assert ["1", "\u2013", "30.0", "ms", "60.0", "ms", "10.0", "ms", "\u2013"] in found


def test_predicted_stands_beside_measured_with_its_error_and_whether_the_range_held():
    text = shown([step(1), step(2), step(4, seconds=0.2)], [forecast(2, 0.104), forecast(4, 0.1)])
    found = rows(text, "Predicted beside measured")
    assert ["2", "ddp", "93.6", "ms", "104.0", "ms", "114.4", "ms", "100.0", "ms", "+4.0", "%", "✓"] in found
    assert ["4", "ddp", "90.0", "ms", "100.0", "ms", "110.0", "ms", "200.0", "ms", "-50.0", "%", "✗"] in found
    assert "error 27 % in the mean, 50 % at worst; 1 of 2 inside their range" in text


def test_memory_is_compared_where_it_was_predicted_and_measured():
    peak = Interval(low=2.0**30, expected=2.0**31, high=2.0**32)
    text = shown([step(1), step(2, peak_memory_bytes=2**31)], [forecast(2, 0.1, peak_memory_bytes=peak)])
    assert ["2", "ddp", "1", "GiB", "2", "GiB", "4", "GiB", "2", "GiB", "+0.0", "%", "✓"] in rows(text, "Predicted beside measured")
    assert "memory: low" not in shown([step(2)], [forecast(2, 0.1)])


def test_a_step_finds_only_the_forecast_of_its_own_configuration():
    steps = (step(2), step(2, "fsdp2"), step(2, wire="socket"), step(2, batch_per_gpu=16))
    run = replace(RUN, training=Training(steps=steps), forecasts=(forecast(2, 0.1),))
    assert [(one, other) for one, other in predicted_beside_measured(run)] == [(run.forecasts[0], steps[0])]


def test_what_was_not_predicted_or_has_no_base_is_shown_all_the_same():
    text = shown([step(2, efficiency=None, missing={"efficiency_fraction": "one GPU was not trained"}, phases=None)])
    assert "Predicted beside measured" not in text
    assert ["2", "ddp", "100.0", "ms", "±10", "%", "80.0", "\u2013", "\u2013", "\u2013"] in rows(text, "Scaling")


def test_nothing_trained_shows_no_table():
    assert "Scaling" not in shown([])


def test_cpu_ranks_are_nowhere_called_gpus():
    run = load_run(Path(__file__).parents[3] / "benchmarks" / "results" / "scale_cpu.json")
    tables = as_text(run, 100).partition("Scaling")[2].partition("Findings")[0]
    assert "ranks" in tables
    assert "GPU" not in tables

import json
import sys
from pathlib import Path

import msgspec
import pytest

from profiles import ddp_free, profile, sweep
from wiretax.model.measurement import Measurements
from wiretax.model.run import Run, Tool
from wiretax.model.training import StepTiming, Training
from wiretax.store.codec import encode

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import predict_measured

    return predict_measured


def run(number: int, seconds: float, *, workload: str = "made up", batch: int = 8, micro_steps: int = 1, world_sizes=(2,)) -> Run:
    timing = StepTiming(
        strategy="ddp",
        num_gpus=max(world_sizes),
        wire="default",
        workload=workload,
        batch_per_gpu=batch,
        accumulation_steps=micro_steps,
        step_seconds=seconds,
        samples_per_second=16 / seconds,
        missing={"efficiency_fraction": "made up", "peak_memory_bytes": "made up"},
    )
    sizes = [(2**power, 1e-5 + 2**power / 5e9) for power in range(10, 30)]
    return Run(
        run_id=f"r{number}",
        created_at="2026-11-30T00:00:00Z",
        tool=Tool(version="0"),
        measurements=Measurements(collectives=tuple(sweep("all_reduce", count, sizes) for count in world_sizes)),
        training=Training(steps=(timing,)),
        missing={"machine": "made up"},
    )


def call(benchmark, monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["predict_measured.py", *map(str, arguments)])
    return benchmark.main()


def test_three_launches_become_one_case_with_their_spread(benchmark, monkeypatch, tmp_path):
    (tmp_path / "profiles").mkdir()
    own = profile(free_steps=[ddp_free()])
    (tmp_path / "profiles" / "made_up_b8.json").write_bytes(msgspec.json.encode(own))
    files = []
    for number, seconds in enumerate((0.060, 0.062, 0.066)):
        files.append(tmp_path / f"run{number}.json")
        files[-1].write_bytes(encode(run(number, seconds)))

    code = call(benchmark, monkeypatch, *files, "--profiles", tmp_path / "profiles", "--write", tmp_path / "out.json")

    (case,) = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert code == 0
    assert case["measured_seconds"] == 0.062
    assert case["measured_spread_fraction"] == pytest.approx(0.006 / 0.062)
    assert case["launches"] == 3
    assert case["held_out"] is True
    assert case["low_seconds"] <= case["predicted_seconds"] <= case["high_seconds"]


def test_a_step_without_a_profile_is_left_out_by_name(benchmark, monkeypatch, tmp_path, capsys):
    file = tmp_path / "run.json"
    file.write_bytes(encode(run(0, 0.06, workload="unknown")))

    assert call(benchmark, monkeypatch, file) == 1
    assert "unknown: no profile" in capsys.readouterr().err


def test_accumulated_steps_are_a_workload_of_their_own_at_the_batch_that_was_trained(benchmark, monkeypatch, tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "made_up_b8.json").write_bytes(msgspec.json.encode(profile(free_steps=[ddp_free()])))
    files = []
    for micro_steps in (1, 4):
        files.append(tmp_path / f"run{micro_steps}.json")
        files[-1].write_bytes(encode(run(micro_steps, 0.06, batch=16, micro_steps=micro_steps)))

    call(benchmark, monkeypatch, *files, "--profiles", tmp_path / "profiles", "--write", tmp_path / "out.json")

    one, four = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert (one["workload"], four["workload"]) == ("made up", "made up x4")
    assert one["batch_per_gpu"] == 16
    assert four["predicted_seconds"] == pytest.approx(one["predicted_seconds"] + 3 * 2 * 0.030, rel=0.05)


def test_the_wire_between_two_alone_leaves_the_model_to_say_what_four_do(benchmark, monkeypatch, tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "made_up_b8.json").write_bytes(msgspec.json.encode(profile(free_steps=[ddp_free()])))
    file = tmp_path / "run.json"
    file.write_bytes(encode(run(0, 0.2, world_sizes=(2, 4))))
    widths = []
    for more in ([], ["--wire-up-to", 2]):
        call(benchmark, monkeypatch, file, "--profiles", tmp_path / "profiles", "--write", tmp_path / "out.json", *more)
        (case,) = json.loads((tmp_path / "out.json").read_text())["cases"]
        assert case["num_gpus"] == 4
        widths.append(case["high_seconds"] / case["low_seconds"])

    assert widths[1] > widths[0]

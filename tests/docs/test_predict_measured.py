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


def run(number: int, seconds: float, *, workload: str = "made up", batch: int = 8) -> Run:
    timing = StepTiming(
        strategy="ddp",
        num_gpus=2,
        wire="default",
        workload=workload,
        batch_per_gpu=batch,
        step_seconds=seconds,
        samples_per_second=16 / seconds,
        missing={"efficiency_fraction": "made up", "peak_memory_bytes": "made up"},
    )
    sizes = [(2**power, 1e-5 + 2**power / 5e9) for power in range(10, 30)]
    return Run(
        run_id=f"r{number}",
        created_at="2026-11-30T00:00:00Z",
        tool=Tool(version="0"),
        measurements=Measurements(collectives=(sweep("all_reduce", 2, sizes),)),
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
    assert "unknown at batch 8: no profile" in capsys.readouterr().err

"""What is committed of the recorded pair is what the predictor says today, and it reaches what it must."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"


@pytest.fixture(scope="module")
def benchmarks() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    import predict_memory
    import predict_recording

    yield predict_recording, predict_memory
    sys.path.remove(str(BENCHMARKS))


def committed(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))["cases"]


def flat(case: dict[str, Any]) -> dict[str, Any]:
    """Baselines beside the other fields; floats compared by six digits."""
    fields = {**case, **case["baselines"], "baselines": None}
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in fields.items()}


@pytest.mark.parametrize(
    ("name", "profiles"), [("prediction_recording.json", None), ("prediction_recording_elsewhere.json", RESULTS / "h200")]
)
def test_the_committed_cases_are_what_the_predictor_says_today(
    benchmarks: tuple[ModuleType, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, profiles: Path | None
) -> None:
    recording, _ = benchmarks
    arguments = ["--write", str(tmp_path / "found.json"), *(["--profiles", str(profiles)] if profiles else [])]
    monkeypatch.setattr(sys, "argv", ["predict_recording.py", *arguments])

    code = recording.main()

    found = json.loads((tmp_path / "found.json").read_text())["cases"]
    assert len(found) == len(committed(name)) == 19
    assert list(map(flat, found)) == list(map(flat, committed(name)))
    assert code == (0 if profiles is None else 1), "from the pair's own recordings every target is reached"


def test_the_recorded_pair_is_predicted_from_another_gpus_profiles_within_4_percent(benchmarks: tuple[ModuleType, ModuleType]) -> None:
    recording, _ = benchmarks
    grouped = recording.groups(committed("prediction_recording_elsewhere.json"))

    assert recording.summary(grouped["DDP over NCCL"])["mean"] <= 0.04
    assert recording.summary(grouped["FSDP2, large model, slow wires"])["mean"] <= 0.06


def test_memory_lies_inside_its_interval_and_close_where_launches_agree(benchmarks: tuple[ModuleType, ModuleType]) -> None:
    _, memory = benchmarks
    found = memory.cases()

    assert found == committed("memory_recording.json")
    assert all(map(memory.right, found))

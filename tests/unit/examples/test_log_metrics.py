"""The examples for trackers, run against stand-ins that record what they are given."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

import sample_runs
from loading import load
from wiretax import as_metrics
from wiretax.store.folder import save_run


class Recorder:
    """Writes down every call, and is a context of itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.summary: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: self.calls.append((name, (*arguments, *more.values()))) or self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    return str(save_run(sample_runs.four_4090(), tmp_path / "run.json"))


METRICS = as_metrics(sample_runs.four_4090())


def test_tensorboard_gets_every_metric_and_the_verdict(run_file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    writer = Recorder()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=lambda folder: writer))
    load("examples/log_metrics_tensorboard.py").main(run_file, str(tmp_path))
    logged = dict(writer.called("add_scalar"))
    assert {name.replace("/", ".", 1): value for name, value in logged.items()} == METRICS
    assert "slower than one" in writer.called("add_text")[0][1]


def test_mlflow_gets_metrics_parameters_and_the_page(run_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    load("examples/log_metrics_mlflow.py").main(run_file)
    assert tracker.called("log_metrics")[0][0] == METRICS
    assert tracker.called("log_params")[0][0]["gpus"].count("RTX 4090") == 4
    assert tracker.called("log_artifact")[0][0].endswith("report.html")


def test_wandb_gets_a_summary_and_a_configuration(run_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Recorder()
    seen: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **more: seen.update(more) or logged))
    load("examples/log_metrics_wandb.py").main(run_file)
    assert METRICS.items() <= logged.summary.items()
    assert seen["config"]["driver"] == "570.86.10"

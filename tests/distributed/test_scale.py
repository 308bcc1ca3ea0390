"""`wiretax profile` and `wiretax scale` from outside, on CPU ranks: whole runs, users' mistakes, ranks that die or stop."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from wiretax.model.reading import REASON_NOT_RECORDED
from wiretax.show.terminal import as_text
from wiretax.store.folder import load_run
from wiretax.store.schema import published

pytestmark = pytest.mark.ranks

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def wiretax(home, *arguments, folder=HERE, seconds=200, interrupt_after=None):
    """Exit code, document, stderr and seconds; nothing of it is left running."""
    environment = {**os.environ, "WIRETAX_HOME": str(home), "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "wiretax", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    if interrupt_after is not None:
        lines = []
        for line in process.stderr:
            lines.append(line.decode())
            if interrupt_after in lines[-1]:
                os.kill(process.pid, signal.SIGINT)
                break
    stdout, stderr = process.communicate(timeout=seconds)
    took = time.monotonic() - began
    left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if f"WIRETAX_HOME={home}".encode() in _environment(pid)]
    assert left == []
    return process.returncode, json.loads(stdout) if stdout else None, stderr.decode(), took


def _environment(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def codes(document):
    return {finding["code"] for finding in document["findings"]}


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    home = tmp_path_factory.mktemp("scaled")
    options = [
        "--gpus",
        "1,2",
        "--device",
        "cpu",
        "--preset",
        "gpt-tiny",
        "--strategy",
        "ddp,NO_SHARD,FULL_SHARD",
        "--steps",
        "6",
        "--budget",
        "150s",
    ]
    return *wiretax(home, "scale", *options, "--json"), home


def test_scale_trains_profiles_and_predicts_in_one_valid_document(scaled):
    code, document, stderr, took, _ = scaled
    assert code == 0, stderr
    jsonschema.Draft202012Validator(json.loads(published())).validate(document)
    assert REASON_NOT_RECORDED not in json.dumps(document)
    assert "Traceback" not in stderr
    assert document["outcome"]["status"] == "complete" and took < 150
    steps = {(one["strategy"], one["num_gpus"]): one for one in document["training"]["steps"]}
    assert set(steps) == {("none", 1), ("ddp", 2), ("fsdp2", 2)}
    for (_, count), one in steps.items():
        assert one["efficiency_fraction"] == pytest.approx(one["samples_per_second"] / count / steps["none", 1]["samples_per_second"])
        assert one["phases"]["backward"] > 0
    assert {(one["strategy"], one["num_gpus"], one["wire"]) for one in document["forecasts"]} == {("ddp", 2, "gloo"), ("fsdp2", 2, "gloo")}
    (profile,) = document["training"]["profiles"]
    assert {one["strategy"] for one in profile["free_steps"]} == {"ddp", "fsdp2"}
    assert {one["operation"] for one in document["measurements"]["collectives"]} == {"all_reduce", "all_gather", "reduce_scatter"}


def test_the_saved_run_is_shown_with_predicted_beside_measured_and_predicts_on(scaled):
    _, document, _, _, home = scaled
    path = next((home / "runs").glob("*.json"))
    assert json.loads(path.read_text())["run_id"] == document["run_id"]
    shown = as_text(load_run(path))
    for words in ("Scaling", "efficiency", "Where the time goes", "Predicted beside measured", "error"):
        assert words in shown
    code, predicted, stderr, _ = wiretax(home, "predict", "--wire", str(path), "--gpus", "2,4", "--strategy", "ddp,fsdp2", "--json")
    assert code == 0, stderr
    assert {(one["strategy"], one["num_gpus"]) for one in predicted["forecasts"]} == {
        ("ddp", 1),
        ("ddp", 2),
        ("ddp", 4),
        ("fsdp2", 2),
        ("fsdp2", 4),
    }


def test_the_documented_example_is_profiled_and_predicted(tmp_path):
    out = tmp_path / "profile.json"
    code, document, stderr, _ = wiretax(
        tmp_path,
        "profile",
        "--step",
        "own_training:step",
        "--batch",
        "32",
        "--strategy",
        "ddp,fsdp2",
        "--out",
        str(out),
        "--json",
        folder=EXAMPLES,
    )
    assert code == 0, stderr
    (profile,) = document["training"]["profiles"]
    assert profile["workload"]["name"] == "own_training:step" and len(profile["segments"]) == 8
    assert {one["strategy"] for one in profile["free_steps"]} == {"ddp", "fsdp2"}
    code, predicted, stderr, _ = wiretax(
        tmp_path, "predict", "--profile", str(out), "--busbw", "1GB/s", "--strategy", "ddp,fsdp2", "--gpus", "2,4,8", "--json"
    )
    assert code == 0, stderr
    assert len(predicted["forecasts"]) == 7
    assert all(
        one["step_seconds"]["low"] <= one["step_seconds"]["expected"] <= one["step_seconds"]["high"] for one in predicted["forecasts"]
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_steps:raises", ["The loss function raised", "own_steps.py, line", "do: Call loss(model, make_batch(2))"]),
        ("own_steps:not_scalar", ["The loss has", "elements", "do: Return loss.mean() or loss.sum()"]),
        ("own_steps:nowhere", ["has no function 'nowhere'"]),
        ("not_there:step", ["There is no module 'not_there'"]),
    ],
)
def test_a_mistake_in_the_users_step_is_exit_2_in_words(tmp_path, name, words):
    code, document, stderr, _ = wiretax(tmp_path, "profile", "--step", name, "--batch", "2", "--device", "cpu", "--json")
    assert code == 2, stderr
    assert document is None and "Traceback" not in stderr
    for word in words:
        assert word in stderr


def test_scale_stops_at_once_on_a_step_that_cannot_be_trained(tmp_path):
    code, document, stderr, _ = wiretax(
        tmp_path, "scale", "--step", "own_steps:not_scalar", "--batch", "2", "--gpus", "1,2", "--device", "cpu", "--json"
    )
    assert code == 2 and document is None
    assert "The loss has" in stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_steps:depends_on_data", "depends on the batch"),
        ("own_steps:unused", "2 trainable parameters get no gradient (spare.weight, spare.bias)"),
    ],
)
def test_what_makes_a_prediction_unsure_is_a_note_and_not_a_failure(tmp_path, name, words):
    code, document, stderr, _ = wiretax(
        tmp_path, "profile", "--step", name, "--batch", "2", "--device", "cpu", "--strategy", "ddp", "--json"
    )
    assert code == 0, stderr
    (profile,) = document["training"]["profiles"]
    assert any(words in note for note in profile["notes"])
    assert [one["strategy"] for one in profile["free_steps"]] == ["ddp"]


@pytest.mark.parametrize("name", ["own_steps:depends_on_data", "own_steps:unused"])
def test_a_step_whose_parameters_are_not_all_used_is_trained_under_ddp_all_the_same(tmp_path, name):
    options = ["--step", name, "--batch", "2", "--gpus", "1,2", "--device", "cpu", "--strategy", "ddp", "--steps", "5", "--budget", "100s"]
    code, document, stderr, _ = wiretax(tmp_path, "scale", *options, "--json")
    assert code == 0, stderr
    assert [(one["strategy"], one["num_gpus"]) for one in document["training"]["steps"]] == [("none", 1), ("ddp", 2)]


def test_running_out_of_memory_is_exit_3_and_says_what_fits(tmp_path):
    code, document, stderr, _ = wiretax(tmp_path, "profile", "--step", "own_steps:too_large", "--batch", "16", "--device", "cpu", "--json")
    assert code == 3, stderr
    assert document["outcome"]["status"] == "failed"
    assert "out of memory at batch 16" in document["outcome"]["reason"] and "A batch of 4 would fit" in document["outcome"]["reason"]
    assert document["training"]["profiles"] == []


def test_a_rank_that_dies_while_training_costs_only_its_configuration(tmp_path):
    options = ["--step", "own_steps:dies", "--batch", "1", "--gpus", "1,2", "--device", "cpu", "--steps", "5", "--budget", "100s", "--json"]
    code, document, stderr, _ = wiretax(tmp_path, "scale", *options)
    assert code == 3, stderr
    assert "rank-died" in codes(document)
    (incident,) = [one for one in document["measurements"]["incidents"] if one["kind"] == "rank_died"]
    assert (incident["rank"], incident["signal"], incident["stage"]) == (1, signal.SIGKILL, "train:ddp:n2:b1:gloo")
    assert [one["num_gpus"] for one in document["training"]["steps"]] == [1]
    assert document["training"]["profiles"] and document["measurements"]["collectives"]


def test_a_rank_that_stops_while_training_is_a_hang_and_what_was_measured_is_kept(tmp_path):
    source = ["--step", "own_steps:stops", "--batch", "1"]
    options = [*source, "--gpus", "1,2", "--device", "cpu", "--steps", "5", "--budget", "150s", "--json"]
    code, document, stderr, took = wiretax(tmp_path, "scale", *options)
    assert code == 3, stderr
    assert took < 100, "a stopped rank is not waited for until the budget ends"
    assert "collective-hang" in codes(document)
    (incident,) = [one for one in document["measurements"]["incidents"] if one["kind"] == "hang"]
    assert incident["rank"] == 1 and "stopped by a signal" in incident["detail"]
    assert document["training"]["profiles"] and document["measurements"]["collectives"]
    assert [one["num_gpus"] for one in document["training"]["steps"]] == [1]


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    options = ["--preset", "gpt-tiny", "--gpus", "1,2", "--device", "cpu", "--json"]
    code, document, stderr, _ = wiretax(tmp_path, "scale", *options, interrupt_after="collectives over")
    assert code == 130, stderr
    assert document["outcome"]["status"] == "interrupted"
    assert document["training"]["profiles"]
    assert len(list((tmp_path / "runs").glob("*.json"))) == 1


def test_a_budget_too_small_to_train_is_said_and_kept(tmp_path):
    code, document, stderr, took = wiretax(tmp_path, "scale", "--preset", "gpt-mini", "--device", "cpu", "--budget", "6s", "--json")
    assert code in (0, 3), stderr
    assert took <= 6 + 3 + 3
    assert document["outcome"]["not_measured"]
    assert document["training"]["steps"] == []


def test_one_rank_that_runs_out_of_memory_is_named_and_is_no_hang(tmp_path):
    source = ["--step", "own_steps:one_runs_out_of_memory", "--batch", "1", "--strategy", "ddp"]
    options = [*source, "--gpus", "1,2", "--device", "cpu", "--steps", "5", "--budget", "100s", "--json"]
    code, document, stderr, _ = wiretax(tmp_path, "scale", *options)
    assert code == 3, stderr
    assert "collective-hang" not in codes(document)
    (incident,) = [one for one in document["measurements"]["incidents"] if one["stage"].startswith("train:ddp")]
    assert (incident["kind"], incident["rank"]) == ("error", 1)
    assert "rank 1 ran out of memory at batch 1" in incident["detail"]

"""`wiretax check` from outside, on CPU ranks: what it measures, and what it does when things go wrong."""

import json
import os
import signal
import subprocess
import sys

import jsonschema
import pytest

from checking import Check, measuring_gloo
from wiretax.model.reading import REASON_NOT_RECORDED
from wiretax.store.schema import published

pytestmark = pytest.mark.ranks


NO_TORCH = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda _cls, name, path=None, target=None: None if name.partition('.')[0] == 'torch' else find(name, path, target)
)
"""


def codes(document):
    return {finding["code"]: finding for finding in document["findings"]}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    home = tmp_path_factory.mktemp("quick")
    check = Check(home, "--quick", "--json")
    return *check.end(), home


def test_a_quick_check_is_one_valid_document_within_its_time(quick):
    code, document, stderr, took, _ = quick
    assert code == 0, stderr
    jsonschema.Draft202012Validator(json.loads(published())).validate(document)
    assert took <= 20 + 3
    assert REASON_NOT_RECORDED not in json.dumps(document)
    assert "Traceback" not in stderr


def test_it_measures_two_operations_over_gloo_at_ten_sizes_with_raw_samples(quick):
    document = quick[1]
    series = {entry["operation"]: entry for entry in document["measurements"]["collectives"] if entry["world_size"] == 2}
    for operation, factor in (("all_reduce", 1.0), ("all_gather", 0.5)):
        points = series[operation]["points"]
        assert len(points) >= 10
        for point in points:
            assert len(point["samples_seconds"]) >= 3
            assert point["busbw_bytes_per_second"] == pytest.approx(point["algbw_bytes_per_second"] * factor)
            assert point["algbw_bytes_per_second"] == pytest.approx(point["num_bytes"] / point["seconds"])
        assert series[operation]["verified"] is True
        assert series[operation]["backend"] == "gloo"
    assert document["measurements"]["copies"] and document["measurements"]["compute"]


def test_it_says_plainly_that_cpu_ranks_were_measured(quick):
    document = quick[1]
    assert codes(document)["no-gpu"]["severity"] == "info"
    assert document["verdict"]["decision"] == "cannot_judge"
    assert "CPU" in document["verdict"]["sentence"] and "gloo" in document["verdict"]["sentence"]


def test_the_run_is_kept_and_is_the_printed_document(quick):
    document, home = quick[1], quick[4]
    (path,) = (home / "runs").glob("*.json")
    assert json.loads(path.read_text()) == document


@pytest.mark.parametrize("victim", ["stage_child", "rank"])
def test_a_rank_killed_by_a_signal_is_named_and_earlier_measurements_are_kept(tmp_path, victim):
    check = Check(tmp_path, "--quick", "--json")
    children = check.wait_for(measuring_gloo(check))
    os.kill((children if victim == "stage_child" else check.ranks())[1].pid, signal.SIGKILL)
    code, document, stderr, took = check.end()
    assert code == 3, stderr
    incident = next(entry for entry in document["measurements"]["incidents"] if entry["kind"] == "rank_died")
    assert (incident["rank"], incident["signal"], incident["wire"]) == (1, signal.SIGKILL, "gloo")
    assert document["measurements"]["compute"] and document["measurements"]["collectives"]
    assert document["verdict"]["decision"] == "cannot_judge"
    assert took <= 20 + 3 + 3
    assert "Traceback" not in stderr


@pytest.mark.parametrize("victim", ["stage_child", "rank"])
def test_a_rank_that_stops_answering_is_a_collective_hang(tmp_path, victim):
    check = Check(tmp_path, "--quick", "--json")
    children = check.wait_for(measuring_gloo(check))
    if victim == "rank":
        os.kill(check.ranks()[1].pid, signal.SIGSTOP)
    os.kill(children[1].pid, signal.SIGSTOP)
    code, document, stderr, took = check.end()
    assert code == 3, stderr
    finding = codes(document)["collective-hang"]
    text = json.dumps(finding)
    assert "rank 1" in text and "gloo" in text
    incident = next(entry for entry in document["measurements"]["incidents"] if entry["kind"] == "hang")
    assert incident["rank"] == 1 and incident["num_bytes"] and incident["operation"] in text
    assert document["measurements"]["compute"] and document["measurements"]["collectives"]
    assert took <= 20 + 3 + 3


def test_ctrl_c_saves_what_was_measured_and_exits_130(tmp_path):
    check = Check(tmp_path, "--quick", "--json")
    check.wait_for(measuring_gloo(check))
    os.kill(check.process.pid, signal.SIGINT)
    code, document, stderr, _ = check.end()
    assert code == 130, stderr
    assert document["outcome"]["status"] == "interrupted"
    assert document["measurements"]["collectives"]
    (path,) = (tmp_path / "runs").glob("*.json")
    assert json.loads(path.read_text())["outcome"]["status"] == "interrupted"


def test_ctrl_c_of_the_whole_terminal_group_does_the_same(tmp_path):
    check = Check(tmp_path, "--quick", "--json")
    check.wait_for(measuring_gloo(check))
    os.killpg(check.process.pid, signal.SIGINT)
    code, document, stderr, _ = check.end()
    assert code == 130, stderr
    assert document["measurements"]["collectives"]


@pytest.mark.parametrize("budget", ["0.3s", "2s"])
def test_a_budget_too_small_to_measure_anything_is_said_and_kept(tmp_path, budget):
    check = Check(tmp_path, "--budget", budget, "--json")
    code, document, stderr, took = check.end()
    assert code == 3, stderr
    assert took <= float(budget[:-1]) + 3 + 3
    assert document["verdict"]["decision"] == "cannot_judge"
    assert document["outcome"]["not_measured"]


def test_a_required_gpu_that_is_not_there_is_exit_3(tmp_path):
    code, document, _, _ = Check(tmp_path, "--quick", "--json", "--require-gpu").end()
    assert code == 3
    assert document["outcome"]["status"] == "failed"


def test_without_torch_it_says_how_to_get_it(tmp_path):
    blocker = tmp_path / "site"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(NO_TORCH)
    code, document, stderr, _ = Check(tmp_path / "home", "--quick", "--json", environment={"PYTHONPATH": str(blocker)}).end()
    assert code == 3, stderr
    assert "Traceback" not in stderr
    assert "pip install torch" in json.dumps(document)


def test_a_home_that_cannot_be_written_costs_only_the_saving(tmp_path):
    target = tmp_path / "file"
    target.write_text("a file where a folder should be")
    code, document, stderr, _ = Check(target, "--quick", "--budget", "12s", "--json").end()
    assert code == 0, stderr
    assert document["measurements"]["collectives"]
    assert "cannot be written" in stderr and "Traceback" not in stderr


def test_a_closed_stdout_changes_nothing_but_the_output(tmp_path):
    command = f"exec {sys.executable} -m wiretax check --quick --budget 12s >&-"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "WIRETAX_HOME": str(tmp_path)}, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert list((tmp_path / "runs").glob("*.json"))


def test_four_ranks_are_measured_at_two_and_at_four(tmp_path):
    code, document, stderr, _ = Check(tmp_path, "--budget", "25s", "--cpu-ranks", "4", "--json").end()
    assert code == 0, stderr
    assert {series["world_size"] for series in document["measurements"]["collectives"]} == {2, 4}

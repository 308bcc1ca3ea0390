"""What can be seen of ranks: who is there, who has ended, who was never seen, and what that means when the time is over."""

import os
import signal
import subprocess
import sys

import pytest

from wiretax.launch import torchrun, worker
from wiretax.launch.account import Account, LaunchOutcome
from wiretax.launch.observed import Observed, signal_name
from wiretax.launch.plan import Ended, LaunchPlan, Stage, Started
from wiretax.launch.processes import look_up
from wiretax.measure.rank import Heartbeat

STAGE = Stage(name="wire:gloo", title="gloo", function="", wire="gloo")
PLAN = LaunchPlan(world_size=2, device="cpu", stages=(STAGE,))


@pytest.fixture
def observed(tmp_path):
    return Observed(PLAN, tmp_path)


@pytest.fixture
def process():
    child = subprocess.Popen([sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"], stdin=-1, stdout=-1)
    child.stdout.readline()
    yield child
    child.stdin.close()
    child.stdout.close()
    child.kill()
    child.wait()


def announce(folder, pid, rank=0, stage=0):
    found = look_up(pid)
    worker.publish(worker.started_file(folder, stage, rank), Started(rank=rank, stage=stage, pid=pid, started=found.started))


def test_a_child_that_runs_stops_ends_or_was_never_seen(tmp_path, observed, process):
    assert observed.state(0, 0) == "?"
    announce(tmp_path, process.pid)
    assert observed.state(0, 0) in "RS"
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert observed.state(0, 0) == "T"
    process.kill()
    process.wait()
    assert observed.state(0, 0) == "gone"


def test_a_heartbeat_proves_a_child_that_is_not_announced_yet(tmp_path, observed):
    Heartbeat(worker.heartbeat_file(tmp_path, 0, 1)).at("start", "gloo", None, 2)
    assert observed.state(0, 1) == "R"


def test_a_child_that_has_ended_and_is_not_told_of_yet_is_waited_for_and_no_hang(tmp_path, process, monkeypatch):
    """Seen on a busy host: a good measurement was reported as a rank that never started."""
    announce(tmp_path, process.pid)
    process.kill()
    process.wait()
    outcome = LaunchOutcome(folder=tmp_path)
    run = torchrun._Launch(PLAN, tmp_path, outcome, 1e12, lambda _tick: None, lambda _stage: None, os.kill)
    looks = []

    def collect_ended(number, ended):
        looks.append(number)
        if len(looks) == 3:
            ended[0] = Ended(rank=0, stage=0, exit_code=0, signal=None)

    monkeypatch.setattr(run.observed, "collect_ended", collect_ended)
    ended: dict[int, Ended] = {}
    run._settle(0, 1, ended)
    assert list(ended) == [0]


def test_ranks_that_come_at_the_last_moment_have_started(tmp_path, monkeypatch):
    """They announce themselves between the last look and the one that names who is missing."""
    outcome = LaunchOutcome(folder=tmp_path)
    run = torchrun._Launch(PLAN, tmp_path, outcome, 0.0, lambda _tick: None, lambda _stage: None, os.kill)  # the time is over
    for rank in range(PLAN.world_size):
        announce(tmp_path, os.getpid(), rank=rank, stage=-1)
    assert run._wait_for_ranks()
    assert outcome.incidents == []


def test_of_a_child_that_printed_without_end_only_the_end_is_read(tmp_path):
    path = tmp_path / "stderr"
    path.write_bytes(b"x" * worker.ERROR_BYTES + b"the end\n")
    words = worker._last_words(path)
    assert words.endswith("xthe end")
    assert len(words) < worker.ERROR_BYTES
    assert worker._last_words(tmp_path / "nothing") == ""


def test_a_child_that_is_gone_without_a_word_while_others_just_made_a_step_is_out_of_time(tmp_path, observed):
    Heartbeat(worker.heartbeat_file(tmp_path, 0, 1)).at("all_reduce", "gloo", 64, 2)
    outcome = LaunchOutcome(folder=tmp_path)
    assert not Account(observed, outcome).hang(STAGE, [0], {0: "gone"}, observed.positions(0), 0.0)
    (incident,) = outcome.incidents
    assert (incident.kind, incident.operation, incident.num_bytes) == ("out_of_time", "all_reduce", 64)


@pytest.mark.parametrize(("state", "words"), [("T", "was stopped by a signal"), ("?", "never started")])
def test_a_rank_that_cannot_go_on_is_a_hang_at_once(tmp_path, observed, state, words):
    Heartbeat(worker.heartbeat_file(tmp_path, 0, 1)).at("all_reduce", "gloo", 64, 2)
    outcome = LaunchOutcome(folder=tmp_path)
    assert Account(observed, outcome).hang(STAGE, [0], {0: state}, observed.positions(0), 0.0)
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank, incident.operation) == ("hang", 0, "all_reduce")
    assert f"rank 0 {words}" in incident.detail


def test_an_engine_is_told_from_its_ranks_by_how_it_ended(observed, process):
    assert (observed.engine_signal, observed.engine_trouble()) == (None, "")
    observed.engine = process
    assert observed.engine_trouble() == ""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    assert "was stopped" in observed.engine_trouble()
    process.kill()
    process.wait()
    assert observed.engine_signal == signal.SIGKILL
    assert "was ended by SIGKILL" in observed.engine_trouble()


def test_signals_have_names():
    assert [signal_name(9), signal_name(250)] == ["SIGKILL", "signal 250"]


GONE = "Traceback (most recent call last):\n  ...\nRuntimeError: [pair.cc:538] Connection closed by peer [127.0.0.1]:41121"
NO_MEMORY = "Traceback (most recent call last):\n  ...\nRuntimeError: rank 1 ran out of memory at batch 1"


def test_a_rank_that_lost_its_peer_is_not_blamed_whoever_is_heard_first(tmp_path, observed):
    """Seen on a busy host: rank 0's broken connection was told as the error, not the memory that rank 1 lacked."""
    outcome = LaunchOutcome(folder=tmp_path)
    ended = {rank: Ended(rank=rank, stage=0, exit_code=1, signal=None, error=error) for rank, error in enumerate((GONE, NO_MEMORY))}
    assert not Account(observed, outcome).stage_ended(0, STAGE, ended)
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank) == ("error", 1)
    assert "ran out of memory" in incident.detail


def test_where_every_rank_lost_its_peer_the_first_is_told(tmp_path, observed):
    outcome = LaunchOutcome(folder=tmp_path)
    ended = {rank: Ended(rank=rank, stage=0, exit_code=1, signal=None, error=GONE) for rank in range(2)}
    assert not Account(observed, outcome).stage_ended(0, STAGE, ended)
    assert [(one.rank, one.kind) for one in outcome.incidents] == [(0, "error")]

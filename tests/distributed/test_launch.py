"""The coordinator with real torchrun ranks: what goes wrong becomes an incident, what was measured stays, no process does."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from wiretax.launch.collect import collect
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.launch.processes import descendants, look_up
from wiretax.launch.run_folder import run_folder
from wiretax.launch.torchrun import launch

pytestmark = pytest.mark.ranks

HERE = str(Path(__file__).parent)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH"))))}


def stage(name, function="count", **arguments):
    return Stage(name=name, title=name, function=f"toy_stages:{function}", arguments=arguments, max_seconds=3.0, wire="gloo")


def run(stages, *, seconds=40.0, world_size=2, **options):
    before = {process.pid for process in descendants(os.getpid())}  # a browser of other tests may be there
    with run_folder() as folder:
        plan = LaunchPlan(world_size=world_size, device="cpu", stages=tuple(stages))
        outcome = launch(plan, folder, deadline=time.monotonic() + seconds, environment=ENVIRONMENT, **options)
        collected = collect(folder, plan)
    assert [process for process in descendants(os.getpid()) if process.pid not in before] == []
    return outcome, collected


def test_stages_run_in_order_each_with_its_own_environment():
    first = stage("first")
    second = Stage(name="second", title="second", function="toy_stages:count", environment={"TOY": "set"})
    outcome, collected = run([first, second])
    assert outcome.incidents == []
    assert outcome.completed == ["first", "second"]
    assert [truth.detail for truth in collected.measurements.peer_truth] == ["set"]  # the later word on a pair counts
    assert len(set(collected.facts["pid"])) == 2  # each stage was a process of its own


def test_what_a_stages_module_does_before_the_forks_is_done_once_in_each_rank():
    outcome, collected = run([stage("first", "told_before"), stage("second", "told_before")])
    assert outcome.incidents == []
    told = collected.facts["before"]
    assert len(told) == 4
    assert all(callers == [parent] for callers, parent in told)


@pytest.mark.parametrize(
    ("how", "kind", "number"),
    [("kill", "rank_died", signal.SIGKILL), ("raise", "error", None), ("exit", "error", None), ("end_quietly", "error", None)],
)
def test_a_stage_child_that_dies_is_named_and_the_next_stage_still_runs(how, kind, number):
    outcome, collected = run([stage("before"), stage("bad", "go_wrong", who=1, how=how), stage("after")])
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank, incident.stage, incident.signal) == (kind, 1, "bad", number)
    assert (incident.operation, incident.wire, incident.num_bytes) == ("all_reduce", "gloo", 2**20)
    assert outcome.completed == ["before", "after"]
    assert len(collected.facts["pid"]) == 2
    if how == "raise":
        assert "unhandled system error" in incident.detail
    if how == "end_quietly":
        assert "ended its process itself, with exit code 0" in incident.detail


def test_what_a_stage_started_and_left_behind_is_ended_with_it():
    outcome, collected = run([stage("leaves", "leave_a_process_behind"), stage("after")])
    assert outcome.incidents == [] and outcome.completed == ["leaves", "after"]
    assert len(collected.facts["left"]) == 4
    assert not any(look_up(pid) for pid in collected.facts["left"])


def test_a_stopped_stage_child_is_a_hang_that_names_rank_operation_wire_and_size():
    outcome, collected = run([stage("before"), stage("bad", "go_wrong", who=1, how="stop"), stage("after")])
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank, incident.operation, incident.wire) == ("hang", 1, "all_reduce", "gloo")
    assert incident.num_bytes == 2**21  # where the other rank waits
    assert "stopped" in incident.detail
    assert outcome.completed == ["before", "after"]
    assert len(collected.facts["pid"]) == 2


def test_a_rank_that_spins_elsewhere_with_all_signals_blocked_is_named_by_its_steps():
    outcome, _ = run([stage("bad", "go_wrong", who=0, how="hang"), stage("after")])
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank) == ("hang", 0)
    assert outcome.completed == ["after"]


def test_ranks_that_all_gave_up_in_one_operation_are_a_hang_whose_culprit_nobody_can_name():
    outcome, _ = run([Stage(name="wire", title="wire", function="toy_stages:wait_on_the_gpu", max_seconds=5.0), stage("after")])
    (incident,) = outcome.incidents
    assert (incident.kind, incident.rank, incident.operation, incident.num_bytes) == ("hang", None, "all_reduce", 4096)
    assert outcome.completed == ["after"]  # "wire" did not complete


def test_slow_loading_is_no_hang():
    outcome, _ = run([stage("bad", "go_wrong", who=0, how="slow"), stage("after")])
    assert [incident.kind for incident in outcome.incidents] == ["out_of_time"]
    assert outcome.completed == ["after"]


def test_a_step_that_may_take_long_is_no_hang_while_its_patience_lasts():
    silent = Stage(name="step", title="step", function="toy_stages:go_wrong", arguments={"who": 0, "how": "hang"}, max_seconds=4.5)
    outcome, _ = run([silent, replace(silent, name="slow step", patience_seconds=30.0)])
    assert [incident.kind for incident in outcome.incidents] == ["hang", "out_of_time"]


@pytest.mark.parametrize(("how", "kind"), [("kill_parent", "rank_died"), ("stop_parent", "hang")])
def test_a_rank_process_that_dies_or_stops_ends_the_launch_and_keeps_what_was_measured(how, kind):
    outcome, collected = run([stage("before"), stage("bad", "go_wrong", who=1, how=how), stage("after")])
    assert [(incident.kind, incident.rank) for incident in outcome.incidents] == [(kind, 1)]
    assert outcome.completed == ["before"]
    assert outcome.not_measured == ["after: ranks were lost before"]
    assert len(collected.facts["pid"]) == 1


def test_the_deadline_is_kept_when_everything_hangs():
    began = time.monotonic()
    outcome, _ = run([stage("bad", "go_wrong", who=1, how="stop")], seconds=12.0)
    assert time.monotonic() - began < 12.0 + 3.0
    assert outcome.incidents[0].kind == "hang"


def test_a_deadline_too_short_for_torch_itself_is_said():
    outcome, _ = run([stage("never")], seconds=0.5)
    assert outcome.incidents[0].kind == "start_failed"
    assert outcome.not_measured == ["never: the ranks did not start"]


def test_ctrl_c_keeps_what_was_measured():
    def press(tick):
        if tick.stage is not None and tick.stage.name == "long" and tick.position is not None and tick.position.count > 3:
            raise KeyboardInterrupt

    outcome, collected = run([stage("before"), stage("long", steps=10**9)], on_tick=press)
    assert outcome.interrupted
    assert outcome.completed == ["before"]
    assert len(collected.facts["pid"]) == 1


def test_a_child_that_survives_sigkill_is_reported_and_the_launch_still_ends():
    children = []

    def send(pid, number):
        name = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if b"wiretax.launch.agent" in name and state == "T":
            children.append(pid)  # as a process does that waits inside a GPU driver: nothing happens
        else:
            os.kill(pid, number)

    try:
        with run_folder() as folder:
            plan = LaunchPlan(world_size=2, device="cpu", stages=(stage("bad", "go_wrong", who=1, how="stop"), stage("after")))
            outcome = launch(plan, folder, deadline=time.monotonic() + 40, environment=ENVIRONMENT, send_signal=send)
    finally:
        for pid in set(children):
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
    kinds = [incident.kind for incident in outcome.incidents]
    assert kinds[:2] == ["hang", "survived_kill"]
    assert outcome.incidents[1].pid in children
    assert outcome.not_measured == ["after: ranks were lost before"]


def test_without_torch_the_ranks_do_not_start_and_the_reason_is_said(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no torch here')")
    with run_folder() as folder:
        plan = LaunchPlan(world_size=2, device="cpu", stages=(stage("never"),))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        outcome = launch(plan, folder, deadline=time.monotonic() + 20, environment=environment)
    assert outcome.incidents[0].kind == "start_failed"
    assert "no torch here" in outcome.incidents[0].detail
    assert sys.executable


LOADED_BY_TORCH = """
import os

import torch.cuda

INITIALISED_IN = os.getpid()


def autoload():
    def set_device(_device):
        if os.getpid() != INITIALISED_IN:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    torch.cuda._is_in_bad_fork = lambda: os.getpid() != INITIALISED_IN
    torch.cuda.set_device = set_device
"""


def test_stages_run_on_gpus_although_the_import_of_torch_touches_cuda_which_no_fork_survives(tmp_path):
    (tmp_path / "touches_cuda.py").write_text(LOADED_BY_TORCH)
    (tmp_path / "touches_cuda-1.dist-info").mkdir()
    (tmp_path / "touches_cuda-1.dist-info" / "entry_points.txt").write_text("[torch.backends]\ntouches_cuda = touches_cuda:autoload\n")
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([HERE, str(tmp_path)])}
    patient = replace(stage("first"), overhead_seconds=20.0)  # torch is imported once more in each
    stages = (patient, replace(patient, name="second", ranks=1))
    plan = LaunchPlan(world_size=2, device="cuda", cuda_ordinals=(0, 1), gpus=(0, 1), stages=stages)
    with run_folder() as folder:
        outcome = launch(plan, folder, deadline=time.monotonic() + 90, environment=environment)
        collected = collect(folder, plan)
    assert outcome.incidents == [] and outcome.completed == ["first", "second"]
    assert len(set(collected.facts["pid"])) == 2

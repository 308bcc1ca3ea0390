"""Around a launch: which GPUs can be measured and why not, how a run ended, and what a late Ctrl-C means."""

import os
import signal
import tempfile
import time
from dataclasses import replace

import pytest

from boxes import box, gpu
from wiretax.jobs import check as check_job
from wiretax.jobs import launching
from wiretax.jobs.launching import JobProgress, choose_gpus, measure, run_of
from wiretax.launch.account import TIME_USED_UP, LaunchOutcome
from wiretax.launch.collect import Collected
from wiretax.model.measurement import Incident, Measurements

CUDA = {"torch": "2.13.0", "torch_cuda": "12.8"}
LOST = {"status": "lost", "status_reason": "it has fallen off the bus", "cuda_ordinal": None}


def machine(*gpus, software=CUDA, **values):
    return box(len(gpus), gpus=gpus, software=software, **values)


def progress(budget=10.0):
    return JobProgress(time.monotonic(), budget, lambda _progress: None)


def test_usable_gpus_come_by_cuda_ordinal():
    found = choose_gpus(machine(gpu(0, cuda_ordinal=1), gpu(1, cuda_ordinal=0)))
    assert [one.index for one in found] == [1, 0]


def test_asked_for_ordinals_are_taken_and_unknown_ones_are_named():
    two = machine(gpu(0), gpu(1))
    assert [one.index for one in choose_gpus(two, (1,))] == [1]
    assert "CUDA ordinal 7" in choose_gpus(two, (0, 7)).detail


@pytest.mark.parametrize("software", [CUDA, {"torch": "2.13.0+cpu", "torch_cuda": None}])
def test_gpus_that_are_all_lost_are_no_machine_without_gpus(software):
    found = choose_gpus(machine(gpu(0, **LOST), gpu(1, **LOST), software=software))
    assert isinstance(found, Incident)
    assert found.detail == "no GPU is usable: GPU 0: it has fallen off the bus; GPU 1: it has fallen off the bus"


def test_a_lost_gpu_beside_a_sound_one_is_left_out():
    assert [one.index for one in choose_gpus(machine(gpu(0, **LOST), gpu(1)))] == [1]


def test_sound_gpus_that_are_hidden_from_cuda_leave_none():
    assert choose_gpus(machine(gpu(0, cuda_ordinal=None), gpu(1, cuda_ordinal=None))) == []


@pytest.mark.parametrize("state", ["hung", "mismatch", "error"])
def test_a_driver_that_does_not_work_is_told_with_its_own_words(state):
    found = choose_gpus(replace(box(0), driver_state=state, driver_detail="it says no"))
    assert state in found.detail and "it says no" in found.detail


def test_a_torch_without_cuda_cannot_use_gpus():
    assert "without CUDA" in choose_gpus(machine(gpu(0), software={"torch": "2.13.0+cpu", "torch_cuda": None})).detail


def test_without_a_folder_for_temporary_files_nothing_is_measured_and_the_reason_is_kept(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    plan = launching.LaunchPlan(world_size=2, device="cpu")
    measured = measure(plan, progress(), deadline=time.monotonic() + 1)
    (incident,) = measured.collected.measurements.incidents
    assert incident.kind == "start_failed"
    assert "set TMPDIR" in incident.detail


@pytest.mark.parametrize(
    ("incidents", "not_measured", "status"),
    [
        ([], [], "complete"),
        ([Incident(kind="out_of_time", stage="compute")], [], "out_of_budget"),
        ([], [f"copies: {TIME_USED_UP}"], "out_of_budget"),
        ([], ["P2P at any distance: the default wire is not staged"], "complete"),
        ([Incident(kind="hang", stage="wire:default", wire="default", gpu=0, detail="rank 1 was stopped")], [], "failed"),
        ([Incident(kind="hang", stage="peer_truth", gpu=0)], [], "complete"),  # the test of a pair: a result
        ([Incident(kind="error", stage="wire:p2p_off", wire="p2p_off", gpu=0)], [], "complete"),  # only there to compare with
        ([Incident(kind="error", stage="wire:gloo", wire="gloo")], [], "failed"),
    ],
)
def test_how_a_run_ended(tmp_path, incidents, not_measured, status):
    outcome = LaunchOutcome(folder=tmp_path, incidents=incidents, not_measured=not_measured)
    measured = launching.Measured(collected=Collected(measurements=Measurements()), outcome=outcome)
    run = run_of("check", machine(gpu(0)), measured, progress())
    assert run.outcome.status == status
    if status == "failed" and incidents[0].detail:
        assert run.outcome.reason == incidents[0].detail


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_judging_costs_nothing_and_is_said(monkeypatch, tmp_path, number):
    outcome = LaunchOutcome(folder=tmp_path)
    measured = launching.Measured(collected=Collected(measurements=Measurements()), outcome=outcome)
    judge = check_job.judge

    def judge_interrupted(run):
        signal.raise_signal(number)
        signal.raise_signal(number)
        return judge(run)

    monkeypatch.setattr(check_job, "inspect_machine", lambda **_options: machine(gpu(0)))
    monkeypatch.setattr(check_job, "measure", lambda *_arguments, **_options: measured)
    monkeypatch.setattr(check_job, "judge", judge_interrupted)
    before = signal.getsignal(number)
    run = check_job.check()
    assert run.outcome.status == "interrupted"
    assert run.verdict is not None
    assert signal.getsignal(number) == before


def test_a_signal_before_anything_was_measured_ends_it(monkeypatch):
    def inspect(**_options):
        os.kill(os.getpid(), signal.SIGTERM)
        return machine(gpu(0))

    monkeypatch.setattr(check_job, "inspect_machine", inspect)
    with pytest.raises(KeyboardInterrupt):
        check_job.check()

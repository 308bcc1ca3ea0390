"""What a run means to a script: each code, and what is no failure although it looks like one."""

from dataclasses import replace

import pytest

from boxes import box, compute, gpu, incident, run, wire
from wiretax.judge.exit_code import exit_code, is_defect
from wiretax.judge.verdict import judge
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident
from wiretax.model.run import Outcome

MESHED = box(2, "NV12", gpus=[gpu(k, nvlinks_active=12, compute_capability="8.0") for k in range(2)])
OUT_OF_BUDGET = Outcome(status="out_of_budget", duration_seconds=60.0)


@pytest.mark.parametrize(
    ("kind", "stage", "code"),
    [
        ("hang", "wire:default", 3),
        ("rank_died", "wire:socket", 3),
        ("survived_kill", "wire:gloo", 3),
        ("start_failed", "compute", 3),
        ("out_of_time", "wire:socket", 0),
        ("skipped", "wire:socket", 0),
        ("hang", "peer_truth", 0),
    ],
)
def test_the_exit_code_follows_what_went_wrong(kind, stage, code):
    assert exit_code(judge(run(MESHED, wire(gigabytes=220), incident(kind, stage)))) == code


def test_the_exit_code_of_stopped_failed_and_gated_runs():
    healthy = judge(run(MESHED, wire(gigabytes=220)))
    assert exit_code(healthy) == 0
    assert exit_code(healthy, fail_if_true=True) == 1
    assert exit_code(replace(healthy, outcome=Outcome(status="interrupted"))) == 130
    assert exit_code(replace(healthy, outcome=Outcome(status="failed"))) == 3
    assert exit_code(replace(healthy, outcome=Outcome(status="out_of_budget"))) == 0
    assert exit_code(judge(run(Machine(driver_state="absent"), outcome=Outcome(status="out_of_budget")))) == 3
    assert exit_code(judge(run(MESHED))) == 3


@pytest.mark.parametrize(
    ("kind", "stage", "wire_name", "gpu_index", "defect"),
    [
        ("error", "wire:default", "default", 0, True),
        ("error", "wire:p2p_off", "p2p_off", 0, False),
        ("error", "wire:gloo", "gloo", None, True),  # on CPU ranks gloo is all there is
        ("error", "compute", None, 0, True),
        ("error", "peer_truth", None, 0, False),
        ("hang", "peer_truth", None, 0, False),
        ("rank_died", "copies", None, 1, True),
        ("out_of_time", "wire:default", "default", 0, False),
        ("wrong_data", "wire:default", "default", 0, False),  # a result, and a grave one
    ],
)
def test_an_incident_is_a_defect_when_it_leaves_nothing_to_judge(kind, stage, wire_name, gpu_index, defect):
    assert is_defect(Incident(kind=kind, stage=stage, wire=wire_name, gpu=gpu_index)) is defect


def test_out_of_time_before_any_wire_of_several_ranks_was_seen_cannot_be_judged():
    assert exit_code(judge(run(MESHED, compute(0, 100.0), outcome=OUT_OF_BUDGET))) == 3
    assert exit_code(judge(run(Machine(driver_state="absent"), compute(None, 1.0), outcome=OUT_OF_BUDGET))) == 3
    assert exit_code(judge(run(box(1), compute(0, 100.0), outcome=OUT_OF_BUDGET))) == 0  # one GPU has no wire


def test_cpu_ranks_that_were_asked_for_on_a_machine_with_gpus_are_judged():
    ranks = replace(wire("gloo", gigabytes=1.0), gpus=())
    assert exit_code(judge(run(MESHED, ranks))) == 0
    assert exit_code(judge(run(MESHED))) == 3


@pytest.mark.parametrize("state", ["hung", "mismatch", "error"])
def test_a_driver_that_does_not_work_is_3_where_the_machine_is_looked_at_and_nothing_to_who_only_calculates(state):
    machine = Machine(driver_state=state, driver_detail="it does not answer")
    for command, code in (("check", 3), ("inspect", 3), ("predict", 0), ("plan", 0)):
        assert exit_code(run(machine, command=command)) == code

"""The job `profile`, with ranks that are played: what is launched, and what becomes of what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

import profiles as made_up
import sample_runs
from wiretax.errors import BadInput, UsageError
from wiretax.jobs import profile as job
from wiretax.jobs.launching import Measured
from wiretax.jobs.profile import ProfileOptions, profile, without_bare_step
from wiretax.jobs.training_stages import Case, Subject, profile_stages
from wiretax.judge.exit_code import exit_code
from wiretax.launch.account import LaunchOutcome
from wiretax.launch.collect import Collected
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident, Measurements
from wiretax.model.reading import unexplained
from wiretax.train.profile import RANKS_AT_ONCE

TINY = Subject(source="gpt-tiny")
NO_GPU = Machine(origin="live", driver_state="absent")


def bare(batch_size=4, at_once="1", **changes):
    return replace(made_up.profile(batch_size=batch_size), environment={RANKS_AT_ONCE: at_once}, **changes)


@pytest.fixture
def played(monkeypatch):
    """Plays the ranks; gives the plans they were started with."""

    def play(machine, **collected):
        plans = []

        def measure(plan, progress, *, deadline, unwanted):
            plans.append(plan)
            if isinstance(plan, Incident):
                return Measured(collected=Collected(measurements=Measurements(incidents=(plan,))), outcome=LaunchOutcome(folder=Path()))
            return Measured(collected=Collected(**collected), outcome=LaunchOutcome(folder=Path()))

        monkeypatch.setattr(job, "inspect_machine", lambda **_: machine)
        monkeypatch.setattr(job, "measure", measure)
        return plans

    return play


def test_one_gpu_is_used_and_every_part_is_a_stage(played):
    plans = played(sample_runs.h200_machine(), profiles=(bare(),))
    run = profile(ProfileOptions(subject=TINY, world_sizes=(2, 4)))
    (plan,) = plans
    assert (plan.world_size, plan.device, plan.cuda_ordinals, plan.gpus) == (1, "cuda", (0,), (0,))
    assert [one.name for one in plan.stages] == [
        "profile:bare:b4",
        "profile:ddp:b4:w2",
        "profile:fsdp2:b4:w2",
        "profile:tp:b4:w2",
        "profile:fsdp2:b4:w4",
        "profile:tp:b4:w4",
    ]
    assert run.training.profiles == (bare(),)
    assert run.verdict is None
    assert exit_code(run) == 0
    assert not list(unexplained(run.training))


def test_a_gpu_can_be_chosen_by_its_ordinal(played):
    plans = played(sample_runs.h200_machine(), profiles=(bare(),))
    profile(ProfileOptions(subject=TINY, gpu=1))
    assert (plans[0].cuda_ordinals, plans[0].gpus) == ((1,), (1,))


def test_without_a_gpu_cpu_ranks_run_the_step_at_once(played):
    plans = played(NO_GPU, profiles=(bare(at_once="3"),))
    run = profile(ProfileOptions(subject=TINY, cpu_ranks=3, strategies=("ddp",)))
    assert (plans[0].world_size, plans[0].device) == (3, "cpu")
    assert {one.ranks for one in plans[0].stages} == {3}
    assert exit_code(run) == 0
    assert [one.code for one in run.findings] == ["no-gpu"]


def test_the_cpu_of_a_gpu_machine_can_be_asked_for(played):
    plans = played(sample_runs.h200_machine(), profiles=(bare(at_once="2"),))
    assert exit_code(profile(ProfileOptions(subject=TINY, device="cpu"))) == 0
    assert plans[0].device == "cpu"


def test_a_gpu_that_was_asked_for_and_is_not_there_is_exit_3(played):
    played(NO_GPU)
    for options in ({"device": "cuda"}, {"gpu": 0}):
        run = profile(ProfileOptions(subject=TINY, **options))
        assert run.outcome.status == "failed" and "none is visible" in run.outcome.reason
        assert exit_code(run) == 3


@pytest.mark.parametrize(
    ("kind", "error", "what"),
    [
        ("BadInput", BadInput, "The loss function raised KeyError: 'labels' (mine.py, line 7)."),
        ("BadInput", BadInput, "The loss has 8 elements (8), but backward needs one."),
        ("UsageError", UsageError, "The module 'mine' has no function 'stap'."),
    ],
)
def test_a_mistake_in_the_users_step_is_raised_in_its_own_words(played, kind, error, what):
    played(NO_GPU, facts={"refused": [["bare", kind, what, "because", "mend it"]]})
    with pytest.raises(error) as raised:
        profile(ProfileOptions(subject=TINY))
    assert (raised.value.what, raised.value.why, raised.value.do) == (what, "because", "mend it")
    assert raised.value.exit_code == 2


def test_running_out_of_memory_is_a_failed_run_that_says_what_fits(played):
    detail = "The step ran out of memory at batch 64 under none on NVIDIA H200 (140 GB, 1 GB of it free). A batch of 41 would fit."
    incident = Incident(kind="error", stage="profile:bare", rank=0, gpu=0, detail=detail)
    played(
        sample_runs.h200_machine(),
        measurements=Measurements(incidents=(incident,)),
        facts={"refused": [["bare", "CannotMeasure", "The step ran out of memory", "", "A batch of 41 would fit."]]},
    )
    run = profile(ProfileOptions(subject=TINY, batches=(64,)))
    assert run.outcome.status == "failed" and "A batch of 41 would fit" in run.outcome.reason
    assert exit_code(run) == 3


def test_a_strategy_that_cannot_be_had_or_did_not_come_back_is_a_note_and_the_rest_is_kept(played):
    incidents = (
        Incident(kind="skipped", stage="profile:tp", rank=0, detail="it has no tensor_parallel_plan"),
        Incident(kind="rank_died", stage="profile:fsdp2:b4:w2", rank=0, signal=9, detail="killed"),
    )
    base = bare(free_steps=(made_up.ddp_free(),))
    played(sample_runs.h200_machine(), profiles=(base,), measurements=Measurements(incidents=incidents))
    run = profile(ProfileOptions(subject=TINY))
    (found,) = run.training.profiles
    assert found.notes == ("tp was not profiled: it has no tensor_parallel_plan", "fsdp2 was not profiled: killed")
    assert exit_code(run) == 3  # a dead rank


def test_a_strategy_that_was_profiled_at_another_size_is_no_note(played):
    incident = Incident(kind="skipped", stage="profile:ddp", rank=0, detail="only once")
    played(NO_GPU, profiles=(bare(free_steps=(made_up.ddp_free(),)),), measurements=Measurements(incidents=(incident,)))
    assert profile(ProfileOptions(subject=TINY)).training.profiles[0].notes == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subject": Subject(source="gpt9")}, "no preset 'gpt9'"),
        ({"subject": Subject(source="mine:step")}, "has no batch size of its own"),
        ({"subject": TINY, "strategies": ("magic",)}, "no strategy 'magic'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(played, options, words):
    plans = played(NO_GPU)
    with pytest.raises(UsageError, match=words):
        profile(ProfileOptions(**options))
    assert plans == []


def test_strategies_run_only_after_the_bare_step_of_their_batch_gave_a_profile():
    first, ddp = profile_stages(TINY, [Case(num_ranks=2, strategy="ddp", batch_per_gpu=4)], cuda=True)
    assert without_bare_step(first, lambda: pytest.fail("needs no look")) is None
    assert without_bare_step(ddp, lambda: Collected(profiles=(bare(),))) is None
    assert "gave no profile" in without_bare_step(ddp, Collected)
    assert "gave no profile" in without_bare_step(ddp, lambda: Collected(profiles=(bare(batch_size=8),)))
    assert "gave no profile" in without_bare_step(ddp, lambda: Collected(profiles=(bare(at_once="2"),)))
    refused = Collected(facts={"refused": [["bare", "BadInput", "no", "", ""]]})
    assert without_bare_step(ddp, lambda: refused) == "the step cannot be trained"
    assert without_bare_step(replace(ddp, name="train:ddp:n2:b4"), lambda: refused) == "the step cannot be trained"
    assert without_bare_step(replace(ddp, name="train:ddp:n2:b4"), Collected) is None

"""The job `scale`, with ranks that are played: what trains where, efficiency, and predicted beside measured."""

from dataclasses import replace
from pathlib import Path

import pytest

import profiles as made_up
import sample_runs
from wiretax.errors import UsageError
from wiretax.jobs import scale as job
from wiretax.jobs.launching import Measured
from wiretax.jobs.scale import ScaleOptions, forecasts_beside, scale, with_efficiency
from wiretax.jobs.training_stages import Subject
from wiretax.judge.exit_code import exit_code
from wiretax.launch.account import LaunchOutcome
from wiretax.launch.collect import Collected
from wiretax.model.machine import Machine
from wiretax.model.measurement import Incident, Measurements
from wiretax.model.run import Run, Tool
from wiretax.model.training import StepTiming, Training
from wiretax.train.profile import RANKS_AT_ONCE
from wiretax.train.strategy import Options

TINY = Subject(source="gpt-tiny")
NO_GPU = Machine(origin="live", driver_state="absent")


def step(num_gpus, rate, batch=8, strategy="ddp", wire="default", workload="made up"):
    return StepTiming(
        strategy="none" if num_gpus == 1 else strategy,
        num_gpus=num_gpus,
        wire="none" if num_gpus == 1 else wire,
        workload=workload,
        batch_per_gpu=batch,
        step_seconds=num_gpus * batch / rate,
        samples_per_second=rate,
        missing={"efficiency_fraction": "needs the step on one GPU beside it", "peak_memory_bytes": "made up"},
    )


def wire(name="default", world_size=2, busbw=20e9):
    sizes = [(2**power, 20e-6 + 2**power / busbw) for power in range(3, 31)]
    return made_up.sweep("all_reduce", world_size, sizes, wire=name, gpus=tuple(range(world_size)))


@pytest.fixture
def played(monkeypatch):
    def play(machine, **collected):
        plans = []

        def measure(plan, progress, *, deadline, unwanted):
            plans.append(plan)
            found = Collected(measurements=Measurements(incidents=(plan,))) if isinstance(plan, Incident) else Collected(**collected)
            return Measured(collected=found, outcome=LaunchOutcome(folder=Path()))

        monkeypatch.setattr(job, "inspect_machine", lambda **_: machine)
        monkeypatch.setattr(job, "measure", measure)
        return plans

    return play


def names(plan):
    return [one.name for one in plan.stages]


def test_cpu_ranks_profile_measure_and_train_in_that_order(played):
    plans = played(NO_GPU)
    scale(ScaleOptions(subject=TINY))
    assert names(plans[0]) == [
        "profile:bare:b4:n2",
        "profile:ddp:b4:n2:w2",
        "compute",
        "wire:gloo",
        "train:none:n1:b4",
        "train:ddp:n2:b4:gloo",
    ]
    assert (plans[0].world_size, plans[0].device) == (2, "cpu")


def test_gpus_train_over_every_wire_asked_for_and_are_profiled_once(played):
    plans = played(sample_runs.h200_machine())
    scale(ScaleOptions(subject=TINY, strategies=("ddp", "FULL_SHARD"), wires=("default", "p2p_off")))
    assert names(plans[0]) == [
        "profile:bare:b4",
        "profile:ddp:b4:w2",
        "profile:fsdp2:b4:w2",
        "compute",
        "wire:default",
        "overlap:default",
        "train:none:n1:b4",
        "train:ddp:n2:b4:default",
        "train:fsdp2:n2:b4:default",
        "wire:p2p_off",
        "overlap:p2p_off",
        "train:ddp:n2:b4:p2p_off",
        "train:fsdp2:n2:b4:p2p_off",
    ]
    assert plans[0].cuda_ordinals == (0, 1)


def test_one_gpu_alone_is_profiled_and_trained(played):
    plans = played(NO_GPU)
    scale(ScaleOptions(subject=TINY, counts=(1,)))
    assert names(plans[0]) == ["profile:bare:b4:n1", "compute", "train:none:n1:b4"]


def test_one_is_always_among_the_numbers_of_gpus(played):
    plans = played(NO_GPU)
    scale(ScaleOptions(subject=TINY, counts=(3,)))
    assert "train:none:n1:b4" in names(plans[0]) and "train:ddp:n3:b4:gloo" in names(plans[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counts": (1, 4)}, "4 GPUs were asked for, and 2 can be used"),
        ({"wires": ("ethernet",)}, "no wire 'ethernet'"),
        ({"strategies": ("magic",)}, "no strategy 'magic'"),
        ({"subject": Subject(source="gpt9")}, "no preset 'gpt9'"),
        ({"scaling": "strong", "batches": (3,)}, "cannot be shared by 2 GPUs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained(played, options, words):
    plans = played(sample_runs.h200_machine())
    with pytest.raises(UsageError, match=words):
        scale(ScaleOptions(**{"subject": TINY, **options}))
    assert plans == []


def test_weak_scaling_compares_with_one_gpu_at_the_same_batch():
    found = with_efficiency([step(1, 40), step(2, 60), step(4, 120)], TINY, "weak")
    assert [one.efficiency_fraction for one in found] == [1.0, 0.75, 0.75]
    assert all("efficiency_fraction" not in one.missing for one in found)


def test_strong_scaling_compares_with_one_gpu_at_the_whole_batch():
    steps = [step(1, 40, batch=8), step(1, 30, batch=4), step(2, 60, batch=4), step(2, 48, batch=8, strategy="tp")]
    found = with_efficiency(steps, TINY, "strong")
    assert [one.efficiency_fraction for one in found[2:]] == [0.75, 0.6]


def test_groups_of_tensor_parallel_gpus_share_a_batch():
    found = with_efficiency(
        [step(1, 40, batch=8), step(4, 100, batch=4, strategy="tp_ddp")],
        Subject(source="x", levers=Options(tensor_parallel_size=2)),
        "strong",
    )
    assert found[1].efficiency_fraction == 100 / 160


def test_without_the_step_on_one_gpu_the_efficiency_is_unknown_with_the_reason():
    (found,) = with_efficiency([step(2, 60)], TINY, "weak")
    assert found.efficiency_fraction is None and "one GPU was not trained" in found.missing["efficiency_fraction"]


def run_with(steps, profiles, *wires):
    return Run(
        run_id="r",
        created_at="2026-11-30T00:00:00+00:00",
        tool=Tool(version="0"),
        command="scale",
        measurements=Measurements(collectives=wires),
        training=Training(profiles=tuple(profiles), steps=tuple(steps)),
    )


def test_each_configuration_is_predicted_from_its_own_profile_and_wire():
    profiles = [made_up.profile(batch_size=8), made_up.profile(batch_size=4, forward=0.005, backward=0.01)]
    steps = [step(1, 250), step(2, 400), step(2, 300, batch=4), step(2, 300, wire="socket")]
    found = forecasts_beside(run_with(steps, profiles, wire(), wire("socket", busbw=1e9)), TINY)
    assert [(one.wire, one.batch_per_gpu) for one in found] == [("default", 8), ("default", 4), ("socket", 8)]
    assert found[1].step_seconds.expected < found[0].step_seconds.expected < found[2].step_seconds.expected


def test_what_has_no_profile_or_no_wire_is_left_unpredicted():
    run = run_with([step(2, 400), step(2, 400, batch=2), step(2, 400, wire="socket")], [made_up.profile()], wire())
    assert [(one.wire, one.batch_per_gpu) for one in forecasts_beside(run, TINY)] == [("default", 8)]


def test_cpu_ranks_are_predicted_from_the_profile_of_as_many_at_once():
    def at_once(count, forward):
        return replace(made_up.profile(device="cpu", forward=forward), environment={RANKS_AT_ONCE: str(count)})

    run = run_with([step(2, 400), step(4, 400)], [at_once(2, 0.01), at_once(4, 0.05)], wire(), wire(world_size=4))
    two, four = forecasts_beside(run, TINY)
    assert four.step_seconds.expected > two.step_seconds.expected + 0.03


def test_a_whole_run_has_steps_forecasts_and_a_verdict(played):
    played(
        sample_runs.h200_machine(),
        steps=(step(1, 250), step(2, 450)),
        profiles=(made_up.profile(),),
        measurements=Measurements(collectives=(wire(),)),
    )
    run = scale(ScaleOptions(subject=TINY))
    assert run.training.steps[1].efficiency_fraction == 0.9
    assert [one.num_gpus for one in run.forecasts] == [2]
    assert (run.verdict.decision, run.verdict.num_gpus) == ("use_all", 2)
    assert exit_code(run) == 0


def test_a_rank_that_died_is_a_finding_and_what_was_trained_is_kept(played):
    dead = Incident(kind="rank_died", stage="train:ddp:n2:b4:gloo", rank=1, signal=9, wire="gloo", operation="train gpt-tiny ddp")
    played(NO_GPU, steps=(step(1, 250),), profiles=(made_up.profile(device="cpu"),), measurements=Measurements(incidents=(dead,)))
    run = scale(ScaleOptions(subject=TINY))
    assert "rank-died" in [one.code for one in run.findings]
    assert run.training.steps and run.training.profiles
    assert exit_code(run) == 3

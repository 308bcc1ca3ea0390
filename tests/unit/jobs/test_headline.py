"""The headline of a check: predicted where a profile of that very GPU model ships, bounds elsewhere."""

from dataclasses import replace

import pytest

import sample_runs
from wiretax.errors import WiretaxError
from wiretax.jobs import headline as job
from wiretax.jobs.headline import headline, profile_of, shipped_profiles
from wiretax.judge.verdict import judge
from wiretax.model.measurement import Measurements
from wiretax.model.reading import unexplained
from wiretax.predict.bounds import WORKLOAD as BOUNDS
from wiretax.store.codec import encode


def test_a_pair_of_h200_is_predicted_from_the_profile_that_ships_and_the_wire_measured_here():
    run = sample_runs.h200_pair()
    found = headline(run)
    assert (found[0].num_gpus, found[0].wire, found[0].strategy) == (1, "none", "ddp")
    wires = {one.wire for one in run.measurements.collectives if one.operation == "all_reduce" and one.world_size > 1}
    assert {one.wire for one in found[1:]} == wires
    for one in found:
        assert one.workload == "gpt1.7b" and one.batch_per_gpu == 4
        assert one.step_seconds.low <= one.step_seconds.expected <= one.step_seconds.high
        assert "the wire is this machine's" in one.assumptions[0]
        assert not list(unexplained(one))
    # the recorded pair over NVLink: 101.6 ms
    default = next(one for one in found if one.wire == "default")
    assert default.step_seconds.expected == pytest.approx(0.1016, rel=0.1)


def test_the_verdict_quotes_it():
    run = sample_runs.h200_pair()
    judged = judge(replace(run, forecasts=headline(run)))
    assert judged.verdict.decision == "use_all"
    assert "a 1.7 B model at batch 4 trains" in judged.verdict.sentence


@pytest.mark.parametrize("run", [sample_runs.four_4090(), sample_runs.cpu_only()])
def test_other_gpus_and_cpu_ranks_get_bounds_that_say_so(run):
    for one in headline(run):
        assert one.workload == BOUNDS and one.batch_per_gpu is None


def test_mixed_gpus_are_not_predicted():
    machine = sample_runs.h200_pair().machine
    first, *rest = machine.gpus
    assert profile_of(replace(machine, gpus=(replace(first, name="NVIDIA GeForce RTX 4090"), *rest))) is None
    assert profile_of(replace(machine, gpus=(replace(first, name="never heard of"),))) is None
    assert profile_of(replace(machine, gpus=())) is None


def test_nothing_measured_between_gpus_predicts_nothing():
    assert headline(replace(sample_runs.h200_pair(), measurements=Measurements())) == ()


def test_what_ships_is_the_fixed_model_on_a_known_gpu_and_holds_ddp():
    for profile in shipped_profiles():
        assert profile.device == "cuda" and profile.created_at
        assert [one.strategy for one in profile.free_steps] == ["ddp"]
        assert profile.matmul_flops_per_second and profile.memory_bytes_per_second


def test_a_profile_of_another_workload_must_not_ship(monkeypatch, tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "wrong.json").write_bytes(
        encode(replace(shipped_profiles()[0], workload=replace(shipped_profiles()[0].workload, batch_size=8)))
    )
    monkeypatch.setattr(job.resources, "files", lambda _package: tmp_path)
    shipped_profiles.cache_clear()
    with pytest.raises(WiretaxError, match="at batch 8"):
        shipped_profiles()
    monkeypatch.undo()
    shipped_profiles.cache_clear()

"""The job: what a profile and a wire, or two numbers, become."""

from dataclasses import replace
from pathlib import Path

import pytest

import profiles as made_up
from wiretax.errors import UsageError
from wiretax.jobs.model_size import ModelSize
from wiretax.jobs.predict import PredictOptions, predict
from wiretax.model.machine import Gpu, Machine
from wiretax.model.measurement import Compute, Measurements
from wiretax.model.reading import not_finite, unexplained
from wiretax.model.run import Run, Tool
from wiretax.model.training import Training
from wiretax.predict.options import Options
from wiretax.store.codec import decode_run, encode

EXAMPLE = Path(__file__).parents[3] / "examples" / "h200x2"


@pytest.fixture
def saved(tmp_path):
    """Writes a profile and a run with a wire, and gives their names."""

    def write(profile=None, *, gpus=("made up", "made up"), compute=(), profiles=(), world_size=2, on_cpu=False, busbw=20e9):
        (tmp_path / "profile.json").write_bytes(encode(profile or made_up.profile()))
        sizes = [(2**power, 20e-6 + 2**power / busbw) for power in range(3, 31)]
        curve = made_up.sweep(
            "all_reduce", world_size, sizes, gpus=() if on_cpu else tuple(range(world_size)), wire="gloo" if on_cpu else "default"
        )
        run = Run(
            run_id="r1",
            created_at="2026-11-30T00:00:00+00:00",
            tool=Tool(version="0"),
            machine=Machine(origin="recorded", gpus=tuple(Gpu(index=index, name=name) for index, name in enumerate(gpus))),
            measurements=Measurements(collectives=(curve,), compute=tuple(compute)),
            training=Training(profiles=tuple(profiles)),
        )
        (tmp_path / "run.json").write_bytes(encode(run))
        return {"profile": str(tmp_path / "profile.json"), "wire": str(tmp_path / "run.json")}

    return write


def rates(matmul, memory=1e12):
    return Compute(gpu=0, rank=0, together=False, matmul_flops_per_second=matmul, memory_bytes_per_second=memory)


def test_two_numbers_give_the_time_of_the_all_reduce():
    run = predict(PredictOptions(model=ModelSize.of_gradients(200e6), busbw_bytes_per_second=22e9, gpus=(2, 8)))
    assert [round(one.all_reduce_seconds * 1e3, 1) for one in run.forecasts] == [9.1, 15.9]
    assert all(one.step_seconds is None and "profile" in one.missing["step_seconds"] for one in run.forecasts)
    assert run.verdict is None


def test_a_profile_and_a_wire_give_every_strategy_at_every_number_of_gpus(saved):
    run = predict(PredictOptions(**saved(), strategies=("ddp", "FULL_SHARD", "tp"), gpus=(2, 4)))
    found = [(one.strategy, one.num_gpus) for one in run.forecasts]
    assert found == [("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp2", 2), ("fsdp2", 4), ("tp", 2), ("tp", 4)]
    assert run.forecasts[0].wire == "none"
    for one in run.forecasts[1:]:
        assert one.step_seconds.low <= one.step_seconds.expected <= one.step_seconds.high
        assert one.assumptions[0] == "the wire default is measured in run r1"
    assert not list(not_finite(run))
    assert not list(unexplained(run))
    assert decode_run(encode(run), "again") == run


def test_beyond_what_was_measured_the_model_is_named_and_the_range_wider(saved):
    near, far = predict(PredictOptions(**saved(), gpus=(2, 8))).forecasts[1:]
    assert any("by the ring model" in text for text in far.assumptions)
    assert not any("by the ring model" in text for text in near.assumptions)
    assert far.step_seconds.high / far.step_seconds.expected > near.step_seconds.high / near.step_seconds.expected


def test_a_run_that_profiled_and_measured_needs_no_second_file(saved):
    names = saved(profiles=[made_up.profile()])
    run = predict(PredictOptions(wire=names["wire"], gpus=(2,)))
    assert [one.num_gpus for one in run.forecasts] == [1, 2]
    assert run.training.profiles == (made_up.profile(),)


def test_every_batch_is_predicted_from_the_nearest_profile(saved):
    names = saved(profiles=[made_up.profile(batch_size=4), made_up.profile(batch_size=32, forward=0.08, backward=0.16)])
    run = predict(PredictOptions(wire=names["wire"], gpus=(2,), batches=(2, 4, 64)))
    assert [(one.batch_per_gpu, one.num_gpus) for one in run.forecasts] == [(2, 1), (2, 2), (4, 1), (4, 2), (64, 1), (64, 2)]
    assert any("from the profiled 32 to 64" in text for text in run.forecasts[5].assumptions)
    assert any("from the profiled 4 to 2" in text for text in run.forecasts[1].assumptions)
    assert run.verdict is None


def test_several_wires_stand_beside_each_other():
    options = PredictOptions(
        profile=str(EXAMPLE / "profiles.json"), wire=str(EXAMPLE / "wires.json"), wires=("default", "socket"), gpus=(2,)
    )
    run = predict(options)
    own = {one.wire: one for one in run.forecasts if one.workload == "gpt1.7b"}
    assert set(own) == {"none", "default", "socket"}
    assert own["socket"].step_seconds.low > 5 * own["default"].step_seconds.high
    assert own["socket"].wire_tax_fraction > 0.8


def test_levers_reach_the_predictor(saved):
    names = saved(busbw=1e9)
    plain, halved = (
        predict(PredictOptions(**names, gpus=(2,), levers=one)).forecasts[1] for one in (Options(), Options(accumulation_steps=4))
    )
    assert halved.wire_tax_fraction < plain.wire_tax_fraction


def test_a_wire_on_the_profiled_gpu_is_no_reason_to_warn(saved):
    run = predict(PredictOptions(**saved(replace(made_up.profile(), device_name="NVIDIA H200"), gpus=("NVIDIA H200", "H200")), gpus=(2,)))
    assert run.findings == ()


def test_a_profile_of_another_gpu_is_scaled_by_measured_rates_with_a_warning_and_a_wider_range(saved):
    own = predict(PredictOptions(**saved(), gpus=(2,)))
    other = predict(PredictOptions(**saved(gpus=("slow", "slow"), compute=[rates(0.5e14, 0.5e12)]), gpus=(2,)))
    (finding,) = other.findings
    assert (finding.code, finding.severity) == ("profile-from-other-gpu", "warning")
    assert "taken on made up, the wire joins slow" in finding.title and "measured rates" in finding.effect
    one, two = own.forecasts[0].step_seconds, other.forecasts[0].step_seconds
    assert two.expected == pytest.approx(2 * one.expected, rel=0.05)
    assert two.high / two.low > 1.2 * one.high / one.low


def test_without_measured_rates_data_sheets_scale_it(saved):
    profile = replace(made_up.profile(), device_name="NVIDIA H200")
    run = predict(PredictOptions(**saved(profile, gpus=("NVIDIA GeForce RTX 4090",) * 2), gpus=(2,)))
    assert "data sheets" in run.findings[0].effect
    assert run.forecasts[0].step_seconds.expected > 2 * profile.bare.step.seconds


def test_where_neither_is_known_nothing_is_scaled_and_the_range_is_far_wider(saved):
    own = predict(PredictOptions(**saved(), gpus=(2,)))
    other = predict(PredictOptions(**saved(gpus=("never heard of",) * 2), gpus=(2,)))
    assert "nothing is scaled" in other.findings[0].effect
    for one, two in zip(own.forecasts, other.forecasts, strict=True):
        assert two.step_seconds.expected == one.step_seconds.expected
        assert two.step_seconds.high > 1.4 * two.step_seconds.expected
        assert two.step_seconds.low < two.step_seconds.expected / 1.4


def test_a_step_timed_on_the_wires_machine_stretches_the_profile_instead_of_rates(saved):
    options = saved(gpus=("slow", "slow"), compute=[rates(0.5e14, 0.5e12)])
    scaled, timed = (predict(PredictOptions(**options, gpus=(2,), one_gpu_seconds=given)) for given in (None, 0.048))
    alone, pair = timed.forecasts
    assert alone.step_seconds.expected == pytest.approx(0.048)
    assert any("multiplied by 1.500" in note for note in pair.assumptions)
    assert "stretched to the step timed there" in timed.findings[0].effect
    ranges = [run.forecasts[1].step_seconds.high / run.forecasts[1].step_seconds.low for run in (timed, scaled)]
    assert ranges[0] < ranges[1]


def test_a_cpu_profile_over_a_wire_of_gpus_is_warned_of_and_over_one_of_ranks_not(saved):
    cpu = made_up.profile(device="cpu")
    assert predict(PredictOptions(**saved(cpu, gpus=("NVIDIA H200",) * 2), gpus=(2,))).findings
    assert predict(PredictOptions(**saved(cpu, gpus=(), on_cpu=True), gpus=(2,))).findings == ()
    assert predict(PredictOptions(**saved(gpus=(), on_cpu=True), gpus=(2,))).findings


def test_a_measured_wire_gives_the_all_reduce_of_that_size_and_says_what_it_leaves_out(saved):
    options = PredictOptions(wire=saved()["wire"], model=ModelSize.of_gradients(2**28), gpus=(1, 2, 4))
    alone, two, four = predict(options).forecasts
    assert alone.all_reduce_seconds == 0
    assert two.all_reduce_seconds == pytest.approx(20e-6 + 2**28 / 20e9, rel=1e-3)
    assert "DDP's buckets are smaller" in two.assumptions[0]
    assert any("ring model" in text for text in four.assumptions)


def test_the_step_on_one_gpu_bounds_the_efficiency():
    options = PredictOptions(model=ModelSize.of_gradients(200e6), busbw_bytes_per_second=2e9, gpus=(2,), one_gpu_seconds=0.1)
    (one,) = predict(options).forecasts
    assert "efficiency between 50 % (nothing overlaps) and 100 % (all of it overlaps)" in one.assumptions


def test_a_shape_gives_the_memory_of_every_strategy_too():
    options = PredictOptions(model=ModelSize.of_preset("gpt1.7b"), busbw_bytes_per_second=22e9, gpus=(8,), strategies=("ddp", "fsdp2"))
    ddp, sharded = predict(options).forecasts
    assert sharded.peak_memory_bytes.expected < ddp.peak_memory_bytes.expected
    assert ddp.all_reduce_seconds and sharded.all_reduce_seconds is None
    assert "does not reduce all gradients at once" in sharded.missing["step_seconds"]


def test_the_ladder_goes_from_sockets_over_pcie_generations_to_nvlink():
    run = predict(PredictOptions(ladder=True, gpus=(2, 8)))
    names = [one.wire for one in run.expectations]
    for generation in (3, 4, 5, 6):
        assert f"PCIe {generation} x16, P2P" in names
    assert sum("NVLink" in name for name in names) == 4
    assert len(run.forecasts) == 2 * len(names)
    assert all(one.all_reduce_seconds > 0 for one in run.forecasts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "There is no wire to predict for"),
        ({"busbw_bytes_per_second": 1e9}, "There is nothing to predict"),
        ({"busbw_bytes_per_second": 1e9, "tables": ("x",)}, "are two wires"),
        ({"busbw_bytes_per_second": 1e9, "model": ModelSize.of_gradients(1e6), "strategies": ("magic",)}, "'magic' is no strategy"),
        ({"ladder": True, "busbw_bytes_per_second": 1e9}, "it takes no wire"),
        (
            {"profile": str(EXAMPLE / "profiles.json"), "busbw_bytes_per_second": 1e9, "one_gpu_seconds": 0.1},
            "One step time for 2 workloads at 2 batch sizes",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        predict(PredictOptions(**options))


def test_a_damaged_table_is_a_finding_and_still_predicts(tmp_path):
    lines = (EXAMPLE.parents[1] / "tests/data/h200x2/nccl_tests_all_reduce_default.txt").read_text().splitlines()
    row = next(index for index, line in enumerate(lines) if line.split()[:1] == ["1048576"])
    lines[row] = lines[row][:60]
    (tmp_path / "cut.txt").write_text("\n".join(lines))
    run = predict(PredictOptions(tables=(str(tmp_path / "cut.txt"),), model=ModelSize.of_gradients(2**30), gpus=(2,)))
    assert [one.code for one in run.findings] == ["input-degraded"]
    assert run.forecasts[0].all_reduce_seconds == pytest.approx(2**30 / 332e9, rel=0.02)

"""The clocks of a profile agree with the ordinary step, and one GPU's times become another's."""

from dataclasses import replace

import pytest

from profiles import fsdp_free, profile, times, wire
from wiretax.model.measurement import Compute
from wiretax.model.profile import PhaseTimes, Span
from wiretax.predict.clocks import settled, stretched, with_rates_of
from wiretax.predict.forecast import predict
from wiretax.predict.profile_model import work_of


def with_clocks(elapsed, device, host):
    return PhaseTimes(elapsed=Span(seconds=elapsed), device=Span(seconds=device), host=Span(seconds=host))


def gpu(matmul, memory=1e12, together=False):
    return Compute(
        gpu=0,
        rank=0,
        matmul_flops_per_second=matmul,
        memory_bytes_per_second=memory,
        together=together,
    )


def test_a_device_clock_taken_on_a_rested_gpu_is_stretched_to_the_ordinary_phase():
    quick = with_clocks(0.020, 0.018, 0.010)
    own = replace(profile(), bare=times(with_clocks(0.010, 0.009, 0.004), quick, with_clocks(0.002, 0.002, 0.001)))

    bare = settled(own).bare

    assert (bare.forward.device.seconds, bare.backward.device.seconds) == pytest.approx((0.010, 0.020))
    assert (bare.forward.host.seconds, bare.backward.host.seconds) == pytest.approx((0.004, 0.010))
    assert sum(one.backward_seconds for one in settled(own).segments) == pytest.approx(0.020 * 0.020 / 0.018)


def test_hooks_timed_one_by_one_are_no_dearer_than_the_phase_they_ran_in():
    slow = with_clocks(0.050, 0.025, 0.060)
    own = replace(profile(), bare=times(slow, with_clocks(0.051, 0.050, 0.073), with_clocks(0.002, 0.002, 0.001)))

    bare = settled(own).bare

    assert bare.forward.host.seconds == pytest.approx(0.050)
    assert bare.forward.device.seconds == pytest.approx(0.025)
    assert (bare.backward.host.seconds, bare.backward.device.seconds) == pytest.approx((0.051, 0.050))


def test_groups_and_calls_keep_their_shares():
    base = profile(host=0.5)
    free = fsdp_free(base=base)
    slower = with_clocks(0.040, 0.010, 0.080)
    free = replace(free, times=replace(free.times, forward=slower))
    own = replace(base, free_steps=(free,))

    (found,) = settled(own).free_steps

    for before, after in zip(free.groups, found.groups, strict=True):
        assert after.forward_host_seconds == pytest.approx(before.forward_host_seconds / 2)
        assert after.forward_device_seconds == pytest.approx(before.forward_device_seconds)


@pytest.mark.parametrize("own", [profile(device="cpu"), profile(), profile(host=0.5)])
def test_clocks_that_agree_or_were_not_told_apart_stay(own):
    before, after = work_of(own), work_of(settled(own))

    assert after.bare_seconds == pytest.approx(before.bare_seconds)
    assert [one.device for one in after.backward] == pytest.approx([one.device for one in before.backward])


def test_a_stretched_profile_is_longer_everywhere_and_the_loader_is_not():
    own = profile(host=0.5, input_seconds=0.005, free_steps=[fsdp_free(base=profile(host=0.5))])

    longer = stretched(own, 1.25)

    assert longer.bare.step.seconds == pytest.approx(1.25 * own.bare.step.seconds)
    assert longer.bare.forward.host.seconds == pytest.approx(1.25 * own.bare.forward.host.seconds)
    assert longer.free_steps[0].groups[0].backward_host_seconds == pytest.approx(1.25 * own.free_steps[0].groups[0].backward_host_seconds)
    assert longer.gradient_ready[-1].seconds == pytest.approx(1.25 * own.gradient_ready[-1].seconds)
    assert longer.matmul_flops_per_second == pytest.approx(own.matmul_flops_per_second / 1.25)
    assert (longer.input_pipeline, longer.parameters, longer.memory) == (own.input_pipeline, own.parameters, own.memory)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2", "tp", "zero1"])
def test_a_step_timed_there_is_the_step_of_one_gpu_there(strategy):
    own = profile(host=0.5, free_steps=[fsdp_free(base=profile(host=0.5))])

    alone = predict(own, wire(10e9), strategy, 1, one_gpu_seconds=0.040)
    pair, as_profiled = (predict(own, wire(10e9), strategy, 2, one_gpu_seconds=given) for given in (0.040, None))

    assert alone.forecast.step_seconds.expected == pytest.approx(0.040)
    assert pair.one_gpu_seconds == pytest.approx(0.040)
    assert pair.forecast.step_seconds.expected > as_profiled.forecast.step_seconds.expected
    assert any("multiplied by 1.250" in note for note in pair.forecast.assumptions)


def test_a_step_timed_on_another_kind_of_gpu_is_not_scaled_by_rates_again():
    there = [gpu(0.5e14, 0.5e12), gpu(0.5e14, 0.5e12, together=True)]

    found = predict(profile(), wire(10e9), "ddp", 2, gpus=there, one_gpu_seconds=0.064)

    assert found.one_gpu_seconds == pytest.approx(0.064)


def test_all_gpus_slowing_each_other_down_still_counts():
    there = [gpu(0.5e14), gpu(0.4e14, together=True)]

    found = predict(profile(), wire(10e9), "ddp", 2, gpus=there, one_gpu_seconds=0.064)

    assert found.one_gpu_seconds == pytest.approx(0.064 * 1.25, rel=0.03)


def test_rates_come_from_gpus_alone_where_any_was():
    own = with_rates_of(profile(), [gpu(1.0e14), gpu(1.2e14), gpu(0.9e14, together=True)])

    assert own.matmul_flops_per_second == pytest.approx(1.1e14)
    assert with_rates_of(profile(), [gpu(0.9e14, together=True)]).matmul_flops_per_second == pytest.approx(0.9e14)
    assert with_rates_of(profile(), []) == profile()

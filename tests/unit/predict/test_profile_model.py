from dataclasses import replace

import pytest

from profiles import ddp_free, fsdp_free, phase, profile, times
from wiretax.errors import UsageError
from wiretax.model.measurement import Compute, HostLoad
from wiretax.model.profile import Span
from wiretax.predict.profile_model import work_of


def gpu(matmul: float, memory: float = 1e12, *, together: bool = True) -> Compute:
    return Compute(gpu=0, rank=0, together=together, matmul_flops_per_second=matmul, memory_bytes_per_second=memory)


def test_at_its_own_batch_the_work_is_the_profile():
    work = work_of(profile())

    assert work.forward_seconds == pytest.approx(0.010)
    assert work.backward_seconds == pytest.approx(0.020)
    assert work.bare_seconds == pytest.approx(0.032)
    assert work.unexplained_seconds == pytest.approx(0.0)


def test_what_the_pieces_leave_out_is_kept_as_unexplained():
    own = profile()
    longer = replace(own, bare=replace(own.bare, step=Span(seconds=0.040)))

    assert work_of(longer).unexplained_seconds == pytest.approx(0.008)
    assert work_of(longer).bare_seconds == pytest.approx(0.040)


def test_a_larger_batch_takes_more_device_time_the_same_update_and_says_so():
    work = work_of(profile(), batch_size=16)

    assert work.bare_seconds == pytest.approx(2 * 0.030 + 0.002)
    assert work.device_sigma > work_of(profile()).device_sigma
    assert any("grows with the batch" in note for note in work.assumptions)


def test_host_time_does_not_grow_with_the_batch():
    slow_host = profile(host=3.0)

    small, large = work_of(slow_host), work_of(slow_host, batch_size=16)

    assert sum(piece.host for piece in large.forward) == pytest.approx(sum(piece.host for piece in small.forward))
    assert large.bare_seconds == pytest.approx(small.bare_seconds, rel=0.05)


def test_gradients_arrive_as_they_were_measured():
    work = work_of(profile())

    assert [index for index, _, _ in work.ready] == [5, 4, 3, 2, 1, 0]
    assert [at for _, at, _ in work.ready] == pytest.approx([0.02 * (index + 1) / 6 for index in range(6)])


def test_arrivals_that_were_not_measured_are_derived_and_said_so():
    own = replace(profile(), gradient_ready=())

    work = work_of(own)

    assert [index for index, _, _ in work.ready] == [5, 4, 3, 2, 1, 0]
    assert work.ready[-1][1] == pytest.approx(0.020)
    assert any("arrival times were not measured" in note for note in work.assumptions)


def test_without_segments_arrivals_follow_the_sizes():
    own = replace(profile(), gradient_ready=(), segments=(), parameters=tuple(replace(one, segment=None) for one in profile().parameters))

    work = work_of(own)

    assert len(work.forward) == 1
    assert work.ready[0][1] == pytest.approx(0.020 / 6)
    assert work.ready[-1][1] == pytest.approx(0.020)


def test_host_time_of_a_segment_is_used_where_it_is_known():
    own = profile(host=1.0)
    known = replace(
        own,
        segments=tuple(
            replace(one, forward_host_seconds=0.001 if index else 0.005, backward_host_seconds=0.001)
            for index, one in enumerate(own.segments)
        ),
    )

    hosts = [piece.host for piece in work_of(known).forward]

    assert hosts[0] == pytest.approx(5 * hosts[1])
    assert sum(hosts) == pytest.approx(0.010)


def test_all_ranks_wait_for_the_slowest_gpu():
    work = work_of(profile(), gpus=[gpu(1e14, together=False), gpu(1e14), gpu(0.95e14)])

    assert work.forward_seconds == pytest.approx(0.010 / 0.95)
    assert any("all wait for it" in note for note in work.assumptions)


def test_like_gpus_change_nothing_whatever_another_program_measured_on_the_profiled_one():
    assert work_of(profile(), gpus=[gpu(0.93e14), gpu(0.932e14)]).bare_seconds == pytest.approx(0.032)


def test_a_gpu_of_half_the_speed_doubles_the_step_and_widens_the_interval():
    work = work_of(profile(), gpus=[gpu(0.5e14, 0.5e12)])

    assert work.bare_seconds == pytest.approx(0.064, rel=1e-3)
    assert work.device_sigma > 0.1
    assert any("other speed" in note for note in work.assumptions)


def test_cpu_ranks_were_profiled_together_and_are_not_scaled_by_their_rates():
    assert work_of(profile(device="cpu"), gpus=[gpu(5e13), gpu(2e14, together=False)]).device_factor == 1.0


def test_untold_clocks_are_less_sure():
    assert work_of(profile()).device_sigma > work_of(profile(host=0.1)).device_sigma


def test_noisy_samples_are_less_sure():
    own = profile(host=0.1)
    noisy = replace(own, bare=replace(own.bare, step=Span(seconds=0.032, samples_seconds=(0.02, 0.03, 0.032, 0.034, 0.05))))

    assert work_of(noisy).device_sigma > work_of(own).device_sigma


def test_on_a_cpu_rank_host_and_device_are_one():
    own = replace(profile(device="cpu"), bare=times(phase(0.01, 0.01), phase(0.02, 0.02), phase(0.002, 0.002)))

    work = work_of(own)

    assert work.bare_seconds == pytest.approx(0.032)
    assert all(piece.host == 0.0 for piece in work.forward)


def test_the_free_step_of_the_nearest_world_size_is_taken():
    base = profile()
    own = profile(free_steps=[fsdp_free(base, world_size=2), fsdp_free(base, world_size=8)])

    assert work_of(own).free_step("fsdp2", world_size=6).world_size == 8
    assert work_of(own).free_step("tp", world_size=6) is None


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(UsageError):
        work_of(profile(), batch_size=0)


def test_the_input_pipeline_grows_with_the_batch():
    assert work_of(profile(input_seconds=0.1), batch_size=16).input_seconds == pytest.approx(0.2)


def test_a_busy_host_widens_the_interval_and_is_named():
    busy = replace(profile(), host_load=HostLoad(busy_fraction=0.9, steal_fraction=0.1, other_busy_fraction=0.3, frequency_mhz=2600.0))

    assert work_of(busy).host_sigma > work_of(profile()).host_sigma
    assert any("40 % of the processors" in note for note in work_of(busy).assumptions)


def test_a_strategy_that_seems_to_shorten_the_step_was_disturbed():
    base = profile()
    quick = profile(free_steps=[ddp_free(more_backward=-0.005)])

    assert work_of(quick).device_sigma > work_of(base).device_sigma
    assert any("disturbed" in note for note in work_of(quick).assumptions)

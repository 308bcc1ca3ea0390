from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import fsdp_free, phase, profile, wire
from wiretax.predict.contention import NO_CONTENTION
from wiretax.predict.forecast import predict
from wiretax.predict.fsdp import shard_group_size, sharded_groups, simulate_fsdp
from wiretax.predict.interval import centre
from wiretax.predict.options import DEFAULTS, Options
from wiretax.predict.profile_model import work_of

MIB = 2**20
BLOCK, ROOT = 32 * MIB, 64 * MIB


def step(own, *, busbw=10e9, world_size=2, options=DEFAULTS, strategy="fsdp2"):
    outcome, notes = simulate_fsdp(work_of(own), wire(busbw, 0.0), world_size, options, centre(), NO_CONTENTION, strategy=strategy)
    return float(outcome.finish[0]), float(outcome.marks["forward"][0]), notes


def with_free(host=0.0, **shape):
    base = profile(**shape)
    return profile(**shape, free_steps=[fsdp_free(base, host=host)])


def test_groups_are_the_root_first_and_then_each_block():
    groups, notes = sharded_groups(work_of(with_free()), with_free().free_steps[0])

    assert [one.parameter_bytes for one in groups] == [ROOT, BLOCK, BLOCK, BLOCK, BLOCK]
    assert groups[0].head == pytest.approx(0.5)
    assert notes == []


def test_with_communication_free_the_step_is_the_profiled_one():
    own = with_free(host=0.001)

    assert step(own, busbw=1e18)[0] == pytest.approx(own.free_steps[0].times.step.seconds, rel=1e-6)


def test_on_a_slow_wire_everything_gathered_and_reduced_is_on_the_wire_one_after_the_other():
    own = with_free()
    half = 0.5  # (N - 1) / N
    gathered_forward, gathered_backward, reduced = ROOT + 4 * BLOCK, 4 * BLOCK, ROOT + 4 * BLOCK

    seconds, forward, _ = step(own, busbw=1e8)

    on_the_wire = half * (gathered_forward + gathered_backward + reduced) / 1e8
    assert seconds == pytest.approx(on_the_wire, rel=0.02)
    assert seconds >= on_the_wire
    assert forward == pytest.approx(half * gathered_forward / 1e8, rel=0.02)


def test_grad_op_gathers_once():
    own = with_free()

    full, _, _ = step(own, busbw=1e8)
    grad_op, _, _ = step(own, busbw=1e8, strategy="fsdp2_grad_op")

    assert full - grad_op == pytest.approx(0.5 * 4 * BLOCK / 1e8, rel=0.02)


def test_the_roots_gather_is_never_hidden():
    own = with_free(forward=1.0, backward=1.0)

    seconds, forward, _ = step(own)

    # Everything else hides behind a second of compute, but for the root's own gather and its reduce-scatter at the end.
    exposed = 2 * 0.5 * ROOT / 10e9
    assert seconds == pytest.approx(2.0 + 0.001 + exposed, rel=1e-3)
    assert forward == pytest.approx(1.0 + exposed / 2, rel=1e-3)


def test_a_slow_host_hides_the_wire_and_sets_the_pace():
    own = with_free(host=0.01)

    fast, _, _ = step(own, busbw=1e18)
    slower, _, _ = step(own, busbw=20e9)

    assert fast == pytest.approx(own.free_steps[0].times.step.seconds, rel=1e-6)
    assert slower - fast < 0.005


def test_each_micro_step_gathers_and_reduces_again():
    own = with_free()

    one, _, _ = step(own, busbw=1e9)
    four, _, notes = step(own, busbw=1e9, options=Options(accumulation_steps=4))

    assert four == pytest.approx(4 * one - 3 * 0.001, rel=1e-3)
    assert any("gathers and reduces again" in note for note in notes)


def test_a_second_reduce_scatter_buffer_lets_compute_run_ahead():
    own = with_free(backward=0.05)

    one, _, _ = step(own, busbw=2e9)
    two, _, _ = step(own, busbw=2e9, options=Options(reduce_scatter_buffers=2))

    assert two <= one


def test_gathering_ahead_in_forward_hides_what_a_late_host_exposes():
    # The first block's gather is issued after 1.25 + 1.875 + 1.25 ms of host time; four of 6 ms follow one another.
    own = with_free(host=0.005, forward=0.001, backward=0.001, root_bytes=2 * MIB)
    busbw = 0.5 * BLOCK / 0.006

    _, usual, _ = step(own, busbw=busbw)
    _, ahead, _ = step(own, busbw=busbw, options=Options(forward_prefetch=1))

    # What is left after the last gather are the last block and the head.
    assert usual == pytest.approx(0.004375 + 4 * 0.006 + 2 * 0.001 / 6, rel=1e-3)
    # Asked for one group earlier, it is issued right after the root's, 1.875 ms of host time sooner.
    assert usual - ahead == pytest.approx(0.001875, rel=0.02)


def test_gathering_two_ahead_in_backward_puts_gathers_before_reductions():
    own = with_free(backward=0.001)

    usual, _, _ = step(own, busbw=1e9)
    ahead, _, _ = step(own, busbw=1e9, options=Options(backward_prefetch=2))

    # The wire carries the same bytes, so on a slow one the order hardly matters.
    assert ahead == pytest.approx(usual, rel=0.02)


def test_gathering_in_bf16_halves_the_gathers_of_fp32_weights():
    wide = replace(
        profile(),
        parameters=tuple(replace(one, dtype="float32", num_elements=one.num_bytes // 4) for one in profile().parameters),
    )

    full, forward, _ = step(wide, busbw=1e8)
    halved, half_forward, notes = step(wide, busbw=1e8, options=Options(param_dtype="bfloat16"))

    assert half_forward == pytest.approx(forward / 2, rel=0.05)
    assert full - halved == pytest.approx(0.5 * (0.5 * (ROOT + 4 * BLOCK) + 0.5 * 4 * BLOCK) / 1e8, rel=0.05)
    assert any("gathered in bf16" in note for note in notes)


def test_shards_of_a_hybrid_free_step_are_its_groups():
    base = profile(optimizer=0.08)
    free = fsdp_free(base, world_size=4, optimizer_host=0.0, host=0.0)
    hybrid = replace(free, strategy="hsdp", options={"shard_group_size": "2"}, times=replace(free.times, optimizer=phase(0.04, 0.0)))
    own = replace(base, free_steps=(hybrid,))

    seconds, _, _ = step(own, busbw=1e18, world_size=8, strategy="hsdp", options=Options(shard_group_size=2))

    # Two shards then as now: the update keeps its 40 ms, which the profiled step did not count fully.
    assert seconds == pytest.approx(free.times.step.seconds, rel=1e-3)


def test_the_update_shrinks_with_the_number_of_shards():
    own = profile(optimizer=0.08)
    own = profile(optimizer=0.08, free_steps=[fsdp_free(own, optimizer_host=0.0, host=0.0)])

    two, _, _ = step(own, busbw=1e18)
    eight, _, _ = step(own, busbw=1e18, world_size=8)

    assert two - eight == pytest.approx(0.04 - 0.01, rel=1e-3)


def test_hybrid_sharding_keeps_the_gathers_inside_a_group_and_reduces_across():
    own = with_free()

    hybrid, _, notes = step(own, busbw=1e9, world_size=4, strategy="hsdp")
    full, _, _ = step(own, busbw=1e9, world_size=4)

    assert hybrid < full
    assert any("2 replicas of 2 shards" in note for note in notes)


@pytest.mark.parametrize(("world_size", "asked", "size"), [(8, None, 4), (6, None, 3), (8, 2, 2), (8, 3, 4), (2, None, 1)])
def test_a_shard_group_is_what_was_asked_for_where_it_divides_the_gpus(world_size, asked, size):
    assert shard_group_size(world_size, Options(shard_group_size=asked)) == size


def test_without_a_free_step_host_time_is_a_guess_that_is_named():
    _, _, notes = step(profile())

    assert any("host time was not profiled" in note for note in notes)


def test_a_free_step_of_another_model_lends_its_host_time_a_group():
    other = profile(num_blocks=2)
    own = profile(free_steps=[fsdp_free(other, host=0.02)])

    seconds, _, notes = step(own, busbw=1e18)

    assert any("another model" in note for note in notes)
    assert seconds > 2 * 5 * 0.02 * 0.9


def test_a_model_that_was_not_cut_is_one_group_and_hides_nothing():
    own = replace(profile(), segments=(), parameters=tuple(replace(one, segment=None) for one in profile().parameters), free_steps=())
    groups, _ = sharded_groups(work_of(own), None)

    assert len(groups) == 1
    assert groups[0].parameter_bytes == ROOT + 4 * BLOCK


def test_on_a_cpu_rank_host_and_device_are_one_and_counted_once():
    base = profile(device="cpu")
    own = profile(device="cpu", free_steps=[fsdp_free(base, host=0.005)])

    groups, _ = sharded_groups(work_of(own), own.free_steps[0])

    assert all(one.forward.host == 0.0 for one in groups)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e8, 1e12), st.floats(1.0, 10.0), st.floats(0, 0.005))
def test_more_bandwidth_never_makes_a_step_slower(busbw, factor, host):
    own = with_free(host=host)

    slow = predict(own, wire(busbw), "fsdp2", 4).forecast.step_seconds
    fast = predict(own, wire(busbw * factor), "fsdp2", 4).forecast.step_seconds

    assert fast.expected <= slow.expected * (1 + 1e-9)

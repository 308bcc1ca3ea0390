import pytest

from profiles import MIB, profile, tp_free, wire
from wiretax.predict.contention import NO_CONTENTION
from wiretax.predict.interval import centre
from wiretax.predict.options import DEFAULTS, Options
from wiretax.predict.profile_model import work_of
from wiretax.predict.tensor_parallel import simulate_tensor_parallel


def step(own, *, busbw=10e9, world_size=2, options=DEFAULTS, replicas=1):
    outcome, notes = simulate_tensor_parallel(
        work_of(own), wire(busbw, 0.0), world_size, options, centre(), NO_CONTENTION, replicas=replicas
    )
    return float(outcome.finish[0]), notes


def with_free():
    base = profile()
    return profile(free_steps=[tp_free(base)])


def test_with_communication_free_the_step_is_the_profiled_one():
    own = with_free()

    assert step(own, busbw=1e18)[0] == pytest.approx(own.free_steps[0].times.step.seconds)


def test_every_all_reduce_is_on_the_critical_path():
    own = with_free()

    seconds, _ = step(own, busbw=1e9)

    # Four blocks, two calls a block and pass.
    assert seconds == pytest.approx(0.016 + 16 * 4 * MIB / 1e9)


def test_a_larger_batch_sends_larger_activations():
    own = with_free()

    outcome, _ = simulate_tensor_parallel(work_of(own, batch_size=16), wire(1e9, 0.0), 2, DEFAULTS, centre(), NO_CONTENTION)

    assert float(outcome.finish[0]) == pytest.approx(2 * 0.015 + 0.001 + 16 * 8 * MIB / 1e9)


def test_without_a_free_step_of_this_size_blocks_shrink_by_an_assumption_that_is_named():
    seconds, notes = step(with_free(), world_size=4, busbw=1e18)

    assert any("not profiled" in note for note in notes)
    assert 0.032 / 4 < seconds < 0.032


def test_the_recorded_bytes_of_a_blocks_output_are_what_it_sends():
    own = profile()

    fast, _ = step(own, busbw=1e18)
    slow, _ = step(own, busbw=1e9)

    assert slow - fast == pytest.approx(4 * 4 * 2 * MIB / 1e9, rel=0.2)


def test_data_parallel_groups_reduce_their_gradients_too():
    own = with_free()

    one, _ = step(own, busbw=1e9)
    two, notes = step(own, busbw=1e9, replicas=2)

    assert two > one
    assert any("2 data-parallel groups of 2" in note for note in notes)


def test_accumulation_repeats_everything_but_the_update():
    own = with_free()

    one, _ = step(own, busbw=1e9)
    three, _ = step(own, busbw=1e9, options=Options(accumulation_steps=3))

    assert three == pytest.approx(3 * one - 2 * 0.001)


def test_a_model_without_blocks_cannot_say_where_its_all_reduces_are():
    from dataclasses import replace

    own = replace(profile(), segments=())

    assert any("not cut into blocks" in note for note in step(own)[1])

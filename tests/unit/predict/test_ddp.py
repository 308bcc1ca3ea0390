from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import bucket, ddp_free, phase, profile, times, wire
from recorded_h200x2 import profile as recorded_profile
from wiretax.predict.contention import NO_CONTENTION
from wiretax.predict.ddp import assign_buckets, buckets, simulate_ddp
from wiretax.predict.forecast import predict
from wiretax.predict.interval import centre
from wiretax.predict.options import DEFAULTS, Options
from wiretax.predict.profile_model import work_of

MIB = 2**20


def step(own, options=DEFAULTS, busbw=10e9, world_size=2):
    outcome, notes = simulate_ddp(work_of(own), wire(busbw, 0.0), world_size, options, centre(), NO_CONTENTION)
    return float(outcome.finish[0]), notes


torch_distributed = pytest.importorskip("torch.distributed")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3_000_000), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([[MIB, 25 * MIB], [25 * MIB], [MIB], [64 * 1024, 2 * MIB]]),
)
def test_buckets_are_those_of_torch(tensors, limits):
    torch = pytest.importorskip("torch")
    made = [torch.empty(elements, dtype=torch.float32 if wide else torch.bfloat16, device="meta") for elements, wide in tensors]
    order = list(range(len(made)))

    theirs, _ = torch_distributed._compute_bucket_assignment_by_size(made, limits, [False] * len(made), order)

    ours = assign_buckets([one.numel() * one.element_size() for one in made], [str(one.dtype) for one in made], order, limits)
    # torch keeps unfinished buckets in a hash table, so only the order of the last ones is its own.
    assert sorted(ours) == sorted(theirs)
    closed = len(ours) - len({str(one.dtype) for one in made})
    assert ours[: max(closed, 0)] == theirs[: max(closed, 0)]


def test_torch_rebuilds_the_buckets_by_arrival_and_so_do_we():
    own = profile(num_blocks=3, block_bytes=30 * MIB, root_bytes=4 * MIB)

    found = buckets(own, [4, 3, 2, 1, 0], DEFAULTS)

    assert [one.parameters for one in found] == [(4,), (3,), (2,), (1,), (0,)]
    assert [one.num_bytes for one in found] == [2 * MIB, 30 * MIB, 30 * MIB, 30 * MIB, 2 * MIB]


def test_small_gradients_share_a_bucket_after_the_first_mebibyte():
    own = profile(num_blocks=6, block_bytes=8 * MIB, root_bytes=4 * MIB)

    found = buckets(own, list(range(7, -1, -1)), DEFAULTS)

    assert [one.parameters for one in found] == [(7,), (6, 5, 4, 3), (2, 1, 0)]


def test_a_cap_that_was_asked_for_has_no_small_first_bucket():
    own = profile(num_blocks=6, block_bytes=8 * MIB, root_bytes=4 * MIB)

    found = buckets(own, list(range(7, -1, -1)), Options(bucket_cap_mb=25))

    assert found[0].parameters == (7, 6, 5, 4)


def test_what_gets_no_gradient_still_travels_where_ddp_had_to_look_for_it():
    own = profile(num_blocks=2, block_bytes=30 * MIB, root_bytes=60 * MIB)
    unused = replace(own.parameters[1], gradient_bytes=0)
    made = tuple(replace(bucket(30 * MIB, host=0.0, device=0.0), parameters=(index,)) for index in (3, 2, 1, 0))
    free = replace(ddp_free(base=own), buckets=made, options={"find_unused_parameters": "True"})
    own = replace(own, parameters=(own.parameters[0], unused, *own.parameters[2:]), free_steps=(free,))

    found = buckets(own, [3, 2, 0], DEFAULTS)

    assert [one.parameters for one in found] == [(3,), (2,), (1,), (0,)]
    assert sum(one.num_bytes for one in found) == 120 * MIB
    own = replace(own, gradient_ready=tuple(one for one in own.gradient_ready if one.parameter != 1))
    without = replace(own, free_steps=(replace(free, options={}),))
    assert step(own, busbw=1e9)[0] > step(without, busbw=1e9)[0]


def test_with_unused_parameters_torch_keeps_the_reverse_order_of_the_model():
    own = profile(num_blocks=2, block_bytes=30 * MIB, root_bytes=60 * MIB)
    arrival = [0, 3, 1, 2]

    assert buckets(own, arrival, DEFAULTS)[0].parameters == (0,)
    assert buckets(own, arrival, Options(find_unused_parameters=True))[0].parameters == (3,)
    assert buckets(own, arrival, Options(find_unused_parameters=True, static_graph=True))[0].parameters == (0,)


def test_the_recorded_model_gets_the_buckets_torch_gives_it():
    torch = pytest.importorskip("torch")
    own = recorded_profile("gpt124m", 8, 1)
    arrival = [one.parameter for one in own.gradient_ready]
    made = [torch.empty(one.num_elements, device="meta") for one in own.parameters]

    theirs, _ = torch_distributed._compute_bucket_assignment_by_size(
        [made[index] for index in arrival], [MIB, 25 * MIB], [False] * len(made), list(arrival)
    )

    assert [list(one.parameters) for one in buckets(own, arrival, DEFAULTS)] == theirs


def test_an_infinitely_fast_wire_costs_nothing():
    assert step(profile(), busbw=1e18)[0] == pytest.approx(0.032)


def test_the_last_bucket_is_always_exposed():
    # 32 MiB at 10 GB/s after a backward pass in which all earlier buckets had time enough.
    own = profile(backward=0.2)

    assert step(own)[0] == pytest.approx(0.212 + 32 * MIB / 10e9)


def test_on_a_slow_wire_the_step_is_the_first_gradients_arrival_plus_all_reductions():
    own = profile(num_blocks=4)
    total = sum(one.gradient_bytes for one in own.parameters)

    seconds, _ = step(own, busbw=1e9)

    assert seconds == pytest.approx(0.010 + 0.020 / 6 + total / 1e9 + 0.002, rel=1e-6)


def test_hooks_and_copies_of_the_world_size_1_profile_are_added():
    own = profile(free_steps=[ddp_free(more_forward=0.001, more_backward=0.003)])

    seconds, notes = step(own, busbw=1e18)

    assert seconds == pytest.approx(0.036)
    assert not any("not profiled" in note for note in notes)


def test_without_a_profile_of_ddp_the_forecast_says_so():
    assert any("not profiled at world size 1" in note for note in step(profile())[1])


def test_a_bucket_pays_its_own_measured_cost():
    free = replace(
        ddp_free(more_backward=0.006),
        buckets=(*(bucket(32 * MIB, host=0, device=0.0) for _ in range(5)), bucket(32 * MIB, host=0, device=1.0)),
    )
    own = profile(free_steps=[free])

    late, _ = step(own, busbw=6e9)
    early, _ = step(replace(own, free_steps=(replace(free, buckets=tuple(reversed(free.buckets))),)), busbw=6e9)

    # Work before the first bucket delays every reduction, work before the last one hides behind them.
    assert late < early


def test_accumulation_pays_for_the_wire_once():
    own = profile()
    one, _ = step(own, busbw=2e9)
    four, _ = step(own, Options(accumulation_steps=4), busbw=2e9)
    exposed = one - 0.032
    # Adding up gradients reads two and writes one copy of them, three times.
    adding = 3 * 3 * sum(parameter.gradient_bytes for parameter in own.parameters) / 1e12

    assert four == pytest.approx(4 * 0.030 + 0.002 + exposed + adding)


def test_a_bf16_hook_halves_fp32_gradients_and_leaves_bf16_ones():
    own = profile()
    wide = replace(
        own,
        parameters=tuple(
            replace(one, dtype="float32", num_bytes=2 * one.num_bytes, gradient_bytes=2 * one.gradient_bytes) for one in own.parameters
        ),
    )

    plain, _ = step(wide, busbw=1e9)
    halved, _ = step(wide, Options(comm_hook="bf16_compress"), busbw=1e9)
    unsent = 0.010 + 0.020 / 6 + 0.002  # forward, the first gradient's arrival, the update
    assert (halved - unsent) / (plain - unsent) == pytest.approx(0.5, abs=0.02)

    same, _ = step(own, busbw=1e9)
    still, _ = step(own, Options(comm_hook="bf16_compress"), busbw=1e9)
    assert still >= same


def test_powersgd_sends_two_thin_matrices_for_each_thick_one():
    own = profile()

    plain, _ = step(own, busbw=1e9)
    thin, notes = step(own, Options(comm_hook="powersgd", powersgd_rank=4), busbw=1e9)

    assert thin < plain / 2
    assert any("predicted only" in note for note in notes)


def test_gradients_that_are_no_views_are_copied_twice():
    own = profile(free_steps=[ddp_free()])

    views, _ = step(own, busbw=1e18)
    copies, _ = step(own, Options(gradient_as_bucket_view=False), busbw=1e18)

    assert copies - views == pytest.approx(4 * 192 * MIB / 1e12)


def test_buffers_are_broadcast_before_forward_unless_told_otherwise():
    own = replace(profile(), buffer_bytes=10_000_000)

    with_buffers, _ = step(own)
    without, _ = step(own, Options(broadcast_buffers=False))

    assert with_buffers - without == pytest.approx(1e-3, rel=1e-3)


def test_frozen_parameters_travel_nowhere():
    own = profile()
    frozen = replace(own, parameters=tuple(replace(one, gradient_bytes=0) if one.segment == 0 else one for one in own.parameters))
    frozen = replace(frozen, gradient_ready=tuple(one for one in own.gradient_ready if one.parameter != 0))

    assert step(frozen)[0] < step(own)[0]


def test_a_host_that_is_slower_than_the_device_sets_the_pace():
    own = profile(host=1.5)

    assert step(own, busbw=1e18)[0] == pytest.approx(own.bare.step.seconds)


def test_two_dtypes_fill_buckets_of_their_own():
    own = profile(num_blocks=2, block_bytes=20 * MIB, root_bytes=2 * MIB)
    mixed = replace(own, parameters=tuple(replace(one, dtype="float32") if one.segment in (1, 3) else one for one in own.parameters))

    found = buckets(mixed, [3, 2, 1, 0], DEFAULTS)

    assert all(len({mixed.parameters[index].dtype for index in one.parameters}) == 1 for one in found)


def test_a_phase_told_apart_on_one_side_only_is_compared_by_elapsed_time():
    free = replace(ddp_free(), times=times(phase(0.010, 0.001), phase(0.022, 0.001), phase(0.002, 0.0001), step=0.034))
    own = profile(free_steps=[free])

    assert step(own, busbw=1e18)[0] == pytest.approx(0.034)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e8, 1e12), st.floats(1.0, 10.0))
def test_more_bandwidth_never_makes_a_step_slower(busbw, factor):
    own = profile(host=0.6, free_steps=[ddp_free()])

    # Measured on 2 only, what is not known of 4 differs by the kind of wire, and with it the range: there only the expected one follows.
    guessed = [predict(own, wire(one), "ddp", 4).forecast.step_seconds.expected for one in (busbw, busbw * factor)]
    slow, fast = (predict(own, wire(one, world_size=4), "ddp", 4).forecast.step_seconds for one in (busbw, busbw * factor))

    assert guessed[1] <= guessed[0] * (1 + 1e-9)
    assert fast.expected <= slow.expected * (1 + 1e-9)
    assert fast.high <= slow.high * (1 + 1e-9)

"""From timed steps to a profile's numbers, with steps written by hand."""

import pytest

from wiretax.train.records import (
    NotInOrder,
    Samples,
    arrivals,
    backward_cut,
    bucket_times,
    calls_of,
    cuts_of,
    forward_cut,
    gradient_ready,
    groups_of,
    segments_of,
    span,
    step_times,
)
from wiretax.train.stopwatch import Call, StepRecord

FORWARD = [(("enter", 0), 1.0), (("leave", 0), 2.5), (("enter", 1), 3.0), (("leave", 1), 5.0)]
BACKWARD = [
    (("ready", 3), 0.5),
    (("back", 1), 1.0),
    (("ready", 2), 3.0),
    (("back", 0), 4.0),
    (("ready", 1), 6.0),
    (("back", -1), 8.0),
    (("ready", 0), 9.0),
]


def record(scale=1.0, forward=FORWARD, backward=BACKWARD, calls=()):
    marks = {
        "forward": [(label, when * scale) for label, when in forward],
        "backward": [(label, when * scale) for label, when in backward],
        "optimizer": [],
    }
    phases = {"forward": 6.0 * scale, "backward": 10.0 * scale, "optimizer": 2.0 * scale}
    return StepRecord(step_seconds=19.0 * scale, phases=phases, first=phases, marks=marks, calls=list(calls))


def gpu_samples(**changes):
    plain = {
        "elapsed": [record()],
        "host": [record(0.5)],
        "device": [record(2.0)],
        "host_detail": [record(3.0)],
        "device_detail": [record(4.0)],
    }
    return Samples(**(plain | changes))


def test_a_span_is_the_median_with_all_samples():
    assert span([3.0, 1.0, 2.0]).seconds == 2.0
    assert span([3.0, 1.0, 2.0]).samples_seconds == (3.0, 1.0, 2.0)


def test_the_three_clocks_are_kept_apart():
    times = step_times(gpu_samples())
    assert times.step.seconds == 19.0
    assert (times.backward.elapsed.seconds, times.backward.device.seconds, times.backward.host.seconds) == (10.0, 20.0, 5.0)


def test_on_a_cpu_rank_the_three_clocks_are_one():
    times = step_times(Samples(elapsed=[record()], one_clock=True))
    assert times.forward.elapsed == times.forward.device == times.forward.host


def test_clocks_that_could_not_be_told_apart_are_missing_with_the_reason():
    times = step_times(Samples(elapsed=[record()], why_one_clock="it waits"))
    assert times.forward.device is None and times.forward.host is None
    assert times.forward.missing == {"device": "it waits", "host": "it waits"}


def test_forward_is_cut_where_blocks_are_entered_and_the_last_one_is_left():
    cut = forward_cut(record(), 2)
    assert (cut.before, cut.blocks, cut.after) == (1.0, (2.0, 2.0), 1.0)
    assert cut.own == (1.5, 2.0)  # what lies between two blocks is not a block's own
    assert cut.rest == 2.5


def test_backward_is_cut_where_it_reaches_the_outputs_of_blocks():
    cut = backward_cut(record(), 2)
    assert (cut.after, cut.blocks, cut.before) == (1.0, (4.0, 3.0), 2.0)


def test_a_first_block_whose_input_needs_no_gradient_takes_backward_to_its_end():
    cut = backward_cut(record(backward=[one for one in BACKWARD if one[0] != ("back", -1)]), 2)
    assert (cut.blocks, cut.before) == ((6.0, 3.0), 0.0)


@pytest.mark.parametrize(
    "forward",
    [FORWARD + FORWARD, FORWARD[2:], FORWARD[2:] + FORWARD[:2], []],
    ids=["twice", "not at all", "out of turn", "never"],
)
def test_blocks_that_do_not_run_once_each_in_order_cannot_be_cut(forward):
    with pytest.raises(NotInOrder, match="once each in the order given"):
        forward_cut(record(forward=forward), 2)


def test_a_backward_that_passes_blocks_out_of_turn_cannot_be_cut():
    swapped = [(("back", 0), 1.0), (("back", 1), 2.0)]
    with pytest.raises(NotInOrder, match="reverse order"):
        backward_cut(record(backward=swapped), 2)


def test_segments_add_up_to_the_phases_of_the_undisturbed_step_on_both_clocks():
    samples = gpu_samples()
    times = step_times(samples)
    segments = segments_of(
        cuts_of(samples, times, 2), parameter_bytes=[1, 2, 3, 4], gradient_bytes=[1, 2, 3, 0], output_bytes=[8, 8, None, 0]
    )
    assert [one.role for one in segments] == ["before", "block", "block", "after"]
    assert sum(one.forward_seconds for one in segments) == pytest.approx(times.forward.device.seconds)
    assert sum(one.backward_seconds for one in segments) == pytest.approx(times.backward.device.seconds)
    assert sum(one.forward_host_seconds for one in segments) == pytest.approx(times.forward.host.seconds)
    assert sum(one.backward_host_seconds for one in segments) == pytest.approx(times.backward.host.seconds)
    assert segments[2].missing == {"output_bytes": "the output holds no tensor"}


def test_groups_cover_the_step_with_the_root_first():
    samples = gpu_samples()
    groups = groups_of(cuts_of(samples, step_times(samples), 2), parameter_bytes=[1, 2, 3, 4], gradient_bytes=[1, 2, 3, 4])
    assert [one.segments for one in groups] == [(0, 3), (1,), (2,)]
    assert [one.parameter_bytes for one in groups] == [5, 2, 3]
    assert sum(one.forward_device_seconds for one in groups) == pytest.approx(12.0)
    assert sum(one.backward_host_seconds for one in groups) == pytest.approx(5.0)
    assert groups[0].forward_device_seconds == pytest.approx(2.5 * 2)


def test_gradients_are_listed_in_order_of_arrival_in_the_time_of_the_undisturbed_backward():
    ready = gradient_ready(arrivals([record(4.0), record(2.0)], 10.0))
    assert [(one.parameter, one.seconds) for one in ready] == [(3, 0.5), (2, 3.0), (1, 6.0), (0, 9.0)]


def test_a_shared_parameter_counts_as_ready_when_its_last_part_came():
    twice = [(("ready", 0), 1.0), (("ready", 1), 2.0), (("ready", 0), 7.0)]
    assert arrivals([record(backward=twice)], 10.0) == {0: 7.0, 1: 2.0}


def test_a_bucket_costs_what_the_gaps_after_its_gradients_grew_by():
    bare = ({0: 9.0, 1: 6.0, 2: 3.0}, 10.0)
    wrapped = ({0: 10.0, 1: 6.5, 2: 3.0}, 12.0)  # half a second after 2, half after 1, one after 0
    buckets = bucket_times([(40, (2, 1)), (20, (0,))], device=wrapped, host=bare, bare_device=bare, bare_host=bare)
    assert [(one.num_bytes, one.num_parameters, one.device_seconds) for one in buckets] == [
        (40, 2, pytest.approx(1.0)),
        (20, 1, pytest.approx(1.0)),
    ]
    assert [one.host_seconds for one in buckets] == [0.0, 0.0]


def test_noise_never_makes_a_bucket_cost_less_than_nothing():
    slow, fast = ({0: 5.0}, 10.0), ({0: 5.0}, 9.0)
    (bucket,) = bucket_times([(4, (0,))], device=fast, host=fast, bare_device=slow, bare_host=slow)
    assert (bucket.device_seconds, bucket.host_seconds) == (0.0, 0.0)


def test_calls_know_the_part_that_ran_and_both_moments():
    calls = [
        Call("all_gather", 64, "forward", False, 0.5, 0),
        Call("all_gather", 32, "forward", False, 3.5, 3),
        Call("reduce_scatter", 32, "backward", False, 5.0, 5),
        Call("broadcast", 16, "optimizer", True, 1.0, 0),
    ]
    samples = gpu_samples()
    device, host = record(1.0, calls=calls), record(1.0, calls=calls)
    found = calls_of([device], [host], step_times(samples), 2)
    assert [one.segment for one in found] == [0, 2, 1, None]
    assert [one.device_seconds for one in found] == [1.0, 7.0, 10.0, 2.0]
    assert [one.host_seconds for one in found] == [0.25, 1.75, 2.5, 0.5]


def test_calls_without_a_host_clock_say_so():
    samples = gpu_samples(host=[], why_one_clock="it waits")
    (call,) = calls_of([record(calls=[Call("all_reduce", 8, "forward", True, 1.0, 0)])], [], step_times(samples), 2)
    assert call.host_seconds is None and "host" in call.missing["host_seconds"]

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import sweep, wire
from wiretax.errors import UsageError
from wiretax.model.measurement import Measurements
from wiretax.predict.wire_curve import Wire, bus_factor, robust_sigma

MIB = 2**20


def measured(*sweeps):
    return Wire.measured(Measurements(collectives=tuple(sweeps)), "default")


def test_a_measured_point_comes_back_as_it_was_measured():
    curve = measured(sweep("all_reduce", 2, [(MIB, 1e-4), (2 * MIB, 2e-4)])).curve("all_reduce", 2)

    assert curve.seconds(MIB) == 1e-4
    assert curve.assumptions == ()


def test_between_two_points_the_curve_is_straight_in_log_log():
    curve = measured(sweep("all_reduce", 2, [(MIB, 1e-4), (4 * MIB, 4e-4)])).curve("all_reduce", 2)

    assert curve.seconds(2 * MIB) == pytest.approx(2e-4)


def test_below_the_smallest_size_a_message_takes_as_long_and_above_the_largest_it_keeps_the_rate():
    curve = measured(sweep("all_reduce", 2, [(1024, 1e-5), (MIB, 1e-4)])).curve("all_reduce", 2)

    assert curve.seconds(8) == 1e-5
    assert curve.seconds(3 * MIB) == pytest.approx(3e-4)
    assert curve.beyond(3 * MIB) == "all_reduce above 1 MiB keeps the rate of that size"
    assert curve.beyond(2048) is None


def test_outside_the_measured_sizes_the_curve_is_less_sure():
    curve = measured(sweep("all_reduce", 2, [(1024, 1e-5), (MIB, 1e-4)])).curve("all_reduce", 2)

    assert curve.sigma_at(2048) == curve.sigma
    assert curve.sigma < curve.sigma_at(2 * MIB) < curve.sigma_at(64 * MIB)
    assert curve.sigma_at(8) > curve.sigma


def test_of_eager_and_graph_timings_the_undisturbed_one_counts():
    curve = measured(
        sweep("all_reduce", 2, [(MIB, 2e-4), (2 * MIB, 2.1e-4)]), sweep("all_reduce", 2, [(MIB, 1e-4), (2 * MIB, 2.2e-4)], mode="graph")
    ).curve("all_reduce", 2)

    assert curve.seconds(MIB) == 1e-4
    assert curve.seconds(2 * MIB) == 2.1e-4


def test_a_size_that_took_longer_than_a_larger_one_was_disturbed():
    curve = measured(sweep("all_gather", 2, [(4 * MIB, 3.0e-4), (8 * MIB, 3.5e-5), (16 * MIB, 5.5e-5)])).curve("all_gather", 2)

    assert curve.seconds(4 * MIB) == 3.5e-5


def test_a_large_size_whose_bytes_got_dearer_was_disturbed():
    curve = measured(sweep("all_reduce", 2, [(64 * MIB, 1.0), (128 * MIB, 2.0), (256 * MIB, 6.0)])).curve("all_reduce", 2)

    assert curve.seconds(256 * MIB) == pytest.approx(4.6)


def test_host_cost_of_a_call_is_read_off_small_eager_timings():
    curve = measured(
        sweep("all_reduce", 2, [(8, 23e-6), (1024, 22e-6), (MIB, 1e-4)]), sweep("all_reduce", 2, [(8, 10e-6), (MIB, 1e-4)], mode="graph")
    ).curve("all_reduce", 2)

    assert curve.launch_seconds == pytest.approx(22.5e-6)


def test_without_graph_timings_the_host_cost_is_part_of_the_curve_and_not_counted_twice():
    assert measured(sweep("all_reduce", 2, [(8, 23e-6), (MIB, 1e-4)])).curve("all_reduce", 2).launch_seconds == 0.0


def test_spread_comes_from_the_samples_and_a_curve_without_samples_is_less_sure():
    quiet = sweep("all_reduce", 2, [(MIB, 1e-4)], samples=(0.99, 1.0, 1.0, 1.0, 1.01))
    noisy = sweep("all_reduce", 2, [(MIB, 1e-4)], samples=(0.8, 0.9, 1.0, 1.1, 1.2))
    unsampled = sweep("all_reduce", 2, [(MIB, 1e-4)])

    sigmas = [measured(one).curve("all_reduce", 2).sigma for one in (quiet, unsampled, noisy)]

    assert sigmas == sorted(sigmas)
    assert sigmas[0] < sigmas[1] < sigmas[2]


def test_another_number_of_gpus_follows_the_ring_and_says_so():
    curve = wire(10e9, latency=10e-6).curve("all_reduce", 8)

    # Same busbw: 2 (N - 1) / N grows from 1 to 1.75; hops from 2 to 14.
    assert curve.seconds(2**30) == pytest.approx(14 / 2 * 10e-6 + 1.75 * 2**30 / 10e9, rel=1e-3)
    assert any("ring model" in note for note in curve.assumptions)


def test_the_further_from_what_was_measured_the_less_sure():
    found = wire(10e9)

    sigmas = [found.curve("all_reduce", n).sigma for n in (2, 4, 8, 16)]

    assert sigmas == sorted(sigmas)
    assert len(set(sigmas)) == 4


def test_between_two_measured_numbers_of_gpus_the_curve_lies_between_them():
    points = {
        n: [(2**power, 1e-5 + 2**power * bus_factor("all_reduce", n) / rate) for power in range(10, 30)]
        for n, rate in ((2, 1e10), (8, 2e10))
    }
    found = measured(*(sweep("all_reduce", n, of) for n, of in points.items()))

    four = found.curve("all_reduce", 4)

    assert 1e10 < four.busbw(2**29) < 2e10
    assert found.world_sizes == (2, 8)
    assert "between the measured 2 and 8" in four.assumptions[0]


def test_an_operation_that_was_not_measured_has_the_busbw_of_the_all_reduce():
    found = measured(sweep("all_reduce", 2, [(1024, 1e-9), (2**30, 0.1)]))

    gather = found.curve("all_gather", 2)

    assert gather.busbw(2**30) == pytest.approx(found.curve("all_reduce", 2).busbw(2**30), rel=1e-6)
    assert gather.sigma > found.curve("all_reduce", 2).sigma
    assert "busbw of all_reduce" in gather.assumptions[0]


def test_on_one_gpu_nothing_moves():
    curve = wire(10e9).curve("all_reduce", 1)

    assert curve.seconds(2**30) == 0.0
    assert bus_factor("all_reduce", 1) == 0.0


def test_a_typed_busbw_is_the_bare_formula():
    found = Wire.of_busbw(22e9)

    assert found.curve("all_reduce", 2).seconds(200e6) == pytest.approx(200e6 / 22e9)
    assert found.curve("all_reduce", 8).seconds(200e6) == pytest.approx(1.75 * 200e6 / 22e9, rel=1e-6)
    assert "as typed" in found.curve("all_reduce", 2).assumptions[0]


def test_a_foreign_table_makes_a_wire():
    found = Wire.of_points("nccl-tests.txt", "all_reduce", 4, [(8, 2e-5), (2**28, 0.02), (0, 1.0)])

    assert found.curve("all_reduce", 4).seconds(2**28) == 0.02


def test_of_several_pairs_a_job_gets_the_first_gpus():
    found = measured(sweep("all_reduce", 2, [(MIB, 9e-4)], gpus=(2, 3)), sweep("all_reduce", 2, [(MIB, 1e-4)], gpus=(0, 1)))

    assert found.curve("all_reduce", 2).seconds(MIB) == 1e-4


def test_an_unmeasured_wire_names_the_measured_ones():
    with pytest.raises(UsageError, match="default"):
        Wire.measured(Measurements(collectives=(sweep("all_reduce", 2, [(MIB, 1e-4)]),)), "socket")


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(UsageError):
        Wire.of_busbw(rate)


def test_a_foreign_table_without_a_time_is_refused():
    with pytest.raises(UsageError):
        Wire.of_points("empty.txt", "all_reduce", 2, [])


def test_the_robust_spread_ignores_one_wild_sample():
    assert robust_sigma((1.0, 1.01, 0.99, 1.0, 1.02, 50.0)) < 0.02


@given(st.lists(st.tuples(st.integers(3, 30), st.floats(1e-6, 1.0)), min_size=1, max_size=20), st.floats(1, 2**32), st.floats(1, 4))
def test_a_larger_message_never_takes_less_time(points, size, factor):
    curve = measured(sweep("all_reduce", 2, [(2**power, seconds) for power, seconds in points])).curve("all_reduce", 2)

    assert curve.seconds(size * factor) >= curve.seconds(size) * (1 - 1e-9)

"""Sweeps by real ranks over real gloo."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

from measure_ranks import run_ranks
from wiretax.measure import operations as ops
from wiretax.measure.collectives import sweep
from wiretax.measure.rank import Heartbeat
from wiretax.model.measurement import OPERATIONS, Incident

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
SIZES = [2**power for power in range(3, 23)]


def gloo_sweep(folder, ranks, function=sweep, *, seconds, deadline_seconds=None, **arguments):
    return run_ranks(
        folder,
        ranks,
        function,
        deadline_seconds=deadline_seconds or seconds + 8,
        variables=LOOPBACK,
        **{
            "backend": "gloo",
            "wire": "gloo",
            "world_sizes": [ranks],
            "seconds": seconds,
            "environment": {"GLOO_SOCKET_IFNAME": "lo"},
            "sizes": SIZES,
            "modes": ["eager"],
            **arguments,
        },
    )


def test_a_few_seconds_give_ten_sizes_of_two_operations_with_raw_samples(tmp_path):
    left = gloo_sweep(tmp_path, 2, operations=["all_reduce", "all_gather"], seconds=5)
    assert left.exit_codes == [0, 0], left.errors
    for operation in ("all_reduce", "all_gather"):
        points = left.points[operation, "eager", 2]
        assert len(points) >= 10
        for size, point in points.items():
            assert len(point.samples_seconds) >= 3
            assert point.seconds > 0
            assert point.stopped in ("tight", "budget")
            assert point.algbw_bytes_per_second == pytest.approx(size / point.seconds)
            assert point.busbw_bytes_per_second == pytest.approx(point.algbw_bytes_per_second * ops.bus_factor(operation, 2))
        series = left.series[operation, "eager", 2, ()]
        assert series.verified is True
        assert series.environment == {"GLOO_SOCKET_IFNAME": "lo"}
        assert series.transport == "gloo/tcp"
        assert series.host_load.busy_fraction is not None
    assert left.of(Incident) == []


def test_all_operations_run_and_are_verified_on_three_ranks(tmp_path):
    left = gloo_sweep(tmp_path, 3, sizes=[8, 4096, 2**20], seconds=4)
    assert left.exit_codes == [0, 0, 0], left.errors
    assert {key[0] for key in left.points} == set(OPERATIONS)
    assert all(series.verified for series in left.series.values())
    # 8 bytes cannot be gathered from three ranks: one element each is 12
    assert min(left.points["all_gather", "eager", 3]) == 12


def test_world_sizes_and_pairs_are_measured_one_after_another_while_the_others_wait(tmp_path):
    left = gloo_sweep(tmp_path, 3, operations=["all_reduce"], sizes=[1024, 65536], world_sizes=[2, 3], pairs=[[1, 2]], seconds=4)
    assert left.exit_codes == [0, 0, 0], left.errors
    assert set(left.points) == {("all_reduce", "eager", 3), ("all_reduce", "eager", 2)}
    assert set(left.points["all_reduce", "eager", 3]) == {1024, 65536}


def test_what_cannot_be_measured_is_kept_with_its_reason(tmp_path):
    left = gloo_sweep(tmp_path, 2, operations=["all_reduce"], modes=["eager", "graph"], sizes=[1024], seconds=2)
    series = left.series["all_reduce", "graph", 2, ()]
    assert "cannot be captured" in series.missing["points"]
    assert ("all_reduce", "graph", 2) not in left.points


def test_one_rank_alone_is_measured_and_says_that_it_has_no_peer(tmp_path):
    left = gloo_sweep(tmp_path, 1, sizes=[1024], seconds=2)
    assert left.exit_codes == [0], left.errors
    assert left.points["all_reduce", "eager", 1][1024].busbw_bytes_per_second == 0
    assert "nobody to send to" in left.series["send_recv", "eager", 1, ()].missing["points"]


def test_the_sweep_stops_by_itself_when_its_time_is_spent(tmp_path):
    started = time.monotonic()
    left = gloo_sweep(tmp_path, 2, sizes=[2**power for power in range(3, 31)], seconds=2)
    assert left.exit_codes == [0, 0], left.errors
    assert time.monotonic() - started < 2 + 2.5
    missing = left.series["all_reduce", "eager", 2, ()].missing["points"]
    assert "1 GiB" in missing
    assert "time for" in missing or "free memory" in missing


def test_too_little_time_for_anything_is_no_error(tmp_path):
    left = gloo_sweep(tmp_path, 2, seconds=0.0)
    assert left.exit_codes == [0, 0], left.errors
    assert left.points == {}
    assert left.series["all_reduce", "eager", 2, ()].missing["points"]


def corrupting_sweep(rank, **arguments):
    """Changes one element of large results on one rank, as broken peer access would."""
    honest = dist.all_reduce

    def all_reduce(tensor, *others, **more):
        result = honest(tensor, *others, **more)
        if rank.rank == 1 and tensor.numel() == 4096:
            tensor[1234] += 1
        return result

    dist.all_reduce = all_reduce
    sweep(rank, **arguments)


def test_wrong_data_is_an_incident_that_names_operation_wire_size_and_rank_and_measuring_goes_on(tmp_path):
    sizes = [1024, 4 * 4096, 2**18]
    left = gloo_sweep(tmp_path, 2, corrupting_sweep, operations=["all_reduce"], sizes=sizes, seconds=2)
    (incident,) = left.of(Incident)
    assert (incident.kind, incident.operation, incident.wire, incident.num_bytes, incident.rank, incident.world_size) == (
        "wrong_data",
        "all_reduce",
        "gloo",
        4 * 4096,
        1,
        2,
    )
    assert left.series["all_reduce", "eager", 2, ()].verified is False
    assert set(left.points["all_reduce", "eager", 2]) == set(sizes)


def unsupporting_sweep(rank, **arguments):
    def refuse(*_, **__):
        raise RuntimeError("ProcessGroupGloo::alltoall_base: not supported for this device\nmore lines")

    dist.all_to_all_single = refuse
    sweep(rank, **arguments)


def test_an_operation_that_the_backend_refuses_is_left_out_with_its_words(tmp_path):
    left = gloo_sweep(tmp_path, 2, unsupporting_sweep, operations=["all_reduce", "all_to_all"], sizes=[1024], seconds=2)
    assert left.exit_codes == [0, 0], left.errors
    assert "not supported for this device" in left.series["all_to_all", "eager", 2, ()].missing["points"]
    assert 1024 in left.points["all_reduce", "eager", 2]


def dying_sweep(rank, **arguments):
    """Rank 1 dies in its hundredth operation."""
    honest, count = dist.all_reduce, [0]

    def all_reduce(tensor, *others, **more):
        count[0] += 1
        if rank.rank == 1 and count[0] == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(tensor, *others, **more)

    dist.all_reduce = all_reduce
    sweep(rank, **arguments)


def test_when_a_rank_dies_the_others_say_where_and_everything_before_is_kept(tmp_path):
    left = gloo_sweep(tmp_path, 2, dying_sweep, operations=["all_reduce"], seconds=5)
    assert left.exit_codes == [1, -signal.SIGKILL]
    (incident,) = left.of(Incident)
    assert (incident.kind, incident.operation, incident.rank) == ("error", "all_reduce", 0)
    assert incident.num_bytes in SIZES
    assert len(left.points["all_reduce", "eager", 2]) >= 2
    assert left.seconds < 10


def stopping_sweep(rank, **arguments):
    """Rank 1 stops answering in its hundredth operation."""
    honest, count = dist.all_reduce, [0]

    def all_reduce(tensor, *others, **more):
        count[0] += 1
        if rank.rank == 1 and count[0] == 100:
            os.kill(os.getpid(), signal.SIGSTOP)
        return honest(tensor, *others, **more)

    dist.all_reduce = all_reduce
    sweep(rank, **arguments)


def test_when_a_rank_stops_answering_the_heartbeats_tell_which_and_what_was_measured_is_kept(tmp_path):
    left = gloo_sweep(tmp_path, 2, stopping_sweep, operations=["all_reduce"], seconds=3, deadline_seconds=3, kill_after=6)
    assert -signal.SIGKILL in left.exit_codes
    waiting, stopped = (Heartbeat.read(tmp_path / f"beat.{number}") for number in range(2))
    assert stopped.count <= waiting.count
    assert (stopped.operation, stopped.wire) == ("all_reduce", "gloo")
    assert stopped.num_bytes in SIZES
    assert len(left.points["all_reduce", "eager", 2]) >= 2


def test_a_kill_in_the_middle_leaves_a_curve(tmp_path):
    left = gloo_sweep(tmp_path, 2, operations=["all_reduce"], seconds=30, kill_at_bytes=2**16)
    assert left.exit_codes == [-signal.SIGKILL] * 2
    sizes = sorted(left.points["all_reduce", "eager", 2])
    assert len(sizes) >= 5
    assert sizes[-1] >= 2**16


def test_the_slowest_rank_of_each_sample_counts(tmp_path):
    left = gloo_sweep(tmp_path, 2, lagging_sweep, operations=["broadcast"], sizes=[1024], seconds=2)
    assert left.points["broadcast", "eager", 2][1024].seconds >= 0.004


def lagging_sweep(rank, **arguments):
    """Rank 1 takes 5 ms more in every broadcast; the root does not notice, since its data is buffered."""
    honest, pause = dist.broadcast, threading.Event()

    def broadcast(tensor, *others, **more):
        result = honest(tensor, *others, **more)
        if rank.rank == 1:
            pause.wait(0.005)
        return result

    dist.broadcast = broadcast
    sweep(rank, **arguments)


def test_the_ranks_of_these_tests_use_one_thread(tmp_path):
    left = run_ranks(tmp_path, 1, lambda rank: rank.emit_fact("threads", torch.get_num_threads()))
    assert left.facts == [("threads", 1)]

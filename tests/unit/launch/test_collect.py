"""What ranks wrote becomes measurements; damage costs only what it hit."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiretax.launch import worker
from wiretax.launch.collect import collect
from wiretax.launch.plan import LaunchPlan
from wiretax.measure.rank import Heartbeat, ResultFile
from wiretax.model.measurement import Collective, Copy, Incident, PeerTruth, Point

PLAN = LaunchPlan(world_size=2, device="cpu")


def header(operation="all_reduce", **values):
    return Collective(backend="gloo", operation=operation, wire="gloo", world_size=2, mode="eager", **values)


def point(num_bytes, seconds):
    return Point(
        num_bytes=num_bytes, seconds=seconds, algbw_bytes_per_second=num_bytes / seconds, busbw_bytes_per_second=num_bytes / seconds
    )


def test_points_of_a_series_are_joined_sorted_and_the_last_word_counts(tmp_path):
    results = ResultFile(worker.results_file(tmp_path, 0))
    results.write("Point", series=header(), value=point(1024, 2.0))
    results.write("Point", series=header(), value=point(8, 1.0))
    results.write("Point", series=header("broadcast"), value=point(8, 5.0))
    results.write("Point", series=header(verified=True), value=point(1024, 1.5))
    results.write("Point", series=header(verified=True, missing={"points": "2 MiB: would take too long"}), value=None)
    first, second = collect(tmp_path, PLAN).measurements.collectives
    assert [(one.num_bytes, one.seconds) for one in first.points] == [(8, 1.0), (1024, 1.5)]
    assert first.verified is True and first.missing["points"].startswith("2 MiB")
    assert (second.operation, len(second.points)) == ("broadcast", 1)


def test_results_and_facts_of_all_ranks_are_gathered(tmp_path):
    for rank in range(2):
        results = ResultFile(worker.results_file(tmp_path, rank))
        results.write("Copy", value=Copy(source_gpu=rank, target_gpu=None, route="host", direction="one_way", num_bytes=8))
        results.write("Fact", name="peer_access", value=[[rank, 1 - rank, True]])
    found = collect(tmp_path, PLAN)
    assert [copy.source_gpu for copy in found.measurements.copies] == [0, 1]
    assert found.facts == {"peer_access": [[[0, 1, True]], [[1, 0, True]]]}


def test_a_pairs_later_truth_replaces_the_earlier(tmp_path):
    results = ResultFile(worker.results_file(tmp_path, 0))
    results.write("PeerTruth", value=PeerTruth(source_gpu=0, target_gpu=1, outcome="hang", detail="begun"))
    results.write("PeerTruth", value=PeerTruth(source_gpu=0, target_gpu=1, outcome="ok", num_bytes=(8,)))
    results.write("PeerTruth", value=PeerTruth(source_gpu=1, target_gpu=0, outcome="hang", detail="begun"))
    assert [(truth.source_gpu, truth.outcome) for truth in collect(tmp_path, PLAN).measurements.peer_truth] == [(0, "ok"), (1, "hang")]


def test_damaged_and_unknown_records_are_told_and_the_rest_is_kept(tmp_path):
    path = worker.results_file(tmp_path, 1)
    ResultFile(path).write("Incident", value=Incident(kind="error", stage="compute", detail="x"))
    with path.open("ab") as file:
        file.write(b'{"record":"Martian","value":1}\n{"record":"Copy","value":{"source_gpu":0}}\n{"record":"Point","ser\n')
    found = collect(tmp_path, PLAN)
    assert [incident.stage for incident in found.measurements.incidents] == ["compute"]
    assert len(found.unreadable) == 3 and all(text.startswith("rank 1, record ") for text in found.unreadable)


def test_a_line_that_its_rank_did_not_live_to_end_is_no_trouble_of_its_own(tmp_path):
    path = worker.results_file(tmp_path, 1)
    ResultFile(path).write("Incident", value=Incident(kind="error", stage="compute", detail="x"))
    with path.open("ab") as file:
        file.write(b'{"record":"Point","ser')
    found = collect(tmp_path, PLAN)
    assert len(found.measurements.incidents) == 1
    assert found.unreadable == []


def test_nothing_written_is_nothing_measured(tmp_path):
    found = collect(tmp_path, PLAN)
    assert found.measurements.collectives == () and found.unreadable == []


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_in_a_results_file_are_survived(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("results")
    worker.results_file(folder, 0).write_bytes(data)
    found = collect(folder, PLAN)
    assert len(found.unreadable) <= data.count(b"\n") + 1


def test_a_heartbeat_tells_where_a_rank_is_and_counts_its_steps(tmp_path):
    beat = Heartbeat(tmp_path / "beat")
    assert Heartbeat.read(tmp_path / "beat") is None
    beat.at("all_gather", "p2p_off", 2**20, 4)
    beat.tick()
    position = Heartbeat.read(tmp_path / "beat")
    assert (position.operation, position.wire, position.num_bytes, position.world_size, position.count) == (
        "all_gather",
        "p2p_off",
        2**20,
        4,
        2,
    )
    assert Heartbeat.read(tmp_path / "none") is None
    (tmp_path / "short").write_bytes(b"abc")
    assert Heartbeat.read(tmp_path / "short") is None


def test_a_value_that_json_cannot_hold_is_refused_where_it_is_made(tmp_path):
    with pytest.raises((TypeError, msgspec.MsgspecError)):
        ResultFile(tmp_path / "r").write("Fact", name="x", value=object())

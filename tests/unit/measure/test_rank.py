import time

import msgspec
import pytest
import torch
import torch.distributed as dist

from wiretax.measure.rank import Heartbeat, OutOfTimeError, Rank, ResultFile
from wiretax.model.measurement import Collective, Incident, Point


def make_rank(folder, store, number=0, count=2, seconds=10.0):
    return Rank(
        rank=number,
        world_size=count,
        local_rank=number,
        device=torch.device("cpu"),
        gpus=(),
        store=store,
        deadline=time.monotonic() + seconds,
        results=ResultFile(folder / f"results.{number}"),
        heartbeat=Heartbeat(folder / f"beat.{number}"),
    )


@pytest.fixture
def ranks(tmp_path):
    store = dist.HashStore()
    return [make_rank(tmp_path, store, number) for number in range(2)]


def lines(folder, number=0):
    return [msgspec.json.decode(line) for line in (folder / f"results.{number}").read_bytes().splitlines()]


def test_a_heartbeat_says_where_a_rank_is_and_how_far(tmp_path):
    beat = Heartbeat(tmp_path / "beat")
    beat.at("all_reduce", "p2p_off", 1024, 4)
    beat.tick()
    position = Heartbeat.read(tmp_path / "beat")
    assert (position.operation, position.wire, position.num_bytes, position.world_size) == ("all_reduce", "p2p_off", 1024, 4)
    assert position.count == 2
    assert position.monotonic_seconds <= time.monotonic()


def test_a_rank_that_never_wrote_or_wrote_nonsense_has_no_position(tmp_path):
    assert Heartbeat.read(tmp_path / "absent") is None
    (tmp_path / "half").write_bytes(b"\x01\x00")
    assert Heartbeat.read(tmp_path / "half") is None


def test_everybody_gets_everybodys_value_in_rank_order(ranks):
    first, second = ranks
    second.store.set("x/0/1", b"[2]")
    assert first.exchange("x", [1]) == [[1], [2]]
    assert second.exchange("x", [2]) == [[1], [2]]


def test_later_exchanges_of_a_topic_do_not_see_earlier_values(ranks):
    first, second = ranks
    for round_number in range(3):
        first.store.set(f"x/{round_number}/0", msgspec.json.encode(round_number))
        assert second.exchange("x", -round_number) == [round_number, -round_number]


def test_one_ranks_word_reaches_the_others(ranks):
    first, second = ranks
    assert first.agree("go", {"sizes": 3}) == {"sizes": 3}
    assert second.agree("go", None) == {"sizes": 3}


def test_a_rank_that_waits_in_vain_is_out_of_time(tmp_path):
    rank = make_rank(tmp_path, dist.HashStore(), seconds=0.05)
    with pytest.raises(OutOfTimeError):
        rank.exchange("x", 1)
    with pytest.raises(OutOfTimeError, match="y"):
        rank.exchange("y", 1)


def test_results_are_lines_that_name_their_kind(tmp_path, ranks):
    rank = ranks[0]
    rank.emit(Incident(kind="skipped", stage="copies"))
    series = Collective(backend="gloo", operation="all_reduce", wire="gloo", world_size=2, mode="eager")
    rank.emit_point(series, Point(num_bytes=8, seconds=1.0, algbw_bytes_per_second=8.0, busbw_bytes_per_second=8.0))
    rank.emit_point(series, None)
    rank.emit_fact("nccl_loaded", {"path": "/x"})
    found = lines(tmp_path)
    assert [line["record"] for line in found] == ["Incident", "Point", "Point", "Fact"]
    assert found[1]["value"]["num_bytes"] == 8
    assert found[2]["value"] is None


def test_a_rank_knows_its_gpu(tmp_path):
    rank = make_rank(tmp_path, None)
    assert rank.gpu is None
    assert not rank.is_cuda
    on_gpu = Rank(
        rank=1,
        world_size=2,
        local_rank=1,
        device=torch.device("cuda", 0),
        gpus=(5, 3),
        store=None,
        deadline=0.0,
        results=ResultFile(tmp_path / "results.9"),
        heartbeat=Heartbeat(tmp_path / "beat"),
    )
    assert on_gpu.gpu == 3
    assert on_gpu.is_cuda

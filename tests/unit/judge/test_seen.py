import pytest

from boxes import box, run
from real_texts import head, listing, nccl, pairs, ring, topo
from texts import text_run
from wiretax.judge import seen
from wiretax.model.observation import Observation


def note(line: int, **values: object) -> Observation:
    return Observation(source="a.log", line=line, kind="note", values=values)  # type: ignore[arg-type]


def test_a_live_run_has_nothing_that_was_seen():
    live = run(box(2))
    assert not seen.is_pasted(live) and seen.of(live, "nccl.transport") == () and seen.log(live) is None


def test_observations_are_found_by_kind_and_values():
    subject = run(box(2), observations=(note(1, gpu=0), note(2, gpu=1)))
    assert [o.line for o in seen.of(subject, "note", gpu=1)] == [2]
    assert seen.of(subject, "other") == ()


def test_evidence_is_the_line_and_says_how_often_it_came():
    line = seen.line(note(7, text="NCCL WARN no", count=3))
    assert (line.source, line.line, line.text) == ("a.log", 7, "NCCL WARN no (3 times)")
    assert seen.line(note(0, gpu=1)).text == "gpu 1"


def test_a_flood_is_cut_and_a_line_shown_once():
    assert len(seen.lines([note(k // 2, text=str(k)) for k in range(40)], 4)) == 4


@pytest.mark.parametrize(
    ("value", "number", "whole"), [(3, 3.0, 3), (2.5, 2.5, None), (True, None, None), ("3", None, None), (None, None, None)]
)
def test_values_are_read_by_their_type(value, number, whole):
    assert seen.number(note(1, n=value), "n") == number
    assert seen.whole(note(1, n=value), "n") == whole


def test_a_log_sorts_ways_within_a_host_from_those_between():
    nodes = f"{nccl()}comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n"
    log = seen.log(
        text_run(head("2.21.5") + nodes + ring(2, "P2P/IPC") + f"{nccl()}Channel 00/0 : 2[0] -> 0[0] [receive] via NET/Socket/0\n")
    )
    assert log is not None
    assert log.classes == {"p2p"} and len(log.between) == 1 and log.one_host is None and log.num_nodes == 2


def test_one_host_is_known_from_the_number_of_nodes_or_from_all_ranks():
    stated = f"{nccl()}comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n" + ring(2, "NET/Socket/0")
    log = seen.log(text_run(stated))
    assert log is not None and log.one_host is True and log.classes == {"net"}


@pytest.mark.parametrize(("path", "joined"), [("NV4", True), ("SYS", False)])
def test_nvlink_between_all_is_read_from_the_matrix(path, joined):
    assert seen.nvlink_joins_all(text_run(topo(pairs(2, path)))) is joined


def test_nothing_says_whether_nvlink_joins_them():
    assert seen.nvlink_joins_all(text_run(listing("NVIDIA A40", "NVIDIA A40"))) is None


def test_names_tell_capability_maker_and_peer_access():
    subject = text_run(listing("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"))
    assert seen.capabilities(subject) == {"8.9"}
    assert seen.without_stock_p2p(subject) == ("NVIDIA GeForce RTX 4090",)
    assert not seen.is_amd(subject) and seen.is_amd(text_run("RCCL version 2.20.5+hip6.2 HEAD:d380693+\n"))


def test_pair_speeds_count_only_where_peer_access_is_refused():
    speeds = "GPU 0 -> GPU 1: 4 GB/s\nGPU 0 -> GPU 2: 13 GB/s\n"
    assert seen.pair_speeds(text_run(speeds)) == {}
    refused = f"{nccl()}P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
    found = seen.pair_speeds(text_run(speeds, refused))
    assert {tuple(sorted(pair)): round(value / 1e9) for pair, (value, _) in found.items()} == {(0, 1): 4, (0, 2): 13}

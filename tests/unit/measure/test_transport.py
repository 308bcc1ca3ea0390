from pathlib import Path

import pytest

from wiretax.measure.transport import (
    describe,
    join_channels,
    loaded_nccl,
    name_wire,
    nccl_debug_environment,
    own_channels,
    read_channels,
)
from wiretax.model.measurement import Transport

LOGS = Path(__file__).parents[2] / "data" / "nccl_transport"


def logs(name):
    return [path.read_text() for path in sorted(LOGS.glob(f"{name}.*.log"))]


def seen(*names):
    return [Transport(source_gpu=0, target_gpu=1, name=name, channels=1) for name in names]


@pytest.mark.parametrize(
    ("name", "transport", "channels", "description"),
    [
        ("default", "P2P/CUMEM", 24, "P2P/CUMEM"),
        ("shm", "SHM/direct/direct", 4, "SHM/direct"),
        ("net", "NET/Socket/0", 2, "NET/Socket"),
    ],
)
def test_the_recorded_logs_name_one_transport_each_way(name, transport, channels, description):
    found = join_channels([read_channels(text) for text in logs(name)], [3, 5])
    assert found == (
        Transport(source_gpu=3, target_gpu=5, name=transport, channels=channels),
        Transport(source_gpu=5, target_gpu=3, name=transport, channels=channels),
    )
    assert describe(found) == description


@pytest.mark.parametrize(
    ("line", "source", "target", "name"),
    [
        ("h:1:2 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via P2P/IPC", 0, 1, "P2P/IPC"),
        ("h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer", 1, 0, "P2P/direct pointer"),
        ("h:1:2 [0] NCCL INFO Channel 02/0 : 3[3] -> 2[2] [send] via NET/IB/0/GDRDMA", 3, 2, "NET/IB/0/GDRDMA"),
        ("h:1:2 [1] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct", 0, 1, "SHM/direct/direct"),
    ],
)
def test_spellings_of_several_releases(line, source, target, name):
    assert read_channels(line) == {(source, target, name): 1}


def test_channels_belong_to_the_communicator_that_was_opened_before_them():
    start = "h:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks {} cudaDev 0 nvmlDev 0 busId 60 commId 0x3 - Init START\n"
    channel = "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> {}[1] via P2P/CUMEM\n"
    text = start.format(4) + channel.format(3) + start.format(2) + channel.format(1)
    assert read_channels(text, communicator=0) == {(0, 3, "P2P/CUMEM"): 1}
    assert read_channels(text, communicator=-1) == {(0, 1, "P2P/CUMEM"): 1}
    assert read_channels(text) == {(0, 3, "P2P/CUMEM"): 1, (0, 1, "P2P/CUMEM"): 1}
    assert read_channels(text, communicator=5) == {}


def test_a_channel_counts_once_and_those_of_send_and_receive_only_where_there_are_no_others():
    line = "h:1:1 [0] NCCL INFO Channel {:02}/{} : 0[0] -> 1[1] via P2P/CUMEM\n"
    collective = "".join(line.format(number, 0) for number in (0, 1, 0, 1))
    other = "".join(line.format(number, 1) for number in range(8))
    assert read_channels(collective + other) == {(0, 1, "P2P/CUMEM"): 2}
    assert read_channels(other) == {(0, 1, "P2P/CUMEM"): 8}


def test_a_channel_that_both_ends_report_counts_once():
    one = {(0, 1, "NET/Socket/0"): 2}
    assert join_channels([one, one], [0, 1]) == (Transport(source_gpu=0, target_gpu=1, name="NET/Socket/0", channels=2),)


def test_no_log_no_transport():
    assert join_channels([read_channels(text) for text in ("", "nothing of NCCL here")], [0, 1]) == ()
    assert describe(()) is None


@pytest.mark.parametrize(
    ("requested", "transports", "named"),
    [
        ("default", ("P2P/CUMEM",), ("default", None)),
        ("default", ("SHM/direct",), ("default", None)),
        ("clean", ("NET/Socket/0",), ("clean", None)),
        ("p2p_off", ("SHM/direct/direct",), ("p2p_off", None)),
        ("p2p_off", ("NET/Socket/0",), ("socket", "p2p_off")),
        ("p2p_off", ("P2P/CUMEM",), ("p2p", "p2p_off")),
        ("socket", ("NET/Socket/0", "NET/Socket/1"), ("socket", None)),
        ("socket", ("SHM/direct",), ("p2p_off", "socket")),
        ("socket", ("NET/IB/0/GDRDMA",), ("infiniband", "socket")),
        ("socket", ("NET/AWS Libfabric/0",), ("net_aws libfabric", "socket")),
        ("p2p_forced", ("P2P/CUMEM", "P2P/direct pointer"), ("p2p_forced", None)),
        ("p2p_forced", ("SHM/direct",), ("p2p_off", "p2p_forced")),
        ("p2p_forced", ("P2P/CUMEM", "SHM/direct"), ("mixed", "p2p_forced")),
        ("p2p_off", (), ("p2p_off", None)),
    ],
)
def test_a_wire_is_named_after_what_was_used(requested, transports, named):
    assert name_wire(requested, seen(*transports)) == named


def test_each_rank_writes_a_debug_file_of_its_own_and_reads_it_back(tmp_path):
    first, second = (nccl_debug_environment(tmp_path, rank) for rank in (0, 1))
    assert first["NCCL_DEBUG_FILE"] != second["NCCL_DEBUG_FILE"]
    assert first["NCCL_DEBUG"] == "INFO"
    assert {"INIT", "P2P", "SHM", "NET"} <= set(first["NCCL_DEBUG_SUBSYS"].split(","))
    assert own_channels(first) == []
    Path(first["NCCL_DEBUG_FILE"]).write_text(logs("shm")[0])
    assert own_channels(first) == [(0, 1, "SHM/direct/direct", 4)]
    assert own_channels({}) == []


def test_the_loaded_library_is_read_from_the_memory_map(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/libcuda.so.1\n7f02-7f03 r-xp 0 08:01 43   /opt/a b/libnccl.so.2\n")
    assert loaded_nccl(maps) == "/opt/a b/libnccl.so.2"
    maps.write_bytes(b"7f00-7f01 r--p 0 08:01 9   /home/jos\xe9/lib.so\n7f02-7f03 r-xp 0 08:01 43   /home/jos\xe9/libnccl.so.2\n")
    assert loaded_nccl(maps) == "/home/jos\ufffd/libnccl.so.2"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/libcuda.so.1\n")
    assert loaded_nccl(maps) is None
    assert loaded_nccl(tmp_path / "absent") is None

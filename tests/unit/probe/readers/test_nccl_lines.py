"""One line of an NCCL log, in every spelling of prefix and transport that has been seen."""

from __future__ import annotations

import pytest

from wiretax.probe.readers.nccl_lines import NO_HEAD, connection, head


@pytest.mark.parametrize(
    ("prefix", "host", "device", "file"),
    [
        (b"host-a:5001:5101 [0] ", "host-a", 0, None),
        (b"host-a:182125:182663 ", "host-a", None, None),
        (b"[3] ", None, 3, None),
        (b"", None, None, None),
        (b"[1] misc/shmutils.cc:103 ", None, 1, "misc/shmutils.cc:103"),
        (b"ip-10-0-0-12:152:386 [7] transport/nvls.cc:158 ", "ip-10-0-0-12", 7, "transport/nvls.cc:158"),
        (b"[2025-12-28 16:04:25] host-a:152:386 [0] ", "host-a", 0, None),
        (b"2026-04-01T10:00:00.123456Z stdout F host-a:152:386 [0] ", "host-a", 0, None),
        (b"  0%|          | 0/1722 [00:00<?, ?it/s]host-a:152:386 [0] ", "host-a", 0, None),
        (b"[1,2]<stdout>:host-a:29880:30398 [0] init.cc:497 ", "host-a", 0, "init.cc:497"),
        (b"(head, rank=0, pid=17266) host-a:152:386 [0] ", "host-a", 0, None),
        (b"(WorkerDict pid=41, ip=10.0.0.2) host-b:152:386 [0] ", "host-b", 0, None),
        (b"(VllmWorkerProcess pid=9) INFO host-b:152:386 [5] ", "host-b", 5, None),
        (b"> > > host-a:402:402 [0] ", "host-a", 0, None),
        (b"12: node-003:152:386 [1] ", "node-003", 1, None),
        (b'{"log":"host-a:152:386 [0] ', "host-a", 0, None),
        (
            b"host-a:152:386 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259 ",
            "host-a",
            0,
            "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259",
        ),
        (b"host-a:1:2 [0] 1234.567800 transport/p2p.cc:88 ", "host-a", 0, "transport/p2p.cc:88"),
        (b"<host>:1:2 [0] ", "<host>", 0, None),
    ],
)
def test_the_prefix_names_host_device_and_source_file(prefix: bytes, host: str | None, device: int | None, file: str | None) -> None:
    found = head(prefix)

    assert (found.host, found.device, found.file) == (host, device, file)


def test_a_path_of_120_characters_is_still_the_source_file() -> None:
    path = (
        "/longer_pathname_so_that_rpms_can_support_packaging_the_debug_info_for_all_os_profiles/src/out/rccl/build/hipify/src/init.cc:179"
    )

    assert head(f"host-a:402:402 [0] {path} ".encode()).file == path


def test_only_a_prefix_of_nothing_but_ncclS_own_words_is_clean() -> None:
    assert head(b"host-a:1:2 [0] ").clean
    assert not head(b"2026-01-01 host-a:1:2 [0] ").clean
    assert not head(b"[rank3]: host-a:1:2 [0] ").clean
    assert head(b"words without any process") == NO_HEAD or not head(b"words without any process").clean


TRANSPORTS = [
    "P2P/IPC",
    "P2P/IPC/read",
    "P2P/CUMEM",
    "P2P/CUMEM/read",
    "P2P/MNNVL",
    "P2P/direct pointer",
    "P2P/direct pointer/read",
    "P2P/CUMEM/CE",
    "P2P/indirect/3[3]",
    "P2P/common device",
    "direct shared memory",
    "SHM/direct/direct",
    "SHM/CE/direct",
    "SHM/direct/CE",
    "SHM/direct",
    "NET/Socket/0",
    "NET/Socket/0/Shared",
    "NET/IB/0",
    "NET/IB/0/GDRDMA",
    "NET/IB/3(7)/GDRDMA/Shared",
    "NET/IB/0/GDRDMA(PCI)",
    "NET/IBext_v8/1/GDRDMA",
    "NET/FastSocket/0",
    "NET/AWS Libfabric/0",
    "NET/AWS Libfabric/2/GDRDMA",
    "COLLNET/SHARP/0",
    "NET/GPUDirectTCPX_v7/4",
]


@pytest.mark.parametrize("name", TRANSPORTS)
@pytest.mark.parametrize(
    "line",
    [
        "Channel 05/0 : 2[2] -> 3[0] via {}",
        "Channel 05 : 2[3d000] -> 3[3e000] [send] via {}",
        "Channel 05/1 : 2[2] -> 3[0] [receive] via {}",
        "Ring 05 : 2[3d000] -> 3[3e000] via {}",
        "Channel 05/0 : 2[c1000] -> 3[c5000] via {} comm 0x5571d0 nRanks 08",
    ],
)
def test_every_transport_is_read_in_every_line_format(name: str, line: str) -> None:
    found = connection(line.format(name))

    assert found is not None
    assert (found.source_rank, found.target_rank, found.channel, found.name) == (2, 3, 5, name)


def test_direction_and_communicator_are_kept() -> None:
    sent = connection("Channel 00/0 : 9[1a000] -> 2[6b000] [send] via NET/IB/0/GDRDMA comm 0x7f00 nRanks 16")

    assert sent is not None
    assert (sent.direction, sent.communicator, sent.source, sent.target) == ("send", "0x7f00", "1a000", "6b000")


def test_a_transport_of_a_future_release_keeps_its_name() -> None:
    found = connection("Channel 00/0 : 0[0] -> 1[1] via QUANTUM/teleport, chosen by nobody")

    assert found is not None
    assert found.name == "QUANTUM/teleport"


@pytest.mark.parametrize(
    "line", ["Channel 00/02 :    0   1   2   3", "Trees [0] -1/-1/-1->1->0", "Ring 00 : 1 -> 0 -> 1", "0[0] -> 1[1] via P2P/IPC"]
)
def test_ring_and_tree_lines_are_no_connections(line: str) -> None:
    assert connection(line) is None

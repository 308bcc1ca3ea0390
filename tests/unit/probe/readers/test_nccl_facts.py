"""Facts of NCCL's messages, release by release."""

from __future__ import annotations

from typing import Any

import pytest

from wiretax.probe.readers.nccl_facts import facts, is_fact

INFO = b"NCCL INFO "


def only(message: str, level: bytes = INFO) -> tuple[str, dict[str, Any]]:
    found = list(facts(level, message, None))
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("message", "version", "library", "cuda"),
    [
        ("NCCL version 2.28.9+cuda12.8", "2.28.9", "NCCL", "12.8"),
        ("NCCL version 2.8.3+cuda10.0", "2.8.3", "NCCL", "10.0"),
        ("NCCL version 2.31.2+cuda13.0", "2.31.2", "NCCL", "13.0"),
        ("NCCL version 2.12.10+cuda10.2", "2.12.10", "NCCL", "10.2"),
        ("RCCL version 2.18.3+hip5.5 develop:6ecf771+", "2.18.3", "RCCL", None),
        ("RCCL version : 2.22.3-HEAD:271856d", "2.22.3", "RCCL", None),
    ],
)
def test_versions_of_both_libraries(message: str, version: str, library: str, cuda: str | None) -> None:
    kind, values = only(message, b"")

    assert (kind, values["version"], values["library"], values.get("cuda")) == ("nccl.version", version, library, cuda)


@pytest.mark.parametrize(("code", "version"), [("12080", "12.8"), ("13000", "13.0"), ("11070", "11.7"), ("12060", "12.6")])
def test_the_driver_version_is_written_as_people_write_it(code: str, version: str) -> None:
    assert only(f"cudaDriverVersion {code}") == ("nccl.driver", {"cuda": version})


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        ("NCCL_P2P_DISABLE set by environment to 1", "NCCL_P2P_DISABLE", "1"),
        ("NCCL_SHM_DISABLE set by environment to 1.", "NCCL_SHM_DISABLE", "1"),
        ("NCCL_SOCKET_IFNAME set by environment to enp37s0f0", "NCCL_SOCKET_IFNAME", "enp37s0f0"),
        ("NCCL_IB_HCA set to mlx5_0,mlx5_1", "NCCL_IB_HCA", "mlx5_0,mlx5_1"),
        ("NCCL_TOPO_FILE set by environment to /etc/topo.v1.xml", "NCCL_TOPO_FILE", "/etc/topo.v1.xml"),
        ("Comm config nChannelsPerNetPeer reset to NCCL_NCHANNELS_PER_NET_PEER=4", "NCCL_NCHANNELS_PER_NET_PEER", "4"),
        ("NCCL_COMM_ID set by environment to 10.0.0.1:1234", "NCCL_COMM_ID", "10.0.0.1:1234"),
    ],
)
def test_settings_are_read_without_the_full_stop_of_a_number(message: str, name: str, value: str) -> None:
    assert only(message) == ("nccl.environment", {"name": name, "value": value})


def test_level_loc_of_old_releases_means_that_p2p_is_switched_off() -> None:
    kind, values = only("NCCL_P2P_LEVEL set by environment to LOC")

    assert (kind, values["means"]) == ("nccl.environment", "NCCL_P2P_DISABLE=1")
    assert "means" not in only("NCCL_P2P_LEVEL set by environment to SYS")[1]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("P2P is disabled between connected GPUs", {"nvlink": False}),
        (
            "P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
            {"nvlink": False, "source_gpu": 0, "target_gpu": 1},
        ),
        (
            "P2P is disabled between NVLINK connected GPUs 5 and 1. This should not be the case",
            {"nvlink": True, "source_gpu": 5, "target_gpu": 1},
        ),
    ],
)
def test_the_famous_line_with_and_without_its_gpus(message: str, expected: dict[str, Any]) -> None:
    assert only(message) == ("nccl.p2p_disabled", expected)


@pytest.mark.parametrize(
    ("message", "direct", "cuda"),
    [
        ("Check P2P Type intraNodeP2pSupport 0 directMode 0", False, None),
        ("Check P2P Type isAllDirectP2p 1 directMode 0", True, None),
        ("Check P2P Type isAllDirectP2p 0 directMode 0 isAllCudaP2p 1", False, True),
    ],
)
def test_the_capability_line_of_three_generations(message: str, direct: bool, cuda: bool | None) -> None:
    kind, values = only(message)

    assert (kind, values["all_direct_p2p"], values.get("all_cuda_p2p")) == ("nccl.p2p_type", direct, cuda)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("comm 0x5ed0b2f0 rank 0 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE", ("complete", 0, 4, 0, None, "1000", None)),
        (
            "ncclCommInitRankConfig comm 0x19 rank 1 nranks 2 cudaDev 1 nvmlDev 3 busId c1000 commId 0x2f - Init START",
            ("start", 1, 2, 1, 3, "c1000", "0x2f"),
        ),
        (
            "ncclCommSplit comm 0x56 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 30000 parent 0x56 splitCount 1 color 1 key 0- Init START",
            ("start", 0, 4, 0, 0, "30000", None),
        ),
        (
            "[Rank 2] ncclCommInitAll comm 0x56 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId 4A000 commId 0x1 - Init START",
            ("start", 2, 4, 2, 2, "4a000", "0x1"),
        ),
        ("comm 0x1969a7a0 rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE", ("destroy", 0, 2, 0, None, "60", None)),
        ("comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Abort COMPLETE", ("abort", 0, 2, 0, None, "60", None)),
        ("comm 0x7f rank 6 nranks 8 cudaDev 2 nvmlDev 6", ("start", 6, 8, 2, 6, None, None)),
        (
            "comm 0x55d0 rank 3 nranks 8 cudaDev 3 busId c9000 commId 0x9 localSize 56 used 58864 bytes - Init COMPLETE",
            ("complete", 3, 8, 3, None, "c9000", "0x9"),
        ),
    ],
)
def test_init_lines_from_2_4_to_2_31_and_rccl(message: str, expected: tuple[Any, ...]) -> None:
    kind, values = only(message)

    assert kind == "nccl.init"
    keys = ("phase", "rank", "num_ranks", "cuda_device", "nvml_device", "bus_id", "communicator_id")
    assert tuple(values.get(key) for key in keys) == expected


def test_nodes_line_says_how_many_ranks_share_a_host() -> None:
    kind, values = only("comm 0x562b rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0")

    assert (kind, values["num_nodes"], values["local_ranks"], values["num_ranks"]) == ("nccl.nodes", 4, 1, 4)


def test_init_timings_keep_every_part() -> None:
    kind, values = only(
        "Init timings - ncclCommInitRankConfig: rank 0 nranks 4 total 59.98 (kernels 0.12, alloc 0.01, "
        "bootstrap 59.83, allgathers 0.01, topo 0.00)"
    )

    assert kind == "nccl.init_timing"
    assert (values["total_seconds"], values["bootstrap_seconds"], values["kernels_seconds"]) == (59.98, 59.83, 0.12)


def test_interfaces_with_vpn_ipv6_scope_and_docker_bridges() -> None:
    found = list(
        facts(
            INFO,
            "NET/Socket : Using [0]eno1:10.0.0.20<0> [1]CloudflareWARP:10.0.0.2<0> [2]enxfe:fe80::1%enxfe<0> [3]br-03e0:172.19.0.1<0>",
            None,
        )
    )

    assert [(values["index"], values["interface"], values["address"]) for _, values in found] == [
        (0, "eno1", "10.0.0.20"),
        (1, "CloudflareWARP", "10.0.0.2"),
        (2, "enxfe", "fe80::1%enxfe"),
        (3, "br-03e0", "172.19.0.1"),
    ]


@pytest.mark.parametrize(
    "spelling", ["Bootstrap : Using eno2:10.0.0.95<0>", "Bootstrap: Using eno2:10.0.0.95<0>", "Bootstrap : Using [0]eno2:10.0.0.95<0>"]
)
def test_bootstrap_interface(spelling: str) -> None:
    assert only(spelling) == ("nccl.bootstrap", {"interface": "eno2", "address": "10.0.0.95"})


def test_infiniband_devices_with_their_link_layer() -> None:
    found = list(facts(INFO, "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB/SHARP [RO]; OOB bond0:10.0.0.10<0>", None))

    assert [(values["device"], values["port"], values["link_layer"]) for _, values in found] == [("mlx5_0", 1, "RoCE"), ("mlx5_1", 1, "IB")]


def test_an_empty_infiniband_list_names_no_device() -> None:
    assert list(facts(INFO, "NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>", None)) == []


@pytest.mark.parametrize(
    ("message", "enabled", "net"),
    [
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", False, "IB"),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)", False, "IB"),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 3 'mlx5_3'", True, "IB"),
        ("NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'", False, "Socket"),
    ],
)
def test_gpu_direct_rdma_names_the_network_it_speaks_of(message: str, enabled: bool, net: str) -> None:
    kind, values = only(message)

    assert (kind, values["enabled"], values["net"]) == ("nccl.gdr", enabled, net)


def test_gpu_direct_rdma_by_distance() -> None:
    kind, values = only("GPU Direct RDMA Disabled for GPU 1c000 / HCA 0 (distance 5 > 4)")

    assert (kind, values["enabled"], values["distance"], values["limit"]) == ("nccl.gdr", False, 5, 4)


@pytest.mark.parametrize(
    ("line", "hops", "bandwidth", "path"),
    [
        ("GPU/0-60 :GPU/0-60 (0/5000.0/LOC) GPU/0-70 (2/370.8/NVL) ", 2, 370.8e9, "NVL"),
        ("GPU/16000 :GPU/10000 (2/160.000000/NVL) ", 2, 160e9, "NVL"),
        ("GPU/1A000 :GPU/AF000 (5/9.000000/SOC) ", 5, 9e9, "SYS"),
        ("GPU/0-1000 :GPU/0-41000 (6/24.0/SYS) ", 6, 24e9, "SYS"),
    ],
)
def test_graph_tuples_old_and_new_and_soc_means_sys(line: str, hops: int, bandwidth: float, path: str) -> None:
    kind, values = only(line)

    assert (kind, values["hops"], values["bandwidth_bytes_per_second"], values["path"]) == ("nccl.path", hops, bandwidth, path)


@pytest.mark.parametrize(
    "text",
    ["=== System : maxBw 370.8 totalBw 370.8 ===", "=== System : maxWidth 370.8 totalWidth 370.8 ===", "=== System : maxWidth 370.8 ==="],
)
def test_the_graph_block_of_three_generations(text: str) -> None:
    kind, values = only(text)

    assert (kind, values["max_bandwidth_bytes_per_second"]) == ("nccl.topology", 370.8e9)


@pytest.mark.parametrize("word", ["bw", "speed"])
def test_the_pattern_line_gives_channels_and_bandwidth(word: str) -> None:
    kind, values = only(f"Pattern 4, crossNic 0, nChannels 12, {word} 30.000000/30.000000, type NVL/PIX, sameChannels 1")

    assert (kind, values["num_channels"], values["intra_bandwidth_bytes_per_second"], values["intra_path"]) == (
        "nccl.graph",
        12,
        30e9,
        "NVL",
    )


@pytest.mark.parametrize(("state", "name"), [(0, "not_supported"), (1, "not_started"), (2, "in_progress"), (3, "completed")])
def test_fabric_registration_in_nvmlS_words(state: int, name: str) -> None:
    kind, values = only(f"MNNVL busId 0x60 fabric UUID 0.0 cliqueId 0x0 state {state} healthMask 0x0")

    assert (kind, values["state"], values["bus_id"]) == ("nccl.fabric", name, "60")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856", "nccl.shared_memory_limit"),
        (
            "cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.",
            "nccl.cumem_host_fallback",
        ),
        ("fallocate: Failed to extend /dev/shm/nccl-x to 33554432 bytes, error: No space left on device (28) - retrying", "nccl.shm_retry"),
        ("Call to connect returned Connection refused, retrying", "nccl.connect_retry"),
        ("NVLS multicast support is not available on dev 1", "nccl.nvls"),
        ("Using network AWS Libfabric", "nccl.network"),
        ("NET/OFI No eligible providers were found", "nccl.ofi"),
        ("NET/OFI Selected Provider is efa (found 4 nics)", "nccl.ofi"),
        ("Connected all rings, use ring PXN 0 GDR 1", "nccl.rings"),
        ("Could not enable P2P between dev 0(=1000) and dev 1(=41000)", "nccl.p2p_not_enabled"),
        ("init.cc:903 -> 5", "nccl.result"),
        (
            "Topology detection : could not read /sys/devices/pci0000:00/0000:00:06.0/../max_link_speed, ignoring",
            "nccl.topology_unreadable",
        ),
        ("Loading topology file /var/run/nvidia-topologyd/virtualTopology.xml", "nccl.topology_file"),
    ],
)
def test_other_facts_have_their_kind(message: str, kind: str) -> None:
    assert only(message)[0] == kind


@pytest.mark.parametrize(
    "message",
    [
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        "Channel 00/24 : 0 1 2 3",
        "threadThresholds 8/8/64 | 16/8/64 | 512 | 512",
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        (
            "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No "
            "plugin found (libnccl-net.so), using internal implementation"
        ),
        "Connected to proxy localRank 0 -> connection 0x7f4034004f70",
        "Setting affinity for GPU 0 to ff,ffff0000",
    ],
)
def test_small_talk_states_nothing(message: str) -> None:
    assert not is_fact(INFO, message)
    assert list(facts(INFO, message, None)) == []


def test_every_warning_is_a_fact() -> None:
    assert is_fact(b"NCCL WARN ", "something nobody has seen before")

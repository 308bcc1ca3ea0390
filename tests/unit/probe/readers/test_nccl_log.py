"""Whole NCCL and RCCL logs: the handed cases, the recorded pair of H200, and logs too long to read line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wiretax.model.machine import Machine
from wiretax.model.observation import Observation
from wiretax.model.reading import not_finite, unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.nccl_log import FORMAT, RankDevice, ranks, transports
from wiretax.probe.readers.piece import Piece

CASES = Path(__file__).parents[3] / "data" / "cases"
H200 = Path(__file__).parents[3] / "data" / "h200x2"


def read(text: str | bytes, source: str = "log") -> list[Piece]:
    pieces, _ = read_bytes(source, text.encode() if isinstance(text, str) else text)
    return [piece for piece in pieces if piece.format == FORMAT]


def case(name: str) -> list[Piece]:
    return read((CASES / name).read_bytes(), name)


def observed(pieces: list[Piece], kind: str) -> list[dict[str, Any]]:
    return [dict(observation.values) for piece in pieces for observation in piece.observations if observation.kind == kind]


def lines_of(pieces: list[Piece], kind: str) -> list[int]:
    return [observation.line for piece in pieces for observation in piece.observations if observation.kind == kind]


def machine_of(pieces: list[Piece]) -> Machine:
    assert pieces[0].machine is not None
    return pieces[0].machine


def test_a_flood_of_the_same_line_is_one_observation_with_a_count() -> None:
    found = observed(case("C01_nccl.log"), "nccl.p2p_disabled")

    assert [(entry["count"], "source_gpu" in entry) for entry in found] == [(12, False)]


def test_an_old_log_numbers_gpus_by_bus_address_and_says_so() -> None:
    machine = machine_of(case("C02_nccl.log"))

    assert [(gpu.index, gpu.pci_bus_id) for gpu in machine.gpus] == [
        (0, "00000000:01:00.0"),
        (1, "00000000:41:00.0"),
        (2, "00000000:81:00.0"),
        (3, "00000000:C1:00.0"),
    ]
    assert machine.origin_note is not None
    assert "PCI addresses" in machine.origin_note


def test_the_last_line_and_the_calls_of_a_job_that_hangs_are_kept() -> None:
    pieces = case("C02_nccl.log")

    calls = {entry["operation"]: entry["calls"] for entry in observed(pieces, "nccl.calls")}
    assert calls["Broadcast"] == 1
    assert calls["ncclGroupEnd"] == 2
    assert observed(pieces, "nccl.log")[0]["last_line"] == 22
    communicator = observed(pieces, "nccl.communicator")[0]
    assert (communicator["num_ranks"], communicator["ranks_seen"], communicator["completed"]) == (4, 2, 2)


def test_lines_without_a_host_are_of_an_unnamed_machine() -> None:
    pieces = case("C34_nccl.log")

    assert machine_of(pieces).hostname is None
    assert machine_of(pieces).missing["hostname"] == "not in an NCCL log"
    warnings = observed(pieces, "nccl.warning")
    assert [entry["category"] for entry in warnings] == ["shm_cuda_failure", "shm_segment", "shm_segment"]
    assert warnings[0]["count"] == 2
    assert warnings[1]["size_bytes"] == 9637888


def test_a_message_glued_to_a_progress_bar_is_read_and_the_bar_is_left_for_others() -> None:
    pieces = case("C36_nccl.log")

    nodes = observed(pieces, "nccl.nodes")[0]
    assert (nodes["num_nodes"], nodes["local_ranks"], nodes["num_ranks"]) == (4, 1, 4)
    assert lines_of(pieces, "nccl.nodes") == [12]
    plugin = observed(pieces, "nccl.warning")[0]
    assert (plugin["category"], plugin["file"]) == ("net_plugin", "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259")
    split = [entry for entry in observed(pieces, "nccl.init") if entry["function"] == "ncclCommSplit"]
    assert split[0]["phase"] == "start"


def test_both_ends_of_a_network_connection_are_kept_apart() -> None:
    sent, received = observed(case("C41_nccl_b.log"), "nccl.transport")

    assert (sent["host"], sent["direction"], sent["gdr"]) == ("host-b", "send", True)
    assert (received["host"], received["direction"], received["gdr"]) == ("host-a", "receive", False)


def test_two_hosts_are_two_machines() -> None:
    assert [piece.machine.hostname for piece in case("C41_nccl_b.log") if piece.machine] == ["host-b", "host-a"]


def test_the_rccl_banner_names_host_library_and_rocm() -> None:
    pieces = case("C30_nccl.log")

    machine = machine_of(pieces)
    assert machine.hostname == "host-a"
    assert machine.software.nccl_loaded is not None
    assert (machine.software.nccl_loaded.path, machine.software.nccl_loaded.version) == ("/opt/rocm/lib/librccl.so.1", "2.22.3")
    assert observed(pieces, "nccl.warning")[0]["option"] == "iommu=pt"


def test_launcher_prefixes_do_not_hide_the_host() -> None:
    pieces = case("C48_nccl.log")

    assert machine_of(pieces).hostname == "host-a"
    assert [(entry["rank"], entry["other_rank"], entry["bus_id"]) for entry in observed(pieces, "nccl.warning")] == [
        (2, 0, "1000"),
        (4, 0, "1000"),
        (0, 1, "1000"),
    ]


def test_forced_settings_reach_the_machine() -> None:
    assert machine_of(case("C22_nccl_b.log")).software.nccl_environment == {"NCCL_P2P_LEVEL": "SYS"}


def test_every_observation_carries_the_line_it_came_from() -> None:
    name = "C20_nccl.log"
    written = (CASES / name).read_text().splitlines()

    for observation in case(name)[0].observations:
        if observation.kind != "nccl.communicator":
            assert str(observation.values["text"]) in written[max(observation.line, int(str(observation.values.get("last_line", 0)))) - 1]


@pytest.mark.parametrize(
    ("wire", "environment", "transport", "num_nodes"),
    [
        ("default.1679", {"NCCL_NVLS_ENABLE": "0"}, "P2P/CUMEM", 1),
        ("shm.1778", {"NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1"}, "SHM/direct/direct", 1),
        ("net.1880", {"NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, "NET/Socket", 2),
    ],
)
def test_the_recorded_h200_pair_over_three_wires(wire: str, environment: dict[str, str], transport: str, num_nodes: int) -> None:
    pieces = read((H200 / f"nccl_{wire}.log").read_bytes())

    machine = machine_of(pieces)
    assert machine.hostname == "vm"
    assert machine.software.cuda == "13.0"
    assert machine.software.nccl_environment == environment
    assert machine.gpus[0].pci_bus_id == "00000000:00:06.0"
    assert machine.gpus[0].fabric_state == "completed"
    assert {entry["transport"] for entry in observed(pieces, "nccl.transport_total")} == {transport}
    assert observed(pieces, "nccl.nodes")[0]["num_nodes"] == num_nodes
    assert observed(pieces, "nccl.link")[0] == {
        "source": "GPU/0-60",
        "link": "NVL",
        "target": "NVS/0-0",
        "bandwidth_bytes_per_second": 370.8e9,
        "host": "vm",
        "text": observed(pieces, "nccl.link")[0]["text"],
    }
    assert observed(pieces, "nccl.log")[0]["lines"] == len((H200 / f"nccl_{wire}.log").read_bytes().splitlines())


def test_a_rank_that_never_finishes_its_init_is_visible() -> None:
    text = "".join(
        f"h:{10 + rank}:{20 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank} rank {rank} nranks 4 "
        f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}000"
        f" commId 0xabc - Init {phase}\n"
        for rank in range(4)
        for phase in (("START", "COMPLETE") if rank != 2 else ("START",))
    )

    found = observed(read(text), "nccl.communicator")[0]
    assert (found["communicator_id"], found["started"], found["completed"], found["ranks_seen"]) == ("0xabc", 4, 3, 4)


@pytest.mark.parametrize(
    "prefix",
    ["", "2026-01-01T00:00:0{0}Z ", "[1,{0}]<stdout>:", "(head, rank={0}, pid=17) ", "> > > ", "[rank{0}]: ", "{0}: ", "worker-{0} | "],
)
def test_interleaved_ranks_behind_any_launcher_give_the_same_connections(prefix: str) -> None:
    text = "".join(
        f"{prefix.format(rank)}node-{rank // 2}:1{rank}:2{rank} [{rank % 2}] NCCL INFO Channel "
        f"{channel:02d}/0 : {rank}[{rank % 2}] -> {(rank + 1) % 4}[{(rank + 1) % 2}]"
        f" via P2P/CUMEM\n"
        for channel in range(24)
        for rank in range(4)
    )

    found = observed(read(text), "nccl.transport")
    assert [(entry["source_rank"], entry["target_rank"], entry["lines"], entry["host"]) for entry in found] == [
        (0, 1, 24, "node-0"),
        (1, 2, 24, "node-0"),
        (2, 3, 24, "node-1"),
        (3, 0, 24, "node-1"),
    ]


def test_two_messages_on_one_line_are_both_read() -> None:
    found = observed(
        read(
            "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/readh:3:4 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n"
        ),
        "nccl.transport",
    )

    assert [(entry["source_rank"], entry["transport"]) for entry in found] == [(0, "P2P/IPC/read"), (1, "P2P/IPC")]


@pytest.mark.parametrize("damage", [b"\x1b[36m", b"\x00", b"\xff", b"\xc2\xa0", b"\x08"])
def test_control_bytes_and_foreign_encodings_do_not_hide_a_fact(damage: bytes) -> None:
    line = b"h:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1" + damage + b"\n"

    assert [entry["value"].strip("\xff") for entry in observed(read(line), "nccl.environment")] == ["1"]


def test_what_docker_and_ray_put_behind_a_line_is_taken_off() -> None:
    text = (
        '{"log":"h:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}\n'
        "(W pid=1) h:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0 [repeated 3x across cluster] (Ray deduplicates logs by default.)\n"
    )

    assert [(entry["name"], entry["value"]) for entry in observed(read(text), "nccl.environment")] == [
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_IB_HCA", "mlx5_0"),
    ]


def test_links_that_chat_programs_make_of_source_files_are_undone() -> None:
    found = observed(
        read("h:1:2 [0] [init.cc](http://init.cc/):426 NCCL WARN Cuda failure 801 'operation not supported'\n"), "nccl.warning"
    )

    assert (found[0]["file"], found[0]["code"]) == ("init.cc:426", 801)


def test_bus_addresses_and_indices_are_told_apart_by_version_and_by_look() -> None:
    new = observed(read("NCCL version 2.20.5+cuda12.4\nh:1:2 [0] NCCL INFO Channel 00/0 : 0[60] -> 1[70] via P2P/IPC\n"), "nccl.transport")[
        0
    ]
    old = observed(read("NCCL version 2.10.3+cuda11.3\nh:1:2 [0] NCCL INFO Channel 00 : 0[60] -> 1[70] via P2P/IPC\n"), "nccl.transport")[0]
    unsaid = observed(read("h:1:2 [0] NCCL INFO Channel 00 : 0[c1000] -> 1[c5000] via P2P/IPC\n"), "nccl.transport")[0]

    assert new["source_gpu"] == 60
    assert old["source_bus_id"] == "00000000:00:06.0"
    assert unsaid["target_bus_id"] == "00000000:C5:00.0"


def test_a_thousand_ranks_stay_small_and_a_single_odd_host_is_not_lost() -> None:
    lines = []
    for rank in range(1024):
        host, device = rank // 8, rank % 8
        name = "SHM/direct/direct" if host == 77 else "P2P/CUMEM"
        head = f"node-{host:03d}:{1000 + rank}:{2000 + rank} [{device}] NCCL INFO"
        value = 1 if host == 77 else 0
        lines.append(f"{head} NCCL_P2P_DISABLE set by environment to {value}")
        lines += [
            f"{head} Channel {channel:02d}/0 : {rank}[{device}] -> {(rank + 1) % 1024}[{(device + 1) % 8}] via {name}"
            for channel in range(24)
        ]
    pieces = read("\n".join(lines))

    totals = observed(pieces, "nccl.transport_total")
    assert sum(entry["lines"] for entry in totals) == 1024 * 24
    assert [entry["host"] for entry in totals if entry["family"] == "SHM"] == ["node-077"]
    settings = {entry["value"]: entry for entry in observed(pieces, "nccl.environment")}
    assert settings["1"]["host"] == "node-077"
    assert settings["0"]["num_hosts"] == 127
    assert len(pieces) == 128
    assert len(pieces[0].observations) < 2500


def test_the_log_of_ten_thousand_hosts_is_capped_and_says_what_was_left_out() -> None:
    text = "".join(
        (
            f"h{host}:1:2 [0] NCCL INFO NCCL_HOSTID set by environment to name-{host}\nh{host}:1:2 [0] NCCL INFO "
            f"Bootstrap : Using eth0:10.0.{host % 256}.{host // 256}<0>\n"
        )
        for host in range(10_000)
    )
    pieces = read(text)

    more = {entry["of"]: entry["count"] for entry in observed(pieces, "nccl.more")}
    assert more == {"nccl.environment": 6000, "nccl.bootstrap": 6000}
    assert observed(pieces, "nccl.log")[0]["left_out"] == 4000
    assert len(pieces) <= 256


def test_no_value_is_missing_without_a_reason() -> None:
    for path in sorted(CASES.glob("C*nccl*.log")):
        for piece in case(path.name):
            assert list(unexplained(piece.machine)) == []
            assert list(unexplained(piece.measurements)) == []
            assert list(not_finite(piece)) == []
            assert all(isinstance(entry, Observation) and None not in entry.values.values() for entry in piece.observations)


def test_transports_for_the_live_tool() -> None:
    found = transports((H200 / "nccl_shm.1778.log").read_bytes())

    assert found[:2] == [(0, 1, "SHM/direct/direct", 0), (0, 1, "SHM/direct/direct", 1)]
    assert {name for _, _, name, _ in found} == {"SHM/direct/direct"}
    assert len(found) == len(set(found))
    assert transports((H200 / "nccl_shm.1778.log").read_text()) == found
    assert transports(b"") == []


def test_ranks_for_the_live_tool() -> None:
    found = ranks((H200 / "nccl_default.1680.log").read_bytes())

    assert found == {1: RankDevice(nvml_device=1, cuda_device=1, bus_id="00000000:00:07.0")}
    assert ranks("comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE") == {}
    assert ranks("h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE")[0].nvml_device is None


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_superscript_is_no_gpu_index(encoding: str) -> None:
    """Found by fuzzing: str.isdigit is true of '³', which int refuses."""
    line = "n1:100:200 [0] NCCL INFO Channel 00/0 : 0[³] -> 1[1] via P2P/CUMEM\n"
    assert not observed(read(line.encode(encoding)), "nccl.transport")

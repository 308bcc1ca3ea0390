"""nvbandwidth: text and JSON, directions, waived tests, wrong data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wiretax.model.reading import unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.piece import Piece

TEXT = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 13000
CUDA Driver Version: 13000
Driver Version: 580.95.05

Device 0: NVIDIA A100-SXM4-80GB (00000000:34:00)
Device 1: NVIDIA A100-SXM4-80GB (00000000:35:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     25.50     24.26

SUM host_to_device_memcpy_ce 49.76

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     22.50     21.26

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     26.34
 1     21.82       N/A

SUM device_to_device_memcpy_read_ce 48.16

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     11.00
 1     12.00       N/A

Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A     20.34
 1     20.82       N/A

memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A     40.35
 1     41.85       N/A
Running all_to_one_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     90.00     91.00

Running device_to_device_latency_sm.
memory latency SM GPU(row) <-> GPU(column) (ns)
           0         1
 0       N/A    900.00
 1    901.00       N/A
"""


def read(text: str) -> Piece:
    (piece,) = [piece for piece in read_bytes("x", text.encode())[0] if piece.format.startswith("nvbandwidth")]
    return piece


def observed(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.values) for entry in piece.observations if entry.kind == kind]


def rates(piece: Piece) -> dict[tuple[Any, ...], float | None]:
    return {(c.source_gpu, c.target_gpu, c.direction, c.route): c.bandwidth_bytes_per_second for c in piece.measurements.copies}


def test_versions_and_devices() -> None:
    machine = read(TEXT).machine

    assert machine is not None
    assert (machine.software.driver, machine.software.cuda) == ("580.95.05", "13.0")
    assert [(gpu.name, gpu.pci_bus_id) for gpu in machine.gpus] == [
        ("NVIDIA A100-SXM4-80GB", "00000000:34:00.0"),
        ("NVIDIA A100-SXM4-80GB", "00000000:35:00.0"),
    ]
    assert list(unexplained(machine)) == []


def test_the_arrow_gives_the_way_the_data_goes() -> None:
    found = rates(read(TEXT))

    assert found[None, 1, "one_way", "host"] == pytest.approx(24.26e9)
    assert found[0, None, "one_way", "host"] == pytest.approx(22.50e9)
    read_copies = [c for c in read(TEXT).measurements.copies if c.bandwidth_bytes_per_second == pytest.approx(26.34e9)]
    assert [(c.source_gpu, c.target_gpu) for c in read_copies] == [(0, 1)]
    write_copies = [c for c in read(TEXT).measurements.copies if c.bandwidth_bytes_per_second == pytest.approx(11e9)]
    assert [(c.source_gpu, c.target_gpu) for c in write_copies] == [(1, 0)]


def test_bidirectional_figures_are_per_direction_and_totals_are_left_out() -> None:
    both = [c for c in read(TEXT).measurements.copies if c.direction == "both_ways"]

    assert sorted(
        (c.source_gpu, c.target_gpu, round(c.bandwidth_bytes_per_second / 1e9, 2)) for c in both if c.bandwidth_bytes_per_second
    ) == [
        (0, 1, 20.34),
        (1, 0, 20.82),
    ]


def test_all_to_one_is_no_copy_of_a_pair() -> None:
    piece = read(TEXT)

    assert [(entry["gpu"], entry["bytes_per_second"]) for entry in observed(piece, "nvbandwidth.total")] == [(1, 91e9)]
    assert 90e9 not in {c.bandwidth_bytes_per_second for c in piece.measurements.copies}


def test_a_load_latency_is_an_observation_in_seconds() -> None:
    assert observed(read(TEXT), "nvbandwidth.latency")[0] == {
        "name": "device_to_device_latency_sm",
        "source_gpu": 0,
        "target_gpu": 1,
        "latency_seconds": pytest.approx(900e-9),
    }


def test_passed_copies_are_verified_because_the_tool_checks_them() -> None:
    assert {c.verified for c in read(TEXT).measurements.copies} == {True}


@pytest.mark.parametrize("word", ["Waived:", "WAIVED", "Waived: "])
def test_a_waived_test_is_said_to_be_waived(word: str) -> None:
    piece = read(f"nvbandwidth Version: v0.6\nRunning device_to_device_memcpy_read_ce.\n{word}\n")

    assert observed(piece, "nvbandwidth.test") == [{"name": "device_to_device_memcpy_read_ce", "status": "waived"}]


@pytest.mark.parametrize(
    "line",
    [
        " Invalid value when checking the pattern at 0x70a640000000",
        "ASSERT in expression h_errorFlag == 0 in void memcmpPatternHelper() : memcpy.cpp:165",
    ],
)
def test_a_pattern_that_does_not_come_back_is_wrong_data(line: str) -> None:
    piece = read(f"nvbandwidth Version: v0.7\nRunning device_to_device_memcpy_write_sm.\n{line}\n")

    assert observed(piece, "nvbandwidth.wrong_data")[0]["test"] == "device_to_device_memcpy_write_sm"


def test_other_failures_keep_their_words() -> None:
    piece = read(
        "nvbandwidth Version: v0.7\nRunning device_to_device_memcpy_write_sm.\n[CUDA_ERROR_ILLEGAL_ADDRESS] "
        "an illegal memory access in expression x\n"
    )

    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in observed(piece, "nvbandwidth.failure")[0]["text"]


def test_an_old_version_without_bus_ids() -> None:
    piece = read(
        "nvbandwidth Version: v0.2\nDevice 0: NVIDIA GeForce RTX 4090\nRunning "
        "host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "          0\n0     25.50\n"
    )

    assert piece.machine is not None
    assert (piece.machine.gpus[0].name, piece.machine.gpus[0].pci_bus_id) == ("NVIDIA GeForce RTX 4090", None)
    assert rates(piece) == {(None, 0, "one_way", "host"): pytest.approx(25.5e9)}


def test_an_unknown_unit_is_never_converted() -> None:
    piece = read(TEXT.replace("GPU(row) -> GPU(column) bandwidth (GB/s)", "GPU(row) -> GPU(column) bandwidth (GiB/s)"))

    assert observed(piece, "nvbandwidth.unit") == [{"unit": "GiB/s"}]
    assert 26.34e9 not in {c.bandwidth_bytes_per_second for c in piece.measurements.copies}


def report(**changes: Any) -> str:
    body = {
        "CUDA Runtime Version": 12040,
        "Driver Version": "550.54.15",
        "GPU Device list": ["0: NVIDIA H100 80GB HBM3 (00000000:0f:00): (host-a)", "1: NVIDIA H100 80GB HBM3 (00000000:2d:00): (host-a)"],
        "testcases": [
            {
                "name": "device_to_device_memcpy_read_ce",
                "status": "Passed",
                "sum": 700.0,
                "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["N/A", "376.61"], ["375.2", "N/A"]],
            },
            {"name": "all_to_one_read_ce", "status": "Waived"},
            {"name": "device_to_device_memcpy_write_sm", "status": "Error", "error": "ASSERT in expression h_errorFlag == 0"},
        ],
    }
    return json.dumps({"nvbandwidth": {**body, **changes}}, indent=1)


def test_the_json_report() -> None:
    piece = read(report())

    assert rates(piece) == {(0, 1, "one_way", "direct"): pytest.approx(376.61e9), (1, 0, "one_way", "direct"): pytest.approx(375.2e9)}
    assert [(entry["name"], entry["status"]) for entry in observed(piece, "nvbandwidth.test")] == [
        ("device_to_device_memcpy_read_ce", "passed"),
        ("all_to_one_read_ce", "waived"),
        ("device_to_device_memcpy_write_sm", "error"),
    ]
    assert observed(piece, "nvbandwidth.wrong_data")[0]["test"] == "device_to_device_memcpy_write_sm"
    assert piece.machine is not None
    assert (piece.machine.hostname, piece.machine.software.driver, len(piece.machine.gpus)) == ("host-a", "550.54.15", 2)


@pytest.mark.parametrize(
    "changes",
    [{"testcases": [1, {"name": None, "bandwidth_matrix": "x"}]}, {"GPU Device list": "x"}, {"Driver Version": 5}, {"error": "no devices"}],
)
def test_a_report_of_nonsense_is_read_without_a_crash(changes: dict[str, Any]) -> None:
    assert read(report(**changes)).format == "nvbandwidth JSON"


def test_a_table_of_latencies_alone_is_read() -> None:
    lines = "memory latency SM CPU(row) <-> GPU(column) (ns)\n           0         1\n 0    787.99    812.50\n"
    pieces, _ = read_bytes("x", lines.encode())
    found = [entry.values for piece in pieces for entry in piece.observations if entry.kind == "nvbandwidth.latency"]
    assert [(values["target_gpu"], values["latency_seconds"]) for values in found] == [
        (0, pytest.approx(787.99e-9)),
        (1, pytest.approx(812.5e-9)),
    ]

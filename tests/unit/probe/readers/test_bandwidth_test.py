"""CUDA's ``bandwidthTest``: the largest pinned copy each way is the GPU's link, and everything else is only told."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import text
from wiretax.model.reading import unexplained
from wiretax.probe.readers.bandwidth_test import read
from wiretax.probe.readers.piece import Piece

QUICK = """\
[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: NVIDIA A100-SXM4-40GB
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t12.3

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t13.2

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t1157.5

Result = PASS

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.
"""


def copies(piece: Piece) -> list[tuple[Any, ...]]:
    return [(c.source_gpu, c.target_gpu, c.route, c.num_bytes, c.bandwidth_bytes_per_second) for c in piece.measurements.copies]


def test_the_two_ways_over_the_link_and_the_memory_of_the_gpu() -> None:
    (piece,) = read(text(QUICK))
    assert copies(piece) == [(None, 0, "host", 32_000_000, 12.3e9), (0, None, "host", 32_000_000, 13.2e9)]
    assert piece.machine is not None
    assert [(gpu.cuda_ordinal, gpu.name) for gpu in piece.machine.gpus] == [(0, "NVIDIA A100-SXM4-40GB")]
    assert list(unexplained(piece)) == []
    own = [entry for entry in piece.observations if entry.kind == "p2p_test.own_memory"]
    assert [(entry.line, entry.values["bytes_per_second"]) for entry in own] == [(20, 1157.5e9)]
    blank = {number for number, line in enumerate(QUICK.split("\n"), 1) if not line.strip()}
    assert piece.understood == set(range(1, 25)) - blank


def test_blanks_that_fell_together_change_nothing() -> None:
    flat = "\n".join(" ".join(line.split()) for line in QUICK.split("\n"))
    assert copies(read(text(flat))[0]) == copies(read(text(QUICK))[0])


def test_old_samples_count_in_thousands_of_1024_bytes() -> None:
    old = QUICK.replace("GB/s", "MB/s").replace("12.3", "12345.6")
    assert copies(read(text(old))[0])[0][4] == pytest.approx(12345.6 * 1_024_000)


def test_of_a_sweep_the_largest_size_counts() -> None:
    sweep = QUICK.replace("   32000000\t\t\t12.3", "   1024\t\t\t\t0.4\n   32000000\t\t\t12.3\n   67186688\t\t\t12.9")
    assert copies(read(text(sweep))[0])[0] == (None, 0, "host", 67_186_688, 12.9e9)


@pytest.mark.parametrize(
    ("change", "memory", "num_gpus"),
    [(("PINNED", "PAGEABLE"), "pageable", 1), (("1 Device(s)", "2 Device(s)"), "pinned", 2)],
)
def test_pageable_copies_and_sums_over_devices_are_no_link(change: tuple[str, str], memory: str, num_gpus: int) -> None:
    (piece,) = read(text(QUICK.replace(*change)))
    assert copies(piece) == []
    told = [entry.values for entry in piece.observations if entry.kind == "bandwidth_test.rate"]
    assert [(entry["way"], entry["memory"], entry["num_gpus"]) for entry in told] == [
        (way, memory, num_gpus) for way in ("host_to_device", "device_to_host", "device_to_device")
    ]


def test_without_its_device_a_table_is_of_no_gpu() -> None:
    (piece,) = read(text(QUICK[QUICK.index(" Host to Device") :]))
    assert (copies(piece), piece.machine) == ([], None)
    assert len([entry for entry in piece.observations if entry.kind == "bandwidth_test.rate"]) == 3


def test_the_form_for_spreadsheets() -> None:
    head = "[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device 1: Tesla T4\n Quick Mode\n\n"
    row = "bandwidthTest-{}, Bandwidth = {} GB/s, Time = 0.00500 s, Size = 32000000 bytes, NumDevsUsed = 1\n"
    (piece,) = read(text(head + row.format("H2D-Pinned", 6.3) + row.format("D2H-Paged", 3.1) + row.format("D2D", 239.6)))
    assert copies(piece) == [(None, 1, "host", 32_000_000, 6.3e9)]
    assert [entry.values["memory"] for entry in piece.observations if entry.kind == "bandwidth_test.rate"] == [
        "pinned",
        "pageable",
        "pinned",
    ]


@pytest.mark.parametrize("content", ["Device 0: NVIDIA A100\n32000000 12.3", "4 Device(s)\n 100 200.0", "Host to Device Bandwidth is fine"])
def test_other_text_is_left_alone(content: str) -> None:
    assert read(text(content)) == ()

"""CUDA's peer bandwidth sample: access lines, matrices, directions, units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wiretax.model.reading import unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.p2p_bandwidth import FORMAT
from wiretax.probe.readers.piece import Piece

CASES = Path(__file__).parents[3] / "data" / "cases"


def read(text: str) -> Piece:
    (piece,) = [piece for piece in read_bytes("x", text.encode())[0] if piece.format == FORMAT]
    return piece


def observed(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.values) for entry in piece.observations if entry.kind == kind]


def test_access_lines_become_the_peer_access_of_every_pair() -> None:
    machine = read((CASES / "C04_bw.txt").read_text()).machine

    assert machine is not None
    assert len(machine.pairs) == 56
    assert {pair.peer_access for pair in machine.pairs} == {False}
    assert (machine.gpus[5].name, machine.gpus[5].pci_bus_id) == ("NVIDIA GeForce RTX 3090", "00000000:3F:00.0")
    assert "CUDA ordinals" in str(machine.origin_note)
    assert list(unexplained(machine)) == []


def test_the_bidirectional_figure_is_halved_because_it_counts_both_ways() -> None:
    copies = read((CASES / "C04_bw.txt").read_text()).measurements.copies

    near = next(copy for copy in copies if (copy.source_gpu, copy.target_gpu, copy.direction) == (0, 1, "both_ways"))
    far = next(copy for copy in copies if (copy.source_gpu, copy.target_gpu, copy.direction) == (0, 4, "both_ways"))
    assert near.bandwidth_bytes_per_second == pytest.approx(3.05e9)
    assert far.bandwidth_bytes_per_second == pytest.approx(4.3e9)
    assert near.route == "staged"


def test_latency_is_in_seconds_and_the_diagonal_is_left_out() -> None:
    copies = [copy for copy in read((CASES / "C04_bw.txt").read_text()).measurements.copies if copy.latency_seconds is not None]

    assert len(copies) == 56
    assert {round((copy.latency_seconds or 0) * 1e6, 2) for copy in copies} == {12.4, 16.8}


def test_a_diagonal_that_differs_is_another_card() -> None:
    own = observed(read((CASES / "C17_bw.txt").read_text()), "p2p_test.own_memory")

    assert [(entry["gpu"], entry["bytes_per_second"]) for entry in own if entry["bytes_per_second"] < 500e9] == [(6, 278e9)]


NEW = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA H100 80GB HBM3, pciBusID: 43, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=1 CAN Access Peer Device=0

P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 2474.76  37.19
     1  36.36 2512.44
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 2494.76 371.02
     1 371.99 2514.71
Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)
   D\\D     0      1
     0 2494.76 361.02
     1 362.99 2514.71
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 2525.98 742.84
     1 743.12 2530.10
P2P=Disabled Latency Matrix (us)
   GPU     0      1
     0   2.60  21.33
     1  20.49   2.49

   CPU     0      1
     0   2.14   6.08
     1   6.06   2.10
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.60   1.33
     1   1.49   2.49

   CPU     0      1
     0   2.14   1.66
     1   1.71   2.10
"""


def test_the_full_output_of_a_recent_sample() -> None:
    piece = read(NEW)
    rates = {
        (copy.source_gpu, copy.target_gpu, copy.route, copy.direction): copy.bandwidth_bytes_per_second
        for copy in piece.measurements.copies
        if copy.bandwidth_bytes_per_second is not None
    }
    latencies = [
        (copy.source_gpu, copy.route, copy.latency_seconds) for copy in piece.measurements.copies if copy.latency_seconds is not None
    ]

    assert rates[0, 1, "staged", "one_way"] == pytest.approx(37.19e9)
    assert rates[0, 1, "direct", "both_ways"] == pytest.approx(371.42e9)
    assert rates[0, 1, "direct", "one_way"] == pytest.approx(362.99e9)
    assert latencies == [
        (0, "staged", pytest.approx(21.33e-6)),
        (1, "staged", pytest.approx(20.49e-6)),
        (0, "direct", pytest.approx(1.33e-6)),
        (1, "direct", pytest.approx(1.49e-6)),
    ]
    assert piece.damaged == ()
    assert len(piece.understood) == len([line for line in NEW.splitlines() if line.strip()])


def test_reads_go_the_other_way_than_writes() -> None:
    reads = [copy for copy in read(NEW).measurements.copies if copy.bandwidth_bytes_per_second == 361.02e9]

    assert [(copy.source_gpu, copy.target_gpu) for copy in reads] == [(1, 0)]


def test_enabled_without_access_is_a_staged_copy_whatever_the_title_says() -> None:
    text = (
        NEW.replace("CAN Access", "CANNOT Access")
        .replace("     1     1\n", "     1     0\n", 1)
        .replace("     1\t     1     1", "     1\t     0     1")
    )

    assert {copy.route for copy in read(text).measurements.copies} == {"staged"}


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "> "])
def test_a_launchers_prefix_does_not_matter(prefix: str) -> None:
    assert len(read("".join(prefix + line + "\n" for line in NEW.splitlines())).measurements.copies) == len(read(NEW).measurements.copies)


def test_an_unknown_unit_is_never_converted() -> None:
    piece = read("Unidirectional P2P=Disabled Bandwidth Matrix (Gb/s)\n   D\\D     0      1\n     0 90.00  37.19\n     1  36.36 90.44\n")

    assert observed(piece, "p2p_test.unit") == [{"unit": "Gb/s"}]
    assert piece.measurements.copies == ()


def test_a_row_of_the_wrong_length_is_damaged_and_the_others_count() -> None:
    piece = read(
        "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1      2\n     0 90.00  "
        "37.19  30.10\n     1  36.36 90.44\n     2  1.00  2.00 90.00\n"
    )

    assert piece.damaged == ((4, "a row of 2 cells under 3 columns"),)
    assert {copy.source_gpu for copy in piece.measurements.copies} == {0, 2}


def test_the_access_lines_of_simple_p2p() -> None:
    piece = read(
        "> Peer access from NVIDIA A100-SXM4-40GB (GPU0) -> NVIDIA A100-SXM4-40GB (GPU1) : Yes\n"
        "> Peer access from NVIDIA A100-SXM4-40GB (GPU1) -> NVIDIA A100-SXM4-40GB (GPU0) : No\n"
    )

    assert piece.machine is not None
    assert [(pair.source_gpu, pair.target_gpu, pair.peer_access) for pair in piece.machine.pairs] == [(0, 1, True), (1, 0, False)]

"""People's own peer access and peer copy checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.peer_check import FORMAT
from wiretax.probe.readers.piece import Piece

CASES = Path(__file__).parents[3] / "data" / "cases"


def pieces(text: str) -> list[Piece]:
    return [piece for piece in read_bytes("x", text.encode())[0] if piece.format == FORMAT]


def observed(text: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in entry.values.items() if name != "text"} for piece in pieces(text) for entry in piece.observations
    ]


def test_a_copy_that_succeeds_with_wrong_data_is_wrong_and_the_staged_one_is_right() -> None:
    text = (CASES / "C10_check.txt").read_text()
    (piece,) = pieces(text)

    assert [(truth.source_gpu, truth.target_gpu, truth.outcome) for truth in piece.measurements.peer_truth] == [
        (0, 1, "wrong_data"),
        (1, 0, "wrong_data"),
    ]
    assert observed(text)[-1] == {"source_gpu": 0, "target_gpu": 1, "staged": True, "wrong": False, "mismatches": 0}
    assert piece.machine is not None
    assert [pair.peer_access for pair in piece.machine.pairs] == [True, True]


@pytest.mark.parametrize(
    ("line", "access"),
    [
        ("cudaDeviceCanAccessPeer(0,1) = 1", True),
        ("torch.cuda.can_device_access_peer(0, 1) -> False", False),
        ("canAccessPeer(0, 1): True", True),
        ("GPU 0 -> GPU 1: ✗", False),
        ("GPU 0 -> GPU 1: ✓", True),
        ("GPU0 -> GPU1: P2P supported", True),
        ("cuda:0 -> cuda:1 : not supported", False),
        ("GPU 0 → GPU 1: No", False),
    ],
)
def test_peer_access_in_many_spellings(line: str, access: bool) -> None:
    assert observed(line) == [{"source_gpu": 0, "target_gpu": 1, "access": access}]


def test_a_statement_about_every_pair() -> None:
    assert observed("# can_device_access_peer: False for all 12 ordered pairs (second provider)") == [{"all_pairs": True, "access": False}]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("cudaMemcpyPeer 0->1: cudaSuccess  mismatching elements: 4096", True),
        ("P2P copy GPU 0 -> GPU 1: 0 bad bytes, differences: 0", False),
        ("peer copy: 0 -> 1 data mismatch", True),
        ("Peer copy 0 to 1: identical", False),
        ("cudaMemcpyPeerAsync 0->1: wrong values: yes", True),
        ("copy 0->1 corrupted: no", False),
    ],
)
def test_comparisons_in_many_words(line: str, wrong: bool) -> None:
    (found,) = observed(line)

    assert (found["source_gpu"], found["target_gpu"], found["wrong"]) == (0, 1, wrong)


def test_the_verification_error_of_simple_p2p() -> None:
    assert observed("Verification error @ element 1: val = 0.000000, ref = 4.000000") == [{"staged": False, "wrong": True}]


@pytest.mark.parametrize(
    "line",
    ["GPU 0 -> GPU 1: 32 Gbps", "copy 0 -> 1 took 3 ms", "GPU 0 -> GPU 1: 25.3 GB/s", "we copy 3 to 4 files", "layer 0 -> 1 : True story"],
)
def test_bandwidths_and_ordinary_words_are_no_checks(line: str) -> None:
    assert observed(line) == []


def test_an_answer_may_stand_on_the_next_line() -> None:
    assert observed(">>> torch.cuda.can_device_access_peer(0, 1)\nFalse\n") == [{"source_gpu": 0, "target_gpu": 1, "access": False}]


def test_bare_pairs_count_once_peer_access_was_spoken_of() -> None:
    rows = "0 -> 1: True\n1 -> 0: False\n"
    assert [entry["access"] for entry in observed("peer access:\n" + rows)] == [True, False]
    assert observed("epochs:\n" + rows) == []


def test_a_heading_may_call_it_p2p_access() -> None:
    assert [entry["access"] for entry in observed("P2P access:\n0 1 True\n1 0 False")] == [True, False]

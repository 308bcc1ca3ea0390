"""``nvidia-smi topo -p2p``: the code is kept with its question, and without one no question is guessed."""

from __future__ import annotations

import pytest

from pasted_text import case, recording, text
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.smi_p2p import read

QUESTIONS = ("read", "write", "nvlink", "atomics", "pci")


def codes(piece: Piece) -> dict[tuple[int, int], dict[str, str]]:
    assert piece.machine is not None
    return {
        (pair.source_gpu, pair.target_gpu): {name: code for name in QUESTIONS if (code := getattr(pair.p2p, name)) is not None}
        for pair in piece.machine.pairs
    }


def test_the_recording_answers_five_questions_in_five_pieces() -> None:
    pieces = read(recording("host_and_nvidia_smi.txt"))
    assert [codes(piece)[(0, 1)] for piece in pieces] == [
        {"read": "OK"},
        {"write": "OK"},
        {"nvlink": "OK"},
        {"atomics": "OK"},
        {"pci": "NS"},
    ]
    assert [piece.first_line for piece in pieces] == [78, 92, 106, 120, 134]


def test_a_card_without_peer_access_says_cns_for_every_pair() -> None:
    piece = read(case("C20_p2p.txt"))[0]
    assert codes(piece) == {(a, b): {"read": "CNS", "write": "CNS"} for a in range(4) for b in range(4) if a != b}
    assert piece.observations[0].values["codes"] == "CNS"
    assert piece.damaged == ()


@pytest.mark.parametrize("code", ["OK", "CNS", "GNS", "TNS", "NS", "DR", "U"])
def test_every_code_is_known(code: str) -> None:
    piece = read(text(f"nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\t{code}\t\n GPU1\t{code}\tX\t"))[0]
    assert codes(piece) == {(0, 1): {"read": code}, (1, 0): {"read": code}}


def test_without_the_command_the_codes_are_observations_and_no_question_is_filled() -> None:
    piece = read(text(" \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok"))[0]
    assert codes(piece) == {(0, 1): {}, (1, 0): {}}
    assert [(entry.values["source_gpu"], entry.values["target_gpu"], entry.values["code"]) for entry in piece.observations[:2]] == [
        (0, 1, "GNS"),
        (1, 0, "GNS"),
    ]
    assert piece.observations[2].values["asked"] == "unknown"
    assert piece.machine is not None
    assert "which of r, w, n, a, p" in piece.machine.pairs[0].p2p.missing["read"]


@pytest.mark.parametrize(
    "content",
    [
        (
            "$ nvidia-smi topo -p2p n\n        GPU0    GPU1    GPU2\n"
            " GPU0   X       OK      TNS\n GPU1   OK      X       TNS\n"
            " GPU2   TNS     TNS     X"
        ),
        "user@box:~# nvidia-smi topo -p2p n      GPU0    GPU1    GPU2\n GPU0 X OK TNS\n GPU1 OK X TNS\n GPU2 TNS TNS X",
        (
            "nvidia-smi topo -p2p n\n\n| | GPU0 | GPU1 | GPU2 |\n"
            "|---|---|---|---|\n| GPU0 | X | OK | TNS |\n"
            "| GPU1 | OK | X | TNS |\n| GPU2 | TNS | TNS | X |"
        ),
    ],
)
def test_other_shapes_read_the_same(content: str) -> None:
    piece = read(text(content))[0]
    assert codes(piece)[(0, 1)] == {"nvlink": "OK"}
    assert codes(piece)[(2, 0)] == {"nvlink": "TNS"}
    assert piece.damaged == ()


def test_a_direction_can_differ() -> None:
    piece = read(text("## topo -p2p w\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tDR\tX"))[0]
    assert codes(piece) == {(0, 1): {"write": "OK"}, (1, 0): {"write": "DR"}}


def test_a_damaged_row_is_reported_and_left_open() -> None:
    piece = read(text("nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tOK\n GPU1\tOK\tX\n GPU2\tOK\tOK\tX"))[0]
    assert codes(piece)[(1, 0)] == {"read": "OK"}
    assert codes(piece)[(1, 2)] == {}
    assert [line for line, _ in piece.damaged] == [4]


def test_a_topology_is_no_p2p_matrix() -> None:
    assert read(case("C01_topo.txt")) == ()


def test_a_row_without_a_column_is_told() -> None:
    piece = read(text("nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n GPU2\tOK\tOK\t"))[0]
    assert piece.damaged == ((5, "row GPU2 has no column in the header, so the matrix is not whole"),)

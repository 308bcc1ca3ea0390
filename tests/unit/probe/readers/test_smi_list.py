"""``nvidia-smi -L`` and its kin."""

from __future__ import annotations

import pytest

from pasted_text import case, recording, text
from wiretax.probe.readers.smi_list import read


def test_the_recording_lists_two_cards_once() -> None:
    pieces = read(recording("host_and_nvidia_smi.txt"))
    assert len(pieces) == 1
    assert pieces[0].machine is not None
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in pieces[0].machine.gpus] == [
        (0, "NVIDIA H200", "GPU-00000001-0000-4000-8000-000000000001"),
        (1, "NVIDIA H200", "GPU-00000002-0000-4000-8000-000000000002"),
    ]
    assert pieces[0].understood == {62, 63}


def test_mig_devices_turn_mig_on() -> None:
    piece = read(case("C48_smi_L.txt"))[0]
    assert piece.machine is not None
    assert [gpu.mig for gpu in piece.machine.gpus] == ["enabled"]
    assert [(entry.values["device"], entry.values["profile"]) for entry in piece.observations] == [
        (0, "3g.40gb"),
        (1, "2g.20gb"),
        (2, "1g.10gb"),
        (3, "1g.10gb"),
    ]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (
            (
                "GPU 0: Tesla K80 (UUID: GPU-d0e3a7f1-0000-1111-2222-333344445555)\n"
                "GPU 1: Tesla K80 (UUID: GPU-d0e3a7f1-0000-1111-2222-333344445556)"
            ),
            ["Tesla K80", "Tesla K80"],
        ),
        (
            (
                "GPU models and configuration: \nGPU 0: NVIDIA GeForce RTX 4090\n"
                "GPU 1: NVIDIA GeForce RTX 4090\n\nNvidia driver version: 550.54.14"
            ),
            ["NVIDIA GeForce RTX 4090"] * 2,
        ),
        (
            (
                "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee)\n"
                "  MIG 1g.10gb+me  Device  0: (UUID: MIG-GPU-aaaaaaaa-bbbb/7/0)"
            ),
            ["NVIDIA A100-SXM4-80GB"],
        ),
        ("[1,0]<stdout>:GPU 0: NVIDIA L40S (UUID: GPU-12345678-0000-1111-2222-333344445555)", ["NVIDIA L40S"]),
    ],
)
def test_other_cards_and_tools(content: str, names: list[str]) -> None:
    piece = read(text(content))[0]
    assert piece.machine is not None
    assert [gpu.name for gpu in piece.machine.gpus] == names


def test_no_instances_shown_says_nothing_of_mig() -> None:
    piece = read(text("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)"))[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].mig is None
    assert "only where instances exist" in piece.machine.gpus[0].missing["mig"]


def test_another_machine_begins_where_a_number_comes_back_with_another_identity() -> None:
    first = "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)"
    pieces = read(text(f"{first}\n\n{first}\n\n{first.replace('1111', '9999')}"))
    assert [len(piece.machine.gpus) for piece in pieces if piece.machine] == [1, 1]


@pytest.mark.parametrize(
    "content",
    [
        "GPU 0: 35 %",
        "GPU 0: -> GPU 1: 32 Gbps",
        "GPU 1: 2.61it/s",
        "1 GPU: 900 steps",
        "GPU 0: NVIDIA H200 (UUID: GPU-00000001)\n\t Link 0: 26.562 GB/s",
    ],
)
def test_other_lines_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()


def test_slices_whose_uuid_was_taken_out_are_read() -> None:
    listed = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-xxxx)\n  MIG 3g.20gb     Device  0: (UUID: <redacted>)\n"
    (piece,) = read(text(listed))
    assert piece.machine is not None and piece.machine.gpus[0].mig == "enabled"

"""``nvidia-smi nvlink``: states, capabilities, errors, and the reasons why there is nothing to show."""

from __future__ import annotations

import pytest

from pasted_text import case, recording, text
from wiretax.model.reading import unexplained
from wiretax.probe.readers.smi_nvlink import read


@pytest.mark.parametrize("name", ["C50_nvlink.txt", "C50_nvlink_b.txt"])
def test_two_links_of_one_card_are_down(name: str) -> None:
    pieces = read(case(name))
    assert len(pieces) == 1
    machine = pieces[0].machine
    assert machine is not None
    assert [gpu.nvlinks_active for gpu in machine.gpus] == [6, 6, 6, 4]
    assert [link.index for link in machine.gpus[3].nvlinks if not link.active] == [3, 5]
    assert machine.gpus[0].nvlinks[0].bandwidth_bytes_per_second == 25.781e9
    down = [(entry.values["gpu"], entry.values["link"], entry.line) for entry in pieces[0].observations if entry.kind == "nvlink.inactive"]
    assert down == [(3, 3, 26), (3, 5, 28)]
    assert len(pieces[0].understood) == 28
    assert list(unexplained(machine)) == []


def test_the_recording_holds_states_and_capabilities_of_one_machine() -> None:
    pieces = read(recording("host_and_nvidia_smi.txt"))
    assert len(pieces) == 1
    machine = pieces[0].machine
    assert machine is not None
    assert [gpu.nvlinks_active for gpu in machine.gpus] == [18, 18]
    assert {link.bandwidth_bytes_per_second for gpu in machine.gpus for link in gpu.nvlinks} == {26.562e9}
    summary = [entry.values for entry in pieces[0].observations if entry.kind == "nvlink.links"]
    assert [(entry["gpu"], entry["active"], entry["inactive"], entry["gigabytes_per_second"]) for entry in summary] == [
        (0, 18, 0, 26.562),
        (1, 18, 0, 26.562),
    ]


HEAD = "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-2222-3333-4444-555555555555)"


@pytest.mark.parametrize(
    ("line", "active", "why"),
    [
        ("NVML: Unable to retrieve NVLink information as all links are inActive", 0, "all_inactive"),
        ("Unable to retrieve Nvlink information as all links are inActive", 0, "all_inactive"),
        ("Device does not have or support Nvlink", 0, "not_supported"),
        ("Nvlink queries are not supported for Devices in MIG mode", None, "mig"),
    ],
)
def test_the_reason_why_no_link_is_shown(line: str, active: int | None, why: str) -> None:
    piece = read(text(f"{HEAD}\n{line}"))[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].nvlinks_active == active
    assert piece.observations[0].values["why"] == why
    assert piece.machine.gpus[0].mig == ("enabled" if why == "mig" else None)


def test_mig_mode_hides_links_in_the_case() -> None:
    piece = read(case("C48_nvlink.txt"))[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].missing["nvlinks_active"] == "the driver does not tell in MIG mode"


@pytest.mark.parametrize(
    ("speed", "expected"), [("14.062 GB/s", 14.062e9), ("25 GB/s", 25e9), ("26.562 GB/s", 26.562e9), ("53.125 GB/s", 53.125e9)]
)
def test_the_speed_of_each_generation(speed: str, expected: float) -> None:
    piece = read(text(f"{HEAD}\n\t Link 0: {speed}\n\t Link 1: <inactive>"))[0]
    assert piece.machine is not None
    assert [link.bandwidth_bytes_per_second for link in piece.machine.gpus[0].nvlinks] == [expected, None]


def test_error_counters_that_are_not_zero_are_noted_and_kept_at_their_link() -> None:
    content = f"""{HEAD}
\t Link 0: 14.062 GB/s
\t Link 1: 14.062 GB/s
{HEAD}
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 3
\t Link 0: CRC Errors: 0

\t Link 1: Replay Errors: 12
\t Link 1: CRC FLIT Errors: 1,0"""
    piece = read(text(content.replace("1,0", "7")))[0]
    assert piece.machine is not None
    assert [link.errors for link in piece.machine.gpus[0].nvlinks] == [
        {"replay": 0, "recovery": 3, "crc_flit": 0},
        {"replay": 12, "crc_flit": 7},
    ]
    noted = [
        (entry.values["link"], entry.values["counter"], entry.values["value"])
        for entry in piece.observations
        if entry.kind == "nvlink.error"
    ]
    assert noted == [(0, "recovery", 3), (1, "replay", 12), (1, "crc_flit", 7)]


def test_a_capability_that_is_missing_is_noted() -> None:
    piece = read(text(f"{HEAD}\n\t Link 0, P2P is supported: false\n\t Link 0, Link is supported: true"))[0]
    assert [(entry.values["capability"], entry.values["supported"]) for entry in piece.observations] == [("p2p", False)]


def test_the_other_end_of_a_link() -> None:
    piece = read(text(f"{HEAD}\n\t Link 0: 14.062 GB/s\n{HEAD}\n\t Link 0: 00000000:41:00.0"))[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].nvlinks[0].remote_pci_bus_id == "00000000:41:00.0"


def test_a_later_state_of_the_same_card_is_another_piece() -> None:
    pieces = read(text(f"{HEAD}\n\t Link 0: 14.062 GB/s\n\nafter the reboot\n{HEAD}\n\t Link 0: <inactive>"))
    assert [piece.machine.gpus[0].nvlinks_active for piece in pieces if piece.machine] == [1, 0]


def test_link_lines_without_a_card_belong_to_nobody() -> None:
    assert read(text("\t Link 0: 26.562 GB/s")) == ()

"""``nvidia-smi --query-gpu`` lists."""

from __future__ import annotations

import pytest

from pasted_text import case, text
from wiretax.probe.readers.smi_csv import read


def test_two_names_in_one_list() -> None:
    pieces = read(case("C59_smi.txt"))
    assert len(pieces) == 1
    machine = pieces[0].machine
    assert machine is not None
    assert [(gpu.index, gpu.name, gpu.power_watts, gpu.power_limit_watts, gpu.utilization_fraction) for gpu in machine.gpus] == [
        (0, "NVIDIA GeForce RTX 5090", 74.0, 400.0, 1.0),
        (1, "NVIDIA GeForce RTX 3090 Ti", 151.0, 450.0, 1.0),
    ]
    assert [(gpu.pcie.max_generation, gpu.pcie.width, gpu.pcie.generation) for gpu in machine.gpus] == [(5, 8, None), (4, 8, None)]
    assert pieces[0].damaged == ()


def test_a_list_without_heading_needs_its_command() -> None:
    rows = "0, NVIDIA A40, 4, 16\n1, NVIDIA A40, 1, 8"
    command = "$ nvidia-smi --query-gpu=index,name,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader"
    piece = read(text(f"{command}\n{rows}"))[0]
    assert piece.machine is not None
    assert [(gpu.pcie.generation, gpu.pcie.width) for gpu in piece.machine.gpus] == [(4, 16), (1, 8)]
    assert read(text(rows)) == ()


def test_units_may_be_left_out() -> None:
    piece = read(
        text(
            "index, uuid, memory.total, memory.used, clocks.sm, clocks.max.sm, temperature.gpu, pstate\n"
            "0, GPU-1, 24576, 100, 210, 2100, 35, P8"
        )
    )[0]
    assert piece.machine is not None
    gpu = piece.machine.gpus[0]
    assert (gpu.memory_bytes, gpu.memory_used_bytes, gpu.sm_clock_mhz, gpu.max_sm_clock_mhz, gpu.temperature_celsius) == (
        24576 * 2**20,
        100 * 2**20,
        210,
        2100,
        35.0,
    )
    assert (piece.observations[0].kind, piece.observations[0].values["state"]) == ("gpu.performance_state", "P8")


def test_a_repeated_list_keeps_the_busiest_moment() -> None:
    rows = "\n".join(f"{index}, {busy} %, {generation}" for busy, generation in ((0, 1), (99, 4), (2, 1)) for index in (0, 1))
    piece = read(text("index, utilization.gpu [%], pcie.link.gen.current\n" + rows))[0]
    assert piece.machine is not None
    assert [(gpu.utilization_fraction, gpu.pcie.generation) for gpu in piece.machine.gpus] == [(0.99, 4), (0.99, 4)]
    assert [
        (entry.values["samples"], entry.values["busiest_utilization_fraction"])
        for entry in piece.observations
        if entry.kind == "gpu.samples"
    ] == [(3, 0.99)] * 2


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("clocks_throttle_reasons.active", "0x0000000000000044", ("sw_power_cap", "hw_thermal_slowdown")),
        ("clocks_event_reasons.active", "0x0000000000000001", ("gpu_idle",)),
        ("clocks_throttle_reasons.hw_slowdown", "Active", ("hw_slowdown",)),
        ("clocks_event_reasons.gpu_idle", "Not Active", ()),
    ],
)
def test_throttle_reasons_as_words_and_bits(field: str, value: str, expected: tuple[str, ...]) -> None:
    piece = read(text(f"index, name, {field}\n0, NVIDIA A40, {value}"))[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].throttle_reasons == expected


def test_missing_values_have_reasons() -> None:
    piece = read(
        text(
            "index, name, pcie.link.gen.current, power.draw [W], utilization.gpu [%]\n"
            "0, NVIDIA A40, [N/A], [Not Supported], [Unknown Error]"
        )
    )[0]
    assert piece.machine is not None
    gpu = piece.machine.gpus[0]
    assert (gpu.pcie.generation, gpu.power_watts, gpu.utilization_fraction) == (None, None, None)
    assert gpu.missing["power_watts"]


def test_no_index_column_makes_the_number_an_assumption() -> None:
    piece = read(text("name, driver_version, mig.mode.current\nNVIDIA L40S, 550.54.15, Disabled\nNVIDIA L40S, 550.54.15, Enabled"))[0]
    assert piece.machine is not None
    assert piece.machine.origin_note is not None
    assert [gpu.mig for gpu in piece.machine.gpus] == ["disabled", "enabled"]
    assert piece.machine.software.driver == "550.54.15"


def test_a_row_with_another_number_of_cells_is_reported() -> None:
    piece = read(text("index, name, pstate\n0, NVIDIA A40, P0\n1, NVIDIA A40, P0, P1"))[0]
    assert [line for line, _ in piece.damaged] in ([], [3])
    assert piece.machine is not None
    assert len(piece.machine.gpus) == 1


def test_compute_processes() -> None:
    piece = read(text("pid, process_name, used_gpu_memory [MiB]\n4242, python, 1234 MiB"))[0]
    assert {key: value for key, value in piece.observations[0].values.items() if key != "text"} == {
        "gpu": None,
        "pid": 4242,
        "type": "C",
        "name": "python",
        "memory_bytes": 1234 * 2**20,
    }


@pytest.mark.parametrize("content", ["a, b, c\n1, 2, 3", "gpus, samples/s\n1, 15.4", "", "name, surname\nAda, Lovelace"])
def test_other_lists_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()

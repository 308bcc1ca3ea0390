"""What ``nvidia-smi`` says when it cannot answer."""

from __future__ import annotations

import pytest

from pasted_text import case, text
from wiretax.probe.readers.smi_errors import read


def test_a_lost_gpu_is_named_by_its_address() -> None:
    piece = read(case("C56_smi.txt"))[0]
    assert piece.observations[0].kind == "gpu.lost"
    assert piece.observations[0].values["pci_bus_id"] == "00000000:02:00.0"
    assert piece.machine is not None
    assert piece.machine.driver_state == "error"
    assert piece.machine.driver_detail == piece.observations[0].values["message"]


@pytest.mark.parametrize(
    ("line", "bus", "gpu"),
    [
        ("Unable to determine the device handle for GPU0000:82:00.0: Unknown Error", "00000000:82:00.0", None),
        (
            "Unable to determine the device handle for gpu 0000:06:00.0: GPU is lost.  Reboot the system to recover this GPU",
            "00000000:06:00.0",
            None,
        ),
        ("Unable to determine the device handle for GPU3: 0000:C1:00.0: Unknown Error", "00000000:C1:00.0", 3),
    ],
)
def test_every_spelling_of_a_lost_gpu(line: str, bus: str, gpu: int | None) -> None:
    values = read(text(line))[0].observations[0].values
    assert (values["pci_bus_id"], values["gpu"]) == (bus, gpu)


@pytest.mark.parametrize(
    ("content", "failure", "state", "library"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.171", "mismatch", "mismatch", "535.171"),
        (
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                "latest NVIDIA driver is installed and running."
            ),
            "absent",
            "absent",
            None,
        ),
        ("bash: nvidia-smi: command not found", "absent", "absent", None),
        ("No devices were found", "no_devices", "error", None),
        ("Failed to initialize NVML: Unknown Error", "unknown_error", "error", None),
        ("INFO: task nvidia-smi:12345 blocked for more than 120 seconds.", "hung", "hung", None),
    ],
)
def test_a_driver_that_does_not_answer(content: str, failure: str, state: str, library: str | None) -> None:
    piece = read(text(content))[0]
    assert (piece.observations[0].values["failure"], piece.observations[0].values["library_version"]) == (failure, library)
    assert piece.machine is not None
    assert piece.machine.driver_state == state


def test_a_healthy_answer_is_no_error() -> None:
    assert read(text("| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0 |")) == ()

"""The table of ``nvidia-smi`` without arguments."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import recording, text
from wiretax.model.reading import unexplained
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.smi_table import read


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_the_recording() -> None:
    pieces = read(recording("host_and_nvidia_smi.txt"))
    assert len(pieces) == 1
    machine = pieces[0].machine
    assert machine is not None
    assert (machine.software.driver, machine.software.cuda) == ("580.159.04", "13.0")
    assert [(gpu.index, gpu.name, gpu.pci_bus_id, gpu.mig) for gpu in machine.gpus] == [
        (0, "NVIDIA H200", "00000000:00:06.0", "disabled"),
        (1, "NVIDIA H200", "00000000:00:07.0", "disabled"),
    ]
    first = machine.gpus[0]
    assert (first.memory_bytes, first.memory_used_bytes, first.power_watts, first.power_limit_watts) == (143771 * 2**20, 0, 119.0, 700.0)
    assert (first.temperature_celsius, first.utilization_fraction, first.ecc_uncorrected_errors, first.other_processes) == (40.0, 0.0, 0, 0)
    assert pieces[0].damaged == ()
    assert list(unexplained(machine)) == []


MIG = """\
Mon Jan  1 00:00:00 2024
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                   On |
| N/A   31C    P0    47W / 400W |     24MiB / 40536MiB |     N/A      Default |
|                               |                      |              Enabled |
+-------------------------------+----------------------+----------------------+
|   1  NVIDIA GeForce ...  Off  | 00000000:08:00.0  On |                  N/A |
|ERR!   31C    P0    ERR! / ERR!|    Unknown Error     | ERR!     E. Process  |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|                  |                      |        ECC|                       |
|==================+======================+===========+=======================|
|  0    1   0   0  |     11MiB / 20096MiB | 42      0 |  3   0    2    0    0 |
|                  |      0MiB / 32767MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |
|        ID   ID                                                   Usage      |
|=============================================================================|
|    0   N/A  N/A      4242      C   python train.py                 1234MiB |
|    1   N/A  N/A      1183      G   /usr/lib/xorg/Xorg                 4MiB |
+-----------------------------------------------------------------------------+
"""


def test_mig_processes_and_a_card_that_answers_err() -> None:
    piece = read(text(MIG))[0]
    assert piece.machine is not None
    first, second = piece.machine.gpus
    assert (first.name, first.mig, first.status, first.memory_bytes) == ("NVIDIA A100-SXM...", "enabled", "ok", 40536 * 2**20)
    assert first.utilization_fraction is None
    assert (second.status, second.status_reason) == ("unusable", "nvidia-smi shows ERR! for state, memory, utilization")
    assert second.display_attached is True
    assert [entry["field"] for entry in values(piece, "gpu.reading_failed")] == ["state", "memory", "utilization"]
    assert values(piece, "mig.instance") == [{"gpu": 0, "gpu_instance": 1, "compute_instance": 0, "device": 0}]
    assert values(piece, "gpu.process") == [
        {"gpu": 0, "pid": 4242, "type": "C", "name": "python train.py", "memory_bytes": 1234 * 2**20},
        {"gpu": 1, "pid": 1183, "type": "G", "name": "/usr/lib/xorg/Xorg", "memory_bytes": 4 * 2**20},
    ]
    assert first.other_processes is None
    assert "1 compute processes" in first.missing["other_processes"]


OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 384.111                Driver Version: 384.111                   |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  GeForce GTX 108...  Off  | 00000000:02:00.0 Off |                  N/A |
| 52%   83C    P2   249W / 250W |  10731MiB / 11172MiB |     98%      Default |
+-------------------------------+----------------------+----------------------+
|   1  GeForce GTX 108...  Off  | 00000000:03:00.0 Off |                  N/A |
| 23%   40C    P8    12W / 250W |     10MiB / 11172MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0      9001      C   python                                     10721MiB |
+-----------------------------------------------------------------------------+
"""


def test_an_old_driver_without_cuda_version_and_mig_row() -> None:
    piece = read(text(OLD))[0]
    assert piece.machine is not None
    assert (piece.machine.software.driver, piece.machine.software.cuda) == ("384.111", None)
    assert [(gpu.utilization_fraction, gpu.temperature_celsius, gpu.power_watts, gpu.mig) for gpu in piece.machine.gpus] == [
        (0.98, 83.0, 249.0, None),
        (0.0, 40.0, 12.0, None),
    ]
    assert values(piece, "gpu.process") == [{"gpu": 0, "pid": 9001, "type": "C", "name": "python", "memory_bytes": 10721 * 2**20}]
    assert [entry["state"] for entry in values(piece, "gpu.performance_state")] == ["P2", "P8"]


@pytest.mark.parametrize(
    ("head", "driver", "cuda", "smi"),
    [
        ("| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |", "610.43.02", "13.3", "610.43.02"),
        ("| NVIDIA-SMI 550.40.07              Driver Version: 551.52         CUDA Version: 12.4     |", "551.52", "12.4", "550.40.07"),
        ("| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: N/A      |", "535.104.05", None, "535.104.05"),
    ],
)
def test_the_head_of_newer_drivers(head: str, driver: str, cuda: str | None, smi: str) -> None:
    piece = read(text(f"+---+\n{head}\n"))[0]
    assert piece.machine is not None
    assert (piece.machine.software.driver, piece.machine.software.cuda) == (driver, cuda)
    assert values(piece, "smi.versions") == [{"smi": smi, "driver": driver, "cuda": cuda}]


def test_windows_names_its_driver_model() -> None:
    row = (
        "|   0  NVIDIA GeForce RTX 3050 ...  WDDM  |   00000000:01:00.0  On |                  N/A |\n"
        "| N/A   40C    P8              1W /   65W |    1070MiB /   4094MiB |     27%      Default |"
    )
    piece = read(text(row))[0]
    assert values(piece, "gpu.driver_model") == [{"gpu": 0, "model": "WDDM"}]
    assert piece.machine is not None
    assert piece.machine.gpus[0].utilization_fraction == 0.27


def test_a_table_that_breaks_off_is_reported() -> None:
    piece = read(text(OLD[: OLD.index("| 23%")]))[0]
    assert piece.damaged == ((10, "the table breaks off in the middle of a GPU"),)
    assert piece.machine is not None
    assert [gpu.utilization_fraction for gpu in piece.machine.gpus] == [0.98, None]


def test_two_tables_are_two_moments() -> None:
    assert len(read(text(OLD + "\nlater\n" + OLD))) == 2


def test_quoted_and_prefixed_tables() -> None:
    for bend in ("> {}", "[1,0]<stdout>:{}", "(main, pid=7) {}"):
        piece = read(text("\n".join(bend.format(line) for line in OLD.split("\n"))))[0]
        assert piece.machine is not None
        assert len(piece.machine.gpus) == 2


@pytest.mark.parametrize(
    "content",
    ["", "| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."],
)
def test_other_tables_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()

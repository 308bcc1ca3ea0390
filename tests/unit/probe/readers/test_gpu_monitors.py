"""``nvidia-smi dmon`` and ``gpustat``."""

from __future__ import annotations

import pytest

from pasted_text import text
from wiretax.model.reading import unexplained
from wiretax.probe.readers.gpu_monitors import read

DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
# Idx      W      C      C      %      %      %      %    MHz    MHz
    0    302     61      -     98     40      0      0   9501   1890
    1    210     88      -     97     41      0      0   9501   1200
    0    304     62      -    100     40      0      0   9501   1905
    1    200     90      -     99     41      0      0   9501   1185
"""


def test_one_card_runs_hotter_and_slower_than_the_other() -> None:
    piece = read(text(DMON))[0]
    assert piece.machine is not None
    assert [(gpu.power_watts, gpu.temperature_celsius, gpu.sm_clock_mhz, gpu.utilization_fraction) for gpu in piece.machine.gpus] == [
        (303.0, 61.5, 1898, 0.99),
        (205.0, 89.0, 1192, 0.98),
    ]
    assert [
        (entry.values["gpu"], entry.values["samples"], entry.values["busiest_utilization_fraction"]) for entry in piece.observations
    ] == [(0, 2, 1.0), (1, 2, 0.99)]
    assert piece.understood == {1, 2, 3, 4, 5, 6}
    assert list(unexplained(piece.machine)) == []


def test_other_columns_and_times() -> None:
    content = (
        "#Date       Time        gpu     sm    mem\n"
        "#YYYYMMDD   HH:MM:SS    Idx      %      %\n"
        " 20240101   10:00:00      0     50     10\n"
        " 20240101   10:00:00      1      -      -"
    )
    piece = read(text(content))[0]
    assert piece.machine is not None
    assert [gpu.utilization_fraction for gpu in piece.machine.gpus] == [0.5, None]


GPUSTAT = """\
box-7                    Mon Jan  1 10:00:00 2024  535.104.05
[0] NVIDIA GeForce RTX 3090 | 65'C,  98 %,  340 / 350 W | 20123 / 24576 MB | alice(10000M) bob(9000M)
[1] NVIDIA GeForce RTX 4090 | 45'C,   0 % |   123 / 24564 MB |
"""


def test_gpustat_names_cards_and_their_users() -> None:
    piece = read(text(GPUSTAT))[0]
    assert piece.machine is not None
    assert (piece.machine.hostname, piece.machine.software.driver) == ("box-7", "535.104.05")
    assert [(gpu.name, gpu.utilization_fraction, gpu.power_watts, gpu.memory_bytes) for gpu in piece.machine.gpus] == [
        ("NVIDIA GeForce RTX 3090", 0.98, 340.0, 24576 * 2**20),
        ("NVIDIA GeForce RTX 4090", 0.0, None, 24564 * 2**20),
    ]
    assert [(entry.values["name"], entry.values["memory_bytes"]) for entry in piece.observations] == [
        ("alice", 10000 * 2**20),
        ("bob", 9000 * 2**20),
    ]


@pytest.mark.parametrize("content", ["", "# gpu is the word", "[0] NVIDIA | text", "# gpu pwr\nno rows", "[1/2] step 45'C"])
def test_other_text_is_left_alone(content: str) -> None:
    assert read(text(content)) == ()


def test_a_column_of_times_changes_nothing() -> None:
    (piece,) = read(
        text("#Time        gpu    sm   mem\n#HH:MM:SS    Idx     %     %\n 10:00:00      0    97    50\n 10:00:00      1    12     5")
    )
    assert piece.machine is not None
    assert [(gpu.index, gpu.utilization_fraction) for gpu in piece.machine.gpus] == [(0, 0.97), (1, 0.12)]

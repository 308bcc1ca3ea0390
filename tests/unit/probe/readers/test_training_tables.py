"""Tables of GPU counts, strategies or settings against rates and times."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, recording, text
from wiretax.probe.readers.piece import Text
from wiretax.probe.readers.training_tables import read


def facts(content: str | Text, kind: str, *names: str) -> list[tuple[Any, ...]]:
    pieces = read(content if isinstance(content, Text) else text(content))
    return [tuple(entry.values.get(name) for name in names) for piece in pieces for entry in piece.observations if entry.kind == kind]


def test_the_case_whose_rate_counts_one_process() -> None:
    found = case("C62_bench.txt")
    assert facts(found, "training.run_time", "seconds", "num_gpus", "strategy", "wire") == [
        (19.56, 1, None, None),
        (16.64, 2, "dp", None),
        (13.54, 2, "ddp", None),
        (30.02, 2, "ddp", "NCCL_P2P_DISABLE=1"),
    ]
    assert facts(found, "training.rate", "samples_per_second", "num_gpus", "scope") == [
        (20.45, 1, "global"),
        (12.02, 2, "unknown"),
        (14.78, 2, "unknown"),
        (6.66, 2, "unknown"),
    ]
    checks = facts(found, "training.scope_check", "num_gpus", "strategy", "counted_fraction")
    assert [check[:2] for check in checks] == [(2, "dp"), (2, "ddp"), (2, "ddp")]
    assert [check[2] for check in checks] == pytest.approx([0.5, 0.5, 0.5], rel=1e-3)


def test_the_case_of_settings_against_gpu_counts() -> None:
    found = case("C20_bw.txt")
    cells = facts(found, "bench.value", "setting", "column", "num_gpus", "bytes_per_second", "operation", "measure")
    assert cells[:3] == [
        (None, "k=2 same bridge (PHB)", 2, 2.24e9, "all_reduce", "busbw"),
        (None, "k=2 across (NODE)", 2, 3.35e9, "all_reduce", "busbw"),
        (None, "k=4", 4, pytest.approx(2.17e9), "all_reduce", "busbw"),
    ]
    assert [(cell[0], cell[3]) for cell in cells if cell[0] == "NCCL_SHM_USE_CUDA_MEMCPY=1"] == [
        ("NCCL_SHM_USE_CUDA_MEMCPY=1", pytest.approx(value)) for value in (11.24e9, 19.44e9, 10.59e9)
    ]


@pytest.mark.parametrize(
    "content",
    [
        "| GPUs | throughput (img/s) |\n|---|---|\n| 1 | 310 |\n| 2 | 540 |\n| 8 | 1,400 |",
        "num_gpus,images/sec\n1,310\n2,540\n8,1400",
        "#GPUs\timg/s\n1\t310\n2\t540\n8\t1400",
        "GPUs      img/s\n1         310\n2         540\n8         1400",
        "gpus img/s\n1 310\n2 540\n8 1400",
        "| setup | img/s |\n|-|-|\n| 1 GPU | 310 |\n| 2 GPUs | 540 |\n| 8 GPUs | 1400 |",
    ],
)
def test_gpu_counts_against_throughput_in_every_layout(content: str) -> None:
    assert facts(content, "training.rate", "samples_per_second", "num_gpus") == [(310.0, 1), (540.0, 2), (1400.0, 8)]


def test_the_short_forms_of_a_row() -> None:
    content = "|type| time secs |\n|----|-----|\n| 1:  | 102 |\n| 2:DP | 110 |\n| 2:DDP | 101 |\n| 2:DDP w/o NVlink | 131 |"
    assert facts(content, "training.run_time", "seconds", "num_gpus", "strategy", "wire") == [
        (102.0, 1, None, None),
        (110.0, 2, "dp", None),
        (101.0, 2, "ddp", None),
        (131.0, 2, "ddp", "no_nvlink"),
    ]


def test_each_series_of_a_table_has_its_own_base() -> None:
    rows = ["|model|block|type|runtime|sample/sec", "|-|-|-|-|-"]
    rows += [
        "|gpt2|128|1GPU|20|20|",
        "|gpt2|128|DDP|14|14.3|",
        "|gpt2|128|DDP_no_NV|30|6.67|",
        "|large|128|1GPU|100|4|",
        "|large|128|DDP|70|2.86|",
    ]
    found = facts("\n".join(rows), "training.scope_check", "series", "strategy", "wire", "counted_fraction")
    assert [entry[:3] for entry in found] == [("gpt2 128", "ddp", None), ("gpt2 128", "ddp", "no_nvlink"), ("large 128", "ddp", None)]
    assert [entry[3] for entry in found] == pytest.approx([0.5, 0.5, 0.5], rel=0.01)


def test_a_rate_that_counts_all_processes_shows_as_one() -> None:
    content = "| GPUs | run time (s) | samples/s |\n|-|-|-|\n| 1 | 100 | 20 |\n| 4 | 30 | 66.7 |"
    assert facts(content, "training.scope_check", "num_gpus", "counted_fraction") == [(4, pytest.approx(1.0, rel=1e-3))]


def test_strategies_against_a_rate_per_gpu() -> None:
    content = "Strategy        tokens/s/GPU   GPUs\nDDP             5100           8\nFSDP            3200           8"
    assert facts(content, "training.rate", "tokens_per_second", "num_gpus", "strategy", "scope") == [
        (5100.0, 8, "ddp", "per_process"),
        (3200.0, 8, "fsdp", "per_process"),
    ]


def test_data_loading_beside_the_whole() -> None:
    content = "| Version | Total Time /s | Data Loading Time /s |\n| --- | --- | --- |\n| 1.1 | 2012 | 305 |"
    assert facts(content, "training.data_wait", "step_seconds", "data_seconds") == [(2012.0, 305.0)]


def test_a_step_time_becomes_a_rate() -> None:
    content = "GPUs   step time (ms)\n1      260\n2      1780"
    assert facts(content, "training.rate", "num_gpus", "seconds_per_step") == [(1, pytest.approx(0.26)), (2, pytest.approx(1.78))]


@pytest.mark.parametrize(
    "name", ["nccl_tests_all_reduce_default.txt", "nccl_tests_sendrecv.txt", "host_and_nvidia_smi.txt", "nvidia_smi_q.txt"]
)
def test_tables_of_tools_are_other_readers(name: str) -> None:
    assert read(recording(name)) == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "step loss time\n1 2.3 0.1",
        "index, name, power.draw [W]\n0, NVIDIA A40, 30 W",
        "name   size\nfoo    10",
    ],
)
def test_other_tables_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()


def test_a_column_of_busbw_alone_is_a_measure() -> None:
    table = "| env | busbw |\n|---|---|\n| default | 3.1 GB/s |\n| NCCL_P2P_DISABLE=1 | 8.2 GB/s |\n"
    found = [entry.values for piece in read(text(table)) for entry in piece.observations]
    assert [(entry["setting"], entry["measure"], round(entry["bytes_per_second"] / 1e8)) for entry in found] == [
        (None, "busbw", 31),
        ("NCCL_P2P_DISABLE=1", "busbw", 82),
    ]


def test_a_comma_parts_thousands_or_stands_for_the_point() -> None:
    table = "| GPUs | s/it | tokens/s |\n|---|---|---|\n| 1 | 3,1 | 1,234 |\n| 2 | 0,875 | 12,345.5 |\n| 4 | 1,2,3 | 9 |"
    assert facts(table, "training.rate", "value", "unit", "num_gpus") == [
        (3.1, "s/it", 1),
        (1234.0, "tokens/s", 1),
        (0.875, "s/it", 2),
        (12345.5, "tokens/s", 2),
        (9.0, "tokens/s", 4),
    ]

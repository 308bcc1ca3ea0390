"""Training speed as people write it. The first cases are the handed ones; the rest are shapes seen in public threads."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.probe.readers.piece import Text
from wiretax.probe.readers.training_text import read


def facts(content: str | Text, kind: str, *names: str) -> list[tuple[Any, ...]]:
    pieces = read(content if isinstance(content, Text) else text(content))
    return [tuple(entry.values.get(name) for name in names) for piece in pieces for entry in piece.observations if entry.kind == kind]


def rates(content: str | Text) -> list[tuple[Any, ...]]:
    return facts(content, "training.rate", "value", "unit", "num_gpus", "strategy", "scope")


def test_the_case_of_the_rented_box() -> None:
    found = case("C01_bw.txt")
    assert rates(found) == [
        (15.4, "samples/s", 1, None, "global"),
        (4.5, "samples/s", 2, None, "unknown"),
        (14.0, "samples/s", 4, None, "unknown"),
    ]
    assert facts(found, "training.phase", "phase", "seconds", "num_gpus", "includes") == [
        ("optimizer", pytest.approx(0.019), 1, "communication"),
        ("optimizer", 0.4, 2, "communication"),
    ]
    pairs = facts(found, "bandwidth.pair", "source_gpu", "target_gpu", "unit", "bandwidth_bytes_per_second")
    assert pairs == [(0, 1, "Gbps", 4e9), (0, 2, "Gbps", 13.125e9), (1, 3, "Gbps", 10.875e9)]
    assert facts(found, "price", "amount_per_hour", "currency", "num_gpus") == [(0.15, "EUR", 1), (0.58, "EUR", 4)]


def test_the_case_of_a_unit_that_flips() -> None:
    found = case("C64_bench.txt")
    assert facts(found, "training.rate", "value", "unit", "num_gpus", "steps_per_second") == [
        (2.61, "it/s", 1, 2.61),
        (2.59, "s/it", 2, pytest.approx(0.3861, rel=1e-3)),
    ]
    assert facts(found, "training.run_time", "seconds", "steps", "num_gpus") == [(401.0, 900, 1), (210.0, 450, 2)]
    assert facts(found, "training.change", "what", "before", "after", "num_gpus") == [("backward", 0.064, 0.161, 2)]


def test_the_case_of_sharding_over_pcie() -> None:
    found = case("C66_bench.txt")
    assert facts(found, "training.rate", "tokens_per_second", "num_gpus", "strategy", "wire", "workload")[:3] == [
        (33.4, 1, "fsdp", "pcie", "generation"),
        (2.54, 2, "fsdp", "pcie", "generation"),
        (3.34, 4, "fsdp", "pcie", "generation"),
    ]
    assert facts(found, "training.change", "what", "before", "after", "num_gpus", "strategy") == [
        ("steps_per_second", 3.95, 2.7, 4, "fsdp"),
        ("step", 0.1, 30.0, 8, None),
    ]
    assert facts(found, "training.batch_note", "num_gpus") == [(None,)]
    assert facts(found, "training.rate", "flops_per_second", "wire", "num_gpus", "scope")[-2:] == [
        (93e12, "pcie", 8, "per_process"),
        (188e12, "nvlink", 8, "per_process"),
    ]


def test_the_case_of_the_wrong_backend() -> None:
    found = case("C67_bench.txt")
    assert facts(found, "bandwidth.collective", "operation", "measure", "backend", "bandwidth_bytes_per_second", "num_gpus") == [
        ("all_reduce", "busbw", "nccl", 22e9, 2),
        ("all_reduce", "busbw", "gloo", 1.7e9, 2),
    ]
    assert facts(found, "training.predicted", "seconds", "num_gpus") == [(pytest.approx(9.1e-3), 2), (pytest.approx(15.9e-3), 8)]


def test_the_case_of_the_slow_loader() -> None:
    found = case("C70_bench.txt")
    assert facts(found, "training.data_wait", "step_seconds", "data_seconds") == [(0.61, 0.52)]
    assert facts(found, "training.utilization", "pattern", "low_fraction", "high_fraction", "all_gpus") == [("saw-tooth", 0.0, 0.98, True)]
    assert facts(found, "training.remedy", "area", "helped") == [("input", True)]


def test_the_case_of_runs_told_by_their_length() -> None:
    found = facts(case("C62_bench.txt"), "training.run_time", "seconds", "num_gpus", "strategy", "wire")
    assert found == [(102.0, 1, None, None), (110.0, None, "dp", None), (101.0, None, "ddp", "nvlink"), (131.0, None, "ddp", "no_nvlink")]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("3.1 s/it on 1 GPU, 5.6 on 2", [(3.1, "s/it", 1, None, "global"), (5.6, "s/it", 2, None, "unknown")]),
        (
            "1 GPU: 15.4, 2 GPUs: 4.5, 4 GPUs: 14.0 samples/s",
            [(15.4, "samples/s", 1, None, "global"), (4.5, "samples/s", 2, None, "unknown"), (14.0, "samples/s", 4, None, "unknown")],
        ),
        (
            "Throughput (samples/sec): 1 GPU = 120, 2 GPUs = 150",
            [(120.0, "samples/sec", 1, None, "global"), (150.0, "samples/sec", 2, None, "unknown")],
        ),
        (
            "Single GPU: smooth 15.4 samples/second. Two GPUs: 4.5 samples/second.",
            [(15.4, "samples/second", 1, None, "global"), (4.5, "samples/second", 2, None, "unknown")],
        ),
        (
            "with --devices=1 I reach 3.95 it/s while --devices=4 reaches only 2.7 it/s",
            [(3.95, "it/s", 1, None, "global"), (2.7, "it/s", 4, None, "unknown")],
        ),
        (
            "First I used one GPU and the speed was about 1.34it/s. Then I used two GPUs and it fell to 1.38s/it",
            [(1.34, "it/s", 1, None, "global"), (1.38, "s/it", 2, None, "unknown")],
        ),
        ("when I train on 2 TITAN Xp, the speed is about 30 samples/sec", [(30.0, "samples/sec", 2, None, "unknown")]),
        ("One H100 : 1.27 s/it vs Two H100s 2.07 s/it", [(1.27, "s/it", 1, None, "global"), (2.07, "s/it", 2, None, "unknown")]),
        ("DDP: 8 GPUs 2400 img/s, single GPU 350 img/s", [(2400.0, "img/s", 8, "ddp", "unknown"), (350.0, "img/s", 1, "ddp", "global")]),
        (
            "FSDP (8x A100): 3.2k tok/s per GPU vs DDP 5.1k tok/s per GPU",
            [(3200.0, "tok/s per GPU", 8, "fsdp", "per_process"), (5100.0, "tok/s per GPU", 8, "ddp", "per_process")],
        ),
        (
            "With TP=2 I get 45.1 tok/s, with TP=4 only 31.0 tok/s",
            [(45.1, "tok/s", 2, "tp", "unknown"), (31.0, "tok/s", 4, "tp", "unknown")],
        ),
        ("tensor parallel 2: 18 tok/s, single card: 31 tok/s", [(18.0, "tok/s", 2, "tp", "unknown"), (31.0, "tok/s", 1, None, "global")]),
        ("2400 img/s on 8 GPUs 350 img/s on 1 GPU", [(2400.0, "img/s", 8, None, "unknown"), (350.0, "img/s", 1, None, "global")]),
        ("total throughput 900 samples/s on 4 GPUs", [(900.0, "samples/s", 4, None, "global")]),
    ],
)
def test_rates_as_people_write_them(sentence: str, expected: list[tuple[Any, ...]]) -> None:
    assert rates(sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "On a single GPU, it takes about 25 seconds whereas when I use two GPUs it takes about 58 seconds per epoch.",
            [(25.0, 1, None), (58.0, 2, "epoch")],
        ),
        (
            "For one epoch it needs 20 hours on single-gpu, but with 4 gpu it needs 40 hours.",
            [(72000.0, 1, "epoch"), (144000.0, 4, "epoch")],
        ),
        ("the training time of two GPUs is 26min and that of one GPU is 16min in an epoch", [(1560.0, 2, "run"), (960.0, 1, "epoch")]),
        ("it takes 3h20m on 1 GPU and 2h50m on 4", [(12000.0, 1, None), (10200.0, 4, None)]),
        ("450 steps in 3:30 with 2 GPUs", [(210.0, 2, None)]),
    ],
)
def test_run_times_as_people_write_them(sentence: str, expected: list[tuple[Any, ...]]) -> None:
    assert facts(sentence, "training.run_time", "seconds", "num_gpus", "per") == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "forward 0.11 s, backward 0.25 s, optimizer 0.40 s (2 GPUs)",
            [("forward", 0.11, 2), ("backward", 0.25, 2), ("optimizer", 0.4, 2)],
        ),
        ("step time: 0.9s on 1 GPU -> 2.4s on 2 GPUs", [("step", 0.9, 1), ("step", 2.4, 2)]),
        ("4 GPUs: 350 ms/step, of which all-reduce 210 ms", [("communication", 0.21, 4)]),
    ],
)
def test_phases_as_people_write_them(sentence: str, expected: list[tuple[Any, ...]]) -> None:
    assert facts(sentence, "training.phase", "phase", "seconds", "num_gpus") == [
        (name, pytest.approx(seconds), count) for name, seconds, count in expected
    ]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("the optimizer step, which includes gradient synchronization, went from 19ms to 400ms on 2 GPUs", [("optimizer", 0.019, 0.4, 2)]),
        ("step time went from 0.35 s to 1.2 s when I use 2 cards", [("step", 0.35, 1.2, 2)]),
        ("with gradient accumulation: 111 s -> 85 s", [("run_time", 111.0, 85.0, None)]),
    ],
)
def test_changes_as_people_write_them(sentence: str, expected: list[tuple[Any, ...]]) -> None:
    found = facts(sentence, "training.change", "what", "before", "after", "num_gpus")
    assert found == [(what, pytest.approx(before), pytest.approx(after), count) for what, before, after, count in expected]


def test_a_setting_names_its_own_clause_only() -> None:
    found = facts("NCCL_P2P_DISABLE=1: 1.9 it/s; default: 0.4 it/s (2x4090)", "training.rate", "value", "wire", "num_gpus")
    assert found == [(1.9, "NCCL_P2P_DISABLE=1", 2), (0.4, None, 2)]


@pytest.mark.parametrize(
    "above", ["2 GPUs:", "### 2 GPUs", "2 GPU\n```", "$ torchrun --nproc_per_node=2 train.py\n", "$ python train.py --devices 2"]
)
def test_a_heading_or_a_command_speaks_for_the_lines_below(above: str) -> None:
    assert facts(f"{above}\nspeed is 1.5 it/s", "training.rate", "value", "num_gpus") == [(1.5, 2)]


def test_the_next_command_ends_what_the_last_one_said() -> None:
    content = (
        "$ python generate.py --devices 1 --strategy auto\n"
        "-> rate: **33.42 tokens/sec**\n$ python generate.py --devices 2 --strategy fsdp\n"
        "-> rate: **2.54 tokens/sec**"
    )
    assert facts(content, "training.rate", "tokens_per_second", "num_gpus", "strategy") == [(33.42, 1, None), (2.54, 2, "fsdp")]


@pytest.mark.parametrize(
    ("sentence", "pattern", "high"),
    [
        ("the GPU utilization drops to 0 every few seconds", "saw-tooth", None),
        ("GPU utilization is only 15%-20% for each GPU", "low", 0.2),
        ("sometimes all of the 4 gpus are idle", "saw-tooth", None),
    ],
)
def test_cards_that_wait(sentence: str, pattern: str, high: float | None) -> None:
    assert facts(sentence, "training.utilization", "pattern", "high_fraction") == [(pattern, high)]


@pytest.mark.parametrize(
    "sentence",
    [
        "GPU util is good after moving the data from NFS to a local SSD",
        "more num_workers fixed it",
        "The dataloader was the problem, pin_memory helped",
    ],
)
def test_what_helped_the_input(sentence: str) -> None:
    assert facts(sentence, "training.remedy", "area") == ([("input",)] if "good" not in sentence else [])


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("2 GPUs trained 3.4\u00d7 slower than 1 GPU.", (3.4, "slower", 2, 1)), ("4 GPUs are 30 % faster", (1.3, "faster", 4, None))],
)
def test_ratios(sentence: str, expected: tuple[Any, ...]) -> None:
    assert facts(sentence, "training.ratio", "factor", "direction", "num_gpus", "base_gpus") == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "host-a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM",
        "WorkNCCL(SeqNum=7753, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
        "[ 1204.1] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20",
        "| N/A   40C    P0            119W /  700W |       0MiB / 143771MiB |      0%      Default |",
        "\t Link 0: 26.562 GB/s",
        "    Pwr : 83.27 W",
        "see section 2.3 for more than 10 examples",
        "    time.sleep(5)  # wait 5 s",
    ],
)
def test_other_lines_are_no_timings(line: str) -> None:
    assert read(text(line)) == ()


def test_a_limit_is_no_measurement_and_a_card_is_no_count() -> None:
    sentence = "On two consumer RTX 5090 GPUs the all-reduce busbw was 22 GB/s, far below the theoretical 50 GB/s"
    assert facts(sentence, "bandwidth.collective", "bandwidth_bytes_per_second", "num_gpus") == [(22e9, None)]


def test_a_clause_about_two_wires_is_about_neither() -> None:
    assert facts("from PCIe to NVLink all_reduce is 22 GB/s", "bandwidth.collective", "wire") == [(None,)]


def test_the_count_nearest_to_a_figure_is_its_own() -> None:
    line = "DDP 4x A10: 1 GPU 100 samples/s | 4 GPU 380 samples/s total with gradient accumulation 16: fine"
    found = [entry for piece in read(text(line)) for entry in piece.observations]
    assert [(e.values["num_gpus"], e.values["samples_per_second"]) for e in found if e.kind == "training.rate"] == [(1, 100.0), (4, 380.0)]
    assert [e.values["area"] for e in found if e.kind == "training.remedy"] == ["accumulation"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("3,1 s/it on 1 GPU, 5,6 s/it on 2 GPUs", [(3.1, 1), (5.6, 2)]),
        ("3,1 s/it on 1 GPU, 5,6 on 2", [(3.1, 1), (5.6, 2)]),
        ("0,125 s/it on 1 GPU, 0,25 s/it on 4 GPUs", [(0.125, 1), (0.25, 4)]),
        ("1,234 samples/s on 1 GPU, 2,345.5 samples/s on 2 GPUs", [(1234.0, 1), (2345.5, 2)]),
        ("GPU 0,1: 3.1 s/it", [(3.1, None)]),
    ],
)
def test_a_comma_parts_thousands_or_stands_for_the_point(line: str, expected: list[tuple[float, int | None]]) -> None:
    assert facts(line, "training.rate", "value", "num_gpus") == expected


def test_a_price_may_have_a_decimal_comma() -> None:
    assert facts("Vast: 4x 4090 at \u20ac0,58/h", "price", "amount_per_hour", "currency") == [(0.58, "EUR")]


@pytest.mark.parametrize("figure", ["1.234,5", "1'234.5", "1\u2019234"])
def test_the_end_of_a_number_is_no_number(figure: str) -> None:
    assert facts(f"{figure} tokens/s on 2 GPUs", "training.rate", "value") == []


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("allreduce busbw", ("all_reduce", "busbw")),
        ("All-Reduce bus bandwidth", ("all_reduce", "busbw")),
        ("reducescatter algbw", ("reduce_scatter", "algbw")),
        ("all to all algorithm bandwidth", ("all_to_all", "algbw")),
        ("sendrecv", ("send_recv", None)),
    ],
)
def test_a_collective_has_one_name_however_it_is_written(spelling: str, expected: tuple[str, str | None]) -> None:
    assert facts(f"{spelling} 22 GB/s on 2 GPUs", "bandwidth.collective", "operation", "measure") == [expected]

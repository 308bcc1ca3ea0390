"""Timing lines of training frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.piece import Text
from wiretax.probe.readers.training_logs import read


def facts(content: str | Text, kind: str, *names: str) -> list[tuple[Any, ...]]:
    pieces = read(content if isinstance(content, Text) else text(content))
    return [tuple(entry.values.get(name) for name in names) for piece in pieces for entry in piece.observations if entry.kind == kind]


def test_the_case_of_three_progress_bars() -> None:
    found = case("C64_bench.txt")
    assert facts(found, "training.rate", "value", "unit", "num_gpus") == [(1.26, "it/s", 1), (1.13, "it/s", 2), (1.58, "s/it", 2)]
    assert facts(found, "training.run_time", "seconds", "steps", "num_gpus") == [(690.0, 870, 1), (380.0, 435, 2), (686.0, 435, 2)]


HF = """\
$ torchrun --nproc_per_node=4 train.py
***** Running training *****
  Num examples = 400
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 64
  Gradient Accumulation steps = 2
{'train_runtime': 19.56, 'train_samples_per_second': 20.45, 'train_steps_per_second': 0.64, 'epoch': 1.0}
"""


def test_the_trainer_summary_takes_its_gpu_count_from_the_command() -> None:
    assert facts(HF, "training.run", "num_gpus", "program") == [(4, "torchrun")]
    assert facts(HF, "training.run_time", "seconds", "num_gpus", "per") == [(19.56, 4, "run")]
    assert facts(HF, "training.rate", "unit", "value", "num_gpus", "scope") == [
        ("samples_per_second", 20.45, 4, "unknown"),
        ("steps_per_second", 0.64, 4, "unknown"),
    ]
    assert dict(facts(HF, "training.setting", "name", "value")) == {
        "num_examples": 400,
        "per_device_batch": 8,
        "global_batch": 64,
        "accumulation_steps": 2,
    }


def test_without_a_command_the_batch_sizes_tell_the_processes() -> None:
    assert facts(HF.partition("\n")[2], "training.run_time", "num_gpus") == [(4,)]


def test_the_metrics_block_of_the_trainer() -> None:
    content = (
        "***** train metrics *****\n  epoch                    =        1.0\n"
        "  train_runtime            = 0:01:19.56\n"
        "  train_samples_per_second =      20.45"
    )
    assert facts(content, "training.run_time", "seconds") == [(79.56,)]
    assert facts(content, "training.rate", "samples_per_second") == [(20.45,)]


@pytest.mark.parametrize(
    ("line", "step", "data"),
    [
        ("mmdet - INFO - Epoch [1][50/1000] lr: 2.0e-02, eta: 1:00:00, time: 0.610, data_time: 0.520, memory: 3000", 0.61, 0.52),
        ("Epoch(train) [1][50/1000]  lr: 2e-02  eta: 1:00:00  time: 0.6100  data_time: 0.5200  memory: 3000", 0.61, 0.52),
        ("eta: 1:00:00  iter: 19  total_loss: 1.2  time: 0.5000 last_time: 0.4 data_time: 0.0123  lr: 1e-5", 0.5, 0.0123),
        ("Epoch: [0][10/5005]\tTime  0.250 ( 0.300)\tData  0.200 ( 0.150)\tLoss 6.9", 0.3, 0.15),
        (
            "Train: 0 [  50/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.416s, 2461.50/s  (0.500s, 2048.00/s)  LR: 1e-6  Data: 0.010 (0.050)",
            0.5,
            0.05,
        ),
    ],
)
def test_a_log_that_tells_data_time_tells_how_much_of_a_step_waits(line: str, step: float, data: float) -> None:
    assert facts(line, "training.data_wait", "step_seconds", "data_seconds") == [(step, data)]


@pytest.mark.parametrize(
    ("line", "kind", "names", "expected"),
    [
        (
            " iteration 100/ 500 | elapsed time per iteration (ms): 1234.5 | global batch size:   128 |",
            "training.phase",
            ("phase", "seconds"),
            ("step", 1.2345),
        ),
        (
            " iteration 100/ 500 | throughput per GPU (TFLOP/s/GPU): 210.3 |",
            "training.rate",
            ("flops_per_second", "scope"),
            (210.3e12, "per_process"),
        ),
        (
            "[timer.py] epoch=0/global_step=10, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=11.9",
            "training.rate",
            ("samples_per_second",),
            (12.3,),
        ),
        (
            "rank=0 time (ms) | fwd: 100.5 | bwd: 200.0 | bwd_allreduce: 150.0 | step: 30.0",
            "training.phase",
            ("phase", "seconds"),
            ("forward", 0.1005),
        ),
        ("iter 10: loss 3.2, time 250.34ms, mfu 30.2%", "training.phase", ("phase", "seconds"), ("step", 0.25034)),
        (
            "step: 10  loss:  8.1  memory: 20.1GiB(25%)  tps: 2,300  mfu: 40%",
            "training.rate",
            ("tokens_per_second", "scope"),
            (2300.0, "per_process"),
        ),
        ("Total img/sec on 4 GPU(s): 1234.5 +-3", "training.rate", ("samples_per_second", "scope"), (1234.5, "global")),
        ("Img/sec per GPU: 310.2 +-1", "training.rate", ("samples_per_second", "scope"), (310.2, "per_process")),
        ("100/100 [==============================] - 10s 98ms/step - loss: 0.1", "training.phase", ("phase", "seconds"), ("step", 0.098)),
        ("INFO:root:Epoch[0] Batch [15920-15940]  Speed: 27.11 samples/sec  acc=0.4", "training.rate", ("samples_per_second",), (27.11,)),
    ],
)
def test_lines_of_other_frameworks(line: str, kind: str, names: tuple[str, ...], expected: tuple[Any, ...]) -> None:
    found = facts(line, kind, *names)[0]
    assert found == tuple(pytest.approx(value) if isinstance(value, float) else value for value in expected)


def test_a_thousand_lines_are_one_median() -> None:
    lines = "\n".join(f"Epoch [1][{step}/1000] time: {0.5 + step / 10000:.4f}, data_time: 0.1" for step in range(1001))
    assert facts(lines, "training.phase", "phase", "seconds", "lines") == [("step", pytest.approx(0.55), 1001), ("data", 0.1, 1001)]


def test_headings_and_commands_separate_runs() -> None:
    content = "2 GPU\n```\nSpeed: 27.0 samples/sec\nSpeed: 29.0 samples/sec\n```\n1 GPU\n```\nSpeed: 112.0 samples/sec\n```"
    assert facts(content, "training.rate", "samples_per_second", "num_gpus") == [(28.0, 2), (112.0, 1)]


def test_a_running_bar_is_a_rate_and_not_yet_a_run_time() -> None:
    content = "Epoch 0:  50%|#####     | 50/100 [00:10<00:10,  4.90it/s, loss=1.2]"
    assert facts(content, "training.rate", "value", "unit") == [(4.9, "it/s")]
    assert facts(content, "training.run_time", "seconds") == []


@pytest.mark.parametrize(
    "line",
    [
        "Map: 100%|##########| 1000/1000 [00:01<00:00, 900.1 examples/s]",
        "Loading checkpoint shards: 100%|##########| 4/4 [00:05<00:00,  1.30s/it]",
        "Downloading: 100%|##########| 10/10 [00:01<00:00, 9.0it/s]",
        "python setup.py install",
        "time: now",
        "",
    ],
)
def test_other_bars_and_lines_are_no_training(line: str) -> None:
    assert read(text(line)) == ()


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("All distributed processes registered. Starting with 2 processes", 2),
        ("using world size: 8, data-parallel size: 4", 8),
        ("Num processes: 4", 4),
    ],
)
def test_a_launcher_says_how_many_processes_run(line: str, count: int) -> None:
    assert facts(line, "training.setting", "name", "value") == [("num_gpus", count)]


def test_the_words_in_front_of_a_trainers_figures_speak_for_them() -> None:
    log = "1 GPU: {'train_runtime': 301.2, 'train_samples_per_second': 33.2}\n"
    log += "2 GPUs: {'train_runtime': 290.0, 'train_samples_per_second': 34.5}\n"
    found = [entry.values for piece in read(text(log)) for entry in piece.observations if entry.kind == "training.rate"]
    assert [(entry["num_gpus"], entry["samples_per_second"]) for entry in found] == [(1, 33.2), (2, 34.5)]


def test_a_run_of_days_is_not_a_second() -> None:
    content = "***** train metrics *****\n  train_runtime            = 1 day, 2:03:04.05\n  train_samples_per_second =       12.3"
    assert facts(content, "training.run_time", "seconds") == [(93784.05,)]


@pytest.mark.parametrize("rate", ["5.32MB/s", "812B/s", "1.2kB/s"])
def test_a_download_is_no_training(rate: str) -> None:
    assert read(text(f"config.json: 100%|##########| 665/665 [00:00<00:00, {rate}]")) == ()


def test_a_bar_may_scale_its_rate() -> None:
    assert facts("2 GPUs\n100%|####| 66500/66500 [00:12<00:00, 5.32kit/s]", "training.rate", "value", "unit", "steps_per_second") == [
        (5320.0, "it/s", 5320.0)
    ]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nnodes=2 --nproc_per_node=8 train.py", [(16, "torchrun")]),
        ("python -m torch.distributed.launch --nproc_per_node 4 --nnodes 3 train.py", [(12, "python -m torch.distributed.launch")]),
        ("deepspeed --num_gpus 8 --num_nodes 2 train.py", [(16, "deepspeed")]),
        ("torchrun --nnodes=1:4 --nproc_per_node=8 train.py", []),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py", [(16, "accelerate launch")]),
        ("mpirun -np 16 python train.py", [(16, "mpirun")]),
        ("python train.py -n 100 --lr 3", []),
        ("python train.py -n 100 --num_gpus 4", [(4, "python")]),
    ],
)
def test_a_command_uses_the_gpus_of_all_its_hosts(command: str, expected: list[tuple[int, str]]) -> None:
    assert facts(f"$ {command}\n100%|####| 1000/1000 [10:00<00:00, 1.66it/s]", "training.run", "num_gpus", "program") == expected


def test_the_steps_of_a_trainer_are_those_of_the_command() -> None:
    content = "$ torchrun --nproc_per_node=2 train.py\n  Total optimization steps = 435"
    assert facts(content, "training.steps", "steps", "num_gpus") == [(435, 2)]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("tok/s", [(None, None, 5.0)]),
        ("seq/s", [(None, 5.0, None)]),
        ("batch/s", [(5.0, None, None)]),
        ("s/step", [(0.2, None, None)]),
        ("epoch/s", []),
        ("s/epoch", []),
        ("file/s", []),
    ],
)
def test_a_bar_counts_what_its_unit_says(unit: str, expected: list[tuple[float | None, ...]]) -> None:
    content = f"2 GPUs\n100%|####| 600/600 [02:00<00:00,  5.00{unit}]"
    assert facts(content, "training.rate", "steps_per_second", "samples_per_second", "tokens_per_second") == expected


def test_the_mean_step_is_the_step_and_the_time_so_far_is_not() -> None:
    pieces, _ = read_bytes("x", b"step:500/1480 train_time:12500ms step_avg:25.00ms\n")
    found = [(o.kind, o.values["phase"], o.values["seconds"]) for piece in pieces for o in piece.observations]
    assert found == [("training.phase", "step", 0.025)]

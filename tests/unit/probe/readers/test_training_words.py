"""The words in which people state how fast they train."""

from __future__ import annotations

import pytest

from wiretax.probe.readers.training_words import Word, unit_of, words


def quantity(text: str) -> Word:
    found = [word for word in words(text) if word.kind == "quantity"]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "dimension", "si_value"),
    [
        ("2.61it/s", "steps_per_second", 2.61),
        ("3 iters/sec", "steps_per_second", 3.0),
        ("1.5 steps per second", "steps_per_second", 1.5),
        ("2.59s/it", "seconds_per_step", 2.59),
        ("2 seconds per iteration", "seconds_per_step", 2.0),
        ("350 ms/step", "seconds_per_step", 0.35),
        ("15.4 samples/s", "samples_per_second", 15.4),
        ("27.11 samples/sec", "samples_per_second", 27.11),
        ("2400 img/s", "samples_per_second", 2400.0),
        ("250 images per second", "samples_per_second", 250.0),
        ("33.42 tokens/sec", "tokens_per_second", 33.42),
        ("12.3k tok/s", "tokens_per_second", 12300.0),
        ("1,250 tokens/s", "tokens_per_second", 1250.0),
        ("93 TFLOPS", "flops_per_second", 93e12),
        ("32 Gbps", "bytes_per_second", 4e9),
        ("32 GBps", "bytes_per_second", 32e9),
        ("22 GB/s", "bytes_per_second", 22e9),
        ("100 Gbit/s", "bytes_per_second", 12.5e9),
        ("1 GiB/s", "bytes_per_second", 2**30),
        ("400ms", "seconds", 0.4),
        ("19 us", "seconds", 19e-6),
        ("3 hours", "seconds", 10800.0),
        ("26min", "seconds", 1560.0),
        ("6:41", "seconds", 401.0),
        ("1:06:41", "seconds", 4001.0),
        ("3h20m", "seconds", 12000.0),
        ("0.15 EUR/h", "price", 0.15),
        ("$1.60/h", "price", 1.6),
    ],
)
def test_a_figure_with_its_unit(text: str, dimension: str, si_value: float) -> None:
    found = quantity(text)
    assert found.dimension == dimension
    assert found.si_value == pytest.approx(si_value)


@pytest.mark.parametrize(
    ("text", "per_gpu"), [("3.2k tok/s per GPU", True), ("188 TFLOPS/GPU", True), ("250 img/s/gpu", True), ("5 samples/s", False)]
)
def test_a_rate_per_gpu_is_told_from_a_rate(text: str, per_gpu: bool) -> None:
    assert quantity(text).per_gpu is per_gpu


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4 GPUs", 4),
        ("1 GPU", 1),
        ("1GPU", 1),
        ("single-gpu", 1),
        ("one card", 1),
        ("two GPUs", 2),
        ("dual GPU", 2),
        ("8x A100", 8),
        ("2x4090", 2),
        ("k=2", 2),
        ("N=8", 8),
        ("--devices=4", 4),
        ("--devices 2", 2),
        ("world_size=16", 16),
        ("nproc_per_node=4", 4),
        ("2 TITAN Xp", 2),
        ("Two H100s", 2),
        ("TP=4", 4),
        ("tp2", 2),
        ("4 x RTX 3090", 4),
    ],
)
def test_a_number_of_gpus(text: str, count: int) -> None:
    assert [word.value for word in words(text) if word.kind == "count"] == [count]


@pytest.mark.parametrize(
    ("text", "count"), [("2 nodes", 2), ("a single machine", 1), ("two servers", 2), ("16x nodes", 16), ("--nnodes=2", 2), ("nnodes: 4", 4)]
)
def test_a_number_of_hosts_is_no_number_of_gpus(text: str, count: int) -> None:
    assert [(word.kind, word.value) for word in words(text) if word.kind in ("count", "hosts")] == [("hosts", count)]


@pytest.mark.parametrize("text", ["GPU 0", "RTX 4090", "epoch 3", "DDP: 8 things", "2.5 times", "step 100"])
def test_other_numbers_count_no_gpus(text: str) -> None:
    assert [word.value for word in words(text) if word.kind == "count"] == []


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("DistributedDataParallel", "strategy", "ddp"),
        ("DP", "strategy", "dp"),
        ("FULL_SHARD", "strategy", "fsdp"),
        ("ZeRO-3", "strategy", "zero3"),
        ("tensor parallel", "strategy", "tp"),
        ("no NVLink", "wire", "no_nvlink"),
        ("w/o NVlink", "wire", "no_nvlink"),
        ("NVLink", "wire", "nvlink"),
        ("PCIe", "wire", "pcie"),
        ("gloo", "wire", "gloo"),
        ("optimizer step", "phase", "optimizer"),
        ("gradient sync", "phase", "communication"),
        ("data_time", "phase", "data"),
        ("dataloader", "phase", "data"),
        ("backward pass", "phase", "backward"),
        ("per GPU", "scope", "per_process"),
        ("NCCL_P2P_DISABLE=1", "setting", None),
    ],
)
def test_words_of_the_trade(text: str, kind: str, name: str | None) -> None:
    found = words(text)
    assert (found[0].kind, found[0].name) == (kind, name)


@pytest.mark.parametrize(
    ("text", "pair"),
    [("GPU 0 -> GPU 1: 32 Gbps", (0, 1)), ("GPU0 -> GPU3 = 5 GB/s", (0, 3)), ("cuda:1 → cuda:0", (1, 0)), ("GPU2 <-> GPU3", (2, 3))],
)
def test_a_pair_of_gpus(text: str, pair: tuple[int, int]) -> None:
    assert [word.pair for word in words(text) if word.kind == "pair"] == [pair]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("train_runtime s", ("seconds", 1.0)),
        ("runtime", ("seconds", 1.0)),
        ("train_samples_per_second", ("samples_per_second", 1.0)),
        ("Throughput (images/s)", ("samples_per_second", 1.0)),
        ("step time (ms)", ("seconds_per_step", 1e-3)),
        ("time per epoch (min)", ("seconds", 60.0)),
        ("Data Loading Time /s", ("seconds", 1.0)),
        ("busbw GB/s", ("bytes_per_second", 1e9)),
        ("tokens/s/GPU", ("tokens_per_second", 1.0)),
        ("GPUs", None),
        ("mode", None),
        ("loss", None),
    ],
)
def test_the_unit_of_a_column(heading: str, expected: tuple[str, float] | None) -> None:
    found = unit_of(heading)
    assert (found[:2] if found else None) == expected


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("1x 3090 takes 10 hours", 1, 36000.0),
        ("a single 3090: 12 min", 1, 720.0),
        ("two 4090s need 9 h", 2, 32400.0),
        ("4x RTX 3090 took 30 minutes", 4, 1800.0),
    ],
)
def test_a_card_by_its_number_is_no_figure(text: str, count: int, seconds: float) -> None:
    found = words(text)
    assert [word.value for word in found if word.kind == "count"] == [count]
    assert quantity(text).si_value == seconds
    assert not [word for word in found if word.kind == "number"]

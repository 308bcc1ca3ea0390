# ruff: noqa: E501, RUF001 - the texts stand as people and tools write them
"""Figures as people write them: other languages, units in cells or in front of the colon, lists that were cut, refusals quoted in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import rocm_bandwidth

BOUND = "communication-bound"
_P2P = ("p2p-*",)


def _links(gpu: int, count: int) -> str:
    rows = "".join(f"         Link {link}: 53.125 GB/s\n" for link in range(count))
    return f"GPU {gpu}: NVIDIA GB200 (UUID: GPU-0000000{gpu}-03bd-3a71-f85b-47a61bde0000)\n{rows}"


def _benchmark(gpus: int, total: float) -> str:
    return (
        f"python tf_cnn_benchmarks.py --num_gpus={gpus} --batch_size=32 --model=vgg16 --local_parameter_device=cpu\n"
        "TensorFlow:  1.4\nModel:       vgg16\n"
        f"Batch size:  {32 * gpus} global\n             32 per device\n"
        f"Step\tImg/sec\tloss\n10\timages/sec: {total + 0.2:.1f} +/- 0.3 (jitter = 0.6)\t7.255\n"
        f"----------------------------------------------------------------\ntotal images/sec: {total}\n"
    )


VARIANTS = [
    # --- machines against machines
    Variant("two nodes", {"a": "2 nodes (8 GPUs each): 8.68 s/it\n1 node (8 GPUs): 4.1 s/it\n"}, [[BOUND]], ("p2p-*", "fsdp-over-pcie")),
    Variant("two nodes, good", {"a": "1 node: 1.00 s/it\n2 nodes: 1.04 s/it\n"}, [], ["*"]),
    Variant("two machines, words a second", {"a": "I get about 10K wps with 2 machines each with 4 Titan X GPUs, a single machine gives ~38K wps.\n"}, [[BOUND]], _P2P),
    Variant("two nodes of cards without NVLink", {"a": "ZeRO-3: two nodes with 4 A10 GPUs 8.68 s/it, a single node with 2 A10 GPUs 2.46 s/it\n"}, [[BOUND]], ("p2p-*", "fsdp-over-pcie")),
    Variant("two nodes, Chinese", {"a": "2个节点每个iter耗时90s，而单机训练时每个iter耗时仅4s左右，多机反而更慢\n"}, [[BOUND]], _P2P),
    Variant("eight against sixteen", {"a": "8 GPUs: 4.1 s/it\n16 GPUs: 9.3 s/it\n"}, [[BOUND]], _P2P),
    Variant("two against four, good", {"a": "2 GPUs: 200 samples/s total\n4 GPUs: 380 samples/s total\n"}, [], ["*"]),
    # --- other languages
    Variant("Chinese minutes", {"a": "batch_size=1，用单卡4090跑得8500min，双卡也得6900min，怎么没快多少\n"}, [[BOUND]], _P2P),
    Variant("Chinese batch", {"a": "单卡一个batch 要3分钟，换成两块儿卡一个batch用了8分钟\n"}, [[BOUND]], _P2P),
    Variant("Chinese days", {"a": "单卡（batch_size=16）预计耗时4天\n4卡（每个卡batch_size=16，共64），预计耗时也是4天\n"}, [[BOUND, "unit-trap"]], _P2P),
    Variant("Chinese, good", {"a": "单卡 100 samples/s，4卡 总共 385 samples/s\n"}, [], ["*"]),
    Variant("Japanese", {"a": "GPU1枚だと1エポック12分、2枚だと15分かかる（RTX 4090、DDP）\n"}, [[BOUND]], _P2P),
    Variant("Korean", {"a": "GPU 1개: 에폭당 30분\nGPU 2개: 에폭당 34분\n"}, [[BOUND]], _P2P),
    Variant("Russian", {"a": "На одной карте обучение идёт 3,1 с/ит, на двух картах 5,6 с/ит\n"}, [[BOUND]], _P2P),
    Variant("German", {"a": "Mit einer GPU dauert eine Epoche 12 Minuten, mit zwei GPUs 14 Minuten.\n"}, [[BOUND]], _P2P),
    Variant("German, decimal comma", {"a": "Eine RTX 3090: 3,1 s/it, zwei RTX 3090: 5,6 s/it\n"}, [[BOUND]], _P2P),
    Variant("Spanish", {"a": "Con una GPU 10 minutos por época, con dos GPUs 12 minutos por época.\n"}, [[BOUND]], _P2P),
    Variant("French", {"a": "Avec une seule RTX 3090 : 850 images/s, avec deux RTX 3090 : 620 images/s au total.\n"}, [[BOUND]], _P2P),
    # --- units
    Variant("unit in the cells", {"a": "| No. of GPUs | Batch | Speed |\n| :---: | :---: | :---: |\n| 1 | 32 | 11.2 samples/sec |\n| 2 | 64 | 18.1 samples/sec |\n| 4 | 128 | 20.3 samples/sec |\n| 8 | 256 | 22.0 samples/sec |\n"}, [[BOUND]], _P2P),
    Variant("unit in the cells, good", {"a": "| GPUs | Speed |\n|---|---|\n| 1 | 11.2 samples/sec |\n| 4 | 43.1 samples/sec |\n"}, [], ["*"]),
    Variant("cells of several units", {"a": "| GPUs | note |\n|---|---|\n| 1 | 11 samples/sec |\n| 4 | 3 GB/s |\n"}, [], ["*"]),
    Variant("total in front", {"a": _benchmark(4, 160.2) + _benchmark(1, 82.0)}, [[BOUND]], _P2P),
    Variant("total in front, good", {"a": _benchmark(2, 146.4) + _benchmark(1, 82.0)}, [], ["*"]),
    Variant("each iteration", {"a": "1 graphics card, batch 8, each iter takes 310 ms\n\n3 graphics cards, batch 8, each iter takes 1390 ms\n"}, [[BOUND]], _P2P),
    Variant("tokens per device", {"a": "Distributed Strategy: ddp\nThroughput per Device: 8,010 tokens/device/second\n\nDistributed Strategy: fsdp\nThroughput per Device: 1,750 tokens/device/second\n"}, [[BOUND, "fsdp-over-pcie"]], _P2P),
    Variant("a fraction behind TP", {"a": "With TP=1, I see 90 tps. With TP=2/4, I see 77-78 tps.\n"}, [["needs-measurement", "tp-over-pcie", BOUND]], _P2P),
    Variant("one count in front", {"a": "With one GPU there are 390 batches and each takes 3 s/it.\nWith two GPUs there are 195 batches (as expected) and each takes 55 s/it.\n"}, [[BOUND]], _P2P),
    # --- which count a figure belongs to
    Variant("sentences of one line", {"a": "I began on a single GPU. On a P100 one epoch takes 6 hours per epoch. With 4x P100 I hoped for more, but it is still 6 hours per epoch.\n"}, [[BOUND]], _P2P),
    Variant("as expected", {"a": "single gpu, batch 32, one epoch takes 42 min\n4 gpus, batch 128, one epoch takes 24 min, so not quartered as expected\n"}, [[BOUND]], _P2P),
    Variant("days of many steps", {"a": "With a single gpu it took 3 days (iteration times: 160000)\nWith 4 gpus and 40000 iteration times it also took 3 days\n"}, [[BOUND]], _P2P),
    Variant("numbers that are no rate", {"a": "dp2+sp4:\n- zero3, recompute: 52.8G, 13000 ms\n- zero2, recompute: 43.8G, 13194 ms\n- zero2, no-recompute: 62.3G, 10050 ms\n"}, [["needs-measurement"]], ["*"]),
    Variant("counts in the heading", {"a": "| | 1× 4090 | 2× 4090, TP=2 |\n|---|---|---|\n| batch | 1,035 decode / 948 all | 917 decode / 861 all |\n| one user | 46 tok/s | 51 tok/s |\n"}, [["tp-over-pcie"]], _P2P),
    Variant("N times slower", {"a": "DDP is 4 times slower than a single GPU here.\n"}, [[BOUND]], _P2P),
    Variant("twice as slow", {"a": "With 2 GPUs training is twice as slow as with 1 GPU.\n"}, [[BOUND]], _P2P),
    Variant("N times faster", {"a": "DDP is 3 times faster than a single GPU here.\n"}, [], ["*"]),
    Variant("two jobs at once", {"a": "The box has 2 GPUs. One model on 1 GPU trains normally; two models at once, 1 GPU each on the 2 GPUs, are 2X slower.\n"}, [["needs-measurement"]], [BOUND]),
    # --- lists, one with the other
    Variant("respectively, counts behind", {"a": "The estimated time is 2h, 6h, 8h for 1GPU, 2GPU, 8GPU respectively.\n"}, [[BOUND]], _P2P),
    Variant("respectively, counts in front", {"a": "Training takes less with 1, 2, and 4 GPUs (60, 36, 20 min respectively). At 8 GPUs training takes about 30 min.\n"}, [[BOUND]], _P2P),
    Variant("respectively, good", {"a": "1, 2 and 4 GPUs reach 100, 195 and 380 samples/s in total respectively\n"}, [], ["*"]),
    Variant("respectively, not as many", {"a": "1, 2 and 4 GPUs take 60 and 55 min respectively\n"}, [], ["*"]),
    # --- other tools' lists
    Variant("llama.cpp's list", {"a": "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n  Device 1: NVIDIA GeForce RTX 4070 Ti SUPER, compute capability 8.9, VMM: yes\n"}, [["gpus-differ"]], _P2P),
    Variant("rocm-bandwidth-test, no access", {"a": rocm_bandwidth(access=0, distance="N/A")}, [["p2p-unsupported*"]], ["p2p-disabled-by-environment"]),
    Variant("rocm-bandwidth-test, bridge", {"a": rocm_bandwidth(access=1, distance="15")}, [["healthy"]], ["*"]),
    Variant("rocm-bandwidth-test, PCIe", {"a": rocm_bandwidth(access=1, distance="40")}, [["amd-pcie-only"]], ["*"]),
    # --- stages of ZeRO against each other, by time
    Variant("stage 3 by steps", {"a": "3张A100，zero stage3 训练20个steps需要20分钟\nzero stage2 训练20个steps只要17秒\n"}, [[BOUND, "fsdp-over-pcie"]], _P2P),
    Variant("stage 3, bold", {"a": "zero2 正常 10个steps 花了6**秒**\nzero3 非常慢，10个steps花了10**分钟**\n"}, [[BOUND, "fsdp-over-pcie"]], _P2P),
    Variant("stage 3, other steps", {"a": "zero stage3 200 steps 20 min\nzero stage2 20 steps 119 s\n"}, [], ["*"]),
    # --- ranks on two hosts
    Variant("one GPU a host", {"a": "# Using devices\n#  Rank  0 Group  0 Pid 548419 on spark-a device  0 [000f:01:00] NVIDIA GB10\n#  Rank  1 Group  0 Pid 546336 on spark-b device  0 [000f:01:00] NVIDIA GB10\n#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n  1073741824     134217728     float    none      -1  27211.0   39.46   19.73       0  25806.7   41.61   20.80       0\n"}, [["needs-measurement"]], ["*"]),
    # --- with and without tensor parallelism
    Variant("TP slower over NVLink", {"a": "Two V100 GPUs linked by NVLink: with a single GPU I get 29 tokens/s, which drops to 17 tokens/s with tensor parallelism.\n"}, [[BOUND]], ["tp-over-pcie", *_P2P]),
    Variant("TP slower", {"a": "Without Tensor Parallelism:\n- 1040 T/s\nWith Tensor Parallelism:\n- 380 T/s\n2x RTX 4090\n"}, [["tp-over-pcie"]], _P2P),
    Variant("TP faster", {"a": "Without Tensor Parallelism:\n- 380 T/s\nWith Tensor Parallelism:\n- 610 T/s\n2x RTX 4090\n"}, [], ["*"]),
    # --- what was cut
    Variant("list cut", {"a": "nvidia-smi nvlink -s\n" + _links(0, 18) + _links(1, 2) + "...\n"}, [], ["nvlink-partial"]),
    Variant("list not cut", {"a": "nvidia-smi nvlink -s\n" + _links(0, 18) + _links(1, 2)}, [["nvlink-partial"]]),
    Variant("a section of -q", {"a": "    Clocks Event Reasons\n        Idle                              : Not Active\n        SW Power Cap                      : Active\n        HW Slowdown                       : Not Active\n"}, [["needs-measurement"]], ["*"]),
    # --- copies that arrive changed, and refusals in words
    Variant("one to all", {"a": "nvbandwidth Version: v0.4\nDevice 0: NVIDIA L40S\nDevice 1: NVIDIA L40S\n\nRunning one_to_all_read_sm.\n Invalid value when checking the pattern at <0x7fac6200e480>\n Current offset [ 58496/66306048]\n"}, [["p2p-wrong-data"]], ["healthy"]),
    Variant("host copy changed", {"a": "nvbandwidth Version: v0.4\nDevice 0: NVIDIA L40S\nDevice 1: NVIDIA L40S\n\nRunning host_to_device_memcpy_sm.\n Invalid value when checking the pattern at <0x7fac6200e480>\n"}, [], ["p2p-wrong-data"]),
    Variant("CNS in words", {"a": "On the new kernel P2P shows `CNS` (Chipset Not Supported) although the modules are the same.\n"}, [["p2p-unsupported-chipset"]], ["p2p-disabled-by-environment"]),
    Variant("CNS asked about", {"a": "What should I do if P2P shows CNS?\n"}, [["needs-measurement"]], ["*"]),
    Variant("wrong in the second half", {"a": "Every normal P2P protocol of NCCL hangs here; the copy engine path finishes, with silently wrong results.\n"}, [["p2p-wrong-data"]], ["healthy"]),
    Variant("the fix was", {"a": "NCCL hung at the first all-reduce. The fix was disabling ACS on the root bridges.\n"}, [["p2p-hang-acs"]], ["p2p-unsupported*"]),
    # --- lanes in words
    Variant("x4 by the chipset", {"a": "GPU0 has a full x16 slot, GPU1 is stuck on PCIe 4.0 x4 via the chipset.\n"}, [["pcie-width-low"]], ["*"]),
    Variant("x4 of a disk", {"a": "The NVMe drive sits in an x4 slot, all else is x16.\n"}, [], ["*"]),
    Variant("four cards", {"a": "RTX 3090 x4, all on PCIe 4.0 x16\n"}, [["needs-measurement"]], ["*"]),
    Variant("slower than what it replaced", {"a": "On a machine with 4 GPUs my DDP is 4 times slower. What could be the reason?\n"}, [[BOUND]], _P2P),
    Variant("slower than something else", {"a": "On 4 GPUs DDP is 3 times slower as your DeepSpeed numbers.\n"}, [], [BOUND]),
    # --- slower, without a figure; what a long heading announces
    Variant("nodes slower than one", {"a": "# Training on two GPU nodes slower than that on one node.\n"}, [[BOUND]], _P2P),
    Variant("GPUs slower than one", {"a": "# Multi-GPU pretraining is slower, than on a single GPU\n"}, [[BOUND]], _P2P),
    Variant("not slower", {"a": "DDP on 2 GPUs is not slower than on a single GPU.\n"}, [], [BOUND]),
    Variant("asked whether slower", {"a": "Is DDP on 2 GPUs slower than on a single GPU for small models?\n"}, [], [BOUND]),
    Variant("slower, with good figures", {"a": "I read that 2 GPUs are slower than a single GPU. Here: 1 GPU 100 samples/s, 2 GPUs 195 samples/s total.\n"}, [], [BOUND]),
    Variant("announced", {"a": "The training speed of 2 nodes with total 4 A10 GPUs\uff1a\nThe training speed is about 8.68s/iter.\n\nHowever, the training speed of single node with total 2 A10 GPUs\uff1a\nThe training speed is about 2.46s/iter.\n"}, [[BOUND]], _P2P),
    Variant("busGrind", {"a": "P2P Bandwidth Matrix (GB/s) - Unidirectional, P2P=Enabled\n   D\\D      0      1\n      0 257.84   3.32\n      1   3.32 263.90\nP2P Bandwidth Matrix (GB/s) - Unidirectional, P2P=Disabled\n   D\\D      0      1\n      0 257.84   9.1\n      1   9.1 263.90\n"}, [["p2p-slower-than-staged", "p2p-through-cpu-slow"]], ["healthy"]),
    # --- thousands set apart by blanks
    Variant("blanks behind a colon", {"a": "1 GPU: 12 345 tok/s\n2 GPUs: 14 100 tok/s\n"}, [[BOUND]], _P2P),
    Variant("blanks in a sentence", {"a": "throughput 12 345 tok/s on 1 GPU, 24 100 tok/s on 2 GPUs\n"}, [], ["*"]),
    Variant("narrow blanks", {"a": "it reaches 12\u202f345 samples/s on one GPU and 13\u00a0800 samples/s on two\n"}, [[BOUND]], _P2P),
    Variant("a count, then a rate", {"a": "epoch 12 345 samples/s with 1 GPU\nepoch 13 680 samples/s with 2 GPUs\n"}, [], ["*"]),
    # --- slower with peer to peer, as people say it
    Variant("slower than disabling", {"a": "4x RTX 8000. P2P over PCIe works but is quite slow - slower, in fact, than disabling P2P altogether.\n"}, [["p2p-slower-than-staged", "p2p-through-cpu-slow"]], ["healthy"]),
    Variant("faster without", {"a": "On my two A5000 all-reduce gets faster when I set NCCL_P2P_DISABLE=1.\n"}, [["p2p-slower-than-staged", "p2p-through-cpu-slow"]], ["healthy"]),
    Variant("slower than SHM", {"a": "[Question]: P2P is slower than SHM on 8x L20\n"}, [["p2p-slower-than-staged", "p2p-through-cpu-slow"]], ["healthy"]),
    Variant("asked whether", {"a": "Is it possible that it becomes faster with P2P disabled? I have 2x A5000 and no figures yet.\n"}, [["needs-measurement"]], ["p2p-slower-than-staged"]),
    Variant("averages of both", {"a": "NCCL_P2P_DISABLE=1 ./all_reduce_perf -b 1M -e 1G -f 2 -g 4\n# Avg bus bandwidth    : 11.29\n./all_reduce_perf -b 1M -e 1G -f 2 -g 4\n# Avg bus bandwidth    : 6.1\n"}, [["p2p-slower-than-staged", "p2p-through-cpu-slow"]], ["healthy"]),
    Variant("averages, forced", {"a": "With NCCL_P2P_LEVEL=SYS:\n# Avg bus bandwidth    : 6.13096\nWith NCCL_P2P_DISABLE=1:\n# Avg bus bandwidth    : 11.2871\n"}, [["p2p-forced-slow"]], ["healthy"]),
    Variant("averages, alike", {"a": "With NCCL_P2P_LEVEL=SYS:\n# Avg bus bandwidth    : 11.1\nWith NCCL_P2P_DISABLE=1:\n# Avg bus bandwidth    : 11.2871\n"}, [], ["p2p-*"]),
    Variant("per GPU and second", {"a": "on a single node with 8 V100 I see 30/s/gpu\non two nodes with 8 V100 each only 10/s/gpu\n"}, [[BOUND]], _P2P),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)


def test_a_told_lack_of_lanes_is_no_more_than_a_note(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"a": "The second 3090 is in an x4 slot.\n"})
    assert [finding.severity for finding in run.findings if finding.code == "pcie-width-low"] == ["info"]

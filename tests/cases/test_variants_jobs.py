# ruff: noqa: E501 - the texts stand as the tools print them
"""More texts about jobs: timings in other spellings, watchdogs, input, and texts in which nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import devices, head, listing, p2p, pairs, ring, sweep, topo


def wd(rank, seq, op="ALLREDUCE", n=1, t=600000):
    return f"[rank{rank}]:[E ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)={t}) ran for {t + 22} milliseconds before timing out.\n"


VARIANTS = [
    # training
    Variant(
        "lightning it/s",
        {
            "a": "1 GPU:\nEpoch 0: 100%|████| 500/500 [01:40<00:00, 5.00it/s, loss=0.3]\n4 GPUs (ddp):\nEpoch 0: 100%|████| 125/125 [01:15<00:00, 1.66it/s, loss=0.3]\n"
        },
        [["communication-bound"]],
        [],
    ),
    Variant(
        "HF trainer json",
        {
            "a": "1 GPU: {'train_runtime': 301.2, 'train_samples_per_second': 33.2, 'train_steps_per_second': 4.15, 'train_loss': 1.2, 'epoch': 1.0}\n",
            "b": "2 GPUs: {'train_runtime': 290.0, 'train_samples_per_second': 34.5, 'train_steps_per_second': 2.15, 'train_loss': 1.2, 'epoch': 1.0}\n",
        },
        [["communication-bound"]],
        [],
    ),
    Variant(
        "prose slow",
        {"a": "Training on 1x 3090 takes 10 hours per epoch. With 2x 3090 DDP it takes 9 hours per epoch.\n", "t": topo(pairs(2, "PHB"))},
        [["communication-bound"]],
        [],
    ),
    Variant(
        "tokens per sec",
        {"a": "| GPUs | tokens/s |\n|---|---|\n| 1 | 14200 |\n| 2 | 16100 |\n| 4 | 21000 |\n", "t": topo(pairs(4, "SYS"))},
        [["communication-bound"]],
        ["fsdp-over-pcie"],
    ),
    Variant(
        "fsdp prose",
        {"a": "FSDP full shard on 4x RTX 3090: 0.9 it/s. A single 3090: 1.6 it/s (batch size 1 each)\n", "t": topo(pairs(4, "PHB"))},
        [["fsdp-over-pcie"]],
        [],
    ),
    Variant(
        "gbit",
        {"a": "iperf3 says 9.4 Gbits/sec between the nodes but NCCL busbw shows only 1.1 GB/s, why is it 9x slower?\n"},
        [["unit-trap"]],
        ["communication-bound"],
    ),
    Variant(
        "s/it vs it/s prose", {"a": "With one GPU tqdm shows 1.25it/s. With two it shows 1.10s/it. Is it slower?\n"}, [["unit-trap"]], []
    ),
    Variant(
        "steps fewer",
        {"a": "On 1 GPU the epoch has 8000 steps. On 8 GPUs it has 1000 steps and takes 9 minutes instead of 60.\n"},
        [],
        ["communication-bound"],
    ),
    Variant(
        "dataloader",
        {
            "a": "GPU utilization is jumping between 0% and 100% on all 4 GPUs. With num_workers=0. When I use synthetic data it's always 99%.\n"
        },
        [["input-pipeline-bound"]],
        ["communication-bound", "p2p-unsupported*"],
    ),
    Variant(
        "data time nanodet",
        {
            "a": "".join(
                f"[10/20 10:1{k}:00 d2.utils.events]:  eta: 1:00:00  iter: {20 * k}  total_loss: 1.2  time: 1.02  last_time: 1.1  data_time: 0.81  last_data_time: 0.9  lr: 0.01  max_mem: 9000M\n"
                for k in range(4)
            )
        },
        [["input-pipeline-bound"]],
        ["communication-bound"],
    ),
    Variant(
        "gloo env",
        {"a": "INFO: Initialized process group with backend gloo, world_size=8\n", "b": listing(*["NVIDIA A100-SXM4-40GB"] * 8)},
        [["backend-gloo"]],
        [],
    ),
    Variant(
        "gloo on cpu only",
        {"a": "init_process_group(backend='gloo') # CPU only machine, no GPU\nNo CUDA GPUs are available\n"},
        [],
        ["backend-gloo"],
    ),
    Variant(
        "watchdog desync",
        {"a": wd(0, 103, "ALLREDUCE", 1048576) + wd(1, 103, "ALLGATHER", 99)},
        [["collective-timeout"], ["ranks-desynchronised"]],
        [],
    ),
    Variant(
        "watchdog one rank behind",
        {"a": wd(0, 2001) + wd(1, 2001) + wd(2, 2000) + wd(3, 2001)},
        [["collective-timeout"], ["ranks-desynchronised"]],
        [],
    ),
    Variant(
        "watchdog numel differ",
        {"a": wd(0, 88, "ALLREDUCE", 1000) + wd(1, 88, "ALLREDUCE", 2000)},
        [["collective-timeout"], ["ranks-desynchronised"]],
        [],
    ),
    Variant(
        "watchdog new format",
        {
            "a": "[rank3]:[E221 10:11:12.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=55, OpType=BROADCAST, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=1800000) ran for 1800088 milliseconds before timing out.\n[rank3]:[E221 10:11:12.000000000 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 55 PG status: last enqueued work: 55, last completed work: 54\n"
        },
        [["collective-timeout"]],
        [],
    ),
    Variant(
        "oom of one rank then timeout",
        {
            "a": "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 23.65 GiB of which 1.1 GiB is free.\n"
            + wd(0, 9)
            + wd(1, 9)
            + wd(3, 9)
        },
        [["collective-timeout"]],
        ["p2p-unsupported*", "ranks-desynchronised"],
    ),
    Variant(
        "nvtop batch",
        {"a": "batch size 1 per GPU, resnet18, DDP on 2 GPUs: 1 GPU 210 img/s, 2 GPU 230 img/s total\n"},
        [["communication-bound", "batch-too-small"]],
        [],
    ),
    Variant(
        "find_unused",
        {
            "a": "[W reducer.cpp:1300] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass. This flag results in an extra traversal of the autograd graph every iteration,  which can adversely affect performance.\n"
        },
        [],
        ["communication-bound"],
    ),
    Variant(
        "vllm tp",
        {"a": "vLLM 0.5 llama-70b on 4x A6000 (no nvlink): TP=4 gives 11 tok/s, TP=2 PP=2 gives 19 tok/s\n", "t": topo(pairs(4, "NODE"))},
        [["tp-over-pcie"]],
        [],
    ),
    # fully healthy
    Variant("healthy L40S topo ok p2p", {"t": topo(pairs(4, "PIX")), "p": p2p(4, "OK")}, [["healthy", "needs-measurement"]], ["*"]),
    Variant(
        "healthy nccl-tests",
        {
            "b": devices(8, "NVIDIA H100 80GB HBM3")
            + "NCCL version 2.21.5+cuda12.4\n"
            + sweep([(1 << k, 480.0) for k in range(28, 33)], 8, average=479.0)
        },
        [["healthy"]],
        ["*"],
    ),
    Variant("single GPU", {"s": listing("NVIDIA GeForce RTX 4090")}, [["single-gpu"]], ["*"]),
    Variant("nonsense", {"a": "Lorem ipsum dolor sit amet\nconsectetur\n"}, [["needs-measurement"]], ["*"]),
    Variant(
        "stacktrace only",
        {
            "a": "Traceback (most recent call last):\n  File \"train.py\", line 10, in <module>\n    import foo\nModuleNotFoundError: No module named 'foo'\n"
        },
        [["needs-measurement"]],
        ["*"],
    ),
    Variant(
        "nccl init ok shm because different cpus",
        {"l": head("2.19.3") + ring(2, "SHM/direct/direct"), "t": topo(pairs(2, "SYS"))},
        [["p2p-level-too-low", "shm-direct-slow", "shm-tuning", "needs-measurement", "p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "ib warn on one host harmless", {"l": head("2.21.5") + ring(2, "P2P/CUMEM"), "t": topo(pairs(2, "NV12"))}, [["healthy"]], ["*"]
    ),
    Variant(
        "net socket single host all",
        {
            "l": head("2.21.5")
            + "gpu-box:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
            + ring(2, "NET/Socket/0")
        },
        [["isolated-ranks-tcp", "p2p-disabled-by-environment", "needs-measurement", "shm-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of the kinds that are about training: what several GPUs bring, units, backends, input, watchdogs; as other people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import listing, pairs, topo

# fmt: off
BOUND = "communication-bound"


def watchdog(rank: int, sequence: int, operation: str = "ALLREDUCE", seconds: int = 600, numel: int = 1, old: bool = False) -> str:
    ms = seconds * 1000
    if old:
        return (f"[E ProcessGroupNCCL.cpp:587] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType={operation}, "
                f"TensorShape=[{numel}], Timeout(ms)={ms}) ran for {ms + 312} milliseconds before timing out.\n")
    return (f"[rank{rank}]:[E1018 22:10:11.{rank}12 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={ms}) ran for {ms + 54} "
            "milliseconds "
            "before timing out.\n")


VARIANTS = [
    # C62
    Variant("C62 HF table, four GPUs per process", {"b": "| setup | train_runtime | train_samples_per_second |\n|---|---|---|\n| 1 GPU | 402.1 | 19.9 |\n"
            "| DDP 4 | 250.5 | 7.98 |\n"}, [[BOUND], ["unit-trap"]]),
    Variant("C62 in a sentence", {"b": "DDP: 1 GPU takes 3.1 s/it, 2 GPUs 5.6 s/it, batch 4 each\n", "t": topo(pairs(2, "PHB"))}, [[BOUND]]),
    Variant("C62 samples of all GPUs, SYS", {"b": "throughput: 1 GPU 120 samples/s, 2 GPUs 95 samples/s total, 4 GPUs 130 samples/s total\n",
            "t": topo(pairs(4, "SYS", p01="PHB", p23="PHB"))}, [[BOUND]]),
    Variant("C62 good scaling is no fault", {"b": "1 GPU: 120 samples/s\n2 GPUs: 231 samples/s total\n4 GPUs: 447 samples/s total\n"}, [], [BOUND, "fsdp-over-pcie"]),
    # C64
    Variant("C64 two bars", {"b": "1 GPU:  100%|██████████| 1000/1000 [08:20<00:00,  2.00it/s]\n2 GPU:  100%|██████████| 500/500 [08:40<00:00,  1.04s/it]\n"},
            [["unit-trap"]]),
    Variant("C64 words", {"b": "Single GPU runs at 1.8 it/s, with 4 GPUs it shows 1.9 s/it\n"}, [["unit-trap"]], [BOUND]),
    Variant("C64 an epoch has fewer steps", {"b": "1 GPU: 1200 steps in 10:00\n4 GPU: 300 steps in 2:45\n"}, [["unit-trap"]], [BOUND]),
    # C66
    Variant("C66 ZeRO-3 over PCIe", {"b": "DeepSpeed ZeRO-3, 4x RTX 4090 over PCIe: 1 GPU 12.1 samples/s | 4 GPU 6.3 samples/s\n"}, [["fsdp-over-pcie"]]),
    Variant("C66 FULL_SHARD on the matrix", {"b": "FSDP FULL_SHARD training: 1 GPU 2400 tok/s, 2 GPU 900 tok/s\n", "t": topo(pairs(2, "SYS")),
            "L": listing("NVIDIA RTX A5000", "NVIDIA RTX A5000")}, [["fsdp-over-pcie"]]),
    Variant("C66 global batch said aside", {"b": "train on 2x A40 with PCIe, FSDP: 4.1 -> 2.2 it/s (global batch x2)\n"}, [["fsdp-over-pcie"], ["unit-trap"]]),
    # C67
    Variant("C67 a trainer's argument", {"l": "Using distributed_backend=gloo, world size: 4\n", "L": listing(*["NVIDIA A10G"] * 4)}, [["backend-gloo"]]),
    Variant("C67 code", {"c": 'torch.distributed.init_process_group(backend="gloo", rank=rank, world_size=2)\n',
            "t": topo(pairs(2, "PHB"))}, [["backend-gloo"]]),
    Variant("C67 Windows", {"l": "NOTE: Redirects are currently not supported in Windows or MacOs.\nraise RuntimeError(\"Distributed package doesn't have NCCL \"\n"
            "RuntimeError: Distributed package doesn't have NCCL built in\n"}, [["backend-gloo"]]),
    Variant("C67 nccl is right", {"l": "distributed_backend=nccl\nAll distributed processes registered. Starting with 2 processes\n", "t": topo(pairs(2, "NV12"))},
            [], ["backend-gloo"]),
    # C70
    Variant("C70 the ImageNet example", {"l": "".join(f"Epoch: [0][{k * 10:4d}/5005]\tTime  1.102 ( 1.098)\tData  0.871 ( 0.866)\tLoss 6.9 (6.9)\n" for k in range(6))},
            [["input-pipeline-bound"]], [BOUND, "p2p-unsupported*"]),
    Variant("C70 mmengine", {"l": "".join(f"05/05 10:1{k}:00 - mmengine - INFO - Epoch(train) [1][{50 * k}/2000] lr: 1e-2 eta: 1:00:00 time: 0.8120 data_time: 0.6010 memory: 9000 "
            "loss: 0.5\n" for k in range(1, 5))}, [["input-pipeline-bound"]], [BOUND, "p2p-unsupported*"]),
    Variant("C70 sentences", {"b": "All 8 GPUs: utilization drops to 0 % and spikes to 100 % together. Moving the dataset from NFS to NVMe fixed it.\n"},
            [["input-pipeline-bound"]], [BOUND, "p2p-unsupported*"]),
    # C71
    Variant("C71 eight ranks at one place", {"l": "".join(watchdog(k, 4211, numel=25600000) for k in range(8))}, [["collective-timeout"]], ["ranks-desynchronised"]),
    Variant("C71 one rank elsewhere", {"l": "".join(watchdog(k, 512) for k in range(3)) + watchdog(3, 511, "BROADCAST")},
            [["collective-timeout"], ["ranks-desynchronised"]]),
    Variant("C71 old torch without numbers", {"l": watchdog(0, 0, seconds=1800, old=True) + watchdog(1, 0, seconds=1800, old=True)}, [["collective-timeout"]],
            ["ranks-desynchronised"]),
    Variant("C71 torch's own word", {"l": watchdog(0, 77) + "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=77, OpType=ALLREDUCE), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=BARRIER).\n"},
            [["collective-timeout"], ["ranks-desynchronised"]]),
    # tensor parallelism, which C61 must not be accused of
    Variant("TP measured over PCIe", {"b": "tensor parallel: TP=1 42 tok/s, TP=2 23 tok/s\n", "t": topo(pairs(2, "SYS"))}, [["tp-over-pcie"]]),
    Variant("vLLM's all-reduce is off", {"l": "WARNING 03-20 22:11:12 custom_all_reduce.py:134] Custom allreduce is disabled because it's not supported on more than "
            "two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.\n"}, [["custom-all-reduce-off"]], ["*"]),
]
# fmt: on


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_another_job_of_this_kind_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

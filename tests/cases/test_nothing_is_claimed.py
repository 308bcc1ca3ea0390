# ruff: noqa: E501, W291 - the texts stand as the tools print them
"""Texts that tempt to a wrong cause: suggestions, questions, idle links, prefixes of launchers, machines in which all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import head, listing, nccl, pairs, ring, topo

H100 = "NVIDIA H100 80GB HBM3"
HGX = [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]

VARIANTS = [
    Variant(
        "suggestion is no setting",
        {
            "a": "Have you tried setting NCCL_P2P_DISABLE=1? Others say you may need `export NCCL_P2P_DISABLE=1` in that case.\n",
            "t": topo(pairs(2, "NV12")),
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "question on iommu",
        {"a": "Should I disable the IOMMU? I read that ACS can be a problem with P2P.\n", "t": topo(pairs(4, "NODE"))},
        [["needs-measurement"]],
        ["*"],
    ),
    Variant(
        "NCCL message suggests",
        {
            "a": head("2.18.5")
            + f"{nccl()}P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
            + ring(2, "SHM/direct/direct")
        },
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "torch tip text",
        {"a": "If you have a slow interconnect, try FSDP SHARD_GRAD_OP or gradient accumulation. DDP over PCIe may be slow.\n"},
        [["needs-measurement"]],
        ["*"],
    ),
    Variant(
        "timeouts configured only",
        {"a": "torch.distributed.init_process_group('nccl', timeout=timedelta(seconds=3600))\n"},
        [["needs-measurement"]],
        ["*"],
    ),
    Variant("nccl version line only", {"a": "NCCL version 2.21.5+cuda12.4\n"}, [["needs-measurement"]], ["*"]),
    Variant(
        "idle pcie gen1",
        {
            "q": "index, name, pcie.link.gen.current, pcie.link.gen.max, utilization.gpu [%]\n0, NVIDIA H100 PCIe, 1, 5, 0 %\n1, NVIDIA H100 PCIe, 1, 5, 0 %\n"
        },
        [["pcie-idle-inconclusive"]],
        ["*"],
    ),
    Variant(
        "gen no util",
        {"q": "index, name, pcie.link.gen.current, pcie.link.gen.max\n0, NVIDIA H100 PCIe, 1, 5\n1, NVIDIA H100 PCIe, 5, 5\n"},
        [["pcie-idle-inconclusive", "needs-measurement", "pcie-generation-low"]],
        ["pcie-width-low"],
    ),
    Variant(
        "max width x8 card",
        {
            "q": "index, name, pcie.link.width.current, pcie.link.width.max, utilization.gpu [%]\n0, NVIDIA GeForce RTX 4060 Ti, 8, 16, 99 %\n1, NVIDIA GeForce RTX 4060 Ti, 8, 16, 99 %\n"
        },
        [],
        [],
    ),
    Variant("different names same model mem", {"L": listing("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")}, [["gpus-differ"]], []),
    Variant(
        "mixed case hgx numa",
        {
            "t": topo(
                HGX,
                numa=["0"] * 4 + ["1"] * 4,
                nics={f"mlx5_{k}": ["PIX" if a == k else ("NODE" if a // 4 == k // 4 else "SYS") for a in range(8)] for k in range(8)},
            ),
            "L": listing(*[H100] * 8),
        },
        [["healthy"]],
        ["*"],
    ),
    Variant(
        "dgx a100 real like",
        {
            "t": topo(
                [["X" if a == b else "NV12" for b in range(8)] for a in range(8)],
                numa=["3", "3", "1", "1", "7", "7", "5", "5"],
                nics={
                    "mlx5_0": ["PXB", "PXB", "SYS", "SYS", "SYS", "SYS", "SYS", "SYS"],
                    "mlx5_1": ["PXB", "PXB", "SYS", "SYS", "SYS", "SYS", "SYS", "SYS"],
                    "mlx5_2": ["SYS", "SYS", "PXB", "PXB", "SYS", "SYS", "SYS", "SYS"],
                    "mlx5_4": ["SYS", "SYS", "SYS", "SYS", "PXB", "PXB", "SYS", "SYS"],
                    "mlx5_6": ["SYS", "SYS", "SYS", "SYS", "SYS", "SYS", "PXB", "PXB"],
                },
            )
        },
        [["healthy"]],
        ["*"],
    ),
    Variant(
        "nvlink bridged 2 gpus healthy smi nvlink",
        {
            "a": "GPU 0: NVIDIA RTX A6000 (UUID: GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa)\n"
            + "".join(f"\t Link {k}: 14.062 GB/s\n" for k in range(4))
            + "GPU 1: NVIDIA RTX A6000 (UUID: GPU-baaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa)\n"
            + "".join(f"\t Link {k}: 14.062 GB/s\n" for k in range(4))
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "gpus busy is ddp",
        {"q": "index, name, utilization.gpu [%], memory.used [MiB]\n0, NVIDIA A40, 100 %, 40000 MiB\n1, NVIDIA A40, 100 %, 40000 MiB\n"},
        [["needs-measurement"]],
        ["*"],
    ),
    Variant(
        "kernel enabled iommu, no hang",
        {
            "d": "[    0.5] DMAR: IOMMU enabled\n[    1.1] iommu: Default domain type: Translated\n[    2.0] nvidia: loading out-of-tree module taints kernel.\n"
        },
        [["needs-measurement", "iommu-check"]],
        ["p2p-hang-iommu", "p2p-hang-acs"],
    ),
    Variant(
        "acs on, no hang",
        {
            "l": "00:1c.0 PCI bridge: Intel Corporation Device a338 (rev f0) (prog-if 00 [Normal decode])\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
        },
        [["needs-measurement", "iommu-check"]],
        ["p2p-hang-iommu", "p2p-hang-acs"],
    ),
    Variant(
        "github issue",
        {
            "a": """### Describe the bug
DDP training hangs on 2 GPUs, works on 1.

### To Reproduce
```
torchrun --nproc_per_node=2 train.py
```
### Environment
- PyTorch 2.3.1+cu121
- Driver 535.183.01
- 2x NVIDIA RTX 4090
- OS: Ubuntu 22.04
"""
        },
        [["collective-hang", "needs-measurement"]],
        ["p2p-hang-iommu", "p2p-hang-acs", "driver-p2p-bug", "p2p-falsely-advertised", "p2p-unsupported*"],
    ),
    Variant(
        "hang with nvlink",
        {
            "n": "training hangs with NCCL_P2P_DISABLE unset on 8xA100\n",
            "l": head("2.18.3") + ring(8, "P2P/IPC/read"),
            "t": topo([["X" if a == b else "NV12" for b in range(8)] for a in range(8)]),
        },
        [["collective-hang", "needs-measurement"]],
        ["p2p-hang-iommu", "p2p-hang-acs", "p2p-unsupported*"],
    ),
    Variant(
        "it works on all",
        {"n": "all_reduce works fine on both machines, 24 GB/s busbw on 2x RTX 6000 Ada\n"},
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "german prose",
        {"n": "Training mit 2 GPUs haengt beim ersten all_reduce, mit NCCL_P2P_DISABLE=1 geht es.\n"},
        [["needs-measurement", "collective-hang"]],
        ["p2p-hang-iommu", "p2p-hang-acs"],
    ),
    Variant(
        "interleaved two hosts",
        {
            "l": "".join(
                f"{nccl(f'node{k % 2}', dev=k // 2)}Channel 00/0 : {k}[{k // 2}] -> {(k + 1) % 4}[{((k + 1) % 4) // 2}] via "
                + ("P2P/IPC" if False else "NET/IB/0/GDRDMA")
                + "\n"
                for k in range(4)
            )
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "kubectl prefix",
        {
            "l": "".join(
                "[pod/train-worker-0/pytorch] " + line + "\n"
                for line in (head("2.21.5", "train-worker-0") + ring(2, "SHM/direct/direct", "train-worker-0")).splitlines()
            )
            + "".join(
                "[pod/train-worker-0/pytorch] "
                f"{nccl('train-worker-0', dev=a)}P2P is disabled between connected GPUs {a} and {1 - a}. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
                for a in range(2)
            )
        },
        [["p2p-unsupported*"]],
        [],
    ),
    Variant(
        "timestamps prefix",
        {
            "l": "".join(
                "2026-05-05T10:00:00.123456Z " + line + "\n"
                for line in (
                    head("2.21.5")
                    + ring(2, "SHM/direct/direct")
                    + f"{nccl()}P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1."
                ).splitlines()
            )
        },
        [["p2p-unsupported*"]],
        [],
    ),
    Variant(
        "slurm prefix",
        {
            "l": "".join(f"{k % 4}: " + line + "\n" for k, line in enumerate((head("2.21.5") + ring(4, "P2P/CUMEM")).splitlines())),
            "t": topo(pairs(4, "NV4")),
        },
        [["healthy"]],
        ["*"],
    ),
    Variant(
        "collect_env",
        {
            "e": """Collecting environment information...
PyTorch version: 2.4.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
OS: Ubuntu 22.04.4 LTS (x86_64)
Is CUDA available: True
CUDA runtime version: 12.1.105
GPU models and configuration: 
GPU 0: NVIDIA GeForce RTX 4090
GPU 1: NVIDIA GeForce RTX 4090
Nvidia driver version: 550.54.15
Versions of relevant libraries:
[pip3] nvidia-nccl-cu12==2.20.5
[pip3] torch==2.4.1
NVIDIA_VISIBLE_DEVICES=all
"""
        },
        [["needs-measurement"]],
        ["*"],
    ),
    Variant(
        "cpu torch collect_env",
        {
            "e": "Collecting environment information...\nPyTorch version: 2.4.1+cpu\nCUDA used to build PyTorch: None\nIs CUDA available: False\nGPU models and configuration: GPU 0: NVIDIA A10G\n"
        },
        [["torch-without-cuda"]],
        [],
    ),
    Variant(
        "cuda unavailable driver ok",
        {"e": "PyTorch version: 2.4.1+cu121\nIs CUDA available: False\nGPU 0: NVIDIA A10G\nNvidia driver version: 470.57.02\n"},
        [],
        ["torch-without-cuda"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_no_cause_is_claimed_that_the_text_does_not_show(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

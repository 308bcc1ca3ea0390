# ruff: noqa: E501 - the texts stand as the tools print them
"""Short notes of what somebody tried, with arrows and bars, beside a tool's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import bandwidth_matrix, head, pairs, topo

VARIANTS = [
    Variant(
        "iommu note arrow",
        {"e": "# symptom: all_reduce_perf hangs with 2+ GPUs; NCCL_P2P_DISABLE=1 -> ok ; iommu=off -> ok\n"},
        [["p2p-hang-iommu"]],
        ["p2p-hang-acs", "driver-p2p-bug"],
    ),
    Variant(
        "iommu note pt",
        {"e": "# 8x RTX A5000, EPYC 7763: hang at first collective, GPU 100 %; after `iommu=pt` on the kernel command line: works\n"},
        [["p2p-hang-iommu"]],
        ["p2p-hang-acs"],
    ),
    Variant(
        "iommu dmesg grep note",
        {
            "d": "[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-6.5.0 root=UUID=1 ro quiet\n[    0.812] AMD-Vi: AMD IOMMUv2 loaded and initialized\n[    0.900] iommu: Default domain type: Translated\n",
            "e": "# symptom: NCCL hang with P2P; NCCL_P2P_DISABLE=1 -> ok\n",
            "t": topo(pairs(4, "NODE")),
        },
        [["p2p-hang-iommu"]],
        ["p2p-hang-acs", "driver-p2p-bug"],
    ),
    Variant(
        "acs note",
        {
            "e": "# hang in ncclCommInitRank / first all_reduce ; setpci ACS off on all bridges -> ok\n",
            "l": "00:03.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge\n\tCapabilities: [2a0 v1] Access Control Services\n\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n",
        },
        [["p2p-hang-acs"]],
        ["p2p-hang-iommu", "driver-p2p-bug"],
    ),
    Variant(
        "acs grep excerpt",
        {
            "l": "$ sudo lspci -vvv | grep ACSCtl\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n",
            "e": "# NCCL hangs with P2P, fine with NCCL_P2P_DISABLE=1\n",
        },
        [["p2p-hang-acs"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "corrupt nan",
        {"e": "# loss NaN on 2 GPUs with P2P, fine with NCCL_P2P_DISABLE=1 ; IOMMU enabled in BIOS -> wrong data ; disabled -> ok\n"},
        [["p2p-wrong-data", "p2p-hang-iommu", "iommu-check"]],
        ["healthy"],
    ),
    Variant(
        "torch check corrupt",
        {"e": "x on cuda:0: tensor([1., 2., 3.])\nx.to('cuda:1'): tensor([0., 0., 0.])\n# copies between GPUs return zeros\n"},
        [["p2p-wrong-data", "needs-measurement"]],
        ["healthy"],
    ),
    Variant(
        "p2p bw test hang trunc",
        {
            "t": "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA GeForce RTX 4090, pciBusID: 1, pciDeviceID: 0, pciDomainID:0\nDevice: 1, NVIDIA GeForce RTX 4090, pciBusID: 2, pciDeviceID: 0, pciDomainID:0\nDevice=0 CAN Access Peer Device=1\nDevice=1 CAN Access Peer Device=0\n\n***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.\nSo you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.\n\nP2P Connectivity Matrix\n     D\\D     0     1\n     0\t     1     1\n     1\t     1     1\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 909.86  21.59 \n     1  21.75 920.20 \nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        },
        [["p2p-falsely-advertised", "unofficial-driver", "collective-hang", "needs-measurement"]],
        ["p2p-hang-iommu", "p2p-hang-acs"],
    ),
    Variant(
        "p2p enabled slower matrix",
        {
            "t": bandwidth_matrix("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", [[800, 16.0], [16.0, 800]])
            + bandwidth_matrix("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", [[800, 2.1], [2.1, 800]]),
            "tt": topo(pairs(2, "SYS")),
        },
        [["p2p-slower-than-staged", "p2p-through-cpu-slow", "pair-slow"]],
        [],
    ),
    Variant(
        "matrix healthy a6000 nvlink",
        {
            "t": bandwidth_matrix("Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)", [[670, 16.0], [16.0, 670]])
            + bandwidth_matrix("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", [[670, 101.8], [101.8, 670]]),
            "tt": topo(pairs(2, "NV4")),
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "unique id key",
        {
            "l": "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer\n"
        },
        [["rendezvous-failed", "needs-measurement", "peer-closed"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "store timeout",
        {"l": "RuntimeError: [3]: params[0] in this process with sizes [10] appears not to match sizes of the same param in process 0.\n"},
        [["ranks-desynchronised", "ddp-models-differ", "needs-measurement"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "nccl oom init",
        {"l": head("2.18.1") + "\ngpu-box:1:2 [0] include/alloc.h:102 NCCL WARN Cuda failure 2 'out of memory'\n"},
        [["gpu-out-of-memory", "needs-measurement"]],
        ["p2p-unsupported*", "dev-shm-too-small"],
    ),
    Variant(
        "too many open files",
        {"l": "\ngpu-box:1:2 [0] misc/shmutils.cc:91 NCCL WARN Call to shm_open failed : Too many open files\n"},
        [["open-files-limit", "needs-measurement"]],
        ["dev-shm-too-small"],
    ),
    Variant(
        "nvlink zero links one",
        {
            "n": "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\n"
            + "".join(f"\t Link {k}: 25 GB/s\n" for k in range(12))
            + "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)\n"
            + "".join(f"\t Link {k}: <inactive>\n" for k in range(12))
        },
        [["nvlink-partial", "fabric-not-ready", "nvlink-islands"]],
        [],
    ),
    Variant(
        "rtx bridge two of four",
        {
            "n": "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-a)\n\t Link 0: 14.062 GB/s\n\t Link 1: 14.062 GB/s\n\t Link 2: 14.062 GB/s\n\t Link 3: <inactive>\nGPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-b)\n\t Link 0: 14.062 GB/s\n\t Link 1: 14.062 GB/s\n\t Link 2: 14.062 GB/s\n\t Link 3: <inactive>\n"
        },
        [["nvlink-partial", "needs-measurement"]],
        [],
    ),
    Variant(
        "gen current 1 p0 load",
        {
            "c": "index, pstate, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max\n0, P0, 1, 4, 16, 16\n1, P0, 4, 4, 16, 16\n"
        },
        [["pcie-generation-low", "pcie-idle-inconclusive"]],
        [],
    ),
    Variant(
        "two runs nvme",
        {"b": "# time/iter 0.42 s, data_time 0.31 s ; with --fake-data 0.11 s\n"},
        [["input-pipeline-bound"]],
        ["communication-bound"],
    ),
    Variant(
        "ddp slower K",
        {"b": "# BERT-large fine-tune, 2x RTX 3090 (no NVLink): 1 GPU 3.2 it/s | 2 GPU 1.3 it/s (per-GPU batch kept)\n"},
        [["communication-bound"]],
        ["fsdp-over-pcie"],
    ),
    Variant(
        "ga fixes",
        {"b": "# DDP 4x A10: 1 GPU 100 samples/s | 4 GPU 120 samples/s total | 4 GPU with gradient accumulation 16: 380 samples/s total\n"},
        [["communication-bound"]],
        ["input-pipeline-bound"],
    ),
    Variant("zero3 s per it", {"b": "# DeepSpeed ZeRO-3 on 8x A40 PCIe: 42 s/it ; ZeRO-2: 9 s/it\n"}, [["fsdp-over-pcie"]], []),
    Variant("tp vllm pcie", {"b": "# vLLM 4x RTX 4090: TP=1 1450 tok/s | TP=2 1510 tok/s | TP=4 1390 tok/s\n"}, [["tp-over-pcie"]], []),
    Variant(
        "straggler notes",
        {
            "c": "index, name, power.draw [W], power.limit [W], clocks.sm [MHz], temperature.gpu, utilization.gpu [%]\n0, NVIDIA GeForce RTX 4090, 430.00 W, 450.00 W, 2700 MHz, 64, 100 %\n1, NVIDIA GeForce RTX 4090, 215.00 W, 220.00 W, 1500 MHz, 55, 100 %\n"
        },
        [["straggler-power", "gpus-differ", "straggler"]],
        [],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

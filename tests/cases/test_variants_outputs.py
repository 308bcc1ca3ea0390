# ruff: noqa: E501, W291 - the texts stand as the tools print them
"""Outputs of measuring tools, of the kernel and of services in the spellings of other versions, and notes on steps and units."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import bandwidth_matrix, listing, pairs, topo

OLD_HEAD = """#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
NEW_HEAD = """#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
"""


def old_devices(count: int, name: str) -> str:
    return "# Using devices\n" + "".join(
        f"#   Rank {k:2d} Pid {900 + k:6d} on     server device {k:2d} [0x{16 + k:02x}] {name}\n" for k in range(count)
    )


def bare(text: str) -> str:
    """As a forum shows it that takes the leading # for a heading."""
    return "\n".join(line.removeprefix("#") for line in text.splitlines()) + "\n"


def old_row(error: str) -> str:
    return f"    33554432       8388608   float     sum   3000.0   11.18   11.18  {error}   3000.0   11.18   11.18  {error}\n"


def waived(test: str, *names: str, status: str = "Waiving {}.") -> str:
    listed = "".join(f"Device {k}: {name}\n" for k, name in enumerate(names))
    return f"nvbandwidth Version: v0.2\nBuilt from Git version: 6cefdda\n\nDriver Version: 525.125.06\n\n{listed}\n{status.format(test)}\n"


def xid(code: int, message: str, bus: str = "dc") -> str:
    return f"kernel: NVRM: Xid (PCI:0000:{bus}:00): {code}, {message}\n"


def p2p_test(name: str, count: int, rate: float) -> str:
    """p2pBandwidthLatencyTest's heads and its matrix of writes."""
    head = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n" + "".join(
        f"Device: {k}, {name}, pciBusID: {k + 1:x}, pciDeviceID: 0, pciDomainID:0\n" for k in range(count)
    )
    head += "".join(f"Device={a} CAN Access Peer Device={b}\n" for a in range(count) for b in range(count) if a != b)
    rows = [[2490.0 if a == b else rate + (a + b) / 10 for b in range(count)] for a in range(count)]
    return head + bandwidth_matrix("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", rows)


FM = "Jan 05 14:4{minute}:41 node3 {rest}\n"
LINK = "    LnkCap: Port #0, Speed {cap}, Width x{most}, ASPM L1, Exit Latency L1 <16us\n    LnkSta: Speed {now}, Width x{width}{word}\n"

VARIANTS = [
    # nccl-tests before 2.13 printed the largest difference, which rounding makes
    Variant(
        "rounding of floats is no wrong data",
        {"t": old_devices(2, "A40") + OLD_HEAD + old_row("1e-06") + "# Out of bounds values : 0 OK\n"},
        [],
        ["collective-wrong-data"],
    ),
    Variant(
        "rounding of halves over eight ranks",
        {"t": old_devices(8, "Tesla V100-SXM2-16GB") + OLD_HEAD + old_row("5e-04")},
        [],
        ["collective-wrong-data"],
    ),
    Variant(
        "rounding, without the leading #",
        {"t": bare(old_devices(4, "Tesla T4") + OLD_HEAD) + old_row("2e-07")},
        [],
        ["collective-wrong-data"],
    ),
    Variant(
        "a difference of one is wrong data",
        {"t": old_devices(2, "Tesla V100-SXM2-32GB") + OLD_HEAD + old_row("1e+00")},
        [["collective-wrong-data"]],
    ),
    Variant(
        "the verdict alone",
        {"t": "# Out of bounds values : 50 FAILED\n# Avg bus bandwidth    : 4.2\n"},
        [["collective-wrong-data"]],
        ["p2p-wrong-data"],
    ),
    Variant(
        "the verdict without its #, in backticks",
        {"t": "with four GPUs: ` Out of bounds values : 56 FAILED`\n"},
        [["collective-wrong-data"]],
        ["p2p-wrong-data"],
    ),
    Variant("the verdict says OK", {"t": " Out of bounds values : 0 OK\n Avg bus bandwidth    : 11.9\n"}, [], ["*"]),
    Variant(
        "counts of wrong values",
        {
            "t": NEW_HEAD
            + "    33554432       8388608     float     sum      -1   3000.0   11.18   11.18    412   3000.0   11.18   11.18    398\n"
        },
        [["collective-wrong-data"]],
    ),
    Variant(
        "one rank moves nothing over a wire",
        {
            "t": "# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n#  Rank  0 Group  0 Pid  21817 on   server-01 device  0 [0x01] NVIDIA GeForce RTX 5090\n#\n"
            + NEW_HEAD
            + "    33554432       8388608     float    none      -1    19.56  1715.44    0.00      0     0.78  43046.10    0.00    N/A\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0 \n"
        },
        [["single-gpu", "needs-measurement"]],
        ["*"],
    ),
    # nvbandwidth leaves out what it cannot map
    Variant(
        "waived between two cards",
        {"t": waived("device_to_device_memcpy_write_ce", *["NVIDIA GeForce RTX 2080 Ti"] * 2)},
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment", "p2p-hang-*"],
    ),
    Variant(
        "waived between four, newer words",
        {
            "t": waived(
                "device_to_device_memcpy_read_ce",
                *["NVIDIA GeForce RTX 4090"] * 4,
                status="Running {}.\nWaived: device_to_device_memcpy_read_ce",
            )
        },
        [["p2p-unsupported*"]],
    ),
    Variant("waived on one card says nothing", {"t": waived("device_to_device_memcpy_read_ce", "NVIDIA L4")}, [], ["p2p-unsupported*"]),
    # the kernel
    Variant(
        "NVLink 5, fatal",
        {
            "d": "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)\n"
        },
        [["nvlink-xid"]],
        ["p2p-*"],
    ),
    Variant(
        "NVLink 5, only its victims",
        {
            "d": xid(45, "pid=1818990, name=python3, Ch 00000001 caused by previous Xid 145")
            + xid(45, "pid=1818992, name=python3, Ch 0000000c caused by previous Xid 145", "ed")
        },
        [["nvlink-xid"]],
        ["gpu-lost"],
    ),
    Variant(
        "NVLink 5, nonfatal is a warning",
        {
            "d": "[  12.1] NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)\n"
        },
        [["nvlink-xid"]],
    ),
    Variant(
        "CUDA's word for it",
        {
            "t": "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\nCUDA kernel errors might be asynchronously reported at some other API call.\n"
        },
        [["nvlink-xid"]],
        ["p2p-*"],
    ),
    Variant(
        "a program's fault is none",
        {
            "d": xid(
                13,
                "pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
                "cb",
            )
        },
        [],
        ["nvlink-xid", "gpu-lost"],
    ),
    Variant(
        "a daemon's word for a lost card",
        {"t": "XID 79(GPU has fallen off the bus) detected on PCI:0000:ae:00\n"},
        [["gpu-lost"]],
        ["p2p-*"],
    ),
    Variant(
        "NVML's word for a lost card",
        {"t": "failed to get remapped rows for GPU-00000000-1a2b-3c4d-5e6f-0123456789ab: ERROR_GPU_IS_LOST\n"},
        [["gpu-lost"]],
        ["p2p-*"],
    ),
    # the fabric manager
    Variant(
        "unit with a dash",
        {
            "j": FM.format(minute=1, rest="systemd[1]: Starting nvidia-fabricmanager.service - NVIDIA fabric manager service...")
            + "Job for nvidia-fabricmanager.service failed because the control process exited with error code.\n",
            "L": listing(*["NVIDIA H20"] * 4),
        },
        [["fabric-not-ready"]],
        ["p2p-*"],
    ),
    Variant(
        "stopped and not started",
        {
            "j": FM.format(minute=2, rest='nvidia-fabricmanager-start.sh[204]: Stopped "Nvidia Fabric Manager"'),
            "L": listing(*["NVIDIA H100 80GB HBM3"] * 8),
        },
        [["fabric-not-ready"]],
    ),
    Variant(
        "failed where nothing is to do",
        {
            "j": "nv-fabricmanager[9]: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\nJob for nvidia-fabricmanager.service failed because the control process exited with error code.\n",
            "L": listing(*["NVIDIA RTX A6000"] * 2),
        },
        [],
        ["fabric-not-ready"],
    ),
    # lspci, cut out by grep
    Variant(
        "generation at idle, device not shown",
        {"l": LINK.format(cap="16GT/s", most=16, now="2.5GT/s (downgraded)", width=16, word=" (ok)")},
        [["pcie-idle-inconclusive"]],
        ["pcie-generation-low", "pcie-width-low"],
    ),
    Variant(
        "width, device not shown",
        {"l": LINK.format(cap="8GT/s", most=16, now="8GT/s (ok)", width=4, word=" (downgraded)")},
        [["pcie-width-low"]],
    ),
    Variant(
        "a drive's four lanes are its own",
        {"l": LINK.format(cap="16GT/s", most=4, now="16GT/s (ok)", width=4, word=" (ok)")},
        [],
        ["pcie-width-low"],
    ),
    # memory locks
    Variant(
        "UCX says the limit itself",
        {
            "t": "[1668693503.473099] [n1:1188443:0]          ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n"
        },
        [["memlock-limit"]],
        ["p2p-*"],
    ),
    Variant(
        "the call and the shell's limits",
        {
            "t": "ibv_reg_mr(1048576) failed: Cannot allocate memory\n",
            "u": "max locked memory       (kbytes, -l) 8192\nopen files                      (-n) 1024\n",
        },
        [["memlock-limit"]],
    ),
    Variant("limits alone are no fault", {"u": "max locked memory       (kbytes, -l) 64\n"}, [], ["memlock-limit"]),
    # peer access
    Variant(
        "CUDA's word for no peer access",
        {"t": "RuntimeError: CUDA error: peer access is not supported between these two devices\n"},
        [["p2p-unsupported*"]],
        ["p2p-hang-*", "p2p-disabled-by-environment"],
    ),
    Variant(
        "a verification that fails",
        {"n": "simpleP2P on 2x RTX 5060 Ti: P2P verification error, with NCCL_P2P_DISABLE=1 it is fine\n"},
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "writes that vanish, wrapped",
        {"n": "cudaDeviceCanAccessPeer says 1; enabling peer access takes the\ndirect path, which silently drops the write.\n"},
        [["p2p-wrong-data"]],
    ),
    Variant("zeros after a peer copy", {"n": "With the IOMMU on a tensor moved by P2P arrives zeroed out.\n"}, [["p2p-wrong-data"]]),
    Variant(
        "a hang on a healthy matrix is not healthy",
        {"n": "all_reduce_perf hangs on this box.\n", "t": topo(pairs(2, "NV3"))},
        [["collective-hang"]],
        ["p2p-*"],
    ),
    Variant(
        "a test's name in italics, and a hang",
        {"n": "_p2pBandwidthLatencyTest_ prints its first lines and then hangs at 100 %.\n"},
        [["collective-hang"]],
        ["p2p-hang-*", "p2p-unsupported*"],
    ),
    # steps that were not divided
    Variant(
        "as many steps on two",
        {"n": "On a single GPU an epoch has 1200 steps, on two GPUs an epoch has 1200 steps.\n"},
        [["unit-trap"]],
        ["communication-bound"],
    ),
    Variant("more steps on four", {"n": "1 GPU: 5000 iterations. 4 GPUs: 20000 iterations.\n"}, [["unit-trap"]], ["communication-bound"]),
    Variant(
        "said in words",
        {"n": "DDP on 4 GPUs: len(dataloader) is the same as before. 1 GPU: 30 min per epoch, 4 GPUs: 31 min per epoch.\n"},
        [["unit-trap"]],
        ["communication-bound"],
    ),
    Variant(
        "a schedule of iterations",
        {"n": "The config fixes it: the total number of iterations is fixed, so multi-GPU training takes as long.\n"},
        [["unit-trap"]],
        ["communication-bound"],
    ),
    Variant(
        "bars of one length",
        {
            "l": "CUDA_VISIBLE_DEVICES=0 python train.py\n 10%|█         | 1000/10009 [08:20<1:15:04,  2.00it/s]\ntorchrun --nproc_per_node=4 train.py\n 10%|█         | 1000/10009 [08:40<1:18:04,  1.92it/s]\n"
        },
        [["unit-trap"]],
        ["communication-bound"],
    ),
    Variant("halved steps are no trap of this kind", {"n": "1 GPU: 900 steps. 2 GPUs: 450 steps.\n"}, [], ["unit-trap"]),
    Variant(
        "speed that does not change is not steps",
        {"n": "It ran for 4000 iterations on two GPUs. Consequently the speed does not change.\n"},
        [],
        ["unit-trap"],
    ),
    # Chinese notes
    Variant("one card and two, in Chinese", {"n": "3090单卡是51.82s/it\n3090双卡是124.55s/it\n"}, [["communication-bound"]]),
    Variant("four cards, in Chinese", {"n": "单卡训练 2.0 it/s\uff0c4卡训练 0.4 it/s\n"}, [["communication-bound"]]),
    Variant(
        "hangs, in Chinese",
        {"n": "8卡训练 NCCL 初始化时卡住\uff0c设置 NCCL_P2P_DISABLE=1 正常\n"},
        [["collective-hang", "needs-measurement"]],
        ["p2p-hang-*"],
    ),
    # a card that is counted by its article
    Variant(
        "a card against four",
        {"n": "Resnet on a V100, it runs at 3.8 steps/s; with Horovod on 4 V100 GPUs only 1.6 steps/s.\n"},
        [["communication-bound"]],
    ),
    Variant("a node is no card", {"n": "On an A100 node 8 GPUs reach 2400 img/s.\n"}, [], ["communication-bound"]),
    # input
    Variant(
        "advice on workers is a hint",
        {
            "l": "UserWarning: The dataloader, train dataloader, does not have many workers which may be a bottleneck. Consider increasing the value of the `num_workers` argument\n"
        },
        [["input-pipeline-bound"]],
        ["*"],
    ),
    Variant(
        "utilisation that jumps to zero",
        {"n": "With num_workers 8 the GPU-Util jumps from 89% to 0%, then back.\n"},
        [["input-pipeline-bound"]],
        ["communication-bound", "p2p-*"],
    ),
    # tensors printed on two GPUs
    Variant(
        "zeros on the second GPU",
        {"r": ">>> a\ntensor([1., 2.], device='cuda:0')\n>>> a.to('cuda:1')\ntensor([0., 0.], device='cuda:1')\n"},
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "numbers too small to be any",
        {"r": "x.to(1)\ntensor([1, 2], device='cuda:0')\ntensor([1.4013e-45, 0.0000e+00], device='cuda:1')\n"},
        [["p2p-wrong-data"]],
    ),
    Variant(
        "a copy over several lines",
        {
            "r": "moving hidden states\ntensor([[ 0.59, -0.74,  ...,\n           0.67,  0.33]], device='cuda:2',\n       dtype=torch.float16)\ntensor([[0., 0.,  ...,\n         0., 0.]], device='cuda:3',\n       dtype=torch.float16)\n"
        },
        [["p2p-wrong-data"]],
    ),
    Variant(
        "what came and what was expected",
        {"r": "print(b.to('cuda:1'))\nOutput:\ntensor([0., 0.], device='cuda:1')\nExpected:\ntensor([0.6, 0.6], device='cuda:1')\n"},
        [["p2p-wrong-data"]],
    ),
    Variant(
        "a copy that is right",
        {"r": ">>> a\ntensor([1., 2.], device='cuda:0')\n>>> a.to('cuda:1')\ntensor([1., 2.], device='cuda:1')\n"},
        [],
        ["*"],
    ),
    Variant(
        "zeros that were made",
        {
            "r": ">>> a.to('cuda:0')\ntensor([1., 2.], device='cuda:0')\n>>> torch.zeros(2, device='cuda:1')\ntensor([0., 0.], device='cuda:1')\n"
        },
        [],
        ["*"],
    ),
    # wrong data in words
    Variant(
        "gibberish that goes away without peer copies",
        {"n": "The model outputs gibberish on 2 GPUs.\nBuilding llama.cpp with -DGGML_CUDA_NO_PEER_COPY=ON fixed it.\n"},
        [["p2p-wrong-data"]],
        ["p2p-hang-*"],
    ),
    Variant(
        "wrong data that the IOMMU makes is no hang",
        {"n": "Tensors are corrupted when copied between two GPUs.\nAfter disabling the IOMMU it is gone.\n"},
        [["p2p-wrong-data"]],
        ["p2p-hang-*"],
    ),
    Variant(
        "a hang that the IOMMU makes is no wrong data",
        {"n": "NCCL hangs on 4 GPUs. After disabling the IOMMU the hang is gone.\n"},
        [["p2p-hang-iommu"]],
        ["p2p-wrong-data"],
    ),
    Variant(
        "no peer access, says a sentence",
        {"n": "P2P access is not supported between these GPUs, says the provider.\n"},
        [["p2p-unsupported*"]],
        ["p2p-hang-*"],
    ),
    Variant("a condition is no statement", {"n": "If your GPU does not support P2P, set the variable.\n"}, [], ["p2p-*"]),
    Variant(
        "NCCL's word for no peer access",
        {
            "l": "box:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these two devices\n"
        },
        [["p2p-unsupported*"]],
        ["p2p-hang-*"],
    ),
    Variant(
        "advice for those who hang",
        {"n": "Set NCCL_P2P_DISABLE=1 only when P2P hangs.\nIf you see a hang in all_reduce, set NCCL_DEBUG=INFO.\n"},
        [["needs-measurement"]],
        ["*"],
    ),
    # two models in one machine
    Variant(
        "an older card beside",
        {"n": "The 4090 alone: 2500 tok/s, only 300 tok/s on 2 GPUs after adding a second 3090.\n"},
        [["gpus-differ"]],
    ),
    Variant("two of one kind", {"n": "A 3090 with NVLink, 300 tok/s after adding a second 3090.\n"}, [], ["gpus-differ"]),
    # copies that were measured, and speed-ups that were worked out
    Variant("H100 over NVSwitch", {"m": p2p_test("NVIDIA H100 80GB HBM3", 4, 376.0)}, [["healthy"]], ["*"]),
    Variant("A6000 over PCIe", {"m": p2p_test("NVIDIA RTX A6000", 3, 22.1)}, [["healthy"]], ["*"]),
    Variant(
        "H100 at the rate of PCIe is not called healthy",
        {"m": p2p_test("NVIDIA H100 80GB HBM3", 4, 39.0)},
        [["needs-measurement", "fabric-not-ready", "pair-slow"]],
    ),
    Variant("two GPUs, 1.2x", {"n": "The speed-up of 2 GPUs over 1 GPU is 1.2x.\n"}, [["communication-bound"]]),
    Variant("four GPUs, 3.6x", {"n": "The speedup with 4 GPUs against 1 GPU is 3.6x.\n"}, [], ["communication-bound"]),
    Variant(
        "one strategy over another is no scaling", {"n": "The speedup of FSDP over DDP on 8 GPUs is 1.2x.\n"}, [], ["communication-bound"]
    ),
    # GPUDirect in words
    Variant("not switched on", {"n": "InfiniBand at 3 GB/s; we have not enabled GPUDirect RDMA yet.\n"}, [["gdr-missing"]], ["p2p-*"]),
    Variant("the module is not loaded", {"n": "nvidia_peermem is not loaded on node2.\n"}, [["gdr-missing"]]),
    Variant("a question about it", {"n": "Does it matter whether GDR is not used?\n"}, [], ["gdr-missing"]),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_outputs_in_other_spellings_lead_to_the_same_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)


def test_nonfatal_link_events_are_no_more_than_a_warning(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"d": "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)\n"})
    assert [f.severity for f in run.findings if f.code == "nvlink-xid"] == ["warning"]

# ruff: noqa: E501 - the texts stand as the tools print them
"""More texts about wires: which way is faster, versions that hang, sockets, InfiniBand, RCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import devices, head, listing, nccl, p2p, pairs, ring, smi_q, smi_q_gpu, sweep, topo

VARIANTS = [
    Variant(
        "p2p slower table",
        {
            "a": "| env | busbw |\n|---|---|\n| default (P2P/IPC) | 3.1 GB/s |\n| NCCL_P2P_DISABLE=1 (SHM) | 8.2 GB/s |\n",
            "t": topo(pairs(4, "SYS")),
        },
        [["p2p-through-cpu-slow", "p2p-slower-than-staged"]],
        [],
    ),
    Variant(
        "p2p slower two nccl-tests",
        {
            "a.txt": "$ ./build/all_reduce_perf -b 8 -e 256M -f 2 -g 4\n"
            + devices(4, "NVIDIA L40S")
            + sweep([(67108864, 4.0), (134217728, 4.1), (268435456, 4.1)], 4, average=3.0),
            "b.txt": "$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 256M -f 2 -g 4\n"
            + devices(4, "NVIDIA L40S")
            + sweep([(67108864, 9.8), (134217728, 10.1), (268435456, 10.1)], 4, average=7.0),
        },
        [["p2p-through-cpu-slow", "p2p-slower-than-staged"]],
        [],
    ),
    Variant(
        "p2p slower prose",
        {"a": "all_reduce busbw is 2.9 GB/s by default and 9.1 GB/s with NCCL_P2P_DISABLE=1 on 4x A40\n"},
        [["p2p-through-cpu-slow", "p2p-slower-than-staged"]],
        [],
    ),
    Variant(
        "forced level",
        {
            "a": head("2.19.3")
            + nccl()
            + "NCCL_P2P_LEVEL set by environment to SYS\n"
            + ring(4, "P2P/IPC")
            + sweep([(134217728, 1.4), (268435456, 1.4)], 4),
            "t": topo(pairs(4, "SYS")),
        },
        [["p2p-forced-slow", "p2p-through-cpu-slow"]],
        [],
    ),
    Variant(
        "collapse of 8",
        {"a": "# all_reduce busbw GB/s 256MB\nGPUs  busbw(GB/s)\n2     19.5\n4     18.9\n8     2.1\n"},
        [["subset-collapse"]],
        [],
    ),
    Variant("collapse csv", {"a": "num_gpus,busbw_GBps\n2,21.0\n4,20.1\n8,3.0\n"}, [["subset-collapse"]], []),
    Variant(
        "peer mapping",
        {"a": "\nbox:1:2 [9] transport/p2p.cc:246 NCCL WARN failed to peer with device 9(=c1000): 711 peer mapping resources exhausted\n"},
        [["peer-mapping-limit"]],
        [],
    ),
    Variant(
        "peer mapping torch",
        {"a": "RuntimeError: CUDA error: peer mapping resources exhausted\n", "L": listing(*["NVIDIA GeForce RTX 3090"] * 10)},
        [["peer-mapping-limit"]],
        [],
    ),
    Variant(
        "cumem host",
        {
            "a": head("2.26.2")
            + "\ngpu-box:1201:1601 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n"
        },
        [["cumem-host-shm-failed"]],
        [],
    ),
    Variant(
        "cumem host 800",
        {
            "a": head("2.24.3")
            + "\ngpu-box:1201:1601 [0] misc/shmutils.cc:50 NCCL WARN Cuda failure 1 'invalid argument'\n\ngpu-box:1201:1601 [0] transport/shm.cc:200 NCCL WARN Cuda failure 800 'operation not permitted'\n"
        },
        [["cumem-host-shm-failed", "dev-shm-too-small"]],
        [],
    ),
    Variant(
        "nccl bug 2.26.2 b",
        {
            "a": "Since upgrading torch from 2.6 to 2.7 (NCCL 2.26.2) training hangs on 8xH100 at random. Downgrading to NCCL 2.21.5 fixes it.\n"
        },
        [["nccl-version-bug"]],
        ["p2p-hang-iommu", "p2p-hang-acs", "driver-p2p-bug"],
    ),
    Variant(
        "driver bug prose",
        {"a": "Driver 555.42 hangs with P2P on RTX 4090; after upgrade to 560.35 works fine.\n"},
        [["driver-p2p-bug"]],
        [],
    ),
    Variant(
        "driver bug list",
        {"a": "driver 545.29.06: OK\ndriver 550.54.14: hang in all_reduce\ndriver 535.161.07: OK\n"},
        [["driver-p2p-bug"]],
        [],
    ),
    Variant(
        "driver known 4090 525",
        {
            "q": smi_q("525.60.11", smi_q_gpu("01", "NVIDIA GeForce RTX 4090"), smi_q_gpu("41", "NVIDIA GeForce RTX 4090")),
            "n": "NCCL hangs unless I set NCCL_P2P_DISABLE=1\n",
        },
        [["driver-p2p-bug", "p2p-falsely-advertised"]],
        [],
    ),
    Variant(
        "tinygrad driver",
        {
            "a": "$ cat /proc/driver/nvidia/version\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15-p2p  Release Build  (root@box)\n",
            "p": p2p(4, "OK", "r"),
            "L": listing(*["NVIDIA GeForce RTX 4090"] * 4),
        },
        [["unofficial-driver"]],
        ["healthy"],
    ),
    Variant(
        "vgpu",
        {"L": listing("NVIDIA A16-8C", "NVIDIA A16-8C"), "l": head("2.18.5") + ring(2, "SHM/direct/direct")},
        [["vgpu-p2p-limit", "needs-measurement"]],
        [],
    ),
    Variant(
        "two docker separate ipc",
        {
            "c": "$ docker run --gpus '\"device=0\"' --network host img python train.py --rank 0\n$ docker run --gpus '\"device=1\"' --network host img python train.py --rank 1\n",
            "l": head("2.21.5") + "gpu-box:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n",
        },
        [["isolated-ranks-tcp", "sockets-between-hosts"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "gdr ok one",
        {
            "l": "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
            "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "gdr module missing lsmod",
        {
            "l": "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\nn1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0\n",
            "m": "$ lsmod | grep -i peer\n$ lsmod | grep nvidia\nnvidia_uvm           1200000  2\nnvidia              5000000  100 nvidia_uvm\n",
        },
        [["gdr-missing"]],
        [],
    ),
    Variant(
        "gdr dmabuf",
        {
            "l": "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\nn1:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 9 > 5)\n"
        },
        [["gdr-missing", "nic-far-from-gpu"]],
        [],
    ),
    Variant(
        "efa missing",
        {
            "l": "\nip-10-0-0-1:1:2 [0] NCCL WARN NET/OFI Couldn't find any optimal provider\nip-10-0-0-1:1:2 [0] NCCL INFO NET/Socket : Using [0]ens32:10.0.0.1<0>\nip-10-0-0-1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
        },
        [["sockets-between-hosts", "ib-device-not-passed", "ib-library-missing"]],
        [],
    ),
    Variant(
        "ib disable env",
        {
            "l": head("2.21.5", "n1")
            + nccl("n1")
            + "NCCL_IB_DISABLE set by environment to 1.\n"
            + "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\nn1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
        },
        [["sockets-between-hosts", "ib-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "libibverbs missing multi",
        {
            "l": head("2.21.5", "n1")
            + "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\nn1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n",
            "i": "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n",
        },
        [["ib-library-missing"]],
        [],
    ),
    Variant(
        "port down",
        {
            "i": "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\nCA 'mlx5_1'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200\n"
        },
        [["check-fabric"]],
        [],
    ),
    Variant(
        "nic far",
        {
            "t": topo(
                [["X" if a == b else "NV18" for b in range(4)] for a in range(4)],
                numa=["0", "0", "1", "1"],
                nics={"mlx5_0": ["PIX", "PXB", "SYS", "SYS"], "mlx5_1": ["PXB", "PIX", "SYS", "SYS"]},
            )
        },
        [["nic-far-from-gpu"]],
        [],
    ),
    Variant(
        "async event port err",
        {"l": "\nn1:1:2 [0] transport/net_ib.cc:100 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"},
        [["check-fabric"]],
        [],
    ),
    Variant(
        "amd iommu rccl warn quote",
        {
            "l": '\nmi:1:2 [0] /long_pathname_so_that_rpms_can_package_the_debug_info/src/rccl/src/init.cc:200 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n',
            "c": "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n",
        },
        [["amd-iommu-pt"]],
        [],
    ),
    Variant(
        "amd iommu pt present",
        {
            "c": "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz root=/dev/sda1 ro amd_iommu=on iommu=pt\n",
            "t": "=============================== Link Type between two GPUs ===============================\n       GPU0         GPU1         \nGPU0   0            XGMI         \nGPU1   XGMI         0            \n",
        },
        [],
        ["amd-iommu-pt"],
    ),
    Variant(
        "2.29.2 hang",
        {"l": head("2.29.2") + ring(2, "P2P/CUMEM"), "n": "training hangs after 200 steps on 2 gpus\n"},
        [["nccl-version-bug"]],
        ["nccl-version-bug", "p2p-hang-iommu"],
    ),
    Variant(
        "2.29.3 hang",
        {"l": head("2.29.3") + ring(2, "P2P/CUMEM"), "n": "training hangs after 200 steps on 2 gpus\n"},
        [["collective-hang"]],
        ["nccl-version-bug", "p2p-hang-iommu"],
    ),
    Variant(
        "2.19.3 two hosts slow",
        {
            "l": devices(8, "NVIDIA H100 80GB HBM3")
            + head("2.19.3")
            + "gpu-box:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 64 nNodes 8 localRanks 8 localRank 0 MNNVL 0\ngpu-box:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA\n",
            "n": "all_reduce is slow on 8 nodes since the upgrade\n",
        },
        [["nccl-version-bug"]],
        [],
    ),
    Variant(
        "gb200 hang",
        {"L": listing(*["NVIDIA GB200"] * 4), "l": head("2.28.9"), "n": "all ranks hang at 100% util, no error\n"},
        [["nccl-version-bug"]],
        ["nccl-version-bug"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

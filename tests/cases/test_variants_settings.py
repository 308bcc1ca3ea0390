# ruff: noqa: E501 - the texts stand as the tools print them
"""Settings wherever they stand, old releases, memory of containers, networks between hosts, what ends a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import head, listing, nccl, ring, smi_q, smi_q_gpu

VARIANTS = [
    # D: transports and versions
    Variant(
        "nccl.conf cat",
        {"c": "$ cat /etc/nccl.conf\nNCCL_P2P_DISABLE=1\nNCCL_IB_DISABLE=1\n", "l": head("2.21.5") + ring(4, "SHM/direct/direct")},
        [["p2p-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "dockerfile env",
        {"c": "FROM pytorch/pytorch:2.3.0\nENV NCCL_P2P_DISABLE=1\nENV NCCL_DEBUG=INFO\n", "l": ring(2, "SHM/direct/direct")},
        [["p2p-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "os.environ in code",
        {
            "c": "import os\nos.environ['NCCL_P2P_DISABLE'] = '1'\nos.environ[\"NCCL_SHM_DISABLE\"] = \"1\"\n",
            "l": head("2.21.5")
            + "gpu-box:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
            + ring(2, "NET/Socket/0"),
        },
        [["p2p-disabled-by-environment", "shm-disabled-by-environment", "isolated-ranks-tcp"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "shm disabled sockets one host",
        {
            "l": head("2.21.5")
            + nccl()
            + "NCCL_SHM_DISABLE set by environment to 1\n"
            + "gpu-box:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
            + ring(2, "NET/Socket/0")
        },
        [["shm-disabled-by-environment", "isolated-ranks-tcp"]],
        ["p2p-unsupported*", "p2p-disabled-by-environment"],
    ),
    Variant(
        "torch nccl conflict pip",
        {"p": "torch                    2.4.0+cu121\nnvidia-nccl-cu12         2.20.5\n", "l": "NCCL version 2.18.3+cuda12.1\n"},
        [["nccl-version-mismatch"]],
        [],
    ),
    Variant(
        "blackwell old nccl no msg",
        {
            "L": listing("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090"),
            "l": "NCCL version 2.21.5+cuda12.4\n\nbox:1:2 [0] enqueue.cc:1405 NCCL WARN Cuda failure 209 'no kernel image is available for execution on the device'\n",
        },
        [["nccl-too-old-for-gpu", "torch-too-old-for-gpu"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "unhandled cuda err 5090",
        {
            "L": listing(*["NVIDIA GeForce RTX 5090"] * 2),
            "l": "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid argument'\n",
        },
        [["nccl-too-old-for-gpu", "needs-measurement"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "h100 nccl 2.12",
        {"L": listing(*["NVIDIA H100 PCIe"] * 2), "l": "NCCL version 2.12.12+cuda11.6\n"},
        [["nccl-too-old-for-gpu", "needs-measurement"]],
        ["p2p-unsupported*"],
    ),
    # F
    Variant(
        "k8s shm 64M",
        {
            "l": "\npod-0:1:2 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n\npod-0:1:2 [0] include/shm.h:41 NCCL WARN Error while creating shared memory segment nccl-shm-recv-6b3f (size 9637888)\n",
            "d": "Filesystem      Size  Used Avail Use% Mounted on\nshm              64M   64M     0 100% /dev/shm\n",
        },
        [["dev-shm-too-small"]],
        [],
    ),
    Variant(
        "sagemaker shm bus",
        {
            "l": "[1,0]<stderr>:[ip-10-0-1-1:00123] *** Process received signal ***\n[1,0]<stderr>:[ip-10-0-1-1:00123] Signal: Bus error (7)\n[1,0]<stderr>:[ip-10-0-1-1:00123] Signal code: Non-existant physical address (2)\n",
            "c": "docker run --gpus all -v /data:/data img torchrun --nproc_per_node 8 train.py\n",
        },
        [["dev-shm-too-small"]],
        ["gpu-lost"],
    ),
    Variant(
        "exitcode -7",
        {
            "l": "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -7) local_rank: 0 (pid: 321) of binary: /usr/bin/python\nSignal 7 (SIGBUS) received by PID 321\n",
            "d": "shm              64M     0   64M   0% /dev/shm\n",
        },
        [["dev-shm-too-small"]],
        [],
    ),
    # G/H
    Variant(
        "two nodes 1G ethernet",
        {
            "l": "node0:1:2 [0] NCCL INFO NET/Socket : Using [0]eno1:192.168.0.10<0>\nnode0:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\nnode0:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n",
            "e": "$ ethtool eno1 | grep Speed\n\tSpeed: 1000Mb/s\n",
        },
        [["sockets-between-hosts", "isolated-ranks-tcp"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "ifname lo",
        {
            "l": "n0:1:2 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\nn0:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n\nn0:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 127.0.0.1<37415> failed : Software caused connection abort\n"
        },
        [["wrong-interface"]],
        [],
    ),
    Variant(
        "route unreachable",
        {
            "l": "n0:1:2 [0] NCCL INFO Bootstrap : Using enp1s0:192.168.100.5<0>\n\nn0:1:2 [0] misc/socket.cc:456 NCCL WARN Net : Connect to 10.8.0.3<40123> failed : No route to host\n"
        },
        [["wrong-interface", "peer-unreachable"]],
        [],
    ),
    Variant(
        "multi nic same net",
        {
            "i": "2: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP group default qlen 1000\n    inet 10.10.0.11/16 brd 10.10.255.255 scope global ens1f0\n3: ens1f1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP group default qlen 1000\n    inet 10.10.0.12/16 brd 10.10.255.255 scope global ens1f1\n"
        },
        [["nics-share-subnet"]],
        ["wrong-interface"],
    ),
    Variant(
        "roce gid",
        {
            "l": "\nn0:1:2 [0] transport/net_ib.cc:1000 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca mlx5_0\n"
        },
        [["ib-retry-exceeded"]],
        [],
    ),
    Variant(
        "memlock slurm",
        {
            "l": "\nn0:1:2 [0] misc/ibvwrap.cc:250 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory errno 12\n",
            "u": "$ srun bash -c 'ulimit -l'\n64\n",
        },
        [["memlock-limit"]],
        [],
    ),
    Variant(
        "gdr no module dmabuf",
        {
            "l": "n0:1:2 [0] NCCL INFO DMA-BUF is not available on GPU device 0\nn0:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\nn0:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0\n"
        },
        [["gdr-missing"]],
        [],
    ),
    Variant(
        "hca list differs per host",
        {
            "a": "n0:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>\n",
            "b": "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB eth0:10.0.0.2<0>\n",
        },
        [["hca-set-mismatch"]],
        [],
    ),
    # I
    Variant(
        "vgpu smi q",
        {
            "q": smi_q(
                "550.90.05",
                *(
                    smi_q_gpu(
                        b,
                        "NVIDIA A40-48Q",
                        extra="    GPU Virtualization Mode\n        Virtualization Mode               : VGPU\n        Host VGPU Mode                    : N/A\n",
                    )
                    for b in ("02", "03")
                ),
            ),
            "l": head("2.21.5") + ring(2, "SHM/direct/direct"),
        },
        [["vgpu-p2p-limit", "needs-measurement"]],
        [],
    ),
    Variant(
        "mig two slices ddp",
        {
            "e": "$ echo $CUDA_VISIBLE_DEVICES\nMIG-1,MIG-2\n",
            "L": listing("NVIDIA A100 80GB PCIe", mig={0: ["3g.40gb", "3g.40gb"]}),
            "l": "RuntimeError: CUDA error: invalid device ordinal\n",
        },
        [["mig-no-p2p", "ranks-share-gpu"]],
        [],
    ),
    # N
    Variant(
        "barrier timeout monitored",
        {
            "l": "RuntimeError: Rank 0 timed out in monitoredBarrier after 1800000 ms. Waited for ranks: 3\nRank 3 failed to pass monitoredBarrier in 1800000 ms\n"
        },
        [["rendezvous-failed", "collective-timeout", "ranks-desynchronised"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "flight desync",
        {
            "l": "[E ProcessGroupNCCL.cpp:485] Some NCCL operations have failed or timed out.\n - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n   - [1] joined but didn't finish collective #77 (count from 1)\n - Snapshot of ranks' latest states:\n   #77 started ranks:\n     [1] started ALLREDUCE\n"
        },
        [["ranks-desynchronised", "collective-timeout"]],
        [],
    ),
    Variant(
        "heartbeat",
        {
            "l": "[rank0]:[F ProcessGroupNCCL.cpp:1385] [PG 0 Rank 0] [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog\n"
        },
        [["collective-hang"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "nan watchdog xid",
        {
            "d": "[1] NVRM: Xid (PCI:0000:81:00): 94, pid=100, name=python, Contained: SM (0x1). RST: No, D-RST: No\n",
            "l": "[E ProcessGroupNCCL.cpp:475] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800100 milliseconds before timing out.\n",
        },
        [["ecc-uncorrectable"], ["collective-timeout"]],
        [],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

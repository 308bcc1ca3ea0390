# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of the kinds that NCCL's logs tell: versions, transports, shared memory, networks, AMD; other cards, releases and launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import devices, head, listing, nccl, pairs, ring, sweep, topo

P2P = "p2p-unsupported*"
TOO_BIG = "ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856"


def warn(file: str, text: str, host: str = "gpu-box", dev: int = 0) -> str:
    return f"\n{host}:{1201 + dev}:{1601 + dev} [{dev}] {file} NCCL WARN {text}\n"


def check_line(policy: int, cuda: int | None = None) -> str:
    return f"{nccl()}Check P2P Type isAllDirectP2p {policy} directMode 0" + (f" isAllCudaP2p {cuda}\n" if cuda is not None else "\n")


def nodes(ranks: int, count: int, local: int, host: str = "gpu-box", rank: int = 0, dev: int = 0) -> str:
    return f"{nccl(host, dev=dev)}comm 0x55aa{rank} rank {rank} nRanks {ranks} nNodes {count} localRanks {local} localRank 0 MNNVL 0\n"


def init(rank: int, ranks: int, bus: str, host: str, comm: str = "0xabc1") -> str:
    return (
        f"{host}:77:{90 + rank} [0] NCCL INFO ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 "
        f"busId {bus} commId {comm} - Init START\n"
    )


VARIANTS = [
    # C14
    Variant(
        "C14 two 5080, 2.25.1, names from -L",
        {
            "l": head("2.25.1", cuda="12.8") + f"{nccl()}{TOO_BIG}\n{nccl(dev=1)}{TOO_BIG}\n" + ring(2, "SHM/direct/direct"),
            "L": listing("NVIDIA GeForce RTX 5080", "NVIDIA GeForce RTX 5080"),
        },
        [["nccl-too-old-for-gpu"]],
        [P2P],
    ),
    Variant(
        "C14 eight RTX PRO 6000 in nccl-tests",
        {
            "l": devices(8, "NVIDIA RTX PRO 6000 Blackwell Server Edition")
            + "NCCL version 2.24.3+cuda12.6\n"
            + f"{nccl()}{TOO_BIG}\n"
            + "gpu-box: Test NCCL failure common.cu:1005 'unhandled cuda error'\n"
        },
        [["nccl-too-old-for-gpu"]],
        [P2P],
    ),
    Variant(
        "C14 torch says it for its own kernels",
        {
            "l": "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
            "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.\n"
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        },
        [["nccl-too-old-for-gpu", "torch-too-old-for-gpu"]],
        [P2P],
    ),
    # C15
    Variant(
        "C15 5090 D, 2.27.5",
        {
            "b": devices(2, "NVIDIA GeForce RTX 5090 D")
            + "NCCL version 2.27.5+cuda12.8\n"
            + sweep([(131072, 4.2), (262144, 6.8)], 2)
            + "gpu-box: Test CUDA failure common.cu:401 'an illegal memory access was encountered'\n .. gpu-box pid 4100: Test failure\n"
        },
        [["nccl-version-bug"]],
        ["p2p-hang-iommu", "p2p-hang-acs"],
    ),
    Variant(
        "C15 four workstation cards, from 1 MiB",
        {
            "b": devices(4, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
            + "NCCL version 2.27.3+cuda12.9\n"
            + sweep([(262144, 5.0), (524288, 6.5)], 4)
            + "gpu-box: Test CUDA failure common.cu:401 'an illegal memory access was encountered'\n"
        },
        [["nccl-version-bug"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "C15 prose: two versions, one crashes",
        {"n": "With NCCL 2.26.2 all_reduce crashes above 512K. NCCL 2.31.2 works on the same machine.\n"},
        [["nccl-version-bug"]],
        ["p2p-hang-iommu"],
    ),
    # C22
    Variant(
        "C22 the log proves it alone",
        {"l": head("2.28.9") + check_line(0, 1) + ring(4, "SHM/direct/direct"), "t": topo(pairs(4, "NODE"))},
        [["p2p-level-too-low"]],
    ),
    Variant(
        "C22 eight cards over two sockets, two launchers",
        {
            "a.log": head("2.27.5") + check_line(0) + ring(8, "SHM/direct/direct"),
            "b.log": head("2.27.5") + f"{nccl()}NCCL_P2P_LEVEL set by environment to SYS\n" + check_line(1) + ring(8, "P2P/IPC"),
            "t": topo(pairs(8, "SYS")),
        },
        [["p2p-level-too-low"]],
    ),
    Variant(
        "C22 the driver says OK, the log goes through host memory",
        {
            "l": head("2.24.3") + check_line(0) + ring(2, "SHM/direct/direct"),
            "t": topo(pairs(2, "SYS")),
            "p": "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n",
        },
        [["p2p-level-too-low"]],
    ),
    # C20, C25
    Variant(
        "C20 two A5000, markdown table",
        {
            "b": "| config | all_reduce busbw GB/s |\n|---|---|\n| default (SHM/direct) | 2.4 |\n| NCCL_SHM_USE_CUDA_MEMCPY=1 | 12.1 |\n",
            "l": head("2.27.3") + ring(2, "SHM/direct/direct"),
        },
        [["shm-direct-slow"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "C20 eight cards, columns by count, IOMMU on",
        {
            "b": "# all_reduce busbw GB/s, 8x RTX 4090\n# config                     k=2    k=4    k=8\ndefault                      2.1    2.0    1.9\n"
            "NCCL_SHM_USE_CUDA_MEMCPY=1   11.0   10.2   9.8\n# AMD-Vi enabled, translated\n"
        },
        [["shm-direct-slow"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "C20 the log and a slow sweep",
        {
            "l": devices(4, "NVIDIA GeForce RTX 4090")
            + head("2.26.2")
            + ring(4, "SHM/direct/direct")
            + sweep([(134217728, 2.2), (268435456, 2.2)], 4)
        },
        [["shm-direct-slow"]],
        ["p2p-hang-iommu"],
    ),
    Variant(
        "C25 six 3090, old spelling",
        {
            "l": devices(6, "NVIDIA GeForce RTX 3090")
            + head("2.10.3")
            + ring(6, "direct shared memory", bracket=["1a000", "1b000", "3d000", "3e000", "88000", "89000"])
        },
        [["shm-tuning", "shm-direct-slow"]],
    ),
    Variant(
        "C25 two cards, their table of buffer sizes",
        {
            "l": head("2.21.5") + ring(2, "SHM/direct/direct"),
            "b": "all_reduce busbw GB/s\nsetting                2 GPUs\ndefault                  4.1\nNCCL_BUFFSIZE=1048576    5.9\n"
            "| setting | all_reduce busbw GB/s |\n|---|---|\n| default | 4.1 |\n| NCCL_BUFFSIZE=1048576 | 5.9 |\n",
        },
        [["shm-tuning", "shm-direct-slow"]],
    ),
    Variant(
        "C25 four L20, 2.28",
        {"l": devices(4, "NVIDIA L20") + head("2.28.3") + ring(4, "SHM/direct/direct")},
        [["shm-tuning", "shm-direct-slow"]],
    ),
    # C27: versions and islands
    Variant(
        "C27 four A6000 bridged in pairs",
        {"t": topo(pairs(4, "SYS", p01="NV4", p23="NV4"), numa=["0", "0", "1", "1"])},
        [["nvlink-islands"]],
    ),
    Variant(
        "C27 eight A100 PCIe, pairs NV12",
        {"t": topo(pairs(8, "SYS", p01="NV12", p23="NV12", p45="NV12", p67="NV12"))},
        [["nvlink-islands"]],
    ),
    Variant("C27 one bridge among four 3090", {"t": topo(pairs(4, "PHB", p01="NV4"))}, [["nvlink-islands"]]),
    Variant("C27 said in prose", {"n": "NCCL 2.16.2 is 10x slower than before. With NCCL 2.14.3 it is fine.\n"}, [["nccl-version-bug"]]),
    # C30
    Variant(
        "C30 MI250X, no quotes",
        {
            "l": "frontier:88:88 [0] NCCL INFO Bootstrap : Using hsn0:10.128.0.4<0>\n"
            '\nfrontier:88:88 [0] /builds/rccl/src/init.cc:176 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
            "RCCL version 2.20.5+hip6.2 HEAD:d380693+\n"
        },
        [["amd-iommu-pt"]],
        ["p2p-hang-acs"],
    ),
    Variant(
        "C30 the kernel passes through: a false alarm",
        {
            "l": '\nn1:88:88 [0] /src/init.cc:176 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n',
            "c": "$ grep IOMMU /boot/config-6.8.0\nCONFIG_IOMMU_DEFAULT_PASSTHROUGH=y\n",
        },
        [["amd-iommu-pt"]],
        ["*"],
    ),
    Variant(
        "C30 two consumer cards and a hang",
        {
            "l": '\nn1:88:88 [0] /src/init.cc:128 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
            "RCCL version 2.18.3+hip6.0 develop:1234567\n",
            "n": "DDP training hangs at the first all_reduce on 2x RX 7900 XTX\n",
        },
        [["amd-iommu-pt"]],
        ["p2p-hang-acs", "driver-p2p-bug"],
    ),
    # C32, C34
    Variant(
        "C32 newer words",
        {"l": head("2.18.3") + warn("misc/shmutils.cc:72", "Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes")},
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C32 retrying, 2.26",
        {
            "l": head("2.26.2")
            + f"{nccl()}fallocate: Failed to extend /dev/shm/nccl-AbCdEf to 33030532 bytes, error: No space left on device (28) - retrying\n"
            + warn(
                "misc/shmutils.cc:87", "Error: failed to extend /dev/shm/nccl-AbCdEf to 33030532 bytes, error: No space left on device (28)"
            )
        },
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C32 two GPUs, df along",
        {
            "l": warn("include/shm.h:28", "Call to posix_fallocate failed : No space left on device"),
            "d": "$ df -h /dev/shm\nFilesystem      Size  Used Avail Use% Mounted on\nshm              64M   60M  4.0M  94% /dev/shm\n",
        },
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C34 with hosts, eight ranks",
        {
            "l": "".join(
                warn("misc/shmutils.cc:103", "Cuda failure 'invalid argument'", dev=k)
                + warn("misc/shmutils.cc:114", f"Error while creating shared memory segment /dev/shm/nccl-q{k}Zx1 (size 9637888)", dev=k)
                for k in range(8)
            )
        },
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C34 behind torch's words",
        {
            "l": "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error, NCCL version 2.21.5\n"
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
            "Last error:\nError while creating shared memory segment /dev/shm/nccl-pZafXL (size 7340384)\n"
        },
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C34 docker run without a size",
        {
            "l": warn("misc/shmutils.cc:114", "Error while creating shared memory segment /dev/shm/nccl-pZafXL (size 9637888)"),
            "c": "$ docker run --gpus all -it --rm pytorch/pytorch:2.3.0 bash\n",
        },
        [["dev-shm-too-small"]],
    ),
    Variant(
        "C34 cuMem host memory, 2.27",
        {"l": head("2.27.3") + warn("transport/shm.cc:590", "Cuda failure 217 'peer access is not supported between these two devices'")},
        [["cumem-host-shm-failed"]],
        ["dev-shm-too-small"],
    ),
    # C36
    Variant(
        "C36 two docker containers of a box",
        {
            "a.log": head("2.21.5", "4f1c0ffee001")
            + nodes(4, 2, 2, "4f1c0ffee001")
            + "4f1c0ffee001:1201:1601 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/0\n"
            + "4f1c0ffee001:1202:1602 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0\n"
        },
        [["isolated-ranks-tcp", "sockets-between-hosts"]],
        [P2P],
    ),
    Variant(
        "C36 pods with their GPUs at different addresses",
        {
            f"{k}.log": init(k, 4, f"{k + 3}b000", f"train-{k}")
            + nodes(4, 4, 1, f"train-{k}", k)
            + f"train-{k}:77:{90 + k} [0] NCCL INFO Channel 00/0 : {k}[0] -> {(k + 1) % 4}[0] [send] via NET/Socket/0\n"
            for k in range(2)
        },
        [["isolated-ranks-tcp", "sockets-between-hosts"]],
        [P2P],
    ),
    Variant(
        "C36 two servers over Ethernet",
        {
            "l": head("2.23.4", "node01")
            + nodes(16, 2, 8, "node01")
            + "node01:1201:1601 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/1\n"
        },
        [["sockets-between-hosts", "isolated-ranks-tcp"]],
        [P2P, "p2p-disabled-by-environment"],
    ),
    # C38
    Variant(
        "C38 completion queue, ulimit -a",
        {
            "l": warn("misc/ibvwrap.cc:245", "Call to ibv_create_cq failed with error Cannot allocate memory"),
            "u": "max locked memory       (kbytes, -l) 64\nmax memory size         (kbytes, -m) unlimited\nopen files                      (-n) 1024\n",
        },
        [["memlock-limit"]],
    ),
    Variant(
        "C38 the message alone",
        {
            "l": warn("misc/ibvwrap.cc:178", "Call to ibv_reg_mr failed")
            + warn("misc/ibvwrap.cc:292", "Call to ibv_reg_mr failed with error Cannot allocate memory")
        },
        [["memlock-limit"]],
    ),
    Variant(
        "C38 /proc limits",
        {
            "l": warn("misc/ibvwrap.cc:278", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "n7"),
            "p": "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \n",
        },
        [["memlock-limit"]],
    ),
    # C39
    Variant(
        "C39 brief form",
        {
            "i": "$ ip -br addr\nlo               UNKNOWN        127.0.0.1/8\nens3f0           UP             192.168.1.10/24\nens6             UP             192.168.1.11/24\n",
            "l": head("2.21.5", "n1")
            + nodes(8, 2, 4, "n1")
            + "n1:1:2 [0] NCCL INFO Channel 00/0 : 7[3] -> 0[0] [receive] via NET/Socket/0\n",
        },
        [["nics-share-subnet"]],
        ["wrong-interface"],
    ),
    Variant(
        "C39 ifconfig",
        {
            "i": "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500\n        inet 10.1.0.5  netmask 255.255.0.0  broadcast 10.1.255.255\n\n"
            "eth1: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 9000\n        inet 10.1.0.6  netmask 255.255.0.0  broadcast 10.1.255.255\n"
        },
        [["nics-share-subnet"]],
        ["wrong-interface"],
    ),
    Variant(
        "C39 different subnets are fine",
        {"i": "$ ip -br addr\nlo UNKNOWN 127.0.0.1/8\neth0 UP 10.0.1.5/24\neth1 UP 10.0.2.5/24\ndocker0 DOWN 172.17.0.1/16\n"},
        [],
        ["nics-share-subnet", "wrong-interface"],
    ),
    Variant(
        "C39 really the wrong interface",
        {
            "l": "n1:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
            + warn("misc/socket.cc:480", "socketStartConnect: Connect to 172.17.0.1<45321> failed : Connection refused", "n1")
        },
        [["wrong-interface"]],
    ),
    # C41
    Variant(
        "C41 eight cards of one node",
        {
            "l": head("2.19.3", "n3")
            + nodes(16, 2, 8, "n3")
            + "".join(f"n3:1201:1601 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA {k} 'mlx5_{k}'\n" for k in range(8))
            + "n3:1201:1601 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0\n"
        },
        [["gdr-missing"]],
    ),
    Variant(
        "C41 one end only, two files",
        {
            "a": "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n",
            "b": "n2:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0\n",
        },
        [["gdr-missing"]],
    ),
    Variant(
        "C41 with the reason",
        {
            "l": "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n"
            "n1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n"
        },
        [["gdr-missing"]],
    ),
    # C46
    Variant(
        "C46 GRID names and a PIX pair",
        {"L": listing("GRID A100X-40C", "GRID A100X-40C"), "t": topo(pairs(2, "PIX"))},
        [["vgpu-p2p-limit", "needs-measurement"]],
    ),
    Variant(
        "C46 801 in another file of NCCL",
        {"l": head("2.24.3") + warn("transport/p2p.cc:288", "Cuda failure 801 'operation not supported'")},
        [["vgpu-p2p-limit", "needs-measurement"]],
    ),
    Variant(
        "C46 the driver refuses virtual GPUs",
        {
            "L": listing("NVIDIA H100XM-80C", "NVIDIA H100XM-80C"),
            "p": "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n",
        },
        [["vgpu-p2p-limit"]],
    ),
    # C48
    Variant(
        "C48 all ranks on the first card",
        {
            "l": "".join(
                warn("init.cc:769", f"Duplicate GPU detected : rank {k} and rank 0 both on CUDA device 3b000", dev=0) for k in range(1, 4)
            )
        },
        [["mig-no-p2p", "ranks-share-gpu"]],
    ),
    Variant("C48 A30 slices", {"L": listing("NVIDIA A30", mig={0: ["2g.12gb", "2g.12gb"]})}, [["mig-no-p2p", "ranks-share-gpu"]]),
    Variant(
        "C48 torch repeats it",
        {
            "l": "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n"
        },
        [["mig-no-p2p", "ranks-share-gpu"]],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_another_log_of_this_kind_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

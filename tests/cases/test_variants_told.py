# ruff: noqa: E501, W291 - the texts stand as the tools print them
"""More texts about peer access, hangs, versions, shared memory and networks: samples, notes and logs as other people paste them."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import devices, head, listing, nccl, ring

VARIANTS = [
    # --- p2p off
    Variant(
        "torch loop prose",
        {
            "a": """I rented 4x RTX 3090 on vast.ai.
>>> torch.cuda.can_device_access_peer(0,1)
False
>>> torch.cuda.can_device_access_peer(2,3)
False
"""
        },
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "simpleP2P sample",
        {
            "a": """[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: 2

Checking GPU(s) for support of peer to peer memory access...
> Peer access from NVIDIA GeForce RTX 4090 (GPU0) -> NVIDIA GeForce RTX 4090 (GPU1) : No
> Peer access from NVIDIA GeForce RTX 4090 (GPU1) -> NVIDIA GeForce RTX 4090 (GPU0) : No
Two or more GPUs with Peer-to-Peer access capability are required for ./simpleP2P.
Peer to Peer access is not available amongst GPUs in the system, waiving test.
"""
        },
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "deviceQuery",
        {
            "a": """> Peer access from NVIDIA RTX A5000 (GPU0) -> NVIDIA RTX A5000 (GPU1) : Yes
> Peer access from NVIDIA RTX A5000 (GPU1) -> NVIDIA RTX A5000 (GPU0) : Yes

deviceQuery, CUDA Driver = CUDART, CUDA Driver Version = 12.4, CUDA Runtime Version = 12.1, NumDevs = 2
Result = PASS
"""
        },
        [["healthy", "needs-measurement"]],
        ["*"],
    ),
    Variant(
        "nccl env disable in log",
        {"a": head("2.21.5") + nccl() + "NCCL_P2P_DISABLE set by environment to 1\n" + ring(4, "SHM/direct/direct")},
        [["p2p-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "nccl.conf says",
        {"a": head("2.21.5") + nccl() + "NCCL_P2P_LEVEL set by environment to LOC\n" + ring(2, "SHM/direct/direct")},
        [["p2p-disabled-by-environment"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "env dump",
        {"a": "$ env | grep NCCL\nNCCL_DEBUG=INFO\nNCCL_P2P_DISABLE=1\nNCCL_IB_DISABLE=1\n", "b": ring(2, "SHM/direct/direct")},
        [["p2p-disabled-by-environment"]],
        [],
    ),
    Variant(
        "accelerate 4000",
        {
            "a": """NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1" or use `accelerate launch` which will do this automatically.
"""
        },
        [["p2p-unsupported*", "p2p-disabled-by-environment", "needs-measurement"]],
        [],
    ),
    Variant(
        "accelerate launch note",
        {
            "a": """The following values were not passed to `accelerate launch` and had defaults used instead:
	`--num_processes` was set to a value of `2`
[WARNING] Using RTX 4000 series which doesn't support faster communication speedups. Ensuring P2P and IB communications are disabled.
""",
            "b": listing("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        },
        [["p2p-unsupported*", "p2p-disabled-by-environment"]],
        [],
    ),
    Variant(
        "vllm custom ar p2p",
        {
            "a": "WARNING 08-01 12:00:00 custom_all_reduce.py:118] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.\n"
        },
        [["p2p-unsupported*", "custom-all-reduce-off"]],
        ["p2p-wrong-data"],
    ),
    # --- hang
    Variant(
        "dmesg DMAR",
        {
            "a": "[  812.3] DMAR: DRHD: handling fault status reg 2\n[  812.3] DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0xd8000000 [fault reason 0x06] PTE Read access is not set\n",
            "n": "all_reduce hangs on 2 GPUs unless NCCL_P2P_DISABLE=1\n",
        },
        [["p2p-hang-iommu"]],
        [],
    ),
    Variant(
        "AMD-Vi page faults",
        {
            "a": "[  120.1] nvidia 0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0020 address=0xd0e00000 flags=0x0020]\n[  120.1] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0xd0e00100 flags=0x0020]\n"
        },
        [["p2p-hang-iommu"]],
        ["p2p-hang-acs"],
    ),
    Variant(
        "lspci acs on and hang",
        {
            "a": """40:01.1 PCI bridge: PLX Technology, Inc. PEX 8796 96-lane
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
""",
            "n": "p2pBandwidthLatencyTest hangs. 8x A100 PCIe.\n",
        },
        [["p2p-hang-acs"]],
        [],
    ),
    Variant(
        "cmdline iommu on amd",
        {
            "a": "$ cat /proc/cmdline\nBOOT_IMAGE=/boot/vmlinuz-5.15.0-91-generic root=UUID=xxx ro amd_iommu=on\n$ dmesg | grep -i iommu\n[    0.9] iommu: Default domain type: Translated\n",
            "n": "training with 4 GPUs hangs at nccl init, GPU util 100%\n",
            "l": ring(4, "P2P/IPC"),
        },
        [["p2p-hang-iommu", "iommu-check"]],
        ["p2p-hang-acs"],
    ),
    Variant(
        "bios disable acs fixes", {"n": "Multi-GPU NCCL all-reduce hung. Disabling ACS in the BIOS fixed it.\n"}, [["p2p-hang-acs"]], []
    ),
    Variant(
        "iommu off fixed",
        {"n": "After disabling IOMMU in the BIOS the hang with P2P is gone. 2x RTX 6000 Ada.\n"},
        [["p2p-hang-iommu"]],
        ["p2p-hang-acs"],
    ),
    Variant(
        "wrong data from python",
        {"n": "copy GPU0 -> GPU1: MISMATCH (max diff 3.4)\ncopy GPU1 -> GPU0: MISMATCH (max diff 1.1)\n"},
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "nccl-tests wrong column",
        {
            "b": devices(2, "NVIDIA GeForce RTX 4090")
            + """#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     1048576        262144     float     sum      -1   120.5    8.70    8.70   131072    119.1    8.80    8.80   131072
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 8.75
"""
        },
        [["collective-wrong-data", "p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "simpleP2P verification",
        {
            "a": """Enabling peer access between GPU0 and GPU1...
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 25.07GB/s
Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...
Copy data back to host from GPU0 and verify results...
Verification error @ element 1: val = 0.000000, ref = 4.000000
Verification error @ element 2: val = 0.000000, ref = 8.000000
Disabling peer access...
Test failed!
"""
        },
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    # --- version
    Variant(
        "mixed NCCL versions",
        {
            "l": "node1:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nNCCL version 2.18.3+cuda12.1\n\nnode2:1:9 [0] init.cc:1400 NCCL WARN Mismatched NCCL version detected : rank 0 21803 rank 8 21903\n"
        },
        [["nccl-version-mismatch"]],
        [],
    ),
    Variant("torch no cuda", {"l": "AssertionError: Torch not compiled with CUDA enabled\n"}, [["torch-without-cuda"]], []),
    Variant(
        "driver lib mismatch",
        {"l": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n"},
        [["driver-library-mismatch"]],
        [],
    ),
    Variant(
        "kernel api mismatch",
        {
            "l": "[  34.1] NVRM: API mismatch: the client has the version 550.54.15, but\nNVRM: this kernel module has the version 550.54.14.  Please\nNVRM: make sure that this kernel module and all NVIDIA driver\nNVRM: components have the same version.\n"
        },
        [["driver-library-mismatch"]],
        [],
    ),
    Variant(
        "torch too old H100",
        {
            "l": "NVIDIA H100 80GB HBM3 with CUDA capability sm_90 is not compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86.\n"
        },
        [["nccl-too-old-for-gpu", "torch-too-old-for-gpu"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "driver too old",
        {
            "l": "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx\n"
        },
        [["*driver*", "torch*"]],
        ["p2p-unsupported*"],
    ),
    # shm
    Variant(
        "bus error docker",
        {
            "l": "RuntimeError: DataLoader worker (pid 4321) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n"
        },
        [["dev-shm-too-small"]],
        [],
    ),
    Variant(
        "df shm and no size",
        {
            "l": "shm              64M     0   64M   0% /dev/shm\n",
            "w": "\nbox:9:9 [0] misc/shmutils.cc:70 NCCL WARN Error: failed to extend /dev/shm/nccl-abcdef to 9637892 bytes\n",
        },
        [["dev-shm-too-small"]],
        [],
    ),
    Variant(
        "nvidia container shm note",
        {
            "l": "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be\n   insufficient for PyTorch.  NVIDIA recommends the use of the following flags:\n   docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ...\n"
        },
        [["dev-shm-too-small"]],
        [],
    ),
    # nets
    Variant(
        "no socket if",
        {
            "l": "\nn1:9:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
            + nccl("n1")
            + "NCCL_SOCKET_IFNAME set by environment to eth0\n",
            "i": "$ ip -br addr\nlo UNKNOWN 127.0.0.1/8\nens5 UP 10.0.1.5/24\n",
        },
        [["wrong-interface"]],
        [],
    ),
    Variant(
        "gloo connect loopback",
        {
            "l": "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n[W socket.cpp:697] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).\n"
        },
        [["rendezvous-failed"]],
        [],
    ),
    Variant(
        "ib not passed",
        {
            "l": head("2.21.5", "w0")
            + "w0:1:2 [0] NCCL INFO NET/IB : No device found.\nw0:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n",
            "h": "host$ ibstat\nCA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n",
        },
        [["ib-device-not-passed", "sockets-between-hosts"]],
        [],
    ),
    Variant(
        "ib retry",
        {
            "l": "\nn1:9:9 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<40000> with error 12, opcode 0, len 0, vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_0\n"
        },
        [["ib-retry-exceeded"]],
        [],
    ),
    Variant(
        "ib status 12 old",
        {
            "l": "\nn1:9:9 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion from peer 10.1.1.2<33333> with error 12, opcode 32601, len 0, vendor err 129\n"
        },
        [["ib-retry-exceeded"]],
        [],
    ),
    Variant(
        "roce gid",
        {"l": "\nn1:9:9 [0] misc/ibvwrap.cc:307 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n"},
        [["check-fabric", "ib-retry-exceeded", "wrong-interface", "needs-measurement"]],
        [],
    ),
    Variant(
        "qp invalid",
        {"l": "\nn1:9:9 [0] misc/ibvwrap.cc:307 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable\n"},
        [["check-fabric", "wrong-interface", "needs-measurement"]],
        [],
    ),
    Variant(
        "hca sets differ",
        {
            "a": "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB eth0:10.0.0.1<0>\n",
            "b": "n2:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.0.0.2<0>\n",
        },
        [["hca-set-mismatch"]],
        [],
    ),
    Variant(
        "memlock",
        {"l": "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.\n    This will severely limit memory registrations.\n"},
        [["memlock-limit"]],
        [],
    ),
    # --- a hang told a few lines below what hangs, and its cure in words
    Variant(
        "cure in words",
        {"a": "# Hang with nccl all_reduce_perf on 8 cards RTX 4090\nIf p2p disabled, things all going well.\n"},
        [["collective-hang", "p2p-*"]],
        ["healthy"],
    ),
    Variant(
        "cure by the variable",
        {
            "a": "GPUs: 2x RTX PRO 6000, NCCL 2.29\n./build/all_reduce_perf -b 8 -e 512M -f 2 -g 2\n\n3. Watch it hang with the CPUs at 100%. With NCCL_P2P_DISABLE=1 it completes fine.\n"
        },
        [["collective-hang", "p2p-*"]],
        ["healthy"],
    ),
    Variant(
        "no subject of its own",
        {"a": "Training with DDP on 4 GPUs.\nAfter the first batch everything hangs for ever.\n"},
        [["collective-hang"]],
        ["healthy"],
    ),
    Variant(
        "nothing of several GPUs",
        {"a": "I opened the editor.\nThen it hangs for ever.\n"},
        [],
        ["collective-hang"],
    ),
    Variant(
        "cure that was only advised",
        {"a": "NCCL hangs at init on 2 GPUs. You could try whether it works with P2P disabled.\n"},
        [["collective-hang"]],
        ["p2p-*"],
    ),
    # --- shared memory, by its cure
    Variant(
        "cured by ipc",
        {
            "a": "fastmoe: Test NCCL failure common.cu:777 'unhandled system error'\n\nAfter running docker with `--ipc=host`, the error disappeared.\n"
        },
        [["dev-shm-too-small"]],
        ["healthy"],
    ),
    Variant(
        "cured by shm-size",
        {"a": "RuntimeError: NCCL Error 2: unhandled system error\nSolved it by increasing the shared memory of the container.\n"},
        [["dev-shm-too-small"]],
        ["healthy"],
    ),
    Variant(
        "not cured by shm-size",
        {"a": "NCCL Error 2: unhandled system error on 4 GPUs. Using --shm-size=16g did not help.\n"},
        [["needs-measurement"]],
        ["dev-shm-too-small"],
    ),
    Variant(
        "advised",
        {"a": "NCCL Error 2: unhandled system error on 4 GPUs. You should try whether --ipc=host works.\n"},
        [["needs-measurement"]],
        ["dev-shm-too-small"],
    ),
    # --- titles, and hangs "without" a setting
    Variant(
        "title with a tag",
        {"a": "[Bug]: Multi-GPU setup hangs without NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce\n"},
        [["collective-hang", "p2p-*"]],
        ["healthy"],
    ),
    Variant(
        "title with a tag, quoted",
        {"a": "# [Usage]: two 3090 hang at NCCL init without setting `NCCL_P2P_DISABLE=1`\n"},
        [["collective-hang", "p2p-*"]],
        ["healthy"],
    ),
    # --- libraries beside each other
    Variant(
        "symbol in a sentence",
        {
            "a": "[pip3] nvidia-nccl-cu12==2.29.3\n[pip3] nvidia-nccl-cu13==2.29.7\n[pip3] torch==2.12.0+cu130\nImporting PyTorch results in undefined symbol ncclCommResume\n"
        },
        [["nccl-version-mismatch"]],
        ["healthy"],
    ),
    Variant(
        "symbol of something else",
        {"a": "ImportError: libtorchaudio.so: undefined symbol: av_version_info\n"},
        [],
        ["nccl-version-mismatch"],
    ),
    Variant(
        "two that differ",
        {
            "a": '$ python -c "import torch;print(torch.cuda.nccl.version())"\n(2, 28, 9)\n$ pip show nvidia-nccl-cu13\nName: nvidia-nccl-cu13\nVersion: 2.30.4\n'
        },
        [["nccl-version-mismatch"]],
        ["healthy"],
    ),
    Variant(
        "two that agree",
        {
            "a": '$ python -c "import torch;print(torch.cuda.nccl.version())"\n(2, 28, 9)\n$ pip show nvidia-nccl-cu13\nName: nvidia-nccl-cu13\nVersion: 2.28.9\n'
        },
        [],
        ["nccl-version-mismatch"],
    ),
    Variant(
        "memory that EFA may not lock",
        {
            "a": "ip-10-0-87-143:149:298 [5] register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, Error: Cannot allocate memory\n"
        },
        [["memlock-limit"]],
        ["healthy"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

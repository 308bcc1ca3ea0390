# ruff: noqa: E501, E101, W291 - the texts stand as the tools print them
"""More texts about machines: NVLink, fabrics, PCIe, GPUs that fail, virtual machines, slices, mixed cards, AMD."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import head, listing, nccl, p2p, pairs, ring, smi_q, smi_q_gpu, topo

H100 = "NVIDIA H100 80GB HBM3"
HGX = [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]

VARIANTS = [
    # --- nvlink
    Variant(
        "nvlink -s inactive links",
        {
            "a": """$ nvidia-smi nvlink --status
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
	 Link 0: 25 GB/s
	 Link 1: 25 GB/s
	 Link 2: <inactive>
	 Link 3: <inactive>
	 Link 4: 25 GB/s
	 Link 5: 25 GB/s
	 Link 6: 25 GB/s
	 Link 7: 25 GB/s
	 Link 8: 25 GB/s
	 Link 9: 25 GB/s
	 Link 10: 25 GB/s
	 Link 11: 25 GB/s
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)
"""
            + "".join(f"	 Link {k}: 25 GB/s\n" for k in range(12))
        },
        [["nvlink-partial"]],
        [],
    ),
    Variant(
        "topo 7 of 8 has fewer",
        {
            "a": topo([["X" if a == b else ("NV16" if 3 in (a, b) else "NV18") for b in range(8)] for a in range(8)]),
            "L": listing(*[H100] * 8),
        },
        [["nvlink-partial"]],
        [],
    ),
    Variant(
        "bridged pair all inactive",
        {
            "a": "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)\n"
            + "".join(f"	 Link {k}: <inactive>\n" for k in range(4))
            + "GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-2)\n"
            + "".join(f"	 Link {k}: <inactive>\n" for k in range(4)),
            "t": topo(pairs(2, "PHB")),
        },
        [["no-nvlink-bridge", "nvlink-partial"]],
        [],
    ),
    Variant(
        "xid 74",
        {
            "a": "[12.5] NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n"
        },
        [["nvlink-xid"]],
        ["gpu-lost"],
    ),
    Variant(
        "nvlink errors",
        {
            "a": "$ nvidia-smi nvlink -e\nGPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n	 Link 0: Replay Errors: 0\n	 Link 0: Recovery Errors: 0\n	 Link 0: CRC Errors: 0\n	 Link 5: Replay Errors: 4312\n	 Link 5: Recovery Errors: 12\n	 Link 5: CRC Errors: 900122\n"
        },
        [["nvlink*"]],
        [],
    ),
    Variant(
        "sxid",
        {
            "a": "[ 900.1] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 32 LTSSM Fault Up\n[900.2] NVRM: Xid (PCI:0000:1b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3\n"
        },
        [["nvlink-xid"]],
        [],
    ),
    # fabric
    Variant(
        "fabric in progress",
        {
            "a": "    Fabric\n        State                             : In Progress\n        Status                            : N/A\n        CliqueId : N/A\n",
            "L": listing(*[H100] * 8),
        },
        [["fabric-not-ready"]],
        [],
    ),
    Variant(
        "fm not running",
        {
            "a": "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; disabled; vendor preset: enabled)\n     Active: inactive (dead)\n",
            "L": listing(*["NVIDIA A100-SXM4-80GB"] * 8),
        },
        [["fabric-not-ready"]],
        [],
    ),
    Variant(
        "partition missing p2p ns",
        {"p": p2p(8, "NS", "n"), "t": topo([["X" if a == b else "SYS" for b in range(8)] for a in range(8)]), "L": listing(*[H100] * 8)},
        [["nvswitch-partition-missing", "fabric-not-ready", "nvlink*"]],
        [],
    ),
    Variant(
        "healthy hgx log",
        {"t": topo(HGX), "l": head("2.21.5") + nccl() + "NVLS multicast support is available on dev 0\n" + ring(8, "P2P/CUMEM/read")},
        [["healthy"]],
        ["*"],
    ),
    # pcie
    Variant(
        "throttled gpu",
        {
            "q": "index, name, temperature.gpu, clocks_throttle_reasons.hw_thermal_slowdown, clocks.sm, power.draw [W], utilization.gpu [%]\n0, NVIDIA GeForce RTX 3090, 67, Not Active, 1800 MHz, 340 W, 100 %\n1, NVIDIA GeForce RTX 3090, 93, Active, 900 MHz, 180 W, 100 %\n"
        },
        [["straggler-thermal"]],
        [],
    ),
    Variant(
        "other process",
        {
            "s": """+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      4100      C   python3                                     20310MiB |
|    0   N/A  N/A      9100      C   ./miner                                      6310MiB |
|    1   N/A  N/A      4101      C   python3                                     20310MiB |
+-----------------------------------------------------------------------------------------+
"""
        },
        [],
        [],
    ),
    Variant(
        "dmesg limited by",
        {
            "d": "[    8.123] pci 0000:41:00.0: 31.506 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x16 link at 0000:40:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
        },
        [],
        ["pcie-width-low"],
    ),
    Variant(
        "dmesg limited x4",
        {
            "d": "[    8.123] nvidia 0000:41:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:40:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
        },
        [["pcie-width-low"]],
        [],
    ),
    Variant(
        "smi -q with load gen3",
        {"q": smi_q("550.90.07", smi_q_gpu("01", "NVIDIA RTX A6000", generation=(3, 4)), smi_q_gpu("41", "NVIDIA RTX A6000"))},
        [["pcie-generation-low"]],
        [],
    ),
    Variant(
        "gpuburn err",
        {
            "s": "GPU 2: ERR!  | N/A\nUnable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
        },
        [["gpu-lost"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "xid 119",
        {
            "d": "[11] NVRM: Xid (PCI:0000:c1:00): 119, pid=881, name=python, Timeout after 6s of waiting for RPC response from GPU1 GSP! Expected function 76 (GSP_RM_CONTROL).\n"
        },
        [["gpu-hung"]],
        ["gpu-lost"],
    ),
    Variant(
        "xid 48",
        {
            "d": "[11] NVRM: Xid (PCI:0000:c1:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physical address 0x1\n"
        },
        [["ecc-uncorrectable"]],
        [],
    ),
    Variant(
        "torch ecc",
        {
            "l": "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported at some other API call\n"
        },
        [["ecc-uncorrectable"]],
        [],
    ),
    Variant(
        "smi -q ecc",
        {
            "q": smi_q(
                "550.90.07",
                smi_q_gpu(
                    "01",
                    "NVIDIA A100-PCIE-40GB",
                    extra="    ECC Mode\n        Current : Enabled\n    ECC Errors\n        Volatile\n            SRAM Correctable              : 0\n            SRAM Uncorrectable            : 0\n            DRAM Correctable              : 0\n            DRAM Uncorrectable            : 3\n        Aggregate\n            DRAM Uncorrectable : 3\n    Remapped Rows\n        Correctable Error                 : 0\n        Uncorrectable Error               : 3\n        Pending                           : Yes\n        Remapping Failure Occurred        : No\n",
                ),
            )
        },
        [["ecc-uncorrectable"]],
        [],
    ),
    # vm/wsl/mig/vgpu
    Variant(
        "wsl log",
        {
            "l": "DESKTOP-AB12:991:991 [0] NCCL INFO Bootstrap : Using eth0:172.22.1.5<0>\nNCCL version 2.7.8+cuda11.1\n\nDESKTOP-AB12:991:1004 [0] transport/p2p.cc:285 NCCL WARN failed to open CUDA IPC handle : 999 unknown error\n",
            "u": "Linux DESKTOP-AB12 5.15.90.1-microsoft-standard-WSL2 #1 SMP Fri Jan 27 x86_64\n",
        },
        [["wsl-nccl-too-old"]],
        [],
    ),
    Variant(
        "wsl nvml not supported",
        {
            "l": "\nDESKTOP:991:1004 [0] misc/nvmlwrap.cc:183 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found\nNCCL version 2.10.3+cuda11.3\n",
            "u": "$ uname -r\n5.10.102.1-microsoft-standard-WSL2\n",
        },
        [["wsl-nccl-too-old", "needs-measurement"]],
        [],
    ),
    Variant(
        "hyperv topo hidden",
        {"t": topo(pairs(4, "SYS"), numa=["0"] * 4), "v": "$ systemd-detect-virt\nmicrosoft\n"},
        [["vm-topology-hidden", "needs-measurement"]],
        [],
    ),
    Variant(
        "lscpu kvm phb",
        {"t": topo(pairs(8, "PHB")), "v": "Hypervisor vendor:       KVM\nVirtualization type:     full\n"},
        [["vm-topology-hidden", "needs-measurement"]],
        ["p2p-unsupported*"],
    ),
    Variant(
        "mig enabled table",
        {
            "L": "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n  MIG 3g.20gb     Device  1: (UUID: MIG-2)\n",
            "l": "\nh:1:1 [0] transport/p2p.cc:72 NCCL WARN Cuda failure 'invalid device ordinal'\n",
        },
        [["mig-no-p2p", "ranks-share-gpu"]],
        [],
    ),
    Variant(
        "ranks share cuda dev",
        {
            "l": "".join(
                f"gpu-box:{1201 + r}:{1601 + r} [0] NCCL INFO comm 0x55{r} rank {r} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 - Init START\n"
                for r in range(2)
            )
            + "\ngpu-box:1201:1601 [0] init.cc:825 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n"
        },
        [["ranks-share-gpu"]],
        ["mig-no-p2p"],
    ),
    # hetero
    Variant(
        "q mix",
        {
            "s": "name, pci.bus_id, memory.total [MiB]\nNVIDIA GeForce RTX 3090, 00000000:01:00.0, 24576 MiB\nNVIDIA GeForce RTX 3060, 00000000:02:00.0, 12288 MiB\n"
        },
        [["gpus-differ"]],
        [],
    ),
    Variant(
        "nvidia-smi table mix",
        {
            "s": """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |
| 30%   45C    P2            320W /  450W |   20000MiB /  24564MiB |    100%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 3090        Off |   00000000:02:00.0 Off |                  N/A |
| 60%   70C    P2            340W /  350W |   20000MiB /  24576MiB |     60%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
        },
        [["gpus-differ"]],
        [],
    ),
    # amd
    Variant(
        "rocm pcie only",
        {
            "t": """============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1         
GPU0   0            40           
GPU1   40           0            

================================= Hops between two GPUs ==================================
       GPU0         GPU1         
GPU0   0            2            
GPU1   2            0            

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         
GPU0   0            PCIE         
GPU1   PCIE         0            
==================================  End of ROCm SMI Log ==================================
"""
        },
        [["amd-pcie-only"]],
        ["amd-xgmi-islands"],
    ),
    Variant(
        "rocm islands",
        {
            "t": """=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2         GPU3         
GPU0   0            XGMI         PCIE         PCIE         
GPU1   XGMI         0            PCIE         PCIE         
GPU2   PCIE         PCIE         0            XGMI         
GPU3   PCIE         PCIE         XGMI         0            
"""
        },
        [["amd-xgmi-islands"]],
        ["amd-pcie-only"],
    ),
    Variant(
        "rocm mi300 healthy",
        {
            "t": "=============================== Link Type between two GPUs ===============================\n       "
            + "".join(f"GPU{k}         " for k in range(8))
            + "\n"
            + "".join(f"GPU{a}   " + "".join(("0            " if a == b else "XGMI         ") for b in range(8)) + "\n" for a in range(8))
        },
        [],
        ["*"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

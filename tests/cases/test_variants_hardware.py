# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of the kinds that are about hardware: healthy boxes, NVLink, fabric, PCIe, lost and mixed cards, NICs, damaged pastes."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import bandwidth_matrix, devices, head, listing, pairs, ring, smi_q, smi_q_gpu, topo

# fmt: off
H100 = "NVIDIA H100 80GB HBM3"


def links(*counts: tuple[int, int], name: str = "NVIDIA A100-SXM4-80GB", rate: str = "25", tab: str = "\t ") -> str:
    """``nvlink -s``: for each GPU (links up, links in all); the first ones are down."""
    lines = []
    for gpu, (up, total) in enumerate(counts):
        lines.append(f"GPU {gpu}: {name} (UUID: GPU-{gpu:08x}-1a2b-3c4d-5e6f-0123456789ab)")
        lines += [f"{tab}Link {k}: " + (f"{rate} GB/s" if k >= total - up else "<inactive>") for k in range(total)]
    return "\n".join(lines) + "\n"


def fabric(state: str, status: str, extra: str = "") -> str:
    return f"    Fabric\n        State                             : {state}\n        Status                            : {status}\n{extra}"


def bad_row(count: int, odd: int, good: float, bad: float, own: float, own_odd: float) -> list[list[float]]:
    return [[(own_odd if a == odd else own) if a == b else bad if odd in (a, b) else good for b in range(count)] for a in range(count)]


XID79 = "[88210.551] NVRM: Xid (PCI:0000:{bus}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
HGX = [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]
MESH = [["X", "NV1", "NV2", "NV2"], ["NV1", "X", "NV2", "NV2"], ["NV2", "NV2", "X", "NV1"], ["NV2", "NV2", "NV1", "X"]]

VARIANTS = [
    # C44: healthy machines
    Variant("C44 8x H100, eight cards near their GPUs", {"t": topo(HGX, numa=["0"] * 4 + ["1"] * 4, nics={
        f"mlx5_{k}": ["PIX" if k == g else "NODE" if k // 4 == g // 4 else "SYS" for g in range(8)] for k in range(8)})}, [["healthy"]], ["*"]),
    Variant("C44 2x H200 with the driver's OK", {"t": topo(pairs(2, "NV18")),
            "p": "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n"}, [["healthy"]], ["*"]),
    Variant("C44 4x V100, one and two links by design", {"t": topo(MESH)}, [["healthy"]], ["*"]),
    Variant("C44 8x A100 and a log over NVLink", {"t": topo([["X" if a == b else "NV12" for b in range(8)] for a in range(8)]),
            "l": head("2.18.3") + ring(8, "P2P/IPC/read")}, [["healthy"]], ["*"]),
    Variant("C44 H100 NVL pair, twelve of eighteen links by design", {"t": topo(pairs(2, "NV12")),
            "s": links((12, 18), (12, 18), name="NVIDIA H100 NVL", rate="26.562")}, [["healthy"]], ["*"]),
    Variant("C44 idle GPUs at generation 1", {"t": topo(pairs(2, "NV4")), "q": smi_q("550.54.14",
            smi_q_gpu("3B", "NVIDIA RTX A6000", generation=(1, 4), utilization=0, state="P8", idle=True),
            smi_q_gpu("5E", "NVIDIA RTX A6000", generation=(1, 4), utilization=0, state="P8", idle=True))}, [["healthy"]], ["*"]),
    # C50
    Variant("C50 A100, one of eight has lost two", {"s": links(*([(12, 12)] * 5 + [(10, 12)] + [(12, 12)] * 2))}, [["nvlink-partial"]]),
    Variant("C50 two 3090 bridged, one link down on both sides is one card's", {"s": links((4, 4), (3, 4), name="NVIDIA GeForce RTX 3090", rate="14.062",
            tab="         ")}, [["nvlink-partial"]]),
    Variant("C50 H100, matrix of seven good and one bad", {"t": topo([["X" if a == b else "NV16" if 3 in (a, b) else "NV18" for b in range(8)]
            for a in range(8)])}, [["nvlink-partial"]]),
    Variant("C50 no bridge at all is no fault", {"s": "GPU 0: NVIDIA RTX A6000 (UUID: GPU-00000000-1a2b-3c4d-5e6f-0123456789ab)\n"
            "\t NVML: Unable to retrieve NVLink information as all links are inActive\n"
            "GPU 1: NVIDIA RTX A6000 (UUID: GPU-00000001-1a2b-3c4d-5e6f-0123456789ab)\n"
            "\t NVML: Unable to retrieve NVLink information as all links are inActive\n"}, [["no-nvlink-bridge"]], ["*"]),
    # C53
    Variant("C53 802 from torch", {"l": "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized\n",
            "L": listing(*[H100] * 8)}, [["fabric-not-ready"]]),
    Variant("C53 completed but not well", {"q": smi_q("570.86.15", *(smi_q_gpu(f"{0x1B + k:02X}", "NVIDIA B200", generation=(5, 5),
            extra=fabric("Completed", "Insufficient Resources")) for k in range(2)))}, [["fabric-not-ready"]]),
    Variant("C53 NVLS in another release, eight ranks", {"l": head("2.19.3") + "".join(
            f"\nnode9:{90 + k}:{190 + k} [{k}] transport/nvls.cc:169 NCCL WARN Cuda failure 'invalid argument'\n" for k in range(8))},
            [["fabric-not-ready"]]),
    Variant("C53 the service of another version", {"s": "May 05 09:00:01 n1 nv-fabricmanager[2201]: fabric manager NVIDIA GPU driver interface version "
            "550.54.14 don't match with driver version 550.90.07. Please update with matching NVIDIA driver package.\n"
            "May 05 09:00:01 n1 systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE\n",
            "L": listing(*[H100] * 8)}, [["fabric-not-ready"]]),
    # C53n
    Variant("C53n A6000 pair", {"j": "Jan 11 08:00:00 ws1 nv-fabricmanager[981]: request to query NVSwitch device information from NVSwitch driver "
            "failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
            "Jan 11 08:00:00 ws1 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n",
            "L": listing("NVIDIA RTX A6000", "NVIDIA RTX A6000")}, [], ["fabric-not-ready"]),
    Variant("C53n H100 PCIe says not supported", {"q": smi_q("550.54.14", *(smi_q_gpu(f"{0x3B + k:02X}", "NVIDIA H100 PCIe", generation=(5, 5),
            extra=fabric("N/A", "N/A")) for k in range(2)))}, [], ["fabric-not-ready"]),
    Variant("C53n inactive on L40S", {"s": "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded\n"
            "     Active: failed (Result: exit-code) since Mon\nrequest to query NVSwitch device information from NVSwitch driver failed with error:"
            "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n", "L": listing(*["NVIDIA L40S"] * 4)}, [], ["fabric-not-ready"]),
    # C54
    Variant("C54 generation 1 at full load, 535", {"q": smi_q("535.161.07", smi_q_gpu("01", "NVIDIA GeForce RTX 4090"),
            smi_q_gpu("41", "NVIDIA GeForce RTX 4090", generation=(1, 4)))}, [["pcie-generation-low"]]),
    Variant("C54 query with utilisation", {"c": "index, name, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, "
            "utilization.gpu [%]\n0, NVIDIA A40, 4, 4, 16, 16, 97 %\n1, NVIDIA A40, 4, 4, 4, 16, 98 %\n2, NVIDIA A40, 3, 4, 16, 16, 99 %\n"},
            [["pcie-width-low"], ["pcie-generation-low"]]),
    Variant("C54 lspci says downgraded", {"l": "3b:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)\n"
            "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L0s L1\n\tLnkSta:\tSpeed 16GT/s (ok), Width x1 (downgraded)\n"
            "5e:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)\n"
            "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L0s L1\n\tLnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)\n"}, [["pcie-width-low"]]),
    Variant("C54 idle proves nothing", {"q": smi_q("570.86.15", smi_q_gpu("01", "NVIDIA GeForce RTX 5090", generation=(1, 5), utilization=0,
            state="P8", idle=True), smi_q_gpu("41", "NVIDIA GeForce RTX 5090", generation=(1, 5), utilization=0, state="P8", idle=True))},
            [["pcie-idle-inconclusive"]], ["pcie-generation-low"]),
    # C17
    Variant("C17 four cards, the first one slow", {"m": bandwidth_matrix("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)",
            bad_row(4, 0, 52.1, 6.4, 917.0, 915.0))}, [["pcie-width-low", "pcie-generation-low", "pair-slow", "needs-measurement"]]),
    Variant("C17 eight cards, one way, another model", {"m": bandwidth_matrix("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
            bad_row(8, 5, 26.2, 3.1, 920.0, 310.0))}, [["pcie-width-low", "pair-slow", "needs-measurement"], ["gpus-differ"]]),
    Variant("C17 nvbandwidth", {"n": "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
            "           0         1         2         3\n 0       N/A     25.90     25.92      3.20\n 1     25.91       N/A     25.90      3.21\n"
            " 2     25.90     25.92       N/A      3.20\n 3      3.20      3.21      3.20       N/A\n\nSUM device_to_device_memcpy_read_ce 174.66\n"},
            [["pcie-width-low", "pair-slow", "needs-measurement"]]),
    # C56
    Variant("C56 newer words, no PCIe error", {"d": XID79.format(bus="41")}, [["gpu-lost"]], ["p2p-unsupported*"]),
    Variant("C56 journal and ERR!", {"j": "May 05 03:12:44 rig kernel: " + XID79.format(bus="0a").split("] ", 1)[1],
            "s": "Unable to determine the device handle for GPU2: 0000:0A:00.0: Unknown Error\n"}, [["gpu-lost"]], ["p2p-unsupported*"]),
    Variant("C56 before a watchdog's echo", {"d": XID79.format(bus="c1"), "t": "[rank3]:[E505 03:22:11.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
            "600010 milliseconds "
            "before timing out.\n"}, [["gpu-lost"]], ["p2p-unsupported*"]),
    Variant("C56 another Xid is no lost card", {"d": "[ 99.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault: "
            "ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"}, [], ["gpu-lost", "nvlink-xid"]),
    # C59
    Variant("C59 -L of two kinds", {"L": listing("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4060 Ti")}, [["gpus-differ"]]),
    Variant("C59 torch's imbalance", {"l": "UserWarning: \n    There is an imbalance between your GPUs. You may want to exclude GPU 1 which\n"
            "    has less than 75% of the memory or cores of GPU 0. You can do so by setting\n    the device_ids argument to DataParallel\n"},
            [["gpus-differ"]]),
    Variant("C59 nccl-tests with two kinds", {"l": devices(1, "NVIDIA A100 80GB PCIe") + "#  Rank  1 Group  0 Pid   4101 on    gpu-box device  1 [0x41] "
            "NVIDIA A40\nNCCL version 2.20.5+cuda12.4\n"}, [["gpus-differ"]]),
    # C61
    Variant("C61 a row cut off", {"t": topo(pairs(4, "SYS", p01="PHB", p23="PHB"), ansi=False).replace("GPU2\tSYS\tSYS\t X \tPHB", "GPU2\tSYS\tSYSX PHB")},
            [["input-degraded"]], ["tp-over-pcie"]),
    Variant("C61 cells run together in a wide matrix", {"t": topo(HGX, ansi=False).replace("NV18\tNV18\tNV18\t X ", "NV18NV18\tNV18\t X ").replace("\t", "    ")},
            [["input-degraded"]], ["tp-over-pcie"]),
    Variant("C61 markdown, and the halves disagree", {"t": "|  | GPU0 | GPU1 | GPU2 |\n|--|--|--|--|\n| GPU0 | X | PHB | SYS |\n| GPU1 | NODE | X | SYS |\n"
            "| GPU2 | SYS | SYS | X |\n"}, [["input-degraded"]], ["tp-over-pcie"]),
    Variant("C61 prefixed lines are no damage", {"t": "".join(f"(worker1, rank=1, pid=88, ip=10.0.0.3) {line}\n" for line in topo(pairs(4, "NV12"))
            .splitlines())}, [["healthy"]], ["*"]),
    # C76
    Variant("C76 eight GPUs, cards on one socket", {"t": topo(HGX, nics={"mlx5_0": ["PIX", "PXB", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]})},
            [["nic-far-from-gpu"]]),
    Variant("C76 two GPUs, one far", {"t": topo(pairs(2, "SYS"), numa=["0", "1"], nics={"mlx5_2": ["SYS", "PHB"]})}, [["nic-far-from-gpu"]]),
    Variant("C76 columns with the card's name", {"t": "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV2\tNV2\tNV2\tNODE\t0-19\n"
            "GPU1\tNV2\t X \tNV2\tNV2\tNODE\t0-19\nGPU2\tNV2\tNV2\t X \tNV2\tSYS\t20-39\nGPU3\tNV2\tNV2\tNV2\t X \tSYS\t20-39\n"
            "mlx5_0\tNODE\tNODE\tSYS\tSYS\t X \n"}, [["nic-far-from-gpu"]]),
]
# fmt: on


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_another_machine_of_this_kind_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

# ruff: noqa: E501 - the texts stand as the tools print them
"""What machines and people show outside NCCL's logs: kernel lines, tables of tools, times of training, and what must not be made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong

_UNRECOVERED = """[  +0.000844] {driver} 0000:03:00.0: AER: can't recover (no error_detected callback)
[  +0.000008] pcieport 0000:00:03.0: AER: device recovery failed
[  +0.000001] pcieport 0000:00:03.0: AER: {severity} error received: 0000:00:03.0
"""

_BRIDGE = """21:08.0 PCI bridge: PLX Technology, Inc. PEX 8747 48-Lane, 5-Port PCI Express Gen 3 (8.0 GT/s) Switch (rev ca) (prog-if 00 [Normal decode])
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""


def _nvbandwidth(gpus: int, *lines: str) -> str:
    devices = "".join(f"Device {index}: NVIDIA GeForce RTX 4090\n" for index in range(gpus))
    return f"nvbandwidth Version: v0.4\nDriver Version: 545.29.06\n\n{devices}\n" + "\n".join(lines) + "\n"


def _table(*gpus: tuple[int, int, int, int]) -> str:
    """The default table: (celsius, watts, limit, utilization) of each GPU."""
    rows = "".join(
        f"|   {index}  Tesla V100-SXM2...  On   | 00000000:{26 + index:02X}:00.0 Off |                    0 |\n"
        f"| N/A   {hot}C    P0   {watts:3}W / {limit:3}W |  12010MiB / 16160MiB |    {busy:3}%      Default |\n"
        "+-------------------------------+----------------------+----------------------+\n"
        for index, (hot, watts, limit, busy) in enumerate(gpus)
    )
    return (
        "+-----------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n"
        "|-------------------------------+----------------------+----------------------+\n"
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |\n"
        "|===============================+======================+======================|\n" + rows
    )


def _amd(link: str, access: str = "ENABLED") -> str:
    names = [f"0000:{bus}:00.0" for bus in ("c1", "c6", "c9", "ce")]
    head = "             " + " ".join(names) + "\n"

    def table(title: str, own: str, other: str) -> str:
        rows = "".join(f"{a} " + " ".join((own if a == b else other).ljust(12) for b in names) + "\n" for a in names)
        return f"{title} TABLE:\n{head}{rows}\n"

    return table("ACCESS", "ENABLED", access) + table("LINK TYPE", "SELF", link)


def _profile(share: str) -> str:
    return (
        "                                                   Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  \n"
        f"enumerate(DataLoader)#_MultiProcessingDataLoaderIter....        {share}%       78.632s        {share}%       79.116s     791.161ms           100  \n"
    )


VARIANTS = [
    # --- a GPU whose link the kernel gives up
    Variant("link given up", {"a": _UNRECOVERED.format(driver="nvidia", severity="Uncorrected (Fatal)")}, [["gpu-lost"]], ["p2p-*"]),
    Variant("amd link given up", {"a": _UNRECOVERED.format(driver="amdgpu", severity="Uncorrectable (Fatal)")}, [["gpu-lost"]]),
    Variant("another device given up", {"a": _UNRECOVERED.format(driver="snd_hda_intel", severity="Uncorrected (Fatal)")}, [["pcie-errors"]], ["gpu-lost"]),
    Variant("only corrected", {"a": _UNRECOVERED.format(driver="nvidia", severity="Corrected")}, [["pcie-errors"]], ["gpu-lost"]),
    # --- copies that nvbandwidth leaves out
    Variant("waived", {"a": _nvbandwidth(8, "Running device_to_device_memcpy_read_ce.", "Waived: ", "Running device_to_device_memcpy_write_ce.", "Waived: ")}, [["p2p-unsupported*"]], ["p2p-disabled-by-environment"]),
    Variant("waiving, older", {"a": _nvbandwidth(2, "Waiving device_to_device_memcpy_write_ce.")}, [["p2p-unsupported*"]]),
    Variant("waived with one GPU", {"a": _nvbandwidth(1, "Running device_to_device_memcpy_read_ce.", "Waived: ")}, [], ["p2p-unsupported*"]),
    Variant("another test waived", {"a": _nvbandwidth(2, "Running multicast_one_to_all_ce.", "Waived: ")}, [], ["p2p-unsupported*"]),
    # --- a variable that prose names is not set; one that stands before a program, or is handed on, is
    Variant("acs and the cure in prose", {"a": _BRIDGE + "all_reduce_perf hangs with 2 GPUs, NCCL_P2P_DISABLE=1 works.\n"}, [["p2p-hang-acs"]], ["p2p-disabled-by-environment"]),
    Variant("acs and the cure in ticks", {"a": _BRIDGE + "torchrun hangs at the first all_reduce; `NCCL_P2P_DISABLE=1` fixes it.\n"}, [["p2p-hang-acs"]], ["p2p-disabled-by-environment"]),
    Variant("set for a program", {"a": "$ NCCL_P2P_DISABLE=1 torchrun --nproc_per_node 2 train.py\n"}, [["p2p-disabled-by-environment"]]),
    Variant("handed on by mpirun", {"a": "mpirun -np 2 -x NCCL_P2P_DISABLE=1 ./all_reduce_perf -b 8M -e 1G\n"}, [["p2p-disabled-by-environment"]]),
    Variant("handed on by docker", {"a": "docker run --gpus all -e NCCL_P2P_DISABLE=1 image python train.py\n"}, [["p2p-disabled-by-environment"]]),
    # --- memlock in another spelling
    Variant("memlock, colon", {"a": "max locked memory       (kbytes, -l) 64\nmisc/ibvwrap.cc:164 NCCL WARN Call to ibv_create_qp failed: Cannot allocate memory\n"}, [["memlock-limit"]], ["dev-shm-too-small"]),
    # --- AMD machines
    Variant("all XGMI", {"a": _amd("XGMI")}, [["healthy"]], ["*"]),
    Variant("all XGMI, no access", {"a": _amd("XGMI", "DISABLED")}, [["p2p-unsupported*"]], ["healthy"]),
    Variant("all PCIe", {"a": _amd("PCIE")}, [["amd-pcie-only"]], ["amd-xgmi-islands"]),
    # --- one GPU held back, by the default table
    Variant("capped", {"a": _table((58, 281, 300, 100), (57, 276, 300, 100), (49, 149, 150, 100), (60, 288, 300, 99))}, [["straggler-power"]], ["straggler-thermal"]),
    Variant("hot and weak", {"a": _table((66, 281, 300, 100), (91, 141, 300, 100), (67, 279, 300, 99))}, [["straggler-thermal"]], ["straggler-power"]),
    Variant("idle and capped", {"a": _table((58, 281, 300, 100), (40, 40, 150, 0))}, [], ["straggler*"]),
    Variant("hot but working", {"a": _table((66, 281, 300, 100), (88, 280, 300, 100))}, [], ["straggler*"]),
    # --- waiting for data
    Variant("profiler, loader", {"a": _profile("88.64")}, [["input-pipeline-bound"]], ["communication-bound"]),
    Variant("profiler, no wait", {"a": _profile("2.10")}, [], ["input-pipeline-bound"]),
    Variant("torchvision log", {"a": "Epoch: [0]  [ 100/2464]  eta: 4:15:02  lr: 0.000100  time: 6.1911  data: 3.9120  max mem: 9500\n" * 3}, [["input-pipeline-bound"]]),
    Variant("torchvision averages", {"a": "Epoch: [0]  [ 100/2464]  eta: 0:15:02  loss: 2.1 (2.3)  time: 0.5911 (0.6021)  data: 0.0120 (0.0130)  max mem: 9500\n"}, [], ["input-pipeline-bound"]),
    # --- steps and GPUs
    Variant("equal steps, comma", {"a": "Epoch 1/30  1 GPU : 1000 steps, 612 s\nEpoch 1/30  2 GPUs: 1000 steps, 630 s\n"}, [["unit-trap"]], ["communication-bound"]),
    Variant("equal steps, in", {"a": "1 GPU: 10009 steps in 50 min\n4 GPUs: 10009 steps in 52 min\n"}, [["unit-trap"]], ["communication-bound"]),
    Variant("equal steps, slower", {"a": "1 GPU: 500 steps, 100 s\n2 GPUs: 500 steps, 190 s\n"}, [["communication-bound"]]),
    Variant("steps divided, no gain", {"a": "1 GPU: 1000 steps, 600 s\n2 GPUs: 500 steps, 590 s\n"}, [["communication-bound"]]),
    # --- one row shows what the whole column counts
    Variant("column counts all", {"a": "| GPU | strategy | accumulation | Speed (tokens/s) |\n|---|---|---|---|\n| 1*RTX4090 | N/A | 4 | 1.8k |\n| 2*RTX4090 | DDP | 4 | 2.7k |\n| 2*RTX4090 | DeepSpeed Zero-2 | 4 | 1.8k |\n"}, [["fsdp-over-pcie", "communication-bound"]], ["healthy"]),
    Variant("hundreds and thousands", {"a": "| GPUs | Speed (tokens/s) |\n|---|---|\n| 1 | 980 |\n| 2 | 1.9k |\n"}, [], ["communication-bound", "unit-trap"]),
    Variant("nothing shows it", {"a": "| GPUs | strategy | samples/s |\n|---|---|---|\n| 1 | N/A | 20.0 |\n| 2 | DDP | 18.5 |\n| 2 | FSDP | 17.0 |\n"}, [], ["communication-bound", "fsdp-over-pcie"]),
    # --- a speed-up in words
    Variant("four for 1.3", {"a": "Going from one GPU to 4 GPUs brings a 1.3x speedup.\n"}, [["communication-bound"]]),
    Variant("good speed-up", {"a": "Going from one GPU to 4 GPUs brings a 3.7x speed-up.\n"}, [], ["communication-bound"]),
    Variant("four to eight", {"a": "Going from 4 GPUs to 8 GPUs brings a 1.9x speed-up.\n"}, [], ["communication-bound"]),
]  # fmt: skip


@pytest.mark.parametrize("case", VARIANTS, ids=[case.name for case in VARIANTS])
def test_a_text_of_this_kind_gets_the_right_answer(case: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, case.texts)
    assert not wrong(run, case.expect, case.forbid), said(run)
    assert_complete(run)

# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of the kinds "no peer access", "peer access that hangs or lies" and "peer access that is slow": other cards, tools and spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import bandwidth_matrix, devices, head, listing, nccl, p2p, pairs, ring, sweep, topo

HANG = ("p2p-hang-iommu", "p2p-hang-acs")
OFF = "P2P is disabled between connected GPUs"


def cannot(count: int) -> str:
    return "".join(f"Device={a} CANNOT Access Peer Device={b}\n" for a in range(count) for b in range(count) if a != b)


def disabled_lines(count: int, host: str = "gpu-box") -> str:
    return "".join(
        f"{nccl(host, dev=a)}{OFF} {a} and {b}. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
        for a in range(count)
        for b in range(count)
        if a != b
    )


def copy_matrix(groups: list[list[int]], near: float, far: float, own: float = 830.0) -> list[list[float]]:
    count = sum(map(len, groups))
    group_of = {gpu: number for number, group in enumerate(groups) for gpu in group}
    return [[own if a == b else near if group_of[a] == group_of[b] else far for b in range(count)] for a in range(count)]


VARIANTS = [
    # C01: rented GeForce cards without peer access
    Variant(
        "C01 two 3090, NCCL 2.18, pairs by number",
        {"log": head("2.18.5") + disabled_lines(2) + ring(2, "SHM/direct/direct"), "topo": topo(pairs(2, "PHB"))},
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment", "transport-unexpected"],
    ),
    Variant(
        "C01 eight cards, ticks and crosses of a Python loop",
        {
            "out.txt": "".join(f"GPU {a} -> GPU {b}: ✗\n" for a in range(8) for b in range(8) if a != b),
            "topo.txt": topo(pairs(8, "SYS", p01="NODE", p23="NODE", p45="NODE", p67="NODE")),
        },
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 under Ray, the version line among the prefixes",
        {
            "ray.log": "".join(
                f"(RayTrainWorker pid={900 + a}, ip=10.1.2.3) node-7:{900 + a}:{1000 + a} [{a}] NCCL INFO {OFF} {a} and {b}. "
                "You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
                for a in range(4)
                for b in range(4)
                if a != b
            )
        },
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 the driver's own matrix on 4x L40S in a virtual machine",
        {"p2p.txt": p2p(4, "CNS", "rw"), "virt": "$ systemd-detect-virt\nkvm\n"},
        [["p2p-unsupported-chipset"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 GNS on a pair of cards, without ANSI",
        {"p2p.txt": p2p(2, "GNS", "r", ansi=False)},
        [["p2p-unsupported-gpu"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 matrix whose command was cut off",
        {"p2p.txt": p2p(4, "CNS", "r").split("\n", 1)[1]},
        [["p2p-unsupported*"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 registry key",
        {"p2p.txt": p2p(4, "DR", "r")},
        [["p2p-disabled-by-registry"]],
        ["p2p-disabled-by-environment"],
    ),
    Variant(
        "C01 topology code",
        {"p2p.txt": p2p(2, "TNS", "r"), "topo.txt": topo(pairs(2, "SYS"))},
        [["p2p-unsupported-topology"]],
    ),
    # C02: cards hang at their first collective
    Variant(
        "C02 named by nccl-tests, and a sentence",
        {
            "log": devices(4, "NVIDIA GeForce RTX 4090")
            + head("2.16.5")
            + ring(4, "P2P/IPC", bracket=["21000", "22000", "41000", "43000"]),
            "note": "all_reduce_perf hangs after this, GPU utilisation 100 %, driver 525.60.13\n",
        },
        [["p2p-falsely-advertised", "collective-hang", "needs-measurement", "driver-p2p-bug"]],
        HANG,
    ),
    Variant(
        "C02 first all-reduce, newer spelling, no names",
        {
            "log": head("2.18.3")
            + ring(2, "P2P/IPC")
            + f"{nccl()}ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x77 - Init COMPLETE\n"
            + f"{nccl()}AllReduce: opCount 0 sendbuff 0x7f00 recvbuff 0x7f01 count 1 datatype 7 op 0 root 0 comm 0x55d0 [nranks=2] stream 0x1\n"
        },
        [["p2p-falsely-advertised", "collective-hang", "needs-measurement"]],
        HANG,
    ),
    Variant(
        "C02 eight 4080 SUPER, names from -L",
        {
            "L": listing(*["NVIDIA GeForce RTX 4080 SUPER"] * 8),
            "log": head("2.17.1") + ring(8, "P2P/direct pointer"),
            "note": "Training hangs right after init, with NCCL_P2P_DISABLE=1 it works.\n",
        },
        [["p2p-falsely-advertised", "collective-hang", "needs-measurement"]],
        HANG,
    ),
    # C04: everything staged, near pairs slower
    Variant(
        "C04 four cards in twos, one way",
        {"t": cannot(4) + bandwidth_matrix("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", copy_matrix([[0, 1], [2, 3]], 5.4, 9.8))},
        [["p2p-unsupported*"], ["shared-uplink"]],
    ),
    Variant(
        "C04 six cards in threes, both matrices",
        {
            "t": cannot(6)
            + bandwidth_matrix("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", copy_matrix([[0, 1, 2], [3, 4, 5]], 6.0, 10.9))
            + bandwidth_matrix(
                "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", copy_matrix([[0, 1, 2], [3, 4, 5]], 6.1, 11.0)
            )
        },
        [["p2p-unsupported*"], ["shared-uplink"]],
    ),
    Variant(
        "C04 equal pairs share nothing",
        {
            "t": cannot(4)
            + bandwidth_matrix("Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)", copy_matrix([[0], [1], [2], [3]], 1.0, 17.2))
        },
        [["p2p-unsupported*"]],
        ["shared-uplink", "pair-slow"],
    ),
    # C06, C11: a bare topology decides nothing
    Variant(
        "C06 eight cards on two switches",
        {"t": topo(pairs(8, "SYS", p01="PIX", p23="PIX", p45="PIX", p67="PIX", p02="PXB"))},
        [["needs-measurement", "healthy"]],
        ["*"],
    ),
    Variant(
        "C06 without affinity, plain blanks",
        {"t": topo(pairs(4, "NODE"), ansi=False, affinity=False).replace("\t", "    ")},
        [["needs-measurement", "healthy"]],
        ["*"],
    ),
    Variant("C06 three cards, PHB", {"t": topo(pairs(3, "PHB"), legend=False)}, [["needs-measurement", "healthy"]], ["*"]),
    Variant(
        "C11 header glued to a root prompt",
        {"t": "root@C.18237:/workspace# nvidia-smi topo -m   " + topo(pairs(2, "PHB"), ansi=False).lstrip("\t").replace("\t", "    ")},
        [["needs-measurement", "healthy"]],
        HANG,
    ),
    Variant(
        "C11 header glued to zsh's prompt, three cards",
        {"t": "➜  ~ nvidia-smi topo -m     " + topo(pairs(3, "PXB"), ansi=False).lstrip("\t").replace("\t", "    ")},
        [["needs-measurement", "healthy"]],
        HANG,
    ),
    Variant(
        "C11 bridges that still redirect, and a hang that P2P off cures",
        {
            "lspci": "02:00.0 PCI bridge: PLX Technology, Inc. PEX 8747 (rev ca)\n"
            "\tCapabilities: [f24 v1] Access Control Services\n"
            "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n",
            "note": "NCCL hangs with P2P between the cards. NCCL_P2P_DISABLE=1 -> works\n",
            "topo": topo(pairs(4, "PIX")),
        },
        [["p2p-hang-acs"]],
        ["p2p-hang-iommu"],
    ),
    # C10: wrong data
    Variant(
        "C10 a torch script's words",
        {"o": "copy 0->1: mismatch, 131072 wrong elements\ncopy 1->0: mismatch, 131072 wrong elements\n"},
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "C10 simpleP2P",
        {
            "o": "> Peer access from NVIDIA RTX A6000 (GPU0) -> NVIDIA RTX A6000 (GPU1) : Yes\n"
            "> Peer access from NVIDIA RTX A6000 (GPU1) -> NVIDIA RTX A6000 (GPU0) : Yes\n"
            "Enabling peer access between GPU0 and GPU1...\n"
            "Verification error @ element 1: val = 0.000000, ref = 4.000000\nVerification error @ element 2: val = 0.000000, ref = 8.000000\n"
            "Test failed!\n"
        },
        [["p2p-wrong-data"]],
        ["healthy"],
    ),
    Variant(
        "C10 nccl-tests counts wrong values",
        {
            "o": devices(2, "NVIDIA RTX 6000 Ada Generation")
            + sweep([(8388608, 18.1), (16777216, 19.0)], 2).replace("      0 ", "  41231 ")
            + "# Out of bounds values : 2 FAILED\n"
        },
        [["p2p-wrong-data", "collective-wrong-data"]],
        ["healthy"],
    ),
    # C80: drivers
    Variant(
        "C80 two sentences",
        {"e": "With driver 550.120 multi-GPU NCCL hangs in all_reduce. With driver 570.86.10 it works fine.\n"},
        [["driver-p2p-bug"]],
    ),
    Variant("C80 downgrade", {"e": "Moving the driver from 545.23 back to 535.161 fixed the NCCL hang with P2P.\n"}, [["driver-p2p-bug"]]),
    Variant(
        "C80 a list",
        {"e": "- NCCL all_reduce with P2P\n- driver 560.35.03: hang\n- driver 565.57: hang\n- driver 570.124: works\n"},
        [["driver-p2p-bug"]],
    ),
    # C28: P2P switched off, old spelling and new
    Variant(
        "C28 LOC in 2.7, bus ids in brackets",
        {
            "l": head("2.7.8")
            + f"{nccl()}NCCL_P2P_LEVEL set by environment to LOC\n"
            + ring(2, "direct shared memory", bracket=["3b000", "86000"])
        },
        [["p2p-through-cpu-slow", "p2p-slower-than-staged", "p2p-disabled-by-environment", "needs-measurement"]],
    ),
    Variant(
        "C28 the variable itself, 2.27",
        {
            "l": head("2.27.3") + f"{nccl()}NCCL_P2P_DISABLE set by environment to 1.\n" + ring(4, "SHM/direct/direct"),
            "t": topo(pairs(4, "NODE")),
        },
        [["p2p-disabled-by-environment"]],
    ),
    Variant(
        "C28 off was faster in their table",
        {
            "b": "all_reduce busbw GB/s, 4x T4\nconfig              2 GPUs   4 GPUs\ndefault             3.1      2.6\n"
            "NCCL_P2P_DISABLE=1  5.9      5.2\n",
            "t": topo(pairs(4, "NODE")),
        },
        [["p2p-through-cpu-slow", "p2p-slower-than-staged"]],
    ),
    # C19: forced P2P
    Variant(
        "C19 forced level on 8x L40, sweep average",
        {
            "l": devices(8, "NVIDIA L40")
            + head("2.19.3")
            + f"{nccl()}NCCL_P2P_LEVEL set by environment to SYS\n"
            + ring(8, "P2P/direct pointer")
            + "# Avg bus bandwidth    : 1.21 \n"
        },
        [["p2p-forced-slow", "p2p-slower-than-staged", "p2p-through-cpu-slow", "needs-measurement"]],
        ["ib-library-missing"],
    ),
    Variant(
        "C19 a table of both",
        {
            "l": head("2.21.5") + ring(8, "P2P/IPC"),
            "b": "| setting | all_reduce busbw |\n|---|---|\n| default | 0.92 GB/s |\n| NCCL_P2P_DISABLE=1 | 6.13 GB/s |\n",
        },
        [["p2p-forced-slow", "p2p-slower-than-staged", "p2p-through-cpu-slow"]],
        ["ib-library-missing"],
    ),
    Variant(
        "C19 a slow sweep over P2P, alone",
        {"l": devices(4, "NVIDIA A10") + head("2.20.5") + ring(4, "P2P/CUMEM") + sweep([(67108864, 1.4), (134217728, 1.5)], 4)},
        [["p2p-forced-slow", "p2p-slower-than-staged", "p2p-through-cpu-slow", "needs-measurement"]],
        ["ib-library-missing"],
    ),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_another_machine_of_this_kind_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)

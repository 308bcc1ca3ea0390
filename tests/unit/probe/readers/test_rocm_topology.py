"""``rocm-smi --showtopo`` and ``amd-smi topology``."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import text
from wiretax.model.reading import unexplained
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.rocm_topology import read


def square(num: int, same: str, cell: Any) -> str:
    head = "       " + "".join(f"GPU{index:<10}" for index in range(num))
    return "\n".join(
        [
            head,
            *(
                f"GPU{row:<4}" + "".join(f"{same if row == column else cell(row, column):<13}" for column in range(num))
                for row in range(num)
            ),
        ]
    )


def island(a: int, b: int) -> bool:
    return a // 2 == b // 2


SHOWTOPO = f"""
============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
{square(4, "0", lambda a, b: 15 if island(a, b) else 72)}

================================= Hops between two GPUs ==================================
{square(4, "0", lambda a, b: 1 if island(a, b) else 3)}

=============================== Link Type between two GPUs ===============================
{square(4, "0", lambda a, b: "XGMI" if island(a, b) else "PCIE")}

======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 0
GPU[1]\t\t: (Topology) Numa Affinity: 0
GPU[2]\t\t: (Topology) Numa Node: 1
GPU[2]\t\t: (Topology) Numa Affinity: 1
GPU[3]\t\t: (Topology) Numa Node: 1
GPU[3]\t\t: (Topology) Numa Affinity: 1
================================== End of ROCm SMI Log ===================================
"""


def paths(piece: Piece) -> dict[tuple[int, int], str | None]:
    assert piece.machine is not None
    return {(pair.source_gpu, pair.target_gpu): pair.path for pair in piece.machine.pairs}


def links(piece: Piece) -> dict[tuple[Any, Any], dict[str, Any]]:
    return {
        (entry.values["source_gpu"], entry.values["target_gpu"]): dict(entry.values)
        for entry in piece.observations
        if entry.kind == "amd.link"
    }


def test_two_islands_joined_over_pcie() -> None:
    pieces = read(text(SHOWTOPO))
    assert len(pieces) == 1
    assert paths(pieces[0]) == {(a, b): "XGMI" if island(a, b) else "PCIE" for a in range(4) for b in range(4) if a != b}
    assert [links(pieces[0])[0, 2][name] for name in ("weight", "hops", "type")] == [72, 3, "PCIE"]
    assert pieces[0].machine is not None
    assert [gpu.numa_node for gpu in pieces[0].machine.gpus] == [0, 0, 1, 1]
    assert pieces[0].damaged == ()
    assert list(unexplained(pieces[0].machine)) == []


def test_the_link_type_alone_as_people_shorten_it() -> None:
    piece = read(
        text("========================== Link Type between two GPUs ==========================\nGPU0 GPU1\nGPU0 0 PCIE\nGPU1 PCIE 0")
    )[0]
    assert paths(piece) == {(0, 1): "PCIE", (1, 0): "PCIE"}
    assert links(piece)[0, 1]["hops"] is None


def test_an_older_tool_writes_gpu_numbers_without_brackets() -> None:
    content = SHOWTOPO.replace("GPU[", "GPU ").replace("]\t\t:", "          :")
    piece = read(text(content))[0]
    assert piece.machine is not None
    assert [gpu.numa_node for gpu in piece.machine.gpus] == [0, 0, 1, 1]


AMD_SMI = """\
$ amd-smi topology
ACCESS TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 ENABLED      DISABLED
0000:22:00.0 DISABLED     ENABLED

WEIGHT TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 0            40
0000:22:00.0 40           0

LINK TYPE TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 SELF         PCIE
0000:22:00.0 PCIE         SELF

NUMA BW TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 N/A          50000-100000
0000:22:00.0 50000-100000 N/A

ATOMICS TABLE:
             0000:0c:00.0 0000:22:00.0
0000:0c:00.0 SELF         64,32
0000:22:00.0 64,32        SELF
"""


def test_amd_smi_names_cards_by_address_and_tells_access() -> None:
    piece = read(text(AMD_SMI))[0]
    assert piece.machine is not None
    assert [gpu.pci_bus_id for gpu in piece.machine.gpus] == ["00000000:0C:00.0", "00000000:22:00.0"]
    assert paths(piece) == {(0, 1): "PCIE", (1, 0): "PCIE"}
    assert [pair.peer_access for pair in piece.machine.pairs] == [False, False]
    assert [links(piece)[0, 1][name] for name in ("weight", "atomics", "bandwidth", "access")] == [40, "64,32", "50000-100000", False]
    assert piece.damaged == ()


def test_product_names() -> None:
    piece = read(
        text(
            "GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X OAM\n"
            "GPU[0]\t\t: Card Model: \t\t0x74a1\nGPU[1]\t\t: Card Series: \t\tAMD Instinct MI300X OAM"
        )
    )[0]
    assert piece.machine is not None
    assert [gpu.name for gpu in piece.machine.gpus] == ["AMD Instinct MI300X OAM"] * 2


def test_a_row_that_lost_a_cell_leaves_its_pairs_open() -> None:
    broken = SHOWTOPO.replace(
        square(4, "0", lambda a, b: "XGMI" if island(a, b) else "PCIE"), "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   0"
    )
    piece = read(text(broken))[-1]
    assert any("GPU1" in why for _, why in piece.damaged)
    assert paths(piece)[1, 0] is None


@pytest.mark.parametrize("content", ["", "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X ", "XGMI is fast", "GPU[0]: temperature 40"])
def test_other_text_is_left_alone(content: str) -> None:
    assert read(text(content)) == ()


def test_the_titles_of_the_tables_are_understood() -> None:
    content = (
        "=========== Link Type between two GPUs ===========\n       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n"
        "=========== Numa Nodes ===========\nGPU[0]\t\t: (Topology) Numa Node: 0\n"
    )
    (piece,) = read(text(content))
    assert piece.understood == {1, 2, 3, 4, 5, 6}

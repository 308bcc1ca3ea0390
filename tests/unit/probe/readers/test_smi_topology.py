"""``nvidia-smi topo -m`` in every shape in which people paste it, and never silently misread."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, recording, text
from wiretax.model.machine import Machine
from wiretax.model.reading import unexplained
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.smi_topology import read


def one(content: str) -> Piece:
    pieces = read(text(content))
    assert len(pieces) == 1, pieces
    return pieces[0]


def machine(piece: Piece) -> Machine:
    assert piece.machine is not None
    return piece.machine


def matrix(piece: Piece) -> list[list[str | None]]:
    """The paths as a square, with X on the diagonal."""
    found = machine(piece)
    indices = [gpu.index for gpu in found.gpus]
    rows: list[list[str | None]] = []
    for source in indices:
        row: list[str | None] = []
        for target in indices:
            pair = found.pair(source, target)
            row.append("X" if source == target else pair.path if pair else None)
        rows.append(row)
    return rows


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def affinities(piece: Piece) -> list[tuple[str | None, int | None]]:
    return [(gpu.cpu_affinity, gpu.numa_node) for gpu in machine(piece).gpus]


PAIRED = [["X", "PHB", "SYS", "SYS"], ["PHB", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "PHB"], ["SYS", "SYS", "PHB", "X"]]


@pytest.mark.parametrize(
    ("name", "expected", "first_affinity"),
    [
        ("C01_topo.txt", PAIRED, (None, None)),
        (
            "C06_topo.txt",
            [["X", "PXB", "SYS", "SYS"], ["PXB", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "PIX"], ["SYS", "SYS", "PIX", "X"]],
            ("0-27,56-83", 0),
        ),
        ("C10_topo.txt", [["X", "NODE"], ["NODE", "X"]], ("0-55", 0)),
        ("C11_topo.txt", [["X", "PHB"], ["PHB", "X"]], ("0-23", 0)),
        ("C15_topo.txt", [["X", "NODE"], ["NODE", "X"]], ("0-63", 0)),
        (
            "C28_topo.txt",
            [["X", "SYS", "SYS", "SYS"], *[["SYS", *row] for row in (["X", "NODE", "NODE"], ["NODE", "X", "NODE"], ["NODE", "NODE", "X"])]],
            ("0-15,32-47", None),
        ),
        (
            "C44_topo.txt",
            [["X", "NV6", "NV6", "NV6"], ["NV6", "X", "NV6", "NV6"], ["NV6", "NV6", "X", "NV6"], ["NV6", "NV6", "NV6", "X"]],
            ("6,14,22,30", 3),
        ),
        ("C46_topo.txt", [["X", "PIX"], ["PIX", "X"]], ("0-15", 0)),
        ("C48_topo.txt", [["X"]], ("0-19", 0)),
        (
            "C61_topo.txt",
            [["X", "NODE", "SYS", "SYS"], ["NODE", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "NODE"], ["SYS", "SYS", "NODE", "X"]],
            ("0-15,32-47", 0),
        ),
        (
            "C61_topo_c.txt",
            [["X", "NV12", "NV12", "NV12"], ["NV12", "X", "NV12", "NV12"], ["NV12", "NV12", "X", "NV12"], ["NV12", "NV12", "NV12", "X"]],
            ("0-23", 0),
        ),
        (
            "C61_topo_d.txt",
            [["X", "PHB", "SYS", "NV2"], ["PHB", "X", "NV1", "SYS"], ["SYS", "NV1", "X", "SYS"], ["NV2", "SYS", "SYS", "X"]],
            ("0-31", None),
        ),
        ("C62_topo.txt", [["X", "NV2"], ["NV2", "X"]], ("0-23", None)),
        ("C62_topo_b.txt", [["X", "PHB"], ["PHB", "X"]], ("0-23", None)),
        ("C67_topo.txt", [["X", "SYS"], ["SYS", "X"]], ("0-31,64-95", 0)),
    ],
)
def test_a_case_is_read_whole_and_undamaged(name: str, expected: list[list[str]], first_affinity: tuple[str | None, int | None]) -> None:
    pieces = read(case(name))
    assert len(pieces) == 1
    assert matrix(pieces[0]) == expected
    assert affinities(pieces[0])[0] == first_affinity
    assert pieces[0].damaged == ()
    assert list(unexplained(pieces[0].machine)) == []


def test_the_recording_is_one_matrix_among_much_else() -> None:
    pieces = read(recording("host_and_nvidia_smi.txt"))
    assert [matrix(piece) for piece in pieces] == [[["X", "NV18"], ["NV18", "X"]]]
    assert pieces[0].first_line == 64
    assert affinities(pieces[0]) == [("0-31", 0), ("0-31", 0)]


def test_columns_named_after_their_device_need_no_legend() -> None:
    piece = read(case("C27_topo.txt"))[0]
    assert [row[index] for index, row in enumerate(matrix(piece))] == ["X"] * 8
    assert matrix(piece)[6] == ["SYS"] * 6 + ["X", "NV4"]
    near = [(entry["nic"], entry["gpu"], entry["path"]) for entry in values(piece, "topology.nic_path") if entry["path"] != "SYS"]
    assert near == [("mlx5_0", 6, "PHB"), ("mlx5_1", 6, "PHB")]
    assert [gpu.numa_node for gpu in machine(piece).gpus] == [3, 2, 1, 0, 7, 6, 5, 4]
    assert piece.damaged == ()


def test_a_last_cell_without_trailing_blank_and_a_legend_of_nics() -> None:
    piece = read(case("C76_topo.txt"))[0]
    assert piece.damaged == ()
    near = [(entry["device"], entry["gpu"]) for entry in values(piece, "topology.nic_path") if entry["path"] == "PIX"]
    assert near == [("mlx5_0", 1), ("mlx5_1", 2)]
    named = read(case("C44_topo.txt"))[0]
    assert values(named, "topology.nic") == [{"nic": "NIC0", "device": "mlx5_0"}, {"nic": "NIC1", "device": "mlx5_1"}]


def test_cells_run_together_are_read_by_their_words_and_reported() -> None:
    piece = read(case("C61_topo_b.txt"))[0]
    assert matrix(piece) == [["X" if a == b else "NV18" for b in range(4)] for a in range(4)]
    assert [line for line, _ in piece.damaged] == [2, 4]
    assert "NODENODE" in piece.damaged[0][1]
    paths = {(entry["nic"], entry["gpu"]): entry["path"] for entry in values(piece, "topology.nic_path")}
    assert [paths[("NIC3", gpu)] for gpu in range(4)] == ["NODE", "NODE", "PIX", "SYS"]
    assert affinities(piece)[0] == ("0-55,112-167", 0)


def test_a_row_whose_links_run_into_the_cpu_list_is_not_guessed() -> None:
    piece = one("\tGPU0\tGPU1\tCPU Affinity\nGPU0 X NV120-23\nGPU1 NV12 X 0-23")
    assert matrix(piece) == [["X", None], ["NV12", "X"]]
    assert [line for line, _ in piece.damaged] == [2]


EIGHT = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    CPU Affinity    NUMA Affinity
    GPU0     X      NV4     NODE    NODE    SYS     SYS     SYS     SYS     0-63,128-191    0
    GPU1    NV4      X      NODE    NODE    SYS     SYS     SYS     SYS     0-63,128-191    0
    GPU2    NODE    NODE     X      NV4     SYS     SYS     SYS     SYS     0-63,128-191    0
    GPU3    NODE    NODE    NV4      X      SYS     SYS     SYS     SYS     0-63,128-191    0
    GPU4    SYS     SYS     SYS     SYS      X      NV4     NODE    NODE    64-127,192-254  1
    GPU5    SYS     SYS     SYS     SYS     NV4      X      NODE    NODE    64-127,192-254  1
    GPU6    SYS     SYS     SYS     SYS     NODE    NODE     X      NV4     64-127,192-254  1
    GPU7    SYS     SYS     SYS     SYS     NODE    NODE    NV4      X      64-127,192-254  1
"""


@pytest.mark.parametrize(
    "bend",
    [
        lambda content: content,
        lambda content: "\n".join(" ".join(line.split()) for line in content.split("\n")),  # blanks collapsed
        lambda content: "```\n$ nvidia-smi topo -m\n" + content + "```",
        lambda content: "\n".join(f"[1,3]<stdout>:{line}" for line in content.split("\n")),
        lambda content: "\n".join(f"> {line}" for line in content.split("\n")),
        lambda content: content.replace("\n", "\n\n"),  # double spaced by a mail client
        lambda content: "user@box:~$ nvidia-smi topo -m" + content,  # header glued to the prompt
        lambda content: "Some words before.\n\n" + content + "\nand some words after it.",
        lambda content: content.replace("\n    GPU3", "\nINFO: unrelated line of another process\n    GPU3"),
        lambda content: (
            "\n".join("|" + "|".join(line.replace("CPU Affinity", "CPU_Affinity").split()) + "|" for line in content.split("\n"))
            .replace("CPU_Affinity", "CPU Affinity")
            .replace("NUMA|Affinity", "NUMA Affinity")
        ),
    ],
)
def test_eight_gpus_survive_every_way_of_pasting(bend: Any) -> None:
    piece = one(bend(EIGHT))
    assert matrix(piece)[0] == ["X", "NV4", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert matrix(piece)[7] == ["SYS", "SYS", "SYS", "SYS", "NODE", "NODE", "NV4", "X"]
    assert affinities(piece)[7] == ("64-127,192-254", 1)
    assert piece.damaged == ()


def test_two_hosts_behind_pdsh_are_two_machines_with_their_names() -> None:
    lines = [
        f"{host}: {row}"
        for row_of in (lambda p: ["\tGPU0\tGPU1", f"GPU0\t X \t{p}", f"GPU1\t{p}\t X "],)
        for host, path in (("node-1", "NV12"), ("node-2", "SYS"))
        for row in row_of(path)
    ]
    pieces = read(text("\n".join(lines)))
    assert [machine(piece).hostname for piece in pieces] == ["node-1", "node-2"]
    assert [matrix(piece)[0][1] for piece in pieces] == ["NV12", "SYS"]


def test_the_oldest_drivers_say_soc_for_sys() -> None:
    piece = one(
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-9,20-29\n"
        "GPU1\tSOC\t X \t10-19,30-39\n\nLegend:\n"
        "\n  X   = Self\n  SOC  = Path traverses a socket-level link (e.g. QPI)"
    )
    assert matrix(piece) == [["X", "SYS"], ["SYS", "X"]]
    assert affinities(piece) == [("0-9,20-29", None), ("10-19,30-39", None)]


def test_thirty_six_nics_beside_eight_gpus() -> None:
    gpus, nics = [f"GPU{index}" for index in range(8)], [f"NIC{index}" for index in range(36)]
    header = "\t" + "\t".join(gpus + nics) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    rows = [header]
    for row, name in enumerate(gpus + nics):
        cells = [
            " X " if row == column else "NV18" if row < 8 and column < 8 else "PIX" if row % 8 == column % 8 else "SYS"
            for column in range(44)
        ]
        rows.append(name + "\t" + "\t".join(cells) + ("\t0-55\t0\t\tN/A" if row < 8 else "\t\t\t\t"))
    legend = ["", "NIC Legend:", "", *[f"  NIC{index}: mlx5_{index}" for index in range(36)]]
    piece = one("\n".join(rows + legend))
    assert piece.damaged == ()
    assert len(values(piece, "topology.nic_path")) == 8 * 36
    assert [entry["device"] for entry in values(piece, "topology.nic_path") if entry["gpu"] == 3 and entry["path"] == "PIX"] == [
        "mlx5_3",
        "mlx5_11",
        "mlx5_19",
        "mlx5_27",
        "mlx5_35",
    ]
    assert affinities(piece)[0] == ("0-55", 0)


def test_rows_that_a_terminal_wrapped_are_put_together() -> None:
    names = [f"GPU{index}" for index in range(8)] + [f"NIC{index}" for index in range(6)]
    lines = ["        " + "  ".join(names[:10]), "  ".join(names[10:]) + "  CPU Affinity  NUMA Affinity"]
    for row, name in enumerate(names):
        cells = ["X" if row == column else "NV18" if row < 8 and column < 8 else "SYS" for column in range(14)]
        lines += [name + "    " + "   ".join(cells[:10]), "   ".join(cells[10:]) + ("   0-31  0" if row < 8 else "")]
    piece = one("\n".join(lines))
    assert matrix(piece) == [["X" if a == b else "NV18" for b in range(8)] for a in range(8)]
    assert affinities(piece)[0] == ("0-31", 0)
    assert piece.damaged == ()


@pytest.mark.parametrize(
    ("row", "affinity"),
    [
        ("GPU0\t X \tSYS\t\t0\t\tN/A", (None, 0)),  # blank CPU cell, filled NUMA cell
        ("GPU0\t X \tSYS\t0-31\t\t\tN/A", ("0-31", None)),
        ("GPU0\t X \tSYS\t\t\t\t", (None, None)),  # Windows: all blank
        ("GPU0\t X \tSYS\t0-31\t0-1\t\tN/A", ("0-31", None)),  # a range of NUMA nodes
        ("GPU0\t X \tSYS\tff00ff\t0\t\tN/A", ("ff00ff", 0)),  # a mask
        ("GPU0\t X \tSYS\t0fff,ffffff00,00000fff\t1\t\t0", ("0fff,ffffff00,00000fff", 1)),
        ("GPU0     X      SYS    0-31    1               N/A", ("0-31", 1)),
        ("GPU0     X      SYS    0-31,64-95   1", ("0-31,64-95", 1)),  # GPU NUMA ID is blank
        ("GPU0     X      SYS    0-1    N/A", (None, None)),  # CPUs or NUMA nodes: cannot be told
    ],
)
def test_affinity_cells_are_kept_only_where_their_column_is_certain(row: str, affinity: tuple[str | None, int | None]) -> None:
    piece = one(f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n{row}\nGPU1\tSYS\t X \t32-63\t1\t\tN/A")
    assert affinities(piece)[0] == affinity
    assert matrix(piece) == [["X", "SYS"], ["SYS", "X"]]
    gpu = machine(piece).gpus[0]
    for name in ("cpu_affinity", "numa_node"):
        assert (getattr(gpu, name) is None) == (name in gpu.missing)


def test_a_numa_range_is_told_as_printed() -> None:
    piece = one("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-31\t0-1\nGPU1\tSYS\t X \t0-31\t0-1")
    assert values(piece, "topology.numa") == [{"gpu": 0, "numa_nodes": "0-1"}, {"gpu": 1, "numa_nodes": "0-1"}]


def test_the_two_halves_of_a_matrix_must_agree() -> None:
    piece = one("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tNODE\t X ")
    assert values(piece, "topology.asymmetric") == [{"first_gpu": 0, "second_gpu": 1, "there": "PIX", "back": "NODE"}]
    assert piece.damaged == ((3, "GPU0 to GPU1 says PIX, GPU1 to GPU0 says NODE"),)


@pytest.mark.parametrize(
    ("row", "left"),
    [
        ("GPU2    SYS      X      PHB", [None, None, "X", "PHB"]),  # one lost before the diagonal: only the side behind it is sure
        ("GPU2    SYS     SYS      X", ["SYS", "SYS", "X", None]),  # cut off behind the diagonal
        ("GPU2    SYS     SYS     PHB", [None, None, "X", None]),  # the diagonal itself is gone
        ("GPU2    SYS     SYS     SYS      X      PHB", [None, None, "X", None]),  # one too many
    ],
)
def test_a_row_that_lost_a_cell_keeps_only_what_is_certain(row: str, left: list[str | None]) -> None:
    rows = [
        "        GPU0    GPU1    GPU2    GPU3",
        "GPU0     X      PHB     SYS     SYS",
        "GPU1    PHB      X      SYS     SYS",
        row,
        "GPU3    SYS     SYS     PHB      X",
    ]
    piece = one("\n".join(rows))
    assert matrix(piece)[2] == left
    assert [line for line, _ in piece.damaged] == [4]
    pair = machine(piece).pair(2, 0)
    assert pair is not None
    assert pair.path is not None or "damaged" in pair.missing["path"]


def test_missing_rows_are_named() -> None:
    piece = one("        GPU0    GPU1    GPU2\nGPU0     X      PHB     SYS\nGPU1    PHB      X      SYS")
    assert piece.damaged == ((1, "the rows GPU2 are missing"),)
    assert matrix(piece)[2] == [None, None, "X"]
    assert values(piece, "topology.incomplete") == [{"rows_shown": 2, "columns_shown": 3}]


def test_a_row_given_twice_must_say_the_same() -> None:
    piece = one("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU0\t X \tSYS\nGPU1\tSYS\t X ")
    assert matrix(piece)[0] == ["X", None]
    assert any("second row" in why for _, why in piece.damaged)


def test_a_header_that_lost_a_column_is_not_read_as_a_smaller_machine() -> None:
    piece = one("\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-63\nGPU1\tNV12\t X \t0-63")
    assert [line for line, _ in piece.damaged] == [2, 3]
    assert "row GPU0 has no column" in piece.damaged[0][1]


@pytest.mark.parametrize("escape", ["\x1b[4m", "[4m", "\ufffd[4m", "^[[4m"])
def test_underlining_whose_escape_character_was_lost(escape: str) -> None:
    end = escape.replace("4", "0")
    piece = one(
        f"\t{escape}GPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID{end}\n"
        "GPU0\t X \tNV12\t0-63\t0\t\tN/A\nGPU1\tNV12\t X \t0-63\t0\t\tN/A"
    )
    assert matrix(piece) == [["X", "NV12"], ["NV12", "X"]]
    assert affinities(piece) == [("0-63", 0), ("0-63", 0)]
    assert piece.damaged == ()


@pytest.mark.parametrize("evidence", ["command", "legend"])
def test_a_matrix_without_nvlink_by_request_says_so(evidence: str) -> None:
    legend = "Legend:\n\n  X    = Self\n  SYS  = Connection\n  PXB  = Connection\n  PIX  = Connection" if evidence == "legend" else ""
    command = "$ nvidia-smi topo -mp\n" if evidence == "command" else ""
    piece = one(f"{command}\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n\n{legend}")
    assert values(piece, "topology.pcie_only") == [{"evidence": evidence}]


def test_two_matrices_in_one_text_are_two_pieces() -> None:
    content = "before\n\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n\nafter\n\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X "
    assert [matrix(piece)[0][1] for piece in read(text(content))] == ["PHB", "NV4"]


@pytest.mark.parametrize(
    "content",
    [
        "GPU0 GPU1 GPU2",  # a heading of something else
        "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0",  # rocm-smi
        " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t",  # topo -p2p
        "| GPU0 | 35C | 20 % |\n| GPU1 | 36C | 30 % |",
        "GPU 0: NVIDIA H200 (UUID: GPU-1)",
        "",
    ],
)
def test_other_tables_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()

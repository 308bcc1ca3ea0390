"""Facts that agree become one machine; what conflicts stays apart with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import CASES, DATA, text
from wiretax.model.reading import unexplained
from wiretax.probe.readers import READERS
from wiretax.probe.readers.input import read_files
from wiretax.probe.readers.join import MAX_DISTINCT, Group, join
from wiretax.probe.readers.piece import Piece


def of_case(*names: str) -> list[Group]:
    pieces, _ = read_files([str(CASES / name) for name in names])
    return join(pieces)


def pieces_of(content: str, source: str = "a.txt") -> list[Piece]:
    return [piece for reader in READERS for piece in reader(text(content, source))]


def joined(*contents: str) -> list[Group]:
    return join([piece for number, content in enumerate(contents) for piece in pieces_of(content, f"file{number}.txt")])


def formats(group: Group) -> list[str]:
    return [piece.format for piece in group.pieces]


def names(group: Group) -> list[str | None]:
    assert group.machine is not None
    return [gpu.name for gpu in group.machine.gpus]


def matrix(count: int, path: str) -> str:
    rows = ["\t" + "\t".join(f"GPU{index}" for index in range(count))]
    rows += [f"GPU{row}\t" + "\t".join(" X " if row == column else path for column in range(count)) for row in range(count)]
    return "\n".join(rows)


def listing(count: int, name: str = "NVIDIA A40", tag: str = "1") -> str:
    return "\n".join(f"GPU {index}: {name} (UUID: GPU-{tag}{index}111111-2222-3333-4444-555555555555)" for index in range(count))


# cases


def test_the_files_of_the_rented_box_are_one_machine() -> None:
    groups = of_case("C01_bw.txt", "C01_nccl.log", "C01_topo.txt")
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [pair.path for pair in groups[0].machine.pairs][:3] == ["PHB", "SYS", "SYS"]
    assert groups[0].apart == ()
    assert {entry.kind for entry in groups[0].observations} >= {"training.rate", "bandwidth.pair"}
    assert list(unexplained(groups[0].machine)) == []


@pytest.mark.parametrize(
    ("files", "because"),
    [
        (
            ("C20_bw.txt", "C20_nccl.log", "C20_nccl_b.log", "C20_p2p.txt", "C20_topo.txt"),
            "SHM/direct/direct in one and SHM/CE/direct in the other",
        ),
        (("C22_nccl.log", "C22_nccl_b.log", "C22_topo.txt"), "SHM/direct/direct in one and P2P/CUMEM in the other"),
    ],
)
def test_two_runs_on_one_machine_each_keep_its_topology(files: tuple[str, ...], because: str) -> None:
    groups = of_case(*files)
    assert [[entry.kind for entry in group.apart] for group in groups] == [["run"], ["run"]]
    assert because in groups[0].apart[0].because
    for group in groups:
        assert "nvidia-smi topo -m" in formats(group)
        assert group.machine is not None
        assert len(group.machine.gpus) == 4


def test_p2p_codes_and_prose_names_reach_the_joined_machine() -> None:
    machine = of_case("C20_bw.txt", "C20_nccl.log", "C20_p2p.txt", "C20_topo.txt")[0].machine
    assert machine is not None
    assert {(pair.p2p.read, pair.p2p.write, pair.p2p.nvlink) for pair in machine.pairs} == {("CNS", "CNS", None)}
    assert {gpu.name for gpu in machine.gpus} == {"RTX 4090"}
    assert (machine.software.driver, machine.surroundings.iommu) == ("595.71.05", "translated")


def test_a_mig_machine_of_four_texts() -> None:
    groups = of_case("C48_nccl.log", "C48_nvlink.txt", "C48_smi_L.txt", "C48_topo.txt")
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [(gpu.mig, gpu.numa_node) for gpu in groups[0].machine.gpus] == [("enabled", 0)]


def test_two_spellings_of_one_output_are_one_machine() -> None:
    groups = of_case("C50_nvlink.txt", "C50_nvlink_b.txt")
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [gpu.nvlinks_active for gpu in groups[0].machine.gpus] == [6, 6, 6, 4]


def test_two_machines_with_other_cards_stay_apart() -> None:
    groups = of_case("C54_smi_q.txt", "C54_smi_q_b.txt")
    assert [group.apart[0].kind for group in groups] == ["machine", "machine"]
    assert [group.apart[0].group for group in groups] == [1, 0]
    assert [names(group)[0] for group in groups] == ["NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA GeForce RTX 3090"]


def test_four_wild_matrices_are_four_states() -> None:
    groups = of_case("C61_topo.txt", "C61_topo_b.txt", "C61_topo_c.txt", "C61_topo_d.txt")
    assert [len(group.apart) for group in groups] == [3, 3, 3, 3]
    assert groups[0].apart[0].because == "GPU 0 to GPU 1 is NODE in one matrix and NV18 in the other"


def test_timings_beside_two_matrices_belong_to_neither() -> None:
    groups = of_case("C62_bench.txt", "C62_topo.txt", "C62_topo_b.txt")
    assert [group.machine is None for group in groups] == [False, False, True]
    assert [group.apart[0].kind for group in groups[:2]] == ["state", "state"]
    assert groups[2].ambiguous
    assert {entry.kind for entry in groups[2].observations} >= {"training.rate", "training.run_time"}


def test_timings_alone_are_one_group_without_a_machine() -> None:
    groups = of_case("C64_bench.txt", "C66_bench.txt")
    assert len(groups) == 1
    assert groups[0].machine is None
    assert groups[0].ambiguous == ""


def test_the_rank_files_of_one_run_are_one_machine_and_its_other_wires_are_not() -> None:
    folder = DATA / "h200x2"
    one = join(read_files([str(folder / "nccl_default.1679.log"), str(folder / "nccl_default.1680.log")])[0])
    assert [group.apart for group in one] == [()]
    files = ["host_and_nvidia_smi.txt", "nvidia_smi_q.txt", "nccl_default.1679.log", "nccl_shm.1778.log", "nccl_net.1880.log"]
    three = join(read_files([str(folder / name) for name in files])[0])
    assert [[entry.kind for entry in group.apart] for group in three] == [["run", "run"]] * 3
    for group in three:
        assert group.machine is not None
        assert [(gpu.name, gpu.nvlinks_active, gpu.pcie.generation) for gpu in group.machine.gpus] == [("NVIDIA H200", 18, 5)] * 2
        assert [pair.path for pair in group.machine.pairs] == ["NV18", "NV18"]
        assert [pair.p2p.read for pair in group.machine.pairs] == ["OK", "OK"]


# shapes


def test_a_matrix_without_names_takes_those_of_a_list_of_the_same_count() -> None:
    groups = joined(matrix(2, "SYS"), listing(2))
    assert [names(group) for group in groups] == [["NVIDIA A40", "NVIDIA A40"]]
    assert groups[0].machine is not None
    assert [pair.path for pair in groups[0].machine.pairs] == ["SYS", "SYS"]


def test_another_count_is_another_machine() -> None:
    groups = joined(matrix(4, "SYS"), listing(2))
    assert groups[0].apart[0].kind == "machine"
    assert groups[0].apart[0].because == "one shows 4 GPUs, the other 2"


def test_another_identity_is_another_machine() -> None:
    groups = joined(listing(2, tag="1"), listing(2, tag="9"))
    assert groups[0].apart[0].because == "GPU 0: its UUID differs"


def test_another_host_is_another_machine() -> None:
    lines = ["\n".join(f"{host}: {line}" for line in matrix(2, "PHB").split("\n")) for host in ("node-1", "node-2")]
    groups = joined(*lines)
    assert groups[0].apart[0].because == "one is of host node-1, the other of node-2"
    assert [group.machine.hostname for group in groups if group.machine] == ["node-1", "node-2"]


def test_a_list_that_fits_two_states_stands_alone() -> None:
    groups = joined(matrix(2, "NV4"), matrix(2, "PHB"), listing(2))
    assert [formats(group) for group in groups] == [["nvidia-smi topo -m"], ["nvidia-smi topo -m"], ["nvidia-smi -L"]]
    assert groups[2].ambiguous == "fits several of the machines equally well"


def test_a_text_stays_with_the_matrix_of_its_own_file() -> None:
    groups = joined(matrix(2, "NV4") + "\n\n" + listing(2), matrix(2, "PHB"))
    assert sorted(formats(groups[0])) == ["nvidia-smi -L", "nvidia-smi topo -m"]
    assert formats(groups[1]) == ["nvidia-smi topo -m"]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_the_files_does_not_matter(reverse: bool) -> None:
    files = ["C20_bw.txt", "C20_nccl.log", "C20_nccl_b.log", "C20_p2p.txt", "C20_topo.txt"]
    groups = of_case(*(reversed(files) if reverse else files))
    assert sorted(len(group.pieces) for group in groups) == [5, 5]


@pytest.mark.parametrize(
    ("one", "other", "because"),
    [
        (
            "nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX",
            "nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX",
            "GPU 0 to GPU 1: P2P read is OK in one and CNS in the other",
        ),
        (
            listing(1) + "\n\t Link 0: 14.062 GB/s",
            listing(1) + "\n\t Link 0: <inactive>",
            "NVLink 0 of GPU 0 is up in one and down in the other",
        ),
        (
            "| NVIDIA-SMI 545.29.06   Driver Version: 545.29.06   CUDA Version: 12.3 |",
            "| NVIDIA-SMI 535.129.03   Driver Version: 535.129.03   CUDA Version: 12.2 |",
            "one ran driver 545.29.06, the other 535.129.03",
        ),
    ],
)
def test_what_makes_a_state(one: str, other: str, because: str) -> None:
    groups = joined(one, other)
    assert [(entry.kind, entry.because) for entry in groups[0].apart] == [("state", because)]


def test_answers_to_other_questions_do_not_conflict() -> None:
    groups = joined(
        "nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tOK\n"
        " GPU1\tOK\tX\n\nnvidia-smi topo -p2p n\n"
        " \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX"
    )
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert (groups[0].machine.pairs[0].p2p.read, groups[0].machine.pairs[0].p2p.nvlink) == ("OK", "NS")


def test_a_matrix_without_nvlink_by_request_does_not_conflict() -> None:
    groups = joined(matrix(2, "NV4"), "$ nvidia-smi topo -mp\n" + matrix(2, "NODE"))
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [pair.path for pair in groups[0].machine.pairs] == ["NV4", "NV4"]


CSV = "index, name, pci.bus_id\n0, NVIDIA A40, 00000000:01:00.0\n1, NVIDIA A40, 00000000:41:00.0"


def test_a_card_numbered_by_its_place_is_renumbered_by_its_address() -> None:
    excerpt = (
        "Attached GPUs : 2\nGPU 00000000:41:00.0\n"
        "    Product Name : NVIDIA A40\n    PCI\n"
        "        GPU Link Info\n            PCIe Generation\n"
        "                Max : 4\n                Current : 1"
    )
    groups = joined(CSV, excerpt)
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [(gpu.index, gpu.pcie.generation) for gpu in groups[0].machine.gpus] == [(0, None), (1, 1)]
    assert groups[0].machine.origin_note is None
    assert [entry.values["gpu"] for entry in groups[0].observations if entry.kind == "gpu.index_assumed"] == [1]


def test_the_busiest_moment_says_how_the_link_runs() -> None:
    head = "index, name, pcie.link.gen.current, pcie.link.gen.max, utilization.gpu [%]"
    groups = joined(
        f"{head}\n0, NVIDIA A40, 1, 4, 0 %\n1, NVIDIA A40, 1, 4, 0 %", f"{head}\n0, NVIDIA A40, 4, 4, 99 %\n1, NVIDIA A40, 4, 4, 98 %"
    )
    assert len(groups) == 1
    assert groups[0].machine is not None
    assert [(gpu.pcie.generation, gpu.utilization_fraction) for gpu in groups[0].machine.gpus] == [(4, 0.99), (4, 0.98)]


def test_a_name_that_was_cut_off_yields_to_the_whole_one() -> None:
    table = (
        "|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                  N/A |\n"
        "| 30%   35C    P8    20W / 350W |      1MiB / 24576MiB |      0%      Default |"
    )
    groups = joined(table, "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-2222-3333-4444-555555555555)")
    assert [names(group) for group in groups] == [["NVIDIA GeForce RTX 3090"]]


def test_variables_of_one_machine_are_united_and_gaps_keep_their_best_reason() -> None:
    groups = joined("NCCL_DEBUG=INFO\nCUDA_VISIBLE_DEVICES=0,1", "max locked memory (kbytes, -l) unlimited", matrix(2, "PHB"))
    machine = groups[0].machine
    assert machine is not None
    assert machine.software.nccl_environment == {"NCCL_DEBUG": "INFO"}
    assert machine.surroundings.cuda_visible_devices == "0,1"
    assert machine.surroundings.missing["memlock_bytes"] == "unlimited"
    assert machine.surroundings.missing["iommu"] == "not in the pasted text"
    assert list(unexplained(machine)) == []


def test_nothing_joins_to_nothing() -> None:
    assert join([]) == []


def test_a_flood_of_repeats_is_compared_once() -> None:
    repeats = [piece for number in range(400) for piece in pieces_of(matrix(2, "PHB"), "watch.txt")]
    groups = join([*repeats, *pieces_of(matrix(2, "NV4"), "other.txt")])
    assert sorted(len(group.pieces) for group in groups) == [1, 400]


def test_more_machines_than_can_be_compared_are_left_out_and_said_so() -> None:
    many: list[Any] = [
        piece for number in range(MAX_DISTINCT + 5) for piece in pieces_of(listing(1, tag=f"{number % 10}"), f"{number}.txt")
    ]
    groups = join(many)
    assert groups[-1].ambiguous.startswith("not compared")
    assert len(groups[-1].pieces) == 5

from __future__ import annotations

import pytest

from boxes import box, gpu
from wiretax.show.plain import ASCII, UNICODE
from wiretax.show.topology_tree import tree


def drawn(*args, symbols=ASCII, **values) -> list[str]:
    machine = box(*args, **values)
    return [str(getattr(line, "renderable", line)).strip("\n") for line in tree(machine, symbols)]


def test_pairs_under_a_host_bridge_are_branches_of_the_far_way() -> None:
    lines = drawn(4, {(0, 1): "PHB", (2, 3): "PHB", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"})
    assert lines[0].strip().startswith("SYS") and lines[0].endswith("between:")
    assert "PHB" in lines[1] and lines[1].endswith("GPU 0-1") and lines[2].endswith("GPU 2-3")


def test_equal_ways_are_one_line() -> None:
    assert drawn(8, "NV18") == ["NVLink (NV18): GPU 0-7"] or drawn(8, "NV18")[0].strip() == "NVLink (NV18): GPU 0-7"


def test_a_single_gpu_apart_hangs_alone() -> None:
    far = {(0, 1): "PIX", (0, 2): "SYS", (1, 2): "SYS"}
    assert drawn(3, far)[-1].strip().endswith("GPU 2")


def test_a_mesh_is_no_tree_and_says_so() -> None:
    ring = {(0, 1): "NV2", (1, 2): "NV2", (2, 3): "NV2", (0, 3): "NV2", (0, 2): "SYS", (1, 3): "SYS"}
    (line,) = drawn(4, ring)
    assert "mixed" in line and "NV2" in line and "SYS" in line


def test_cards_of_several_kinds_are_named() -> None:
    cards = (gpu(0, name="NVIDIA A40"), gpu(1, name="NVIDIA L40S"))
    assert "GPU 1 NVIDIA L40S" in drawn(2, "SYS", gpus=cards)[0]


def test_branches_have_signs_of_the_set() -> None:
    far = {(0, 1): "PIX", (2, 3): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    assert "├" in "".join(drawn(4, far, symbols=UNICODE)) and "├" not in "".join(drawn(4, far, symbols=ASCII))


@pytest.mark.parametrize("machine", [box(1), box(2, None)])
def test_nothing_is_drawn_of_what_is_not_known(machine) -> None:
    assert tree(machine, ASCII) == []

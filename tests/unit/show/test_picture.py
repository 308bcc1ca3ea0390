"""The machine drawn: who sits on which socket and switch, and which colour a link has."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_runs
import sample_runs
from builders import explained, four_4090_machine, gpu, pairs
from wiretax.model.machine import Machine
from wiretax.model.run import Run, Tool
from wiretax.probe.recorded import shipped_machine, shipped_machines
from wiretax.show.picture import Picture, has_nvswitch, picture, sockets, switched


def drawn(run: Run) -> Picture:
    found = picture(run)
    assert found is not None
    return found


def machine(paths: list[list[str]], **gpus: int) -> Machine:
    return explained(Machine, gpus=tuple(gpu(k, "GPU", 2**34, 4, **gpus) for k in range(len(paths))), pairs=pairs(paths, "OK"))


def test_gpus_across_sys_sit_on_different_sockets() -> None:
    assert [[g.index for g in group] for group in sockets(four_4090_machine())] == [[0, 1], [2, 3]]


def test_known_numa_nodes_decide_before_paths() -> None:
    whole = four_4090_machine()
    apart = replace(whole, gpus=tuple(replace(g, numa_node=g.index % 2) for g in whole.gpus))
    assert [[g.index for g in group] for group in sockets(apart)] == [[0, 2], [1, 3]]


def test_gpus_behind_one_switch_share_it() -> None:
    host = machine([["X", "PIX", "NODE"], ["PIX", "X", "NODE"], ["NODE", "NODE", "X"]])
    (group,) = sockets(host)
    assert [[g.index for g in part] for part in switched(host, group)] == [[0, 1], [2]]
    found = drawn(Run(run_id="r", created_at="", tool=Tool(version="1"), machine=host))
    assert [box.text for box in found.boxes if box.kind == "switch"] == ["PCIe switch"]


def test_eight_gpus_all_on_nvlink_hang_on_a_switch_and_four_do_not() -> None:
    assert has_nvswitch(report_runs.many(8, everything=False).machine)  # type: ignore[arg-type]
    bridged = machine([["X" if a == b else "NV4" for b in range(4)] for a in range(4)])
    assert not has_nvswitch(bridged)


def test_a_link_has_the_colour_of_its_measured_rate_and_a_dash_through_host_memory() -> None:
    found = drawn(sample_runs.four_4090())
    arcs = [link for link in found.links if "C" in link.path]
    assert len(arcs) == 6
    assert all(link.dashed for link in arcs)
    slow = [link for link in arcs if link.speed == "s1"]
    assert [link.label for link in slow] == ["4.00 GB/s"]
    assert "through host memory" in slow[0].tip
    assert found.notes == ("Dashed: every byte goes through host memory.",)


def test_unmeasured_links_have_no_colour_and_no_figure() -> None:
    found = drawn(sample_runs.inspected())
    assert {link.speed for link in found.links} == {"none"}
    assert not any(link.label for link in found.links)
    assert "not measured" in found.says


def test_many_gpus_are_tiles_and_the_slow_one_stands_out() -> None:
    found = drawn(report_runs.many(64))
    tiles = [box for box in found.boxes if box.kind == "tile"]
    assert len(tiles) == 64
    assert [box.text for box in tiles if box.speed == "s4"] == ["3"]
    assert "64 GPUs on 2 CPU sockets" in found.says


def test_a_lost_gpu_is_marked() -> None:
    whole = sample_runs.inspected().machine
    assert whole is not None
    gone = replace(whole, gpus=(replace(whole.gpus[0], status="lost", status_reason="fell off the bus"), *whole.gpus[1:]))
    found = drawn(sample_runs.inspected(gone))
    assert [box.kind for box in found.boxes if box.text == "GPU0"] == ["gpu lost"]


def test_without_a_gpu_there_is_no_picture() -> None:
    assert picture(sample_runs.cpu_only()) is None


@pytest.mark.parametrize("name", shipped_machines())
def test_every_machine_that_ships_is_drawn_inside_its_frame(name: str) -> None:
    found = picture(Run(run_id="r", created_at="", tool=Tool(version="1"), machine=shipped_machine(name)))
    if found is None:
        assert not shipped_machine(name).gpus
        return
    for box in found.boxes:
        assert box.x >= 0
        assert box.x + box.width <= found.width
        assert box.y >= 0
        assert box.y + box.height <= found.height

"""``rocm-bandwidth-test``."""

from __future__ import annotations

from pasted_text import text
from real_texts import rocm_bandwidth
from wiretax.model.reading import unexplained
from wiretax.probe.readers.rocm_bandwidth import read


def test_only_gpus_are_counted_and_a_pair_without_access_says_so() -> None:
    (piece,) = read(text(rocm_bandwidth(access=0, distance="N/A")))
    assert piece.machine is not None
    assert [(gpu.index, gpu.name, gpu.pci_bus_id) for gpu in piece.machine.gpus] == [
        (0, "Radeon RX 7900 XTX", "00000000:83:00.0"),
        (1, "Radeon RX 7900 XTX", "00000000:03:00.0"),
    ]
    assert [(pair.path, pair.peer_access) for pair in piece.machine.pairs] == [(None, False), (None, False)]
    assert not [o for o in piece.observations if o.kind == "bandwidth.pair"]
    assert not list(unexplained(piece.machine))


def test_a_distance_of_fifteen_is_infinity_fabric_and_copies_between_gpus_are_kept() -> None:
    (piece,) = read(text(rocm_bandwidth(access=1, distance="15", rate="33.125")))
    assert piece.machine is not None
    assert {pair.path for pair in piece.machine.pairs} == {"XGMI"}
    rates = {
        (o.values["source_gpu"], o.values["target_gpu"]): o.values["bandwidth_bytes_per_second"]
        for o in piece.observations
        if o.kind == "bandwidth.pair"
    }
    assert rates == {(0, 1): 33.125e9, (1, 0): 33.125e9}


def test_a_text_of_another_tool_is_left_alone() -> None:
    assert read(text("D/D 0 1\n0 1 1\n1 1 1\n")) == ()


def test_a_row_that_lost_cells_is_left_out() -> None:
    whole = rocm_bandwidth(access=1, distance="15")
    (piece,) = read(text(whole.replace("          2         1         1         1\n", "          2         1\n")))
    assert piece.machine is not None
    assert {(p.source_gpu, p.peer_access) for p in piece.machine.pairs} == {(0, True), (1, None)}

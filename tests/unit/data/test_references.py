"""Reference machines: each has a source and a date, and its figures are possible."""

from __future__ import annotations

import re

import pytest

from wiretax.data.references import Reference, references


@pytest.mark.parametrize("machine", references(), ids=lambda machine: machine.name)
def test_each_says_where_it_is_from_and_its_curves_are_possible(machine: Reference) -> None:
    assert len(machine.source) > 20
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", machine.date)
    assert machine.curves
    for curve in machine.curves:
        sizes = [size for size, _ in curve.points]
        assert sizes == sorted(set(sizes))
        assert all(0 < busbw < 2e12 for _, busbw in curve.points)
        assert 2 <= curve.world_size <= machine.num_gpus


def test_the_pair_we_measured_comes_first_with_all_its_wires() -> None:
    first = references()[0]
    assert (first.name, first.origin) == ("h200x2", "measured")
    assert {curve.wire for curve in first.curves} == {"nvlink", "host_memory", "socket", "gloo"}
    peak = max(busbw for curve in first.curves if (curve.operation, curve.wire) == ("all_reduce", "nvlink") for _, busbw in curve.points)
    assert peak == pytest.approx(330e9, rel=0.01)

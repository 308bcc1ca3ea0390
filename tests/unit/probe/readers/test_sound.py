"""Figures that cannot be one never leave the readers: they become null with a reason, and their line is told."""

import dataclasses

import pytest

from wiretax.model.machine import Gpu, Machine, PcieLink
from wiretax.model.observation import Observation
from wiretax.model.reading import not_finite, unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.pasted import machine, number, pcie_link, whole
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.sound import REASON, sound

HUGE = 10**30


def piece(gpu: Gpu, *observations: Observation) -> Piece:
    return Piece(source="x", format="a tool", first_line=3, machine=machine("a tool", gpus=[gpu]), observations=observations)


def test_a_piece_without_such_figures_is_the_same_object():
    good = piece(Gpu(index=0, power_watts=70.0), Observation(source="x", line=4, kind="k", values={"count": 3}))
    assert sound(good) is good


@pytest.mark.parametrize("bad", [HUGE, float("inf"), float("nan")])
def test_a_figure_that_cannot_be_is_null_with_a_reason_and_the_rest_is_kept(bad):
    found = sound(piece(Gpu(index=0, power_watts=bad, temperature_celsius=40.0, pcie=PcieLink(width=bad, generation=5))))
    (gpu,) = found.machine.gpus
    assert (gpu.power_watts, gpu.temperature_celsius, gpu.pcie.width, gpu.pcie.generation) == (None, 40.0, None, 5)
    assert gpu.missing["power_watts"] == gpu.pcie.missing["width"] == REASON
    assert found.damaged == ((3, f"{REASON} for machine.gpus[0].pcie.width"),)
    assert not [*not_finite(found), *unexplained(found.machine)]


def test_what_cannot_be_said_without_the_figure_is_left_out_whole():
    found = sound(piece(Gpu(index=HUGE)))
    assert found.machine.gpus == ()


def test_an_observation_keeps_its_other_values_and_its_line_is_told():
    found = sound(piece(Gpu(index=0), Observation(source="x", line=9, kind="k", values={"count": HUGE, "name": "n"})))
    assert found.observations[0].values == {"count": None, "name": "n"}
    assert found.damaged == ((9, f"{REASON} for count"),)


def test_a_line_already_told_is_not_told_again():
    bad = piece(Gpu(index=0), Observation(source="x", line=9, kind="k", values={"count": HUGE}))
    told = dataclasses.replace(bad, damaged=((9, "cut"),))
    assert sound(told).damaged == ((9, "cut"),)


def test_no_more_digits_than_a_number_may_have_are_read_as_none_not_as_a_part_of_them():
    assert (number("9" * 40), whole("9" * 40), number("1,234.5 W"), whole("1000")) == (None, None, 1234.5, 1000)


def test_no_link_has_a_thousand_lanes():
    link = pcie_link("5", "1000", "16x", "9" * 30)
    assert (link.generation, link.max_generation, link.width, link.max_width) == (5, None, 16, None)


@pytest.mark.parametrize("digits", [31, 5000])
def test_a_number_too_long_for_python_is_read_as_damage(digits):
    text = f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t{'9' * digits}\nGPU1\tSYS\t X \t4-7\t1\n"
    pieces, problems = read_bytes("x", text.encode())
    found: Machine = pieces[0].machine
    assert [gpu.numa_node for gpu in found.gpus] == [None, 1]
    assert found.gpus[0].missing["numa_node"] == REASON
    assert [(one.kind, one.line) for one in problems] == [("damaged", 1)]

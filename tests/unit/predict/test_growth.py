"""What others measured on another number of GPUs lies inside the interval of the ring model, and the interval says why it is wide."""

import itertools
import math

import pytest

from profiles import sweep
from wiretax.model.machine import Gpu, Machine, NvLink
from wiretax.model.measurement import Measurements
from wiretax.predict.growth import MIDDLE_90, growth, joined_by_switch
from wiretax.predict.wire_curve import Wire, bus_factor

SIZE = 2**28

PUBLISHED = {
    "4x RTX 4090, NCCL": (2, 4, 2.25e9, 2.15e9),
    "4x L4": (2, 4, 4.0e9, 5.5e9),
    "4x RTX 4090, JAX": (2, 4, 4.46e9, 8.57e9),
    "4x RTX 4090 with a slow first pair": (2, 4, 3.0e9, 7.8e9),
    "A100 PCIe bridged in pairs": (2, 4, 193e9, 25e9),
    "8x MI300X, a mesh": (2, 8, 47.7e9, 312.9e9),
    "8x H200, a switch nobody told of": (2, 8, 332e9, 368e9),
}


def curve_at(measured, asked, busbw, switched=None):
    factor = bus_factor("all_reduce", measured)
    found = Measurements(collectives=(sweep("all_reduce", measured, [(8, 2e-5), (SIZE, factor * SIZE / busbw)]),))
    return Wire.measured(found, "default", switched=switched).curve("all_reduce", asked)


@pytest.mark.parametrize("turned_round", [False, True], ids=["more", "fewer"])
@pytest.mark.parametrize("case", PUBLISHED.values(), ids=PUBLISHED)
def test_published_figures_of_another_number_of_gpus_lie_in_the_middle_90_percent(case, turned_round):
    few, many, of_few, of_many = case
    measured, asked, known, truth = (many, few, of_many, of_few) if turned_round else (few, many, of_few, of_many)

    curve = curve_at(measured, asked, known)

    ratio = math.log(truth / curve.busbw(SIZE))
    assert -MIDDLE_90 * curve.slower_sigma_at(SIZE) <= ratio <= MIDDLE_90 * curve.sigma_at(SIZE)


def test_behind_a_switch_the_same_published_figures_are_inside_a_narrow_interval():
    curve = curve_at(2, 8, 332e9, switched=True)

    assert abs(math.log(368e9 / curve.busbw(SIZE))) <= MIDDLE_90 * curve.sigma_at(SIZE)
    assert max(curve.sigma, curve.slower_sigma) < 0.3 < curve_at(2, 8, 332e9).slower_sigma


def test_two_linked_gpus_may_be_a_bridged_pair_so_more_of_them_may_be_far_slower_but_hardly_so_through_host_memory():
    assert growth(193e9, 2, 4).slower_sigma > 1.2
    assert growth(193e9, 2, 4, switched=False) == growth(193e9, 2, 4)
    assert growth(4e9, 2, 4).slower_sigma < 0.5


def test_a_switch_says_nothing_of_a_wire_through_host_memory():
    assert growth(27e9, 2, 4, switched=True) == growth(27e9, 2, 4, switched=None)


@pytest.mark.parametrize("switched", [None, False, True])
@pytest.mark.parametrize("rate", [2e9, 27e9, 45e9, 90e9, 330e9])
@pytest.mark.parametrize("measured", [2, 3, 4, 8])
def test_the_further_from_what_was_measured_the_less_sure(rate, measured, switched):
    more = [growth(rate, measured, asked, switched=switched) for asked in range(measured + 1, 17)]
    for nearer, further in itertools.pairwise(more):
        assert further.slower_sigma >= nearer.slower_sigma > 0
        assert further.faster_sigma > nearer.faster_sigma > 0


def test_the_interval_is_said_in_words_with_the_curve():
    (assumption,) = curve_at(2, 4, 4e9).assumptions
    assert assumption.endswith("other machines had 0.52 to 2.7 times that busbw)")


def linked(kind, **fields):
    return Gpu(index=0, nvlinks_active=1, nvlinks=(NvLink(index=0, active=True, remote_kind=kind),), **fields)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([linked("switch")], True),
        ([linked("unknown", fabric_state="completed")], True),
        ([linked("gpu")], False),
        ([Gpu(index=0, nvlinks_active=0)], False),
        ([linked("unknown")], None),
        ([Gpu(index=0)], None),
        ([], None),
    ],
)
def test_the_driver_says_whether_a_switch_joins_the_gpus(gpus, expected):
    assert joined_by_switch(Machine(gpus=tuple(gpus))) is expected
    assert joined_by_switch(None) is None

from dataclasses import replace

import pytest

import sample_runs
from plans import offer
from wiretax.plan.machines import closest, machines, standing_for


@pytest.fixture(scope="module")
def measured():
    return machines([sample_runs.h200_pair(), sample_runs.four_4090(), sample_runs.cpu_only(), sample_runs.inspected()])


def test_only_runs_that_measured_gpus_together_stand_for_anything(measured):
    assert [one.run.run_id for one in measured] == [sample_runs.h200_pair().run_id, sample_runs.four_4090().run_id]


def test_the_kind_of_wire_is_read_from_what_was_measured(measured):
    assert [one.kind for one in measured] == ["nvlink", "staged"]


def test_a_machine_stands_for_its_own_cards(measured):
    assert closest(measured, offer(gpu="RTX 4090"), 4) is measured[1]
    assert closest(measured, offer(gpu="H200 SXM"), 2) is measured[0]
    assert closest(measured, offer(gpu="A40"), 2) is None


def test_a_machine_whose_wire_contradicts_the_offer_does_not(measured):
    assert closest(measured, offer(gpu="RTX 4090", p2p=True), 4) is None
    assert closest(measured, offer(gpu="RTX 4090", p2p=False), 4) is measured[1]


def test_where_no_card_is_named_the_measured_box_is_the_one_meant(measured):
    assert closest(measured, offer(), 2) is measured[0]
    assert closest(measured, offer(), 4) is measured[1]


def test_the_nearest_size_of_box_comes_first(measured):
    small = replace(measured[1], num_gpus=2)

    assert [one.num_gpus for one in standing_for([small, measured[1]], offer(gpu="RTX 4090"), 4)] == [4, 2]


def test_one_host_says_nothing_about_several(measured):
    assert standing_for(measured, offer(gpu="RTX 4090", num_gpus=8, hosts=2), 8) == []

import pytest
import torch

from wiretax.measure import operations as ops
from wiretax.measure.buffers import holds
from wiretax.measure.rotation import MOST_GRAPH_OPERATIONS, Graph, Rotation
from wiretax.measure.timing import summarise


@pytest.fixture
def ran(monkeypatch):
    """The buffers on which operations ran."""
    used = []
    monkeypatch.setattr(ops, "run", lambda operation, source, target, index, size: used.append(target.data_ptr()))
    return used


def make_slices(count):
    return [(torch.zeros(4), torch.zeros(4)) for _ in range(count)]


def test_each_call_takes_the_next_buffer_and_begins_again(ran):
    slices = make_slices(3)
    rotation = Rotation("all_gather", slices, 0, 2)
    for _ in range(4):
        rotation()
    assert ran == [slices[number][1].data_ptr() for number in (0, 1, 2, 0)]


def test_sums_are_made_small_again_before_they_can_leave_the_range_of_floats(ran):
    slices = make_slices(1)
    rotation = Rotation("all_reduce", slices, 0, 8)
    slices[0][1].fill_(1e30)
    for _ in range(19):
        rotation()
    rotation.renew()
    assert slices[0][1][0] == 1e30
    rotation()
    rotation.renew()
    assert holds(slices[0][1], 1)


def test_replays_of_a_graph_count_as_calls(ran):
    slices = make_slices(1)
    rotation = Rotation("all_reduce", slices, 0, 2)
    rotation.count(60)
    rotation.renew()
    assert holds(slices[0][1], 1)


def test_operations_that_do_not_sum_need_no_renewal(ran):
    slices = make_slices(1)
    rotation = Rotation("broadcast", slices, 0, 2)
    rotation.count(10_000)
    rotation.renew()
    assert torch.equal(slices[0][1], torch.zeros(4))


def test_a_graph_is_as_long_as_a_sample_and_not_longer_than_the_most():
    assert Graph.operations_for(20e-6, 400e-6) == 20
    assert Graph.operations_for(1.0, 400e-6) == 1
    assert Graph.operations_for(1e-9, 400e-6) == MOST_GRAPH_OPERATIONS


@pytest.mark.parametrize(("operations", "calls"), [(20, 1), (1, 7), (32, 4), (20, 3)])
def test_a_later_graph_makes_samples_of_the_same_length(operations, calls):
    summary = summarise([1.0], operations_per_sample=operations * calls, stopped="budget")
    again = Graph.operations_of(summary)
    assert summary.operations_per_sample % again == 0
    assert again <= MOST_GRAPH_OPERATIONS

from itertools import combinations, permutations

import pytest
import torch

from wiretax.measure.copies import Step, in_rounds, plan_steps, tournament
from wiretax.measure.lanes import plain_lane


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_in_a_tournament_everybody_meets_everybody_once_and_nobody_twice_in_a_round(count):
    rounds = list(tournament(range(count)))
    met = [frozenset(pair) for one in rounds for pair in one]
    assert sorted(map(sorted, met)) == sorted(map(list, combinations(range(count), 2)))
    for one in rounds:
        members = [member for pair in one for member in pair]
        assert len(members) == len(set(members))
    assert len(rounds) == count - 1 + count % 2


def steps_of(count, access):
    pairs = list(permutations(range(count), 2))
    return plan_steps(pairs, dict.fromkeys(pairs, access), list(range(count)))


def test_two_gpus_with_peer_access_are_copied_direct_staged_and_both_ways_but_not_all_at_once():
    steps = steps_of(2, access=True)
    assert steps[:2] == [Step(route="direct", transfers=((0, 1),)), Step(route="direct", transfers=((1, 0),))]
    assert Step(route="direct", transfers=((0, 1), (1, 0)), both_ways=True) in steps
    assert Step(route="staged", transfers=((0, 1),)) in steps
    assert Step(route="staged", transfers=((0, 1), (1, 0)), both_ways=True) in steps
    assert not any(step.all_pairs for step in steps if step.route == "direct")


def test_without_peer_access_the_drivers_copy_is_the_staged_one_and_no_other_is_made():
    assert not any(step.route == "staged" for step in steps_of(4, access=False))


def test_four_gpus_run_disjoint_pairs_at_once_in_each_round_one_way_and_both_ways():
    together = [step for step in steps_of(4, access=True) if step.all_pairs and step.route == "direct"]
    assert len(together) == 6
    for step in together:
        assert len(step.transfers) == (4 if step.both_ways else 2)
        sources = [source for source, _ in step.transfers]
        assert len(sources) == len(set(sources))


def test_every_copy_of_a_step_has_a_source_of_its_own():
    for step in steps_of(5, access=True):
        sources = [source for source, _ in step.transfers]
        assert len(sources) == len(set(sources))


def test_host_copies_run_alone_and_all_at_once():
    steps = steps_of(2, access=True)
    assert Step(route="to_gpu", transfers=((1, 1),)) in steps
    assert Step(route="from_gpu", transfers=((0, 0), (1, 1)), all_pairs=True) in steps


def test_one_gpu_has_only_host_copies():
    steps = plan_steps([], {}, [0])
    assert steps == [Step(route="to_gpu", transfers=((0, 0),)), Step(route="from_gpu", transfers=((0, 0),))]


def test_only_the_wanted_pairs_are_copied():
    steps = plan_steps([(0, 3)], {(0, 3): True}, [0, 1, 2, 3])
    assert [step.transfers for step in steps if step.route == "direct"] == [((0, 3),)]


def test_a_lane_knows_whether_its_data_arrived():
    lane = plain_lane(4096, torch.device("cpu"), torch.device("cpu"))
    lane.prepare(10)
    assert not lane.is_right(10)
    lane.copy()
    assert lane.is_right(10)
    assert lane.num_bytes == 4096
    lane.prepare(20)
    lane.copy_little()
    assert not lane.is_right(20)


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8])
def test_of_many_gpus_the_first_copies_show_the_link_of_each_and_then_every_pair_once(count):
    steps = [step for step in steps_of(count, access=True) if step.route == "direct"]
    of_a_round = steps[: count // 2]
    assert len({member for step in of_a_round for pair in step.transfers for member in pair}) == count - count % 2
    every_pair = steps[: count * (count - 1) // 2]
    assert sorted(tuple(sorted(step.transfers[0])) for step in every_pair) == list(combinations(range(count), 2))
    alone = [step.transfers[0] for step in steps if len(step.transfers) == 1]
    assert sorted(alone) == sorted(permutations(range(count), 2))


def test_a_pair_wanted_one_way_only_is_copied_that_way():
    assert in_rounds([(3, 0), (1, 2), (2, 1)]) == ([(3, 0), (1, 2)], [(2, 1)])


@pytest.mark.parametrize("count", [3, 8])
def test_of_many_gpus_a_shared_uplink_shows_before_the_other_directions_are_copied(count):
    steps = steps_of(count, access=False)
    at_once = [number for number, step in enumerate(steps) if step.route in ("to_gpu", "from_gpu") and step.all_pairs]
    assert at_once == [count * (count - 1) // 2 + 2 * count, count * (count - 1) // 2 + 2 * count + 1]

from wiretax.measure.groups import Group, plan_groups


def test_all_ranks_come_first_then_from_small_to_large_then_pairs():
    assert plan_groups(4, [2, 4], [[2, 3]]) == ((0, 1, 2, 3), (0, 1), (2, 3))
    assert plan_groups(6, [2, 4, 6]) == (tuple(range(6)), (0, 1), (0, 1, 2, 3))


def test_sizes_and_pairs_that_do_not_exist_are_left_out_and_none_comes_twice():
    assert plan_groups(2, [2, 4, 8], [[0, 1], [1, 2]]) == ((0, 1),)


def test_one_rank_alone_is_a_group():
    assert plan_groups(1, [1]) == ((0,),)


def test_the_first_member_decides():
    assert Group(members=(2, 3), index=0, name="x").is_first
    assert not Group(members=(2, 3), index=1, name="x").is_first
    assert Group(members=(2, 3), index=1, name="x").size == 2

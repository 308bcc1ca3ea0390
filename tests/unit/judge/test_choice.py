from boxes import box, copy, run, unknown, wire
from wiretax.judge.choice import best_pair, best_pair_remedy, best_subset, pair_rates


def staged(**rates):
    return [copy(int(a), int(b), rate, "staged") for (a, b), rate in ((key[1:], value) for key, value in rates.items())]


def test_the_fastest_pair_is_named_with_the_slowest_beside_it():
    found = run(box(3, "PHB", "GNS"), *staged(p01=4.0, p02=13.0, p12=11.0))
    assert best_pair(found) == ((0, 2), 13e9, 4e9)
    assert "export CUDA_VISIBLE_DEVICES=0,2" in best_pair_remedy(found)


def test_the_slower_direction_of_a_pair_counts():
    found = run(box(3, "PHB", "GNS"), *staged(p01=13.0, p10=2.0, p02=9.0))
    assert best_pair(found)[0] == (0, 2)


def test_an_all_reduce_of_pairs_outranks_their_copies():
    measured = [wire(gigabytes=7.0, gpus=(0, 1)), wire(gigabytes=3.0, gpus=(0, 2)), *staged(p01=4.0, p02=13.0)]
    assert pair_rates(run(box(3, "PHB", "GNS"), *measured)) == {(0, 1): 7e9, (0, 2): 3e9}


def test_direct_copies_of_only_some_pairs_are_not_mixed_with_staged_ones():
    found = run(box(3), copy(0, 1, 25.0), *staged(p01=10.0, p02=12.0, p12=11.0))
    assert pair_rates(found) == {(0, 1): 10e9, (0, 2): 12e9, (1, 2): 11e9}


def test_pairs_that_hardly_differ_and_a_single_pair_give_no_advice():
    assert best_pair_remedy(run(box(3, "PHB", "GNS"), *staged(p01=12.0, p02=13.0, p12=12.5))) is None
    assert best_pair_remedy(run(box(2), copy(0, 1, 20.0))) is None
    assert best_pair_remedy(run(unknown(box(3)))) is None


def test_the_best_smaller_set_is_the_fastest_measured_one():
    measured = [wire(gigabytes=rate, gpus=gpus, world=len(gpus)) for gpus, rate in (((0, 1), 9.0), ((2, 3), 21.0), ((0, 1, 2, 3), 4.0))]
    assert best_subset(run(box(4), *measured), 4) == ((2, 3), 21e9)
    assert best_subset(run(box(4), *measured), 2) is None

from boxes import box, copy, found, gpu, host_copies, run, unknown, wire
from wiretax.judge.checks.shared_uplink import check

SWITCHES = {(0, 1): "PIX", (2, 3): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}


def staged(rates):
    return [copy(a, b, rate, "staged") for pair, rate in rates.items() for a, b in (pair, pair[::-1])]


def test_gpus_that_halve_each_other_share_an_uplink_and_are_named():
    together = host_copies(12.0, 12.5, 24.5, 24.8, concurrency="all_pairs")
    finding = found(check, run(box(4, SWITCHES, "GNS"), *host_copies(25, 25, 25, 25), *together))["shared-uplink"]
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    assert "GPUs 0 and 1" in finding.title


def test_when_all_slow_down_host_memory_may_be_the_limit_and_both_are_said():
    finding = found(check, run(box(2, "PIX", "GNS"), *host_copies(25, 25), *host_copies(12, 12, concurrency="all_pairs")))["shared-uplink"]
    assert "or the host's memory" in finding.title


def test_a_machine_that_talks_over_nvlink_does_not_feel_it():
    machine = box(2, "NV4", gpus=[gpu(k, nvlinks_active=4) for k in range(2)])
    measured = [wire(kind="p2p"), *host_copies(25, 25), *host_copies(12, 12, concurrency="all_pairs")]
    assert found(check, run(machine, *measured))["shared-uplink"].severity == "info"


def test_near_pairs_slower_than_far_ones_are_the_signature():
    rates = {(0, 1): 6.1, (2, 3): 6.0, (0, 2): 8.6, (0, 3): 8.7, (1, 2): 8.6, (1, 3): 8.5}
    finding = found(check, run(box(4, SWITCHES, "GNS"), *staged(rates)))["shared-uplink"]
    assert finding.confidence == "likely"
    assert "0 and 1; 2 and 3" in finding.title
    assert "CUDA_VISIBLE_DEVICES=0,3" in finding.remedy


def test_the_signature_needs_no_topology_when_the_groups_are_clear():
    rates = {(0, 1): 6.1, (2, 3): 6.0, (0, 2): 8.6, (0, 3): 8.7, (1, 2): 8.6, (1, 3): 8.5}
    assert found(check, run(unknown(box(4)), *staged(rates)))["shared-uplink"].confidence == "likely"


def test_one_slow_pair_without_topology_is_only_possible():
    finding = found(check, run(unknown(box(4)), *staged({(0, 1): 4.0, (0, 2): 13.1, (1, 3): 10.9})))["shared-uplink"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_one_gpu_slow_to_all_others_is_a_different_fault():
    rates = {(0, 1): 3.9, (0, 2): 3.9, (0, 3): 3.9, (1, 2): 12.0, (1, 3): 12.0, (2, 3): 12.0}
    assert found(check, run(box(4, SWITCHES, "GNS"), *staged(rates))) == {}


def test_slow_far_pairs_are_no_uplink():
    rates = {(0, 1): 12.0, (2, 3): 12.0, (0, 2): 6.0, (0, 3): 6.0, (1, 2): 6.0, (1, 3): 6.0}
    assert found(check, run(box(4, SWITCHES, "GNS"), *staged(rates))) == {}


def test_copies_that_hold_in_company_and_too_few_pairs_say_nothing():
    assert found(check, run(box(2), *host_copies(25, 25), *host_copies(23, 24, concurrency="all_pairs"))) == {}
    assert found(check, run(box(2, "PIX", "GNS"), copy(0, 1, 10, "staged"), copy(0, 1, 5, "staged", concurrency="all_pairs"))) == {}
    assert found(check, run(unknown(box(4)))) == {}


def test_an_unstable_copy_is_no_proof():
    together = host_copies(12, 12, concurrency="all_pairs", unstable=True)
    assert found(check, run(box(2), *host_copies(25, 25), *together)) == {}


def test_a_slow_pair_whose_gpus_were_copied_to_nobody_else_before_the_time_ended_is_no_uplink():
    first_round = {(0, 7): 8.6, (1, 6): 8.7, (2, 5): 8.5, (3, 4): 4.0}
    assert found(check, run(box(8, "PHB", "GNS"), *staged(first_round))) == {}
    known_better = first_round | {(3, 5): 8.6, (4, 6): 8.6}
    assert "GPUs" in found(check, run(box(8, "PHB", "GNS"), *staged(known_better)))["shared-uplink"].title

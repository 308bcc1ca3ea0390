from boxes import box, copy, found, gpu, host_copies, run, unknown, wire
from wiretax.judge.checks.pairs import check
from wiretax.model.machine import PcieLink


def direct(rates):
    return [copy(a, b, rate) for pair, rate in rates.items() for a, b in (pair, pair[::-1])]


def all_pairs(count, rate):
    return {(a, b): rate for a in range(count) for b in range(a + 1, count)}


def test_a_direct_pair_below_what_its_links_allow_is_a_problem_and_a_better_pair_is_named():
    rates = {**all_pairs(4, 27.0), (0, 1): 5.0}
    finding = found(check, run(box(4, "PIX"), *direct(rates)))["pair-slow"]
    assert (finding.severity, finding.confidence) == ("problem", "certain")
    assert "0-1" in finding.title and "31.5 GB/s" in finding.evidence[0].text
    assert "CUDA_VISIBLE_DEVICES=" in finding.remedy


def test_a_gpu_common_to_all_slow_pairs_is_named():
    rates = {**all_pairs(4, 27.0), (0, 3): 4.0, (1, 3): 4.0}
    assert "Every slow pair includes GPU 3: 0-3, 1-3" in found(check, run(box(4, "PIX"), *direct(rates)))["pair-slow"].title


def test_a_gpu_slow_to_all_others_is_left_out_by_a_command():
    rates = {**all_pairs(4, 27.0), (0, 3): 4.0, (1, 3): 4.0, (2, 3): 4.0}
    finding = found(check, run(box(4, "PIX"), *direct(rates)))["pair-slow"]
    assert finding.title == "GPU 3 is slow to each of the 3 others; no other pair is"
    assert "`export CUDA_VISIBLE_DEVICES=0,1,2`" in finding.remedy


def test_an_odd_pair_among_equals_is_found_even_when_the_link_was_not_read():
    machine = box(4, "PIX", gpus=[gpu(k, pcie=PcieLink()) for k in range(4)])
    finding = found(check, run(machine, *direct({**all_pairs(4, 27.0), (2, 3): 6.0})))["pair-slow"]
    assert "other PIX pairs have" in finding.evidence[0].text


def test_pairs_within_their_range_and_a_narrow_link_at_its_own_pace_are_fine():
    assert found(check, run(box(4, "PIX"), *direct(all_pairs(4, 27.0)))) == {}
    narrow = PcieLink(generation=4, width=4, max_generation=4, max_width=16)
    machine = box(2, "PIX", gpus=[gpu(0, pcie=narrow), gpu(1)])
    assert found(check, run(machine, *direct({(0, 1): 6.5}))) == {}


def test_a_staged_pair_that_shares_an_uplink_is_left_to_the_check_that_knows_why():
    path = {(0, 1): "PIX", (2, 3): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    rates = {(0, 1): 4.0, (2, 3): 4.1, (0, 2): 13.0, (0, 3): 13.0, (1, 2): 13.0, (1, 3): 13.0}
    copies = [copy(a, b, rate, "staged") for (a, b), rate in rates.items()]
    assert found(check, run(box(4, path, "GNS"), *copies)) == {}


def test_an_all_reduce_below_its_range_claims_no_cause():
    finding = found(check, run(box(2, "PIX"), wire(gigabytes=3.0)))["pair-slow"]
    assert "why is not known" in finding.title and finding.confidence == "likely"
    assert found(check, run(box(2, "PIX"), wire(gigabytes=22.0))) == {}


def test_sockets_and_gloo_are_never_called_a_slow_pair():
    assert found(check, run(box(2, "PIX"), wire(gigabytes=0.05, kind="socket"))) == {}


def test_a_gpu_whose_host_copies_are_half_those_of_equal_links_is_named():
    finding = found(check, run(box(3, "PHB", "GNS"), *host_copies(13.2, 13.0, 6.5)))["host-path-slow"]
    assert "GPU 2" in finding.title


def test_different_links_are_not_compared():
    narrow = PcieLink(generation=4, width=8, max_generation=4, max_width=16)
    machine = box(2, "PHB", "GNS", gpus=[gpu(0), gpu(1, pcie=narrow)])
    assert found(check, run(machine, *host_copies(26.0, 13.0))) == {}


def test_unknown_links_and_unmeasured_pairs_say_nothing():
    assert found(check, run(unknown(box(2)), *direct({(0, 1): 0.5}))) == {}
    assert found(check, run(box(2))) == {}
    assert found(check, run(box(2), copy(0, 1, 0.5, unstable=True))) == {}

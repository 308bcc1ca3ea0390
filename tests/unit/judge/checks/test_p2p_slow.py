from boxes import box, copy, found, nccl, run, unknown, wire
from wiretax.judge.checks.p2p_slow import check


def both(direct, staged, operation="all_reduce", spread=0.01):
    return [
        wire(gigabytes=direct, operation=operation, spread=spread),
        wire("p2p_off", staged, kind="staged", operation=operation, spread=spread),
    ]


def test_a_forced_level_that_is_slower_than_host_memory_is_named():
    machine = box(2, "SYS", software=nccl("2.28.9", NCCL_P2P_LEVEL="SYS"))
    finding = found(check, run(machine, *both(0.9, 6.1)))["p2p-forced-slow"]
    assert finding.severity == "problem"
    assert "unset NCCL_P2P_LEVEL" in finding.remedy and "6.8x" in finding.effect


def test_nccls_own_way_through_the_cpu_that_is_slower_is_named():
    machine = box(2, "SYS", surroundings={"cpu_vendor": "amd"})
    assert "p2p-through-cpu-slow" in found(check, run(machine, *both(5.0, 8.0)))


def test_a_near_pair_that_is_slower_has_no_cause_claimed():
    finding = found(check, run(box(2, "PIX"), *both(5.0, 8.0)))["p2p-slower-than-staged"]
    assert "NCCL_P2P_DISABLE=1" in finding.remedy


def test_a_single_slow_operation_does_not_switch_peer_to_peer_off_for_all():
    finding = found(check, run(box(2, "PIX"), *both(22, 18), *both(2, 18, "all_to_all")))["p2p-slower-than-staged"]
    assert "only for jobs" in finding.remedy and "all_to_all" in finding.remedy
    assert len(finding.evidence) == 1


def test_faster_peer_to_peer_equal_wires_and_noise_say_nothing():
    assert found(check, run(box(2), *both(20, 8))) == {}
    assert found(check, run(box(2), *both(20, 20.5))) == {}
    assert found(check, run(box(2), *both(10, 11.5, spread=0.6))) == {}


def test_few_samples_need_a_large_difference():
    assert found(check, run(box(2), *both(10, 12, spread=0.0))) == {}
    assert found(check, run(box(2), *both(10, 14, spread=0.0))) != {}


def test_copies_alone_show_it_when_no_collective_was_measured():
    finding = found(check, run(box(2), copy(0, 1, 5), copy(0, 1, 10, "staged")))["p2p-slower-than-staged"]
    assert "Compare whole collectives" in finding.remedy
    assert found(check, run(box(2), copy(0, 1, 12), copy(0, 1, 10, "staged"))) == {}


def test_without_a_log_or_a_second_wire_nothing_is_said():
    assert found(check, run(box(2), wire(gigabytes=1, kind=None), wire("p2p_off", 9, kind="staged"))) == {}
    assert found(check, run(box(2), wire(gigabytes=1))) == {}
    assert found(check, run(unknown(box(2)))) == {}

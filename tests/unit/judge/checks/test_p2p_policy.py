import pytest

from boxes import box, found, nccl, run, truth, unknown, wire
from wiretax.judge.checks.p2p_policy import check


def test_a_declined_pair_whose_forced_wire_is_faster_is_a_warning_with_the_variable():
    measured = [wire(gigabytes=4.1, kind="staged"), wire("p2p_forced", 23.8), truth(0, 1, "ok")]
    finding = found(check, run(box(2, "NODE"), *measured))["p2p-level-too-low"]
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    assert "5.8x" in finding.effect
    assert "export NCCL_P2P_LEVEL=PHB" in finding.remedy and "intact" in finding.remedy


def test_forcing_that_brings_nothing_leaves_nccl_its_choice():
    finding = found(check, run(box(2, "SYS"), wire(gigabytes=10, kind="staged"), wire("p2p_forced", 6)))["p2p-level-too-low"]
    assert finding.severity == "info" and "Leave it" in finding.remedy


def test_forcing_that_helps_one_operation_and_ruins_another_says_both():
    measured = [
        wire(gigabytes=18, kind="staged"),
        wire("p2p_forced", 22),
        wire(gigabytes=18, kind="staged", operation="all_to_all"),
        wire("p2p_forced", 2, operation="all_to_all"),
    ]
    finding = found(check, run(box(2, "PHB"), *measured))["p2p-level-too-low"]
    assert "all_reduce (1.2x)" in finding.effect and "slower for all_to_all (0.11x)" in finding.effect
    assert "only for jobs" in finding.remedy


def test_unmeasured_it_is_worth_knowing_and_no_more():
    finding = found(check, run(box(2, "SYS")))["p2p-level-too-low"]
    assert (finding.severity, finding.confidence) == ("info", "likely")


@pytest.mark.parametrize(
    ("version", "vendor", "count", "fires"),
    [
        ("2.28.9", "amd", 2, False),
        ("2.28.9", "amd", 4, True),
        ("2.20.5", "amd", 4, False),
        ("2.20.5", "intel", 2, True),
        ("2.28.9", "intel", 2, True),
    ],
)
def test_the_rule_of_each_version_processor_and_count_is_followed(version, vendor, count, fires):
    machine = box(count, "SYS", software=nccl(version), surroundings={"cpu_vendor": vendor})
    assert bool(found(check, run(machine))) is fires


def test_near_pairs_refused_pairs_and_a_log_that_shows_peer_to_peer_say_nothing():
    assert found(check, run(box(2, "PXB"))) == {}
    assert found(check, run(box(2, "SYS", "GNS"))) == {}
    assert found(check, run(box(2, "SYS"), wire(kind="p2p"))) == {}


def test_pairs_that_failed_the_data_test_are_never_told_to_be_forced():
    assert found(check, run(box(2, "SYS"), truth(0, 1, "wrong_data"))) == {}


def test_a_users_own_level_is_another_checks_business():
    assert found(check, run(box(2, "SYS", software=nccl("2.28.9", NCCL_P2P_LEVEL="PIX")))) == {}


@pytest.mark.parametrize("machine", [box(2, "SYS", software=nccl(None)), box(2, "SYS", surroundings={"cpu_vendor": None}), unknown(box(2))])
def test_an_unknown_version_or_processor_says_nothing(machine):
    assert found(check, run(machine)) == {}

import pytest

from boxes import box, found, nccl, run, unknown, wire
from wiretax.judge.checks.p2p_environment import check


def disabled(**settings):
    return box(2, "PIX", software=nccl("2.28.9", **(settings or {"NCCL_P2P_DISABLE": "1"})))


def test_a_variable_that_costs_speed_is_a_problem_with_the_factor():
    finding = found(check, run(disabled(), wire(gigabytes=10, kind="staged"), wire("clean", 20)))["p2p-disabled-by-environment"]
    assert (finding.severity, finding.confidence) == ("problem", "certain")
    assert "2.0x" in finding.effect and "unset NCCL_P2P_DISABLE" in finding.remedy


def test_what_two_variables_cost_together_is_said_of_neither_alone():
    both = disabled(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1")
    findings = found(check, run(both, wire(gigabytes=3, kind="socket"), wire("clean", 300)))
    for code in ("p2p-disabled-by-environment", "shm-disabled-by-environment"):
        assert "100.0x faster without NCCL_P2P_DISABLE and NCCL_SHM_DISABLE" in findings[code].effect
        assert "alone was not measured" in findings[code].effect


def test_a_variable_that_costs_nothing_is_left_alone():
    finding = found(check, run(disabled(), wire(gigabytes=20, kind="staged"), wire("clean", 20.5)))["p2p-disabled-by-environment"]
    assert finding.severity == "info"
    assert "Leave it" in finding.remedy


def test_a_variable_whose_cost_was_not_measured_is_a_warning():
    assert found(check, run(disabled()))["p2p-disabled-by-environment"].severity == "warning"


def test_a_line_in_a_configuration_file_is_named_with_its_file():
    machine = box(2, software={"nccl_conf": {"/etc/nccl.conf:NCCL_P2P_DISABLE": "1"}, **nccl("2.28.9")})
    finding = found(check, run(machine))["p2p-disabled-by-environment"]
    assert "/etc/nccl.conf" in finding.evidence[0].text and "delete the line from /etc/nccl.conf" in finding.remedy


def test_a_level_below_the_distance_bars_the_pair_and_one_at_the_distance_does_not():
    assert "p2p-disabled-by-environment" in found(check, run(box(2, "PXB", software=nccl("2.28.9", NCCL_P2P_LEVEL="PIX"))))
    assert found(check, run(box(2, "PXB", software=nccl("2.28.9", NCCL_P2P_LEVEL="PXB")))) == {}


def test_a_level_that_bars_only_what_nccl_itself_would_decline_takes_nothing_away():
    assert found(check, run(box(2, "SYS", software=nccl("2.28.9", NCCL_P2P_LEVEL="PXB")))) == {}


def test_switching_off_what_the_driver_refuses_anyway_is_not_worth_a_word():
    assert found(check, run(box(2, "PHB", "GNS", software=nccl("2.28.9", NCCL_P2P_DISABLE="1")))) == {}


@pytest.mark.parametrize("settings", [{}, {"NCCL_P2P_DISABLE": "0"}, {"NCCL_DEBUG": "INFO"}])
def test_harmless_settings_say_nothing(settings):
    assert found(check, run(box(2, software=nccl("2.28.9", **settings)))) == {}


def test_a_level_that_nccl_does_not_know_is_pointed_out():
    finding = found(check, run(box(2, software=nccl("2.28.9", NCCL_P2P_LEVEL="NODE"))))["nccl-setting-ignored"]
    assert "PHB" in finding.remedy


def test_shared_memory_switched_off_matters_only_where_sockets_take_its_place():
    machine = box(2, "PHB", "GNS", software=nccl("2.28.9", NCCL_SHM_DISABLE="1"))
    slow = found(check, run(machine, wire(gigabytes=2, kind="socket"), wire("clean", 12, kind="staged")))
    assert slow["shm-disabled-by-environment"].severity == "problem"
    assert found(check, run(box(2, software=nccl("2.28.9", NCCL_SHM_DISABLE="1")), wire(kind="p2p"))) == {}
    assert found(check, run(machine))["shm-disabled-by-environment"].severity == "info"


def test_nothing_is_said_of_a_machine_that_nobody_read():
    assert found(check, run(unknown(box(2)))) == {}

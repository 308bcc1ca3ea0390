import pytest

from boxes import box, found, run
from wiretax.judge.checks.presence import check
from wiretax.model.machine import Machine


@pytest.mark.parametrize(
    ("machine", "code", "severity"),
    [
        (Machine(driver_state="absent"), "no-gpu", "info"),
        (Machine(driver_state="ok"), "no-gpu", "info"),
        (Machine(driver_state="hung"), "gpu-hung", "critical"),
        (Machine(driver_state="mismatch"), "driver-library-mismatch", "critical"),
        (Machine(driver_state="error"), "driver-error", "problem"),
        (box(1), "single-gpu", "info"),
    ],
)
def test_the_state_of_the_driver_and_the_count_of_gpus_are_named(machine, code, severity):
    findings = found(check, run(machine))
    assert {name: finding.severity for name, finding in findings.items()} == {code: severity}


def test_the_drivers_own_words_are_kept_as_evidence():
    finding = found(check, run(Machine(driver_state="mismatch", driver_detail="NVML 580.82, module 580.65")))["driver-library-mismatch"]
    assert "580.65" in finding.evidence[0].text


def test_two_gpus_are_nothing_special():
    assert found(check, run(box(2))) == {}


@pytest.mark.parametrize("machine", [None, Machine(), Machine(origin="pasted"), box(1, origin="pasted")])
def test_an_unknown_state_and_a_pasted_part_of_a_machine_prove_nothing(machine):
    assert found(check, run(machine)) == {}

import pytest

from boxes import box, found, incident, run, unknown, with_gpus
from wiretax.judge.checks.gpu_health import check


def test_a_lost_gpu_is_critical_and_named():
    finding = found(check, run(with_gpus(box(4), gpu2={"status": "lost", "status_reason": "NVML: GPU is lost"})))["gpu-lost"]
    assert finding.severity == "critical"
    assert "GPU 2" in finding.title and "NVML" in finding.evidence[0].text


def test_several_lost_gpus_make_one_finding():
    finding = found(check, run(with_gpus(box(4), gpu2={"status": "lost"}, gpu3={"status": "unusable"})))["gpu-lost"]
    assert "GPU 2 and 3" in finding.title


def test_a_gpu_that_falls_off_while_measuring_is_likely_lost():
    events = [incident("rank_died", "wire:default", rank=1, gpu=1, detail="CUDA error: unspecified launch failure")]
    assert found(check, run(box(2), *events))["gpu-lost"].confidence == "likely"


def test_a_rank_that_dies_for_another_reason_is_no_lost_gpu():
    assert found(check, run(box(2), incident("rank_died", "compute", detail="out of memory"))) == {}


def test_another_tenant_is_certain_when_its_processes_show_and_likely_when_only_its_load_does():
    assert found(check, run(with_gpus(box(2), gpu0={"other_processes": 1})))["gpu-busy"].confidence == "certain"
    assert found(check, run(with_gpus(box(2), gpu0={"utilization_fraction": 0.9})))["gpu-busy"].confidence == "likely"
    assert found(check, run(with_gpus(box(2), gpu0={"memory_used_bytes": 30 * 10**9})))["gpu-busy"].confidence == "likely"


@pytest.mark.parametrize("state", [{"utilization_fraction": 0.02, "memory_used_bytes": 6 * 10**8, "other_processes": 0}, {}])
def test_an_idle_gpu_and_an_unread_one_are_not_busy(state):
    assert found(check, run(with_gpus(box(2), gpu0=state))) == {}


def test_load_in_a_pasted_text_is_the_users_own_job():
    assert found(check, run(with_gpus(box(2, origin="pasted"), gpu0={"utilization_fraction": 0.99, "other_processes": 1}))) == {}


def test_uncorrectable_errors_are_a_problem_and_none_or_unread_are_not():
    assert found(check, run(with_gpus(box(2), gpu1={"ecc_uncorrected_errors": 3})))["ecc-uncorrectable"].severity == "problem"
    assert found(check, run(with_gpus(box(2), gpu1={"ecc_uncorrected_errors": 0}))) == {}


def test_a_process_that_survives_sigkill_is_named_with_its_pid():
    finding = found(check, run(box(2), incident("survived_kill", "wire:default", pid=4711)))["gpu-hung"]
    assert "4711" in finding.title and "4711" in finding.confirm


def test_nothing_is_said_of_a_machine_that_nobody_read():
    assert found(check, run(unknown(box(2)))) == {}
    assert found(check, run(None)) == {}

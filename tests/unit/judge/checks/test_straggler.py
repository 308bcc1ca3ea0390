from boxes import box, compute, found, gpu, run, unknown, with_gpus
from wiretax.judge.checks.straggler import check


def speeds(*teraflops, together=False, **of_last):
    last = len(teraflops) - 1
    return [compute(k, value, together=together, **(of_last if k == last else {})) for k, value in enumerate(teraflops)]


def test_a_slow_gpu_without_a_reason_claims_none():
    finding = found(check, run(box(4), *speeds(160, 161, 159, 130)))["straggler"]
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    assert "GPU 3" in finding.title and "81 %" in finding.effect


def test_far_below_its_equals_is_a_problem():
    assert found(check, run(box(4), *speeds(160, 161, 159, 80)))["straggler"].severity == "problem"


def test_heat_that_only_the_slow_one_reports_is_the_likely_cause():
    finding = found(check, run(box(2), *speeds(160, 120, throttle_reasons=("sw_thermal_slowdown",))))["straggler-thermal"]
    assert finding.confidence == "likely"


def test_a_reason_that_all_report_explains_no_single_one():
    entries = [compute(k, t, throttle_reasons=("sw_power_cap",)) for k, t in enumerate((160, 160, 120))]
    assert list(found(check, run(box(3), *entries))) == ["straggler"]


def test_a_lower_power_limit_is_the_likely_cause():
    machine = with_gpus(box(2), gpu0={"power_limit_watts": 450.0}, gpu1={"power_limit_watts": 250.0})
    assert list(found(check, run(machine, *speeds(160, 120)))) == ["straggler-power"]


def test_slow_only_in_company_is_said_so():
    findings = found(check, run(box(2), *speeds(160, 158), *speeds(158, 120, together=True)))
    assert "while all work together" in findings["straggler"].evidence[0].text


def test_slow_memory_makes_a_straggler_too():
    entries = [compute(k, 160, memory_bytes_per_second=rate) for k, rate in enumerate((1.6e12, 1.6e12, 1.0e12))]
    assert "memory" in found(check, run(box(3), *entries))["straggler"].evidence[0].text


def test_equal_gpus_small_differences_and_other_models_are_no_stragglers():
    assert found(check, run(box(4), *speeds(160, 155, 158, 150))) == {}
    mixed = box(2, gpus=[gpu(0, name="RTX 5090"), gpu(1, name="RTX 3090")])
    assert found(check, run(mixed, *speeds(200, 70))) == {}


def test_an_unstable_or_unmeasured_gpu_is_not_accused():
    assert found(check, run(box(2), *speeds(160, 120, unstable=True))) == {}
    assert found(check, run(box(2), *speeds(160, None))) == {}
    assert found(check, run(unknown(box(2)))) == {}


def test_all_held_back_alike_is_no_straggler_but_worth_a_warning():
    entries = [compute(k, 120, throttle_reasons=("hw_thermal_slowdown", "sw_power_cap")) for k in range(2)]
    findings = found(check, run(box(2), *entries))
    assert list(findings) == ["gpus-throttled"]
    assert "sw_power_cap" not in findings["gpus-throttled"].evidence[0].text


def test_a_plain_power_cap_under_full_load_is_normal():
    assert found(check, run(box(2), *[compute(k, 160, throttle_reasons=("sw_power_cap",)) for k in range(2)])) == {}

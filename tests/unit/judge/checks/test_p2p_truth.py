from boxes import box, copy, found, run, truth, unknown
from wiretax.judge.checks.p2p_truth import check


def test_wrong_data_in_the_two_process_test_is_critical_and_tells_to_stop():
    finding = found(check, run(box(2, "NODE"), truth(0, 1, "wrong_data"), truth(1, 0, "wrong_data")))["p2p-wrong-data"]
    assert finding.severity == "critical"
    assert "0-1" in finding.title and "NCCL_P2P_DISABLE=1" in finding.remedy


def test_a_direct_copy_that_arrived_changed_is_wrong_data_too_and_a_staged_one_is_not():
    assert "p2p-wrong-data" in found(check, run(box(2), copy(0, 1, 20, verified=False)))
    assert found(check, run(box(2), copy(0, 1, 20, "staged", verified=False))) == {}


def test_a_hang_under_a_translating_iommu_names_it_as_the_likely_cause():
    machine = box(2, "PHB", surroundings={"iommu": "translated", "acs": "on"})
    finding = found(check, run(machine, truth(0, 1, "hang")))["p2p-hang-iommu"]
    assert finding.confidence == "likely" and "iommu=pt" in finding.remedy


def test_a_hang_with_acs_on_and_no_translation_names_acs():
    machine = box(2, "PXB", surroundings={"iommu": "off", "acs": "on"})
    assert "p2p-hang-acs" in found(check, run(machine, truth(0, 1, "hang")))


def test_a_hang_without_a_known_cause_claims_only_the_fact():
    finding = found(check, run(box(2, "PHB", surroundings={"iommu": "passthrough", "acs": "off"}), truth(0, 1, "hang")))
    assert list(finding) == ["p2p-falsely-advertised"]
    assert "why is not known" in finding["p2p-falsely-advertised"].title


def test_a_hang_over_nvlink_does_not_blame_the_iommu():
    machine = box(2, "NV4", surroundings={"iommu": "translated", "acs": "on"})
    assert list(found(check, run(machine, truth(0, 1, "hang")))) == ["p2p-falsely-advertised"]


def test_an_error_where_the_driver_promised_is_likely_and_where_it_did_not_is_nothing():
    assert found(check, run(box(2), truth(0, 1, "error", "invalid device")))["p2p-falsely-advertised"].confidence == "likely"
    assert found(check, run(box(2, "PHB", "GNS"), truth(0, 1, "error"))) == {}


def test_untested_peer_access_under_an_iommu_is_a_possibility_and_nothing_above_info():
    finding = found(check, run(box(2, "PHB", surroundings={"iommu": "translated"})))["iommu-check"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_a_passed_test_ends_all_suspicion():
    machine = box(2, "PHB", surroundings={"iommu": "translated", "acs": "on"})
    assert found(check, run(machine, truth(0, 1, "ok"), truth(1, 0, "ok"))) == {}


def test_a_test_that_was_not_run_and_a_machine_nobody_read_say_nothing():
    assert found(check, run(box(2), truth(0, 1, "not_run"))) == {}
    assert found(check, run(unknown(box(2)))) == {}
    assert found(check, run(None)) == {}

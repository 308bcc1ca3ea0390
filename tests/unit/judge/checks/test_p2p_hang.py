import pytest

from boxes import box, found, run
from real_texts import head, listing, p2p, pairs, ring, topo
from texts import text_run
from wiretax.judge.checks.p2p_hang import check

HANGS = "all_reduce hangs on both GPUs, with NCCL_P2P_DISABLE=1 it works\n"
TRANSLATED = "[ 0.9] iommu: Default domain type: Translated\n"
REDIRECT = (
    "40:01.1 PCI bridge: PLX Technology, Inc. PEX 8796\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
)


def test_a_hang_that_goes_away_without_peer_to_peer_has_no_cause_yet():
    finding = found(check, text_run(HANGS))["collective-hang"]
    assert (finding.severity, finding.confidence) == ("problem", "likely") and "why is not shown" in finding.title


@pytest.mark.parametrize(("clue", "code"), [(TRANSLATED, "p2p-hang-iommu"), (REDIRECT, "p2p-hang-acs")])
def test_a_usual_cause_in_sight_is_named_as_likely(clue, code):
    finding = found(check, text_run(HANGS, clue))[code]
    assert finding.confidence == "likely" and any(line.line for line in finding.evidence)


@pytest.mark.parametrize(("clue", "code"), [(TRANSLATED, "p2p-hang-iommu"), (REDIRECT, "p2p-hang-acs")])
def test_where_peer_to_peer_is_not_proven_guilty_the_cause_is_only_possible(clue, code):
    findings = found(check, text_run("training hangs on 4 gpus\n", ring(4, "P2P/IPC"), clue))
    assert (findings[code].severity, findings[code].confidence) == ("info", "possible")
    assert findings["collective-hang"].severity == "warning"


def test_passing_through_takes_the_iommu_out_of_suspicion():
    findings = found(check, text_run(HANGS, TRANSLATED, "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro amd_iommu=on iommu=pt\n"))
    assert findings.keys() == {"collective-hang"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("After disabling IOMMU in the BIOS the hang with P2P is gone.\n", "p2p-hang-iommu"),
        ("NCCL hung. Disabling ACS in the BIOS fixed it.\n", "p2p-hang-acs"),
        ("Training hangs; with iommu=pt it works.\n", "p2p-hang-iommu"),
    ],
)
def test_a_cure_that_somebody_tells_of_is_the_cause(text, code):
    assert found(check, text_run(text))[code].severity == "problem"


def test_a_cure_that_did_not_help_is_none():
    assert "p2p-hang-acs" not in found(check, text_run("Training hangs on 2 GPUs. Disabling ACS makes no difference.\n"))


def test_a_driver_that_hangs_where_another_does_not_is_named_with_both():
    finding = found(check, text_run("driver 560.35 hangs in all_reduce; driver 550.90 works\n"))["driver-p2p-bug"]
    assert "560.35" in finding.title and "Install driver 550.90." in finding.remedy


def test_peer_to_peer_on_cards_without_it_that_hangs_is_a_false_promise():
    log = head("2.16.5") + ring(2, "P2P/IPC")
    finding = found(check, text_run(listing(*["NVIDIA GeForce RTX 4090"] * 2), log, "all_reduce_perf hangs\n"))["p2p-falsely-advertised"]
    assert finding.severity == "problem"


def test_without_a_hang_such_cards_have_a_patched_driver_perhaps():
    finding = found(check, text_run(listing(*["NVIDIA GeForce RTX 4090"] * 2), head("2.21.5") + ring(2, "P2P/IPC")))["unofficial-driver"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_a_patched_module_names_itself():
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15-p2p  Release Build  (root@box)\n"
    assert found(check, text_run(text))["unofficial-driver"].confidence == "certain"


def test_a_refused_access_of_a_gpu_is_the_iommus_work_and_of_another_device_a_question():
    fault = "[ 120.1] {}0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0020 address=0xd0e00000 flags=0x0020]\n"
    assert "p2p-hang-iommu" in found(check, text_run(fault.format("nvidia ")))
    assert "iommu-check" in found(check, text_run(fault.format("xhci_hcd ")))


def test_an_untested_iommu_is_to_be_checked_unless_peer_access_is_refused():
    assert found(check, text_run(TRANSLATED, topo(pairs(2, "NODE")))).keys() == {"iommu-check"}
    assert found(check, text_run(TRANSLATED, topo(pairs(2, "NODE")), p2p(2, "CNS"))) == {}
    assert found(check, text_run(TRANSLATED, topo(pairs(2, "NV12")))) == {}


@pytest.mark.parametrize("subject", [text_run(topo(pairs(4, "SYS"))), text_run("should I disable the IOMMU?\n"), run(box(2))])
def test_a_bare_topology_a_question_and_a_live_run_are_no_hang(subject):
    assert found(check, subject) == {}

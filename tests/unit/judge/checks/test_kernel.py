import pytest

from boxes import box, found, run
from texts import text_run
from wiretax.judge.checks.kernel import check

XID = "[ 812.3] NVRM: Xid (PCI:0000:3b:00): {}, pid=1234, name=python, {}\n"

LIMITED = (
    "[ 8.1] nvidia 0000:41:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link at 0000:40:01.1 "
    "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
)


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        (XID.format(79, "GPU has fallen off the bus."), "gpu-lost", "critical"),
        (XID.format(48, "DBE (double bit error)"), "ecc-uncorrectable", "problem"),
        (XID.format(63, "Row Remapper: New row marked for remapping"), "ecc-uncorrectable", "info"),
        (XID.format(119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!"), "gpu-hung", "critical"),
        (XID.format(31, "Ch 00000008, MMU Fault: ENGINE GRAPHICS"), "gpu-application-error", "info"),
        ("Error 803: system has unsupported display driver / cuda driver combination\n", "driver-library-mismatch", "critical"),
        ("[ 1.2] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x25:0x65:1457)\n", "driver-error", "problem"),
        ("[ 1.2] INFO: task nvidia-smi:991 blocked for more than 120 seconds.\n", "gpu-hung", "critical"),
        ("No devices were found\n", "no-gpu", "info"),
        (
            LIMITED,
            "pcie-width-low",
            "problem",
        ),
    ],
)
def test_the_kernels_words_become_a_finding(text, code, severity):
    finding = found(check, text_run(text))[code]
    assert finding.severity == severity and finding.evidence[0].line == 1


def test_pcie_errors_before_a_lost_gpu_point_at_the_link():
    error = "[ 811.0] pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0\n"
    with_it = found(check, text_run(error + XID.format(79, "GPU has fallen off the bus.")))
    without = found(check, text_run(XID.format(79, "GPU has fallen off the bus.")))
    assert "riser" in with_it["gpu-lost"].remedy and "pcie-errors" not in with_it
    assert "think of power" in without["gpu-lost"].remedy


def test_few_corrected_errors_are_a_note_and_many_a_warning():
    line = "[ {}.0] pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0\n"
    few = "".join(line.format(k) for k in range(2))
    many = "".join(line.format(k) for k in range(40))
    assert found(check, text_run(few))["pcie-errors"].severity == "info"
    assert found(check, text_run(many))["pcie-errors"].severity == "warning"


def test_a_programs_fault_is_no_note_beside_a_lost_gpu():
    both = XID.format(79, "GPU has fallen off the bus.") + XID.format(45, "Preemptive Channel Removal")
    assert found(check, text_run(both)).keys() == {"gpu-lost"}


@pytest.mark.parametrize("subject", [text_run("[ 2.0] nvidia: loading out-of-tree module taints kernel.\n"), run(box(2))])
def test_ordinary_messages_are_no_finding(subject):
    assert found(check, subject) == {}

import pytest

from boxes import box, found, run
from texts import text_run
from wiretax.judge.checks.amd import check

WARNING = (
    '\nn1:88:88 [0] /src/init.cc:176 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
)


def links(kinds: list[list[str]]) -> str:
    """The matrix of link types of ``rocm-smi --showtopo``."""
    head = "=============================== Link Type between two GPUs ===============================\n"
    names = "       " + "".join(f"GPU{k}         " for k in range(len(kinds)))
    rows = [f"GPU{a}   " + "".join(f"{kind:<13}" for kind in row) for a, row in enumerate(kinds)]
    return head + "\n".join([names, *rows]) + "\n"


def test_a_missing_iommu_option_is_a_warning():
    finding = found(check, text_run(WARNING))["amd-iommu-pt"]
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert "IOMMU_DEFAULT_PASSTHROUGH" in finding.remedy and finding.evidence[0].line == 2


def test_a_hang_beside_it_makes_it_a_problem():
    assert found(check, text_run(WARNING, "DDP hangs at the first all_reduce\n"))["amd-iommu-pt"].severity == "problem"


def test_a_kernel_that_passes_through_makes_it_a_false_alarm():
    finding = found(check, text_run(WARNING, "CONFIG_IOMMU_DEFAULT_PASSTHROUGH=y\n"))["amd-iommu-pt"]
    assert finding.severity == "info" and "false alarm" in finding.title


def test_gpus_without_infinity_fabric_are_named_as_such():
    assert found(check, text_run(links([["0", "PCIE"], ["PCIE", "0"]])))["amd-pcie-only"].severity == "info"


def test_islands_of_infinity_fabric_come_with_the_variable_that_stays_inside_one():
    far = [["0" if a == b else "XGMI" if a // 2 == b // 2 else "PCIE" for b in range(4)] for a in range(4)]
    finding = found(check, text_run(links(far)))["amd-xgmi-islands"]
    assert "0 and 1; 2 and 3" in finding.title and "HIP_VISIBLE_DEVICES=0,1" in finding.remedy


@pytest.mark.parametrize("subject", [text_run(links([["0", "XGMI"], ["XGMI", "0"]])), text_run("nothing of AMD\n"), run(box(2))])
def test_whole_fabric_other_makers_and_silence_are_no_finding(subject):
    assert found(check, subject) == {}

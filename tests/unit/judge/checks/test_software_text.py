import pytest

from boxes import box, found, run
from real_texts import devices, head, listing, ring, sweep
from texts import text_run
from wiretax.judge.checks.software_text import check

CRASH = "gpu-box: Test CUDA failure common.cu:401 'an illegal memory access was encountered'\n"
TOO_BIG = "gpu-box:1:2 [0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856\n"


def test_kernels_that_do_not_fit_the_gpu_need_a_newer_nccl():
    finding = found(check, text_run(listing(*["NVIDIA GeForce RTX 5090"] * 2), head("2.24.3") + TOO_BIG))["nccl-too-old-for-gpu"]
    assert finding.severity == "problem" and "2.24.3" in finding.title + str(finding.evidence)


def test_a_torch_without_kernels_for_the_gpu_is_named():
    text = "NVIDIA H100 80GB HBM3 with CUDA capability sm_90 is not compatible with the current PyTorch installation.\n"
    assert "sm_90" in found(check, text_run(text))["torch-too-old-for-gpu"].title


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled\n", "torch-without-cuda"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n", "driver-too-old"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "gpu-busy"),
        ("RuntimeError: Distributed package doesn't have NCCL built in\n", "backend-gloo"),
    ],
)
def test_torchs_own_words_are_understood(text, code):
    assert code in found(check, text_run(text))


def test_a_crash_from_a_size_on_is_a_known_fault_of_a_known_version():
    text = devices(2, "NVIDIA GeForce RTX 5090") + "NCCL version 2.27.5+cuda12.8\n" + sweep([(131072, 4.2), (262144, 6.8)], 2) + CRASH
    finding = found(check, text_run(text))["nccl-version-bug"]
    assert (finding.severity, finding.confidence) == ("problem", "likely") and "2.31.2" in finding.remedy


def test_a_crash_of_an_unknown_version_is_a_suspicion():
    text = devices(2, "NVIDIA A40") + "NCCL version 2.22.3+cuda12.6\n" + sweep([(131072, 4.2), (262144, 6.8)], 2) + CRASH
    finding = found(check, text_run(text))["nccl-version-bug"]
    assert (finding.severity, finding.confidence) == ("info", "possible") and "size threshold" in finding.title


def test_a_hang_with_a_version_known_to_hang_is_possible():
    findings = found(check, text_run(head("2.29.2") + ring(2, "P2P/CUMEM"), "training hangs on 2 gpus\n"))
    assert findings["nccl-version-bug"].confidence == "possible"
    assert found(check, text_run(head("2.29.2") + ring(2, "P2P/CUMEM"))) == {}


def test_two_versions_in_one_job_cannot_be_joined():
    stated = "\nn2:1:9 [0] init.cc:1400 NCCL WARN Mismatched NCCL version detected : rank 0 21803 rank 8 21903\n"
    assert found(check, text_run(stated))["nccl-version-mismatch"].confidence == "certain"
    logs = "NCCL version 2.21.5+cuda12.4\nNCCL version 2.18.3+cuda12.1\n"
    assert found(check, text_run(logs))["nccl-version-mismatch"].severity == "warning"


@pytest.mark.parametrize("subject", [text_run(head("2.21.5") + ring(2, "P2P/IPC")), text_run("it is fine\n"), run(box(2))])
def test_sound_software_is_no_finding(subject):
    assert found(check, subject) == {}

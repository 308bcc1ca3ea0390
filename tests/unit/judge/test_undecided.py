import pytest

from real_texts import head, listing, pairs, ring, topo
from texts import text_run
from wiretax.judge.undecided import conclude
from wiretax.judge.verdict import findings_of


def codes(*texts: str) -> list[str]:
    return [finding.code for finding in conclude(text_run(*texts), [])]


def test_nvlink_between_all_that_nccl_uses_is_healthy():
    assert codes(topo(pairs(4, "NV12")), ring(4, "P2P/IPC")) == ["healthy"]
    assert codes(topo(pairs(4, "NV12"))) == ["healthy"]


def test_nvlink_that_a_log_leaves_aside_is_not_called_healthy():
    assert codes(topo(pairs(4, "NV12")), ring(4, "SHM/direct/direct")) == ["needs-measurement"]


def test_one_gpu_has_no_wire():
    assert codes(listing("NVIDIA A40")) == ["single-gpu"]


def test_what_to_measure_and_what_to_paste_is_said():
    (finding,) = conclude(text_run(topo(pairs(4, "SYS"))), [])
    assert finding.code == "needs-measurement"
    assert "`wiretax check`" in finding.remedy and "topo -p2p r" in finding.remedy and "NCCL_DEBUG=INFO" in finding.remedy
    assert "topo -m" not in finding.remedy


def test_a_graver_finding_needs_no_conclusion():
    subject = text_run(
        head("2.21.5"), "\ngpu-box:1:2 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n"
    )
    assert "needs-measurement" not in {finding.code for finding in findings_of(subject)}


@pytest.mark.parametrize("text", ["hello\n", "NCCL version 2.21.5+cuda12.4\n"])
def test_little_text_is_undecided(text):
    assert codes(text) == ["needs-measurement"]

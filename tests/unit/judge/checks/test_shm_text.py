import pytest

from boxes import box, found, run
from real_texts import head, nccl, ring
from texts import text_run
from wiretax.judge.checks.shm_text import check

FULL = "\ngpu-box:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes\n"
SEGMENT = "\ngpu-box:1:2 [0] misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-pZ (size 9637888)\n"
DF = "shm   {}     0   {}   0% /dev/shm\n"


def test_a_segment_that_cannot_grow_is_certain():
    finding = found(check, text_run(FULL))["dev-shm-too-small"]
    assert (finding.severity, finding.confidence) == ("problem", "certain") and "--shm-size" in finding.remedy


def test_a_failed_segment_is_likely_and_its_size_makes_it_certain():
    assert found(check, text_run(SEGMENT))["dev-shm-too-small"].confidence == "likely"
    assert found(check, text_run(SEGMENT, DF.format("64M", "64M")))["dev-shm-too-small"].confidence == "certain"


def test_a_roomy_shared_memory_is_another_cause():
    finding = found(check, text_run(SEGMENT, DF.format("126G", "120G")))["dev-shm-too-small"]
    assert finding.severity == "info" and "memory limit" in finding.title


def test_a_container_by_default_is_evidence():
    finding = found(check, text_run(SEGMENT, "$ docker run --gpus all -it image bash\n"))["dev-shm-too-small"]
    assert any("64 MiB" in line.text or "docker run" in line.text for line in finding.evidence)


def test_a_loader_without_shared_memory_is_the_same_cause():
    text = "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that workers are out of shared memory.\n"
    assert found(check, text_run(text))["dev-shm-too-small"].severity == "problem"


def test_the_images_own_warning_is_a_note():
    text = "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be\n   insufficient for PyTorch.\n"
    assert found(check, text_run(text))["dev-shm-too-small"].severity == "info"


def test_host_memory_through_cumem_that_fails_is_told_apart():
    text = (
        head("2.27.3")
        + "\ngpu-box:1:2 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n"
    )
    findings = found(check, text_run(text))
    assert "cumem-host-shm-failed" in findings and "dev-shm-too-small" not in findings


def test_a_fallback_from_cumem_is_a_note():
    line = (
        "gpu-box:1:2 [0] NCCL INFO cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.\n"
    )
    assert found(check, text_run(head("2.26.2") + line))["cumem-host-fallback"].severity == "info"


def test_more_peers_than_cuda_maps_are_named():
    text = "\nbox:1:2 [9] transport/p2p.cc:246 NCCL WARN failed to peer with device 9(=c1000): 711 peer mapping resources exhausted\n"
    assert found(check, text_run(text))["peer-mapping-limit"].severity == "problem"


def test_plain_use_of_host_memory_offers_settings():
    finding = found(check, text_run(head("2.21.5") + ring(4, "SHM/direct/direct")))["shm-tuning"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


@pytest.mark.parametrize(
    "subject",
    [text_run(head("2.21.5") + ring(2, "P2P/IPC")), text_run(f"{nccl()}comm ready\n"), text_run(DF.format("64M", "64M")), run(box(2))],
)
def test_peer_to_peer_and_small_memory_that_nobody_uses_are_no_finding(subject):
    assert found(check, subject) == {}

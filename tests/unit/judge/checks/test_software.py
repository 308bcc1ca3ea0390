import pytest

from boxes import box, found, gpu, incident, nccl, run, unknown, wire
from wiretax.judge.checks.software import check
from wiretax.model.machine import NcclLibrary

BUNDLED = NcclLibrary(path="/venv/nvidia/nccl/lib/libnccl.so.2", version="2.28.9")
SYSTEM = NcclLibrary(path="/usr/lib/x86_64-linux-gnu/libnccl.so.2", version="2.21.5")


def test_a_processor_build_of_torch_on_a_gpu_box_is_a_problem():
    machine = box(2, software={"torch": "2.13.0+cpu", "torch_cuda": None})
    assert found(check, run(machine))["torch-without-cuda"].severity == "problem"


@pytest.mark.parametrize(
    "software", [{"torch": "2.13.0+cu130", "torch_cuda": "13.0"}, {"torch": None}, {"torch": "2.13.0", "torch_cuda": None}]
)
def test_a_cuda_build_and_an_unknown_build_are_not(software):
    assert found(check, run(box(2, software=software))) == {}


@pytest.mark.parametrize(
    ("version", "capability", "fires"),
    [
        ("2.25.1", "12.0", True),
        ("2.26.2", "12.0", False),
        ("2.14.3", "9.0", True),
        ("2.15.1", "9.0", False),
        (None, "12.0", False),
        ("2.25.1", None, False),
    ],
)
def test_a_nccl_older_than_the_gpu_is_named(version, capability, fires):
    machine = box(2, gpus=[gpu(k, compute_capability=capability) for k in range(2)], software=nccl(version))
    assert ("nccl-too-old-for-gpu" in found(check, run(machine))) is fires


def test_a_nccl_that_was_seen_to_work_is_not_called_too_old():
    machine = box(2, gpus=[gpu(k, compute_capability="12.0") for k in range(2)], software=nccl("2.25.1"))
    assert found(check, run(machine, wire())) == {}


def test_another_nccl_than_torchs_own_is_a_warning():
    machine = box(2, software={"nccl_loaded": SYSTEM, "nccl_found": (SYSTEM, BUNDLED)})
    assert found(check, run(machine))["nccl-version-mismatch"].severity == "warning"


def test_an_unused_second_version_on_disk_is_only_worth_knowing():
    machine = box(2, software={"nccl_loaded": BUNDLED, "nccl_found": (BUNDLED, SYSTEM)})
    assert found(check, run(machine))["nccl-version-mismatch"].severity == "info"


@pytest.mark.parametrize(
    "software",
    [
        {"nccl_loaded": BUNDLED, "nccl_found": (BUNDLED,)},
        {"nccl_loaded": None, "nccl_found": (BUNDLED, SYSTEM)},
        {"nccl_loaded": BUNDLED, "nccl_found": (BUNDLED, NcclLibrary(path="/opt/libnccl.so", version=None, missing={"version": "unread"}))},
    ],
)
def test_one_version_or_an_unknown_loaded_one_says_nothing(software):
    assert found(check, run(box(2, software=software))) == {}


CRASH = {"wire": "default", "operation": "all_reduce", "detail": "an illegal memory access was encountered"}


@pytest.mark.parametrize(
    ("version", "num_bytes", "fires"),
    [("2.26.2", 524288, True), ("2.26.2", 262144, False), ("2.31.2", 524288, False), ("2.26.2", None, False)],
)
def test_a_known_fault_is_named_only_when_its_symptom_was_seen(version, num_bytes, fires):
    machine = box(2, gpus=[gpu(k, compute_capability="12.0") for k in range(2)], software=nccl(version))
    findings = found(check, run(machine, incident("rank_died", "wire:default", num_bytes=num_bytes, **CRASH)))
    assert ("nccl-version-bug" in findings) is fires


def test_nothing_is_said_of_a_machine_that_nobody_read():
    assert found(check, run(unknown(box(2)))) == {}

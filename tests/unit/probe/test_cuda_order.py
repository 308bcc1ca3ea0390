from __future__ import annotations

import pytest

from wiretax.model.machine import Gpu
from wiretax.probe.cuda_order import HIDDEN, cuda_ordinals

UUIDS = ("GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000", "GPU-cccc4444-0000")


def box(count: int = 4, names: tuple[str, ...] = (), **changes: object) -> list[Gpu]:
    made = []
    for index in range(count):
        name = names[index] if names else "NVIDIA H200"
        made.append(Gpu(index=index, name=name, uuid=UUIDS[index], pci_bus_id=f"00000000:{index + 1:02X}:00.0", **changes))  # type: ignore[arg-type]
    return made


def ordinals(environment: dict[str, str], count: int = 4) -> list[int | str]:
    found = cuda_ordinals(box(count), environment)
    return [found[index] for index in range(count)]


def shown(environment: dict[str, str], count: int = 4) -> list[int | None]:
    """The ordinals, None for hidden."""
    return [None if value == HIDDEN else value for value in ordinals(environment, count)]  # type: ignore[misc]


def test_without_the_variable_all_gpus_are_numbered_as_the_driver_does() -> None:
    assert ordinals({}) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", [None, None, None, None]),
        ("0", [0, None, None, None]),
        ("2,0", [1, None, 0, None]),
        (" 1 , 3 ", [None, 0, None, 1]),
        ("0,7,1", [0, None, None, None]),
        ("7", [None, None, None, None]),
        ("-1", [None, None, None, None]),
        ("0,-1,1", [0, None, None, None]),
        ("0,,1", [0, None, None, None]),
        ("1gpu2,2ampere", [None, 0, 1, None]),
        ("0,1,0", [None, None, None, None]),
        ("0,9,0", [None, None, None, None]),
        ("NoDevFiles", [None, None, None, None]),
        ("+1", [None, 0, None, None]),
        ("99999999999999999999", [None, None, None, None]),
        ("0,GPU-aaaa2222", [0, None, None, None]),
    ],
)
def test_numbers_are_read_as_cuda_reads_them(listed: str, expected: list[int | None]) -> None:
    assert shown({"CUDA_VISIBLE_DEVICES": listed}) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("GPU-cccc4444-0000,GPU-aaaa1111-0000", [1, None, None, 0]),
        ("GPU-b", [None, None, 0, None]),
        ("GPU-aaaa", [None, None, None, None]),  # two begin so
        ("GPU-bbbb,GPU-ffff,GPU-cccc", [None, None, 0, None]),
        ("GPU-bbbb,GPU-bbbb3333", [None, None, None, None]),
        ("GPU-bbbb, GPU-cccc", [None, None, 0, 1]),
        ("GPU-bbbb,0", [None, None, 0, None]),
    ],
)
def test_uuids_and_their_beginnings_are_read_as_cuda_reads_them(listed: str, expected: list[int | None]) -> None:
    assert shown({"CUDA_VISIBLE_DEVICES": listed}) == expected


def test_numbers_follow_the_bus_and_not_nvmls_order() -> None:
    first, second = box(2)
    swapped = [
        Gpu(index=0, name=first.name, uuid=first.uuid, pci_bus_id=second.pci_bus_id),
        Gpu(index=1, name=second.name, uuid=second.uuid, pci_bus_id=first.pci_bus_id),
    ]
    assert cuda_ordinals(swapped, {}) == {0: 1, 1: 0}


def test_gpus_of_two_kinds_are_numbered_only_when_the_order_is_set_or_uuids_are_used() -> None:
    mixed = box(2, ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"))
    for environment in ({}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}):
        reasons = cuda_ordinals(mixed, environment)
        assert all("CUDA_DEVICE_ORDER=PCI_BUS_ID" in str(reason) for reason in reasons.values())
    assert cuda_ordinals(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == {0: 0, 1: 1}
    assert cuda_ordinals(mixed, {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[0]}"}) == {0: 1, 1: 0}
    assert cuda_ordinals(mixed, {"CUDA_VISIBLE_DEVICES": ""}) == {0: HIDDEN, 1: HIDDEN}


def test_a_lost_gpu_makes_numbers_uncertain_but_not_uuids() -> None:
    gpus = [*box(2), Gpu(index=2, status="lost", status_reason="NVML: GPU is lost")]
    assert all("GPU 2 is lost" in str(value) for value in cuda_ordinals(gpus, {}).values())
    assert cuda_ordinals(gpus, {"CUDA_VISIBLE_DEVICES": UUIDS[1]}) == {0: HIDDEN, 1: 0, 2: HIDDEN}


def test_mig_without_a_list_needs_a_rank() -> None:
    gpus = box(2, mig="enabled")
    assert all("needs a rank" in str(value) for value in cuda_ordinals(gpus, {}).values())


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("MIG-22222222-0000", {0: None, 1: 0}),
        ("MIG-2", {0: None, 1: 0}),
        ("MIG-22222222-0000,MIG-11111111-0000", {0: None, 1: 0}),
        (f"MIG-{UUIDS[0]}/1/0", {0: 0, 1: None}),
        ("MIG-99999999", {0: None, 1: None}),
    ],
)
def test_a_process_sees_the_first_mig_slice_it_is_given(listed: str, expected: dict[int, int | None]) -> None:
    slices = {"MIG-11111111-0000": 0, "MIG-22222222-0000": 1}
    found = cuda_ordinals(box(2, mig="enabled"), {"CUDA_VISIBLE_DEVICES": listed}, slices)
    assert {index: None if isinstance(value, str) else value for index, value in found.items()} == expected

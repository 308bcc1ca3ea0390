from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from loading import load
from wiretax.data.gpus import find_gpu
from wiretax.model.machine import Machine
from wiretax.model.reading import REASON_NOT_RECORDED, not_finite, unexplained
from wiretax.probe.recorded import redact, shipped_machine, shipped_machines
from wiretax.store.codec import decode_machine, encode


def sources() -> ModuleType:
    return load(Path(__file__).with_name("machines_from_sources.py"))


@pytest.fixture(params=shipped_machines())
def shipped(request: pytest.FixtureRequest) -> Machine:
    return shipped_machine(request.param)


def test_the_shipped_files_are_what_the_sources_say() -> None:
    built = sources().build_all()
    assert set(built) == set(shipped_machines())
    for name, machine in built.items():
        assert shipped_machine(name) == machine, f"run python tests/unit/data/machines_from_sources.py ({name})"


def test_no_null_is_unexplained_and_none_says_only_not_recorded(shipped: Machine) -> None:
    assert list(unexplained(shipped)) == []
    assert list(not_finite(shipped)) == []
    assert REASON_NOT_RECORDED not in encode(shipped).decode()


def test_it_passes_the_codec_unchanged(shipped: Machine) -> None:
    assert decode_machine(encode(shipped), "shipped") == shipped


def test_it_says_where_it_comes_from_and_is_not_called_live(shipped: Machine) -> None:
    assert shipped.origin in ("recorded", "constructed")
    assert shipped.origin_note
    if shipped.origin == "constructed":
        assert "built " in shipped.origin_note


def test_it_holds_nothing_private(shipped: Machine) -> None:
    hidden = redact(shipped)
    assert hidden.software == shipped.software
    assert hidden.surroundings == shipped.surroundings
    assert shipped.hostname is None


def test_every_pair_is_there_in_both_directions(shipped: Machine) -> None:
    indices = [gpu.index for gpu in shipped.gpus]
    assert indices == list(range(len(indices)))
    expected = {(source, target) for source in indices for target in indices if source != target}
    assert {(pair.source_gpu, pair.target_gpu) for pair in shipped.pairs} == expected
    for pair in shipped.pairs:
        assert shipped.pair(pair.target_gpu, pair.source_gpu).path == pair.path  # type: ignore[union-attr]


def test_every_gpu_named_is_one_whose_facts_are_known(shipped: Machine) -> None:
    for gpu in shipped.gpus:
        assert gpu.name is None or find_gpu(gpu.name) is not None


def matrix(machine: Machine) -> list[list[str | None]]:
    count = len(machine.gpus)
    return [
        ["X" if source == target else machine.pair(source, target).path for target in range(count)]  # type: ignore[union-attr]
        for source in range(count)
    ]


def test_the_rented_box_has_its_phb_and_sys_matrix_and_no_p2p_in_any_of_6_pairs() -> None:
    machine = shipped_machine("rtx4090x4")
    assert matrix(machine) == [
        ["X", "PHB", "SYS", "SYS"],
        ["PHB", "X", "SYS", "SYS"],
        ["SYS", "SYS", "X", "PHB"],
        ["SYS", "SYS", "PHB", "X"],
    ]
    assert len(machine.pairs) == 12
    assert {(pair.p2p.read, pair.p2p.write, pair.peer_access) for pair in machine.pairs} == {("CNS", "CNS", False)}


def test_the_recorded_h200_pair_is_what_nvidia_smi_printed() -> None:
    machine = shipped_machine("h200x2")
    assert machine.origin == "recorded"
    assert matrix(machine) == [["X", "NV18"], ["NV18", "X"]]
    first = machine.gpus[0]
    assert (first.name, first.pci_bus_id, first.memory_bytes) == ("NVIDIA H200", "00000000:00:06.0", 143771 * 2**20)
    assert (first.pcie.generation, first.pcie.width, first.power_limit_watts, first.max_sm_clock_mhz) == (5, 16, 700.0, 1980)
    assert (first.power_watts, first.temperature_celsius, first.sm_clock_mhz) == (83.27, 39.0, 360)
    assert (first.nvlinks_active, {link.bandwidth_bytes_per_second for link in first.nvlinks}) == (18, {26.562e9})
    assert (first.fabric_state, first.fabric_status, first.throttle_reasons) == ("completed", "success", ("gpu_idle",))
    pair = machine.pair(0, 1)
    assert pair is not None
    assert (pair.p2p.read, pair.p2p.write, pair.p2p.nvlink, pair.p2p.atomics, pair.p2p.pci) == ("OK", "OK", "OK", "OK", "NS")
    assert machine.software.nccl_environment["NCCL_NVLS_ENABLE"] == "0"
    assert (machine.surroundings.virtual_machine, machine.surroundings.dev_shm_bytes) == ("kvm", 256 * 2**30)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rtx5090x2-sys", [["X", "SYS"], ["SYS", "X"]]),
        (
            "a100-pcie-bridged",
            [["X", "NV12", "SYS", "SYS"], ["NV12", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "NV12"], ["SYS", "SYS", "NV12", "X"]],
        ),
        ("h100x8-sxm", [["X" if row == column else "NV18" for column in range(8)] for row in range(8)]),
    ],
)
def test_the_published_matrices_are_kept(name: str, expected: list[list[str]]) -> None:
    assert matrix(shipped_machine(name)) == expected


def test_special_boxes_are_what_their_names_say() -> None:
    assert [gpu.mig for gpu in shipped_machine("a100-mig").gpus] == ["enabled"] + ["disabled"] * 7
    lost = shipped_machine("gpu-lost")
    assert [gpu.status for gpu in lost.gpus] == ["ok", "lost", "ok", "ok"]
    assert lost.gpus[1].pci_bus_id == "00000000:0B:00.0"
    empty = shipped_machine("no-gpu")
    assert (empty.gpus, empty.driver_state) == ((), "absent")

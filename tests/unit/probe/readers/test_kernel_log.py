"""``dmesg`` and the journal."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.probe.readers.kernel_log import read
from wiretax.probe.readers.piece import Piece


def facts(piece: Piece) -> list[tuple[int, str, dict[str, Any]]]:
    return [(entry.line, entry.kind, {key: value for key, value in entry.values.items() if key != "text"}) for entry in piece.observations]


def only(line: str) -> tuple[str, dict[str, Any]]:
    found = facts(read(text(line))[0])
    assert len(found) == 1, found
    return found[0][1], found[0][2]


def test_a_card_that_fell_off_the_bus_after_pcie_errors() -> None:
    piece = read(case("C56_dmesg.txt"))[0]
    assert facts(piece) == [
        (1, "pcie.aer", {"device": "00000000:00:01.0", "severity": "fatal", "layer": None}),
        (2, "pcie.aer", {"device": "00000000:00:01.0", "severity": "fatal", "layer": "Transaction Layer"}),
        (4, "xid", {"pci_bus_id": "00000000:02:00.0", "code": 79, "message": "GPU has fallen off the bus.", "process": None}),
        (4, "gpu.lost", {"pci_bus_id": "00000000:02:00.0", "gpu": None, "message": "Xid 79, GPU has fallen off the bus."}),
        (5, "gpu.lost", {"pci_bus_id": "00000000:02:00.0", "gpu": None, "message": "GPU has fallen off the bus"}),
    ]
    assert piece.understood == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("line", "bus", "code", "process"),
    [
        ("NVRM: Xid (PCI:0000:81:00): 31, pid=12345, name=python, Ch 00000008, MMU Fault", "00000000:81:00.0", 31, "python"),
        (
            "Jan  5 10:00:00 gpu-07 kernel: NVRM: Xid (PCI:0000:c1:00): 48, pid='<unknown>', name=<unknown>, Double Bit ECC Error",
            "00000000:C1:00.0",
            48,
            "<unknown>",
        ),
        ("[Mon Jan  5 10:00:00 2026] NVRM: Xid (0000:02:00): 13, Graphics Exception", "00000000:02:00.0", 13, None),
        ("[  1.0] NVRM: Xid (PCI:0000:3b:00.0): 145, RLW_SRC_TRACK Nonfatal", "00000000:3B:00.0", 145, None),
    ],
)
def test_every_spelling_of_an_xid(line: str, bus: str, code: int, process: str | None) -> None:
    kind, values = only(line)
    assert kind == "xid"
    assert (values["pci_bus_id"], values["code"], values["process"]) == (bus, code, process)


def test_an_nvlink_xid_names_its_link() -> None:
    piece = read(text("NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x, NVLink: fatal error detected on link 2(0x10000, 0x0)"))[0]
    assert [(kind, values.get("link")) for _, kind, values in facts(piece)] == [("xid", None), ("nvlink.fatal", 2)]


def test_a_switch_has_errors_of_its_own() -> None:
    kind, values = only("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert (kind, values["code"], values["fatal"]) == ("nvswitch.sxid", 20034, True)


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0", "corrected"),
        ("pcieport 0000:40:01.1: AER: Multiple Corrected error received: 0000:41:00.0", "corrected"),
        ("pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:41:00.0", "nonfatal"),
        ("nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "corrected"),
    ],
)
def test_pcie_errors_by_severity(line: str, severity: str) -> None:
    kind, values = only(line)
    assert (kind, values["severity"], values["device"]) == ("pcie.aer", severity, "00000000:41:00.0")


def test_the_kernel_names_the_narrow_link() -> None:
    kind, values = only(
        "pci 0000:41:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:40:01.1 "
        "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
    )
    assert kind == "pcie.bandwidth_limited"
    assert values == {
        "device": "00000000:41:00.0",
        "available_gbit_per_second": 31.504,
        "limited_by": "00000000:40:01.1",
        "generation": 3,
        "width": 4,
        "capable_gbit_per_second": 252.048,
        "capable_generation": 4,
        "capable_width": 16,
    }


@pytest.mark.parametrize(
    ("line", "what", "device"),
    [
        (
            "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0xfffc flags=0x0020]",
            "IO_PAGE_FAULT",
            "00000000:41:00.0",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=c1:00.0 domain=0x0010 address=0xfffc flags=0x0020]",
            "IO_PAGE_FAULT",
            "00000000:C1:00.0",
        ),
        (
            "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x1000 [fault reason 0x05] PTE Write access is not set",
            "DMAR",
            "00000000:3B:00.0",
        ),
    ],
)
def test_iommu_faults_name_their_device(line: str, what: str, device: str) -> None:
    kind, values = only(line)
    assert (kind, values["what"], values["device"]) == ("iommu.fault", what, device)


@pytest.mark.parametrize(
    ("line", "state", "iommu"),
    [
        ("[    0.5] iommu: Default domain type: Translated", "translated", "translated"),
        ("[    0.5] iommu: Default domain type: Passthrough (set via kernel command line)", "passthrough", "passthrough"),
        ("[    0.5] DMAR: IOMMU enabled", "enabled", None),
        ("[    0.5] AMD-Vi: Interrupt remapping enabled", "enabled", None),
        ("[    0.5] DMAR: IOMMU disabled", "disabled", "off"),
    ],
)
def test_the_state_of_the_iommu(line: str, state: str, iommu: str | None) -> None:
    piece = read(text(line))[0]
    assert facts(piece)[0][2]["state"] == state
    assert piece.machine is not None
    assert piece.machine.surroundings.iommu == iommu


@pytest.mark.parametrize(
    ("line", "version", "is_open"),
    [
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024", "550.54.14", False),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build  (user@host)", "580.142", True),
    ],
)
def test_the_loaded_driver(line: str, version: str, is_open: bool) -> None:
    piece = read(text(line))[0]
    assert piece.machine is not None
    assert piece.machine.software.driver == version
    assert facts(piece)[0][2]["open_kernel_module"] is is_open


def test_a_driver_that_does_not_match_its_library() -> None:
    piece = read(
        text("NVRM: API mismatch: the client has the version 550.90.07, but\nNVRM: this kernel module has the version 550.54.14.")
    )[0]
    assert piece.machine is not None
    assert piece.machine.driver_state == "mismatch"
    assert facts(piece)[0][2]["library_version"] == "550.90.07"


@pytest.mark.parametrize(
    ("line", "kind", "part"),
    [
        (
            "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
            "driver.failure",
            {"failure": "init_failed", "pci_bus_id": "00000000:02:00.0"},
        ),
        ("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:02:00.0)", "driver.failure", {"failure": "bar_invalid"}),
        ("INFO: task python:4711 blocked for more than 120 seconds.", "kernel.hung_task", {"task": "python", "seconds": 120}),
        ("Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB", "kernel.oom", {"process": "python", "cgroup": True}),
        ("Out of memory: Killed process 4711 (python)", "kernel.oom", {"process": "python", "cgroup": False}),
        ("mce: [Hardware Error]: Machine check events logged", "hardware.error", {}),
        ("pcieport 0000:00:01.0: pciehp: Slot(1): Link Down", "pcie.link_down", {"device": "00000000:00:01.0"}),
        ("Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA", "acs.override", {}),
    ],
)
def test_other_trouble(line: str, kind: str, part: dict[str, Any]) -> None:
    found, values = only(line)
    assert found == kind
    assert part.items() <= values.items()


def test_a_flood_is_one_observation_with_a_count_and_its_host() -> None:
    lines = [
        f"Jan  5 10:00:{second:02} gpu-07 kernel: pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0"
        for second in range(50)
    ]
    piece = read(text("\n".join(lines)))[0]
    assert [(entry.line, entry.values["count"]) for entry in piece.observations] == [(1, 50)]
    assert piece.machine is not None
    assert piece.machine.hostname == "gpu-07"


@pytest.mark.parametrize("content", ["", "[    0.0] Linux version 6.8.0", "GPU 0: ok", "NVRM is the driver"])
def test_other_lines_say_nothing(content: str) -> None:
    assert read(text(content)) == ()


def test_a_fault_names_the_driver_of_its_device() -> None:
    line = "[ 120.1] nvidia 0000:21:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0020 address=0xd0e00000 flags=0x0020]"
    (entry,) = [entry for piece in read(text(line)) for entry in piece.observations]
    assert (entry.values["driver"], entry.values["device"]) == ("nvidia", "00000000:21:00.0")


def test_a_lost_gpu_may_be_told_by_the_device_alone() -> None:
    (piece,) = read(text("[ 12.345678] nvidia 0000:3b:00.0: GPU has fallen off the bus"))
    assert [(entry.kind, entry.values["pci_bus_id"]) for entry in piece.observations] == [("gpu.lost", "00000000:3B:00.0")]

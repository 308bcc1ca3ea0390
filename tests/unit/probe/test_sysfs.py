from __future__ import annotations

import os
from pathlib import Path

import pytest

import linux_trees as trees
from wiretax.probe.sysfs import iommu_mode, numa, numa_nodes, pci_gpus, pcie_path, sysfs_address

BRIDGE = "0x060400"
PARTLY = "only {} bytes of the configuration space can be read: needs root on the host"


def switched_box(root: Path, **uplink: str) -> None:
    """A GPU behind a switch; the switch's own uplink can be given another link."""
    up = {**trees.link(), **uplink}
    for place, (kind, files) in enumerate((("root_port", up), ("up", up), ("down", trees.link()), ("gpu", trees.link()))):
        trees.pci_device(root, trees.SWITCHED[: place + 1], **{"class": "0x030200" if kind == "gpu" else BRIDGE}, **files)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00000000:E1:00.0", "0000:e1:00.0"),
        ("0000:e1:00.0", "0000:e1:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_address_is_written_as_linux_names_its_folder(given: str, expected: str) -> None:
    assert sysfs_address(given) == expected


def test_every_hop_is_seen_from_the_gpu_to_the_root_port(tmp_path: Path) -> None:
    switched_box(tmp_path)
    path = pcie_path("00000000:03:00.0", tmp_path)
    assert [(hop.address, hop.kind) for hop in path.hops] == [
        ("0000:03:00.0", "gpu"),
        ("0000:02:08.0", "switch_down"),
        ("0000:01:00.0", "switch_up"),
        ("0000:00:01.1", "root_port"),
    ]
    assert {(hop.link.generation, hop.link.width, hop.link.max_generation, hop.link.max_width) for hop in path.hops} == {(5, 16, 5, 16)}


def test_a_x4_slot_behind_a_switch_shows_though_the_gpu_itself_has_x16(tmp_path: Path) -> None:
    switched_box(tmp_path, current_link_width="4", current_link_speed="8.0 GT/s PCIe")
    hops = {hop.kind: hop.link for hop in pcie_path("0000:03:00.0", tmp_path).hops}
    assert (hops["gpu"].generation, hops["gpu"].width) == (5, 16)
    assert (hops["switch_up"].generation, hops["switch_up"].width) == (3, 4)
    assert (hops["root_port"].generation, hops["root_port"].width) == (3, 4)
    assert (hops["root_port"].max_generation, hops["root_port"].max_width) == (5, 16)


def test_a_virtual_machine_without_bridges_has_no_hops_and_says_so(tmp_path: Path) -> None:
    trees.pci_device(tmp_path, ("0000:00:06.0",), **{"class": "0x030200"}, **trees.link())
    path = pcie_path("00000000:00:06.0", tmp_path)
    assert path.hops == ()
    assert "no bridge above the GPU" in path.reason


def test_a_gpu_linux_does_not_show_has_a_reason(tmp_path: Path) -> None:
    assert pcie_path("00000000:99:00.0", tmp_path).reason == "Linux shows no PCI device 0000:99:00.0"


def test_a_link_linux_cannot_read_is_missing_and_never_zero(tmp_path: Path) -> None:
    trees.pci_device(tmp_path, ("0000:00:01.0",), **{"class": BRIDGE}, **trees.link(speed="Unknown", width="0", max_width="255"))
    trees.pci_device(tmp_path, ("0000:00:01.0", "0000:01:00.0"), **{"class": "0x030000"})
    gpu, port = pcie_path("0000:01:00.0", tmp_path).hops
    assert (port.link.generation, port.link.width, port.link.max_width, port.link.max_generation) == (None, None, None, 5)
    assert port.link.missing["generation"] == "Linux says 'Unknown'"
    assert port.link.missing["width"] == "Linux reports no width (0)"
    assert port.link.missing["max_width"] == "Linux reports no width (255)"
    assert gpu.link.missing["generation"] == "no current_link_speed in /sys"
    assert gpu.link.missing["max_width"] == "no max_link_width in /sys"


@pytest.mark.parametrize(
    ("speed", "generation"),
    [
        ("2.5 GT/s PCIe", 1),
        ("5.0 GT/s PCIe", 2),
        ("5 GT/s", 2),
        ("8.0 GT/s PCIe", 3),
        ("8 GT/s", 3),
        ("16.0 GT/s PCIe", 4),
        ("32.0 GT/s PCIe", 5),
        ("64.0 GT/s PCIe", 6),
        ("7.0 GT/s PCIe", None),
    ],
)
def test_speeds_of_old_and_new_kernels_are_generations(tmp_path: Path, speed: str, generation: int | None) -> None:
    switched_box(tmp_path, current_link_speed=speed)
    assert pcie_path("0000:03:00.0", tmp_path).hops[-1].link.generation == generation


def test_the_ports_own_capability_names_its_kind(tmp_path: Path) -> None:
    switched_box(tmp_path)
    # A PCIe-to-PCI bridge where the position alone would say "switch_up".
    trees.pci_device(tmp_path, trees.SWITCHED[:2], config=trees.config_space(0x7))
    trees.pci_device(tmp_path, trees.SWITCHED[:3], config=trees.config_space(0x6))
    assert [hop.kind for hop in pcie_path("0000:03:00.0", tmp_path).hops] == ["gpu", "switch_down", "bridge", "root_port"]


def test_what_is_no_bridge_is_of_unknown_kind(tmp_path: Path) -> None:
    switched_box(tmp_path)
    trees.pci_device(tmp_path, trees.SWITCHED[:1], **{"class": "0x088000"})
    assert pcie_path("0000:03:00.0", tmp_path).hops[-1].kind == "unknown"


@pytest.mark.parametrize(("control", "redirects"), [(0x00, False), (0x01, False), (0x04, True), (0x08, True), (0x1D, True), (0x10, False)])
def test_acs_redirects_when_its_request_or_completion_bit_is_set(tmp_path: Path, control: int, redirects: bool) -> None:
    switched_box(tmp_path)
    trees.pci_device(tmp_path, trees.SWITCHED[:3], config=trees.config_space(0x6, acs_control=control))
    hops = {hop.kind: hop for hop in pcie_path("0000:03:00.0", tmp_path).hops}
    assert hops["switch_down"].acs_redirects is redirects


def test_a_port_without_the_capability_does_not_redirect(tmp_path: Path) -> None:
    switched_box(tmp_path)
    trees.pci_device(tmp_path, trees.SWITCHED[:1], config=trees.config_space(0x4))
    assert pcie_path("0000:03:00.0", tmp_path).hops[-1].acs_redirects is False


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            trees.config_space(0x6, acs_control=0x1D, size=64),
            PARTLY.format(64),
        ),
        (
            trees.config_space(0x6, acs_control=0x1D, size=256),
            PARTLY.format(256),
        ),
        (b"\xff" * 4096, "the configuration space reads as all ones: the device does not answer"),
        (b"", "the configuration space cannot be read"),
    ],
)
def test_an_unreadable_configuration_space_leaves_acs_unknown_with_the_reason(tmp_path: Path, config: bytes, reason: str) -> None:
    switched_box(tmp_path)
    trees.pci_device(tmp_path, trees.SWITCHED[:3], config=config)
    hop = pcie_path("0000:03:00.0", tmp_path).hops[1]
    assert (hop.acs_redirects, hop.missing["acs_redirects"]) == (None, reason)
    assert hop.kind == "switch_down"


def test_a_looping_list_of_capabilities_ends(tmp_path: Path) -> None:
    config = bytearray(trees.config_space(0x6))
    config[0x50:0x52] = bytes((0x01, 0x50))
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    switched_box(tmp_path)
    trees.pci_device(tmp_path, trees.SWITCHED[:3], config=bytes(config))
    hop = pcie_path("0000:03:00.0", tmp_path).hops[1]
    assert (hop.kind, hop.acs_redirects) == ("switch_down", False)


def test_gpus_are_listed_with_vendor_and_the_driver_that_holds_them(tmp_path: Path) -> None:
    nvidia = trees.pci_device(tmp_path, ("0000:01:00.0",), vendor="0x10de\n", **{"class": "0x030200\n"})
    trees.pci_device(tmp_path, ("0000:01:00.1",), vendor="0x10de\n", **{"class": "0x040300\n"})  # its sound device
    trees.pci_device(tmp_path, ("0000:02:00.0",), vendor="0x1002\n", **{"class": "0x120000\n"})
    trees.pci_device(tmp_path, ("0000:03:00.0",), vendor="0x8086\n", **{"class": "0x030000\n"})
    (tmp_path / "drivers/vfio-pci").mkdir(parents=True)
    (nvidia / "driver").symlink_to(os.path.relpath(tmp_path / "drivers/vfio-pci", nvidia))
    found = pci_gpus(tmp_path)
    assert [(gpu.address, gpu.vendor, gpu.driver) for gpu in found] == [
        ("0000:01:00.0", "NVIDIA", "vfio-pci"),
        ("0000:02:00.0", "AMD", None),
    ]
    assert pci_gpus(tmp_path / "nowhere") == ()


def test_numa_node_and_cpus_come_from_the_device(tmp_path: Path) -> None:
    trees.pci_device(tmp_path, ("0000:01:00.0",), numa_node="1\n", local_cpulist="28-55,84-111\n")
    trees.write(tmp_path, {"sys/devices/system/node/online": "0-1\n"})
    found = numa("00000000:01:00.0", tmp_path)
    assert (found.node, found.cpus, found.missing) == (1, "28-55,84-111", {})
    assert numa_nodes(tmp_path) == 2


@pytest.mark.parametrize(("nodes", "node"), [("0\n", 0), ("0-1\n", None)])
def test_minus_one_is_node_0_only_where_there_is_a_single_node(tmp_path: Path, nodes: str, node: int | None) -> None:
    trees.pci_device(tmp_path, ("0000:01:00.0",), numa_node="-1\n", local_cpulist="0-7\n")
    trees.write(tmp_path, {"sys/devices/system/node/online": nodes})
    found = numa("0000:01:00.0", tmp_path)
    assert found.node == node
    assert ("node" in found.missing) == (node is None)


@pytest.mark.parametrize(
    ("group_type", "units", "cmdline", "mode"),
    [
        ("DMA\n", ["dmar0"], "", "translated"),
        ("DMA-FQ\n", ["ivhd0"], "iommu=pt", "translated"),
        ("identity\n", ["ivhd0"], "", "passthrough"),
        (None, [], "", "off"),
        (None, ["dmar0"], "quiet iommu=pt", "passthrough"),
        (None, ["dmar0"], "iommu.passthrough=1", "passthrough"),
        (None, ["dmar0"], "intel_iommu=off", "off"),
        (None, ["dmar0"], "quiet", None),
        (None, None, "", None),
    ],
)
def test_the_mode_of_the_iommu_is_that_of_the_gpus_groups(
    tmp_path: Path, group_type: str | None, units: list[str] | None, cmdline: str, mode: str | None
) -> None:
    device = trees.pci_device(tmp_path, ("0000:01:00.0",))
    if group_type is not None:
        trees.write(device, {"iommu_group/type": group_type})
    if units is not None:
        for unit in ["", *units]:
            (tmp_path / "sys/class/iommu" / unit).mkdir(parents=True, exist_ok=True)
    trees.write(tmp_path, {"proc/cmdline": cmdline})
    found, reason = iommu_mode(["00000000:01:00.0"], tmp_path)
    assert found == mode
    assert bool(reason) == (mode is None)

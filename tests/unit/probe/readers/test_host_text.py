"""What people paste of the host itself."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import recording, text
from wiretax.model.machine import Surroundings
from wiretax.model.reading import unexplained
from wiretax.probe.readers.host_text import read
from wiretax.probe.readers.piece import Piece


def around(piece: Piece) -> Surroundings:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.surroundings


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_the_recorded_host() -> None:
    piece = read(recording("host_and_nvidia_smi.txt"))[0]
    found = around(piece)
    assert (found.cpu_model, found.cpu_vendor, found.cpus_total, found.numa_nodes) == ("Intel(R) Xeon(R) Processor", "intel", 32, 1)
    assert (found.virtual_machine, found.dev_shm_bytes, found.dev_shm_free_bytes) == ("kvm", 256 * 2**30, 256 * 2**30)
    assert piece.machine is not None
    assert (piece.machine.hostname, piece.machine.software.kernel) == ("vm", "6.18.44")


@pytest.mark.parametrize(
    ("line", "total", "free"),
    [
        ("shm              64M     0   64M   0% /dev/shm", 64 * 2**20, 64 * 2**20),
        ("tmpfs            63G  2.5G   61G   4% /dev/shm", 63 * 2**30, 61 * 2**30),
        ("shm                 65536       0     65536   0% /dev/shm", 64 * 2**20, 64 * 2**20),
        ("shm on /dev/shm type tmpfs (rw,nosuid,nodev,noexec,relatime,size=65536k)", 64 * 2**20, None),
        ("shm /dev/shm tmpfs rw,nosuid,size=1048576k,inode64 0 0", 2**30, None),
    ],
)
def test_shared_memory_as_df_and_mount_show_it(line: str, total: int, free: int | None) -> None:
    found = around(read(text(line))[0])
    assert (found.dev_shm_bytes, found.dev_shm_free_bytes) == (total, free)


@pytest.mark.parametrize(
    ("line", "iommu", "options"),
    [
        ("BOOT_IMAGE=/boot/vmlinuz-6.8 root=UUID=1 ro quiet iommu=pt amd_iommu=on", "passthrough", {"iommu": "pt", "amd_iommu": "on"}),
        ("Kernel command line: ro intel_iommu=off", "off", {"intel_iommu": "off"}),
        ("Command line: ro iommu.passthrough=0", "translated", {"iommu.passthrough": "0"}),
        ("BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on", None, {"intel_iommu": "on"}),
        ("BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro pcie_acs_override=downstream", None, {"pcie_acs_override": "downstream"}),
    ],
)
def test_the_kernel_command_line(line: str, iommu: str | None, options: dict[str, str]) -> None:
    piece = read(text(line))[0]
    assert around(piece).iommu == iommu
    assert {entry["option"]: entry["value"] for entry in values(piece, "kernel.cmdline")} == options
    assert values(piece, "kernel.cmdline_seen") == [{"has_iommu_option": any("iommu" in option for option in options)}]


def test_a_line_for_grub_is_not_in_force() -> None:
    piece = read(text('GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"'))[0]
    assert values(piece, "kernel.cmdline") == [{"option": "iommu", "value": "pt", "active": False}]
    assert around(piece).iommu is None


@pytest.mark.parametrize(
    ("line", "value"), [("CONFIG_IOMMU_DEFAULT_PASSTHROUGH=y", "y"), ("# CONFIG_IOMMU_DEFAULT_PASSTHROUGH is not set", "n")]
)
def test_the_kernel_configuration(line: str, value: str) -> None:
    assert values(read(text(line))[0], "kernel.config") == [{"option": "CONFIG_IOMMU_DEFAULT_PASSTHROUGH", "value": value}]


def test_modules_and_driver() -> None:
    content = """nvidia_peermem         16384  0
nvidia               56717312  5 nvidia_uvm,nvidia_peermem
filename:       /lib/modules/6.8.0/kernel/drivers/video/nvidia.ko
version:        550.54.14
license:        Dual MIT/GPL
options nvidia NVreg_RegistryDwords="ForceP2P=0x11;RMForceP2PType=1"
"""
    piece = read(text(content))[0]
    assert values(piece, "kernel.module") == [{"name": "nvidia_peermem", "users": 0}, {"name": "nvidia", "users": 5}]
    assert piece.machine is not None
    assert piece.machine.software.driver == "550.54.14"
    assert values(piece, "driver.license") == [{"open_kernel_module": True}]
    assert values(piece, "driver.registry") == [{"option": "ForceP2P=0x11;RMForceP2PType=1"}]


def test_a_patched_driver_names_itself() -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07-p2p  Release Build  (root@box)"
    piece = read(text(line))[0]
    assert piece.machine is not None
    assert (piece.machine.software.driver, piece.machine.software.driver_flavour) == ("550.90.07-p2p", "unofficial")


@pytest.mark.parametrize(
    ("content", "machine"),
    [
        ("Hypervisor vendor:     VMware", "vmware"),
        ("$ systemd-detect-virt\nkvm", "kvm"),
        ("Linux DESKTOP 5.15.153.1-microsoft-standard-WSL2 #1 SMP Fri x86_64 GNU/Linux", "wsl2"),
        ("CPU(s):   64\nFlags:    fpu vme de pse avx2", "none"),
        ("CPU(s):   64\nFlags:    fpu vme hypervisor", None),
    ],
)
def test_whether_the_host_is_virtual(content: str, machine: str | None) -> None:
    assert around(read(text(content))[0]).virtual_machine == machine


@pytest.mark.parametrize("content", ["", "shared memory is small", "version: 2", "Flags", "the CPU is slow"])
def test_other_text_says_nothing_of_the_host(content: str) -> None:
    assert read(text(content)) == ()


@pytest.mark.parametrize(
    ("line", "present"),
    [("ls: cannot access '/dev/infiniband': No such file or directory", False), ("issm0  rdma_cm  umad0  uverbs0  uverbs1", True)],
)
def test_whether_infiniband_is_passed_to_the_container(line: str, present: bool) -> None:
    assert values(read(text(line))[0], "infiniband.device_files") == [{"present": present}]


def test_the_release_of_a_kernel_alone_is_read() -> None:
    (piece,) = read(text("$ uname -r\n5.10.102.1-microsoft-standard-WSL2\n"))
    assert piece.machine is not None and piece.machine.surroundings.virtual_machine == "wsl2"
    assert piece.machine.software.kernel == "5.10.102.1-microsoft-standard-WSL2"


@pytest.mark.parametrize(
    ("block", "figure", "expected"),
    [
        ("1K", "1056541696", 1056541696 * 2**10),
        ("1M", "65536", 2**36),
        ("1G", "64", 2**36),
        ("1B", "67108864", 2**26),
        ("512", "131072", 2**26),
    ],
)
def test_df_counts_in_the_blocks_of_its_heading(block: str, figure: str, expected: int) -> None:
    content = (
        f"Dateisystem    {block}-Bl\u00f6cke  Benutzt Verf\u00fcgbar Verw% Eingeh\u00e4ngt auf\ntmpfs  {figure}   0  {figure}  0% /dev/shm"
    )
    piece = read(text(content))[0]
    assert (around(piece).dev_shm_bytes, around(piece).dev_shm_free_bytes) == (expected, expected)
    assert piece.understood == {1, 2}


def test_a_share_of_the_memory_is_no_size_in_bytes() -> None:
    assert read(text("tmpfs /dev/shm tmpfs defaults,size=50% 0 0")) == ()

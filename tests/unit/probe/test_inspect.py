from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import linux_trees as trees
from fake_nvml.fake import FakeNvml
from wiretax.model.machine import Machine
from wiretax.model.reading import unexplained
from wiretax.probe.inspect import explain_state, inspect_machine
from wiretax.probe.nvml_answer import NvmlAnswer
from wiretax.probe.sysfs import PciGpu

HOST = {
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7502\nflags\t: fpu\n",
    "proc/meminfo": "MemTotal: 1000 kB\n",
    "proc/self/limits": "Max locked memory unlimited unlimited bytes\n",
    "proc/self/status": "Cpus_allowed_list:\t0-3\n",
    "proc/sys/kernel/hostname": "gpu-node17\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/class/iommu/ivhd0/x": "",
}


def box(root: Path, *, acs_control: int | None = 0, group: str = "DMA-FQ\n") -> Path:
    """Two GPUs behind one switch; the second hangs on a x4 downstream port."""
    trees.write(root, dict(HOST))
    chain = ("0000:00:01.1", "0000:0f:00.0")
    trees.pci_device(root, chain[:1], **{"class": "0x060400"}, config=trees.config_space(0x4), **trees.link())
    trees.pci_device(root, chain, **{"class": "0x060400"}, config=trees.config_space(0x5), **trees.link())
    for place, width in ((0, "16"), (1, "4")):
        port, gpu = f"0000:{0x20 + place:02x}:00.0", f"0000:{0x10 + place:02x}:00.0"
        config = trees.config_space(0x6, acs_control=acs_control)
        trees.pci_device(root, (*chain, port), **{"class": "0x060400"}, config=config, **trees.link(width=width))
        device = trees.pci_device(
            root,
            (*chain, port, gpu),
            **{"class": "0x030200", "vendor": "0x10de"},
            numa_node=f"{place}\n",
            local_cpulist=f"{2 * place}-{2 * place + 1}\n",
            **trees.link(),
        )
        trees.write(device, {"iommu_group/type": group})
    return root


def look(fake: FakeNvml, root: Path, answers: str, **environment: str) -> Machine:
    return inspect_machine(root=root, environment={**fake.environment(answers), **environment}, deadline_seconds=20.0)


def test_the_parts_are_joined_into_one_machine_without_an_unexplained_null(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = look(fake_nvml, box(tmp_path / "box"), "gpus=2\nlinks=none\npath=20\nnodes=-\ncpus=-\n", CUDA_VISIBLE_DEVICES="1")
    assert list(unexplained(machine)) == []
    assert (machine.origin, machine.hostname, machine.driver_state, machine.driver_detail) == ("live", "gpu-node17", "ok", None)
    assert (machine.software.driver, machine.software.cuda) == ("580.159.04", "13.0")
    assert [gpu.cuda_ordinal for gpu in machine.gpus] == [None, 0]
    assert machine.gpus[0].missing["cuda_ordinal"] == "hidden by CUDA_VISIBLE_DEVICES"
    assert [(gpu.numa_node, gpu.cpu_affinity) for gpu in machine.gpus] == [(0, "0-1"), (1, "2-3")]
    assert machine.pair(0, 1).path == "PXB"  # type: ignore[union-attr]
    assert {pair.missing["peer_access"] for pair in machine.pairs} == {"needs a rank: run wiretax check"}
    assert machine.software.missing["nccl_loaded"] == "needs a rank: run wiretax check"
    assert machine.surroundings.missing["memlock_bytes"] == "unlimited"


def test_a_x4_slot_behind_a_switch_is_in_the_gpus_path_only(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = look(fake_nvml, box(tmp_path / "box"), "gpus=2\n")
    assert [gpu.pcie.width for gpu in machine.gpus] == [16, 16]
    assert [[hop.link.width for hop in gpu.pcie_path] for gpu in machine.gpus] == [[16, 16, 16, 16], [16, 4, 16, 16]]
    assert [hop.kind for hop in machine.gpus[1].pcie_path] == ["gpu", "switch_down", "switch_up", "root_port"]


@pytest.mark.parametrize(("control", "expected"), [(0x1D, "on"), (0x00, "off"), (None, "off")])
def test_acs_is_on_where_any_bridge_above_a_gpu_redirects(fake_nvml: FakeNvml, tmp_path: Path, control: int | None, expected: str) -> None:
    machine = look(fake_nvml, box(tmp_path / "box", acs_control=control), "gpus=2\n")
    assert machine.surroundings.acs == expected


def test_acs_is_unknown_where_the_configuration_space_needs_root(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    root = box(tmp_path / "box")
    for config in root.glob("sys/devices/**/config"):
        config.write_bytes(config.read_bytes()[:64])
    machine = look(fake_nvml, root, "gpus=2\n")
    assert machine.surroundings.acs is None
    assert "needs root" in machine.surroundings.missing["acs"]


@pytest.mark.parametrize(("group", "expected"), [("DMA\n", "translated"), ("identity\n", "passthrough")])
def test_the_iommu_is_that_of_the_gpus(fake_nvml: FakeNvml, tmp_path: Path, group: str, expected: str) -> None:
    assert look(fake_nvml, box(tmp_path / "box", group=group), "gpus=2\n").surroundings.iommu == expected


def test_in_a_virtual_machine_the_hosts_switches_and_iommu_are_not_guessed(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    trees.write(tmp_path, {**HOST, "proc/cpuinfo": "flags\t: fpu hypervisor\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"})
    for place in range(2):
        trees.pci_device(tmp_path, (f"0000:{0x10 + place:02x}:00.0",), **{"class": "0x030200"}, **trees.link())
    machine = look(fake_nvml, tmp_path, "gpus=2\nlinks=s*18\n")
    assert machine.surroundings.virtual_machine == "kvm"
    assert (machine.surroundings.iommu, machine.surroundings.acs) == (None, None)
    assert machine.surroundings.missing["iommu"] == "a virtual machine: the host's IOMMU cannot be seen from inside"
    assert machine.surroundings.missing["acs"] == "a virtual machine: the host's switches cannot be seen from inside"
    assert machine.gpus[0].pcie_path == ()
    assert "no bridge above the GPU" in machine.gpus[0].missing["pcie_path"]
    assert list(unexplained(machine)) == []


def test_the_slot_of_a_single_lost_gpu_is_the_one_nobody_else_has(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = look(fake_nvml, box(tmp_path / "box"), "gpus=2\nlost=1\n")
    assert (machine.gpus[1].status, machine.gpus[1].pci_bus_id) == ("lost", "00000000:11:00.0")
    assert "pci_bus_id" not in machine.gpus[1].missing
    assert len(machine.gpus[1].pcie_path) == 4
    assert machine.gpus[0].status == "ok"
    assert list(unexplained(machine)) == []


def test_two_lost_gpus_are_not_guessed_at(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = look(fake_nvml, box(tmp_path / "box"), "gpus=2\nlost=0,1\n")
    assert [gpu.pci_bus_id for gpu in machine.gpus] == [None, None]
    assert machine.gpus[0].missing["pcie_path"] == "the GPU's PCI address is not known"


@pytest.mark.parametrize(
    ("name", "links", "p2p", "flavour"),
    [
        ("NVIDIA GeForce RTX 4090", "none", "0,0,5,0,0", "unofficial"),
        ("NVIDIA GeForce RTX 4090", "none", "1,1,5,1,1", "unknown"),
        ("NVIDIA GeForce RTX 3090", "1,1,1,1", "0,0,0,0,5", "unknown"),
        ("NVIDIA L40S", "none", "0,0,5,0,0", "unknown"),
        ("NVIDIA GeForce RTX 9990", "none", "0,0,5,0,0", "unknown"),
    ],
)
def test_p2p_that_no_stock_driver_offers_gives_a_patched_driver_away(
    fake_nvml: FakeNvml, tmp_path: Path, name: str, links: str, p2p: str, flavour: str
) -> None:
    answers = f"gpus=2\nname={name}\nlinks={links}\nlinks.1={links.replace('1', '0')}\np2p={p2p}\npath=30\n"
    assert look(fake_nvml, box(tmp_path / "box"), answers).software.driver_flavour == flavour


def test_a_mismatch_names_both_versions(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    library = tmp_path / "usr/lib/x86_64-linux-gnu"
    trees.write(
        tmp_path,
        {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed\n",
            "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08": "",
        },
    )
    (library / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.105.08")
    machine = look(fake_nvml, tmp_path, "init=18\n")
    assert machine.driver_state == "mismatch"
    assert "(kernel module 580.82.07, library 580.105.08)" in (machine.driver_detail or "")
    assert machine.software.driver == "580.82.07"
    assert list(unexplained(machine)) == []


def test_a_hung_driver_still_gives_a_whole_document_in_time(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    started = time.monotonic()
    environment = fake_nvml.environment("hang=nvmlInitWithFlags\n")
    machine = inspect_machine(root=tmp_path, environment=environment, deadline_seconds=0.5)
    assert time.monotonic() - started < 4.0
    assert machine.driver_state == "hung"
    assert "did not answer within 0.5 s" in (machine.driver_detail or "")
    assert machine.surroundings.container == "none"
    assert list(unexplained(machine)) == []


NVIDIA = PciGpu(address="0000:01:00.0", vendor="NVIDIA", driver="nouveau")
AMD = PciGpu(address="0000:02:00.0", vendor="AMD", driver="amdgpu")


@pytest.mark.parametrize(
    ("listed", "files", "state", "words"),
    [
        ([], {}, "absent", "no NVIDIA driver"),
        ([NVIDIA], {}, "error", "Linux lists 1 NVIDIA GPU(s) (0000:01:00.0, ...), held by the driver nouveau."),
        ([replace(NVIDIA, driver=None)], {}, "error", "held by no driver"),
        ([AMD], {}, "absent", "Linux lists 1 AMD GPU(s), which are not read here."),
        ([], {"sys/module/nvidia/version": "580.82.07\n"}, "error", "a container started without GPUs"),
    ],
)
def test_no_driver_is_told_apart_from_a_gpu_that_nothing_drives(
    tmp_path: Path, listed: list[PciGpu], files: dict[str, str | bytes], state: str, words: str
) -> None:
    trees.write(tmp_path, files)
    answer = NvmlAnswer(driver_state="absent", driver_detail="libnvidia-ml.so.1 is not on this system: no NVIDIA driver.")
    found = explain_state(answer, listed, tmp_path)
    assert found.driver_state == state
    assert words in (found.driver_detail or "")


def test_an_empty_tree_and_no_driver_is_still_a_whole_document(tmp_path: Path) -> None:
    machine = inspect_machine(root=tmp_path, environment={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)})
    assert (machine.driver_state, machine.gpus, machine.pairs) == ("absent", (), ())
    assert list(unexplained(machine)) == []


def test_this_machine_is_inspected_without_importing_torch_or_numpy() -> None:
    program = """
import sys
from wiretax.probe.inspect import inspect_machine
machine = inspect_machine()
from wiretax.model.reading import unexplained
assert not list(unexplained(machine)), list(unexplained(machine))
print(sorted(name for name in ("torch", "numpy", "scipy", "altair", "rich") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"

"""Whatever stands in the files of a strange machine, reading them ends in values or reasons, never in an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linux_trees as trees
from wiretax.model.machine import Gpu
from wiretax.model.reading import not_finite, unexplained
from wiretax.probe.cgroup import cgroup_limits, parse_cgroup
from wiretax.probe.cuda_order import cuda_ordinals
from wiretax.probe.files import count_list
from wiretax.probe.interfaces import parse_if_inet6
from wiretax.probe.nccl_library import loaded_nccl, nccl_version, parse_nccl_conf
from wiretax.probe.nvml_words import bus_id, event_reasons, fabric_troubles
from wiretax.probe.redaction import Redactor
from wiretax.probe.software import driver_flavour, kernel_module_version
from wiretax.probe.surroundings import container, cpu_identity, memlock_bytes, memory_bytes, read_surroundings, virtual_machine
from wiretax.probe.sysfs import iommu_mode, numa, pci_gpus, pcie_path, sysfs_address

ANY_TEXT = st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda data: data.decode("utf-8", errors="replace")))
WORDS = st.lists(
    st.sampled_from(list("0123456789:-,./=# \n\tabcxMNV") + ["0::/", "memory", "max", "nccl", "libnccl.so.2"]), max_size=60
).map("".join)
TEXT = st.one_of(ANY_TEXT, WORDS)


@given(TEXT)
def test_parsers_of_text(text: str) -> None:
    parse_cgroup(text)
    parse_if_inet6(text)
    loaded_nccl(text)
    cpu_identity(text)
    memory_bytes(text)
    count_list(text)
    memlock_bytes(f"Max locked memory {text}")
    sysfs_address(text)
    assert bus_id(bus_id(text)) == bus_id(text)


@given(st.binary(max_size=2000))
def test_nccl_conf_of_any_bytes(data: bytes) -> None:
    for name, value in parse_nccl_conf(data).items():
        assert name
        assert "=" not in name
        assert len(value) <= 1023


@settings(max_examples=50)
@given(st.binary(max_size=400), st.booleans())
def test_a_library_of_any_bytes(data: bytes, elf: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "libnccl.so.2"
        path.write_bytes((b"\x7fELF\x02\x01" if elf else b"") + data)
        assert nccl_version(str(path)) is None


FILES = (
    "proc/cpuinfo", "proc/meminfo", "proc/version", "proc/cmdline", "proc/self/limits", "proc/self/status", "proc/self/cgroup",
    "proc/self/mountinfo", "proc/net/if_inet6", "proc/driver/nvidia/version", "proc/driver/nvidia/params", "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_period_us",
    "sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/devices/system/cpu/online", "sys/devices/system/node/online", "sys/hypervisor/type",
    "sys/class/dmi/id/sys_vendor", "run/systemd/container", "sys/class/iommu/x/y", "etc/ld.so.cache",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=80), WORDS.map(str.encode)), min_size=len(FILES), max_size=len(FILES)))
def test_a_tree_of_any_bytes(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trees.write(root, dict(zip(FILES, contents, strict=True)))
        found = read_surroundings(root=root, environment={})
        assert set(unexplained(found)) <= {"$.iommu", "$.acs"}
        assert not list(not_finite(found))
        assert container(root, {})
        virtual_machine(root)
        driver_flavour(root)
        kernel_module_version(root)
        limits = cgroup_limits(root)
        assert limits.memory_bytes is None or limits.memory_bytes > -1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=600), WORDS, WORDS)
def test_pci_files_of_any_bytes(config: bytes, speed: str, width: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = dict.fromkeys(("current_link_speed", "max_link_speed", "class", "vendor", "numa_node"), speed)
        widths = dict.fromkeys(("current_link_width", "max_link_width", "local_cpulist"), width)
        trees.pci_device(root, ("0000:00:01.0",), config=config, **files, **widths)
        device = trees.pci_device(root, ("0000:00:01.0", "0000:01:00.0"), config=config, **files, **widths)
        trees.write(device, {"iommu_group/type": speed})
        path = pcie_path("0000:01:00.0", root)
        assert len(path.hops) == 2
        assert not list(unexplained(path))
        for hop in path.hops:
            assert hop.link.width is None or hop.link.width > 0
        numa("0000:01:00.0", root)
        iommu_mode(["0000:01:00.0"], root)
        pci_gpus(root)


@given(TEXT)
def test_any_list_of_visible_devices(listed: str) -> None:
    gpus = [Gpu(index=index, name="NVIDIA H200", uuid=f"GPU-{index}abc", pci_bus_id=f"00000000:0{index}:00.0") for index in range(3)]
    found = cuda_ordinals(gpus, {"CUDA_VISIBLE_DEVICES": listed})
    numbers = sorted(value for value in found.values() if isinstance(value, int))
    assert numbers == list(range(len(numbers)))
    assert set(found) == {0, 1, 2}


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_any_mask(mask: int) -> None:
    assert len(event_reasons(mask)) == mask.bit_count()
    fabric_troubles(mask)


@given(
    TEXT,
    st.sampled_from(
        ["10.1.2.3", "203.0.113.77", "2001:db8::17", "GPU-3fa85f64-5717-4562-b3fc-2c963f66afa6", "/home/bob/x.py", "a@b.example.com"]
    ),
)
def test_no_text_around_a_secret_lets_it_through(text: str, secret: str) -> None:
    found = Redactor().text(f"{text} {secret} {text}")
    assert f" {secret} " not in found


@pytest.mark.parametrize("text", ["٣-٤", "0-999999999", "1-0", "-", ",", "0,,1", "0-", None, "0-3,8"])
def test_lists_of_cpus(text: str | None) -> None:
    assert count_list(text) == (5 if text == "0-3,8" else None)

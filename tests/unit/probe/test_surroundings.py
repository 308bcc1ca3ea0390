from __future__ import annotations

from pathlib import Path

import pytest

import linux_trees as trees
from wiretax.model.reading import unexplained
from wiretax.probe.surroundings import (
    GVISOR_KERNEL,
    cloud,
    container,
    cpu_identity,
    memlock_bytes,
    memory_bytes,
    read_surroundings,
    virtual_machine,
)

VM_FLAGS = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"
METAL_FLAGS = "processor\t: 0\nflags\t\t: fpu vme lahf_lm\n"


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({}, {}, "none"),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": "engine=podman"}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, {}, "kubernetes"),
        ({".singularity.d/actions/run": ""}, {}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/images/a.sif"}, "apptainer"),
        ({}, {"APPTAINER_CONTAINER": "/images/a.sif"}, "apptainer"),
        ({"proc/self/mountinfo": "1 0 0:30 /enroot/pytorch / rw - overlay overlay rw\n"}, {}, "enroot"),
        ({"run/systemd/container": "lxc\n"}, {}, "lxc"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"proc/self/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubernetes"),
        ({"proc/1/cgroup": "5:memory:/docker/abc\n"}, {}, "docker"),
        ({"proc/self/cgroup": "0::/machine.slice/libpod-abc.scope\n"}, {}, "podman"),
        ({"proc/self/cgroup": "3:cpu:/lxc/web\n"}, {}, "lxc"),
        ({"proc/version": f"Linux version {GVISOR_KERNEL}\n", ".dockerenv": ""}, {}, "gvisor"),
    ],
)
def test_the_container_is_told_by_its_most_specific_sign(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    trees.write(tmp_path, dict(files))
    assert container(tmp_path, environment) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/cpuinfo": METAL_FLAGS}, "none"),
        ({"proc/cpuinfo": METAL_FLAGS, "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "none"),  # their bare-metal machines
        ({"proc/cpuinfo": VM_FLAGS, "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"proc/cpuinfo": VM_FLAGS, "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "kvm"),
        ({"proc/cpuinfo": VM_FLAGS, "sys/class/dmi/id/sys_vendor": "VMware, Inc.\n"}, "vmware"),
        (
            {
                "proc/cpuinfo": VM_FLAGS,
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                "sys/class/dmi/id/product_name": "Virtual Machine\n",
            },
            "hyperv",
        ),
        ({"proc/cpuinfo": VM_FLAGS, "sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": VM_FLAGS, "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock \n"}, "kvm"),
        ({"proc/cpuinfo": VM_FLAGS}, "unknown"),
        ({"proc/cpuinfo": VM_FLAGS, "sys/firmware/acpi/tables/APIC": b"APICH\0\0\0\6VFIRECKFCVM"}, "firecracker"),
        ({"proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@1) #1 SMP\n", "proc/cpuinfo": VM_FLAGS}, "wsl2"),
        ({"proc/version": f"Linux version {GVISOR_KERNEL}\n"}, "gvisor"),
        ({"proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\n", "sys/class/dmi/id/sys_vendor": "Supermicro\n"}, "none"),
        ({"proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\n", "sys/class/dmi/id/product_name": "KVM Virtual Machine\n"}, "kvm"),
        ({"proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\n"}, None),
    ],
)
def test_the_hypervisor_is_told_from_cpu_flags_and_firmware(tmp_path: Path, files: dict[str, str | bytes], expected: str | None) -> None:
    trees.write(tmp_path, files)
    found, reason = virtual_machine(tmp_path)
    assert found == expected
    assert bool(reason) == (expected is None)


@pytest.mark.parametrize(
    ("dmi", "environment", "expected"),
    [
        ({}, {}, None),
        ({}, {"RUNPOD_POD_ID": "abc"}, "runpod"),
        ({}, {"VAST_CONTAINERLABEL": "C.123"}, "vast.ai"),
        ({"sys_vendor": "Amazon EC2"}, {}, "aws"),
        ({"product_name": "Google Compute Engine"}, {}, "gcp"),
        ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, {}, "azure"),
        ({"sys_vendor": "Microsoft Corporation"}, {}, None),
        ({"chassis_asset_tag": "OracleCloud.com"}, {}, "oracle"),
        ({"sys_vendor": "Amazon EC2"}, {"RUNPOD_POD_ID": "abc"}, "runpod"),
        ({"sys_vendor": "Supermicro"}, {}, None),
    ],
)
def test_the_cloud_is_named_by_what_it_sets_or_by_the_firmware(
    tmp_path: Path, dmi: dict[str, str], environment: dict[str, str], expected: str | None
) -> None:
    trees.write(tmp_path, {f"sys/class/dmi/id/{name}": f"{value}\n" for name, value in dmi.items()})
    assert cloud(tmp_path, environment) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Max locked memory         8388608              8388608              bytes     \n", (8388608, "")),
        ("Max locked memory         unlimited            unlimited            bytes     \n", (None, "unlimited")),
        ("Max locked memory         many                 many                 bytes     \n", (None, "unreadable: 'many'")),
        ("", (None, "not in /proc/self/limits")),
        (None, (None, "not in /proc/self/limits")),
    ],
)
def test_an_unlimited_locked_memory_is_null_with_the_reason_unlimited(line: str | None, expected: tuple[int | None, str]) -> None:
    assert memlock_bytes(line) == expected


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)\n", ("Intel(R) Xeon(R)", "intel")),
        ("vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7502\n", ("AMD EPYC 7502", "amd")),
        ("vendor_id\t:   Shanghai  \nmodel name\t: ZHAOXIN KaiSheng\n", ("ZHAOXIN KaiSheng", "zhaoxin")),
        ("vendor_id\t: HygonGenuine\n", (None, "hygon")),
        ("vendor_id\t: SomebodyElse\n", (None, "somebodyelse")),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", (None, "arm")),
        ("cpu\t\t: POWER9, altivec supported\n", ("POWER9, altivec supported", "ibm")),
        ("", (None, None)),
        (None, (None, None)),
    ],
)
def test_model_and_vendor_of_the_cpu(cpuinfo: str | None, expected: tuple[str | None, str | None]) -> None:
    assert cpu_identity(cpuinfo) == expected


@pytest.mark.parametrize(("meminfo", "expected"), [("MemTotal:   2000 kB\nMemFree: 1 kB\n", 2_048_000), ("", None), (None, None)])
def test_memory_is_in_bytes(meminfo: str | None, expected: int | None) -> None:
    assert memory_bytes(meminfo) == expected


def test_a_whole_tree_is_read_and_every_null_has_a_reason(tmp_path: Path) -> None:
    trees.write(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7502\nflags\t: fpu\n",
            "proc/meminfo": "MemTotal: 1000 kB\n",
            "proc/self/limits": "Max locked memory 65536 65536 bytes\n",
            "proc/self/status": "Cpus_allowed_list:\t0-3,8-11\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": "8000000\n",
            "sys/devices/system/cpu/online": "0-63\n",
            "sys/devices/system/node/online": "0-1\n",
            "proc/net/if_inet6": "fe80000000000000020000fffe000001 02 40 20 80     eth0\n",
        },
    )
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = read_surroundings(root=tmp_path, environment={"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,2"})
    assert (found.container, found.virtual_machine, found.scheduler) == ("none", "none", "slurm")
    assert (found.cpu_model, found.cpu_vendor, found.cpus_total, found.cpus_usable, found.numa_nodes) == ("AMD EPYC 7502", "amd", 64, 2, 2)
    assert (found.memory_bytes, found.memory_limit_bytes, found.memlock_bytes) == (1_024_000, 8_000_000, 65536)
    assert found.cuda_visible_devices == "0,2"
    assert found.network_interfaces == {"eth0": "fe80::200:ff:fe00:1/64"}
    assert found.dev_shm_bytes is not None and found.dev_shm_bytes >= (found.dev_shm_free_bytes or 0) > 0
    assert set(unexplained(found)) == {"$.iommu", "$.acs"}  # these hang on the GPUs; inspect_machine adds them


def test_an_empty_tree_gives_nulls_with_reasons_and_no_exception(tmp_path: Path) -> None:
    found = read_surroundings(root=tmp_path, environment={})
    assert (found.dev_shm_bytes, found.memory_bytes, found.cpus_usable, found.cloud) == (None, None, None, None)
    assert found.missing["dev_shm_bytes"] == "there is no /dev/shm"
    assert found.missing["cuda_visible_devices"] == "not set: all GPUs are visible"
    assert set(unexplained(found)) == {"$.iommu", "$.acs"}


def test_more_allowed_cpus_than_exist_are_not_usable(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t0-127\n", "sys/devices/system/cpu/online": "0-15\n"})
    assert read_surroundings(root=tmp_path, environment={}).cpus_usable == 16


def test_this_machine_itself_is_read() -> None:
    found = read_surroundings()
    assert found.cpus_usable and found.cpus_total and found.cpus_usable <= found.cpus_total
    assert found.network_interfaces.get("lo") == "127.0.0.1/8"

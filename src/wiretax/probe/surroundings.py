"""What the process is locked in: container, virtual machine, limits, scheduler, cloud, CPUs, interfaces. No network, no rights."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wiretax.model.machine import Surroundings
from wiretax.probe.cgroup import cgroup_limits
from wiretax.probe.files import as_text, count_list, read_bytes, read_text, read_word
from wiretax.probe.interfaces import network_interfaces
from wiretax.probe.sysfs import numa_nodes

GVISOR_KERNEL = "4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"
"""The kernel version that every gVisor sandbox reports (gVisor documentation, ``/proc/version``)."""

_CGROUP_CONTAINERS = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("containerd", "containerd"), ("/lxc", "lxc"))
_HYPERVISORS = (
    # word in a DMI field, in lower case, and what it means
    ("firecracker", "firecracker"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("parallels", "parallels"),
    ("xen", "xen"),
    ("microsoft corporation virtual machine", "hyperv"),
    ("bochs", "kvm"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("openstack", "kvm"),
    ("google compute engine", "kvm"),
    ("amazon ec2", "kvm"),
    ("digitalocean", "kvm"),
    ("alibaba cloud ecs", "kvm"),
)
_CLOCKS = (("kvm-clock", "kvm"), ("hyperv", "hyperv"), ("xen", "xen"), ("vmware", "vmware"))
_DMI_FIELDS = ("sys_vendor", "product_name", "board_vendor", "bios_vendor", "chassis_asset_tag", "product_family")
_CLOUD_VARIABLES = (
    ("RUNPOD_POD_ID", "runpod"),
    ("VAST_CONTAINERLABEL", "vast.ai"),
    ("VAST_TCP_PORT_22", "vast.ai"),
    ("COLAB_RELEASE_TAG", "google colab"),
    ("KAGGLE_KERNEL_RUN_TYPE", "kaggle"),
    ("MODAL_TASK_ID", "modal"),
    ("SM_CURRENT_HOST", "aws sagemaker"),
    ("SAGEMAKER_INTERNAL_IMAGE_URI", "aws sagemaker"),
    ("PAPERSPACE_NOTEBOOK_ID", "paperspace"),
    ("LIGHTNING_CLOUD_PROJECT_ID", "lightning"),
)
_CLOUD_DMI = (
    ("amazon ec2", "aws"),
    ("google compute engine", "gcp"),
    ("7783-7084-3265-9085-8269-3286-77", "azure"),  # the chassis tag of every Azure virtual machine
    ("oraclecloud.com", "oracle"),
    ("alibaba cloud", "alibaba"),
    ("digitalocean", "digitalocean"),
    ("hetzner", "hetzner"),
    ("scaleway", "scaleway"),
    ("linode", "linode"),
    ("vultr", "vultr"),
    ("nebius", "nebius"),
    ("crusoe", "crusoe"),
    ("lambda labs", "lambda"),
    ("huawei cloud", "huawei"),
    ("tencent cloud", "tencent"),
    ("openstack", "openstack"),
)
_SCHEDULER_VARIABLES = (
    ("SLURM_JOB_ID", "slurm"),
    ("RAY_JOB_ID", "ray"),
    ("RAY_ADDRESS", "ray"),
    ("LSB_JOBID", "lsf"),
    ("PBS_JOBID", "pbs"),
    ("FLUX_JOB_ID", "flux"),
    ("COBALT_JOBID", "cobalt"),
    ("_CONDOR_SLOT", "htcondor"),
    ("SGE_TASK_ID", "sge"),
    ("SKYPILOT_TASK_ID", "skypilot"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
_CPU_VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "hygon",
    "CentaurHauls": "zhaoxin",
    "Shanghai": "zhaoxin",
}


def read_surroundings(*, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Surroundings:
    """Everything but ``iommu`` and ``acs``, which hang on the GPUs (they are left None without a reason).

    Args:
        root: where ``/proc``, ``/sys``, ``/dev`` and ``/run`` are.
        environment: of the process.
    """
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def note(name: str, value: Any, reason: str) -> None:
        if value is None:
            missing[name] = reason
        else:
            values[name] = value

    note("container", as_text(container(root, environment)), "")
    machine, reason = virtual_machine(root)
    note("virtual_machine", machine, reason)
    size, free = _dev_shm(root)
    note("dev_shm_bytes", size, "there is no /dev/shm")
    note("dev_shm_free_bytes", free, "there is no /dev/shm")
    memlock, reason = memlock_bytes(read_text(root / "proc/self/limits"))
    note("memlock_bytes", memlock, reason)
    note("scheduler", next((name for key, name in _SCHEDULER_VARIABLES if environment.get(key)), "none"), "")
    note("cloud", cloud(root, environment), "neither the environment nor the firmware's tables name one")
    model, vendor = cpu_identity(read_text(root / "proc/cpuinfo"))
    note("cpu_model", model, "not in /proc/cpuinfo")
    note("cpu_vendor", vendor, "not in /proc/cpuinfo")
    limits = cgroup_limits(root)
    total = count_list(read_word(root / "sys/devices/system/cpu/online")) or _listed_cpus(root)
    note("cpus_total", total, "Linux lists no CPUs in /sys or /proc")
    note("cpus_usable", _usable(root, limits.cpus, total), "Linux does not say which CPUs this process may use")
    note("numa_nodes", numa_nodes(root), "no /sys/devices/system/node/online")
    note("memory_bytes", memory_bytes(read_text(root / "proc/meminfo")), "not in /proc/meminfo")
    note("memory_limit_bytes", limits.memory_bytes, limits.memory_reason)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    note("cuda_visible_devices", None if visible is None else as_text(visible), "not set: all GPUs are visible")
    note("user_is_root", os.geteuid() == 0, "")
    return Surroundings(network_interfaces=network_interfaces(root), missing=missing, **values)


def container(root: Path, environment: Mapping[str, str]) -> str:
    """The kind of container this process runs in, or ``none``. The most specific sign wins."""
    if GVISOR_KERNEL in (read_text(root / "proc/version") or ""):
        return "gvisor"
    if environment.get("KUBERNETES_SERVICE_HOST") or (root / "var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    if environment.get("APPTAINER_CONTAINER") or environment.get("SINGULARITY_CONTAINER") or (root / ".singularity.d").exists():
        return "apptainer"
    mounts = read_text(root / "proc/self/mountinfo") or ""
    top = next((line for line in mounts.splitlines() if len(line.split()) > 4 and line.split()[4] == "/"), "")
    if "/enroot" in top or any(name.startswith("ENROOT_") for name in environment):
        return "enroot"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    named = read_word(root / "run/systemd/container") or environment.get("container")
    if named:
        return re.sub(r"[^a-z0-9_.-]", "", named.lower())[:32] or "unknown"
    groups = (read_text(root / "proc/self/cgroup") or "") + (read_text(root / "proc/1/cgroup") or "")
    return next((name for sign, name in _CGROUP_CONTAINERS if sign in groups), "none")


def virtual_machine(root: Path) -> tuple[str | None, str]:
    """The hypervisor below this Linux, or ``none``; None with the reason when nothing tells."""
    version = read_text(root / "proc/version") or ""
    if GVISOR_KERNEL in version:
        return "gvisor", ""
    if re.search("microsoft-standard|wsl2", version.lower()):
        return "wsl2", ""
    # The first 16 bytes of an ACPI table hold its maker; root alone may read them.
    if (read_bytes(root / "sys/firmware/acpi/tables/APIC", 16) or b"")[10:16] == b"FIRECK":
        return "firecracker", ""
    flags = re.search(r"^flags\s*:.*$", read_text(root / "proc/cpuinfo") or "", re.MULTILINE)
    if flags and " hypervisor" not in flags.group():
        return "none", ""  # also where the firmware names a cloud: their bare-metal machines do
    dmi = _dmi(root)
    named = next((name for word, name in _HYPERVISORS if word in dmi), None) or read_word(root / "sys/hypervisor/type")
    if named:
        return named.lower(), ""
    if flags:
        clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
        return next((name for word, name in _CLOCKS if word in clocks), "unknown"), ""
    if dmi:
        return "none", ""
    return None, "neither /proc/cpuinfo nor the firmware's tables tell"


def cloud(root: Path, environment: Mapping[str, str]) -> str | None:
    """The provider's name, from the environment it sets and the tables its firmware has; None when neither names one."""
    by_environment = next((name for key, name in _CLOUD_VARIABLES if environment.get(key)), None)
    dmi = _dmi(root)
    return by_environment or next((name for word, name in _CLOUD_DMI if word in dmi), None)


def memlock_bytes(limits: str | None) -> tuple[int | None, str]:
    """The soft limit of locked memory from ``/proc/self/limits``; None with ``unlimited`` where there is none."""
    match = re.search(r"^Max locked memory\s+(\S+)", limits or "", re.MULTILINE)
    if match is None:
        return None, "not in /proc/self/limits"
    word = match.group(1)
    if word == "unlimited":
        return None, "unlimited"
    return (int(word), "") if re.fullmatch(r"[0-9]{1,18}", word) else (None, f"unreadable: {word[:20]!r}")


def cpu_identity(cpuinfo: str | None) -> tuple[str | None, str | None]:
    """Model and vendor from ``/proc/cpuinfo``; ARM writes numbers instead of names, POWER its own fields."""
    text = cpuinfo or ""
    model = _field(text, "model name") or _field(text, "Model Name")
    vendor_id = _field(text, "vendor_id")
    if vendor_id:
        return model, _CPU_VENDORS.get(vendor_id, vendor_id.lower()[:32])
    if _field(text, "CPU implementer"):
        return model, "arm"
    power = _field(text, "cpu")
    if power and power.startswith("POWER"):
        return model or power, "ibm"
    return model, None


def memory_bytes(meminfo: str | None) -> int | None:
    """``MemTotal`` of ``/proc/meminfo``."""
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", meminfo or "", re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _dmi(root: Path) -> str:
    words = (read_word(root / "sys/class/dmi/id" / field) for field in _DMI_FIELDS)
    return " ".join(word.lower() for word in words if word)


def _dev_shm(root: Path) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _listed_cpus(root: Path) -> int | None:
    return len(re.findall(r"^processor\s*:", read_text(root / "proc/cpuinfo") or "", re.MULTILINE)) or None


def _usable(root: Path, quota: float | None, total: int | None) -> int | None:
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", read_text(root / "proc/self/status") or "", re.MULTILINE)
    count = count_list(allowed.group(1) if allowed else None)
    if count is None:
        return None
    if total is not None:
        count = min(count, total)  # the list may name CPUs that are not there
    return count if quota is None else max(1, min(count, int(quota)))

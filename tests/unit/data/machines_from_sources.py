"""Builds the machines that ship with wiretax from what was recorded or published, so that each fact can be traced.

``python tests/unit/data/machines_from_sources.py`` writes them; a test compares the shipped files with what this file builds.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from wiretax.model.machine import Gpu, GpuPair, Machine, NcclLibrary, NvLink, P2pStatus, PcieLink, Software, Surroundings

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDING = REPOSITORY / "tests" / "data" / "h200x2"
SHIPPED = REPOSITORY / "src" / "wiretax" / "data" / "machines"
MIB = 2**20


def build_all() -> dict[str, Machine]:
    """Name to machine."""
    machines = (h200x2, rtx4090x4, rtx5090x2_sys, h100x8_sxm, a100_pcie_bridged, a100_mig, gpu_lost, no_gpu)
    return {build.__name__.replace("_", "-"): build() for build in machines}


def because(value: Any, reason: str) -> Any:
    """The value with this reason beside every unexplained None in it."""
    changes: dict[str, Any] = {}
    missing = dict(getattr(value, "missing", {}))
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if inner is None and field.name not in getattr(value, "none_is_an_answer", ()):
            missing.setdefault(field.name, reason)
        elif dataclasses.is_dataclass(inner):
            changes[field.name] = because(inner, reason)
        elif isinstance(inner, tuple) and inner and dataclasses.is_dataclass(inner[0]):
            changes[field.name] = tuple(because(one, reason) for one in inner)
    if hasattr(value, "missing"):
        changes["missing"] = missing
    return dataclasses.replace(value, **changes)


def constructed(note: str, gpus: tuple[Gpu, ...], pairs: tuple[GpuPair, ...], **others: Any) -> Machine:
    """A machine of published facts; everything else is missing because the text does not say it."""
    gpus = tuple(
        dataclasses.replace(gpu, missing={"pcie_path": "not in the published text", "nvlinks": "not in the published text", **gpu.missing})
        for gpu in gpus
    )
    machine = Machine(origin="constructed", origin_note=note, gpus=gpus, pairs=pairs, **{"driver_state": "ok", **others})
    return because(machine, "not in the published text")


def matrix(paths: list[list[str]], **shared: Any) -> tuple[GpuPair, ...]:
    """All ordered pairs of a ``topo -m`` matrix."""
    return tuple(
        GpuPair(source_gpu=source, target_gpu=target, path=path, **shared)
        for source, row in enumerate(paths)
        for target, path in enumerate(row)
        if source != target
    )


def h200x2() -> Machine:
    """Read from the recorded output of nvidia-smi and lscpu."""
    text = (RECORDING / "nvidia_smi_q.txt").read_text()
    host = (RECORDING / "host_and_nvidia_smi.txt").read_text()
    sections = re.split(r"^GPU (?=[0-9A-F]{8}:)", text, flags=re.MULTILINE)
    gpus = tuple(_recorded_gpu(index, section, host) for index, section in enumerate(sections[1:]))
    p2p = P2pStatus(read="OK", write="OK", nvlink="OK", atomics="OK", pci="NS")
    machine = Machine(
        origin="recorded",
        origin_note="two H200 of one virtual machine, recorded 2026-11-30 with nvidia-smi, lscpu and NCCL; serials and UUIDs replaced",
        gpus=gpus,
        pairs=matrix([["X", "NV18"], ["NV18", "X"]], p2p=p2p, peer_access=True),
        software=Software(
            driver=_first(r"Driver Version\s+: (\S+)", text),
            cuda=_first(r"CUDA Version\s+: (\S+)", text),
            torch="2.11.0+cu130",
            torch_cuda="13.0",
            python="3.12",
            kernel=_first(r"^Linux vm (\S+)", host),
            nccl_loaded=NcclLibrary(path="libnccl.so.2", version="2.28.9"),
            nccl_environment={
                "NCCL_NVLS_ENABLE": _first(r"^NCCL_NVLS_ENABLE=(.*)$", host),
                "NCCL_VERSION": _first(r"^NCCL_VERSION=(.*)$", host),
            },
        ),
        surroundings=Surroundings(
            virtual_machine="kvm",
            dev_shm_bytes=int(_first(r"^tmpfs\s+(\d+)G", host)) * 2**30,
            dev_shm_free_bytes=int(_first(r"^tmpfs\s+\d+G\s+0\s+(\d+)G", host)) * 2**30,
            cpu_model=_first(r"^Model name:\s+(.*)$", host),
            cpu_vendor="intel",
            cpus_total=int(_first(r"^CPU\(s\):\s+(\d+)", host)),
            numa_nodes=int(_first(r"^NUMA node\(s\):\s+(\d+)", host)),
            memory_bytes=int(_first(r"^Mem:\s+(\d+)", host)) * 2**30,
        ),
        driver_state="ok",
        missing={"hostname": "left out of the recording"},
    )
    return because(machine, "not in the recording")


def _recorded_gpu(index: int, section: str, host: str) -> Gpu:
    def value(key: str, after: str = "") -> str:
        part = section[section.index(after) :] if after else section
        return _first(rf"^\s+{re.escape(key)}\s+: (.*)$", part)

    links = tuple(
        NvLink(index=int(number), active=True, bandwidth_bytes_per_second=float(rate) * 1e9)
        for number, rate in re.findall(
            r"Link (\d+): ([\d.]+) GB/s", host.split(f"GPU {index}: NVIDIA H200")[2].split("GPU ", maxsplit=1)[0]
        )
    )
    return Gpu(
        index=index,
        name=value("Product Name"),
        uuid=value("GPU UUID"),
        pci_bus_id=section.split(None, 1)[0],
        memory_bytes=int(value("Total", "FB Memory Usage").split()[0]) * MIB,
        memory_used_bytes=int(value("Used", "FB Memory Usage").split()[0]) * MIB,
        pcie=PcieLink(
            generation=int(value("Current", "PCIe Generation")),
            width=int(value("Current", "Link Width").rstrip("x")),
            max_generation=int(value("Max", "PCIe Generation")),
            max_width=int(value("Max", "Link Width").rstrip("x")),
        ),
        nvlinks_active=len(links),
        nvlinks=links,
        numa_node=0,
        cpu_affinity="0-31",
        mig="disabled" if value("Current", "MIG Mode") == "Disabled" else "enabled",
        compute_capability="9.0",
        cuda_ordinal=index,
        power_limit_watts=float(value("Current Power Limit").split()[0]),
        power_watts=float(value("Average Power Draw", "GPU Power Readings").split()[0]),
        temperature_celsius=float(value("GPU Current Temp").split()[0]),
        sm_clock_mhz=int(value("SM", "    Clocks\n").split()[0]),
        max_sm_clock_mhz=int(value("SM", "Max Clocks").split()[0]),
        throttle_reasons=("gpu_idle",) if value("Idle", "Clocks Event Reasons") == "Active" else (),
        ecc_uncorrected_errors=int(value("DRAM Uncorrectable", "Volatile")) + int(value("SRAM Uncorrectable SEC-DED", "Volatile")),
        fabric_state=value("State", "    Fabric\n").lower(),
        fabric_status=value("Status", "    Fabric\n").lower(),
        display_attached=value("Display Attached") == "Yes",
        other_processes=0,
        utilization_fraction=int(value("GPU", "    Utilization\n").split()[0]) / 100,
        missing={"pcie_path": "not in the recording"},
    )


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, pattern
    return match.group(1).strip()


def rtx4090x4() -> Machine:
    """The rented box of the article."""
    return constructed(
        "built from https://cortwave.github.io/posts/multi-gpu: matrix, four RTX 4090, NCCL's P2P line, peer access refused for "
        "all pairs (asked on a second provider's box of the same kind); the code CNS as `nvidia-smi topo -p2p rw` prints it on "
        "another published 4x4090 (https://github.com/smolix/d2l-neu); memory from the model's data",
        tuple(Gpu(index=index, name="NVIDIA GeForce RTX 4090", memory_bytes=24564 * MIB, compute_capability="8.9") for index in range(4)),
        matrix(
            [["X", "PHB", "SYS", "SYS"], ["PHB", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "PHB"], ["SYS", "SYS", "PHB", "X"]],
            p2p=P2pStatus(read="CNS", write="CNS"),
            peer_access=False,
        ),
        surroundings=Surroundings(cloud="vast.ai"),
    )


def rtx5090x2_sys() -> Machine:
    """Two cards on two sockets."""
    return constructed(
        'built from the summary of "Why Two GPUs Aren\'t Twice as Fast" (2026-07-19): two RTX 5090 on vast.ai joined by SYS; the '
        "code GNS as `nvidia-smi topo -p2p rw` prints it on published boxes of two 5090 "
        "(https://github.com/noonghunna/club-3090/issues/1130); memory from the model's data",
        tuple(Gpu(index=index, name="NVIDIA GeForce RTX 5090", memory_bytes=32607 * MIB, compute_capability="12.0") for index in range(2)),
        matrix([["X", "SYS"], ["SYS", "X"]], p2p=P2pStatus(read="GNS", write="GNS")),
        surroundings=Surroundings(cloud="vast.ai"),
    )


def h100x8_sxm() -> Machine:
    """Eight GPUs behind NVSwitches."""
    return constructed(
        "built from https://github.com/NVIDIA/nccl/issues/1264: `nvidia-smi topo -m` of an HGX H100 with its CPU and NUMA "
        "columns; 18 links a GPU follow from NV18; memory from the model's data",
        tuple(
            Gpu(
                index=index,
                name="NVIDIA H100 80GB HBM3",
                memory_bytes=81559 * MIB,
                compute_capability="9.0",
                nvlinks_active=18,
                numa_node=index // 4,
                cpu_affinity="0-55,112-167" if index < 4 else "56-111,168-223",
            )
            for index in range(8)
        ),
        matrix([["X" if row == column else "NV18" for column in range(8)] for row in range(8)]),
        surroundings=Surroundings(cpus_total=224, numa_nodes=2),
    )


def a100_pcie_bridged() -> Machine:
    """Two pairs of cards, each pair joined by bridges, the pairs joined by the sockets."""
    cpus = ("0-23", "24-47", "48-71", "72-95")
    return constructed(
        "built from published notes on Azure Standard_NC96ads_A100_v4 (https://github.com/malaysia-ai, `nvidia-smi topo -m`, GPU "
        "names printed by nccl-tests, 96 vCPU, 880 GB, /dev/shm of 64 MB in Kubernetes); memory of the cards from the model's "
        "data",
        tuple(
            Gpu(
                index=index,
                name="NVIDIA A100 80GB PCIe",
                memory_bytes=81920 * MIB,
                compute_capability="8.0",
                nvlinks_active=12,
                numa_node=index,
                cpu_affinity=cpus[index],
            )
            for index in range(4)
        ),
        matrix([["X", "NV12", "SYS", "SYS"], ["NV12", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "NV12"], ["SYS", "SYS", "NV12", "X"]]),
        surroundings=Surroundings(
            container="kubernetes",
            scheduler="kubernetes",
            cloud="azure",
            virtual_machine="hyperv",
            dev_shm_bytes=64 * MIB,
            cpus_total=96,
            numa_nodes=4,
            memory_bytes=880 * 10**9,
        ),
    )


def a100_mig() -> Machine:
    """Eight GPUs, the first cut into seven slices."""
    gpus = tuple(
        Gpu(
            index=index,
            name="NVIDIA A100-SXM4-40GB",
            memory_bytes=40960 * MIB,
            compute_capability="8.0",
            mig="enabled" if index == 0 else "disabled",
            missing={"nvlinks_active": "nvidia-smi: Nvlink queries are not supported for Devices in MIG mode"} if index == 0 else {},
        )
        for index in range(8)
    )
    pairs = tuple(
        GpuPair(source_gpu=source, target_gpu=target, peer_access=False if 0 in (source, target) else None)
        for source in range(8)
        for target in range(8)
        if source != target
    )
    return constructed(
        "built from https://github.com/rapidsai/dask-cuda/issues/583: an AWS machine of eight A100, MIG on GPU 0 cut into seven "
        "instances of 5 GB (so the 40 GB model); no peer access with MIG by NCCL's maintainers "
        "(https://github.com/NVIDIA/nccl/issues/1716)",
        gpus,
        pairs,
        surroundings=Surroundings(cloud="aws"),
    )


def gpu_lost() -> Machine:
    """Four cards, one fallen off the bus."""
    gpus = tuple(
        Gpu(index=index, name="NVIDIA GeForce RTX 2080 Ti", memory_bytes=11264 * MIB, compute_capability="7.5")
        if index != 1
        else because(
            Gpu(
                index=1,
                pci_bus_id="00000000:0B:00.0",
                status="lost",
                status_reason="nvidia-smi: Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error (fallen off the bus)",
            ),
            "the GPU is lost",
        )
        for index in range(4)
    )
    pairs = tuple(
        because(GpuPair(source_gpu=source, target_gpu=target), "GPU 1 is lost" if 1 in (source, target) else "not in the published text")
        for source in range(4)
        for target in range(4)
        if source != target
    )
    return constructed(
        "built from https://github.com/NVIDIA/open-gpu-kernel-modules/issues/387: four RTX 2080 Ti, driver 520.61.05, GPU 1 falls "
        "off the bus under load; memory of the others from the model's data",
        gpus,
        pairs,
        software=Software(driver="520.61.05", kernel="5.3.18-lp152.106-default"),
    )


def no_gpu() -> Machine:
    """A computer without any GPU, for demonstrations and tests."""
    reason = "libnvidia-ml.so.1 is not on this system: no NVIDIA driver."
    machine = Machine(
        origin="constructed",
        origin_note="built by hand: what wiretax itself reports on a Linux computer without a GPU or driver",
        software=Software(nccl_found=(), missing={"driver": reason, "cuda": reason}),
        driver_state="absent",
        driver_detail=reason,
    )
    return because(machine, "an example, not a real computer")


def main() -> None:
    """Writes the files."""
    from wiretax.store.codec import encode

    SHIPPED.mkdir(parents=True, exist_ok=True)
    for name, machine in build_all().items():
        (SHIPPED / f"{name}.json").write_bytes(encode(machine))


if __name__ == "__main__":
    main()

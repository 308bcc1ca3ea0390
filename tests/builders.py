"""Parts of run documents for tests; whole ones are in ``sample_runs``.

Figures are those of a real machine where one was recorded; the raw samples around a median are made here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from wiretax.model.forecast import Forecast, Interval
from wiretax.model.machine import Gpu, GpuPair, Machine, NcclLibrary, P2pStatus, PcieLink, Software, Surroundings
from wiretax.model.measurement import (
    Collective,
    Compute,
    Copy,
    HostLoad,
    PcieUnderLoad,
    Point,
)
from wiretax.model.run import Outcome, Run, Tool

DATA = Path(__file__).parent / "data"
NOT_READ = "not read"
BUSBW_FACTOR = {"all_reduce": lambda n: 2 * (n - 1) / n, "send_recv": lambda n: 1.0, "broadcast": lambda n: 1.0}


def explained(kind: type, **values: Any) -> Any:
    """An instance whose optional fields left out are None with a reason."""
    reasons = {name: NOT_READ for name in kind.__dataclass_fields__ if name not in values and name not in kind_answers(kind)}
    item = kind(**values)
    missing = {name: reason for name, reason in reasons.items() if getattr(item, name) is None}
    return replace(item, missing={**missing, **item.missing}) if missing else item


def kind_answers(kind: type) -> frozenset[str]:
    return getattr(kind, "none_is_an_answer", frozenset())


def samples(seconds: float, spread: float = 0.01) -> tuple[float, ...]:
    """Eleven times around a median, the same on every call."""
    return tuple(seconds * (1 + spread * (k - 5) / 5) for k in range(11))


def point(num_bytes: int, seconds: float, operation: str, world_size: int, spread: float = 0.01) -> Point:
    algbw = num_bytes / seconds
    factor = BUSBW_FACTOR.get(operation, lambda n: (n - 1) / n)(world_size)
    return Point(
        num_bytes=num_bytes,
        seconds=seconds,
        p95_seconds=seconds * (1 + spread * 0.9),
        algbw_bytes_per_second=algbw,
        busbw_bytes_per_second=algbw * factor,
        samples_seconds=samples(seconds, spread),
        stopped="tight" if spread < 0.03 else "budget",
        unstable=spread > 0.05,
    )


def recorded_collectives() -> tuple[Collective, ...]:
    """The four wires of the recorded H200 pair, eager and graph."""
    wires = json.loads((DATA / "sample_sweeps.json").read_text())["wires"]
    transports = {"default": "P2P/CUMEM", "p2p_off": "SHM/direct", "socket": "NET/Socket", "gloo": "gloo/tcp"}
    found = []
    for wire, operations in wires.items():
        for operation, rows in operations.items():
            for mode, column in (("eager", 1), ("graph", 2)):
                points = tuple(
                    point(row[0], row[column] * 1e-6, operation, 2, {"socket": 0.08, "gloo": 0.03}.get(wire, 0.004))
                    for row in rows
                    if row[column]
                )
                if points:
                    found.append(
                        explained(
                            Collective,
                            backend="gloo" if wire == "gloo" else "nccl",
                            operation=operation,
                            wire=wire,
                            world_size=2,
                            gpus=(0, 1),
                            mode=mode,  # type: ignore[arg-type]
                            transport=transports[wire],
                            verified=True,
                            points=points,
                            host_load=explained(HostLoad, busy_fraction=0.07, steal_fraction=0.0, other_busy_fraction=0.01),
                        )
                    )
    return tuple(found)


def p2p(code: str | None) -> P2pStatus:
    if code is None:
        return explained(P2pStatus)
    return P2pStatus(read=code, write=code, nvlink="NS", atomics=code, pci=code)  # type: ignore[arg-type]


def pairs(paths: list[list[str]], code: str | None) -> tuple[GpuPair, ...]:
    """Ordered pairs from a matrix of topology codes."""
    count = range(len(paths))
    return tuple(
        explained(GpuPair, source_gpu=a, target_gpu=b, path=paths[a][b], p2p=p2p(code), peer_access=None if code is None else code == "OK")
        for a in count
        for b in count
        if a != b
    )


def gpu(index: int, name: str, memory: int, generation: int, **more: Any) -> Gpu:
    link = PcieLink(generation=generation, width=16, max_generation=generation, max_width=16)
    values: dict[str, Any] = {
        "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "memory_bytes": memory,
        "memory_used_bytes": 600_000_000,
        "pcie": link,
        "nvlinks_active": 0,
        "numa_node": 0,
        "mig": "disabled",
        "cuda_ordinal": index,
        "power_watts": 76.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 31.0,
        "other_processes": 0,
        "utilization_fraction": 0.0,
    }
    return explained(Gpu, index=index, name=name, **{**values, **more})


def h200_machine() -> Machine:
    return explained(
        Machine,
        hostname="trainer-7",
        gpus=tuple(gpu(k, "NVIDIA H200", 150_754_820_096, 5, nvlinks_active=18) for k in range(2)),
        pairs=pairs([["X", "NV18"], ["NV18", "X"]], "OK"),
        driver_state="ok",
        software=explained(
            Software,
            driver="580.159.04",
            cuda="13.0",
            torch="2.11.0+cu130",
            torch_cuda="13.0",
            python="3.12.3",
            kernel="6.18.44",
            nccl_found=(NcclLibrary(path="/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", version="2.28.9"),),
            nccl_loaded=NcclLibrary(path="/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", version="2.28.9"),
            nccl_environment={"NCCL_NVLS_ENABLE": "0"},
            driver_flavour="official",
        ),
        surroundings=explained(
            Surroundings,
            container="docker",
            virtual_machine="kvm",
            dev_shm_bytes=135_000_000_000,
            dev_shm_free_bytes=135_000_000_000,
            iommu="off",
            cpu_model="Intel(R) Xeon(R) Processor",
            cpu_vendor="intel",
            cpus_usable=32,
            cpus_total=32,
            numa_nodes=1,
            memory_bytes=270_000_000_000,
            user_is_root=True,
        ),
    )


def copies(bandwidth: dict[tuple[int, int], float], route: str, together: float = 1.0) -> tuple[Copy, ...]:
    found = []
    for (a, b), rate in bandwidth.items():
        for concurrency, factor in (("alone", 1.0), ("all_pairs", together)):
            seconds = 268_435_456 / (rate * factor)
            found.append(
                explained(
                    Copy,
                    source_gpu=a,
                    target_gpu=b,
                    route=route,  # type: ignore[arg-type]
                    direction="one_way",
                    concurrency=concurrency,  # type: ignore[arg-type]
                    num_bytes=268_435_456,
                    bandwidth_bytes_per_second=rate * factor,
                    latency_seconds=9e-6,
                    verified=True,
                    samples_seconds=samples(seconds, 0.004),
                )
            )
    return tuple(found)


def host_copies(count: int, to_gpu: float, from_gpu: float) -> tuple[Copy, ...]:
    def one(source: int | None, target: int | None, rate: float) -> Copy:
        return explained(
            Copy,
            source_gpu=source,
            target_gpu=target,
            route="host",
            direction="one_way",
            num_bytes=268_435_456,
            bandwidth_bytes_per_second=rate,
            latency_seconds=9e-6,
            verified=True,
            samples_seconds=samples(268_435_456 / rate, 0.01),
        )

    return tuple(copy for k in range(count) for copy in (one(None, k, to_gpu), one(k, None, from_gpu)))


def compute(count: int, flops: float, memory: float, generation: int, slow: dict[int, float] | None = None) -> tuple[Compute, ...]:
    """Each GPU alone, then all together; ``slow`` maps a GPU to the factor by which it is slower when all run."""
    found = []
    for together in (False, True):
        for k in range(count):
            factor = (slow or {}).get(k, 1.0) if together else 1.0
            rate = flops * factor * (0.97 if together else 1.0) * (1 + 0.002 * k)
            found.append(
                explained(
                    Compute,
                    gpu=k,
                    rank=k,
                    together=together,
                    matmul_size=8192,
                    matmul_flops_per_second=rate,
                    matmul_samples_seconds=samples(2 * 8192**3 / rate, 0.004),
                    memory_bytes_per_second=memory,
                    memory_samples_seconds=samples(2e9 / memory, 0.002),
                    clocks_mhz=1755.0 * factor,
                    throttle_reasons=("sw_thermal_slowdown",) if factor < 0.95 else (),
                    power_watts=640.0,
                    temperature_celsius=88.0 if factor < 0.95 else 61.0,
                    pcie=PcieUnderLoad(generation=generation, width=16),
                )
            )
    return tuple(found)


def bounds(workload: str, num_gpus: int, wire: str, bare_seconds: float, wire_seconds: float) -> tuple[Forecast, ...]:
    """The two honest bounds of the headline: communication wholly exposed, and hidden as far as it can be."""
    found = []
    for step, assumption in (
        (max(bare_seconds, wire_seconds), "perfect overlap: all communication hides behind the backward pass"),
        (bare_seconds + wire_seconds, "no overlap: the step waits for all communication"),
    ):
        efficiency = bare_seconds / step
        found.append(
            explained(
                Forecast,
                strategy="ddp",
                num_gpus=num_gpus,
                wire=wire,
                workload=workload,
                step_seconds=Interval(low=step * 0.98, expected=step, high=step * 1.02),
                efficiency_fraction=efficiency,
                wire_tax_fraction=1 - efficiency,
                speedup=num_gpus * efficiency,
                assumptions=(assumption,),
            )
        )
    return tuple(found)


def run(machine: Machine | None, command: str = "check", **values: Any) -> Run:
    defaults: dict[str, Any] = {
        "run_id": "20261130T221500-4f2a9c",
        "created_at": "2026-11-30T22:15:00Z",
        "tool": Tool(version="0.1.0"),
        "command": command,
        "outcome": Outcome(status="complete", budget_seconds=60.0, duration_seconds=48.2),
        "machine": machine,
    }
    return Run(**{**defaults, **values})


PATHS_4090 = [["X", "PHB", "SYS", "SYS"], ["PHB", "X", "SYS", "SYS"], ["SYS", "SYS", "X", "PHB"], ["SYS", "SYS", "PHB", "X"]]


def four_4090_machine(origin: str = "live") -> Machine:
    return explained(
        Machine,
        hostname="C.1234",
        origin=origin,
        origin_note="topology and NCCL log of a blog post about a rented 4x RTX 4090" if origin == "constructed" else None,
        gpus=tuple(gpu(k, "NVIDIA GeForce RTX 4090", 25_757_220_864, 4, power_limit_watts=450.0) for k in range(4)),
        pairs=pairs(PATHS_4090, "CNS"),
        driver_state="ok",
        software=explained(
            Software,
            driver="570.86.10",
            cuda="12.8",
            torch="2.13.0+cu128",
            torch_cuda="12.8",
            python="3.11.7",
            nccl_loaded=NcclLibrary(path="/venv/lib/libnccl.so.2", version="2.30.7"),
            driver_flavour="official",
        ),
        surroundings=explained(
            Surroundings,
            container="docker",
            virtual_machine="none",
            dev_shm_bytes=67_108_864,
            dev_shm_free_bytes=67_108_864,
            cpu_model="AMD EPYC 7542 32-Core Processor",
            cpu_vendor="amd",
            cpus_usable=64,
            cpus_total=128,
            numa_nodes=2,
        ),
    )


def staged_collectives() -> tuple[Collective, ...]:
    found = []
    for wire, transport, peak, latency in (
        ("default", "SHM/direct", {2: 4.1e9, 4: 5.9e9}, 14e-6),
        ("socket", "NET/Socket", {4: 2.2e9}, 32e-6),
        ("gloo", "gloo/tcp", {4: 0.9e9}, 460e-6),
    ):
        for operation in ("all_reduce", "all_gather"):
            for world_size, rate in peak.items():
                factor = BUSBW_FACTOR.get(operation, lambda n: (n - 1) / n)(world_size)
                sizes = tuple(8 * 4**k for k in range(13))
                points = tuple(
                    point(n, latency + n * factor / rate, operation, world_size, 0.12 if wire == "socket" else 0.02) for n in sizes
                )
                found.append(
                    explained(
                        Collective,
                        backend="gloo" if wire == "gloo" else "nccl",
                        operation=operation,
                        wire=wire,
                        world_size=world_size,  # type: ignore[arg-type]
                        gpus=tuple(range(world_size)),
                        mode="eager",
                        transport=transport,
                        verified=True,
                        points=points,
                        host_load=explained(HostLoad, busy_fraction=0.35, steal_fraction=0.02, other_busy_fraction=0.21),
                    )
                )
    return tuple(found)


def many_gpus(count: int) -> Machine:
    """NVSwitch islands of eight, SYS between them."""
    paths = [["X" if a == b else "NV18" if a // 8 == b // 8 else "SYS" for b in range(count)] for a in range(count)]
    return replace(
        h200_machine(),
        gpus=tuple(gpu(k, "NVIDIA H100 80GB HBM3", 85_520_809_984, 5, nvlinks_active=18, numa_node=k // 8) for k in range(count)),
        pairs=pairs(paths, "OK"),
    )

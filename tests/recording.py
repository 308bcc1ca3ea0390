"""The recorded pair of H200 as run documents, as if it had been measured just now.

``run()`` holds the machine, its pair copies, all four wires eager and graph, compute and the transports out of NCCL's own logs.
The files under ``data/h200x2`` are the machine's own output; nothing here invents a figure, except where a comment says so.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from wiretax.model.machine import Gpu, GpuPair, Machine, NcclLibrary, NvLink, P2pStatus, PcieLink, Software, Surroundings
from wiretax.model.measurement import Collective, Compute, Copy, Measurements, PcieUnderLoad, PeerTruth, Point, Transport
from wiretax.model.run import Outcome, Run, Tool

DATA = Path(__file__).parent / "data" / "h200x2"
NOT_RECORDED = "not part of the recording"
WIRES = {"default": "default", "p2p_off": "shm", "socket": "net", "gloo": "gloo"}
"""Our name of a wire to the recording's."""
LOGS = {"default": "nccl_default.1679.log", "p2p_off": "nccl_shm.1778.log", "socket": "nccl_net.1880.log"}
OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "sendrecv": "send_recv"}
_VIA = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\d+\] -> (\d+)\[\d+\](?: \[(?:send|receive)\])? via (\S+)")

NUM_LAYERS = 24
HIDDEN = 2304
VOCABULARY = 50304
TOKENS = 4 * 1024


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def explained(kind: type, **values: Any) -> Any:
    """An instance in which each None that needs a reason has one."""
    answers = getattr(kind, "none_is_an_answer", frozenset())
    item = kind(**values)
    names = set(kind.__dataclass_fields__) - answers - {"missing"}
    missing = {name: NOT_RECORDED for name in sorted(names) if getattr(item, name) is None}
    return kind(**{**values, "missing": missing}) if missing else item


def machine(**surroundings: Any) -> Machine:
    link = PcieLink(generation=5, width=16, max_generation=5, max_width=16)
    gpus = tuple(
        explained(
            Gpu,
            index=index,
            name="NVIDIA H200",
            uuid=f"GPU-0000000{index + 1}-0000-4000-8000-00000000000{index + 1}",
            pci_bus_id=f"00000000:00:0{6 + index}.0",
            memory_bytes=143771 * 2**20,
            memory_used_bytes=0,
            pcie=link,
            nvlinks_active=18,
            nvlinks=tuple(
                explained(NvLink, index=number, active=True, bandwidth_bytes_per_second=26.562e9, version=4, remote_kind="switch")
                for number in range(18)
            ),
            numa_node=0,
            cpu_affinity="0-31",
            mig="disabled",
            compute_capability="9.0",
            cuda_ordinal=index,
            power_limit_watts=700.0,
            ecc_uncorrected_errors=0,
            fabric_state="completed",
            fabric_status="Success",
            other_processes=0,
            utilization_fraction=0.0,
        )
        for index in range(2)
    )
    pairs = tuple(
        GpuPair(
            source_gpu=a,
            target_gpu=b,
            path="NV18",
            p2p=P2pStatus(read="OK", write="OK", nvlink="OK", atomics="OK", pci="NS"),
            peer_access=True,
        )
        for a, b in ((0, 1), (1, 0))
    )
    nccl = NcclLibrary(path="/usr/lib/python3/dist-packages/nvidia/nccl/lib/libnccl.so.2", version="2.28.9")
    return explained(
        Machine,
        hostname="vm",
        origin="recorded",
        origin_note="2x H200, 2026-11-30",
        gpus=gpus,
        pairs=pairs,
        driver_state="ok",
        software=explained(
            Software,
            driver="580.159.04",
            cuda="13.0",
            torch="2.11.0+cu130",
            torch_cuda="13.0",
            python="3.12",
            kernel="6.18.44",
            nccl_loaded=nccl,
            nccl_found=(nccl,),
            nccl_environment={"NCCL_NVLS_ENABLE": "0"},
        ),
        surroundings=explained(
            Surroundings,
            **{
                "virtual_machine": "kvm",
                "dev_shm_bytes": 256 * 10**9,
                "cpu_vendor": "intel",
                "cpus_usable": 32,
                "cpus_total": 32,
                "numa_nodes": 1,
                **surroundings,
            },
        ),
    )


def transports(wire: str) -> tuple[Transport, ...]:
    """Out of NCCL's own log of rank 0; gloo has none."""
    if wire not in LOGS:
        return ()
    counted = Counter(_VIA.findall((DATA / LOGS[wire]).read_text(errors="replace")))
    assert counted
    return tuple(
        Transport(source_gpu=int(source), target_gpu=int(target), name=name, channels=count)
        for (source, target, name), count in sorted(counted.items())
    )


def collectives(launch: str = "") -> tuple[Collective, ...]:
    """All wires of one launch (``""`` or ``"launch2_"``) that were swept."""
    found = []
    for wire, recorded in WIRES.items():
        path = DATA / f"{launch}sweep_and_training_{recorded}.json"
        if not path.exists():
            continue
        sweep = json.loads(path.read_text())["sweep"]
        for theirs, operation in OPERATIONS.items():
            for mode, key in (("eager", "us"), ("graph", "graph_us")):
                rows = [row for row in sweep if row["op"] == theirs and row.get(key)]
                if rows:
                    found.append(_collective(wire, operation, mode, [(row["bytes"], row[key] * 1e-6) for row in rows]))
    return tuple(found)


def _collective(wire: str, operation: str, mode: str, rows: list[tuple[int, float]]) -> Collective:
    factor = 0.5 if operation in ("all_gather", "reduce_scatter") else 1.0
    ways = transports(wire)
    return explained(
        Collective,
        backend="gloo" if wire == "gloo" else "nccl",
        operation=operation,
        wire=wire,
        world_size=2,
        gpus=(0, 1),
        mode=mode,
        transport="+".join(sorted({way.name for way in ways})) or "gloo/tcp",
        transports=ways,
        verified=True,
        environment={"default": {}, "p2p_off": {"NCCL_P2P_DISABLE": "1"}, "gloo": {}}.get(
            wire, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
        ),
        points=tuple(
            explained(
                Point,
                num_bytes=num_bytes,
                seconds=seconds,
                algbw_bytes_per_second=num_bytes / seconds,
                busbw_bytes_per_second=num_bytes / seconds * factor,
            )
            for num_bytes, seconds in rows
        ),
    )


def copies() -> tuple[Copy, ...]:
    recorded = load("pair_copies.json")
    found = []
    for source in range(2):
        for target in range(2):
            if source != target:
                found.append(_copy(source, target, "direct", recorded["p2p_bw"][source][target]))
    for gpu in range(2):
        found.append(_copy(None, gpu, "host", recorded["h2d"][gpu]))
        found.append(_copy(gpu, None, "host", recorded["d2h"][gpu]))
    return tuple(found)


def _copy(source: int | None, target: int | None, route: str, gigabytes: float) -> Copy:
    return explained(
        Copy,
        source_gpu=source,
        target_gpu=target,
        route=route,
        direction="one_way",
        num_bytes=2**28,
        bandwidth_bytes_per_second=gigabytes * 1e9,
        verified=True,
    )


def single_gpu_step(launch: str = "") -> dict[str, float]:
    """The 1.7 B model at batch 4 on one GPU: milliseconds of the step and its phases."""
    rows = load(f"{launch}training_1gpu.json")["train"]
    return next(row for row in rows if row["kind"] == "gpt1.7b" and row["B"] == 4)


def training_truth(wire: str, launch: str = "") -> float:
    """Seconds of the real step of the 1.7 B model at batch 4 on two GPUs."""
    rows = load(f"{launch}sweep_and_training_{WIRES[wire]}.json")["train"]
    return next(row for row in rows if row["kind"] == "gpt1.7b" and row["B"] == 4 and row["strat"] == "ddp")["step_ms"] * 1e-3


def compute(launch: str = "") -> tuple[Compute, ...]:
    """Layer and head seconds are the recorded forward and backward, split by their arithmetic: the recording has no finer times."""
    step = single_gpu_step(launch)
    both = (step["fwd_ms"] + step["bwd_ms"]) * 1e-3
    layer_flops = 6 * TOKENS * 12 * HIDDEN**2 + 6 * TOKENS * 2 * 1024 * HIDDEN / 2
    head_flops = 6 * TOKENS * HIDDEN * VOCABULARY
    per_flop = both / (NUM_LAYERS * layer_flops + head_flops)
    return tuple(
        explained(
            Compute,
            gpu=gpu,
            rank=gpu,
            together=together,
            matmul_size=8192,
            matmul_flops_per_second=2 * 8192**3 / 1.4685527801513671e-3,
            memory_bytes_per_second=4.3e12,
            pcie=PcieUnderLoad(generation=5, width=16),
            layer_seconds=layer_flops * per_flop,
            head_seconds=head_flops * per_flop,
        )
        for together in (False, True)
        for gpu in range(2)
    )


def run(launch: str = "", **changes: Any) -> Run:
    """The whole recording as one run document."""
    truths = tuple(PeerTruth(source_gpu=a, target_gpu=b, outcome="ok", num_bytes=(8, 2**22)) for a, b in ((0, 1), (1, 0)))
    values: dict[str, Any] = {
        "run_id": "recorded-h200x2",
        "created_at": "2026-11-30T20:21:00Z",
        "tool": Tool(version="0"),
        "command": "check",
        "outcome": Outcome(status="complete", duration_seconds=60.0),
        "machine": machine(),
        "measurements": Measurements(copies=copies(), peer_truth=truths, collectives=collectives(launch), compute=compute(launch)),
    }
    return Run(**{**values, **changes})

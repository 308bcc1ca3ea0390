"""Small machines and measurements for tests of the judge: say what matters, everything else is null with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recording import explained
from wiretax.judge.checks import Check
from wiretax.model.finding import Finding
from wiretax.model.machine import Gpu, GpuPair, Machine, NcclLibrary, NvLink, P2pStatus, PcieLink, Software, Surroundings
from wiretax.model.measurement import Collective, Compute, Copy, Incident, Measurements, PcieUnderLoad, PeerTruth, Point, Transport
from wiretax.model.run import Outcome, Run, Tool

LARGE = 256 * 2**20
FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "send_recv": lambda n: 1.0, "broadcast": lambda n: 1.0}
TRANSPORTS = {"p2p": "P2P/IPC", "staged": "SHM/direct/direct", "socket": "NET/Socket/0", "ib": "NET/IB/0"}


def gpu(index: int, **values: Any) -> Gpu:
    link = explained(PcieLink, generation=4, width=16, max_generation=4, max_width=16)
    defaults = {
        "name": "NVIDIA RTX 6000",
        "uuid": f"GPU-0000000{index}-0000-0000-0000-000000000000",
        "pcie": link,
        "nvlinks_active": 0,
        "compute_capability": "8.9",
    }
    return explained(Gpu, index=index, **{**defaults, "cuda_ordinal": index, "memory_bytes": 48 * 10**9, **values})


def nvlink(index: int, *, active: bool = True, **errors: int) -> NvLink:
    return explained(NvLink, index=index, active=active, bandwidth_bytes_per_second=25e9 if active else None, version=3, errors=errors)


def box(
    count: int = 2,
    path: str | Mapping[tuple[int, int], str] | None = "PIX",
    p2p: str | Mapping[tuple[int, int], str] | None = "OK",
    *,
    gpus: Sequence[Gpu] | None = None,
    software: Mapping[str, Any] | None = None,
    surroundings: Mapping[str, Any] | None = None,
    **values: Any,
) -> Machine:
    """A host; ``path`` and ``p2p`` hold for all pairs, or for those named (smaller index first; the rest is PIX and OK)."""
    pairs = []
    for a in range(count):
        for b in range(count):
            if a != b:
                key = (min(a, b), max(a, b))
                code = p2p.get(key, "OK") if isinstance(p2p, Mapping) else p2p
                status = explained(P2pStatus, read=code, write=code) if code else explained(P2pStatus)
                joined = path.get(key, "PIX") if isinstance(path, Mapping) else path
                pairs.append(explained(GpuPair, source_gpu=a, target_gpu=b, path=joined, p2p=status))
    return explained(
        Machine,
        gpus=tuple(gpus) if gpus is not None else tuple(gpu(index) for index in range(count)),
        pairs=tuple(pairs),
        software=explained(Software, **{"driver": "580.10", **nccl("2.28.9"), **(software or {})}),
        surroundings=explained(Surroundings, **{"virtual_machine": "none", "cpu_vendor": "intel", **(surroundings or {})}),
        driver_state="ok",
        **values,
    )


def nccl(version: str | None, **environment: str) -> dict[str, Any]:
    library = NcclLibrary(path="/venv/nvidia/nccl/lib/libnccl.so.2", version=version) if version else None
    return {"nccl_loaded": library, "nccl_environment": environment}


def wire(
    name: str = "default",
    gigabytes: float | None = 20.0,
    *,
    world: int = 2,
    kind: str | None = "p2p",
    operation: str = "all_reduce",
    num_bytes: int = LARGE,
    gpus: Sequence[int] | None = None,
    backend: str = "nccl",
    spread: float = 0.0,
    **values: Any,
) -> Collective:
    """One operation at one size and this busbw; ``kind`` is what NCCL's log shows."""
    indices = tuple(range(world)) if gpus is None else tuple(gpus)
    factor = FACTORS.get(operation, lambda n: (n - 1) / n)(world) or 1.0
    points = ()
    if gigabytes is not None:
        algbw = gigabytes * 1e9 / factor
        seconds = num_bytes / algbw
        samples = tuple(seconds * (1 + spread * (k - 4) / 4) for k in range(9)) if spread else ()
        points = (
            explained(
                Point,
                num_bytes=num_bytes,
                seconds=seconds,
                algbw_bytes_per_second=algbw,
                busbw_bytes_per_second=gigabytes * 1e9,
                samples_seconds=samples,
            ),
        )
    transports = ()
    if kind is not None and indices:
        transports = tuple(
            Transport(source_gpu=a, target_gpu=b, name=TRANSPORTS[kind], channels=2)
            for a, b in zip(indices, (*indices[1:], indices[0]), strict=True)
        )
    return explained(
        Collective,
        backend=backend,
        operation=operation,
        wire=name,
        world_size=world,
        gpus=indices,
        mode="graph",
        transport=TRANSPORTS[kind] if kind else None,
        transports=transports,
        points=points,
        **{"verified": True, **values},
    )


def copy(source: int | None, target: int | None, gigabytes: float | None, route: str = "direct", **values: Any) -> Copy:
    return explained(
        Copy,
        source_gpu=source,
        target_gpu=target,
        route=route,
        bandwidth_bytes_per_second=None if gigabytes is None else gigabytes * 1e9,
        **{"num_bytes": LARGE, "direction": "one_way", "verified": True, **values},
    )


def host_copies(*gigabytes: float, **values: Any) -> tuple[Copy, ...]:
    """Both directions of each GPU at its rate."""
    return tuple(
        entry
        for index, each in enumerate(gigabytes)
        for entry in (copy(None, index, each, "host", **values), copy(index, None, each, "host", **values))
    )


def compute(
    index: int, teraflops: float | None = 160.0, *, together: bool = False, pcie: tuple[int, int] | None = None, **values: Any
) -> Compute:
    return explained(
        Compute,
        gpu=index,
        rank=index,
        together=together,
        matmul_flops_per_second=None if teraflops is None else teraflops * 1e12,
        pcie=PcieUnderLoad(generation=pcie[0], width=pcie[1]) if pcie else None,
        **values,
    )


def truth(source: int, target: int, outcome: str, detail: str = "") -> PeerTruth:
    return PeerTruth(source_gpu=source, target_gpu=target, outcome=outcome, num_bytes=(8, 4 * 2**20), detail=detail)  # type: ignore[arg-type]


def incident(kind: str, stage: str, **values: Any) -> Incident:
    return Incident(kind=kind, stage=stage, **values)  # type: ignore[arg-type]


def run(machine: Machine | None, *measured: Any, **values: Any) -> Run:
    """A complete check; ``measured`` are parts of measurements in any order."""
    kinds = {Collective: "collectives", Copy: "copies", Compute: "compute", PeerTruth: "peer_truth", Incident: "incidents"}
    sorted_out: dict[str, list[Any]] = {name: [] for name in kinds.values()}
    for item in measured:
        sorted_out[kinds[type(item)]].append(item)
    defaults: dict[str, Any] = {"command": "check", "outcome": Outcome(status="complete", duration_seconds=60.0)}
    return explained(
        Run,
        run_id="test",
        created_at="2026-11-30T00:00:00Z",
        tool=Tool(version="0"),
        machine=machine,
        measurements=Measurements(**{name: tuple(items) for name, items in sorted_out.items()}),
        **{**defaults, **values},
    )


def found(check: Check, run: Run) -> dict[str, Finding]:
    """What a check says, by code; each complete."""
    findings = list(check(run))
    for finding in findings:
        assert finding.evidence, finding.code
        assert finding.title and finding.effect and finding.remedy and finding.confirm, finding.code
    codes = [finding.code for finding in findings]
    assert len(codes) == len(set(codes)), f"a flood: {codes}"
    return dict(zip(codes, findings, strict=True))


def unknown(machine: Machine) -> Machine:
    """The same GPUs as text would show them: nobody read links, status, software or surroundings."""
    return explained(
        Machine,
        origin="pasted",
        gpus=tuple(explained(Gpu, index=gpu.index) for gpu in machine.gpus),
        pairs=tuple(explained(GpuPair, source_gpu=p.source_gpu, target_gpu=p.target_gpu, p2p=explained(P2pStatus)) for p in machine.pairs),
        software=explained(Software),
        surroundings=explained(Surroundings),
    )


def with_gpus(machine: Machine, **changes: Mapping[str, Any]) -> Machine:
    """The machine with fields of single GPUs changed: ``with_gpus(box(), gpu1={"status": "lost"})``."""
    return replace(
        machine, gpus=tuple(replace(one, **changes[f"gpu{one.index}"]) if f"gpu{one.index}" in changes else one for one in machine.gpus)
    )

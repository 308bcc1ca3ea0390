"""Whole run documents for tests.

``h200_pair``: the recorded pair over four wires. ``four_4090``: a budget box without P2P. ``cpu_only``: gloo ranks on a laptop.
``hung``: a run that ended in a hang. ``inspected``: facts only. Each is complete and valid.
"""

from __future__ import annotations

from dataclasses import replace

from builders import (
    bounds,
    compute,
    copies,
    explained,
    four_4090_machine,
    h200_machine,
    host_copies,
    point,
    recorded_collectives,
    run,
    samples,
    staged_collectives,
)
from wiretax.model.finding import Evidence, Finding, Verdict
from wiretax.model.machine import Machine, Software, Surroundings
from wiretax.model.measurement import Collective, Compute, Copy, Expected, HostLoad, Incident, Measurements, Overlap, PeerTruth
from wiretax.model.money import Price
from wiretax.model.run import Outcome, Run


def h200_pair(price: Price | None = None) -> Run:
    """Two H200 over four wires, nothing wrong."""
    because = ("18 NVLinks of 26.6 GB/s each way between the GPUs", "NCCL's ring reaches 65 to 85 % of the links for all-reduce on 2 GPUs")

    def limit(subject: str, wire: str, low: float, expected: float, high: float, **more: int) -> Expected:
        return Expected(
            subject=subject,
            wire=wire,
            low_bytes_per_second=low,
            expected_bytes_per_second=expected,
            high_bytes_per_second=high,
            because=because,
            **more,
        )

    workload = "GPT 1.7 B, batch 4 per GPU"
    return run(
        h200_machine(),
        price=price,
        measurements=Measurements(
            copies=copies({(0, 1): 383.3e9, (1, 0): 384.3e9}, "direct")
            + copies({(0, 1): 41.2e9, (1, 0): 41.0e9}, "staged", 0.61)
            + host_copies(2, 54.4e9, 55.1e9),
            peer_truth=tuple(
                PeerTruth(source_gpu=a, target_gpu=b, outcome="ok", num_bytes=(8, 1 << 20, 1 << 26)) for a, b in ((0, 1), (1, 0))
            ),
            collectives=recorded_collectives(),
            compute=compute(2, 786e12, 4.29e12, 5),
            overlap=(
                Overlap(
                    gpu=0,
                    rank=0,
                    wire="default",
                    world_size=2,
                    num_bytes=268_435_456,
                    matmul_alone_seconds=1.469e-3,
                    matmul_beside_seconds=1.488e-3,
                    all_reduce_alone_seconds=0.906e-3,
                    all_reduce_beside_seconds=1.592e-3,
                ),
            ),
        ),
        expectations=(
            limit("pair_copy", "default", 380e9, 430e9, 478e9, source_gpu=0, target_gpu=1),
            limit("pair_copy", "default", 380e9, 430e9, 478e9, source_gpu=1, target_gpu=0),
            limit("all_reduce", "default", 290e9, 360e9, 400e9, world_size=2),
            limit("all_reduce", "p2p_off", 18e9, 27e9, 41e9, world_size=2),
            limit("all_reduce", "socket", 2.5e9, 4e9, 10e9, world_size=2),
            limit("all_reduce", "gloo", 1e9, 2e9, 4e9, world_size=2),
        ),
        forecasts=bounds(workload, 2, "default", 0.0919, 0.0118)
        + bounds(workload, 2, "p2p_off", 0.0919, 0.1265)
        + bounds(workload, 2, "socket", 0.0919, 0.88),
        findings=(
            Finding(
                code="healthy",
                severity="info",
                confidence="certain",
                title="The wire delivers what 18 NVLinks allow.",
                evidence=(
                    Evidence(
                        source="measurements", text="all-reduce over default reaches 324 GB/s busbw at 1 GiB; 290 to 400 GB/s is normal"
                    ),
                    Evidence(source="machine", text="NCCL joined GPU0 and GPU1 by P2P/CUMEM"),
                ),
                effect="Nothing is lost: two GPUs train the 1.7 B model 1.8 to 2.0 times as fast as one.",
                confirm="wiretax check --full",
            ),
        ),
        verdict=Verdict(
            decision="use_all",
            num_gpus=2,
            keep_box=True,
            sentence="Both GPUs are worth their money: the wire between them reaches 324 GB/s, as it should, "
            "and costs at most 11 % of the time.",
        ),
    )


def four_4090(price: Price | None = None) -> Run:
    """The budget box: no P2P, one pair three times slower than the others, a throttled GPU."""
    rates = {(a, b): 13.1e9 for a in range(4) for b in range(4) if a != b}
    rates.update({(0, 1): 4.0e9, (1, 0): 4.0e9, (1, 3): 10.9e9, (3, 1): 10.8e9})
    return run(
        four_4090_machine(),
        price=price,
        measurements=Measurements(
            copies=copies(rates, "staged", 0.45) + host_copies(4, 24.8e9, 25.9e9),
            peer_truth=tuple(PeerTruth(source_gpu=a, target_gpu=b, outcome="not_run", detail="the driver offers no P2P") for a, b in rates),
            collectives=staged_collectives(),
            compute=compute(4, 164e12, 0.93e12, 4, {2: 0.78}),
        ),
        expectations=tuple(
            Expected(
                subject="all_reduce",
                wire=wire,
                world_size=4,
                low_bytes_per_second=low,
                expected_bytes_per_second=expected,
                high_bytes_per_second=high,
                because=("staged through host memory over PCIe 4 x16",),
            )
            for wire, low, expected, high in (("default", 6e9, 9e9, 12e9), ("socket", 1.5e9, 3e9, 6e9))
        ),
        forecasts=bounds("GPT 1.7 B, batch 1 per GPU", 2, "default", 0.0649, 0.381)
        + bounds("GPT 1.7 B, batch 1 per GPU", 4, "default", 0.0649, 0.897),
        findings=(
            Finding(
                code="p2p-unsupported-chipset",
                severity="problem",
                confidence="certain",
                title="The GPUs cannot reach each other: every byte goes through host memory.",
                evidence=(
                    Evidence(source="machine", text="P2P read and write of all 6 pairs: CNS, chipset not supported"),
                    Evidence(
                        source="measurements", text="NCCL joined all ranks by SHM/direct; all-reduce reaches 5.9 GB/s busbw on 4 GPUs"
                    ),
                ),
                effect="A 1.7 B model at batch 1 trains 3.4 times slower on 2 GPUs than on 1.",
                remedy="Nothing on this box enables P2P. Accumulate gradients over 16 steps, or rent one larger GPU.",
                confirm="nvidia-smi topo -p2p r",
            ),
            Finding(
                code="pair-slow",
                severity="warning",
                confidence="likely",
                title="GPU0 and GPU1 copy at a third of the speed of the other pairs.",
                evidence=(Evidence(source="measurements", text="GPU0 to GPU1: 4.0 GB/s; the median pair: 13.1 GB/s"),),
                effect="Jobs on GPUs 0 and 1 run three times slower than on GPUs 0 and 2.",
                remedy="CUDA_VISIBLE_DEVICES=0,2",
                confirm="wiretax check --gpus 0,2",
            ),
            Finding(
                code="straggler-thermal",
                severity="warning",
                confidence="certain",
                title="GPU2 is 22 % slower than the others when all run: too hot.",
                evidence=(Evidence(source="measurements", text="sw_thermal_slowdown at 88 C, 1369 MHz against 1755 MHz"),),
                effect="All GPUs wait for it in every step.",
                remedy="Report it to the provider.",
                confirm="nvidia-smi -q -d PERFORMANCE",
            ),
        ),
        verdict=Verdict(
            decision="use_one",
            num_gpus=1,
            keep_box=False,
            gpus=(0,),
            sentence="Four GPUs train slower than one here: P2P is off and host memory carries 5.9 GB/s. "
            "Give the box back, or use one GPU of it.",
        ),
    )


def cpu_only() -> Run:
    """A laptop: gloo ranks and host copies."""
    sizes = tuple(2**k for k in range(3, 25))
    loads = explained(HostLoad, busy_fraction=0.95, steal_fraction=0.0, other_busy_fraction=0.02, frequency_mhz=2600.0)
    return run(
        explained(
            Machine,
            hostname="laptop",
            driver_state="absent",
            software=replace(explained(Software, torch="2.13.0+cpu", python="3.11.7", kernel="6.1.0"), nccl_found=()),
            surroundings=explained(
                Surroundings,
                container="none",
                virtual_machine="kvm",
                dev_shm_bytes=8_000_000_000,
                cpu_model="Intel(R) Core(TM) i7",
                cpus_usable=2,
            ),
        ),
        measurements=Measurements(
            copies=(
                explained(
                    Copy,
                    source_gpu=None,
                    target_gpu=None,
                    route="host",
                    direction="one_way",
                    num_bytes=1 << 26,
                    bandwidth_bytes_per_second=9.7e9,
                    latency_seconds=4e-7,
                    verified=True,
                    samples_seconds=samples(6.9e-3, 0.02),
                ),
            ),
            collectives=tuple(
                explained(
                    Collective,
                    backend="gloo",
                    operation=operation,
                    wire="gloo",
                    world_size=2,
                    mode="eager",
                    transport="gloo/tcp",
                    verified=True,  # type: ignore[arg-type]
                    points=tuple(point(n, 95e-6 + n / 1.2e9, operation, 2, 0.06) for n in sizes),
                    host_load=loads,
                )
                for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
            ),
            compute=tuple(
                explained(
                    Compute,
                    gpu=None,
                    rank=k,
                    together=together,
                    dtype="float32",
                    matmul_size=1024,
                    matmul_flops_per_second=95e9,
                    matmul_samples_seconds=samples(0.0226, 0.03),
                    memory_bytes_per_second=9.5e9,
                )
                for together in (False, True)
                for k in range(2)
            ),
        ),
        findings=(
            Finding(
                code="no-gpu",
                severity="info",
                confidence="certain",
                title="There is no GPU here; two CPU ranks were measured over gloo.",
                evidence=(Evidence(source="machine", text="no NVIDIA driver is loaded"),),
                effect="Nothing here says how GPUs would train.",
                remedy="Run this on the machine with the GPUs.",
                confirm="nvidia-smi -L",
            ),
        ),
        verdict=Verdict(
            decision="cannot_judge",
            num_gpus=None,
            keep_box=None,
            sentence="No GPU to judge: two CPU ranks reach 1.2 GB/s over gloo, which proves that the tool works here and nothing more.",
            missing={"num_gpus": "no GPU", "keep_box": "no GPU"},
        ),
    )


def hung() -> Run:
    """The pair again, where a rank stopped answering over sockets and the budget took the rest."""
    whole = h200_pair()
    kept = tuple(c for c in whole.measurements.collectives if c.wire in {"default", "p2p_off"})
    return replace(
        whole,
        outcome=Outcome(
            status="failed",
            reason="rank 1 stopped answering in all_reduce over socket at 4 MiB",
            budget_seconds=60.0,
            duration_seconds=41.0,
            not_measured=("all_gather over socket: the wire hung before it", "gloo: stopped after the hang"),
        ),
        measurements=replace(
            whole.measurements,
            collectives=kept,
            incidents=(
                Incident(
                    kind="hang",
                    stage="wire:socket",
                    rank=1,
                    gpu=1,
                    operation="all_reduce",
                    wire="socket",
                    num_bytes=4 << 20,
                    world_size=2,
                    detail="no answer for 10 s; the group was killed",
                ),
            ),
        ),
        forecasts=(),
        findings=(
            Finding(
                code="collective-hang",
                severity="critical",
                confidence="certain",
                title="Rank 1 stopped answering in an all-reduce over sockets.",
                evidence=(Evidence(source="measurements", text="all_reduce over socket, 4 MiB, world size 2: no answer for 10 s"),),
                effect="A job on this wire would stand still until its timeout.",
                remedy="Look at the process of rank 1 and at dmesg for Xid errors.",
                confirm="wiretax check --quick",
            ),
        ),
        verdict=Verdict(
            decision="cannot_judge",
            num_gpus=None,
            keep_box=None,
            sentence="The run could not be finished: rank 1 hung over sockets.",
            missing={"num_gpus": "a rank hung", "keep_box": "a rank hung"},
        ),
    )


def inspected(machine: Machine | None = None) -> Run:
    """Facts only."""
    return run(
        machine or four_4090_machine("constructed"),
        "inspect",
        outcome=Outcome(status="complete", budget_seconds=None, duration_seconds=0.2),
    )

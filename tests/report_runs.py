"""Runs whose report pages people look at: the H200 pair with all parts, the first story's box, 64 GPUs, 8 GPUs, and facts only."""

from __future__ import annotations

import random
from dataclasses import replace

import recording
import sample_runs
from builders import explained, gpu, p2p, point, run
from sample_runs import four_4090
from wiretax.judge.verdict import judge
from wiretax.model.forecast import Forecast, Interval
from wiretax.model.machine import GpuPair, Machine
from wiretax.model.measurement import Collective, Compute, Copy, Expected, Measurements
from wiretax.model.money import Price
from wiretax.model.run import Run
from wiretax.model.training import Phases, StepTiming, Training
from wiretax.predict.bounds import WORKLOAD, bounds
from wiretax.predict.wire_curve import bus_factor

PRICE = Price(amount=3.5, currency="USD", per="gpu_hour")


def h200_pair() -> Run:
    """The recorded pair, judged, with its real training steps over every wire."""
    measured = recording.run(price=PRICE)
    judged = judge(replace(measured, forecasts=bounds(measured)))
    alone = recording.single_gpu_step()
    steps = [
        explained(
            StepTiming,
            strategy="ddp",
            num_gpus=1,
            wire="none",
            workload=WORKLOAD,
            batch_per_gpu=4,
            step_seconds=alone["step_ms"] * 1e-3,
            samples_per_second=4 / (alone["step_ms"] * 1e-3),
            efficiency_fraction=1.0,
            phases=explained(Phases, forward=alone["fwd_ms"] * 1e-3, backward=alone["bwd_ms"] * 1e-3, optimizer=alone["opt_ms"] * 1e-3)
            if "opt_ms" in alone
            else None,
        )
    ]
    for wire in ("default", "p2p_off", "socket", "gloo"):
        seconds = recording.training_truth(wire)
        steps.append(
            explained(
                StepTiming,
                strategy="ddp",
                num_gpus=2,
                wire=wire,
                workload=WORKLOAD,
                batch_per_gpu=4,
                step_seconds=seconds,
                samples_per_second=8 / seconds,
                efficiency_fraction=min(alone["step_ms"] * 1e-3 / seconds, 1.0),
            )
        )
    return replace(judged, run_id="20261130T202100-h200x2", training=Training(steps=tuple(steps)))


def budget_box() -> Run:
    """Four RTX 4090 without P2P, rebuilt from a published story: never shown as a measurement."""
    whole = four_4090(Price(amount=0.58, currency="EUR", per="box_hour"))
    assert whole.machine is not None
    note = "figures made up for an example, after a published story of a rented 4x RTX 4090 that trained slower than one GPU"
    return replace(whole, machine=replace(whole.machine, origin="constructed", origin_note=note), run_id="20261130T221500-4090x4")


def p2p_switched_off() -> Run:
    """The sample pair with ``NCCL_P2P_DISABLE=1`` left in the environment: the wire as found is the staged one."""
    whole = sample_runs.h200_pair()
    assert whole.machine is not None
    staged = {c.operation + c.mode: c for c in whole.measurements.collectives if c.wire == "p2p_off"}
    found = tuple(
        replace(c, points=staged[c.operation + c.mode].points, transport="SHM/direct") if c.wire == "default" else c
        for c in whole.measurements.collectives
    )
    software = replace(whole.machine.software, nccl_environment={**whole.machine.software.nccl_environment, "NCCL_P2P_DISABLE": "1"})
    note = "the example's pair, its wire as found replaced by the one with P2P off"
    machine = replace(whole.machine, software=software, origin="constructed", origin_note=note)
    measured = replace(whole.measurements, collectives=found)
    return replace(whole, run_id="20261130T224500-5a1b2c", machine=machine, measurements=measured, forecasts=(), findings=(), verdict=None)


def many(count: int, *, everything: bool = False) -> Run:
    """``count`` GPUs on NVLink switches, constructed; one pair and one GPU slower than the others."""
    dice = random.Random(count)
    pairs = tuple(
        explained(GpuPair, source_gpu=a, target_gpu=b, path="NV18", p2p=p2p("OK"), peer_access=True)
        for a in range(count)
        for b in range(count)
        if a != b
    )
    machine = explained(
        Machine,
        origin="constructed",
        origin_note=f"{count} GPUs made up for an example",
        gpus=tuple(
            gpu(k, "NVIDIA H100 80GB HBM3", 85_520_809_984, 5, nvlinks_active=18, numa_node=k * 2 // count, compute_capability="9.0")
            for k in range(count)
        ),
        pairs=pairs,
        driver_state="ok",
    )
    copies = tuple(
        explained(
            Copy,
            source_gpu=p.source_gpu,
            target_gpu=p.target_gpu,
            route="direct",
            direction="one_way",
            num_bytes=2**28,
            bandwidth_bytes_per_second=(140e9 if {p.source_gpu, p.target_gpu} & {3} and count > 8 else 376e9) * dice.uniform(0.98, 1.02),
            verified=True,
        )
        for p in pairs
    )
    expected = tuple(
        Expected(
            subject="pair_copy",
            wire="direct",
            source_gpu=p.source_gpu,
            target_gpu=p.target_gpu,
            low_bytes_per_second=337e9,
            expected_bytes_per_second=382e9,
            high_bytes_per_second=427e9,
            limit_bytes_per_second=450e9,
        )
        for p in pairs
    )
    worlds = [2**k for k in range(1, 12) if 2**k <= count] if everything else [count]
    operations = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv") if everything else ("all_reduce",)
    wires = (("default", 370e9, 9e-6), ("p2p_off", 20e9, 15e-6), ("socket", 3e9, 4e-5), ("gloo", 1.2e9, 5e-4))
    collectives = tuple(
        explained(
            Collective,
            backend="gloo" if wire == "gloo" else "nccl",
            operation=operation,
            wire=wire,
            world_size=world,
            gpus=tuple(range(world)),
            mode=mode,
            transport={"default": "P2P/CUMEM", "p2p_off": "SHM/direct", "socket": "NET/Socket", "gloo": "gloo/tcp"}[wire],
            verified=True,
            points=tuple(
                point(
                    2**k,
                    (start if mode == "graph" else 2 * start) * dice.uniform(0.97, 1.03) + 2**k * bus_factor(operation, world) / rate,
                    operation,
                    world,
                )
                for k in range(3, 31)
            ),
        )
        for operation in operations
        for wire, rate, start in (wires if everything else wires[:2])
        for world in worlds
        for mode in ("eager", "graph")
        if not (wire == "gloo" and mode == "graph")
    )
    computes = tuple(
        explained(
            Compute,
            gpu=k,
            rank=k,
            together=together,
            matmul_size=8192,
            matmul_flops_per_second=dice.uniform(0.985, 1.0) * (0.82 if k == 3 and together else 1.0) * 690e12,
            memory_bytes_per_second=2.9e12,
            throttle_reasons=("hw_thermal_slowdown",) if k == 3 and together else ("sw_power_cap",),
        )
        for together in (False, True)
        for k in range(count)
    )
    measured = Measurements(copies=copies, collectives=collectives, compute=computes)
    whole = replace(run(machine, run_id=f"20261130T221500-h100x{count}"), measurements=measured, expectations=expected)
    if not everything:
        return judge(whole)
    steps, forecasts = [], []
    for world in worlds:
        for wire, lost in (("default", 0.05), ("p2p_off", 0.3), ("socket", 0.9)):
            tax = lost * (1 - 1 / world) * 1.4
            tax = min(tax, 0.95)
            step = 0.3 / (1 - tax)
            forecasts.append(
                explained(
                    Forecast,
                    strategy="ddp",
                    num_gpus=world,
                    wire=wire,
                    workload="gpt1.7b, batch 4",
                    step_seconds=Interval(low=step * 0.97, expected=step, high=step * 1.04),
                    efficiency_fraction=1 - tax,
                    wire_tax_fraction=tax,
                    speedup=world * (1 - tax),
                )
            )
            steps.append(
                explained(
                    StepTiming,
                    strategy="ddp",
                    num_gpus=world,
                    wire=wire,
                    workload="gpt1.7b, batch 4",
                    batch_per_gpu=4,
                    step_seconds=step * 1.01,
                    samples_per_second=4 * world / step,
                    efficiency_fraction=1 - tax - 0.01 * (1 - tax),
                    phases=Phases(forward=0.09, backward=step * 1.01 - 0.12, optimizer=0.03, exposed_communication=step * 1.01 - 0.3),
                )
            )
    return judge(replace(whole, forecasts=tuple(forecasts), training=Training(steps=tuple(steps)), price=PRICE))

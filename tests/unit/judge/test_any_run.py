"""Whatever a run holds, the judge answers: no exception, no alarm on a guess, nothing left unexplained."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wiretax.judge.checks import ALL
from wiretax.judge.exit_code import exit_code
from wiretax.judge.gate import as_expected, as_metrics
from wiretax.judge.verdict import judge
from wiretax.model.machine import Machine
from wiretax.model.measurement import Measurements
from wiretax.model.observation import Observation
from wiretax.model.reading import explain, not_finite, unexplained
from wiretax.model.run import Outcome, Run, Tool
from wiretax.predict.bounds import bounds

Draw = Callable[[Random], typing.Any]


def one_of(*values: typing.Any) -> Draw:
    return lambda random: random.choice(values)


def subset(*values: typing.Any) -> Draw:
    return lambda random: tuple(random.sample(values, random.randint(0, len(values))))


INDEX = one_of(0, 1, 2, 3, 4)
BY_NAME: dict[str, Draw] = {
    "index": INDEX,
    "source_gpu": INDEX,
    "target_gpu": INDEX,
    "gpu": INDEX,
    "rank": INDEX,
    "cuda_ordinal": one_of(0, 1, 2, 3, 4, 5, 6),
    "world_size": one_of(1, 2, 3, 4, 5),
    "gpus": subset(0, 1, 2, 3, 4),
    "path": one_of("NV1", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "NV", "odd"),
    "transport": one_of(
        "P2P/CUMEM", "P2P/direct pointer/read", "SHM/direct/direct", "NET/Socket/0", "NET/IB/0/GDRDMA", "NVLS", "gloo/tcp", "?"
    ),
    "wire": one_of("default", "default", "clean", "p2p_off", "p2p_forced", "socket", "gloo", "new"),
    "operation": one_of("all_reduce", "all_reduce", "all_gather", "all_to_all"),
    "wire_requested": one_of("default", "p2p_off"),
    "stage": one_of("compute", "copies", "peer_truth", "wire:default", "wire:socket"),
    "generation": one_of(0, 1, 2, 3, 4, 5, 7),
    "max_generation": one_of(0, 3, 4, 5, 7),
    "width": one_of(0, 1, 4, 8, 16, 32),
    "max_width": one_of(0, 4, 8, 16),
    "nvlinks_active": one_of(0, 2, 4, 18),
    "num_bytes": one_of(0, 8, 4096, 2**20, 25 * 2**20, 2**28, 2**30),
    "version": one_of("2.28.9+cuda13.0", "2.16.2", "2.26.2", "2.7.8", "22809", "", "x"),
    "compute_capability": one_of("7.0", "8.6", "9.0", "12.0", "gfx942", ""),
    "torch": one_of("2.13.0+cpu", "2.13.0+cu130", ""),
    "name": one_of("NVIDIA H200", "GRID A100-40C", "NVIDIA GeForce RTX 4090", "P2P/IPC", "SHM/direct", "NET/Socket/0"),
    "cpu_vendor": one_of("intel", "amd", "arm", "other"),
    "virtual_machine": one_of("none", "kvm", "wsl2"),
    "cuda_visible_devices": one_of("", "0,1", "3", "GPU-1,GPU-2", ",,"),
    "nccl_environment": lambda random: {
        name: random.choice(["0", "1", "SYS", "LOC", "NODE", "3", "", "x"])
        for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE")
        if random.random() < 0.2
    },
    "detail": one_of("", "No space left on device", "unspecified launch failure"),
}
OWN_TYPE = {("PcieHop", "kind"), ("NcclLibrary", "path"), ("NvLink", "version"), ("PeerTruth", "num_bytes"), ("Machine", "gpus")}
"""Fields that share a name with another and mean something else: their types decide."""
NULL = 0.3


def draw(random: Random, hint: typing.Any, owner: str = "", name: str = "") -> typing.Any:
    """A value of a field: by its name where a random one would never be realistic, else by its type; None wherever it may be."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and random.random() < NULL:
            return None
        return draw(random, random.choice([a for a in arguments if a is not type(None)]), owner, name)
    if name in BY_NAME and (owner, name) not in OWN_TYPE:
        return BY_NAME[name](random)
    if origin is typing.Literal:
        return random.choice(arguments)
    if origin is tuple:
        return tuple(draw(random, arguments[0]) for _ in range(random.choice((0, 1, 3, 6))))
    if origin is dict:
        return {key: draw(random, arguments[1]) for key in ("replay", "recovery", "crc_flit") if random.random() < 0.3}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: draw(random, hints[f.name], hint.__name__, f.name) for f in dataclasses.fields(hint) if f.name != "missing"})
    return {
        str: one_of("", "some text", "µ"),
        bool: one_of(True, False),
        int: one_of(0, 1, 2, 64, 2**26, 2**40),
        float: one_of(0.0, 1e-12, 0.04, 0.5, 1.0, 1.5, 25e9, 26.562e9, 4e11, 1e15),
    }[hint](random)


def any_run(seed: int) -> Run:
    """A valid run; most machines are read, most measured, all with holes."""
    random = Random(seed)
    run = Run(
        run_id="any",
        created_at="2026-11-30T00:00:00Z",
        tool=Tool(version="0"),
        command=random.choice(["check", "check", "inspect", ""]),
        outcome=draw(random, Outcome | None),
        machine=draw(random, Machine | None),
        observations=(Observation(source="log", line=1, kind="xid", values={"xid": random.choice([74, 79, None, "x"])}),),
        measurements=draw(random, Measurements),
    )
    return explain(run)


RUNS = st.integers(0, 2**32).map(any_run)

HARD = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@HARD
@given(RUNS)
def test_any_run_is_judged_completely(run):
    judged = judge(dataclasses.replace(run, forecasts=bounds(run)))
    assert list(unexplained(judged)) == []
    assert list(not_finite(judged)) == []
    assert judged.verdict is not None and judged.verdict.sentence
    for finding in judged.findings:
        assert finding.title and finding.evidence and finding.effect and finding.remedy and finding.confirm, finding
        assert finding.confidence != "possible" or finding.severity == "info"
    for row in judged.expectations:
        assert 0 <= row.low_bytes_per_second <= row.expected_bytes_per_second <= row.high_bytes_per_second and row.because
    assert exit_code(judged) in (0, 1, 3, 130)
    assert all(math.isfinite(value) for value in (as_metrics(judged) | as_expected(judged)).values())


@HARD
@given(RUNS)
def test_no_check_repeats_itself_or_floods(run):
    for check in ALL:
        findings = list(check(run))
        assert len({(f.code, f.title) for f in findings}) == len(findings)
        assert len(findings) <= 12
        assert all(len(f.evidence) <= 14 for f in findings)


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.__module__.rpartition(".")[2])
def test_a_run_without_a_machine_and_measurements_says_nothing(check):
    assert list(check(Run(run_id="empty", created_at="", tool=Tool(version="0")))) == []

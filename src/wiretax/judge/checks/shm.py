"""The staged path: shared memory too small for NCCL, and GPU loads and stores where a copy engine would be faster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.expectation import Expectation, class_of, expect_measured
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.run import Run
from wiretax.units import rate, size

BYTES_PER_CONNECTION = 9_637_888
"""One shared-memory segment as NCCL's own messages state it (issues 290 and 1518 of NVIDIA/nccl)."""

CHANNELS_AT_LEAST = 2

ENGINE_GAIN = 2.5
"""The published case was 5x (2.2 against 11 to 20 GB/s); a recorded healthy machine shows 1.3x, which is tuning, not a fault."""

_SHM_FAILURE = re.compile(r"no space left|posix_fallocate|shmutils|/dev/shm|shared memory segment|bus error", re.IGNORECASE)


def check(run: Run) -> Iterator[Finding]:
    """A size is judged against need only where the staged path is needed and did not just prove that it works."""
    yield from _too_small(run)
    yield from _copy_engine(run)


def _needed_bytes(ranks: int) -> int:
    return ranks * CHANNELS_AT_LEAST * BYTES_PER_CONNECTION


def _too_small(run: Run) -> Iterator[Finding]:
    machine = run.machine
    total = machine.surroundings.dev_shm_bytes if machine else None
    # Writing beyond a full tmpfs kills with SIGBUS (7).
    failed = [
        i
        for i in run.measurements.incidents
        if i.kind in ("error", "rank_died", "start_failed") and (_SHM_FAILURE.search(i.detail) or i.signal == 7)
    ]
    ranks = max(len(facts.usable_gpus(machine)), max((i.world_size or 0 for i in failed), default=0))
    if ranks < 2:
        return
    need = _needed_bytes(ranks)
    small = total is not None and total < need
    if failed and (small or any(_SHM_FAILURE.search(i.detail) for i in failed)):
        seen = [evidence(f"{i.stage}: {i.detail or f'signal {i.signal}'}", "measurements.incidents") for i in failed[:4]]
        if total is not None:
            seen.append(
                evidence(f"Shared memory (/dev/shm) holds {size(total)}; {ranks} ranks need about {size(need)}", "machine.surroundings")
            )
        yield _finding("problem", "certain" if small else "likely", tuple(seen))
        return
    staged_works = any("staged" in facts.transports_of(c) for c in run.measurements.collectives)
    pairs = facts.unordered_pairs(machine)
    staged_needed = any(facts.p2p_allowed(machine, b[0].source_gpu, b[0].target_gpu) is False for b in pairs)
    if small and staged_needed and not staged_works and total is not None:
        text = f"Shared memory (/dev/shm) holds {size(total)}; {ranks} ranks through host memory need about {size(need)}"
        yield _finding("info", "possible", (evidence(text, "machine.surroundings"),))


def _finding(severity: Severity, confidence: Confidence, seen: tuple[Evidence, ...]) -> Finding:
    return Finding(
        code="dev-shm-too-small",
        severity=severity,
        confidence=confidence,
        title="Shared memory (/dev/shm) is too small for ranks that talk through host memory",
        evidence=seen,
        effect="NCCL fails at its start with 'No space left on device' or 'invalid argument'; data loader workers die with a bus error.",
        remedy="Give the container more: `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with medium Memory at "
        "/dev/shm. Remove stale segments: `rm /dev/shm/nccl-*`.",
        confirm="df -h /dev/shm",
    )


def _copy_engine(run: Run) -> Iterator[Finding]:
    own = [c for c in facts.user_collectives(run) if class_of(run, c) == "staged" and len(c.gpus) > 1]
    head = facts.headline(own)
    if head is None:
        return
    collective, point = head
    reached = point.busbw_bytes_per_second
    settings = {**(run.machine.software.nccl_environment if run.machine else {}), **collective.environment}
    if settings.get("NCCL_SHM_USE_CUDA_MEMCPY") == "1":
        return
    copies = facts.pair_copies(run, route="staged")
    inner = [c.bandwidth_bytes_per_second or 0.0 for pair, c in copies.items() if set(pair) <= set(collective.gpus) and pair[0] != pair[1]]
    engine = min(inner, default=0.0)
    expected = expect_measured(run, collective, point.num_bytes)
    below = isinstance(expected, Expectation) and expected.standing(reached) == "below"
    trial = "NCCL_SHM_USE_CUDA_MEMCPY=1"
    if engine > ENGINE_GAIN * reached and (below or not isinstance(expected, Expectation)):
        yield Finding(
            code="shm-direct-slow",
            severity="warning",
            confidence="likely",
            title="NCCL's way through host memory is far slower than the copy engine on the same path",
            evidence=(
                evidence(
                    f"all-reduce over {collective.world_size} GPUs: {rate(reached)} at {size(point.num_bytes)} ({collective.transport})"
                ),
                evidence(f"staged copies of these GPUs: at least {rate(engine)}", "measurements.copies"),
            ),
            effect=f"Large messages could be up to {engine / reached:.1f}x faster; small ones become slower.",
            remedy=f"Try `export {trial}` (undocumented; keep it only if your job gains) with larger DDP buckets.",
            confirm=f"{trial} wiretax check --quick",
        )
        return
    yield Finding(
        code="shm-tuning",
        severity="info",
        confidence="possible",
        title="GPUs talk through host memory; two settings may help a little",
        evidence=(evidence(f"all-reduce over {collective.world_size} GPUs: {rate(reached)} at {size(point.num_bytes)}"),),
        effect="On one recorded machine 8 channels brought 13 % and the copy engine 33 % at large messages, at a loss for small ones.",
        remedy=f"Try `NCCL_MIN_NCHANNELS=8`, and `{trial} NCCL_SHM_MEMCPY_MODE=3` with large buckets; keep what your job gains from.",
        confirm="NCCL_MIN_NCHANNELS=8 wiretax check --quick",
    )

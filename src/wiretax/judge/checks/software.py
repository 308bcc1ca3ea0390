"""Versions that do not fit: torch without CUDA, a NCCL too old for the GPU, another NCCL than expected, a known NCCL fault."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Compares what is installed with what the GPUs need and with what was seen to fail."""
    if run.machine is None:
        return
    yield from _torch(run)
    yield from _too_old(run)
    yield from _several_libraries(run)
    yield from _known_bugs(run)


def _torch(run: Run) -> Iterator[Finding]:
    machine = run.machine
    if machine is None or not machine.gpus:
        return
    torch = machine.software.torch
    if torch is None or machine.software.torch_cuda is not None or "+cpu" not in torch:
        return
    yield Finding(
        code="torch-without-cuda",
        severity="problem",
        confidence="certain",
        title="torch is a build without CUDA on a machine with GPUs",
        evidence=(evidence(f"torch {torch}, {len(machine.gpus)} GPUs", "machine.software"),),
        effect="Training would run on the CPU; NCCL is not in this build either.",
        remedy="Install a CUDA build: `pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128` "
        "(or the cu number that the driver supports).",
        confirm='python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"',
    )


def _too_old(run: Run) -> Iterator[Finding]:
    version = facts.nccl_version(run)
    parsed = nccl_policy.parse_version(version)
    if parsed is None or run.machine is None:
        return
    if any(c.backend == "nccl" and c.verified and c.world_size > 1 for c in run.measurements.collectives):
        return
    if seen.of(run, "nccl.shared_memory_limit"):
        return  # NCCL's own message is the better evidence, and another check reads it.
    for capability in sorted({known for gpu in run.machine.gpus if (known := seen.capability(gpu)) is not None}):
        oldest = nccl_policy.oldest_for(capability)
        needed = nccl_policy.parse_version(oldest[0]) if oldest else None
        if oldest is None or needed is None or parsed >= needed:
            continue
        yield Finding(
            code="nccl-too-old-for-gpu",
            severity="problem",
            confidence="likely",
            title=f"NCCL {version} is older than the first that supports these GPUs ({oldest[0]})",
            evidence=(
                evidence(f"NCCL {version}, compute capability {capability}", "machine.software"),
                evidence(oldest[1], "nccl policy data"),
            ),
            effect="Collectives stop with an error or fall back to slow kernels.",
            remedy=f"Take a torch whose NCCL is {oldest[0]} or newer, or `pip install 'nvidia-nccl-cu12>={oldest[0]}'` after torch.",
            confirm='python -c "import torch; print(torch.cuda.nccl.version())"',
        )


def _several_libraries(run: Run) -> Iterator[Finding]:
    software = run.machine.software if run.machine else None
    if software is None or software.nccl_loaded is None or software.nccl_loaded.version is None:
        return
    loaded = software.nccl_loaded
    version = nccl_policy.parse_version(loaded.version)
    others = [
        library
        for library in software.nccl_found or ()
        if library.path != loaded.path and library.version is not None and nccl_policy.parse_version(library.version) != version
    ]
    if not others:
        return
    # torch wheels bring NCCL under nvidia/nccl; another file loaded instead means a path variable pulled it in.
    displaced = "nvidia/nccl" not in loaded.path and any("nvidia/nccl" in other.path for other in others)
    listed = ", ".join(f"{other.version} at {other.path}" for other in others[:4])
    yield Finding(
        code="nccl-version-mismatch",
        severity="warning" if displaced else "info",
        confidence="likely" if displaced else "certain",
        title=f"Ranks load NCCL {loaded.version}"
        + (", not the one that came with torch" if displaced else "; another version lies on disk as well"),
        evidence=(evidence(f"loaded: {loaded.version} from {loaded.path}; on disk: {listed}", "machine.software"),),
        effect="Tests built against the other library (nccl-tests, containers) may show other figures than training gets.",
        remedy="Clear what pulls it in: `env -u LD_PRELOAD -u LD_LIBRARY_PATH wiretax check`."
        if displaced
        else f"Build nccl-tests against the loaded one: `make NCCL_HOME={loaded.path.rpartition('/lib')[0] or '/usr'}`.",
        confirm="LD_DEBUG=libs python -c 'import torch' 2>&1 | grep 'init.*libnccl'",
    )


def _known_bugs(run: Run) -> Iterator[Finding]:
    version = facts.nccl_version(run)
    if run.machine is None or version is None:
        return
    capabilities = sorted({known for gpu in run.machine.gpus if (known := seen.capability(gpu)) is not None})
    for capability in capabilities:
        for bug in nccl_policy.bugs(version, capability, "crash"):
            crash = next(
                (
                    incident
                    for incident in run.measurements.incidents
                    if incident.kind in ("rank_died", "error")
                    and incident.stage.startswith("wire")
                    and (incident.num_bytes or 0) >= max(bug.num_bytes_at_least, 1)
                ),
                None,
            )
            if crash is None:
                continue
            yield Finding(
                code="nccl-version-bug",
                severity="problem",
                confidence="likely",
                title=f"This looks like a known fault of NCCL {version}: {bug.title}",
                evidence=(
                    evidence(f"{crash.stage} failed at {crash.num_bytes} B: {crash.detail or crash.kind}", "measurements.incidents"),
                    evidence(f"{bug.source} ({bug.date})", "nccl policy data"),
                ),
                effect="Training stops as soon as a bucket reaches that size.",
                remedy=f"Use NCCL {bug.good_version}: `pip install nvidia-nccl-cu12=={bug.good_version}` (cu13 for CUDA 13).",
                confirm="wiretax check --quick  # with the other NCCL installed",
            )

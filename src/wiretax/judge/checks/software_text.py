"""Versions that do not fit, as error messages say it: NCCL or torch too old for a GPU, mixed NCCLs, torch without CUDA or NCCL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import size

_CRASH = re.compile(r"illegal memory access|misaligned address|unspecified launch failure|illegal instruction", re.IGNORECASE)

_NO_KERNEL = "no kernel image"
_DROPPED = frozenset({"3.0", "3.5", "3.7", "5.0", "5.2", "6.0", "6.1"})
"""Cards that newer builds leave out: there an older NCCL is the cure, not a newer."""


def check(run: Run) -> Iterator[Finding]:
    """Names a version as the cause only where its own symptom was printed."""
    yield from _too_old(run)
    yield from _crash(run)
    yield from _hang(run)
    yield from _error(run)
    yield from _mixed(run)
    yield from _talk_past(run)
    yield from _torch(run)
    yield from _gloo(run)
    yield from _cuda(run)


def _too_old(run: Run) -> Iterator[Finding]:
    limits = seen.of(run, "nccl.shared_memory_limit")
    version = facts.nccl_version(run)
    if limits:
        blackwell = bool({"12.0", "12.1"} & seen.capabilities(run)) or nccl_policy.parse_version(version) in ((2, 25, 1), (2, 24, 3))
        needed = nccl_policy.oldest_for("12.0") if blackwell else None
        least = needed[0] if needed else "a newer one"
        yield Finding(
            code="nccl-too-old-for-gpu",
            severity="problem",
            confidence="certain" if blackwell or version else "likely",
            title=f"NCCL{f' {version}' if version else ''} has no kernels that fit this GPU: they want more shared memory than it has",
            evidence=(
                *seen.lines((*limits, *seen.of(run, "nccl.version")), 3),
                *([evidence(needed[1], "nccl policy data")] if needed else []),
            ),
            effect="Collectives stop with an error; peer to peer has nothing to do with it.",
            remedy=f"Use NCCL {least}{' or newer' if needed else ''}: a newer torch brings it, or `pip install -U nvidia-nccl-cu12` "
            "after torch.",
            confirm='python -c "import torch; print(torch.cuda.nccl.version())"',
        )
    kernelless = [o for o in seen.warnings(run, "cuda_failure") if _NO_KERNEL in seen.text(o, "error")]
    if kernelless and not limits and not seen.capabilities(run) & _DROPPED:
        yield Finding(
            code="nccl-too-old-for-gpu",
            severity="problem",
            confidence="likely",
            title=f"NCCL{f' {version}' if version else ''} has no kernels for this GPU",
            evidence=seen.lines((*kernelless, *seen.of(run, "nccl.version")), 3),
            effect="Collectives stop with an error; peer to peer has nothing to do with it.",
            remedy="Use an NCCL that was built for the GPU: a newer torch brings it (for Blackwell one of CUDA 12.8 or newer); one built "
            "here needs the GPU's architecture in NVCC_GENCODE.",
            confirm='python -c "import torch; print(torch.cuda.nccl.version(), torch.cuda.get_device_capability())"',
        )
    missing = seen.of(run, "torch.gpu_unsupported")
    if missing:
        named = next((seen.text(o, "capability") for o in missing if o.values.get("capability")), "")
        yield Finding(
            code="torch-too-old-for-gpu",
            severity="problem",
            confidence="certain" if named else "likely",
            title=f"This torch has no kernels for the GPU{f' ({named})' if named else ''}",
            evidence=seen.lines(missing, 4),
            effect="Everything on that GPU fails, collectives among it.",
            remedy="Install a torch that was built for it, e.g. for Blackwell: `pip install -U torch --index-url "
            "https://download.pytorch.org/whl/cu128`.",
            confirm='python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"',
        )


def _crash(run: Run) -> Iterator[Finding]:
    """A crash from a message size on is a fault of a protocol in that version; of known versions it is named."""
    failures = [o for o in seen.of(run, "nccl_tests.failure") if _CRASH.search(seen.text(o, "error"))]
    others = [
        *(o for o in seen.warnings(run, "cuda_failure") if _CRASH.search(seen.text(o, "error"))),
        *(o for o in seen.of(run, "torch.cuda_error") if _CRASH.search(seen.text(o, "error"))),
    ]
    if not failures and not others:
        return
    version = facts.nccl_version(run)
    after = max((n for o in failures if (n := seen.whole(o, "after_bytes")) is not None), default=None)
    known = [
        (capability, bug)
        for capability in sorted(seen.capabilities(run)) or ["12.0"]
        for bug in nccl_policy.bugs(version, capability, "crash")
        if after is None or 4 * after >= bug.num_bytes_at_least
    ]
    sure = bool(known) and bool(seen.capabilities(run))
    if not known and after is None:
        return
    shown: list[Evidence] = [*seen.lines((*failures, *others[:2], *seen.of(run, "nccl.version")[:1]), 4)]
    severity: Severity = "problem" if sure and failures else "warning" if sure else "info"
    confidence: Confidence = "likely" if sure else "possible"
    if known:
        bug = known[0][1]
        shown.append(evidence(f"{bug.source} ({bug.date})", "nccl policy data"))
        title = f"This looks like a known fault of NCCL {version}: {bug.title}"
        remedy = f"Use NCCL {bug.good_version}: `pip install nvidia-nccl-cu12=={bug.good_version}` (cu13 for CUDA 13)."
    else:
        title = f"Collectives crash above {size(after or 0)}: a size threshold speaks for a fault of NCCL {version or 'of this version'}"
        remedy = "Try a newer NCCL, and `NCCL_PROTO=Simple`, one at a time, with one size below and one above the threshold."
    yield Finding(
        code="nccl-version-bug",
        severity=severity,
        confidence=confidence,
        title=title,
        evidence=tuple(shown),
        effect="Small messages pass and larger ones crash, so training stops at its first large bucket; cables and IOMMU have no such "
        "threshold.",
        remedy=remedy,
        confirm="all_reduce_perf -b 128K -e 4M -f 2 -g 2  # with the other NCCL installed",
    )


def _hang(run: Run) -> Iterator[Finding]:
    """A hang, and a version of which a hang is known: worth an upgrade, and no proof."""
    told = [*seen.of(run, "symptom", what="hang"), *seen.of(run, "torch.watchdog_timeout"), *seen.of(run, "torch.watchdog_stuck")]
    version = facts.nccl_version(run)
    capabilities: list[str | None] = [*sorted(seen.capabilities(run))]
    known = [bug for each in capabilities or [None] for bug in nccl_policy.bugs(version, each, "hang", gpu_names=seen.gpu_names(run))]
    if not told or not known:
        return
    bug = known[0]
    yield Finding(
        code="nccl-version-bug",
        severity="info",
        confidence="possible",
        title=f"NCCL {version} is known to hang: {bug.title}",
        evidence=(
            *seen.lines(told, 2),
            *seen.lines(seen.of(run, "nccl.version")[:1]),
            evidence(f"{bug.source} ({bug.date})", "nccl policy data"),
        ),
        effect="Other causes of a hang look the same; this one goes away with the version.",
        remedy=f"Use NCCL {bug.good_version} or newer: `pip install 'nvidia-nccl-cu12>={bug.good_version}'` (cu13 for CUDA 13).",
        confirm="wiretax check --quick  # with the other NCCL installed",
    )


def _error(run: Run) -> Iterator[Finding]:
    """An error whose very words are known of this version."""
    version = facts.nccl_version(run)
    said = [o for o in run.observations if o.kind == "nccl.warning"]
    for bug in nccl_policy.bugs(version, None, "error"):
        found = [o for o in said if bug.message is not None and re.search(bug.message, seen.text(o, "message"))]
        found = [o for o in found if o.values.get("category") not in ("shm_cuda_failure", "nvls_failure")]
        if not found:
            continue
        yield Finding(
            code="nccl-version-bug",
            severity="info" if bug.unspecific else "problem",
            confidence="possible" if bug.unspecific else "likely",
            title=f"NCCL {version} is known to print this: {bug.title}",
            evidence=(*seen.lines(found, 3), evidence(f"{bug.source} ({bug.date})", "nccl policy data")),
            effect="The job stops at its start. Other faults print the same words." if bug.unspecific else "The job stops at its start.",
            remedy=f"Use NCCL {bug.good_version} or newer: `pip install 'nvidia-nccl-cu12>={bug.good_version}'` (cu13 for CUDA 13), or a "
            "newer torch.",
            confirm='python -c "import torch; print(torch.cuda.nccl.version())"  # then run again with the other NCCL',
        )
        return


def _talk_past(run: Run) -> Iterator[Finding]:
    """Ranks whose first messages have other sizes: before any collective that is no matter of the program's operations."""
    odd = seen.warnings(run, "bootstrap_mismatch")
    if odd and not seen.warnings(run, "version_mismatch"):
        yield Finding(
            code="nccl-version-mismatch",
            severity="info",
            confidence="possible",
            title="Ranks send each other first messages of other sizes: perhaps different NCCL versions, or two jobs on one address",
            evidence=seen.lines((*odd, *seen.of(run, "nccl.version")), 4),
            effect="The job stops at its start.",
            remedy="Print NCCL's version and the world size on every host; they must be equal. See that no other job uses this MASTER_ADDR "
            "and MASTER_PORT.",
            confirm='python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"  # on every host',
        )


def _mixed(run: Run) -> Iterator[Finding]:
    stated: tuple[Observation, ...] = seen.warnings(run, "version_mismatch")
    lacking = seen.of(run, "torch.nccl_symbol")
    if lacking:
        yield Finding(
            code="nccl-version-mismatch",
            severity="problem",
            confidence="certain",
            title=f"torch loads an NCCL that is older than it needs: it has no {seen.text(lacking[0], 'symbol')}",
            evidence=seen.lines((*lacking, *(o for o in seen.of(run, "package") if seen.text(o, "name").startswith("nvidia-nccl"))), 4),
            effect="torch cannot even be imported.",
            remedy="One NCCL only: `pip list | grep nccl` and remove the other (cu11 beside cu12), clear LD_LIBRARY_PATH and LD_PRELOAD "
            "of a system libnccl, import torch before cupy or tensorflow, or install torch anew with its dependencies.",
            confirm="LD_DEBUG=libs python -c 'import torch' 2>&1 | grep libnccl",
        )
        return
    packages = [o for o in seen.of(run, "package") if seen.text(o, "name").startswith("nvidia-nccl")]
    logged = (*seen.of(run, "nccl.version", library="NCCL"), *seen.of(run, "package", name="torch's nccl"))
    versions = {nccl_policy.parse_version(seen.text(o, "version")) for o in logged}
    other = [o for o in packages if versions and nccl_policy.parse_version(seen.text(o, "version")) not in versions]
    if stated or len(versions) > 1:
        shown = (*seen.lines(stated, 3), *seen.lines(logged, 4))
        yield Finding(
            code="nccl-version-mismatch",
            severity="problem" if stated else "warning",
            confidence="certain" if stated else "likely",
            title="Ranks of one job load different NCCL versions" if stated else "The logs are of more than one NCCL version",
            evidence=shown,
            effect="NCCL refuses to join them, or they hang." if stated else "If the ranks are of one job, they cannot be joined.",
            remedy="Install the same torch and NCCL on every host; look for an LD_LIBRARY_PATH or LD_PRELOAD that differs.",
            confirm='srun --ntasks-per-node=1 python -c "import torch; print(torch.cuda.nccl.version())"',
        )
    elif other and (seen.is_pasted(run) or not (run.machine and run.machine.software.nccl_found)):
        yield Finding(
            code="nccl-version-mismatch",
            severity="info",
            confidence="likely",
            title="The NCCL that runs is not the one that pip installed",
            evidence=(*seen.lines(logged, 1), *seen.lines(other, 2)),
            effect="A library path or preload pulls in another library; upgrading the package changes nothing.",
            remedy="Clear what pulls it in: `env -u LD_PRELOAD -u LD_LIBRARY_PATH wiretax check`.",
            confirm="LD_DEBUG=libs python -c 'import torch' 2>&1 | grep 'init.*libnccl'",
        )


def _torch(run: Run) -> Iterator[Finding]:
    cpu_only = [*seen.of(run, "torch.cpu_build"), *seen.of(run, "torch.build", is_cpu_build=True)]
    software = run.machine.software if run.machine else None
    said_by_machine = (
        software is not None and software.torch is not None and "+cpu" in software.torch and bool(run.machine and run.machine.gpus)
    )
    if not cpu_only or said_by_machine:
        return
    yield Finding(
        code="torch-without-cuda",
        severity="problem",
        confidence="certain" if seen.gpu_names(run) or (run.machine and run.machine.gpus) else "likely",
        title="This torch is a build without CUDA",
        evidence=seen.lines(cpu_only, 3),
        effect="It uses no GPU, and NCCL is not in it either.",
        remedy="Install a CUDA build: `pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128` (or the "
        "cu number "
        "that the driver supports).",
        confirm='python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"',
    )


def _gloo(run: Run) -> Iterator[Finding]:
    """Whether gloo was chosen, or NCCL is not there; on a machine that has no GPU either is right."""
    chosen = seen.of(run, "torch.backend", backend="gloo")
    missing = seen.of(run, "torch.nccl_missing")
    windows = seen.of(run, "torch.no_redirects") or seen.of(run, "gpu.driver_model")
    gpus = bool(seen.gpu_names(run) or (run.machine and run.machine.gpus) or seen.log(run) or seen.of(run, "launcher.gpu_used"))
    both = seen.of(run, "torch.backend", backend="nccl")
    if not chosen and not missing:
        return
    if (both and not missing) or (not gpus and not missing):
        return
    measured = [o for o in seen.of(run, "bandwidth.collective") if o.values.get("backend") in ("gloo", "nccl")]
    shown: tuple[Observation, ...] = (*chosen, *missing, *measured[:2], *windows[:1])
    yield Finding(
        code="backend-gloo",
        severity="problem" if gpus else "warning",
        confidence="certain" if chosen and gpus else "likely",
        title="The job runs over gloo although it has GPUs" if chosen else "This torch has no NCCL, so only gloo is left for GPUs",
        evidence=seen.lines(shown),
        effect="gloo copies GPU memory to the host and sends it over TCP: ten to a hundred times slower than NCCL.",
        remedy="There is no NCCL on Windows: run under Linux, or WSL2."
        if windows or (missing and not chosen)
        else 'Use NCCL: `torch.distributed.init_process_group("nccl")`, or "cpu:gloo,cuda:nccl" where both are needed.',
        confirm='python -c "import torch.distributed as d; print(d.is_nccl_available())"',
    )


def _cuda(run: Run) -> Iterator[Finding]:
    """CUDA's own refusals at its start, each with its number."""
    beyond = [
        *(o for o in seen.of(run, "torch.cuda_error") if "invalid device ordinal" in seen.text(o, "error")),
        *(o for o in seen.of(run, "nccl_tests.failure") if re.search(r"invalid device ordinal|ErrorInvalidDevice", seen.text(o, "error"))),
    ]
    if beyond:
        yield Finding(
            code="too-few-gpus",
            severity="problem",
            confidence="likely",
            title="A rank asks for a GPU that it does not see: more ranks were started on the host than it has, or may see, GPUs",
            evidence=seen.lines(beyond, 4),
            effect="That rank ends, and the others wait for it.",
            remedy="Start as many ranks a host as `nvidia-smi -L` shows there (`--nproc-per-node`, `-N`, slots in the hostfile; nccl-tests "
            "take ranks times `-g`), choose the GPU by LOCAL_RANK and not by the global rank, and look at CUDA_VISIBLE_DEVICES.",
            confirm='python -c "import torch; print(torch.cuda.device_count())"; echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK',
        )
    for observation in (*seen.of(run, "torch.cuda_init"), *seen.warnings(run, "cuda_version")):
        error = seen.text(observation, "error")
        code = seen.whole(observation, "code")
        if code == 35 or "insufficient" in error or "too old" in error:
            yield Finding(
                code="driver-too-old",
                severity="problem",
                confidence="certain",
                title="The driver is too old for the CUDA that torch brings",
                evidence=seen.lines([observation]),
                effect="No GPU can be used.",
                remedy="Upgrade the driver, or install a torch for an older CUDA (see the CUDA version that `nvidia-smi` prints).",
                confirm='nvidia-smi | head -4; python -c "import torch; print(torch.version.cuda)"',
            )
            return
        if "captured in a graph" in error:
            yield Finding(
                code="driver-too-old",
                severity="problem",
                confidence="likely",
                title="NCCL cannot run inside a CUDA graph here: the driver is older than 465, or NCCL was built for CUDA before 11.3",
                evidence=seen.lines([observation]),
                effect="Collectives in a captured graph fail with 'invalid usage'.",
                remedy="Upgrade the driver (or the NCCL of the environment); until then run without graphs, for example vLLM with "
                "`--enforce-eager`.",
                confirm="nvidia-smi --query-gpu=driver_version --format=csv",
            )
            return
        if "busy or unavailable" in error:
            yield Finding(
                code="gpu-busy",
                severity="problem",
                confidence="likely",
                title="A GPU is held by another process, or in exclusive mode",
                evidence=seen.lines((observation, *seen.of(run, "gpu.compute_mode"))),
                effect="The rank that wants it stops, and the others wait.",
                remedy="End the other process, or `sudo nvidia-smi -c DEFAULT`; start one rank a GPU.",
                confirm="nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
            )
            return

"""The staged path failing in a log: shared memory that is full, cuMem host memory that does not work, and plain use of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.checks.shm import BYTES_PER_CONNECTION, CHANNELS_AT_LEAST
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import size

AMPLE_BYTES = 2**30
"""With this much shared memory free, a failed segment has another cause."""

_CUMEM_FROM = (2, 24, 0)
"""From here on NCCL may allocate the staged path's buffers through cuMem instead of /dev/shm (NCCL 2.24 change list)."""

_SHARED_FILE = re.compile(r"shmutils|include/shm\.h")
_OTHER_REASON = re.compile(r"permission|not permitted|no such file|read-only|too many open files", re.IGNORECASE)


def check(run: Run) -> Iterator[Finding]:
    """Reads NCCL's warnings; sizes that were pasted along raise or lower the confidence."""
    cumem = _cumem_failures(run)
    small = list(_too_small(run, {(o.source, o.line) for o in cumem}))
    yield from small
    if not small and not cumem:
        yield from _cured(run)
    if cumem:
        yield _cumem_failed(run, cumem)
    fallback = seen.of(run, "nccl.cumem_host_fallback")
    if fallback:
        yield Finding(
            code="cumem-host-fallback",
            severity="info",
            confidence="certain",
            title="NCCL fell back from cuMem host memory to /dev/shm",
            evidence=seen.lines(fallback),
            effect="It works; /dev/shm must then be large enough, and ranks that decide differently fail.",
            remedy="Give the container NUMA rights (`docker run --cap-add SYS_NICE`) and a large `--shm-size`, or settle it for all ranks: "
            "`export NCCL_CUMEM_HOST_ENABLE=0`.",
            confirm="NCCL_CUMEM_HOST_ENABLE=0 wiretax check --quick && df -h /dev/shm",
        )
    yield from _removed(run)
    yield from _absent(run)
    yield from _peer_mappings(run)
    yield from _in_use(run)


def _too_small(run: Run, elsewhere: set[tuple[str, int]]) -> Iterator[Finding]:
    full = [*seen.warnings(run, "shm_no_space"), *(o for o in seen.of(run, "nccl.shm_retry") if "space" in seen.text(o, "error"))]
    absent = bool(seen.warnings(run, "shm_absent"))
    failed = [
        o
        for o in seen.warnings(run, "shm_segment", "shm_cuda_failure")
        if not (absent and "attaching" in seen.text(o, "message"))
        and (o.source, o.line) not in elsewhere
        and not _OTHER_REASON.search(seen.text(o, "error"))
    ]
    bus_errors = [o for o in seen.of(run, "torch.rank_failed") if o.values.get("signal") == 7 or o.values.get("exit_code") == -7]
    machine = run.machine
    total = machine.surroundings.dev_shm_bytes if machine else None
    free = machine.surroundings.dev_shm_free_bytes if machine else None
    small = total is not None and total < AMPLE_BYTES
    loader = seen.of(run, "torch.shared_memory")
    default = [o for o in seen.of(run, "container.run") if o.values.get("shm_size_bytes") is None and o.values.get("ipc") is None]
    default += [o for o in seen.of(run, "container.shm_note") if (seen.whole(o, "bytes") or 0) < AMPLE_BYTES]
    refused = [o for o in seen.of(run, "torch.nccl_error") if "ystem" in seen.text(o, "error")]
    if not full and not failed and not (bus_errors and (small or default)):
        yield from _loaders(loader, default, total, refused)
        return
    shown = [*seen.lines((*full, *failed, *bus_errors, *loader), 4)]
    if total is not None:
        text = f"/dev/shm holds {size(total)}" + (f", {size(free)} free" if free is not None else "")  # noqa: S108 - a sentence, no file is made
        shown.append(evidence(text, "machine.surroundings"))
    elif default:
        shown += seen.lines(default, 1)
    roomy = not full and free is not None and free >= AMPLE_BYTES
    severity: Severity = "info" if roomy else "problem"
    confidence: Confidence = "possible" if roomy else "certain" if full or small else "likely"
    yield Finding(
        code="dev-shm-too-small",
        severity=severity,
        confidence=confidence,
        title="NCCL cannot make its shared memory although /dev/shm has room: look at the container's memory limit"
        if roomy
        else "Shared memory (/dev/shm) is too small for ranks that talk through host memory",
        evidence=tuple(shown),
        effect=_need(run, (*full, *failed)),
        remedy="Raise the container's or job's memory limit (shared memory counts towards it), and remove stale segments: `rm "
        "/dev/shm/nccl-*`."
        if roomy
        else "Give the container more: `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` at "
        "/dev/shm. Remove stale segments: `rm /dev/shm/nccl-*`.",
        confirm="df -h /dev/shm && ls -l /dev/shm",
    )


def _cured(run: Run) -> Iterator[Finding]:
    """Somebody gave the container more shared memory, and the trouble went."""
    cured = seen.of(run, "shm.cured")
    if cured:
        failures = [*seen.of(run, "torch.nccl_error"), *seen.of(run, "nccl_tests.failure"), *seen.of(run, "symptom")]
        yield Finding(
            code="dev-shm-too-small",
            severity="problem",
            confidence="likely",
            title="Shared memory (/dev/shm) was too small: with more of it the trouble is gone",
            evidence=seen.lines((*cured, *failures), 4),
            effect=_need(run, ()),
            remedy="Start every such container with `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes give it an emptyDir with "
            "`medium: Memory` at /dev/shm.",
            confirm="df -h /dev/shm && ls -l /dev/shm",
        )


def _need(run: Run, failed: tuple[Observation, ...]) -> str:
    """The sum people should do: segments of the size in the message, two channels and a segment for each rank at least."""
    each = max((n for o in failed if (n := seen.whole(o, "size_bytes"))), default=BYTES_PER_CONNECTION)
    log = seen.log(run)
    ranks = (log.num_ranks if log else None) or len(facts.usable_gpus(run.machine)) or 2
    channels = max((n for o in seen.of(run, "nccl.channels") if (n := seen.whole(o, "collective"))), default=CHANNELS_AT_LEAST)
    need = each * ranks * max(channels, CHANNELS_AT_LEAST)
    return (
        f"NCCL stops at its start. It needs about {size(need)}: {ranks} ranks with {max(channels, CHANNELS_AT_LEAST)} channels of "
        f"{size(each)}; "
        "Docker gives 64 MiB unless told otherwise."
    )


def _cumem_failures(run: Run) -> tuple[Observation, ...]:
    """Failures of the newer way: the file is the transport's own, the version may use cuMem, and nothing says that space is lacking."""
    version = nccl_policy.parse_version(facts.nccl_version(run))
    if version is not None and version < _CUMEM_FROM:
        return ()
    found = []
    for observation in seen.warnings(run, "shm_cuda_failure", "shm_segment", "peer_failure"):
        file, message = seen.text(observation, "file"), seen.text(observation, "message")
        from_transport = "transport/shm." in file
        says_cumem = re.search(r"\bcuMem", message) is not None
        # A fallback rank reads its peer's cuMem handle as a file name: an unprintable or no name, or size 0 (NVIDIA/nccl issue 2190).
        unnamed = version is not None and seen.text(observation, "path").endswith("/nccl-")
        misread = "attaching" in message and (observation.values.get("size_bytes") == 0 or unnamed)
        if (says_cumem or misread or (from_transport and "Cuda failure" in message)) and not _SHARED_FILE.search(
            file if not misread else ""
        ):
            found.append(observation)
    return tuple(found)


def _cumem_failed(run: Run, failures: tuple[Observation, ...]) -> Finding:
    version = facts.nccl_version(run)
    return Finding(
        code="cumem-host-shm-failed",
        severity="problem",
        confidence="likely",
        title="NCCL's host memory through cuMem does not work here" + (f" (NCCL {version})" if version else ""),
        evidence=seen.lines(failures),
        effect="NCCL stops at its start wherever GPUs talk through host memory.",
        remedy="`export NCCL_CUMEM_HOST_ENABLE=0` on all ranks (then /dev/shm must be large enough); in Docker `--cap-add SYS_NICE` also "
        "lets it use NUMA memory. A newer driver or NCCL may cure it.",
        confirm="NCCL_CUMEM_HOST_ENABLE=0 wiretax check --quick",
    )


def _removed(run: Run) -> Iterator[Finding]:
    """NCCL's own guide names the usual cause: systemd clears what a user without a login session owns."""
    gone = seen.warnings(run, "shm_removed")
    if gone:
        yield Finding(
            code="shm-removed",
            severity="problem",
            confidence="likely",
            title="NCCL's shared memory was removed under its feet: systemd clears up after users who are not logged in",
            evidence=seen.lines(gone, 3),
            effect="The job stops at its start, on some hosts and at some times only.",
            remedy="Set `RemoveIPC=no` in /etc/systemd/logind.conf and `sudo systemctl restart systemd-logind` on each host; see too that "
            "no other job or script deletes /dev/shm/nccl-*.",
            confirm="grep -ri removeipc /etc/systemd/logind.conf*",
        )


def _absent(run: Run) -> Iterator[Finding]:
    """A segment that one rank made is not in the /dev/shm of another: two of them, or somebody clears up."""
    missed = seen.warnings(run, "shm_absent")
    if missed and not seen.warnings(run, "shm_removed", "shm_no_space"):
        yield Finding(
            code="shm-removed",
            severity="problem",
            confidence="likely",
            title="A rank does not find the shared memory that another one made: each has a /dev/shm of its own, or it was removed",
            evidence=seen.lines(missed, 3),
            effect="NCCL stops at its start; /dev/shm need not be full.",
            remedy="Ranks in several containers of one machine need one /dev/shm (`docker run --ipc=host`, or a common volume there), or "
            "must be told apart (`export NCCL_HOSTID=NAME`, another one in each). In one container or without any: `RemoveIPC=no` in "
            "/etc/systemd/logind.conf, and no other job may delete /dev/shm/nccl-*.",
            confirm="ls -l /dev/shm; readlink /proc/self/ns/ipc /proc/self/ns/mnt  # in each rank's container",
        )


def _peer_mappings(run: Run) -> Iterator[Finding]:
    found = [
        *seen.warnings(run, "peer_mapping_limit"),
        *(o for o in seen.of(run, "torch.cuda_error") if "peer mapping" in seen.text(o, "error")),
    ]
    if not found:
        return
    yield Finding(
        code="peer-mapping-limit",
        severity="problem",
        confidence="certain",
        title="A GPU has more peers over PCIe than CUDA can map (8)",
        evidence=seen.lines(found),
        effect="NCCL stops at its start when a job uses more GPUs of this host.",
        remedy="Use at most 9 GPUs of the host in one job, or keep peer to peer under one switch: `export NCCL_P2P_LEVEL=PIX`; "
        "`NCCL_P2P_DISABLE=1` works with all of them.",
        confirm="NCCL_P2P_LEVEL=PIX wiretax check --quick",
    )


def _loaders(
    killed: tuple[Observation, ...], default: list[Observation], total: int | None, refused: list[Observation]
) -> Iterator[Finding]:
    """Workers of the data loader that ran out of shared memory, or a container that starts with the engine's default of it."""
    noted = [o for o in default if o.kind == "container.shm_note"]
    if not killed and not noted:
        return
    room = f" ({size(total)})" if total is not None else ""
    if noted and refused and not killed:
        # A system error of NCCL inside a container with so little shared memory; the log that would prove it was not switched on.
        yield Finding(
            code="dev-shm-too-small",
            severity="problem",
            confidence="likely",
            title="NCCL stops with a system error in a container with little shared memory (/dev/shm)",
            evidence=seen.lines((*noted, *refused), 4),
            effect="Ranks that talk through host memory need some 10 MB of it for each connection; without it none can start.",
            remedy="Give the container more: `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with "
            "`medium: Memory` at /dev/shm. If it fails still, `NCCL_DEBUG=WARN` names the call.",
            confirm="df -h /dev/shm",
        )
        return
    yield Finding(
        code="dev-shm-too-small",
        severity="problem" if killed else "info",
        confidence="likely",
        title=f"A loader's worker ran out of shared memory: /dev/shm{room} is too small"
        if killed
        else f"The container starts with the default of shared memory{room}, which is little for NCCL and loaders",
        evidence=seen.lines((*killed, *default), 4),
        effect="Batches travel from loader to trainer through /dev/shm, and so does NCCL without peer to peer; full, it kills the job.",
        remedy="Give the container more: `docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` at "
        "/dev/shm. With `num_workers=0` the loader needs none.",
        confirm="df -h /dev/shm",
    )


def _in_use(run: Run) -> Iterator[Finding]:
    """The log shows the plain way through host memory and no failure: an experiment to offer, not a fault."""
    log = seen.log(run)
    if log is None or "staged" not in log.classes or "net" in log.by_class or seen.nvlink_joins_all(run):
        return
    lines = log.by_class["staged"]
    if facts.nccl_setting(run, "NCCL_P2P_DISABLE") is not None or any("/CE" in seen.text(o, "transport") for o in lines):
        return
    shown: tuple[Evidence, ...] = seen.lines(lines, 3)
    yield Finding(
        code="shm-tuning",
        severity="info",
        confidence="possible",
        title=f"GPUs talk through host memory ({seen.transport_names(lines, 2)}); a few settings may help",
        evidence=shown,
        effect="What they bring differs by machine: from nothing to 5x for the copy engine on one published 4x RTX 4090.",
        remedy="Try one at a time and keep what makes steps shorter: `NCCL_SHM_USE_CUDA_MEMCPY=1` (undocumented), `NCCL_BUFFSIZE=1048576`, "
        "`NCCL_MIN_NCHANNELS=8`.",
        confirm="NCCL_SHM_USE_CUDA_MEMCPY=1 wiretax check --quick",
    )

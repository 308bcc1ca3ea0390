"""RDMA cards that fail at work: locked memory, lost connections, calls of the RDMA library that fail, ports that go down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.judge.checks.network import across_hosts
from wiretax.model.finding import Confidence, Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import size

_ENOUGH_MEMLOCK_BYTES = 2**30
_REFUSED = re.compile(r"bad address|not supported", re.IGNORECASE)

STATUS_RETRY = (12, 13)
"""``IBV_WC_RETRY_EXC_ERR`` and ``IBV_WC_RNR_RETRY_EXC_ERR`` of rdma-core's verbs.h."""

STATUS_PROTECTION = (4, 10)
"""``IBV_WC_LOC_PROT_ERR`` and ``IBV_WC_REM_ACCESS_ERR``: the card was refused the memory."""

_PROTECTION_REMEDY = (
    " The card was refused the memory: see whether it happens without GPUDirect RDMA too (`export NCCL_NET_GDR_LEVEL=LOC`); if not, look "
    "at the IOMMU and at nvidia-peermem."
)


def check(run: Run) -> Iterator[Finding]:
    """What the cards themselves report, wherever NCCL's log has it."""
    yield from _memlock(run)
    yield from _retries(run)
    yield from _verbs(run)
    yield from _events(run)


def _memlock(run: Run) -> Iterator[Finding]:
    failed = (*seen.warnings(run, "memlock"), *seen.of(run, "limit.memlock", warned=True), *seen.of(run, "limit.lock_failed"))
    if not failed:
        return
    limits = [o for o in seen.of(run, "limit.memlock") if o.values.get("which") != "hard" and o.values.get("bytes") is not None]
    low = [o for o in limits if (seen.whole(o, "bytes") or 0) < _ENOUGH_MEMLOCK_BYTES]
    unlimited = seen.of(run, "limit.memlock", unlimited=True)
    confidence: Confidence = "certain" if low else "possible" if unlimited and not low else "likely"
    shown = [*seen.lines(failed, 2), *seen.lines(low or unlimited, 2)]
    known = run.machine.surroundings.memlock_bytes if run.machine else None
    title = "The network card may not lock memory: the limit of locked memory is too low"
    if known is not None and low:
        title += f" ({size(known)})"
    yield Finding(
        code="memlock-limit",
        severity="info" if confidence == "possible" else "problem",
        confidence=confidence,
        title=title if confidence != "possible" else "Memory could not be locked although this limit is unlimited: another shell's limit?",
        evidence=tuple(shown),
        effect="InfiniBand cannot register NCCL's buffers; it is not the host's memory that ran out.",
        remedy="Lift it where the job starts: `docker run --ulimit memlock=-1`, `* soft memlock unlimited` and `* hard memlock "
        "unlimited` in "
        "/etc/security/limits.conf, `LimitMEMLOCK=infinity` in the unit of slurmd or containerd.",
        confirm="ulimit -l  # in the job itself, e.g. srun bash -c 'ulimit -l'",
    )


def _retries(run: Run) -> Iterator[Finding]:
    completions = seen.warnings(run, "ib_completion")
    if transfers := seen.warnings(run, "ofi_completion"):
        yield _ofi_failed(transfers)
    retries = [o for o in completions if o.values.get("status") in STATUS_RETRY or "RETRY" in seen.text(o, "status_name")]
    if not retries:
        others = [o for o in completions if o not in retries and o.values.get("status") not in (5, None)]
        if others:
            yield Finding(
                code="check-fabric",
                severity="warning",
                confidence="likely",
                title=f"The InfiniBand card reports an error: {seen.text(others[0], 'status_name')}",
                evidence=seen.lines(others),
                effect="The connection between two ranks broke, and the job ended or hangs.",
                remedy="Look at both ends: `ibstat`, `dmesg`, and the first error in the other ranks' logs."
                + (_PROTECTION_REMEDY if any(o.values.get("status") in STATUS_PROTECTION for o in others) else ""),
                confirm="ibstat && sudo dmesg | grep -i mlx5",
            )
        return
    yield Finding(
        code="ib-retry-exceeded",
        severity="problem",
        confidence="likely",
        title="InfiniBand gave up resending: the other end does not answer, or the way to it loses packets",
        evidence=seen.lines((*retries, *seen.warnings(run, "ib_event"))),
        effect="The connection of two ranks is dead, and all ranks stop.",
        remedy="First see whether the peer's process or node died (its log, its dmesg). If not: link and cable (`ibstat`, "
        "`ibdiagnet`), on RoCE "
        "the GID (`NCCL_IB_GID_INDEX=3`), flow control and MTU; `NCCL_IB_TIMEOUT=22` only hides a lossy way.",
        confirm="ib_write_bw -d DEVICE PEER",
    )


def _ofi_failed(transfers: tuple[Observation, ...]) -> Finding:
    return Finding(
        code="check-fabric",
        severity="problem",
        confidence="likely",
        title="A transfer between two hosts failed in libfabric (EFA, Slingshot), below NCCL",
        evidence=seen.lines(transfers, 4),
        effect="The connection of two ranks is dead, and all ranks stop.",
        remedy="First see whether the peer's process or node died (its log, its dmesg). If not, test libfabric without NCCL: "
        "`fi_pingpong -p efa PEER`; on AWS the security group must allow all traffic from itself, and plugin, libfabric and NCCL must fit "
        "each other (`FI_LOG_LEVEL=warn` names the reason).",
        confirm="fi_info -p efa && fi_pingpong -p efa PEER",
    )


def _verbs(run: Run) -> Iterator[Finding]:
    """Calls of the RDMA library that failed: connecting two cards, opening one, registering the GPU's memory."""
    calls = seen.warnings(run, "ib_call")
    connecting = [o for o in calls if re.search(r"modify_qp|create_ah", seen.text(o, "call"))]
    connecting += seen.of(run, "rdma.not_connected")
    if connecting:
        yield Finding(
            code="check-fabric",
            severity="problem",
            confidence="likely",
            title="Two network cards cannot be connected: the one does not reach the other over RDMA",
            evidence=seen.lines((*connecting, *seen.of(run, "nccl.ib_device")), 4),
            effect="The job stops at its start, or at the first operation between these two cards; TCP between the hosts may well work.",
            remedy="Test that pair of cards: `ib_write_bw -d DEVICE PEER`. On RoCE all cards of a job need an address and a way to each "
            "other: choose the GID (`show_gids`, `NCCL_IB_GID_INDEX=3`), leave out cards of another network (`NCCL_IB_HCA=mlx5_0,mlx5_1`), "
            "and where only cards of the same number reach each other set `NCCL_CROSS_NIC=0`. In a container the GIDs belong to the "
            "network namespace: `--network=host`, or an RDMA device plugin.",
            confirm="show_gids && ib_write_bw -d DEVICE PEER",
        )
    registering = [o for o in calls if re.search(r"reg_(?:dmabuf_)?mr", seen.text(o, "call")) and _REFUSED.search(seen.text(o, "error"))]
    if seen.of(run, "rdma.gpu_buffer"):
        registering += seen.of(run, "rdma.not_registered")
    dmabuf = any("dmabuf" in seen.text(o, "call") for o in registering)
    if registering and not seen.warnings(run, "memlock"):
        yield Finding(
            code="gdr-missing",
            severity="warning",
            confidence="likely",
            title="The network card cannot register the GPU's memory: GPUDirect RDMA does not work here",
            evidence=seen.lines(registering, 3),
            effect="NCCL stops where it tries; without GPUDirect it runs, and copies through host memory.",
            remedy=(
                "The kernel or the card's driver has no DMA-BUF: `export NCCL_DMABUF_ENABLE=0` lets NCCL use nvidia_peermem. "
                if dmabuf
                else ""
            )
            + "`sudo modprobe nvidia_peermem` on each host, after the driver and OFED were installed in that order (or build the driver "
            "anew against OFED). To go on meanwhile: `export NCCL_NET_GDR_LEVEL=LOC`.",
            confirm="lsmod | grep -E 'nvidia_peermem|nv_peer_mem' && NCCL_NET_GDR_LEVEL=LOC NCCL_DEBUG=INFO wiretax check --quick",
        )
    no_efa = seen.warnings(run, "no_efa")
    if no_efa:
        yield Finding(
            code="ib-device-not-passed",
            severity="warning",
            confidence="likely",
            title="The EFA plugin finds no EFA card, as in a container without the card's device files",
            evidence=seen.lines(no_efa, 4),
            effect="NCCL stops there, or gradients between hosts cross TCP.",
            remedy="Pass the devices: `docker run --device=/dev/infiniband/uverbs0` for each card, with `--ulimit memlock=-1` and "
            "`--network=host`; in Kubernetes the EFA device plugin (`vpc.amazonaws.com/efa`). The instance itself must have the cards.",
            confirm="fi_info -p efa -t FI_EP_RDM && ls /dev/infiniband",
        )
    opening = [*seen.warnings(run, "ib_device"), *(o for o in calls if "open_device" in seen.text(o, "call"))]
    if opening:
        log = seen.log(run)
        alone = log is not None and log.one_host is True
        yield Finding(
            code="ib-device-not-passed",
            severity="info" if alone else "warning",
            confidence="likely",
            title="NCCL sees an RDMA card and may not open it, as in a container without the card's device files",
            evidence=seen.lines((*opening, *seen.of(run, "nccl.no_ib_device")), 4),
            effect="On one host nothing." if alone else "Gradients between hosts cross TCP, ten times slower or worse.",
            remedy="Pass the devices: `docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 --network=host`; in "
            "Kubernetes an RDMA device plugin. Else look at the rights of /dev/infiniband/uverbs*.",
            confirm="ls -l /dev/infiniband && ibv_devinfo -l",
        )


def _events(run: Run) -> Iterator[Finding]:
    down = [o for o in seen.of(run, "network.infiniband") if seen.text(o, "state").lower() not in ("active", "")]
    events = seen.warnings(run, "ib_event")
    if not events and not down:
        return
    if seen.warnings(run, "ib_completion"):
        return
    # A port without a cable is no fault by itself.
    matters = bool(events) or across_hosts(run)
    yield Finding(
        code="check-fabric",
        severity="warning" if matters else "info",
        confidence="likely" if matters else "possible",
        title="A port of the InfiniBand fabric went down or changed" if events else "A port of an InfiniBand card is not active",
        evidence=seen.lines((*events, *down)),
        effect="Traffic over it stops or takes another way; a job in flight may hang.",
        remedy="Check cable and switch port: `ibstat`, `ibdiagnet`; leave the card out with `NCCL_IB_HCA=^DEVICE` until it is cured.",
        confirm="ibstat",
    )

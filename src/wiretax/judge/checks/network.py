"""Between hosts: which network NCCL took and why not a better one, the interface, locked memory, errors of InfiniBand."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Finding, Severity
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import size

_VIRTUAL = re.compile(
    r"^(?:docker|br-|virbr|veth|cni|flannel|cali|tun|tap|wg|zt|tailscale|vmnet|vbox|lxc|podman|lo$|CloudflareWARP)", re.IGNORECASE
)
_RDMA_DEVICE = re.compile(r"^(?:mlx[45]|bnxt_re|irdma|efa|rdmap|hfi1|qedr|cxgb|erdma|mlx5_bond)", re.IGNORECASE)
_BRIDGES = tuple(ipaddress.ip_network(one) for one in ("172.17.0.0/16", "192.168.122.0/24"))
_ENOUGH_MEMLOCK_BYTES = 2**30
_REFUSED = re.compile(r"bad address|not supported", re.IGNORECASE)

STATUS_RETRY = (12, 13)
"""``IBV_WC_RETRY_EXC_ERR`` and ``IBV_WC_RNR_RETRY_EXC_ERR`` of rdma-core's verbs.h."""


def check(run: Run) -> Iterator[Finding]:
    """On one host a missing InfiniBand library or card is harmless and is not mentioned."""
    yield from _memlock(run)
    yield from _retries(run)
    yield from _verbs(run)
    yield from _open_files(run)
    yield from _subnets(run)
    yield from _interface(run)
    yield from _sockets(run)
    yield from _device_sets(run)
    yield from _events(run)
    yield from _closed(run)


def across_hosts(run: Run) -> bool:
    """Whether the texts show a job over several hosts."""
    log = seen.log(run)
    if log is not None and log.one_host is True:
        return False
    if len(seen.hosts(run)) > 1 or (log is not None and (log.between or (log.num_nodes or 1) > 1)):
        return True
    ranks = [n for o in seen.of(run, "nccl.init") if (n := seen.whole(o, "num_ranks"))]
    gpus = len(facts.usable_gpus(run.machine))
    return bool(ranks) and gpus > 0 and any(seen.of(run, "nccl.network", name="IB")) and max(ranks) > max(gpus, 8)


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
                remedy="Look at both ends: `ibstat`, `dmesg`, and the first error in the other ranks' logs.",
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


def _open_files(run: Run) -> Iterator[Finding]:
    full = seen.warnings(run, "files")
    if not full:
        return
    limits = seen.of(run, "limit.open_files")
    yield Finding(
        code="open-files-limit",
        severity="problem",
        confidence="certain",
        title="A rank ran out of file descriptors (connections count as open files)",
        evidence=seen.lines((*full, *limits), 4),
        effect="It cannot open another connection or shared memory segment, and all ranks stop.",
        remedy="Raise the limit where the job starts: `ulimit -n 65536`, `docker run --ulimit nofile=65536`, `LimitNOFILE=` in the unit of "
        "slurmd or containerd; destroy communicators that are no longer used; many sockets a peer (NCCL_NSOCKS_PERTHREAD) need more.",
        confirm="ulimit -n  # in the job itself, e.g. srun bash -c 'ulimit -n'",
    )


def _subnets(run: Run) -> Iterator[Finding]:
    """Two interfaces in one subnet: the kernel, not NCCL, picks the way out."""
    shared = seen.of(run, "network.same_subnet")
    if not shared:
        return
    context = across_hosts(run) or seen.log(run) is not None or seen.of(run, "nccl.interface") or seen.of(run, "nccl.bootstrap")
    first, second = seen.text(shared[0], "first"), seen.text(shared[0], "second")
    setting = facts.nccl_setting(run, "NCCL_SOCKET_IFNAME")
    shown = list(seen.lines(shared, 2))
    shown += [
        item
        for observation in seen.of(run, "network.interface")
        if observation.values.get("name") in (first, second)
        for item in seen.lines([observation])
        if item not in shown
    ]
    yield Finding(
        code="nics-share-subnet",
        severity="warning" if context else "info",
        confidence="certain",
        title=f"{first} and {second} are both up in {seen.text(shared[0], 'subnet')}: the kernel sends by either of them",
        evidence=tuple(shown),
        effect="NCCL binds to the interface it was told"
        + (f" ({setting[0]})" if setting else "")
        + ", but replies may leave by the other, slower one.",
        remedy="Give each interface a subnet of its own (a /24 each), or policy routing: `ip rule add from ADDRESS table N`; or take "
        "the slow one "
        "down.",
        confirm="ip route get PEER_ADDRESS",
    )


def _interface(run: Run) -> Iterator[Finding]:
    """An interface that other hosts cannot reach, or a setting that names none."""
    nothing: tuple[Observation, ...] = seen.warnings(run, "no_interface")
    setting = facts.nccl_setting(run, "NCCL_SOCKET_IFNAME")
    if setting and not seen.of(run, "nccl.bootstrap"):
        # NCCL before 2.28 goes on without an interface of that name and only fails when it wants to connect.
        nothing += seen.warnings(run, "bad_address")
    if nothing:
        yield Finding(
            code="wrong-interface",
            severity="problem",
            confidence="certain" if setting and seen.warnings(run, "no_interface") else "likely",
            title=f"NCCL finds no network interface{f' called {setting[0]}' if setting else ''}",
            evidence=seen.lines((*nothing, *seen.of(run, "nccl.environment", name="NCCL_SOCKET_IFNAME"))),
            effect="No rank can start.",
            remedy="Name one that exists on every host: `ip -br addr`, then `export NCCL_SOCKET_IFNAME=eth0` (or remove the variable).",
            confirm="ip -br addr",
        )
        return
    failures = [*seen.warnings(run, "connect"), *seen.of(run, "nccl.connect_retry")]
    of_mpi = [o for o in seen.of(run, "mpi.connect_failed") if _is_private_bridge(seen.text(o, "address"))]
    if of_mpi:
        yield _mpi_interface(of_mpi)
    chosen = [*seen.of(run, "nccl.bootstrap"), *seen.of(run, "nccl.interface", net="Socket", index=0)]
    odd = [o for o in chosen if _VIRTUAL.match(seen.text(o, "interface"))]
    own = _inside_one_host(run)
    towards = [o for o in failures if _is_private_bridge(seen.text(o, "address")) or _bare(seen.text(o, "address")) in own]
    if failures and (odd or towards):
        yield _wrong_interface(failures, odd or towards, "problem", "likely")
    elif odd and across_hosts(run):
        yield _wrong_interface([], odd, "warning", "likely")
    elif failures:
        yield Finding(
            code="peer-unreachable",
            severity="problem",
            confidence="likely",
            title="A rank cannot connect to another: wrong address, a firewall, or the other rank died first",
            evidence=seen.lines(failures),
            effect="The job does not start, or ended.",
            remedy="Read the other ranks' logs for an earlier error. If there is none, test the way: `nc -vz ADDRESS PORT`, and choose the "
            "interface: `export NCCL_SOCKET_IFNAME=eth0`.",
            confirm="nc -vz ADDRESS PORT",
        )


def _wrong_interface(failures: list[Observation], odd: list[Observation], severity: Severity, confidence: Confidence) -> Finding:
    name = next((seen.text(o, "interface") for o in odd if o.values.get("interface")), "a bridge inside one host")
    return Finding(
        code="wrong-interface",
        severity=severity,
        confidence=confidence,
        title=f"NCCL talks over {name}, which other hosts cannot reach",
        evidence=seen.lines((*odd, *failures)),
        effect="Ranks on other hosts cannot connect, and the job hangs at its start or stops.",
        remedy="Choose the interface that joins the hosts: `export NCCL_SOCKET_IFNAME=eth0` (or exclude: `^docker,lo,virbr`), on all "
        "hosts.",
        confirm="NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth0 wiretax check --quick 2>&1 | grep 'NET/Socket'",
    )


def _mpi_interface(failures: list[Observation]) -> Finding:
    return Finding(
        code="wrong-interface",
        severity="problem",
        confidence="likely",
        title="Open MPI connects to an address that is another machine on each host (a container bridge, or loopback)",
        evidence=seen.lines(failures, 3),
        effect="The ranks do not start, or hang at their first message.",
        remedy="Leave those interfaces out, for MPI and for NCCL: `mpirun --mca btl_tcp_if_exclude lo,docker0,virbr0 --mca "
        "oob_tcp_if_exclude lo,docker0,virbr0 -x NCCL_SOCKET_IFNAME=^lo,docker0,virbr0`, or name the one that joins the hosts.",
        confirm="ip -br addr",
    )


def _is_private_bridge(address: str) -> bool:
    """Docker's default networks, loopback and link-local: addresses that mean another machine on each host, or none elsewhere."""
    try:
        found = ipaddress.ip_address(_bare(address))
    except ValueError:
        return False
    return found.is_loopback or found.is_link_local or any(found in network for network in _BRIDGES if found.version == network.version)


def _bare(address: str) -> str:
    """The address without port, brackets and scope: ``fe80::1%veth3<37919>`` and ``10.0.0.2:8080`` as NCCL and MPI print them."""
    match = re.match(r"\[?(\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{2,39})", address)
    return match[1] if match else address


def _inside_one_host(run: Run) -> frozenset[str]:
    """Addresses of bridges and the like in NCCL's own list: what a peer cannot reach there, no other host answers at."""
    listed = (*seen.of(run, "nccl.interface"), *seen.of(run, "network.interface"))
    return frozenset(_bare(seen.text(o, "address")) for o in listed if _VIRTUAL.match(seen.text(o, "interface") or seen.text(o, "name")))


def _rdma_hardware(run: Run) -> tuple[Observation, ...]:
    """Lines that show an RDMA card in the machine: topology columns, ibstat, NCCL's topology."""
    return tuple(
        o
        for o in run.observations
        if (o.kind == "topology.nic" and _RDMA_DEVICE.match(seen.text(o, "device") or seen.text(o, "nic")))
        or (o.kind == "network.infiniband" and seen.text(o, "state") in ("Active", ""))
        or (o.kind == "nccl.topology_nic" and _RDMA_DEVICE.match(seen.text(o, "device")))
    )


def _sockets(run: Run) -> Iterator[Finding]:
    """Ranks on several hosts talk TCP: that fact, and what keeps them from the faster card if the text shows one."""
    log = seen.log(run)
    sockets = [o for o in (log.between if log else ()) if "socket" in seen.text(o, "transport").lower()]
    if log is None or log.one_host is True or not sockets:
        return
    hardware = _rdma_hardware(run)
    library = (*seen.warnings(run, "ib_library"), *seen.of(run, "nccl.no_ib_library"))
    nothing = [*seen.of(run, "nccl.no_ib_device"), *(o for o in seen.of(run, "nccl.ofi") if "No eligible" in seen.text(o, "message"))]
    disabled = facts.nccl_setting(run, "NCCL_IB_DISABLE")
    container = bool(run.machine and run.machine.surroundings.container not in (None, "none")) or bool(seen.of(run, "container.run"))
    if disabled is not None and disabled[0].strip() == "1":
        yield Finding(
            code="ib-disabled-by-environment",
            severity="warning" if hardware else "info",
            confidence="certain",
            title="NCCL_IB_DISABLE=1 keeps NCCL from InfiniBand",
            evidence=(*seen.lines(seen.of(run, "nccl.environment", name="NCCL_IB_DISABLE")), *seen.lines(hardware, 2)),
            effect="Gradients between hosts cross TCP.",
            remedy="Remove it where the hosts have working RDMA cards: `unset NCCL_IB_DISABLE`.",
            confirm="env -u NCCL_IB_DISABLE NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep NET/IB",
        )
    elif library:
        yield Finding(
            code="ib-library-missing",
            severity="warning" if hardware else "info",
            confidence="likely" if hardware else "possible",
            title="NCCL finds no InfiniBand library (libibverbs)" + ("" if hardware else "; needed only if the hosts have such cards"),
            evidence=(*seen.lines(library, 2), *seen.lines(hardware, 2)),
            effect="NCCL takes TCP between hosts even where an RDMA card is there.",
            remedy="Install it in the image: `apt-get install -y libibverbs1 ibverbs-providers rdma-core`, and pass the devices: "
            "`docker run --device=/dev/infiniband`.",
            confirm="ldconfig -p | grep libibverbs && ibv_devinfo -l",
        )
    elif nothing and hardware and not seen.warnings(run, "ib_device"):
        yield Finding(
            code="ib-device-not-passed",
            severity="warning",
            confidence="likely",
            title="The machine has RDMA cards, but NCCL sees none" + (" in its container" if container else ""),
            evidence=(*seen.lines(nothing, 2), *seen.lines(hardware, 3)),
            effect="Gradients between hosts cross TCP, ten times slower or worse.",
            remedy="Pass the devices: `docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 --network=host`; in "
            "Kubernetes "
            "an RDMA device plugin.",
            confirm="ls /dev/infiniband && ibv_devinfo -l",
        )
    yield Finding(
        code="sockets-between-hosts",
        severity="warning",
        confidence="certain" if log.one_host is False else "likely",
        title="Ranks that do not share a host talk over TCP sockets",
        evidence=seen.lines((*sockets, *seen.of(run, "nccl.nodes")[:1], *seen.of(run, "nccl.network")[:1])),
        effect="A TCP connection carries 1 to 3 GB/s where RDMA carries 12 to 50: large models wait for their gradients.",
        remedy="If the hosts have RDMA cards, let NCCL see them (above). Else: more sockets (`NCCL_SOCKET_NTHREADS=4 "
        "NCCL_NSOCKS_PERTHREAD=4`), "
        "gradient accumulation, or one larger host. If the ranks are containers of one machine, join them.",
        confirm="NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep -E 'NET/(IB|OFI|Socket)'",
    )


def _device_sets(run: Run) -> Iterator[Finding]:
    """Hosts of one job that use different network cards."""
    mismatch = seen.warnings(run, "device_mismatch")
    by_host: dict[str, set[str]] = {}
    for observation in seen.of(run, "nccl.ib_device"):
        names = [seen.text(observation, "host"), *seen.text(observation, "hosts").split(", ")]
        for host in filter(None, names):
            by_host.setdefault(host, set()).add(f"{seen.text(observation, 'device')}:{seen.text(observation, 'port')}")
    counts = {len(devices) for devices in by_host.values()}
    if not mismatch and len(counts) < 2:
        return
    listed = "; ".join(f"{host}: {', '.join(sorted(devices))}" for host, devices in list(by_host.items())[:4])
    yield Finding(
        code="hca-set-mismatch",
        severity="problem" if mismatch else "warning",
        confidence="certain" if mismatch else "likely",
        title="The hosts of this job use different sets of network cards",
        evidence=(*seen.lines((*mismatch, *seen.of(run, "nccl.ib_device")), 4), *([evidence(listed, "NCCL logs")] if listed else [])),
        effect="NCCL refuses, or runs at the pace of the host with the fewest cards.",
        remedy="Name the same cards on every host: `export NCCL_IB_HCA=mlx5_0,mlx5_1`; look for a port that is down: `ibstat`.",
        confirm="ibstat | grep -E 'CA|State|Rate'",
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


def _closed(run: Run) -> Iterator[Finding]:
    """Almost always a symptom: another rank died first."""
    closed = (*seen.warnings(run, "remote_closed"), *seen.of(run, "torch.store_closed"))
    if not closed or seen.of(run, "torch.watchdog_timeout"):
        return
    yield Finding(
        code="peer-closed",
        severity="info",
        confidence="likely",
        title="A connection was closed by its other end: some other rank failed first",
        evidence=seen.lines(closed, 3),
        effect="What is shown here is the echo, not the cause.",
        remedy="Look for the first error by time in the logs of all ranks (out of memory, a killed process, an Xid).",
        confirm="grep -inE 'error|warn|killed|xid' RANK_LOGS | sort | head",
    )

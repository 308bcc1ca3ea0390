"""Between hosts: which network NCCL took and why not a better one, and the interface."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Finding, Severity
from wiretax.model.observation import Observation
from wiretax.model.run import Run

_VIRTUAL = re.compile(
    r"^(?:docker|br-|virbr|veth|cni|flannel|cali|tun|tap|wg|zt|tailscale|vmnet|vbox|lxc|podman|lo$|CloudflareWARP)", re.IGNORECASE
)
_RDMA_DEVICE = re.compile(r"^(?:mlx[45]|bnxt_re|irdma|efa|rdmap|hfi1|qedr|cxgb|erdma|mlx5_bond)", re.IGNORECASE)
_BRIDGES = tuple(ipaddress.ip_network(one) for one in ("172.17.0.0/16", "192.168.122.0/24"))


def check(run: Run) -> Iterator[Finding]:
    """On one host a missing InfiniBand library or card is harmless and is not mentioned."""
    yield from _open_files(run)
    yield from _subnets(run)
    yield from _interface(run)
    yield from _sockets(run)
    yield from _device_sets(run)
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
    unusable = seen.warnings(run, "bind")
    if unusable and not nothing:
        yield _unusable_interface(unusable, setting[0] if setting else None, run)
        return
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
    # A rank that comes late is tried again; where NCCL's start was completed after all, that was it.
    started = [o for o in seen.of(run, "nccl.init") if seen.text(o, "phase") == "complete"]
    failures = [*seen.warnings(run, "connect"), *(() if started else seen.of(run, "nccl.connect_retry"))]
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


def _unusable_interface(failures: tuple[Observation, ...], name: str | None, run: Run) -> Finding:
    return Finding(
        code="wrong-interface",
        severity="problem",
        confidence="likely",
        title=f"NCCL cannot listen on the network interface it chose{f' ({name})' if name else ''}: the address is not this host's",
        evidence=seen.lines((*failures, *seen.of(run, "nccl.environment", name="NCCL_SOCKET_IFNAME"), *seen.of(run, "nccl.bootstrap"))),
        effect="No rank can start.",
        remedy="The interface went down, lost its address, or belongs to another network namespace: `ip -br addr` where the job runs (in "
        "the container), then name one that is up: `export NCCL_SOCKET_IFNAME=eth0`.",
        confirm="ip -br addr",
    )


def _wrong_interface(failures: list[Observation], odd: list[Observation], severity: Severity, confidence: Confidence) -> Finding:
    name = next((seen.text(o, "interface") for o in odd if o.values.get("interface")), "")
    name = name or ("a link-local address" if any(_is_link_local(seen.text(o, "address")) for o in odd) else "a bridge inside one host")
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


def _is_link_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(_bare(address)).is_link_local
    except ValueError:
        return False


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

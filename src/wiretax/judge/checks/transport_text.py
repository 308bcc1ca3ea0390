"""The way NCCL's log says the data went, against what matrix, driver and NCCL's own rules allow: pasted logs only."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run

_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET", "NCCL_NET_DISABLE_INTRA")
_FAR = ("PHB", "NODE", "SYS")


def check(run: Run) -> Iterator[Finding]:
    """Says nothing where a variable explains the way (that is another finding) or no log was pasted."""
    log = seen.log(run)
    refused = list(_refused_over_nvlink(run))
    yield from refused
    if log is None:
        return
    yield from _isolated(run, log)
    elsewhere = {seen.text(o, "name") for kind in ("environment.command", "environment.code") for o in seen.of(run, kind)}
    if any(facts.nccl_setting(run, name) is not None or name in elsewhere for name in _SWITCHES):
        return
    if "staged" in log.classes:
        yield from _declined(run, log)
        if not refused:
            yield from _not_over_nvlink(run, log)
    if "net" in log.by_class and log.one_host is True:
        yield from _network_within(log)


def _declined(run: Run, log: seen.Log) -> Iterator[Finding]:
    """CUDA could, NCCL would not: its distance policy. Proof is its own line; next best is its silence where it would complain."""
    if seen.of(run, "nccl.p2p_disabled") or seen.of(run, "nccl.p2p_not_enabled") or seen.nvlink_joins_all(run):
        return
    types = seen.of(run, "nccl.p2p_type", all_direct_p2p=False)
    capable = tuple(o for o in types if o.values.get("all_cuda_p2p") is True)
    far = _far_pairs(run, log.by_class["staged"])
    answers = {facts.p2p_allowed(run.machine, *pair) for pair, _ in far}
    granted = True in answers
    if False in answers or (granted and _policy_check_speaks(run)):
        return
    if not capable and not granted and (not types or not far or seen.without_stock_p2p(run)):
        return
    level = "SYS" if not far or any(path == "SYS" for _, path in far) else "PHB"
    shown = [*seen.lines(capable or types, 1), *seen.lines(log.by_class["staged"], 2)]
    if far:
        shown.append(evidence(f"{facts.pairs_text(pair for pair, _ in far)}: {', '.join(sorted({p for _, p in far}))}", "machine.pairs"))
    trial = f"`NCCL_P2P_LEVEL={level} wiretax check --quick`"
    if capable or granted:
        title = "The GPUs could talk peer to peer, but NCCL's distance policy declines: data goes through host memory"
        remedy = f"Compare both with the data checked, and keep the faster one: {trial} and a run without it."
    else:
        title = "NCCL declines peer to peer over this distance: data goes through host memory (the driver's answer is not shown)"
        remedy = f"First ask the driver: `nvidia-smi topo -p2p r`. Where it says OK, compare {trial} with a run without it."
    yield Finding(
        code="p2p-level-too-low",
        severity="info",
        confidence="certain" if capable else "likely",
        title=title,
        evidence=tuple(shown),
        effect="Whether peer to peer is faster here was not measured: through a CPU it may be several times faster, or slower.",
        remedy=remedy,
        confirm=f"NCCL_P2P_LEVEL={level} wiretax check --quick",
    )


def _policy_check_speaks(run: Run) -> bool:
    """Whether the check of the distance policy knows enough to say it with the rule's own words."""
    vendor = run.machine.surroundings.cpu_vendor if run.machine else None
    return nccl_policy.default_policy(facts.nccl_version(run), vendor, len(facts.usable_gpus(run.machine))) is not None


def _far_pairs(run: Run, staged: tuple[Observation, ...]) -> list[tuple[tuple[int, int], str]]:
    """Pairs that the log shows going through host memory and the matrix shows far apart."""
    found: dict[tuple[int, int], str] = {}
    for observation in staged:
        first, second = seen.whole(observation, "source_gpu"), seen.whole(observation, "target_gpu")
        if first is None or second is None or first == second:
            continue
        path = facts.path_between(run.machine, first, second)
        if path in _FAR:
            found[min(first, second), max(first, second)] = path
    return list(found.items())


def _refused_over_nvlink(run: Run) -> Iterator[Finding]:
    """NCCL says it at its start and then stops, so there may be no connection in the log."""
    refused = seen.warnings(run, "p2p_nvlink") + seen.of(run, "nccl.p2p_disabled", nvlink=True)
    if refused:
        yield Finding(
            code="p2p-unsupported",
            severity="critical",
            confidence="certain",
            title="GPUs joined by NVLink are refused peer access: NCCL takes it for a hardware fault and stops",
            evidence=seen.lines(refused),
            effect="The job does not start, or its gradients go through host memory.",
            remedy="Reset the GPUs or reboot; with NVSwitches check the fabric manager; in a virtual machine ask the provider.",
            confirm="nvidia-smi topo -p2p r && nvidia-smi nvlink -s",
        )


def _not_over_nvlink(run: Run, log: seen.Log) -> Iterator[Finding]:
    """NVLink joins a pair, and its data goes through host memory."""
    pairs = []
    lines = []
    for observation in log.by_class["staged"]:
        first, second = seen.whole(observation, "source_gpu"), seen.whole(observation, "target_gpu")
        if first is not None and second is not None and facts.nvlinks_between(facts.path_between(run.machine, first, second)):
            pairs.append((first, second))
            lines.append(observation)
    if pairs:
        yield Finding(
            code="transport-unexpected",
            severity="problem",
            confidence="likely",
            title=f"NVLink joins {facts.pairs_text(pairs)}, but NCCL moves their data through host memory",
            evidence=(*seen.lines(lines, 3), evidence(f"{facts.pairs_text(pairs)}: NVLink", "machine.pairs")),
            effect="Gradients move several times slower than these links allow.",
            remedy="No variable in the text explains it. Let NCCL give its reason: "
            "`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,GRAPH wiretax check --quick`; look for P2P settings in nccl.conf and launcher.",
            confirm="NCCL_P2P_LEVEL=NVL wiretax check --quick",
        )


def _isolated(run: Run, log: seen.Log) -> Iterator[Finding]:
    """Ranks that each count as a host of their own, although their GPUs sit in one machine: containers without shared memory."""
    disabled = [facts.nccl_setting(run, name) for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")]
    if all(setting is not None and setting[0].strip() == "1" for setting in disabled):
        return
    network = (*log.between, *log.by_class.get("net", ()))
    sockets = [o for o in network if "socket" in seen.text(o, "transport").lower()]
    alone = [o for o in seen.of(run, "nccl.nodes") if seen.whole(o, "local_ranks") == 1 and (seen.whole(o, "num_nodes") or 0) > 1]
    if not sockets or not alone:
        return
    buses = {seen.text(o, "bus_id") for o in seen.of(run, "nccl.init") if o.values.get("bus_id")}
    ranks = {seen.whole(o, "rank") for o in seen.of(run, "nccl.init")}
    # Separate machines of one make have their first GPU at the same address; one machine's GPUs never share one.
    likely = len(ranks) > 1 and len(buses) == len(ranks)
    yield Finding(
        code="isolated-ranks-tcp",
        severity="problem" if likely else "info",
        confidence="likely" if likely else "possible",
        title="Every rank is alone on its 'host' and talks TCP; the GPUs' addresses differ, as in one machine cut into containers"
        if likely
        else "Every rank is alone on its 'host' and talks TCP: if the GPUs are in one machine, containers keep them apart",
        evidence=(*seen.lines(alone, 2), *seen.lines(sockets, 2)),
        effect="Ranks in separate containers can use neither peer to peer nor shared memory, so every gradient crosses TCP.",
        remedy="Put all GPUs of a machine into one container or pod (`resources: limits: nvidia.com/gpu: N`), "
        "or share its memory and devices: `docker run --ipc=host --gpus all`, in Kubernetes hostIPC.",
        confirm="nvidia-smi -L | wc -l && readlink /proc/self/ns/ipc",
    )


def _network_within(log: seen.Log) -> Iterator[Finding]:
    """One host, several ranks on it, and yet a network transport."""
    lines = log.by_class["net"]
    sockets = [o for o in lines if "socket" in seen.text(o, "transport").lower()]
    if sockets:
        yield Finding(
            code="isolated-ranks-tcp",
            severity="problem",
            confidence="likely",
            title="GPUs of one host talk over TCP: the ranks cannot share memory",
            evidence=seen.lines(sockets, 4),
            effect="Gradients move ten to a hundred times slower than through host memory.",
            remedy="Put all ranks of a host into one container or pod, or share their memory: `docker run --ipc=host --gpus all`; "
            "in Kubernetes one pod with all GPUs.",
            confirm="readlink /proc/*/ns/ipc | sort | uniq -c",
        )
        return
    yield Finding(
        code="transport-unexpected",
        severity="info",
        confidence="likely",
        title="NCCL sends over the network card although the GPUs share a host",
        evidence=seen.lines(lines, 4),
        effect="NCCL does this where the card is faster than the way between the GPUs.",
        remedy="Compare with `NCCL_NET_DISABLE_INTRA=1 wiretax check --quick` and keep the faster one.",
        confirm="NCCL_NET_DISABLE_INTRA=1 wiretax check --quick",
    )

"""The transport NCCL took, against what the links, the driver and NCCL's own rules allow."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.expectation import best_class
from wiretax.judge.facts import TransportClass, evidence
from wiretax.judge.limits import Unknown
from wiretax.model.finding import Finding
from wiretax.model.measurement import Collective
from wiretax.model.run import Run
from wiretax.units import rate

_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET")
_WORDS = {"p2p": "peer to peer", "staged": "through host memory", "net": "over the network", "gloo": "gloo"}


def check(run: Run) -> Iterator[Finding]:
    """Fires only on what NCCL's log showed of the user's own wire, and only where no setting explains it (that is another finding)."""
    found = [c for operation in ("all_reduce", "all_gather") for c in facts.user_collectives(run, operation) if c.backend == "nccl"]
    collective = next((c for c in found if facts.transports_of(c) and c.world_size > 1), None)
    if collective is None or any(facts.nccl_setting(run, name) is not None for name in _SWITCHES):
        return
    if any(truth.outcome in ("wrong_data", "hang", "error") for truth in run.measurements.peer_truth):
        return
    kinds = facts.transports_of(collective)
    if "net" in kinds:
        yield from _network(run, collective)
        return
    best = best_class(run, collective.gpus) if collective.gpus else Unknown("no GPUs named")
    if isinstance(best, Unknown) or best == "staged" or "staged" not in kinds:
        return
    staged = _pairs(collective, "staged")
    what = "NVLink" if best == "nvlink" else "peer to peer over PCIe"
    yield Finding(
        code="transport-unexpected",
        severity="problem",
        confidence="likely",
        title=f"These GPUs can talk over {what}, but NCCL goes through host memory",
        evidence=(
            evidence(
                f"NCCL's log: {collective.transport or 'SHM'}" + (f" for {facts.pairs_text(staged)}" if staged else ""), "measurements"
            ),
            evidence(f"links and driver allow {what} for {facts.gpus_list(collective.gpus)}", "machine.pairs"),
        ),
        effect=_rate_text(run, collective),
        remedy="No variable explains it. Compare with `NCCL_P2P_LEVEL=SYS wiretax check --quick` and read NCCL's reason: "
        "`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,GRAPH wiretax check --quick`.",
        confirm="NCCL_P2P_LEVEL=SYS wiretax check --quick",
    )


def _network(run: Run, collective: Collective) -> Iterator[Finding]:
    """One host, and yet a network transport."""
    names = {t.name for t in collective.transports} or set((collective.transport or "").split("+"))
    network = sorted(name for name in names if facts.transport_class(name) == "net")
    pairs = _pairs(collective, "net")
    seen = evidence(f"NCCL's log: {', '.join(network)}" + (f" for {facts.pairs_text(pairs)}" if pairs else ""))
    if any("socket" in name.lower() for name in network):
        yield Finding(
            code="isolated-ranks-tcp",
            severity="problem",
            confidence="likely",
            title="GPUs of one host talk over TCP: the ranks cannot share memory",
            evidence=(seen,),
            effect=_rate_text(run, collective),
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
        evidence=(seen,),
        effect=f"{_rate_text(run, collective)} NCCL does this where the card is faster than the way between the GPUs.",
        remedy="Compare with `NCCL_NET_DISABLE_INTRA=1 wiretax check --quick` and keep the faster one.",
        confirm="NCCL_NET_DISABLE_INTRA=1 wiretax check --quick",
    )


def _pairs(collective: Collective, kind: TransportClass) -> list[tuple[int, int]]:
    return [(t.source_gpu, t.target_gpu) for t in collective.transports if facts.transport_class(t.name) == kind]


def _rate_text(run: Run, collective: Collective) -> str:
    kinds = " and ".join(_WORDS[kind] for kind in sorted(facts.transports_of(collective)))
    found = facts.headline(facts.user_collectives(run))
    reached = f": {rate(found[1].busbw_bytes_per_second)} all-reduce over {found[0].world_size} GPUs" if found else ""
    return f"All traffic runs {kinds}{reached}."

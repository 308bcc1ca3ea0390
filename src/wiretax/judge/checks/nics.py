"""Network cards and GPUs: which GPU is far from every card, and whether cards write into GPU memory directly."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.judge.checks.network import across_hosts
from wiretax.judge.facts import evidence, gpus_list
from wiretax.model.finding import Confidence, Evidence, Finding
from wiretax.model.machine import PATH_RANK
from wiretax.model.observation import Observation
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Topology columns and NCCL's GPUDirect lines; both matter only to jobs over several hosts."""
    yield from _far(run)
    yield from _direct(run)


def _far(run: Run) -> Iterator[Finding]:
    """A GPU whose nearest card sits behind another socket, while its fellows have a nearer one."""
    paths = seen.of(run, "topology.nic_path")
    nearest: dict[int, int] = {}
    for observation in paths:
        gpu, rank = seen.whole(observation, "gpu"), PATH_RANK.get(seen.text(observation, "path"))
        if gpu is not None and rank is not None:
            nearest[gpu] = min(rank, nearest.get(gpu, rank))
    far = sorted(gpu for gpu, rank in nearest.items() if rank >= PATH_RANK["SYS"])
    if not far or len(far) == len(nearest):
        return
    cards = sorted({seen.text(o, "device") or seen.text(o, "nic") for o in paths})
    several = across_hosts(run)
    yield Finding(
        code="nic-far-from-gpu",
        severity="warning" if several else "info",
        confidence="certain",
        title=f"{'GPU' if len(far) == 1 else 'GPUs'} {gpus_list(far)}: every network card ({', '.join(cards[:6])}) is behind another "
        "CPU socket",
        evidence=seen.lines(_rows(paths, far)),
        effect="Traffic to other hosts crosses the link between sockets, or is forwarded by a nearer GPU over NVLink (PXN); jobs "
        "inside this "
        "host do not feel it.",
        remedy="For jobs over several hosts keep PXN on (NCCL_PXN_DISABLE=0, the default), give such a job the GPUs near a card first, and "
        "check that GPUDirect RDMA is in use: `NCCL_DEBUG=INFO` shows GDRDMA.",
        confirm="nvidia-smi topo -m && NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep -E 'GDRDMA|PXN'",
    )


def _rows(paths: tuple[Observation, ...], far: list[int]) -> list[Observation]:
    """One line for each far GPU: its row of the matrix."""
    return [next(o for o in paths if seen.whole(o, "gpu") == gpu) for gpu in far]


def _direct(run: Run) -> Iterator[Finding]:
    """GPUDirect RDMA that is off for a card, or missing at one end of a connection."""
    off = [o for o in seen.of(run, "nccl.gdr", enabled=False) if "IB" in seen.text(o, "net").upper() or o.values.get("hca_id")]
    by_distance = [o for o in off if seen.whole(o, "distance") is not None]
    off = [o for o in off if o not in by_distance]
    links = [o for o in seen.of(run, "nccl.transport") if seen.text(o, "transport").startswith("NET/IB")]
    with_it, without = [o for o in links if o.values.get("gdr")], [o for o in links if not o.values.get("gdr")]
    one_sided = bool(with_it and without)
    told = seen.of(run, "gdr.told", enabled=False)
    if not off and not one_sided:
        if by_distance:
            yield _by_distance(by_distance)
        elif told and not with_it:
            yield _finding(seen.lines(told, 2), "likely", ", the text tells")
        return
    guilty = sorted({seen.text(o, "host") for o in (off or without)} - {""})
    sound = sorted({seen.text(o, "host") for o in with_it} - set(guilty) - {""})
    where = f" on {', '.join(guilty[:4])}" if guilty else ""
    shown = [*seen.lines(off, 3), *seen.lines(without, 2), *seen.lines(with_it, 2)]
    if sound:
        shown.append(evidence(f"with GPUDirect RDMA: {', '.join(sound[:4])}", "NCCL logs"))
    yield _finding(tuple(shown), "certain" if off else "likely", where)


def _finding(shown: tuple[Evidence, ...], confidence: Confidence, where: str) -> Finding:
    return Finding(
        code="gdr-missing",
        severity="warning",
        confidence=confidence,
        title=f"InfiniBand is used without GPUDirect RDMA{where}: every byte goes through host memory",
        evidence=shown,
        effect="Published cases ran at a third to a half of the speed (33 against 93 GB/s).",
        remedy="Load the module there: `sudo modprobe nvidia-peermem` (install the network driver before the GPU driver), or a driver "
        "and kernel "
        "with dma-buf. In a container it must be loaded on the host. Compare the hosts: `lsmod | grep peermem`. Then switch ACS off.",
        confirm="lsmod | grep -E 'peermem|nv_peer_mem' && NCCL_DEBUG=INFO wiretax check --quick 2>&1 | grep GDRDMA",
    )


def _by_distance(lines: list[Observation]) -> Finding:
    """NCCL's own rule: the card is too far from the GPU to be worth it."""
    return Finding(
        code="gdr-missing",
        severity="info",
        confidence="certain",
        title="NCCL does not use GPUDirect RDMA for GPUs this far from the network card",
        evidence=seen.lines(lines, 4),
        effect="Traffic of these GPUs to other hosts goes through host memory.",
        remedy="Use the GPUs near the card, or compare `NCCL_NET_GDR_LEVEL=SYS` in the job over several hosts.",
        confirm="nvidia-smi topo -m",
    )

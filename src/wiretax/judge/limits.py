"""What the links of this machine can carry at most, one way: NVLinks between GPUs, the PCIe way to host memory, peer copies.

Nothing here knows GPU names. A link whose generation or width nobody read is unknown, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from wiretax.data import links
from wiretax.judge import facts
from wiretax.model.machine import PATH_RANK, Gpu, PcieLink
from wiretax.model.run import Run
from wiretax.units import rate

LARGEST_RING_SEARCH = 16
"""Boxes have at most 16 GPUs; above that no ring over NVLinks is searched."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A limit or expectation that cannot be computed, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Limit:
    """What a path can carry at most, in bytes per second one way, with the steps that lead to it."""

    bytes_per_second: float
    because: tuple[str, ...]
    through_cpu: bool = False
    """A PCIe path over a host bridge or between sockets, whose inner speed no counter shows."""


@dataclass(frozen=True, slots=True)
class NegotiatedLink:
    """Generation and width of a GPU's own PCIe link, and whether they were read under load."""

    generation: int
    width: int
    under_load: bool


def negotiated(run: Run, gpu: Gpu) -> NegotiatedLink | Unknown:
    """The GPU's own PCIe link: as read under load, else at its most, since an idle link shifts down.

    The width does not shift at idle, so the width read now counts even without load.
    """
    loads = [c.pcie for c in run.measurements.compute if c.gpu == gpu.index and c.pcie is not None]
    loaded_generations = [load.generation for load in loads if load.generation is not None]
    loaded_widths = [load.width for load in loads if load.width is not None]
    generation = max(loaded_generations, default=None) or gpu.pcie.max_generation or gpu.pcie.generation
    width = max(loaded_widths, default=None) or gpu.pcie.width or gpu.pcie.max_width
    if generation is None or width is None:
        return Unknown(f"the PCIe link of GPU {gpu.index} was not read")
    return NegotiatedLink(generation, width, bool(loaded_generations and loaded_widths))


def host_limit(run: Run, index: int) -> Limit | Unknown:
    """The narrowest hop between a GPU and host memory.

    Args:
        run: machine and, where measured, the link state under load.
        index: NVML index.
    """
    gpu = run.machine.gpu(index) if run.machine else None
    if gpu is None:
        return Unknown(f"GPU {index} is not in the machine's description")
    own = negotiated(run, gpu)
    if isinstance(own, Unknown):
        return own
    carried = links.pcie_rate(own.generation, own.width)
    if carried is None:
        return Unknown(f"PCIe generation {own.generation} is not known")
    state = "under load" if own.under_load else "at most; not read under load"
    because = [f"GPU {index}: PCIe {own.generation} x{own.width} ({state}), {rate(carried)} one way"]
    if gpu.pcie_path and facts.in_virtual_machine(run.machine):
        because.append("the hops above it are those of a virtual machine and are not counted")
        return Limit(carried, tuple(because))
    for hop in gpu.pcie_path:
        hop_rate = None if hop.kind == "gpu" else _hop_rate(hop.link)
        if hop_rate is not None and hop_rate < carried:
            carried = hop_rate
            because.append(f"the hop {hop.address} above it carries only {rate(hop_rate)}")
    return Limit(carried, tuple(because))


def peer_limit(run: Run, first: int, second: int) -> Limit | Unknown:
    """What a direct copy between two GPUs can carry: their NVLinks if they have any, else the narrower PCIe way."""
    path = facts.path_between(run.machine, first, second)
    if path is None:
        return Unknown(f"how GPU {first} and GPU {second} are joined was not read")
    count = facts.nvlinks_between(path)
    if count:
        each = nvlink_rate(run, first)
        if isinstance(each, Unknown):
            return each
        return Limit(count * each.bytes_per_second, (f"{count} NVLinks: {rate(count * each.bytes_per_second)} one way", *each.because))
    distance = PATH_RANK.get(path)
    if distance is None:
        return Unknown(f"the topology code {path!r} is not known")
    sides: list[Limit] = []
    for index in (first, second):
        side = host_limit(run, index) if distance > PATH_RANK["PXB"] else _own_link_limit(run, index)
        if isinstance(side, Unknown):
            return side
        sides.append(side)
    narrow = min(sides, key=lambda side: side.bytes_per_second)
    return Limit(narrow.bytes_per_second, (*narrow.because, f"joined by {path}"), through_cpu=distance > PATH_RANK["PXB"])


def staged_limit(run: Run, gpus: Sequence[int]) -> Limit | Unknown:
    """What goes through host memory: the slowest GPU's way to it, as measured by host copies where there are any."""
    slowest: Limit | None = None
    for index in gpus:
        side = host_limit(run, index)
        if isinstance(side, Unknown):
            return side
        copies = facts.host_copies(run, index)
        if copies:
            reached = min(copies)
            note = f"host copies of GPU {index} reach {rate(reached)}"
            expected = links.fraction("pcie_copy").expected
            # A limit is a link rate: a measured copy stands for the link rate it would be a healthy share of.
            side = Limit(min(side.bytes_per_second, reached / expected), (*side.because, note))
        if slowest is None or side.bytes_per_second < slowest.bytes_per_second:
            slowest = side
    return slowest if slowest is not None else Unknown("no GPU was named")


def nvlink_rate(run: Run, index: int) -> Limit | Unknown:
    """The data rate of one NVLink of a GPU, one way."""
    gpu = run.machine.gpu(index) if run.machine else None
    if gpu is None:
        return Unknown(f"GPU {index} is not in the machine's description")
    stated = [link.bandwidth_bytes_per_second for link in gpu.nvlinks if link.active and link.bandwidth_bytes_per_second is not None]
    versions = {link.version for link in gpu.nvlinks if link.active and link.version is not None}
    known = links.nvlink_payload(
        driver_bytes_per_second=min(stated, default=None),
        version=versions.pop() if len(versions) == 1 else None,
        compute_capability=gpu.compute_capability,
    )
    if known is None:
        return Unknown(f"the speed of one NVLink of GPU {index} is not known (the driver states none and its generation was not read)")
    return Limit(known[0], (f"one NVLink carries {rate(known[0])} one way ({known[1]})",))


def nvlink_ring(run: Run, gpus: Sequence[int]) -> Limit | Unknown | None:
    """What each GPU of a set can send over NVLink at once, or None when the set is not joined into a ring by NVLinks.

    Behind NVSwitches every pair shows all links of a GPU; in a mesh the links to the peers add up. Which it is follows from the
    counts: a GPU never has more links than its generation allows.
    """
    if not _has_ring(run, gpus):
        return None
    weakest: Limit | None = None
    for index in gpus:
        counts = [facts.nvlinks_between(facts.path_between(run.machine, index, peer)) for peer in gpus if peer != index]
        each = nvlink_rate(run, index)
        if isinstance(each, Unknown):
            return each
        gpu = run.machine.gpu(index) if run.machine else None
        most = links.max_nvlinks(gpu.compute_capability) if gpu else None
        active = gpu.nvlinks_active if gpu else None
        total = min(number for number in (sum(counts), active, most) if number is not None) or sum(counts)
        if len(counts) > 1 and active is None and most is None:
            return Unknown(f"whether GPU {index} reaches its peers over a switch or over separate NVLinks was not read")
        side = Limit(
            total * each.bytes_per_second,
            (f"{total} NVLinks from each GPU: {rate(total * each.bytes_per_second)} one way", *each.because),
        )
        if weakest is None or side.bytes_per_second < weakest.bytes_per_second:
            weakest = side
    return weakest if weakest is not None else Unknown("no GPU was named")


def _own_link_limit(run: Run, index: int) -> Limit | Unknown:
    """Only the GPU's own link: between GPUs of one switch, peer traffic never climbs higher."""
    gpu = run.machine.gpu(index) if run.machine else None
    if gpu is None:
        return Unknown(f"GPU {index} is not in the machine's description")
    own = negotiated(run, gpu)
    if isinstance(own, Unknown):
        return own
    carried = links.pcie_rate(own.generation, own.width)
    if carried is None:
        return Unknown(f"PCIe generation {own.generation} is not known")
    return Limit(carried, (f"GPU {index}: PCIe {own.generation} x{own.width}, {rate(carried)} one way",))


def _hop_rate(link: PcieLink) -> float | None:
    """An upper hop at its most: only its width is taken as it is now, since a hop may shift its generation down at idle."""
    generation = link.max_generation or link.generation
    width = link.width or link.max_width
    return None if generation is None or width is None else links.pcie_rate(generation, width)


def _has_ring(run: Run, gpus: Sequence[int]) -> bool:
    """Whether NVLinks join these GPUs into one closed ring (for two GPUs: whether they are joined)."""
    if len(gpus) < 2:
        return False
    joined = {
        (a, b)
        for a in gpus
        for b in gpus
        if a != b and facts.nvlinks_between(facts.path_between(run.machine, a, b)) and facts.p2p_allowed(run.machine, a, b) is not False
    }
    if len(joined) == len(gpus) * (len(gpus) - 1):
        return True
    if len(gpus) > LARGEST_RING_SEARCH:
        return False
    neighbours = {gpu: {b for a, b in joined if a == gpu} for gpu in gpus}
    if any(len(neighbours[gpu]) < min(2, len(gpus) - 1) for gpu in gpus):
        return False
    start = gpus[0]

    @cache
    def close(at: int, left: frozenset[int]) -> bool:
        if not left:
            return start in neighbours[at]
        return any(close(following, left - {following}) for following in left & neighbours[at])

    return close(start, frozenset(gpus[1:]))

"""What the checks look up again and again in a run, so that each check reads as its own subject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from wiretax.data import nccl_policy
from wiretax.model.finding import Evidence
from wiretax.model.machine import Gpu, GpuPair, Machine, P2pCode
from wiretax.model.measurement import Collective, Copy, Point
from wiretax.model.run import Run

TransportClass = Literal["p2p", "staged", "net", "gloo"]

COMPARISON_WIRES = frozenset({"p2p_off", "socket", "gloo", "p2p_forced", "ethernet"})
"""Wires measured to compare with; being slow is no fault of theirs."""

USER_WIRES = ("default", "clean")
"""Wires with the user's own settings, and with only the disabling ones taken away."""

HEADLINE_SPAN = 4
"""The headline figure is the best among sizes within this factor of the largest one measured."""

MIN_JUDGED_BYTES = 4 * 2**20
"""Smaller messages are ruled by start-up time, so bandwidth is not judged on them."""


def evidence(text: str, source: str = "measurements") -> Evidence:
    """One line of evidence out of the run document itself."""
    return Evidence(source=source, text=text)


def pairs_text(pairs: Iterable[tuple[int, int]], most: int = 12) -> str:
    """Pairs as people write them, ``0-1, 0-2``; a long list is cut with its true length."""
    listed = list(dict.fromkeys((min(a, b), max(a, b)) for a, b in pairs))
    shown = ", ".join(f"{a}-{b}" for a, b in listed[:most])
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"


def usable_gpus(machine: Machine | None) -> tuple[Gpu, ...]:
    """GPUs that answer; lost and unusable ones are left out."""
    return tuple(gpu for gpu in machine.gpus if gpu.status == "ok") if machine else ()


def unordered_pairs(machine: Machine | None) -> tuple[tuple[GpuPair, ...], ...]:
    """The pairs of the machine, both directions of one pair together, in order of their smaller index."""
    grouped: dict[tuple[int, int], list[GpuPair]] = {}
    for pair in machine.pairs if machine else ():
        if pair.source_gpu != pair.target_gpu:
            low, high = sorted((pair.source_gpu, pair.target_gpu))
            grouped.setdefault((low, high), []).append(pair)
    return tuple(tuple(grouped[key]) for key in sorted(grouped))


def path_between(machine: Machine | None, first: int, second: int) -> str | None:
    """The topology code of two GPUs, from whichever direction was read."""
    if machine is None:
        return None
    for source, target in ((first, second), (second, first)):
        pair = machine.pair(source, target)
        if pair is not None and pair.path is not None:
            return pair.path
    return None


def nvlinks_between(path: str | None) -> int:
    """How many NVLinks a topology code states; 0 for every other code."""
    return int(path[2:]) if path and path.startswith("NV") and path[2:].isdigit() else 0


def p2p_codes(machine: Machine | None, first: int, second: int) -> frozenset[P2pCode]:
    """All read and write codes of a pair in both directions; empty when the driver was not asked or did not say."""
    codes: set[P2pCode] = set()
    for source, target in ((first, second), (second, first)):
        pair = machine.pair(source, target) if machine else None
        if pair is not None:
            codes.update(code for code in (pair.p2p.read, pair.p2p.write) if code is not None)
    return frozenset(codes)


def p2p_allowed(machine: Machine | None, first: int, second: int) -> bool | None:
    """Whether the driver grants peer access for reading and writing; None when it did not say.

    Either the driver's matrix or CUDA can refuse, as NCCL asks both. An unknown code ("U") is no refusal.
    """
    codes = p2p_codes(machine, first, second)
    answers = {
        pair.peer_access
        for source, target in ((first, second), (second, first))
        if machine is not None and (pair := machine.pair(source, target)) is not None and pair.peer_access is not None
    }
    if codes - {"OK", "U"} or False in answers:
        return False
    return True if codes == {"OK"} or answers == {True} else None


def nccl_setting(run: Run, name: str) -> tuple[str, str] | None:
    """A variable's value and where it is set: the environment wins over nccl.conf files, as in NCCL."""
    if run.machine is None:
        return None
    software = run.machine.software
    if name in software.nccl_environment:
        return software.nccl_environment[name], f"the environment ({name}={software.nccl_environment[name]})"
    for key, value in software.nccl_conf.items():
        file, _, variable = key.rpartition(":")
        if variable == name:
            return value, f"{file or 'nccl.conf'} ({name}={value})"
    return None


def nccl_version(run: Run) -> str | None:
    """The NCCL that ranks load; what merely lies on disk counts only where it is one version."""
    if run.machine is None:
        return None
    software = run.machine.software
    if software.nccl_loaded is not None and software.nccl_loaded.version is not None:
        return software.nccl_loaded.version
    versions = {library.version for library in software.nccl_found or () if library.version is not None}
    return versions.pop() if len(versions) == 1 else None


def transport_class(name: str | None) -> TransportClass | None:
    """The kind of one transport as NCCL names it (``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/Socket/0``, ``gloo/tcp``)."""
    if not name:
        return None
    upper = name.upper()
    for prefix, kind in (("P2P", "p2p"), ("NVLS", "p2p"), ("DIRECT SHARED", "staged"), ("SHM", "staged"), ("NET", "net"), ("GLOO", "gloo")):
        if upper.startswith(prefix):
            return kind  # type: ignore[return-value]
    return None


def transports_of(collective: Collective) -> frozenset[TransportClass]:
    """All transport kinds a collective used; empty when NCCL's log was not read."""
    names = [transport.name for transport in collective.transports] or (collective.transport or "").split("+")
    return frozenset(kind for kind in map(transport_class, names) if kind is not None)


def collectives(
    run: Run, *, wire: str, operation: str = "all_reduce", world_size: int | None = None, gpus: Sequence[int] | None = None
) -> tuple[Collective, ...]:
    """The measured collectives of one wire and operation, eager and graph, with at least one point."""
    return tuple(
        c
        for c in run.measurements.collectives
        if c.wire == wire
        and c.operation == operation
        and c.points
        and (world_size is None or c.world_size == world_size)
        and (gpus is None or tuple(c.gpus) == tuple(gpus))
    )


def largest_world(run: Run, wire: str, operation: str = "all_reduce") -> int | None:
    """The largest world size measured on a wire."""
    return max((c.world_size for c in collectives(run, wire=wire, operation=operation)), default=None)


def headline(found: Iterable[Collective]) -> tuple[Collective, Point] | None:
    """The figure to judge: the best busbw among the sizes near the largest, of the better of eager and graph.

    The single largest size would let one disturbed point decide; the best of all sizes would hide a collapse at large ones.
    """
    candidates = [(c, p) for c in found for p in c.points if p.num_bytes >= MIN_JUDGED_BYTES]
    if not candidates:
        return None
    largest = max(point.num_bytes for _, point in candidates)
    return max(
        ((c, p) for c, p in candidates if p.num_bytes * HEADLINE_SPAN >= largest),
        key=lambda both: both[1].busbw_bytes_per_second,
    )


def is_user_wire(collective: Collective) -> bool:
    """Whether a collective ran with the user's own settings, whatever transport NCCL then took."""
    return collective.wire == "default" or collective.wire_requested == "default"


def user_collectives_of_pairs(run: Run) -> tuple[Collective, ...]:
    """All-reduces of exactly two GPUs with the user's own settings."""
    return tuple(
        c for c in run.measurements.collectives if c.operation == "all_reduce" and c.points and is_user_wire(c) and len(set(c.gpus)) == 2
    )


def user_collectives(run: Run, operation: str = "all_reduce") -> tuple[Collective, ...]:
    """What the user's own settings give, at the largest world size: collectives asked for as ``default``.

    A default wire that NCCL ran over another transport is renamed after that transport; ``wire_requested`` still says default.
    """
    found = [c for c in run.measurements.collectives if c.operation == operation and c.points and is_user_wire(c)]
    largest = max((c.world_size for c in found), default=0)
    return tuple(c for c in found if c.world_size == largest)


def pair_copies(run: Run, *, route: str, direction: str = "one_way", concurrency: str = "alone") -> dict[tuple[int, int], Copy]:
    """GPU to GPU copies of a kind by ordered pair; the largest buffer wins where several were copied.

    Other people's tables may hold only copies both ways at once; they then stand for the one-way copies of their kind, because a
    figure is that of one direction in either.
    """
    if direction == "one_way" and not any(c.route == route and c.direction == "one_way" for c in _rates_between(run)):
        direction = "both_ways"
    found: dict[tuple[int, int], Copy] = {}
    for copy in run.measurements.copies:
        if copy.source_gpu is None or copy.target_gpu is None or copy.bandwidth_bytes_per_second is None:
            continue
        if (copy.route, copy.direction, copy.concurrency) != (route, direction, concurrency):
            continue
        key = (copy.source_gpu, copy.target_gpu)
        if key not in found or found[key].num_bytes < copy.num_bytes:
            found[key] = copy
    return found


def _rates_between(run: Run) -> Iterable[Copy]:
    """Copies from one GPU to another whose rate is known."""
    return (
        c
        for c in run.measurements.copies
        if c.source_gpu is not None
        and c.target_gpu is not None
        and c.source_gpu != c.target_gpu
        and c.bandwidth_bytes_per_second is not None
    )


def host_copies(run: Run, gpu: int, *, concurrency: str = "alone") -> tuple[float, ...]:
    """Measured rates between host memory and one GPU, both directions, in bytes per second."""
    return tuple(
        copy.bandwidth_bytes_per_second
        for copy in run.measurements.copies
        if copy.route == "host"
        and copy.direction == "one_way"
        and copy.concurrency == concurrency
        and copy.bandwidth_bytes_per_second is not None
        and ((copy.source_gpu == gpu and copy.target_gpu is None) or (copy.target_gpu == gpu and copy.source_gpu is None))
    )


def in_virtual_machine(machine: Machine | None) -> bool:
    """Whether the host says it is a virtual machine; what it shows of the PCIe tree is then partly invented."""
    return machine is not None and machine.surroundings.virtual_machine not in (None, "none", "wsl", "wsl2")


def gpus_list(indices: Iterable[int]) -> str:
    """``0, 2 and 3``."""
    listed = [str(index) for index in indices]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}" if listed else ""


def gpus_are(indices: Iterable[int], one: str, several: str) -> str:
    """The subject of a sentence with its verb: ``GPU 2 has``, ``GPUs 0 and 1 have``."""
    listed = list(indices)
    return f"GPU {gpus_list(listed)} {one}" if len(listed) == 1 else f"GPUs {gpus_list(listed)} {several}"


def visible_devices(machine: Machine | None, indices: Sequence[int]) -> str:
    """The exact text that makes a program use these GPUs, as ``CUDA_VISIBLE_DEVICES=0,2``.

    A set CUDA_VISIBLE_DEVICES is replaced, not nested, so its own entries are repeated. NVML counts in PCI order; CUDA may count
    the fastest GPU first, so where names differ or the orders were seen to differ, the order is pinned too.
    """
    current = machine.surroundings.cuda_visible_devices if machine else None
    entries = [entry.strip() for entry in current.split(",")] if current else []
    chosen = []
    for index in indices:
        gpu = machine.gpu(index) if machine else None
        if entries and gpu is not None and gpu.cuda_ordinal is not None and gpu.cuda_ordinal < len(entries):
            chosen.append(entries[gpu.cuda_ordinal])
        elif entries and gpu is not None and gpu.uuid is not None:
            chosen.append(gpu.uuid)
        else:
            chosen.append(str(index))
    text = f"CUDA_VISIBLE_DEVICES={','.join(chosen)}"
    if entries or machine is None:
        return text
    names = {gpu.name for gpu in machine.gpus}
    reordered = any(gpu.cuda_ordinal is not None and gpu.cuda_ordinal != gpu.index for gpu in machine.gpus)
    return f"CUDA_DEVICE_ORDER=PCI_BUS_ID {text}" if len(names) > 1 or reordered else text


def p2p_level(run: Run, num_gpus: int) -> nccl_policy.Policy | None:
    """How far NCCL lets GPUs talk peer to peer here: the user's setting, else the library's own policy; None when unknown."""
    disable = nccl_setting(run, "NCCL_P2P_DISABLE")
    if disable is not None and disable[0].strip() == "1":
        return nccl_policy.Policy("LOC", f"peer to peer is switched off in {disable[1]}")
    level = nccl_setting(run, "NCCL_P2P_LEVEL")
    if level is not None and (known := nccl_policy.user_level(level[0])) is not None:
        return nccl_policy.Policy(known, f"the level is set in {level[1]}")
    vendor = run.machine.surroundings.cpu_vendor if run.machine else None
    return nccl_policy.default_policy(nccl_version(run), vendor, num_gpus)

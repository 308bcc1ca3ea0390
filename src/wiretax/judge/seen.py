"""What pasted texts say, as the checks ask for it: observations by kind, with the line each was read from as evidence.

A live run has no observations, so a check that rests on them is silent there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wiretax.data.gpu_families import compute_capability, never_has_p2p_over_pcie
from wiretax.judge import facts
from wiretax.judge.facts import TransportClass
from wiretax.model.finding import Evidence
from wiretax.model.machine import Gpu
from wiretax.model.observation import Observation, Scalar
from wiretax.model.run import Run

MOST_LINES = 6
"""Lines of evidence shown of one finding: a flood proves no more than its first lines."""


def is_pasted(run: Run) -> bool:
    """Whether the run was read from text and not from a machine at hand."""
    return run.command == "diagnose" or (run.machine is not None and run.machine.origin == "pasted")


def of(run: Run, kind: str, **wanted: Scalar) -> tuple[Observation, ...]:
    """The observations of a kind whose values are these.

    Args:
        run: of any origin.
        kind: a dotted name.
        wanted: values that must be equal; a missing value equals None.
    """
    return tuple(o for o in run.observations if o.kind == kind and all(o.values.get(name) == value for name, value in wanted.items()))


def warnings(run: Run, *categories: str) -> tuple[Observation, ...]:
    """``NCCL WARN`` lines of these categories."""
    return tuple(o for o in run.observations if o.kind == "nccl.warning" and o.values.get("category") in categories)


def line(observation: Observation) -> Evidence:
    """The line an observation was read from; where the reader did not keep it, its facts in words."""
    values = observation.values
    text = values.get("text") or values.get("label") or values.get("message") or values.get("clause")
    if not text:
        text = ", ".join(f"{name} {value}" for name, value in values.items() if value is not None and name not in ("count", "lines"))
    count = values.get("count")
    times = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
    return Evidence(source=observation.source, line=observation.line or None, text=f"{text}{times}")


def lines(observations: Iterable[Observation], most: int = MOST_LINES) -> tuple[Evidence, ...]:
    """The first few lines of a group of observations, each once."""
    found: dict[tuple[str, int], Evidence] = {}
    for observation in observations:
        if len(found) >= most:
            break
        found.setdefault((observation.source, observation.line), line(observation))
    return tuple(found.values())


def number(observation: Observation, name: str) -> float | None:
    """A value as a number, or None."""
    value = observation.values.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def whole(observation: Observation, name: str) -> int | None:
    """A value as a whole number, or None."""
    value = observation.values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(observation: Observation, name: str) -> str:
    """A value as text; empty where it is missing."""
    value = observation.values.get(name)
    return "" if value is None else str(value)


def hosts(run: Run) -> frozenset[str]:
    """Host names that log lines carry."""
    found = {text(o, "host") for o in run.observations if o.kind.startswith("nccl.")} - {""}
    for observation in run.observations:
        if observation.kind.startswith("nccl."):
            found.update(name for name in text(observation, "hosts").split(", ") if name and name != "...")
    return frozenset(found)


def gpu_names(run: Run) -> frozenset[str]:
    """All names of GPUs in the texts: of the machine, else of sentences that count GPUs."""
    names = {gpu.name for gpu in run.machine.gpus if gpu.name} if run.machine else set()
    if not names:
        names = {text(o, "name") for o in run.observations if o.kind in ("gpu.mention", "nccl_tests.device")} - {""}
    return frozenset(names)


def capability(gpu: Gpu) -> str | None:
    """The compute capability of a GPU: as read, else what its name tells."""
    return gpu.compute_capability or compute_capability(gpu.name)


def capabilities(run: Run) -> frozenset[str]:
    """The compute capabilities of all GPUs in the texts, as far as they can be told."""
    found = {capability(gpu) for gpu in run.machine.gpus} if run.machine else set()
    if not any(found):
        found = {compute_capability(name) for name in gpu_names(run)}
    return frozenset(name for name in found if name is not None)


def without_stock_p2p(run: Run) -> tuple[str, ...]:
    """Names of GPUs to which the stock driver never grants peer access over PCIe."""
    return tuple(sorted(name for name in gpu_names(run) if never_has_p2p_over_pcie(name)))


def is_amd(run: Run) -> bool:
    """Whether the GPUs are AMD's: RCCL, ROCm tools or names say so."""
    if any(o.kind in ("amd.vendor", "amd.link", "nccl.rocm") for o in run.observations):
        return True
    if any(o.kind == "nccl.version" and o.values.get("library") == "RCCL" for o in run.observations):
        return True
    return any(re.search(r"\b(?:AMD|Radeon|Instinct|MI\d{2,3}[AX]?)\b", name) for name in gpu_names(run))


@dataclass(frozen=True, slots=True)
class Log:
    """What the NCCL logs among the texts say of the way data went.

    ``by_class`` holds the lines of transports within a host; ``between`` those of transports that are known to cross hosts.
    """

    by_class: dict[TransportClass, tuple[Observation, ...]]
    between: tuple[Observation, ...] = ()
    num_ranks: int | None = None
    num_nodes: int | None = None
    local_ranks: int | None = None
    rank_hosts: dict[int, str] = field(default_factory=dict)

    @property
    def classes(self) -> frozenset[TransportClass]:
        """The kinds of transport between GPUs of one host."""
        return frozenset(self.by_class)

    @property
    def one_host(self) -> bool | None:
        """Whether all ranks are on one host; None where the text does not show it."""
        names = set(self.rank_hosts.values())
        if len(names) > 1:
            return False
        if self.num_nodes == 1:
            return True
        if names and self.num_ranks is not None and len(self.rank_hosts) >= self.num_ranks:
            return True
        return None


def log(run: Run) -> Log | None:
    """The transports of the run's NCCL logs, or None where no line names one.

    Which host a rank is on follows from who wrote a line: the receiver writes ``[receive]``, the sender all others.
    """
    links = of(run, "nccl.transport")
    totals = of(run, "nccl.transport_total")
    if not links and not totals:
        return None
    rank_hosts: dict[int, str] = {}
    for observation in of(run, "nccl.init"):
        rank = whole(observation, "rank")
        if rank is not None and observation.values.get("host") and whole(observation, "num_ranks") != 1:
            rank_hosts[rank] = text(observation, "host")
    for observation in links:
        rank = whole(observation, "target_rank" if observation.values.get("direction") == "receive" else "source_rank")
        if rank is not None and observation.values.get("host"):
            rank_hosts.setdefault(rank, text(observation, "host"))
    nodes = of(run, "nccl.nodes")
    num_nodes = max((n for o in nodes if (n := whole(o, "num_nodes")) is not None), default=None)
    grouped: dict[TransportClass, list[Observation]] = {}
    between: list[Observation] = []
    for observation in links or totals:
        kind = facts.transport_class(text(observation, "transport"))
        if kind is None:
            continue
        if kind == "net" and _crosses(observation, rank_hosts, num_nodes):
            between.append(observation)
        else:
            grouped.setdefault(kind, []).append(observation)
    return Log(
        by_class={kind: tuple(found) for kind, found in grouped.items()},
        between=tuple(between),
        num_ranks=max((n for o in (*of(run, "nccl.init"), *nodes) if (n := whole(o, "num_ranks")) is not None), default=None),
        num_nodes=num_nodes,
        local_ranks=max((n for o in nodes if (n := whole(o, "local_ranks")) is not None), default=None),
        rank_hosts=rank_hosts,
    )


def _crosses(link: Observation, rank_hosts: dict[int, str], num_nodes: int | None) -> bool:
    """Whether a network transport leaves the host; unknown ends count as leaving it."""
    ends = [rank_hosts.get(rank) for name in ("source_rank", "target_rank") if (rank := whole(link, name)) is not None]
    if len(ends) == 2 and None not in ends:
        return ends[0] != ends[1]
    return num_nodes != 1


def used(run: Run) -> frozenset[TransportClass]:
    """How the GPUs of one host talked with the user's own settings: measured by us, else as NCCL's log in the text says."""
    measured = {kind for collective in facts.user_collectives(run) for kind in facts.transports_of(collective)}
    if measured:
        return frozenset(measured)
    found = log(run)
    return found.classes if found is not None else frozenset()


def transport_names(observations: Sequence[Observation], most: int = 4) -> str:
    """The transports of these lines as NCCL prints them, ``SHM/direct/direct``."""
    return ", ".join(list(dict.fromkeys(text(o, "transport") for o in observations))[:most])


def nvlink_lines(run: Run) -> tuple[Observation, ...]:
    """Lines of NCCL's topology that show NVLinks of GPUs."""
    return tuple(o for o in (*of(run, "nccl.link", link="NVL"), *of(run, "nccl.path", path="NVL")) if text(o, "source").startswith("GPU"))


def nvlink_joins_all(run: Run) -> bool | None:
    """Whether NVLink joins every pair of GPUs; None where neither a matrix nor NCCL's topology says it."""
    pairs = facts.unordered_pairs(run.machine)
    count = len(facts.usable_gpus(run.machine))
    paths = [facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in pairs]
    if paths and None not in paths and len(pairs) == count * (count - 1) // 2:
        return all(facts.nvlinks_between(path) for path in paths)
    if any(text(o, "target").startswith("NVS") for o in of(run, "nccl.link", link="NVL")):
        return True
    between = [o for o in of(run, "nccl.path") if text(o, "source").startswith("GPU") and text(o, "target").startswith("GPU")]
    return all(text(o, "path") in ("NVL", "NVB") for o in between) if between else None


def infinity_fabric_joins_all(run: Run) -> bool:
    """Whether Infinity Fabric (XGMI) joins every pair of AMD GPUs, and the driver refuses none."""
    pairs = facts.unordered_pairs(run.machine)
    count = len(facts.usable_gpus(run.machine))
    paths = {facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in pairs}
    refused = any(pair.peer_access is False for both in pairs for pair in both)
    return paths == {"XGMI"} and len(pairs) == count * (count - 1) // 2 and not refused


def pair_speeds(run: Run) -> dict[frozenset[int], tuple[float, Evidence]]:
    """Speeds of pairs that somebody wrote down, in bytes per second, with their lines.

    Only where peer access is refused: then they are all of the way through host memory and can be compared as such.
    """
    refused = (
        of(run, "nccl.p2p_disabled")
        or of(run, "peer.access", access=False)
        or any(facts.p2p_allowed(run.machine, b[0].source_gpu, b[0].target_gpu) is False for b in facts.unordered_pairs(run.machine))
    )
    found: dict[frozenset[int], tuple[float, Evidence]] = {}
    for observation in of(run, "bandwidth.pair") if refused else ():
        first, second = whole(observation, "source_gpu"), whole(observation, "target_gpu")
        reached = number(observation, "bandwidth_bytes_per_second")
        if first is not None and second is not None and first != second and reached:
            key = frozenset((first, second))
            if key not in found or reached < found[key][0]:
                found[key] = (reached, line(observation))
    return found

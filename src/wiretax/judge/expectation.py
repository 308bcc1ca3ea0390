"""What THIS machine should reach: from the links present, the path NCCL took, the algorithm and the message size.

Never from a table of GPU names. The model is the simplest that holds on recorded machines: a healthy fraction of the limit of
the links, less the start-up time of the operation (``busbw = b w / (w + start)`` with ``w`` the time the bytes need on the wire).
Fractions and constants, each with its source, are in ``wiretax.data.links``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wiretax.data import links
from wiretax.data.nccl_policy import within
from wiretax.judge import facts
from wiretax.judge.limits import Limit, Unknown, nvlink_ring, peer_limit, staged_limit
from wiretax.model.machine import PATH_RANK
from wiretax.model.measurement import Collective, Copy, Expected
from wiretax.model.run import Run
from wiretax.units import percent, rate, size

WireClass = Literal["nvlink", "pcie", "staged", "socket", "gloo"]

SWITCH_SUM_ABOVE_GPUS = 4
"""NCCL adds up in the NVSwitch only above this many GPUs (published for H200; B200 above 5)."""

START_SPREAD = 1.5
"""Start-up times of healthy machines lie within this factor of the typical one, each way (recorded: 22 to 34 us for 2x H200)."""

REFERENCE_BYTES = 256 * 2**20
"""The message size at which an expectation is stated when nothing of that kind was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A range in bytes per second (busbw for collectives, one way for copies) and the reasons, as sentences.

    A healthy machine lies between ``low`` and ``high``; ``limit`` is what the links could carry, null for wires that CPUs carry.
    """

    wire_class: WireClass
    low: float
    expected: float
    high: float
    limit: float | None
    because: tuple[str, ...]

    def standing(self, measured: float) -> Literal["below", "within", "above"]:
        """Where a measured rate lies against the range."""
        return "below" if measured < self.low else "above" if measured > self.high else "within"


def best_class(run: Run, gpus: Sequence[int]) -> WireClass | Unknown:
    """The fastest way the links, the driver and NCCL's distance policy allow these GPUs to talk."""
    ring = nvlink_ring(run, gpus)
    if ring is not None:
        return "nvlink"
    pairs = [(a, b) for position, a in enumerate(gpus) for b in gpus[position + 1 :]]
    allowed = [facts.p2p_allowed(run.machine, a, b) for a, b in pairs]
    if not pairs:
        return Unknown("one GPU has no peer")
    if False in allowed:
        return "staged"
    if None in allowed:
        return Unknown("the driver's peer status was not read")
    policy = facts.p2p_level(run, len(gpus))
    if policy is None:
        return Unknown("NCCL's distance policy depends on its version and the CPU, which are not known")
    near = [within(facts.path_between(run.machine, a, b), policy.level) for a, b in pairs]
    if None in near:
        return Unknown("how the GPUs are joined was not read")
    return "pcie" if all(near) else "staged"


def class_of(run: Run, collective: Collective) -> WireClass | Unknown:
    """The class of the path a collective took, from NCCL's own log; the slowest kind decides where several were used."""
    kinds = facts.transports_of(collective)
    if not collective.gpus and collective.backend == "gloo":
        return Unknown("CPU ranks: what they reach depends on cores and memory, not on a link")
    if collective.backend == "gloo" or "gloo" in kinds:
        return "gloo"
    if "net" in kinds:
        names = {transport.name for transport in collective.transports} or set((collective.transport or "").split("+"))
        if all("socket" in name.lower() for name in names if facts.transport_class(name) == "net"):
            return "socket"
        return Unknown(f"the network {', '.join(sorted(names))} has a speed this machine does not show")
    if "staged" in kinds:
        return "staged"
    if "p2p" in kinds:
        ring = nvlink_ring(run, collective.gpus) if collective.gpus else None
        return "nvlink" if ring is not None else "pcie"
    if collective.wire == "p2p_off":
        return "staged"
    if collective.wire == "socket":
        return "socket"
    if collective.wire in facts.USER_WIRES and collective.gpus:
        return best_class(run, collective.gpus)
    return Unknown("NCCL's log does not say which way it took")


def expect_collective(
    run: Run,
    wire_class: WireClass,
    gpus: Sequence[int],
    *,
    operation: str = "all_reduce",
    num_bytes: int = REFERENCE_BYTES,
    settings: dict[str, str] | None = None,
) -> Expectation | Unknown:
    """The busbw these GPUs should reach over a path of this class.

    Args:
        run: machine and measured limits.
        wire_class: the path, from :func:`class_of` or :func:`best_class`.
        gpus: NVML indices in the communicator.
        operation: of ``OPERATIONS``.
        num_bytes: message size as nccl-tests counts it.
        settings: variables of this wire on top of the machine's environment.

    Returns:
        The range, or the reason why none can be computed.
    """
    count = len(gpus)
    if count < 2:
        return Unknown("one GPU talks to nobody")
    if wire_class in ("socket", "gloo"):
        return _host_wire(wire_class, count, operation, num_bytes)
    limit: Limit | Unknown | None
    note: tuple[str, ...] = ()
    if wire_class == "nvlink":
        limit = nvlink_ring(run, gpus)
        if limit is None:
            return Unknown(f"GPUs {facts.gpus_list(gpus)} are not joined into a ring by NVLinks")
        name = "nvlink_ring" if operation == "all_reduce" else "nvlink_ring_one_way"
        if operation == "all_reduce" and _switch_sum(run, gpus, settings or {}):
            name = "nvlink_switch_sum"
            note = (f"above {SWITCH_SUM_ABOVE_GPUS} GPUs NCCL may add up in the NVSwitch, which passes what a ring can",)
    elif wire_class == "pcie":
        limit = _slowest_pair(run, gpus)
        name = "pcie_ring_through_cpu" if isinstance(limit, Limit) and limit.through_cpu else "pcie_ring"
    else:
        limit = staged_limit(run, gpus)
        # A broadcast only flows one way, so its traffic does not meet itself on a GPU's link (recorded 2x H200: 49 of 63).
        name = "staged_copy" if operation == "broadcast" else "staged_ring"
        note = ("each byte is written to host memory by one GPU and read from there by the other",)
    if isinstance(limit, Unknown):
        return limit
    healthy = links.fraction(name)
    start = _ring_start(wire_class, count, operation)
    bus_bytes = num_bytes * _bus_factor(operation, count)

    def reaches(fraction: float, seconds: float) -> float:
        return _with_start(limit.bytes_per_second * fraction, bus_bytes, seconds)

    return Expectation(
        wire_class=wire_class,
        low=reaches(healthy.low, start * START_SPREAD),
        expected=reaches(healthy.expected, start),
        high=reaches(healthy.high, start / START_SPREAD),
        limit=limit.bytes_per_second,
        because=(
            *limit.because,
            *note,
            f"healthy machines reach {percent(healthy.low)} to {percent(healthy.high)} of it ({healthy.source})",
            f"at {size(num_bytes)} the start-up of about {start * 1e6:.0f} us is counted",
        ),
    )


def expect_measured(run: Run, collective: Collective, num_bytes: int) -> Expectation | Unknown:
    """What a measured collective should have reached at a size, over the path it really took."""
    wire_class = class_of(run, collective)
    if isinstance(wire_class, Unknown):
        return wire_class
    return expect_collective(
        run, wire_class, collective.gpus, operation=collective.operation, num_bytes=num_bytes, settings=collective.environment
    )


def expect_copy(run: Run, first: int, second: int, route: str) -> Expectation | Unknown:
    """What one large copy between two GPUs should reach, one way.

    Args:
        run: machine and measured limits.
        first: NVML index of the one GPU.
        second: of the other.
        route: ``direct`` (peer to peer) or ``staged`` (through host memory).
    """
    if route == "staged":
        limit: Limit | Unknown = staged_limit(run, (first, second))
        name = "staged_copy"
    else:
        limit = peer_limit(run, first, second)
        if facts.nvlinks_between(facts.path_between(run.machine, first, second)):
            name = "nvlink_copy"
        else:
            name = "pcie_copy_through_cpu" if isinstance(limit, Limit) and limit.through_cpu else "pcie_copy"
    if isinstance(limit, Unknown):
        return limit
    healthy = links.fraction(name)
    carried = limit.bytes_per_second
    return Expectation(
        wire_class="staged" if route == "staged" else "nvlink" if name == "nvlink_copy" else "pcie",
        low=carried * healthy.low,
        expected=carried * healthy.expected,
        high=carried * healthy.high,
        limit=carried,
        because=(*limit.because, f"healthy copies reach {percent(healthy.low)} to {percent(healthy.high)} of it ({healthy.source})"),
    )


def expectations(run: Run) -> tuple[Expected, ...]:
    """One row for each wire, operation and world size measured, and for each pair copied; for the run document."""
    rows: list[Expected] = []
    seen: set[tuple[str, str, int, tuple[int, ...]]] = set()
    for collective in run.measurements.collectives:
        key = (collective.operation, collective.wire, collective.world_size, collective.gpus)
        if key in seen or not collective.points:
            continue
        seen.add(key)
        found = expect_measured(run, collective, max(point.num_bytes for point in collective.points))
        if isinstance(found, Expectation):
            rows.append(_row(found, collective.operation, collective.wire, world_size=collective.world_size))
    for route in ("direct", "staged"):
        for first, second in facts.pair_copies(run, route=route):
            found = expect_copy(run, first, second, route)
            if isinstance(found, Expectation):
                rows.append(_row(found, "pair_copy", route, pair=(first, second)))
    return tuple(rows)


def copy_standing(run: Run, copy: Copy) -> Literal["below", "within", "above"] | None:
    """Where a pair copy lies against what its links allow; None when that is unknown."""
    if copy.source_gpu is None or copy.target_gpu is None or copy.bandwidth_bytes_per_second is None:
        return None
    found = expect_copy(run, copy.source_gpu, copy.target_gpu, copy.route)
    return found.standing(copy.bandwidth_bytes_per_second) if isinstance(found, Expectation) else None


def _row(found: Expectation, subject: str, wire: str, *, world_size: int | None = None, pair: tuple[int, int] | None = None) -> Expected:
    return Expected(
        subject=subject,
        wire=wire,
        world_size=world_size,
        source_gpu=pair[0] if pair else None,
        target_gpu=pair[1] if pair else None,
        low_bytes_per_second=found.low,
        expected_bytes_per_second=found.expected,
        high_bytes_per_second=found.high,
        limit_bytes_per_second=found.limit,
        because=found.because,
    )


def _host_wire(name: Literal["socket", "gloo"], count: int, operation: str, num_bytes: int) -> Expectation:
    healthy, start = links.host_wire(name)
    bus_bytes = num_bytes * _bus_factor(operation, count)
    # All ranks share the CPUs that copy the bytes, so with more ranks the low end sinks.
    low = healthy.low * 2 / count
    what = "TCP sockets through the kernel" if name == "socket" else "gloo: GPU memory is copied to the host and sent over TCP"
    return Expectation(
        wire_class=name,
        low=_with_start(low, bus_bytes, start * START_SPREAD),
        expected=_with_start(healthy.expected, bus_bytes, start),
        high=healthy.high,
        limit=None,
        because=(what, f"2 GPUs of one host reach {rate(healthy.low)} to {rate(healthy.high)} ({healthy.source})"),
    )


def _with_start(bytes_per_second: float, bus_bytes: float, start_seconds: float) -> float:
    """The rate left when each operation first loses its start-up time."""
    wire_seconds = bus_bytes / bytes_per_second if bytes_per_second > 0 else 0.0
    return bytes_per_second * wire_seconds / (wire_seconds + start_seconds) if wire_seconds > 0 else 0.0


def _bus_factor(operation: str, count: int) -> float:
    """Bytes on the busiest wire over the message size, as nccl-tests defines busbw (doc/PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2 * (count - 1) / count
    return (count - 1) / count if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def _ring_start(wire_class: WireClass, count: int, operation: str) -> float:
    """Start-up seconds of one ring operation: NCCL's model, scaled to what machines show (see ``links.toml``)."""
    constants = links.latency()
    steps = 2 * (count - 1) if operation == "all_reduce" else 1 if operation == "send_recv" else count - 1
    step = constants.nvlink_step if wire_class == "nvlink" else constants.pcie_step
    return (constants.base + steps * step) * constants.measured_over_model


def _slowest_pair(run: Run, gpus: Sequence[int]) -> Limit | Unknown:
    """The slowest stretch that a ring over these GPUs cannot avoid: a ring leaves every switch and socket somewhere."""
    worst: Limit | None = None
    for index in gpus:
        sides = [(peer_limit(run, index, peer), facts.path_between(run.machine, index, peer)) for peer in gpus if peer != index]
        known = [(side, PATH_RANK.get(path or "", 0)) for side, path in sides if isinstance(side, Limit)]
        if not known:
            return next(side for side, _ in sides if isinstance(side, Unknown))
        farthest = max(known, key=lambda entry: (entry[1], -entry[0].bytes_per_second))[0]
        if worst is None or farthest.bytes_per_second < worst.bytes_per_second:
            worst = farthest
    return worst if worst is not None else Unknown("no GPU was named")


def _switch_sum(run: Run, gpus: Sequence[int], settings: dict[str, str]) -> bool:
    """Whether NCCL may use NVLink SHARP: NVSwitch, Hopper or newer, more than four GPUs, and not switched off."""
    if len(gpus) <= SWITCH_SUM_ABOVE_GPUS or run.machine is None:
        return False
    setting = settings.get("NCCL_NVLS_ENABLE") or (facts.nccl_setting(run, "NCCL_NVLS_ENABLE") or ("",))[0]
    if setting.strip() == "0":
        return False
    for index in gpus:
        gpu = run.machine.gpu(index)
        capability = gpu.compute_capability if gpu else None
        if gpu is None or capability is None or not capability.replace(".", "", 1).isdigit() or float(capability) < 9.0:
            return False
        counts = {facts.nvlinks_between(facts.path_between(run.machine, index, peer)) for peer in gpus if peer != index}
        if counts != {gpu.nvlinks_active}:
            return False
    return True

"""What was measured, with its raw samples. Sizes are bytes, rates bytes per second one way, times seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
Mode = Literal["eager", "graph"]
StopReason = Literal["tight", "budget", "fixed"]
"""Why sampling ended: the interval was tight enough, the time was spent, or the count was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """How busy the host was while something was measured; a busy or stolen CPU disturbs every number."""

    busy_fraction: float | None = None
    """Share of all CPU time used by anyone, our ranks included."""
    steal_fraction: float | None = None
    """Share taken by the hypervisor for other guests."""
    other_busy_fraction: float | None = None
    """Share used by processes that are not ours."""
    frequency_mhz: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies of one buffer from one place to another, repeated.

    A GPU is its NVML index. ``source_gpu`` or ``target_gpu`` is null where that end is host memory. The bandwidth is that of
    one direction, also for ``both_ways`` (the other direction runs at the same time; the total is about twice the figure).
    """

    source_gpu: int | None
    target_gpu: int | None
    route: Literal["direct", "staged", "host"]
    """direct: peer to peer. staged: through host memory. host: one end (or, on a CPU machine, both ends) is host memory."""
    direction: Literal["one_way", "both_ways"]
    concurrency: Literal["alone", "all_pairs"] = "alone"
    """all_pairs: every other pair of a tournament round copied at the same moment, which shows shared uplinks."""
    num_bytes: int
    bandwidth_bytes_per_second: float | None = None
    latency_seconds: float | None = None
    """Median time of a copy of 16 bytes or less, start to end, as seen by the stream."""
    verified: bool | None = None
    """Whether the data was compared at the receiving end, and equal."""
    samples_seconds: tuple[float, ...] = ()
    unstable: bool = False
    host_load: HostLoad | None = None
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"source_gpu", "target_gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTruth:
    """Two processes, one handle: the target's process writes into the source's memory and reads it; both sides compare."""

    source_gpu: int
    target_gpu: int
    outcome: Literal["ok", "wrong_data", "hang", "error", "not_run"]
    num_bytes: tuple[int, ...] = ()
    """The sizes that were tried, in order; on a failure the last one is the one that failed."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One message size of a collective. ``num_bytes`` follows nccl-tests (all-gather and reduce-scatter: totals)."""

    num_bytes: int
    seconds: float
    """Median over iterations of the slowest rank's time."""
    p95_seconds: float | None = None
    algbw_bytes_per_second: float
    busbw_bytes_per_second: float
    samples_seconds: tuple[float, ...] = ()
    operations_per_sample: int = 1
    """A sample is the mean over this many operations queued back to back."""
    stopped: StopReason = "fixed"
    unstable: bool = False
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How NCCL joined a pair of ranks, from its own log: ``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/Socket/0``, ..."""

    source_gpu: int
    target_gpu: int
    name: str
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation over one wire at one world size and mode, swept over message sizes."""

    backend: Literal["nccl", "gloo"]
    operation: Operation
    wire: str
    """``default``, ``clean``, ``p2p_forced``, ``p2p_off``, ``socket``, ``gloo``, ``ethernet``, ...: named after the
    transport that was really used, so a wire asked for as ``p2p_off`` that ran over sockets is ``socket``."""
    wire_requested: str | None = None
    """The wire the settings asked for, where the log showed another."""
    world_size: int
    gpus: tuple[int, ...] = ()
    """NVML indices in rank order; empty on CPU ranks."""
    mode: Mode
    transport: str | None = None
    """The kinds seen, joined by ``+`` (``P2P/CUMEM``, ``SHM/direct``, ``NET/Socket``, ``gloo/tcp``)."""
    transports: tuple[Transport, ...] = ()
    verified: bool | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """What this wire changed in the environment; the rest was as found."""
    points: tuple[Point, ...] = ()
    host_load: HostLoad | None = None
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"wire_requested"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What one GPU (or CPU rank) computes, alone or while all others do the same, with its state read under that load."""

    gpu: int | None
    """NVML index; null on a CPU rank."""
    rank: int
    together: bool
    """False: this one alone. True: all at the same time (power, thermal and lane sharing show here)."""
    dtype: str = "bfloat16"
    matmul_size: int | None = None
    matmul_flops_per_second: float | None = None
    """Sustained: the median over a second or so, in which a GPU reaches its power limit. What training gets."""
    matmul_burst_flops_per_second: float | None = None
    """Of the first ten products after a pause: what short benchmarks print."""
    matmul_samples_seconds: tuple[float, ...] = ()
    memory_bytes_per_second: float | None = None
    """Bytes read plus bytes written by a device copy."""
    memory_samples_seconds: tuple[float, ...] = ()
    clocks_mhz: float | None = None
    """Median SM clock during the load."""
    throttle_reasons: tuple[str, ...] | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    pcie: PcieUnderLoad | None = None
    layer_seconds: float | None = None
    """Forward and backward of one block of the 1.7 B GPT (hidden 2304, 18 heads, batch 4 x 1024), for the headline."""
    head_seconds: float | None = None
    """Forward and backward of that model's output head and loss."""
    unstable: bool = False
    host_load: HostLoad | None = None
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieUnderLoad:
    """The PCIe link while copies run over it."""

    generation: int | None = None
    width: int | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A matrix product beside an all-reduce: how much each slows the other (factors >= 1 are slow-downs)."""

    kernel: Literal["matmul", "layer"] = "matmul"
    """What ran beside it, and what ``matmul_*`` is the time of: one large product, or forward and backward of one transformer layer
    (as ``Compute.layer_seconds``), whose many kernels feel the collective the way a training step does."""
    gpu: int | None
    rank: int
    wire: str
    world_size: int
    num_bytes: int
    matmul_alone_seconds: float
    matmul_beside_seconds: float
    all_reduce_alone_seconds: float
    all_reduce_beside_seconds: float
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong while measuring. Never an exception: what was measured before it is kept."""

    kind: Literal["hang", "rank_died", "error", "out_of_time", "survived_kill", "skipped", "wrong_data", "start_failed"]
    stage: str
    """The stage of the measurement plan (``compute``, ``copies``, ``peer_truth``, ``wire:p2p_off``, ...)."""
    rank: int | None = None
    gpu: int | None = None
    operation: str | None = None
    wire: str | None = None
    num_bytes: int | None = None
    world_size: int | None = None
    signal: int | None = None
    exit_code: int | None = None
    pid: int | None = None
    detail: str = ""
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset(
        {"rank", "gpu", "operation", "wire", "num_bytes", "world_size", "signal", "exit_code", "pid"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything measured in one run."""

    copies: tuple[Copy, ...] = ()
    peer_truth: tuple[PeerTruth, ...] = ()
    collectives: tuple[Collective, ...] = ()
    compute: tuple[Compute, ...] = ()
    overlap: tuple[Overlap, ...] = ()
    incidents: tuple[Incident, ...] = ()

    @property
    def between_ranks(self) -> tuple[Collective, ...]:
        """The collectives of two or more ranks. One rank alone shows that settings and capture work, but nothing crosses a wire."""
        return tuple(series for series in self.collectives if series.world_size > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What this machine should reach on one subject, computed from the links present and the limits measured.

    A rate is that of one direction, as :class:`Copy` and :class:`Point` count it (for collectives: busbw).
    """

    subject: str
    """``pair_copy``, ``all_reduce``, ``all_gather``, ... : an operation, or what is copied."""
    wire: str
    world_size: int | None = None
    source_gpu: int | None = None
    """NVML index, for a subject that concerns one pair."""
    target_gpu: int | None = None
    low_bytes_per_second: float
    expected_bytes_per_second: float
    high_bytes_per_second: float
    limit_bytes_per_second: float | None = None
    """What the links could carry at most; null on wires that processors carry (sockets, gloo)."""
    because: tuple[str, ...] = ()
    """The steps from the links to the figure, each a sentence ("18 NVLinks of 25 GB/s each way")."""
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"world_size", "source_gpu", "target_gpu", "limit_bytes_per_second"})

"""The machine as found: GPUs, how each pair is joined, software, and what surrounds the process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

P2pCode = Literal["OK", "CNS", "GNS", "TNS", "DR", "NS", "U"]
"""NVML's peer status: OK; chipset, GPU or topology not supported; disabled by registry key; not supported; unknown."""

Origin = Literal["live", "recorded", "constructed", "pasted"]
"""live: asked just now. recorded: saved from a real machine. constructed: built from published text, never a measurement.
pasted: read from text a person gave us."""

PATH_RANK: dict[str, int] = {"NV": 0, "X": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""Distance of a topology code, nearest first; any ``NV<k>`` counts as ``NV``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """A PCIe link now and at most. Idle GPUs shift down, so "now" means something only under load."""

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieHop:
    """One link on the way from a GPU up to its root port; the narrowest hop bounds the GPU's host bandwidth."""

    address: str
    kind: Literal["gpu", "switch_down", "switch_up", "bridge", "root_port", "unknown"]
    link: PcieLink
    acs_redirects: bool | None = None
    """True where ACS sends peer traffic up to the root complex; null when the configuration space is unreadable."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One NVLink of a GPU."""

    index: int
    active: bool
    bandwidth_bytes_per_second: float | None = None
    """One way, as the driver states it for the link."""
    version: int | None = None
    remote_pci_bus_id: str | None = None
    remote_kind: Literal["gpu", "switch", "cpu", "unknown"] = "unknown"
    errors: dict[str, int] = field(default_factory=dict)
    """Counters since driver load: replay, recovery, crc_flit, crc_data; absent ones are unknown."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the driver numbers it (``index`` is the NVML index, never the CUDA ordinal or a rank)."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    pcie: PcieLink = field(default_factory=PcieLink)
    pcie_path: tuple[PcieHop, ...] = ()
    """From the GPU's own port up to the root port; empty when Linux shows no hops (``missing`` says why)."""
    nvlinks_active: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    numa_node: int | None = None
    cpu_affinity: str | None = None
    mig: Literal["enabled", "disabled"] | None = None
    compute_capability: str | None = None
    cuda_ordinal: int | None = None
    """Where this process sees the GPU under CUDA_VISIBLE_DEVICES; null when it is hidden."""
    status: Literal["ok", "lost", "unusable"] = "ok"
    status_reason: str | None = None
    power_limit_watts: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Clock event reasons now, in NVML's words (``sw_power_cap``, ``hw_thermal_slowdown``, ...)."""
    ecc_uncorrected_errors: int | None = None
    fabric_state: str | None = None
    """NVSwitch fabric registration: ``completed``, ``in_progress``, ``not_started``, ``not_supported``."""
    fabric_status: str | None = None
    display_attached: bool | None = None
    other_processes: int | None = None
    """Compute processes that are not ours."""
    utilization_fraction: float | None = None
    """How busy the GPU was in the driver's last sample; shows a tenant whose processes a container hides."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"status_reason"})


@dataclass(frozen=True, slots=True, kw_only=True)
class P2pStatus:
    """What the driver says of a pair, five separate questions; each is a look-up, not a proof that data arrives."""

    read: P2pCode | None = None
    write: P2pCode | None = None
    nvlink: P2pCode | None = None
    atomics: P2pCode | None = None
    pci: P2pCode | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """An ordered pair of NVML indices: P2P can differ by direction."""

    source_gpu: int
    target_gpu: int
    path: str | None = None
    """``NV<k>`` (k links), ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS``, as ``nvidia-smi topo -m`` prints it."""
    p2p: P2pStatus = field(default_factory=P2pStatus)
    peer_access: bool | None = None
    """``cudaDeviceCanAccessPeer``, which needs CUDA in a rank."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLibrary:
    """A libnccl and its version."""

    path: str
    version: str | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Versions and settings. ``nccl_found`` lies on disk; ``nccl_loaded`` is read from a rank's /proc/self/maps."""

    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA the driver supports."""
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA torch was built with; null for a CPU build."""
    python: str | None = None
    kernel: str | None = None
    nccl_found: tuple[NcclLibrary, ...] | None = None
    nccl_loaded: NcclLibrary | None = None
    nccl_environment: dict[str, str] = field(default_factory=dict)
    nccl_conf: dict[str, str] = field(default_factory=dict)
    """``file:NAME`` to value, from /etc/nccl.conf and ~/.nccl.conf (or NCCL_CONF_FILE)."""
    driver_flavour: Literal["official", "unofficial", "unknown"] = "unknown"
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the process is locked in, as far as an unprivileged look can tell."""

    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``, ``lxc``, ``none``, ..."""
    virtual_machine: str | None = None
    """``kvm``, ``firecracker``, ``vmware``, ``wsl2``, ``none``, ..."""
    dev_shm_bytes: int | None = None
    dev_shm_free_bytes: int | None = None
    memlock_bytes: int | None = None
    """Soft limit of locked memory; -1 never: unlimited is ``missing["memlock_bytes"] = "unlimited"``."""
    iommu: Literal["off", "passthrough", "translated"] | None = None
    acs: Literal["on", "off"] | None = None
    """On where any bridge above a GPU redirects peer requests."""
    scheduler: str | None = None
    cloud: str | None = None
    cpu_model: str | None = None
    cpu_vendor: str | None = None
    """``intel``, ``amd``, ``arm``, ...: NCCL's distance policy depends on it."""
    cpus_usable: int | None = None
    cpus_total: int | None = None
    numa_nodes: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cuda_visible_devices: str | None = None
    user_is_root: bool | None = None
    network_interfaces: dict[str, str] = field(default_factory=dict)
    """Interface name to its address with prefix length; loopback and virtual ones included."""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One host."""

    hostname: str | None = None
    origin: Origin = "live"
    origin_note: str | None = None
    """For recorded and constructed machines: where it comes from, with the source."""
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    software: Software = field(default_factory=Software)
    surroundings: Surroundings = field(default_factory=Surroundings)
    driver_state: Literal["ok", "absent", "mismatch", "hung", "error"] | None = None
    """Whether the GPU driver answered. ``absent`` is a machine without one; ``hung`` did not answer in time."""
    driver_detail: str | None = None
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"origin_note", "driver_detail"})

    def gpu(self, index: int) -> Gpu | None:
        """The GPU with this NVML index, or None."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    def pair(self, source_gpu: int, target_gpu: int) -> GpuPair | None:
        """The ordered pair of NVML indices, or None when it was not read."""
        return _pair_index(self.pairs).get((source_gpu, target_gpu))


_INDEXES: dict[int, tuple[tuple[GpuPair, ...], dict[tuple[int, int], GpuPair]]] = {}
"""By identity of the pairs, which each entry holds on to; a 64-GPU machine has 4032 of them and is asked for millions."""
_MOST_INDEXES = 8


def _pair_index(pairs: tuple[GpuPair, ...]) -> dict[tuple[int, int], GpuPair]:
    known = _INDEXES.get(id(pairs))
    if known is None or known[0] is not pairs:
        while len(_INDEXES) >= _MOST_INDEXES:
            _INDEXES.pop(next(iter(_INDEXES)), None)
        index: dict[tuple[int, int], GpuPair] = {}
        for pair in pairs:
            index.setdefault((pair.source_gpu, pair.target_gpu), pair)
        known = _INDEXES[id(pairs)] = (pairs, index)
    return known[1]

"""What an ``NCCL WARN`` line warns of.

The observation ``nccl.warning`` has ``category``, ``text``, ``file`` (source file, line, or a C++ signature), and what the category
adds:

===================== ==========================================================================================================
category              adds
===================== ==========================================================================================================
duplicate_gpu         rank, other_rank, bus_id (printed as "CUDA device", but it is a PCI bus id)
p2p_nvlink            source_gpu, target_gpu: NVLink joins them, yet the driver refuses peer access
shm_no_space          path, size_bytes, error: /dev/shm is full
shm_segment           path, size_bytes, error: a segment could not be made or opened, for whatever reason
shm_absent            path, error: a rank does not find the segment that its peer made
shm_removed           path, error: a segment was gone before its owner removed it
shm_cuda_failure      error: CUDA could not map host memory (most often /dev/shm or locked memory ran out)
nvls_failure          code, error: NVLink SHARP could not be set up (fabric manager)
peer_mapping_limit    device, bus_id, error
peer_failure          device, bus_id, code, error
ipc_failure           call, error
foreign_communicator  a communicator that this copy of NCCL did not make
cuda_failure          code, error
memory                error, size_bytes
memlock               call, error: memory could not be locked for the network card
ib_call               call, error
ib_completion         peer, status, status_name, vendor_error, hca
ib_event              ib_device, event
ib_library            the InfiniBand library is absent (harmless on one host)
ib_device             ib_device: could not be opened or queried
no_interface          no usable network interface
bind                  error: the address of the chosen interface is not this host's
no_efa                error: the plugin for AWS's EFA finds no such card
ofi_completion        error: a transfer of that plugin failed on its way
connect               address, error
bad_address           family: the address of a peer, or of this rank's own interface, is no address at all
rank_count            rank_count, other_rank_count: two ranks were told different numbers of ranks
remote_closed         address, error
version_mismatch      rank, other_rank, version, other_version, or error
collective_mismatch   peers disagree about sizes or operations: the ranks are out of step
bootstrap_mismatch    the same at the first messages, before any collective
device_mismatch       ranks or hosts have different network devices
iommu                 option: missing on the kernel command line (RCCL)
fine_grain            HSA_FORCE_FINE_GRAIN_PCIE is not set (RCCL, old ROCm)
numa_balancing        kernel.numa_balancing is on (RCCL)
files                 too many open files or connections
mnnvl                 multi-node NVLink does not work (IMEX)
nvml                  call, error
no_transport          rank, peer
setting               a setting is wrong; NCCL ignores it
net_plugin            a network plugin failed
timeout               an operation waited too long
===================== ==========================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable

from wiretax.model.observation import Scalar

Values = dict[str, Scalar]

IB_STATUS = {
    1: "local length error", 2: "local QP operation error", 4: "local protection error", 5: "work request flushed",
    6: "memory window bind error", 9: "remote invalid request", 10: "remote access error", 11: "remote operation error",
    12: "transport retry count exceeded", 13: "receiver-not-ready retry count exceeded", 19: "fatal error", 21: "general error",
}  # fmt: skip
"""``enum ibv_wc_status`` of rdma-core's verbs.h."""

_NUMBERS = (
    "rank",
    "other_rank",
    "size_bytes",
    "code",
    "device",
    "source_gpu",
    "target_gpu",
    "rank_count",
    "other_rank_count",
    "status",
    "vendor_error",
    "peer_rank",
)

_ERROR = r"(?P<error>[^\n]{1,160}?)(?: \(\d{1,4}\))?\s*$"

_TABLE: tuple[tuple[str, str], ...] = (
    ("duplicate_gpu", (
        r"Duplicate GPU detected ?: rank (?P<rank>\d{1,7}) and rank (?P<other_rank>\d{1,7}) both on \w{1,8} device "
        r"(?P<bus_id>\w{1,16})"
    )),
    ("duplicate_gpu", r"Multiple Ranks are using the same GPU"),
    ("p2p_nvlink", r"P2P is disabled between NVLINK connected GPUs (?P<source_gpu>\d{1,4}) and (?P<target_gpu>\d{1,4})"),
    ("files", r"Too many open files|Too many connections"),
    ("shm_no_space", rf"posix_fallocate failed ?: {_ERROR}"),
    ("shm_no_space", (
        r"failed to extend (?P<path>\S{1,300}) to (?P<size_bytes>\d{1,15}) bytes(?:, error:? (?P<error>.{1,80}?)"
        r"(?: \(\d{1,4}\))?\s*$)?"
    )),
    (
        "shm_segment",
        (r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S{1,300})(?: \(size (?P<size_bytes>-?\d{1,15})\))?"
        r"(?:, error: (?P<error>.{1,80}?)(?: \(-?\d{1,4}\))?\s*$)?"),
    ),
    ("shm_segment", (
        r"(?:failed to create shared memory file|Could not map) (?P<path>\S{1,300}?),?(?: size "
        r"(?P<size_bytes>-?\d{1,15}))?,? error:? (?P<error>.{1,80}?)(?: \(-?\d{1,4}\))?\s*$"
    )),
    ("shm_segment", r"failed to open shared memory file (?P<path>\S{1,300}?),? error:? (?P<error>.{1,80}?)(?: \(-?\d{1,4}\))?\s*$"),
    ("shm_removed", r"unlink shared memory (?P<path>\S{1,300}) failed(?:, error: (?P<error>.{1,80}))?"),
    ("shm_no_space", r"(?P<path>/dev/shm/\S{1,200}).{0,80}(?P<error>No space left on device)"),
    ("shm_segment", r"Call to (?:shm_open|mmap|ftruncate|open) failed ?:? ?(?P<error>.{1,80})"),
    ("shm_segment", r"(?P<error>Cuda failure.{0,80}).{0,80}shared memory"),
    ("nvls_failure", r"Failed to bind NVLink SHARP \(NVLS\).{0,80}CUDA error (?P<code>\d{1,6}) '(?P<error>[^']{1,120})'"),
    ("nvls_failure", r"NVLS|[Mm]ulticast"),
    ("peer_mapping_limit", (
        r"failed to peer with device (?P<device>\d{1,4})\(=(?P<bus_id>\w{1,16})\): \d{1,6} (?P<error>.{0,40}"
        r"(?:mapping|resources) (?:resources )?exhausted.{0,40})"
    )),
    ("peer_mapping_limit", r"(?P<error>peer mapping resources exhausted)"),
    ("peer_failure", (
        r"failed to peer with device (?P<device>\d{1,4})(?:\(=(?P<bus_id>\w{1,16})\))?: (?P<code>\d{1,6}) "
        r"(?P<error>.{1,120})"
    )),
    ("ipc_failure", r"failed to open (?P<call>CUDA IPC handle) ?: (?P<error>.{1,120})"),
    ("foreign_communicator", r"corrupted comm object detected"),
    ("ipc_failure", r"(?P<call>(?:cuda|hip)Ipc\w{1,40}) failed ?: (?P<error>.{1,120})"),
    ("memlock", (
        r"Call to (?P<call>ibv_\w{0,12}(?:reg_mr|create_cq|create_qp|alloc_pd)\w{0,12}) failed(?: with error)?:? ?"
        r"(?P<error>Cannot allocate memory)"
    )),
    ("memlock", r"(?P<call>NET/OFI Unable to register memory)\b.{0,80}?(?:RC: -?12\b.{0,20}?)?(?P<error>Cannot allocate memory)"),
    ("ib_call", r"Call to (?P<call>(?:ibv|mlx5dv)_\w{1,40}(?:\(\))?) (?:failed|returned)(?: with(?: error)?)? ?(?P<error>.{0,160})"),
    ("ib_call", r"(?P<call>ibv_\w{1,40})\(\) failed with error (?P<error>.{1,120})"),
    ("ib_call", r"(?P<call>ibv_reg\w{0,12}_mr) ?\([^()]{0,40}\)[^:]{0,20}failed: (?P<error>.{1,120})"),
    (
        "ib_completion",
        (
            r"Got completion (?:from peer (?P<peer>\S{1,120}) )?with (?:error (?P<status>\d{1,4})|status="
            r"(?P<status_name>[A-Z_]{0,60})\(?(?P<status2>\d{1,4})\)?)"
            r"(?:.{0,120}?vendor[_ ]err(?:or)?[ =](?P<vendor_error>\d{1,9}))?(?:.{0,400}? hca (?P<hca>\S{1,60}))?"
        ),
    ),
    ("ib_event", (
        r"NET/IB\w{0,12} ?: (?:(?P<ib_device>[\w.-]{1,40}:\d{1,3}) )?(?:async (?:fatal )?event|Got (?:non-fatal )?async event)[^:]"
        r"{0,80}: (?P<event>.{1,160})"
    )),
    ("ib_event", r"(?P<ib_device>[\w.-]{1,40}:\d{1,3}) (?P<event>GID table changed)"),
    ("ib_library", r"Failed to open libibverbs"),
    ("ib_library", r"dlvsym failed on ibv"),
    ("ib_device", r"NET/IB\w{0,12} ?: Unable to (?:open device|query device|query port\S{0,8}) ?(?P<ib_device>\S{0,60})"),
    ("no_interface", (
        r"no socket interface found|No usable listening interface|no interface found|No interface found in the same subnet"
        r"|No IP interface found|no device found (?:matching|after)|Socket creation failed ?: Address family not supported"
    )),
    ("rank_count", r"mismatch in rank count from procs (?P<rank_count>\d{1,7}) : (?P<other_rank_count>\d{1,7})"),
    ("bind", r"[Cc]all to bind failed ?:? ?(?P<error>Cannot assign requested address)"),
    ("no_efa", r"NET/OFI .{0,40}fi_getinfo.{0,20} failed: (?P<error>No data available)"),
    ("ofi_completion", r"NET/OFI .{0,80}(?P<error>[Rr]equest.{0,80}completed with error.{0,160})"),
    ("bad_address", r"connecting to address .{0,120}with family (?P<family>\d{1,6}) is neither AF_INET"),
    ("version_mismatch", (
        r"Mismatched NCCL version detected ?: rank (?P<rank>\d{1,7}) (?:version )?(?P<version>\d{1,6}) rank "
        r"(?P<other_rank>\d{1,7}) (?:version )?(?P<other_version>\d{1,6})"
    )),
    ("version_mismatch", (
        r"(?P<error>NCCL version mismatch with remote peer.{0,160}|NCCL library is (?:too old|not backwards).{0,160}"
        r"|compiled with too old version of NCCL.{0,160})"
    )),
    ("cuda_version", (
        r"(?P<error>CUDA driver version is insufficient.{0,120}|Cuda driver version.{0,120}|CUDA some PFN functions not found."
        r"{0,80}|NCCL cannot be captured in a graph.{0,160})"
    )),
    ("device_mismatch", (
        r"mixed local \w{0,8} ?Net device counts|mixed local CollNet|mismatched physical devices|incompatible devices"
        r"|device is incompatible"
    )),
    ("collective_mismatch", (
        r"[cC]ollective mismatch|[Mm]ismatched collective|[Mm]essage truncated|posted incorrect receive info"
        r"|mismatch in collective sizes"
    )),
    ("iommu", r'Missing "(?P<option>(?:amd_|intel_)?iommu=\w{1,12})" from kernel command line'),
    ("fine_grain", r'Missing "HSA_FORCE_FINE_GRAIN_PCIE'),
    ("numa_balancing", r"NUMA auto balancing enabled"),
    ("mnnvl", r"MNNVL .{0,60}not (?:supported|working)"),
    ("nvml", r"(?P<call>nvml\w{1,60})\(\) failed: (?P<error>.{1,120})|Failed to open libnvidia-ml"),
    ("no_transport", r"[Rr]ank (?P<rank>\d{1,7}) has no transport for \w{1,8} peer (?P<peer_rank>\d{1,7})|No transport found"),
    ("remote_closed", r"(?:Connection closed by remote peer|Connection closed by localRank) ?(?P<address>\S{0,120})"),
    ("remote_closed", r"(?:recv from|send to) (?P<address>\S{1,120}) failed ?: (?P<error>.{1,120})"),
    ("remote_closed", r"(?P<error>Connection reset by peer|Broken pipe)"),
    ("connect", r"[cC]onnect to (?P<address>\S{1,120}) (?:failed ?: |returned )(?P<error>[^,\n]{1,120})"),
    ("connect", (
        r"(?P<error>Connection refused|No route to host|Network is unreachable|Connection timed out|exceeded "
        r"(?:error )?re\w{1,12}.{0,60}|exceeded timeouts.{0,40})"
    )),
    ("cuda_failure", r"(?:Cuda|CUDA|HIP|hip|cuda) (?:failure|error):? ?(?P<code>\d{1,6})? ?:? ?'(?P<error>[^']{1,160})'"),
    ("cuda_failure", r"(?:Cuda|CUDA|HIP) failure(?:.{0,80}): (?P<error>.{1,160})"),
    ("memory", (
        r"Failed to (?:CUDA )?(?:host )?(?:malloc|calloc|alloc\w{0,6})(?: async)? (?P<size_bytes>\d{1,15}) bytes"
        r"|Allocation failed|(?P<error>out of memory|Cannot allocate memory)"
    )),
    ("timeout", r"(?P<error>[tT]imed? ?out.{0,120})"),
    ("net_plugin", r"NET/(?P<net>OFI|[\w ]{1,30}) ?:? ?(?P<error>(?:Unable|Failed|Could(?:n't| not)).{0,200})"),
    ("setting", r"is being ignored|[Ii]nvalid NCCL_\w{1,40}|Invalid config|[Uu]nrecognized|ignoring NCCL_"),
    ("user_buffer", r"is not a valid pointer|invalid (?:argument|root|reduction|type)|ncclInvalid"),
)  # fmt: skip

_PATTERNS = tuple((category, re.compile(pattern)) for category, pattern in _TABLE)

_SHM_FILE = re.compile(r"shm(?:utils)?\.(?:cc|h|cpp)")
_NVLS_FILE = re.compile(r"nvls\.(?:cc|h|cpp)")

_CONVERT: dict[str, Callable[[str], Scalar]] = dict.fromkeys(_NUMBERS, int)


def _has_name(values: Values) -> bool:
    """Whether the segment is one that a peer can have made; a misread handle has no name, or no size."""
    return values.get("size_bytes") != 0 and not str(values.get("path", "")).endswith("/nccl-")


def warning(message: str, file: str | None) -> tuple[str, Values]:
    """The observation of one warning; ``category`` is ``other`` where the message is not one of the known.

    Args:
        message: what stands behind ``NCCL WARN``.
        file: the caller in NCCL's source, which tells a shared-memory CUDA failure from any other.
    """
    values: Values = {"category": "other"}
    for category, pattern in _PATTERNS:
        match = pattern.search(message)
        if match:
            values = {"category": category}
            for name, text in match.groupdict().items():
                if text:
                    values[name] = _CONVERT[name](text) if name in _CONVERT else text.strip()
            break
    if values["category"] == "cuda_failure" and file:
        if _SHM_FILE.search(file):
            values["category"] = "shm_cuda_failure"
        elif _NVLS_FILE.search(file):
            values["category"] = "nvls_failure"
    if values["category"] == "shm_segment" and "No such file" in str(values.get("error", "")) and _has_name(values):
        values["category"] = "shm_absent"
    if values["category"] == "collective_mismatch" and file and file.startswith("bootstrap"):
        values["category"] = "bootstrap_mismatch"
    if values["category"] in ("shm_segment", "shm_cuda_failure") and "No space left" in str(values.get("error", "")):
        values["category"] = "shm_no_space"
    second = values.pop("status2", None)
    if second is not None:
        values["status"] = int(str(second))
    if isinstance(values.get("status"), int) and not values.get("status_name"):
        values["status_name"] = IB_STATUS.get(int(str(values["status"])), "unknown")
    if file:
        values["file"] = file
    values["message"] = message[:300]
    return "nccl.warning", values

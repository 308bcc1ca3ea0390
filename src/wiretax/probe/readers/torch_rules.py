"""Messages of torch.distributed, DDP, gloo, CUDA and frameworks, as patterns with typed groups.

The spellings are those of torch 1.8 to 2.13 (``torch/csrc/distributed/c10d/*.cpp``, ``torch/nn/parallel/distributed.py`` and
``torch/distributed/elastic`` of https://github.com/pytorch/pytorch), gloo, accelerate and vLLM.

============================ ===================================================================================================
kind                         values
============================ ===================================================================================================
torch.watchdog_timeout       rank, sequence, operation, num_elements_in, num_elements_out, timeout_seconds, ran_seconds,
                             process_group
torch.work_status            rank, process_group, failed_at, last_enqueued, last_started, last_completed (sequence numbers)
torch.timeout_elsewhere      rank, from_rank: this rank was told that another one's collective timed out
torch.watchdog_stuck         seconds: the watchdog itself hung in a CUDA or NCCL call
torch.watchdog_error         rank, error: what killed the watchdog
torch.desync                 ranks, state, sequence: what the desync debugger worked out
torch.collective_mismatch    text: ranks run different collectives
torch.barrier_missed         ranks (absent where a rank only says that another failed in monitoredBarrier)
framework.stall              Horovod: only some ranks submitted an operation
torch.nccl_error             error, version (of NCCL), file; the "Last error" behind it is an ``nccl.warning``
torch.nccl_symbol            symbol: the NCCL library that was loaded lacks a function that torch needs
torch.nccl_missing           this torch has no NCCL (Windows, macOS, a CPU build)
torch.no_redirects           Windows or macOS
torch.backend                backend (gloo, nccl, mpi, ...)
torch.gloo_error             error
torch.gloo_loopback          gloo fell back to the loopback address
torch.connect_failed         host, port, error
mpi.connect_failed           address, error: Open MPI's own connection between hosts
torch.store_timeout          text, joined, expected
torch.store_waiting          joined, expected: ranks wait at the start for those that have not come
torch.store_closed           rank, error: the store at rank 0 closed the connection while this rank asked it for NCCL's id
torch.device_guess           rank: the rank's GPU is not known when the first collective runs
torch.cuda_error             error, code
torch.cuda_init              error, code: CUDA could not start
torch.cpu_build              torch is a build without CUDA
torch.gpu_unsupported        gpu, capability: this torch has no kernels for the GPU
torch.out_of_memory          gpu, tried, capacity
torch.shared_memory          error: a loader's worker ran out of shared memory
launcher.rank                rank, of: Lightning announces a rank before all meet
launcher.gpu_used            Lightning trains on a GPU
launcher.all_met             all ranks have met, says Lightning or torch
launcher.out_of_memory       Slurm, Kubernetes or Ray ended a process for want of host memory
torch.rank_failed            rank, local_rank, exit_code, signal
loader.few_workers           Lightning's advice; it stands in many healthy logs
ddp.find_unused_parameters   a flag that costs an extra walk of the graph and found nothing
ddp.unused_parameters        ranks use different parameters
ddp.models_differ            rank, other_rank
ddp.bucket_strides           gradients must be copied into the bucket
gpus.differ                  names
gpus.imbalance               gpu, than
framework.custom_all_reduce  framework, reason (pcie_only, no_p2p, world_size, across_nodes, not_built, other)
framework.p2p_switched_off   framework: P2P and InfiniBand are switched off by the framework itself (accelerate on RTX 40)
framework.old_kernel         found, needed: a Linux kernel on which processes hang (accelerate's warning)
framework.peer_refused       source_gpu, target_gpu: Paddle could not switch peer access on
rdma.gpu_buffer              perftest took its buffer from a GPU
rdma.not_registered          error: perftest or UCX could not register its buffer with the network card
rdma.not_connected           error: two network cards could not be joined
framework.nccl               version: what a framework says it uses
============================ ===================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from wiretax.model.observation import Scalar

_MOST_BEFORE = 640


@dataclass(frozen=True, slots=True)
class Rule:
    """A message: the kind of its observation, its pattern, and the types of its named groups (text where none is given)."""

    kind: str
    pattern: re.Pattern[str]
    types: dict[str, Callable[[str], Scalar]]
    fixed: dict[str, Scalar]
    before: re.Pattern[str] | None = None
    """What may stand in front of the message, looked for only where the message is: a search for it in every line would be slow."""

    def read(self, line: str) -> dict[str, Scalar] | None:
        """The groups that took part, converted; None where the message is not in the line."""
        match = self.pattern.search(line)
        if match is None:
            return None
        groups = match.groupdict()
        if self.before is not None and (front := self.before.search(line, max(0, match.start() - _MOST_BEFORE), match.start())):
            groups = {**front.groupdict(), **groups}
        found = {name: self.types.get(name, str.strip)(text) for name, text in groups.items() if text is not None}
        return {**self.fixed, **found}


def _milliseconds(text: str) -> float:
    return int(text) / 1000


_SIGNALS = {"kill": 9, "killed": 9, "bus": 7, "bus error": 7, "segv": 11, "segmentation fault": 11, "abrt": 6, "aborted": 6}


def _signal(text: str) -> int:
    """A signal's number, from itself, its name (``KILL`` of SIGKILL) or Linux's words for it."""
    return _SIGNALS.get(text.lower()) or int(text)


_NUMBERS = (
    "rank other_rank from_rank of local_rank sequence num_elements_in num_elements_out failed_at last_enqueued last_started last_completed "
    "gpu than code exit_code port joined expected source_gpu target_gpu"
)
_TYPES: dict[str, Callable[[str], Scalar]] = {
    **dict.fromkeys(_NUMBERS.split(), int),
    **dict.fromkeys(("timeout_seconds", "ran_seconds"), _milliseconds),
    "seconds": float,
    "signal": _signal,
}


def _rule(kind: str, pattern: str, before: str | None = None, **fixed: Scalar) -> Rule:
    compiled, front = re.compile(pattern), re.compile(before) if before else None
    names = [*compiled.groupindex, *(front.groupindex if front else ())]
    return Rule(kind, compiled, {name: _TYPES[name] for name in names if name in _TYPES}, fixed, front)


# Before 2.2 "[Rank 0]"; then "[PG 0 Rank 0]", "[PG 0 (default_pg) Rank 0]", "[PG ID 0 PG GUID 0(default_pg) Rank 0]".
_WHO = (
    r"\[(?:PG (?:ID )?(?P<process_group>\d{1,6}\S{0,80}|\S{1,80})(?: PG GUID [^\]]{1,120}?| \([^()]{1,120}\)"
    r"|[^\]\[]{0,120}?) )?Rank (?P<rank>\d{1,7})\]"
)

_CUSTOM = r"[Cc]ustom all-?_?reduce"

RULES: tuple[Rule, ...] = (
    _rule(
        "torch.watchdog_timeout",
        r"Watchdog caught collective operation timeout: Work\w{1,10}\((?:SeqNum=(?P<sequence>\d{1,18}), )?"
        r"OpType=(?P<operation>\w{1,60})(?:, NumelIn=(?P<num_elements_in>\d{1,18}))?(?:, NumelOut=(?P<num_elements_out>\d{1,18}))?"
        r"(?:, [^)]{0,120}?)?(?:Timeout\(ms\)=(?P<timeout_seconds>\d{1,15}))?\)(?: ran for (?P<ran_seconds>\d{1,15}) milliseconds)?",
        before=_WHO + r".{0,20}\Z",
    ),
    _rule(
        "torch.watchdog_timeout",
        r"Work:? Work\w{1,10}\((?:SeqNum=(?P<sequence>\d{1,18}), )?"
        r"OpType=(?P<operation>\w{1,60})(?:, NumelIn=(?P<num_elements_in>\d{1,18}))?(?:, NumelOut=(?P<num_elements_out>\d{1,18}))?"
        r"(?:, [^)]{0,120}?)?(?:Timeout\(ms\)=(?P<timeout_seconds>\d{1,15}))?\) timed out in (?:blocking wait|call to wait)",
        before=_WHO + r".{0,20}\Z",
    ),
    _rule(
        "torch.timeout_elsewhere",
        r"Received a dump signal due to a collective timeout from\s{1,4}"
        r"(?:this local rank|rank\s{1,4}(?P<from_rank>\d{1,7}))",
        before=_WHO + r".{0,20}\Z",
    ),
    _rule(
        "torch.work_status",
        r"[lL]ast enqueued (?:NCCL )?work: (?P<last_enqueued>-?\d{1,18})(?:, last started (?:NCCL )?work: (?P<last_started>-?\d{1,18}))?"
        r".{0,80}?last completed (?:NCCL )?work: (?P<last_completed>-?\d{1,18})",
        before=_WHO + r"(?:.{0,400}?at (?:NCCL )?work(?: sequence id)?: (?P<failed_at>\d{1,18}))?",
    ),
    _rule("torch.watchdog_stuck", r"watchdog got stuck for (?P<seconds>\d{1,9}) ?s\w{0,8}|Heartbeat monitor timed out"),
    _rule(
        "torch.watchdog_error",
        r"(?:NCCL|Process group) watchdog thread terminated with exception: (?P<error>(?!\[Rank \d).{1,200})",
        before=_WHO + r" \Z",
    ),
    _rule(
        "torch.desync",
        (
            r"\[(?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,200})\] (?P<state>joined but didn't finish|finished|didn't join)[^#\n]{0,60}collecti"
            r"ve #(?P<sequence>\d{1,18})"
        ),
    ),
    _rule("torch.collective_mismatch", r"Detected mismatch between collectives on ranks"),
    _rule("torch.barrier_missed", r"Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,200}) failed to pass monitoredBarrier"),
    _rule("torch.barrier_missed", r"[Ss]uccessfully reached monitoredBarrier, but received errors"),
    _rule(
        "framework.stall",
        r"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks|Stalled ops:|has stalled for longer than",
    ),
    _rule(
        "torch.nccl_error",
        r"NCCL error in: ?(?P<file>\S{1,300}?:\d{1,6}),? (?P<error>[^,(\n]{1,120}?)(?: \(run with[^)]{0,80}\))?"
        r"(?:, NCCL version (?P<version>\d{1,3}(?:\.\d{1,3}){0,2}))?\s*$",
    ),
    _rule(
        "torch.nccl_error",
        r"(?P<error>nccl(?:UnhandledCudaError|SystemError|InternalError|InvalidArgument|InvalidUsage|RemoteError)): .{1,200}",
    ),
    _rule(
        "torch.nccl_error",
        r"NCCL [Ee]rror(?: \d)?: (?P<error>unhandled (?:system|cuda) error|internal error|invalid usage|remote process exited)",
    ),
    _rule("torch.nccl_symbol", r"(?:libtorch\w{0,20}\.so: |[Tt]orch\b.{0,60}?)undefined symbol:? ['\"`]?(?P<symbol>p?nccl\w{1,60})"),
    _rule("torch.nccl_missing", r"Distributed package doesn't have NCCL built in|NCCL is not (?:available|built)"),
    _rule("torch.no_redirects", r"Redirects are currently not supported in Windows"),
    _rule(
        "torch.backend",
        r"(?:distributed_backend|(?:ddp|dist|process_group)_backend|init_process_group\(\s*(?:backend\s*=\s*)?"
        r"|[Uu]sing (?:distributed )?backend|backend)\s{0,3}[=:(]?\s{0,3}['\"]?(?P<backend>gloo|nccl|mpi|ucc"
        r"|xccl|hccl|rccl)\b",
    ),
    _rule("torch.gloo_error", r"Gloo connectFullMesh failed with (?P<error>.{1,200})"),
    _rule("torch.gloo_error", r"(?:gloo|transport)/\S{0,80}(?:pair|device|unbound_buffer|context)\.cc:\d{1,6}\]? ?(?P<error>.{1,200})"),
    _rule("torch.gloo_loopback", r"Unable to resolve hostname to a \(local\) address. Using the loopback address"),
    _rule(
        "torch.connect_failed",
        r"(?:client socket has (?:failed to connect to|timed out after \S{1,12} while trying to connect to)|connect to) "
        r"\[?\(?(?P<host>[^\s\[\](),]{1,255})\]?(?::|, )(?P<port>\d{1,5})\)?"
        r"(?: \((?P<error>[^()]{1,160}(?:\([^()]{0,60}\)[^()]{0,60})?)\))?",
    ),
    _rule("mpi.connect_failed", r"btl_tcp\w{0,30}\.c:.{0,160}connect\(\) to (?P<address>\S{1,120}) failed: (?P<error>.{1,120})"),
    _rule("torch.connect_failed", r"server socket has failed to (?:listen|bind).{0,80}(?P<error>[Aa]ddress already in use)"),
    _rule(
        "torch.store_timeout",
        r"[Tt]imed out after \d{1,9} (?:seconds|ms) waiting for clients. (?P<joined>\d{1,7})/"
        r"(?P<expected>\d{1,7}) clients joined",
    ),
    _rule(
        "torch.store_timeout",
        r"(?:DistStoreError|TCPStore|Store).{0,60}(?:[Tt]imeout|[Tt]imed out).{0,120}|wait timeout after \d{1,12}ms, keys: \S"
        r"{0,120}|connect\(\) timed out\. Original timeout was \d{1,12} ms",
    ),
    _rule(
        "torch.store_timeout",
        r"Timed out initializing process group in store based barrier.{0,120}world_size=(?P<expected>\d{1,7}), "
        r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})",
    ),
    _rule(
        "torch.store_waiting",
        r"Waiting in store based barrier.{0,120}world_size=(?P<expected>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})",
    ),
    _rule(
        "torch.store_closed",
        r"store->get\(.{1,40}\) got error: (?P<error>Connection reset by peer|Broken pipe|Failed to recv|Connection was likely closed)",
    ),
    _rule(
        "torch.device_guess",
        r"[Uu]sing GPU (?P<gpu>\d{1,4}) (?:to perform barrier )?as (?:the )?device.{0,60}(?:unknown|by this process)"
        r"|Guessing device ID based on global rank",
    ),
    _rule(
        "torch.cuda_init",
        r"(?P<error>CUDA driver version is insufficient|The NVIDIA driver on your system is too old|CUDA unknown error"
        r"|forward compatibility was attempted on non supported HW|No (?:CUDA|HIP) GPUs are available|CUDA driver initialization failed"
        r"|system has unsupported display driver / cuda driver combination|system not yet initialized|Found no NVIDIA driver"
        r"|CUDA-capable device\(s\) is/are busy or unavailable)",
    ),
    _rule("torch.cuda_init", r"[Ee]rror (?P<code>80[0-9]|999|100|101|35): (?P<error>[a-zA-Z].{1,120})"),
    _rule(
        "torch.cpu_build",
        r"Torch not compiled with CUDA enabled|not linked with CUDA|torch(?:\.__version__)?\S{0,20} ?\S{0,4}\d{1,2}\.\d{1,3}\.\d"
        r"{1,3}\+cpu\b",
    ),
    _rule(
        "torch.gpu_unsupported",
        r" with CUDA capability (?P<capability>sm_\d{2,3}) is not compatible",
        before=r"(?P<name>\S.{2,80})\Z",
    ),
    _rule("torch.gpu_unsupported", r"(?P<error>no kernel image is available for execution on the device)"),
    _rule(
        "torch.out_of_memory",
        (
            r"CUDA out of memory\.? ?(?:Tried to allocate (?P<tried>[\d.]{1,12} \w{1,5}))?(?:.{0,6}?GPU "
            r"(?P<gpu>\d{1,4})(?:;| has a total capacity of) ?(?P<capacity>[\d.]{1,12} ?\w{1,5}))?"
        ),
    ),
    _rule("torch.cuda_error", r"CUDA(?: runtime)? [eE]rror(?: \((?P<code>\d{1,4})\))?: (?P<error>[^\n.(]{3,160})"),
    _rule(
        "torch.cuda_error",
        r"(?P<error>CUBLAS_STATUS_\w{1,40}|uncorrectable ECC error encountered|uncorrectable NVLink error[\w ]{0,40}"
        r"|peer access is not supported between these two devices|peer mapping resources exhausted"
        r"|an illegal memory access was encountered)",
    ),
    _rule(
        "torch.shared_memory",
        r"(?P<error>killed by signal: Bus(?: error.{0,160}|\s{0,4}$)|out of shared memory|unable to (?:write to file"
        r"|open shared memory object|mmap \d{1,15} bytes from file) </?torch_\w{1,60}>.{0,120})",
    ),
    *(
        _rule("torch.rank_failed", pattern)
        for pattern in (
            r"mpirun noticed that process rank (?P<rank>\d{1,7}) .{0,200}exited on signal (?P<signal>\d{1,2})",
            r"process (?P<rank>\d{1,7}) terminated with signal SIG(?P<signal>KILL|BUS|SEGV|ABRT)",
            r"died with <Signals\.SIG\w{2,8}: (?P<signal>\d{1,2})>",
            r"exits with return code = (?P<exit_code>-\d{1,3})\b",
            r"srun: error: \S{1,200}: tasks? (?P<rank>\d{1,7})\S{0,60}: (?P<signal>Killed|Bus error|Segmentation fault|Aborted)",
            r"^\s{0,60}(?:\[\d{1,4}\]:\s{0,60})?rank\s{1,8}: (?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,5})\)",
            r"^\s{0,60}(?:\[rank\d{1,7}\]:\s{0,60})?exitcode\s{1,8}: (?P<exit_code>-?\d{1,5}) \(pid: \d{1,10}\)",
            r"failed \(exitcode: (?P<exit_code>-?\d{1,5})\) local_rank: (?P<local_rank>\d{1,5}) \(pid: \d{1,10}\)",
            r"\] Signal: [A-Z][\w ]{3,30} \((?P<signal>\d{1,2})\)",
            r"Signal (?P<signal>\d{1,2}) \(SIG\w{1,10}\) received by PID \d{1,10}",
        )
    ),
    _rule(
        "launcher.out_of_memory",
        r"Detected \d{1,7} oom[-_]kill events?|srun: error: .{1,240}: Out Of Memory|Reason:\s{1,12}OOMKilled"
        r"|Task was killed due to the node running low on memory",
    ),
    _rule("launcher.rank", r"[Ii]nitializing (?:ddp|distributed): GLOBAL_RANK: (?P<rank>\d{1,7}), MEMBER: \d{1,7}/(?P<of>\d{1,7})"),
    _rule(
        "launcher.all_met",
        r"All (?:distributed|DDP) processes registered|Starting with \d{1,7} processes|Completed store-based barrier",
    ),
    _rule("launcher.gpu_used", r"GPU available: True(?: \(cuda\))?, used: True|LOCAL_RANK: \d{1,4} - CUDA_VISIBLE_DEVICES: \[\d"),
    _rule("loader.few_workers", r"does not have many workers which may be a bottleneck"),
    _rule("ddp.find_unused_parameters", r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused"),
    _rule(
        "ddp.unused_parameters",
        r"Expected to have finished reduction in the prior iteration|marked as ready twice|not used in producing loss",
    ),
    _rule(
        "ddp.models_differ",
        r"DDP expects same model across all ranks|Rank (?P<rank>\d{1,7}) has \d{1,12} params, while rank "
        r"(?P<other_rank>\d{1,7}) has inconsistent",
    ),
    _rule("ddp.bucket_strides", r"Grad strides do not match bucket view strides"),
    _rule("gpus.differ", r"Detected different devices in the system: (?P<names>.{3,600}?)\.(?: Please|\s*$)"),
    _rule(
        "gpus.imbalance",
        r"There is an imbalance between your GPUs|exclude GPU (?P<gpu>\d{1,4}) which has less than \S{1,8} of the memory or cores "
        r"of GPU (?P<than>\d{1,4})",
    ),
    *(
        _rule("framework.custom_all_reduce", pattern, reason=reason)
        for pattern, reason in (
            (rf"{_CUSTOM} is disabled because it'?s not supported on more than two PCIe", "pcie_only"),
            (rf"{_CUSTOM} is disabled because your platform lacks GPU P2P", "no_p2p"),
            (rf"{_CUSTOM} is disabled due to an unsupported world size", "world_size"),
            (rf"{_CUSTOM} is disabled because this process group spans", "across_nodes"),
            (rf"{_CUSTOM}.{{0,40}}(?:could not be imported|is disabled because of missing)", "not_built"),
            (rf"(?:{_CUSTOM}|allreduce) is disabled|Setup Custom allreduce failed", "other"),
        )
    ),
    _rule(
        "framework.p2p_switched_off",
        r"Using RTX (?:3090 or )?(?:40|4000|50)\w{0,2} series .{0,20}doesn't support faster communication", framework="accelerate",
    ),
    _rule(
        "framework.old_kernel",
        r"Detected kernel version (?P<found>\d{1,3}(?:\.\d{1,6}){1,3})\S{0,40}, which is below the recommended minimum of "
        r"(?P<needed>\d{1,3}(?:\.\d{1,6}){1,3})",
    ),
    _rule("framework.peer_refused", r"Cannot enable P2P access from (?P<source_gpu>\d{1,4}) to (?P<target_gpu>\d{1,4})"),
    _rule("rdma.gpu_buffer", r"allocated GPU buffer address at|failed to register address \S{1,40} (?:mem_type bit 0x2|\(?cuda)"),
    _rule("rdma.not_registered", r"(?P<error>Couldn't (?:allocate|register GPU) MR|[Ff]ailed to create mr)"),
    _rule("rdma.not_registered", r"ibv_reg_mr\(.{1,160}\) failed: (?P<error>Bad address)"),
    _rule(
        "rdma.not_connected",
        r"(?P<error>[Ff]ailed to modify QP(?: \d{1,9})? to RT[RS].{0,80}|Unable to Connect the HCA's through the link"
        r"|ibv_create_ah\(.{1,300}\) .{0,80}failed: .{1,80})",
    ),
    _rule("framework.nccl", r"vLLM is using nccl==(?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)", framework="vllm"),
)  # fmt: skip
"""In order: the first that matches wins, except that ``torch.work_status`` may stand beside any other."""

TELLING = re.compile(
    r"[Ww]atchdog|NCCL|nccl|[Gg]loo|collective|[Bb]arrier|CUDA|CUBLAS|c10d|[Ss]ocket|TCPStore|[Tt]imed out|[Tt]imeout|GPU|[Bb]ackend"
    r"|[Rr]ank|allreduce|all_reduce|all-reduce|DDP|find_unused|reduction|bucket view|ready twice|producing loss|[Rr]edirects|RTX"
    r"|kernel version|different devices|ECC|NVLink|peer (?:mapping|access)|many workers|kernel image|illegal memory|exitcode|[Ss]ignal"
    r"|hostname to a|connect to|\+cpu|talled|undefined symbol|processes registered|GLOBAL_RANK|return code|srun: |oom[-_]kill"
    r"|OOMKilled|low on memory|P2P access|btl_tcp|allocate MR|create mr|Got completion|modify QP|HCA's|UCX|store.based barrier"
    r"|rror |driver|initialized|shared memory|</?torch_|forward compat|transport/|enqueued|process_group|Starting with|got error"
)
"""A line without any of these words matches no rule."""

HARMLESS = re.compile(
    r"\s*frame #\d{1,4}: |.{0,120}Exception raised from \w|.{0,160}(?:Some NCCL operations have failed or timed out"
    r"|To avoid data inconsistency|Dumping debug info|ProcessGroupNCCL preparing to dump debug info|Observed flight recorder dump signal"
    r"|This is most likely caused by incorrect usages|terminate called after throwing an instance of|  what\(\):  "
    r"|destroy_process_group\(\) was not called|is deprecated; use TORCH_NCCL|Setting OMP_NUM_THREADS environment variable"
    r"|All distributed processes registered|init_process_group|barrier device_ids)|Last error:\s*$|\*{20,}\s*$|-{20,}\s*$"
)
"""Lines around the telling ones: stack frames, announcements, rulers."""

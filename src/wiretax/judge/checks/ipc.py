"""Memory of a GPU that one process cannot hand to another, and an NCCL that is in one process twice."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.model.finding import Finding
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Reads NCCL's and RCCL's own words; where CUDA calls it unsupported, virtual GPUs are judged by their own check."""
    failed = [o for o in seen.warnings(run, "ipc_failure") if "not supported" not in seen.text(o, "error").lower()]
    if failed and not seen.warnings(run, "iommu"):  # RCCL names the cause itself
        yield Finding(
            code="ipc-failed",
            severity="problem",
            confidence="likely",
            title="One process cannot open the GPU memory of another, so ranks in processes of their own cannot talk peer to peer",
            evidence=seen.lines(failed, 4),
            effect="NCCL stops at its start; one process with all GPUs may work all the same.",
            remedy="To go on: `export NCCL_P2P_DISABLE=1`. The usual causes: ranks in containers that do not share the host's IPC and PID "
            "namespaces (`--ipc=host --pid=host`), GPUs that the other container does not see, PyTorch's expandable segments "
            "(`PYTORCH_CUDA_ALLOC_CONF` without expandable_segments), a device plugin that isolates GPUs.",
            confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
        )
    foreign = seen.warnings(run, "foreign_communicator")
    if foreign:
        yield Finding(
            code="nccl-version-mismatch",
            severity="problem",
            confidence="likely",
            title="Two copies of NCCL are in one process: one does not know the other's communicator",
            evidence=seen.lines(foreign, 4),
            effect="Every collective fails with 'invalid argument'.",
            remedy="Load one only: do not import TensorFlow beside JAX or torch (or the CPU build of it), clear LD_PRELOAD, and remove a "
            "second nvidia-nccl package.",
            confirm="grep -h libnccl /proc/PID/maps | awk '{print $NF}' | sort -u",
        )

"""GPUs that are shared or virtual: ranks on one GPU, vGPU profiles, WSL, and topologies that a virtual machine hides."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.run import Run

_WSL_FROM = (2, 10, 3)
"""A maintainer: NCCL 2.7 does not support WSL2, try 2.10 (NVIDIA/nccl issues 442 and 511)."""

_NOT_SUPPORTED = 801
"""``cudaErrorNotSupported``."""


def check(run: Run) -> Iterator[Finding]:
    """What pasted logs add to what the machine's own fields say."""
    yield from _shared(run)
    yield from _vgpu(run)
    yield from _wsl(run)
    yield from _hidden(run)


def _is_mig(run: Run) -> bool:
    return bool(seen.of(run, "mig.device") or seen.of(run, "mig.instance") or seen.of(run, "nvlink.none_active", why="mig")) or (
        run.machine is not None and any(gpu.mig == "enabled" for gpu in run.machine.gpus)
    )


def _shared(run: Run) -> Iterator[Finding]:
    """NCCL wants one rank for each physical GPU."""
    doubled = seen.warnings(run, "duplicate_gpu")
    if not doubled:
        return
    mig = _is_mig(run)
    ranks = sorted({rank for o in doubled for name in ("rank", "other_rank") if (rank := seen.whole(o, name)) is not None})
    bus = next((seen.text(o, "bus_id") for o in doubled if o.values.get("bus_id")), "")
    yield Finding(
        code="ranks-share-gpu",
        severity="problem",
        confidence="certain",
        title=(f"Ranks {facts.gpus_list(ranks[:8])} sit on one GPU" if ranks else "Several ranks sit on one GPU")
        + (", in different MIG slices of it" if mig else "")
        + (f" (PCI bus id {bus}, not a device number)" if bus else ""),
        evidence=(*seen.lines(doubled, 4), *seen.lines(seen.of(run, "mig.device"), 2)),
        effect="NCCL refuses to start: it needs a GPU of its own for each rank, and MIG slices of one GPU count as that GPU.",
        remedy="A job cannot span slices of one GPU: use whole GPUs (`sudo nvidia-smi -i INDEX -mig 0`), or one rank a physical GPU."
        if mig
        else "Give each rank its own GPU before the first CUDA call: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`; start no more "
        "ranks than GPUs, and look at CUDA_VISIBLE_DEVICES in each rank.",
        confirm="nvidia-smi -L; python -c 'import torch; print(torch.cuda.device_count(), torch.cuda.current_device())'  # in each rank",
    )


def _vgpu(run: Run) -> Iterator[Finding]:
    """CUDA says "not supported" where NCCL asks for peer access or exportable memory: on virtual GPUs that is by design."""
    modes = [
        o
        for o in seen.of(run, "gpu.virtualization")
        if re.fullmatch(r"(?:host[- ]?)?vgpu|non-sriov|vsga", seen.text(o, "mode"), re.IGNORECASE)
    ]
    named = sorted(name for name in seen.gpu_names(run) if re.search(r"\bGRID\b|-\d+[ABCQ]\b", name))
    complaints = seen.warnings(run, "cuda_failure", "peer_failure", "ipc_failure")
    refused = [o for o in complaints if _not_supported(o.values.get("code"), seen.text(o, "error"))]
    virtual = bool(modes or named)
    if not refused and not (virtual and _few_links(run)):
        return
    if (
        any(
            facts.p2p_codes(run.machine, both[0].source_gpu, both[0].target_gpu) - {"OK", "U"}
            for both in facts.unordered_pairs(run.machine)
        )
        and named
    ):
        return  # The driver's own matrix refuses pairs of virtual GPUs: that is said by the check of peer access.
    shown = [*seen.lines(refused, 3), *seen.lines(modes, 2)]
    shown += [evidence(", ".join(named), "machine.gpus")] if named else []
    yield Finding(
        code="vgpu-p2p-limit",
        severity="warning" if virtual else "info",
        confidence="likely" if virtual else "possible",
        title="Virtual GPUs get peer access only over NVLink, with whole-GPU profiles and without unified memory"
        if virtual
        else "CUDA says 'operation not supported' to NCCL: typical of virtual GPUs, which get no peer access over PCIe",
        evidence=tuple(shown),
        effect="NCCL fails at its start, or gradients go through host memory.",
        remedy="To start at all: `export NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0`. For speed ask for passed-through GPUs, or "
        "full-memory profiles "
        "with unified memory off on one host's NVLinked GPUs.",
        confirm="nvidia-smi -q | grep -i 'virtualization mode' && nvidia-smi topo -p2p r",
    )


def _not_supported(code: object, error: str) -> bool:
    return code == _NOT_SUPPORTED or ("not supported" in error.lower() and "peer access" not in error)


def _few_links(run: Run) -> bool:
    """A pair of virtual GPUs that the guest shows as PCIe."""
    paths = [facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(run.machine)]
    return any(path is not None and not facts.nvlinks_between(path) for path in paths)


def _wsl(run: Run) -> Iterator[Finding]:
    mentions = seen.of(run, "wsl.mention")
    inside = run.machine is not None and run.machine.surroundings.virtual_machine in ("wsl", "wsl2")
    # Its way of failing there; other places without PCI folders in /sys show it too.
    no_folders = [o for o in seen.warnings(run, "other") if "real path of /sys/class/pci_bus" in seen.text(o, "message")]
    inside = inside or bool(mentions and no_folders)
    if not inside and not no_folders:
        return
    version = facts.nccl_version(run) or next(
        (seen.text(o, "version") for o in seen.of(run, "torch.nccl_error") if o.values.get("version")), None
    )
    parsed = nccl_policy.parse_version(version)
    if parsed is None or parsed >= _WSL_FROM:
        return
    yield Finding(
        code="wsl-nccl-too-old",
        severity="problem" if inside else "info",
        confidence="likely" if inside else "possible",
        title=f"NCCL {version} does not know WSL2; from 2.10 on it does"
        if inside
        else f"NCCL {version} finds no PCI folders, as under WSL2 (or in a container without /sys); from 2.10 on it needs none",
        evidence=(
            *seen.lines((*no_folders, *seen.of(run, "nccl.version"), *seen.of(run, "torch.nccl_error"), *seen.warnings(run, "other")), 3),
            *(seen.lines(mentions, 1) if mentions else [evidence("virtual machine: WSL", "machine.surroundings")] if inside else []),
        ),
        effect="NCCL fails at its start with 'unhandled system error' (it looks for PCI folders that WSL does not have).",
        remedy="Upgrade torch (1.10 or newer brings NCCL 2.10), and the Windows driver. Under WSL data goes through host memory in any "
        "case.",
        confirm='python -c "import torch; print(torch.cuda.nccl.version())"',
    )


def _hidden(run: Run) -> Iterator[Finding]:
    """NCCL says which facts of the PCI tree it could not read."""
    hidden = seen.of(run, "nccl.topology_unreadable")
    whats = {seen.text(o, "what") for o in hidden}
    if not {"max_link_speed", "max_link_width"} & whats or seen.of(run, "nccl.topology_file"):
        return
    if run.machine is not None and run.machine.surroundings.virtual_machine == "none":
        return
    yield Finding(
        code="vm-topology-hidden",
        severity="info",
        confidence="likely",
        title="The real slots and switches are hidden from NCCL, as in a virtual machine",
        evidence=seen.lines(hidden, 3),
        effect="It plans rings on a guessed topology; with NVLink between all GPUs that changes little.",
        remedy="Trust measured pairs, not topology letters; a provider's topology file helps NCCL: `export NCCL_TOPO_FILE=...`.",
        confirm="wiretax check",
    )

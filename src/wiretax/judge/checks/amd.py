"""AMD machines: RCCL's warnings about the IOMMU, and how the GPUs are joined."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Nothing here is NVIDIA's: the cures are kernel options and Infinity Fabric."""
    yield from _iommu(run)
    yield from _balancing(run)
    yield from _links(run)


def _iommu(run: Run) -> Iterator[Finding]:
    """RCCL reads /proc/cmdline only: on kernels that pass through by default its warning is false (fixed in RCCL in 2026)."""
    warned = seen.warnings(run, "iommu")
    if not warned:
        return
    harmless = [
        *seen.of(run, "kernel.config", option="CONFIG_IOMMU_DEFAULT_PASSTHROUGH", value="y"),
        *seen.of(run, "iommu.state", state="passthrough"),
        *seen.of(run, "kernel.cmdline", option="iommu", value="pt"),
        *seen.of(run, "iommu.mention", state="passthrough"),
        *seen.of(run, "iommu.mention", state="off"),
    ]
    broken = [*seen.warnings(run, "ipc_failure"), *seen.of(run, "symptom", what="hang"), *seen.of(run, "iommu.fault")]
    severity: Severity = "info" if harmless else "problem" if broken else "warning"
    confidence: Confidence = "likely"
    others = seen.warnings(run, "fine_grain", "numa_balancing")
    yield Finding(
        code="amd-iommu-pt",
        severity=severity,
        confidence=confidence,
        title="RCCL warns of the IOMMU, but the kernel already passes through: a false alarm"
        if harmless
        else "RCCL misses iommu=pt on the kernel command line: peer to peer may hang or fail",
        evidence=seen.lines((*warned, *harmless, *broken, *others)),
        effect="None, if the kernel's default is passthrough."
        if harmless
        else "Hangs at the first collective between GPUs, or failing IPC handles.",
        remedy="Nothing to do; a newer RCCL does not warn."
        if harmless
        else "First look whether the kernel passes through anyway: `grep IOMMU_DEFAULT_PASSTHROUGH /boot/config-$(uname -r)`. If it "
        "says y, "
        "ignore the warning; else add `iommu=pt` (on AMD processors with `amd_iommu=on`) to GRUB_CMDLINE_LINUX and reboot."
        + (" Old ROCm (5.x) also wants `export HSA_FORCE_FINE_GRAIN_PCIE=1`." if seen.warnings(run, "fine_grain") else "")
        + (" And `sudo sysctl kernel.numa_balancing=0`." if seen.warnings(run, "numa_balancing") else ""),
        confirm="cat /proc/cmdline; grep IOMMU_DEFAULT_PASSTHROUGH /boot/config-$(uname -r); sudo dmesg | grep -i iommu",
    )


def _balancing(run: Run) -> Iterator[Finding]:
    warned = seen.warnings(run, "numa_balancing")
    if warned and not seen.warnings(run, "iommu"):
        yield Finding(
            code="host-noisy",
            severity="info",
            confidence="likely",
            title="The kernel moves memory between its processors' nodes while RCCL runs (kernel.numa_balancing)",
            evidence=seen.lines(warned, 2),
            effect="Times of collectives vary; nothing fails of it.",
            remedy="`sudo sysctl kernel.numa_balancing=0`",
            confirm="cat /proc/sys/kernel/numa_balancing",
        )


def _links(run: Run) -> Iterator[Finding]:
    """All over PCIe, or Infinity Fabric in groups."""
    joined: dict[tuple[int, int], str] = {}
    for observation in seen.of(run, "amd.link"):
        first, second = seen.whole(observation, "source_gpu"), seen.whole(observation, "target_gpu")
        if first is not None and second is not None and first != second and observation.values.get("type"):
            joined[min(first, second), max(first, second)] = seen.text(observation, "type").upper()
    gpus = sorted({gpu for pair in joined for gpu in pair})
    if len(gpus) < 2:
        return
    xgmi = [pair for pair, kind in joined.items() if kind == "XGMI"]
    shown: tuple[Evidence, ...] = (
        *seen.lines((o for o in seen.of(run, "amd.link") if o.values.get("type")), 3),
        evidence(
            f"XGMI: {facts.pairs_text(xgmi) or 'no pair'}; PCIe: {facts.pairs_text(p for p in joined if p not in xgmi) or 'no pair'}",
            "machine.pairs",
        ),
    )
    if not xgmi:
        yield Finding(
            code="amd-pcie-only",
            severity="info",
            confidence="certain",
            title=f"The {len(gpus)} AMD GPUs are joined over PCIe only, no Infinity Fabric link between them",
            evidence=shown,
            effect="Gradients cross PCIe: fit for data parallelism with large batches, too slow for tensor parallelism.",
            remedy="Keep tensor parallelism on one GPU; data parallelism with gradient accumulation. See that the IOMMU passes through "
            "(iommu=pt).",
            confirm="rocm-smi --showtopo",
        )
        return
    groups: list[set[int]] = [{gpu} for gpu in gpus]
    for first, second in xgmi:
        left, right = (next(group for group in groups if gpu in group) for gpu in (first, second))
        if left is not right:
            left |= right
            groups.remove(right)
    if len(groups) < 2:
        return
    listed = "; ".join(facts.gpus_list(sorted(group)) for group in groups)
    largest: set[int] = max(groups, key=len)
    best = ",".join(str(gpu) for gpu in sorted(largest))
    yield Finding(
        code="amd-xgmi-islands",
        severity="warning",
        confidence="certain",
        title=f"Infinity Fabric joins the GPUs only in groups: {listed}",
        evidence=shown,
        effect="A job over all GPUs runs at the rate of the PCIe way between the groups.",
        remedy=f"Keep tensor parallelism, and smaller jobs, inside a group: `export HIP_VISIBLE_DEVICES={best}`.",
        confirm="rocm-smi --showtopo",
    )

"""The host beside the GPUs: noisy neighbours, too few CPUs, CPUs far from a GPU, a topology a VM invented."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.measurement import HostLoad
from wiretax.model.run import Run
from wiretax.units import percent

STEAL = 0.05
"""A hypervisor that takes more than 5 % of the time stretches every launch-bound step."""

OTHERS = 0.25
"""Above this share of all CPUs in others' hands the same step was seen to vary by 15 % instead of 0.3 %."""


def check(run: Run) -> Iterator[Finding]:
    """Load is judged from what was recorded beside the measurements; affinity and topology from the machine."""
    yield from _noisy(run)
    if run.machine is not None:
        yield from _cpus(run)
        yield from _hidden_topology(run)


def _loads(run: Run) -> list[tuple[str, HostLoad]]:
    found = [(f"{c.operation} over {c.wire}", c.host_load) for c in run.measurements.collectives]
    found += [("copies", c.host_load) for c in run.measurements.copies]
    found += [("compute", c.host_load) for c in run.measurements.compute]
    found += [("the profile of a step", one.host_load) for one in run.training.profiles if run.command in ("profile", "scale")]
    found += [(f"training on {one.num_gpus} ranks", one.host_load) for one in run.training.steps]
    return [(what, load) for what, load in found if load is not None]


def _noisy(run: Run) -> Iterator[Finding]:
    loads = _loads(run)
    stolen = [(what, load.steal_fraction) for what, load in loads if (load.steal_fraction or 0.0) > STEAL]
    busy = [(what, load.other_busy_fraction) for what, load in loads if (load.other_busy_fraction or 0.0) > OTHERS]
    if not stolen and not busy:
        return
    seen = []
    if stolen:
        what, worst = max(stolen, key=lambda entry: entry[1] or 0.0)
        seen.append(evidence(f"the hypervisor took up to {percent(worst or 0.0)} of the CPU time (during {what})"))
    if busy:
        what, worst = max(busy, key=lambda entry: entry[1] or 0.0)
        seen.append(evidence(f"other processes used up to {percent(worst or 0.0)} of the CPUs (during {what})"))
    disturbed = len({what for what, _ in [*stolen, *busy]})
    yield Finding(
        code="host-noisy",
        severity="warning",
        confidence="certain",
        title="The host was busy with others while we measured",
        evidence=(*seen, evidence(f"{disturbed} of {len({what for what, _ in loads})} kinds of measurement were disturbed")),
        effect="Sockets, gloo and small messages are measured too slow, and repeats differ; large messages between GPUs hardly change.",
        remedy="Measure again at another time; on a rented machine this noise also reaches your training.",
        confirm="wiretax check --quick",
    )


def _cpus(run: Run) -> Iterator[Finding]:
    machine = run.machine
    gpus = facts.usable_gpus(machine)
    usable = machine.surroundings.cpus_usable if machine else None
    if machine is None or len(gpus) < 2 or usable is None:
        return
    if usable < len(gpus):
        yield Finding(
            code="too-few-cpus",
            severity="warning",
            confidence="certain",
            title=f"{len(gpus)} GPUs share {usable} usable CPUs",
            evidence=(evidence(f"{usable} of {machine.surroundings.cpus_total or 'unknown'} CPUs usable", "machine.surroundings"),),
            effect="Each rank needs at least one CPU to start kernels; sockets and data loading need more.",
            remedy="Give the job more: `docker run --cpuset-cpus=...`, `srun --cpus-per-task=8`, or a larger offer.",
            confirm="nproc",
        )
    nodes = {gpu.numa_node for gpu in gpus if gpu.numa_node is not None and gpu.numa_node >= 0}
    total, count = machine.surroundings.cpus_total, machine.surroundings.numa_nodes
    # Which CPUs those are is not in the document, only how many: enough to say that not every GPU can have near ones.
    if total and count and len(nodes) > 1 and usable <= total // count and not facts.in_virtual_machine(machine):
        yield Finding(
            code="cpu-affinity-mismatch",
            severity="info",
            confidence="possible",
            title=f"GPUs sit on {len(nodes)} NUMA nodes, but the usable CPUs fit into one",
            evidence=(
                evidence(f"{usable} of {total} CPUs usable, {count} NUMA nodes; GPUs on nodes {facts.gpus_list(sorted(nodes))}", "machine"),
            ),
            effect="Ranks of the far GPUs cross the socket link for every launch and every staged byte.",
            remedy="Let the job use CPUs of all nodes, and bind each rank near its GPU: `numactl --cpunodebind=NODE --membind=NODE`.",
            confirm="grep Cpus_allowed_list /proc/self/status && nvidia-smi topo -m",
        )


def _hidden_topology(run: Run) -> Iterator[Finding]:
    machine = run.machine
    pairs = facts.unordered_pairs(machine)
    if machine is None or not pairs or not facts.in_virtual_machine(machine):
        return
    paths = {facts.path_between(machine, both[0].source_gpu, both[0].target_gpu) for both in pairs}
    if None in paths or len(paths) != 1 or any(facts.nvlinks_between(path) for path in paths) or len(pairs) < 2:
        return
    path = next(iter(paths))
    yield Finding(
        code="vm-topology-hidden",
        severity="info",
        confidence="likely",
        title=f"A virtual machine shows every pair as {path}: the real slots and switches are hidden",
        evidence=(evidence(f"virtual machine: {machine.surroundings.virtual_machine}; all {len(pairs)} pairs {path}", "machine"),),
        effect="NCCL plans its rings on an invented topology, and near pairs cannot be told from far ones.",
        remedy="Trust the measured pairs, not the letters; a provider's topology file helps NCCL: `export NCCL_TOPO_FILE=...`.",
        confirm="nvidia-smi topo -m && wiretax check",
    )

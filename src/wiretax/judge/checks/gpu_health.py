"""GPUs that are gone, stuck, busy with somebody else's work, or whose memory fails."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.judge.facts import evidence, gpus_are, gpus_list
from wiretax.model.finding import Finding
from wiretax.model.machine import Gpu
from wiretax.model.run import Run
from wiretax.units import memory, percent

BUSY_UTILIZATION = 0.2
"""The driver's sample covers the last second or less; below this it may be our own start-up."""

FOREIGN_MEMORY_FRACTION = 0.1
"""A CUDA context and driver take 1 to 2 % of a GPU's memory; above this somebody has data there."""

_LOST = re.compile(r"fallen off the bus|gpu is lost|unspecified launch failure|\bxid\b.{0,20}\b79\b", re.IGNORECASE)


def check(run: Run) -> Iterator[Finding]:
    """Reads each GPU's status and counters, and the incidents in which one went away."""
    machine = run.machine
    if machine is not None:
        yield from _lost(machine.gpus)
        yield from _busy(run, machine.gpus)
        yield from _ecc(machine.gpus)
    yield from _lost_while_measuring(run)
    yield from _stuck(run)


def _lost(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    gone = [gpu for gpu in gpus if gpu.status != "ok"]
    if not gone:
        return
    indices = gpus_list(gpu.index for gpu in gone)
    yield Finding(
        code="gpu-lost",
        severity="critical",
        confidence="certain",
        title=f"GPU {indices} does not answer the driver",
        evidence=tuple(
            evidence(f"GPU {gpu.index}: {gpu.status} ({gpu.status_reason or 'no reason given'})", "machine.gpus") for gpu in gone
        ),
        effect="A job that includes it stops or hangs.",
        remedy="Power-cycle the machine (a reboot may not be enough); if it returns, check riser, slot and power cable. "
        "On a rented machine give it back.",
        confirm="nvidia-smi -L && sudo dmesg | grep -i 'xid\\|aer'",
    )


def _busy(run: Run, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    # What somebody pasted was most likely taken while his own job ran.
    if run.machine is None or run.machine.origin == "pasted":
        return
    seen, hidden = [], []
    for gpu in gpus:
        if gpu.other_processes:
            seen.append(evidence(f"GPU {gpu.index}: {gpu.other_processes} other compute processes", "machine.gpus"))
        elif (gpu.utilization_fraction or 0.0) > BUSY_UTILIZATION:
            hidden.append(evidence(f"GPU {gpu.index}: {percent(gpu.utilization_fraction or 0.0)} busy before we began", "machine.gpus"))
        elif gpu.memory_bytes and (gpu.memory_used_bytes or 0) > FOREIGN_MEMORY_FRACTION * gpu.memory_bytes:
            hidden.append(evidence(f"GPU {gpu.index}: {memory(gpu.memory_used_bytes or 0)} in use before we began", "machine.gpus"))
    if not seen and not hidden:
        return
    yield Finding(
        code="gpu-busy",
        severity="warning",
        confidence="certain" if seen else "likely",
        title="Somebody else is using a GPU of this machine" if seen else "A GPU was in use although no process is visible",
        evidence=(*seen, *hidden),
        effect="Every figure of this run may be too low, and your job would share that GPU.",
        remedy="End the other work, or leave that GPU out with CUDA_VISIBLE_DEVICES; on a shared machine ask for exclusive GPUs.",
        confirm="nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
    )


def _ecc(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    bad = [gpu for gpu in gpus if (gpu.ecc_uncorrected_errors or 0) > 0]
    if not bad:
        return
    yield Finding(
        code="ecc-uncorrectable",
        severity="problem",
        confidence="certain",
        title=f"{gpus_are((gpu.index for gpu in bad), 'has', 'have')} uncorrectable memory errors",
        evidence=tuple(evidence(f"GPU {gpu.index}: {gpu.ecc_uncorrected_errors} uncorrected errors", "machine.gpus") for gpu in bad),
        effect="A job that touches the bad rows is killed (Xid 94 or 95) or computes wrong numbers.",
        remedy="Drain the GPU and reset it: `sudo nvidia-smi --gpu-reset -i INDEX`; replace it when the count grows again.",
        confirm="nvidia-smi -q -d ECC,ROW_REMAPPER",
    )


def _lost_while_measuring(run: Run) -> Iterator[Finding]:
    gone = [i for i in run.measurements.incidents if i.kind in ("rank_died", "error", "start_failed") and _LOST.search(i.detail)]
    if not gone:
        return
    first = gone[0]
    which = f"GPU {first.gpu}" if first.gpu is not None else "A GPU"
    yield Finding(
        code="gpu-lost",
        severity="critical",
        confidence="likely",
        title=f"{which} went away during {first.stage}",
        evidence=tuple(evidence(f"{i.stage}: {i.detail}", "measurements.incidents") for i in gone[:4]),
        effect="A training job would have died at this point.",
        remedy="Look for an Xid in `sudo dmesg | grep -i xid`; power-cycle, check riser and power; on a rented machine give it back.",
        confirm="nvidia-smi && wiretax check --quick",
    )


def _stuck(run: Run) -> Iterator[Finding]:
    stuck = [incident for incident in run.measurements.incidents if incident.kind == "survived_kill"]
    if not stuck:
        return
    pids = [str(incident.pid) for incident in stuck if incident.pid is not None]
    yield Finding(
        code="gpu-hung",
        severity="critical",
        confidence="certain",
        title=f"A process does not die even by SIGKILL ({', '.join(pids) or 'pid not known'}): the driver is stuck",
        evidence=tuple(
            evidence(f"{i.stage}: pid {i.pid or 'not known'} is still there. {i.detail}".rstrip(), "measurements.incidents")
            for i in stuck[:4]
        ),
        effect="The GPU it holds stays blocked until the machine reboots.",
        remedy="Reboot the machine; on a rented one give it back.",
        confirm=f"ps -o pid,stat,wchan:32,cmd -p {','.join(pids)}" if pids else "ps -eo pid,stat,wchan:32,cmd | grep ' D'",
    )

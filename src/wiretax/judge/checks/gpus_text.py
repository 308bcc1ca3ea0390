"""GPUs of different kinds or states, as programs complain of them or as ``nvidia-smi`` shows them at work."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from wiretax.judge import facts, seen
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.machine import Gpu
from wiretax.model.run import Run
from wiretax.units import rate

OWN_MEMORY_DIFFERS = 0.7
"""One model's own-memory copies agree within a few per cent; another model or a sick card shows here."""

WORKING = 0.5

LOWER_LIMIT, LESS_POWER, HOT_CELSIUS = 0.8, 0.7, 83.0
"""Limits are set by hand and differ clearly or not at all; NVIDIA's cards slow down at 83 to 90 degrees."""

_THERMAL = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
_POWER = frozenset({"hw_power_brake_slowdown", "sw_power_cap"})


def check(run: Run) -> Iterator[Finding]:
    """Mixed cards by what frameworks and tests say; stragglers by their state under load; the all-reduce an engine cannot use."""
    yield from _differ(run)
    yield from _own_memory(run)
    yield from _held_back(run)
    yield from _custom_all_reduce(run)


def _differ(run: Run) -> Iterator[Finding]:
    said = [*seen.of(run, "gpus.differ"), *seen.of(run, "gpus.imbalance")]
    machine_says = len({gpu.name for gpu in facts.usable_gpus(run.machine) if gpu.name}) > 1
    if not said and not machine_says:
        yield from _told(run)
    if not said or machine_says:
        return
    yield Finding(
        code="gpus-differ",
        severity="warning",
        confidence="certain",
        title="The framework finds GPUs of different kinds",
        evidence=seen.lines(said),
        effect="Tensor and data parallelism run at the slowest GPU's pace, and the smallest memory sets the batch: expect the minimum, "
        "not the sum.",
        remedy="Use GPUs of one kind in a job, or split by layers (pipeline) so that the faster one gets more; set "
        "`CUDA_DEVICE_ORDER=PCI_BUS_ID` so that numbers mean the same everywhere.",
        confirm="nvidia-smi --query-gpu=index,name,memory.total,power.limit --format=csv",
    )


def _told(run: Run) -> Iterator[Finding]:
    """Two models that a sentence puts into one machine."""
    mixed = seen.of(run, "gpu.mix")
    if not mixed:
        return
    rated = any(o.kind == "training.rate" and o.source == mixed[0].source for o in run.observations)
    yield Finding(
        code="gpus-differ",
        severity="warning" if rated else "info",
        confidence="likely" if rated else "possible",
        title=f"The text puts different GPUs into one job: {mixed[0].values['first']} and {mixed[0].values['second']}",
        evidence=seen.lines(mixed, 3),
        effect="Tensor and data parallelism run at the slowest GPU's pace: expect the minimum, not the sum.",
        remedy="Use GPUs of one kind in a job, or split by layers (pipeline) so that the faster one gets more.",
        confirm="nvidia-smi --query-gpu=index,name,memory.total,power.limit --format=csv",
    )


def _own_memory(run: Run) -> Iterator[Finding]:
    """The diagonal of a bandwidth matrix: a card whose own memory is far slower is another model, or sick."""
    speeds = {
        gpu: value
        for o in seen.of(run, "p2p_test.own_memory")
        if (gpu := seen.whole(o, "gpu")) is not None and (value := seen.number(o, "bytes_per_second"))
    }
    if len(speeds) < 2:
        return
    usual = median(speeds.values())
    odd = sorted(gpu for gpu, value in speeds.items() if value < OWN_MEMORY_DIFFERS * usual)
    if not odd or len(odd) * 2 > len(speeds):
        return
    lines = [o for o in seen.of(run, "p2p_test.own_memory") if seen.whole(o, "gpu") in odd]
    yield Finding(
        code="gpus-differ",
        severity="warning",
        confidence="likely",
        title=f"{facts.gpus_are(odd, 'copies in its', 'copy in their')} own memory far slower than the others: another model, or held back",
        evidence=(
            evidence(f"GPU {facts.gpus_list(odd)}: {rate(min(speeds[gpu] for gpu in odd))} in its own memory; the others {rate(usual)}"),
            *seen.lines(lines, 2),
        ),
        effect="Every collective waits for it.",
        remedy="See which model it is and leave it out of the job, or out of the comparison.",
        confirm="nvidia-smi --query-gpu=index,name,clocks.mem,pcie.link.width.current --format=csv",
    )


def _held_back(run: Run) -> Iterator[Finding]:
    """One busy GPU that alone is hot or short of power, among busy equals."""
    if not seen.is_pasted(run):
        return
    busy = [gpu for gpu in facts.usable_gpus(run.machine) if (gpu.utilization_fraction or 0.0) >= WORKING]
    for gpu in busy:
        equals = [other for other in busy if other.index != gpu.index and other.name == gpu.name]
        if equals and gpu.throttle_reasons is None:
            yield from _by_the_table(gpu, equals)
        if not equals or gpu.throttle_reasons is None:
            continue
        own = set(gpu.throttle_reasons) - {reason for other in equals for reason in other.throttle_reasons or ()}
        # A power cap is normal at full load; it sets a GPU apart only if its clock is lower as well.
        hot, weak = own & _THERMAL, own & _POWER and (_slower_clock(gpu, equals) or own & {"hw_power_brake_slowdown"})
        if not hot and not weak:
            continue
        yield Finding(
            code="straggler-thermal" if hot else "straggler-power",
            severity="warning",
            confidence="likely",
            title=f"GPU {gpu.index} is held back by {'heat' if hot else 'its power'} while its equals are not",
            evidence=(
                evidence(f"GPU {gpu.index}: {', '.join(sorted(own))}{_state(gpu)}", "machine.gpus"),
                *(
                    evidence(f"GPU {other.index}: {', '.join(other.throttle_reasons or ()) or 'nothing'}{_state(other)}", "machine.gpus")
                    for other in equals[:2]
                ),
            ),
            effect="All other GPUs wait for it at every step.",
            remedy="Improve its air flow or lower the limit of all: `sudo nvidia-smi -pl WATTS`."
            if hot
            else f"Give it the limit of the others (`sudo nvidia-smi -i {gpu.index} -pl WATTS`), and check its power cables.",
            confirm="nvidia-smi --query-gpu=index,clocks.sm,power.draw,power.limit,temperature.gpu,clocks_event_reasons.active "
            "--format=csv",
        )


def _by_the_table(gpu: Gpu, equals: list[Gpu]) -> Iterator[Finding]:
    """The default table has no reasons, but it has watts and degrees."""
    watts = [other.power_watts for other in equals if other.power_watts]
    limits = [other.power_limit_watts for other in equals if other.power_limit_watts]
    degrees = [other.temperature_celsius for other in equals if other.temperature_celsius is not None]
    if not watts or not limits or gpu.power_watts is None or gpu.power_limit_watts is None:
        return
    capped = gpu.power_limit_watts < LOWER_LIMIT * median(limits) and gpu.power_watts >= 0.95 * gpu.power_limit_watts
    weak = gpu.power_watts < LESS_POWER * median(watts)
    hot = gpu.temperature_celsius is not None and bool(degrees) and gpu.temperature_celsius >= max(HOT_CELSIUS, max(degrees) + 8)
    if not (capped and weak) and not (hot and weak):
        return
    yield Finding(
        code="straggler-power" if capped else "straggler-thermal",
        severity="warning" if capped else "info",
        confidence="likely" if capped else "possible",
        title=f"GPU {gpu.index} works at a lower power limit than its equals, and at that limit"
        if capped
        else f"GPU {gpu.index} is far hotter than its equals and draws far less: it may be slowing itself down",
        evidence=tuple(evidence(f"GPU {one.index}{_state(one)}", "machine.gpus") for one in (gpu, *equals[:3])),
        effect="All other GPUs wait for it at every step.",
        remedy=f"Give it the limit of the others (`sudo nvidia-smi -i {gpu.index} -pl {median(limits):.0f}`), and check its power cables."
        if capped
        else "Look at its reasons; improve its air flow or lower the limit of all: `sudo nvidia-smi -pl WATTS`.",
        confirm="nvidia-smi --query-gpu=index,clocks.sm,power.draw,power.limit,temperature.gpu,clocks_event_reasons.active --format=csv",
    )


def _slower_clock(gpu: Gpu, equals: list[Gpu]) -> bool:
    clocks = [other.sm_clock_mhz for other in equals if other.sm_clock_mhz]
    return bool(clocks) and gpu.sm_clock_mhz is not None and gpu.sm_clock_mhz < 0.9 * median(clocks)


def _state(gpu: Gpu) -> str:
    parts = [f"{gpu.sm_clock_mhz} MHz"] if gpu.sm_clock_mhz else []
    parts += [f"{gpu.temperature_celsius:.0f} C"] if gpu.temperature_celsius is not None else []
    parts += [f"{gpu.power_watts:.0f} of {gpu.power_limit_watts:.0f} W"] if gpu.power_watts is not None and gpu.power_limit_watts else []
    return f" ({', '.join(parts)})" if parts else ""


def _custom_all_reduce(run: Run) -> Iterator[Finding]:
    said = seen.of(run, "framework.custom_all_reduce")
    if not said:
        return
    reason = seen.text(said[0], "reason")
    words = {
        "pcie_only": "more than two GPUs without NVLink between them all",
        "no_p2p": "the GPUs have no peer access",
        "world_size": "this number of GPUs is not supported",
        "across_nodes": "the group spans hosts",
        "not_built": "this build does not have it",
    }
    yield Finding(
        code="custom-all-reduce-off",
        severity="info",
        confidence="certain",
        title=f"The engine's own all-reduce is off ({words.get(reason, 'see its line')}), NCCL does the work",
        evidence=seen.lines(said, 3),
        effect="Only small messages lose: some latency a layer under tensor parallelism. It is a consequence, not a fault.",
        remedy="Nothing to repair; `--disable-custom-all-reduce` silences it. Tensor parallelism over PCIe stays slow.",
        confirm="nvidia-smi topo -m && nvidia-smi topo -p2p r",
    )

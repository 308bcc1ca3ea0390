"""A GPU that computes slower than its equals, and why, when its state under load says so."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from wiretax.judge import facts
from wiretax.judge.facts import evidence
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.measurement import Compute
from wiretax.model.run import Run
from wiretax.units import flops, percent, rate

SLOW = 0.90
"""GPUs of one model differ by 3 to 5 %, at times up to 14 % (PRISM); below 90 % of its equals a GPU holds up every step."""

VERY_SLOW = 0.75
"""The straggler score below which NVIDIA's resiliency extension acts."""

THERMAL = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
POWER = frozenset({"hw_power_brake_slowdown", "sw_power_cap"})
ALARMING = frozenset({"hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})


def check(run: Run) -> Iterator[Finding]:
    """Compares GPUs of the same model only; a cause is named when it is this GPU's and not also that of its equals."""
    slow: set[int] = set()
    for together in (False, True):
        for finding, gpu in _slow(run, together):
            if gpu not in slow:
                slow.add(gpu)
                yield finding
    yield from _throttled(run, slow)


def _entries(run: Run, together: bool) -> dict[int, Compute]:
    return {c.gpu: c for c in run.measurements.compute if c.gpu is not None and c.together == together}


def _slow(run: Run, together: bool) -> Iterator[tuple[Finding, int]]:
    entries = _entries(run, together)
    names = {gpu.index: gpu.name for gpu in facts.usable_gpus(run.machine)}
    for index, mine in sorted(entries.items()):
        equals = [c for other, c in entries.items() if other != index and names.get(other) == names.get(index) and c.dtype == mine.dtype]
        worst: tuple[float, str] | None = None
        for what, value, others, text in (
            ("matrix products", mine.matmul_flops_per_second, [c.matmul_flops_per_second for c in equals], flops),
            ("memory", mine.memory_bytes_per_second, [c.memory_bytes_per_second for c in equals], rate),
        ):
            known = [other for other in others if other]
            if value and known and value < SLOW * median(known) and (worst is None or value / median(known) < worst[0]):
                worst = (value / median(known), f"{what}: {text(value)}, its equals {text(median(known))}")
        if worst is not None and not mine.unstable:
            yield _finding(run, index, mine, equals, worst, together), index


def _finding(run: Run, index: int, mine: Compute, equals: list[Compute], worst: tuple[float, str], together: bool) -> Finding:
    share, text = worst
    when = "while all work together" if together else "alone"
    seen: list[Evidence] = [evidence(f"GPU {index} {when}: {text}", "measurements.compute")]
    own = set(mine.throttle_reasons or ()) - {reason for c in equals for reason in c.throttle_reasons or ()}
    code, title, remedy = "straggler", f"GPU {index} is slower than its equals; why is not known", "Compare its slot, cooling and clocks."
    confidence: Confidence = "certain"
    if mine.clocks_mhz is not None:
        others = [c.clocks_mhz for c in equals if c.clocks_mhz is not None]
        seen.append(
            evidence(
                f"GPU {index} runs at {mine.clocks_mhz:.0f} MHz" + (f", its equals at {median(others):.0f} MHz" if others else ""),
                "measurements.compute",
            )
        )
    if own & THERMAL:
        code, confidence = "straggler-thermal", "likely"
        title = f"GPU {index} is slower than its equals because it is hot"
        remedy = "Improve its air flow, clean the fan, or lower the power limit of all: `sudo nvidia-smi -pl WATTS`."
    elif own & POWER or _lower_limit(run, index):
        code, confidence = "straggler-power", "likely"
        title = f"GPU {index} is slower than its equals because of its power limit"
        remedy = f"Give it the limit of the others: `sudo nvidia-smi -i {index} -pl WATTS`; check its power cables."
    if own:
        seen.append(evidence(f"GPU {index} alone reports {', '.join(sorted(own))}", "measurements.compute"))
    severity: Severity = "problem" if share < VERY_SLOW else "warning"
    return Finding(
        code=code,
        severity=severity,
        confidence=confidence,
        title=title,
        evidence=tuple(seen),
        effect=f"All other GPUs wait: every step on all of them runs at {percent(share)} of what it could.",
        remedy=f"{remedy} Or leave it out of the job.",
        confirm="nvidia-smi --query-gpu=index,clocks.sm,power.draw,power.limit,temperature.gpu,clocks_event_reasons.active --format=csv",
    )


def _lower_limit(run: Run, index: int) -> bool:
    gpus = facts.usable_gpus(run.machine)
    mine = next((gpu for gpu in gpus if gpu.index == index), None)
    if mine is None or not mine.power_limit_watts:
        return False
    others = [gpu.power_limit_watts for gpu in gpus if gpu.index != index and gpu.name == mine.name and gpu.power_limit_watts]
    return bool(others) and mine.power_limit_watts < 0.95 * median(others)


def _throttled(run: Run, known: set[int]) -> Iterator[Finding]:
    """All GPUs held down alike: no straggler, but slower than they could be. A plain power cap is normal under full load."""
    held: dict[int, set[str]] = {}
    for entry in run.measurements.compute:
        reasons = set(entry.throttle_reasons or ()) & ALARMING
        if entry.gpu is not None and entry.gpu not in known and reasons:
            held.setdefault(entry.gpu, set()).update(reasons)
    if not held:
        return
    yield Finding(
        code="gpus-throttled",
        severity="warning",
        confidence="certain",
        title=f"{facts.gpus_are(sorted(held), 'is held back by its', 'are held back by their')} hardware under load",
        evidence=tuple(
            evidence(f"GPU {gpu}: {', '.join(sorted(reasons))}", "measurements.compute") for gpu, reasons in sorted(held.items())
        ),
        effect="Compute runs below what these GPUs can do; a long job will be slower still.",
        remedy="Check cooling and power supply; on a rented machine report it.",
        confirm="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    )

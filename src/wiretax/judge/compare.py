"""Two or more runs side by side: which figures differ and how surely, what changed around them, which findings came and went.

A figure differs when a bootstrap interval of the ratio of the two medians leaves out 1 *and* the medians are more than
:data:`WORTH_FRACTION` apart. The interval knows what repeats within a run. It cannot know how much two runs of one unchanged machine
differ (on a busy host, several per cent): where that matters, compare more than two runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wiretax.judge import facts
from wiretax.judge.gate import Gate, as_metrics, evaluate
from wiretax.model.comparison import Change, Comparison, Difference, GateResult, Outcome, Side
from wiretax.model.measurement import Collective, Point
from wiretax.model.run import Run
from wiretax.units import memory

WORTH_FRACTION = 0.02
"""Medians closer than this are the same, however sure the difference is: what one machine repeats to from one hour to the next."""

CONFIDENCE = 0.99
RESAMPLES = 1000
FEWEST_SAMPLES = 4
MOST_SAMPLES = 200
"""Of more, evenly spaced ones are taken: the interval of a median hardly narrows any more."""

_SEED = 20261130


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure with the samples behind it, in the metric's own unit; none where it is not a median of samples."""

    value: float
    samples: tuple[float, ...] = ()


def compare(runs: Sequence[Run], labels: Sequence[str] = (), *, gates: Sequence[Gate] = (), every_size: bool = False) -> Comparison:
    """Compares runs with the first one.

    Args:
        runs: two or more.
        labels: what to call them; ``A``, ``B``, ... by default.
        gates: ``--fail-if`` expressions; a relative one is against the first run. Evaluated on every other run.
        every_size: also the time at each single message size, not only peak and start-up.

    Raises:
        UsageError: a gate names a metric that a run does not have.
        ValueError: fewer than two runs.
    """
    if len(runs) < 2:
        raise ValueError("a comparison needs two runs")
    names = [*labels, *(chr(ord("A") + k % 26) + (str(k // 26) if k >= 26 else "") for k in range(len(labels), len(runs)))]
    sides = tuple(
        Side(label=label, run_id=run.run_id, created_at=run.created_at, title=_title(run)) for label, run in zip(names, runs, strict=False)
    )
    metrics = [sampled(run, every_size=every_size) for run in runs]
    differences = tuple(
        difference
        for side in range(1, len(runs))
        for name, base in metrics[0].items()
        if (other := metrics[side].get(name)) is not None
        for difference in [_difference(name, side, base, other)]
    )
    every = dict.fromkeys(name for one in metrics for name in one)
    only = {name: tuple(k for k, one in enumerate(metrics) if name in one) for name in every}
    codes = dict.fromkeys(finding.code for run in runs for finding in run.findings)
    comparison = Comparison(
        sides=sides,
        differences=tuple(sorted(differences, key=lambda d: (d.side, -_weight(d)))),
        changes=changes(runs),
        findings={code: tuple(any(f.code == code for f in run.findings) for run in runs) for code in codes},
        only_in={name: where for name, where in only.items() if len(where) < len(runs)},
        gates=tuple(_gate(gate, side, runs) for gate in gates for side in range(1, len(runs))),
    )
    return replace(comparison, sentence=_sentence(comparison))


def sampled(run: Run, *, every_size: bool = False) -> dict[str, Metric]:
    """The metrics of :func:`~wiretax.judge.gate.as_metrics` with their samples; counts of findings are left out."""
    samples: dict[str, tuple[float, ...]] = {}
    grouped: dict[tuple[str, str, int], list[Collective]] = {}
    for collective in run.measurements.collectives:
        if collective.points:
            grouped.setdefault((collective.operation, collective.wire, collective.world_size), []).append(collective)
    for (operation, wire, world), found in grouped.items():
        end = f"{wire}.{world}"
        points = [p for c in found for p in c.points]
        head = facts.headline(found)
        peak = head[1] if head else max(points, key=lambda p: p.busbw_bytes_per_second)
        samples[f"{operation}_busbw_peak_bytes_per_second.{end}"] = tuple(
            peak.busbw_bytes_per_second * peak.seconds / s for s in peak.samples_seconds if s > 0
        )
        best: dict[int, Point] = {}
        for point in points:
            if point.num_bytes not in best or point.seconds < best[point.num_bytes].seconds:
                best[point.num_bytes] = point
        samples[f"{operation}_latency_seconds.{end}"] = best[min(best)].samples_seconds
        for num_bytes, point in best.items():
            samples[f"{operation}_seconds.{end}.{num_bytes}"] = point.samples_seconds
    for route in ("direct", "staged"):
        for (a, b), copy in facts.pair_copies(run, route=route).items():
            samples[f"pair_copy_bytes_per_second.{route}.{a}-{b}"] = tuple(copy.num_bytes / s for s in copy.samples_seconds if s > 0)
    for compute in run.measurements.compute:
        if compute.gpu is None or compute.together:
            continue
        for name, rate, seconds in (
            ("matmul_flops_per_second", compute.matmul_flops_per_second, compute.matmul_samples_seconds),
            ("memory_bytes_per_second", compute.memory_bytes_per_second, compute.memory_samples_seconds),
        ):
            if rate and seconds:
                middle = sorted(seconds)[len(seconds) // 2]
                samples[f"{name}.{compute.gpu}"] = tuple(rate * middle / s for s in seconds if s > 0)
    metrics = {}
    for name, value in as_metrics(run).items():
        by_size = "_seconds." in name and "latency" not in name and not name.startswith("step_seconds")
        if name.startswith("findings.") or (by_size and not every_size):
            continue
        metrics[name] = Metric(value=value, samples=samples.get(name, ()))
    return metrics


def bootstrap_ratio(base: Sequence[float], other: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the ratio of medians, other over base, by resampling both (percentile bootstrap).

    Args:
        base: at least one sample, all above zero.
        other: the same.
        confidence: share of repeats in which the interval should hold the true ratio.
    """
    import numpy as np

    generator = np.random.default_rng(_SEED)

    def medians(values: Sequence[float]) -> np.ndarray:
        sample = np.asarray(values, dtype=float)
        if sample.size > MOST_SAMPLES:
            sample = sample[np.linspace(0, sample.size - 1, MOST_SAMPLES).astype(int)]
        drawn: np.ndarray = np.median(sample[generator.integers(0, sample.size, size=(RESAMPLES, sample.size))], axis=1)
        return drawn

    ratios = medians(other) / medians(base)
    tail = (1 - confidence) / 2 * 100
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return float(low), float(high)


def changes(runs: Sequence[Run]) -> tuple[Change, ...]:
    """What is not the same around the runs: machine, software, settings, transports. Volatile readings (heat, load) are no change."""
    around = [surroundings(run) for run in runs]
    settings = {name for run in runs for name in _settings(run)}
    for one, run in zip(around, runs, strict=True):
        if run.machine is not None:
            one.update({name: "not set" for name in settings if name not in one})
    transports = [_transports(run) for run in runs]
    for subject in dict.fromkeys(subject for of_run in transports for subject in of_run):
        # That a wire was not run is no change of its transport.
        if len({of_run[subject] for of_run in transports if subject in of_run}) > 1:
            for one, of_run in zip(around, transports, strict=True):
                one[subject] = of_run.get(subject, "not run")
    subjects = dict.fromkeys(subject for one in around for subject in one)
    found = [Change(subject=subject, values=tuple(one.get(subject) for one in around)) for subject in subjects]
    return tuple(change for change in found if len(set(change.values)) > 1)


def surroundings(run: Run) -> dict[str, str | None]:
    """The facts of machine and software that explain a difference, as text; None where unread."""
    found: dict[str, str | None] = {"wiretax": run.tool.version, "command": run.command or None}
    machine = run.machine
    if machine is not None:
        s, a = machine.software, machine.surroundings
        found["host"] = machine.hostname
        found["GPUs"] = _title(run)
        found["pairs by path"] = _counted(pair.path for pair in machine.pairs if pair.source_gpu < pair.target_gpu)
        found["P2P"] = _counted(pair.p2p.read for pair in machine.pairs if pair.source_gpu < pair.target_gpu)
        found["PCIe at most"] = _counted(
            f"{gpu.pcie.max_generation} x{gpu.pcie.max_width}" if gpu.pcie.max_generation else None for gpu in machine.gpus
        )
        found["NVLinks"] = _counted(None if gpu.nvlinks_active is None else str(gpu.nvlinks_active) for gpu in machine.gpus)
        found["power limit"] = _counted(f"{gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else None for gpu in machine.gpus)
        found |= {"driver": s.driver, "CUDA of the driver": s.cuda, "torch": s.torch, "Python": s.python, "kernel": s.kernel}
        found["NCCL loaded"] = s.nccl_loaded.version if s.nccl_loaded is not None else None
        found |= _settings(run)
        found |= {"container": a.container, "virtual machine": a.virtual_machine, "cloud": a.cloud, "scheduler": a.scheduler}
        found["shared memory"] = memory(a.dev_shm_bytes) if a.dev_shm_bytes is not None else None
        found |= {"IOMMU": a.iommu, "ACS": a.acs, "CPU": a.cpu_model}
        found["CPUs"] = str(a.cpus_usable) if a.cpus_usable is not None else None
    return found


def _transports(run: Run) -> dict[str, str | None]:
    """What carried each wire and number of ranks that was run; None where NCCL's log did not say."""
    found: dict[str, str | None] = {}
    for collective in run.measurements.collectives:
        subject = f"transport of {collective.wire}, {collective.world_size} ranks"
        found[subject] = found.get(subject) or collective.transport or None
    return found


def _settings(run: Run) -> dict[str, str]:
    """NCCL's variables and where each is set; the environment wins over a file, as in NCCL."""
    if run.machine is None:
        return {}
    software = run.machine.software
    files = {name.rpartition(":")[2]: f"{value} ({name.rpartition(':')[0]})" for name, value in software.nccl_conf.items()}
    return {**files, **{name: f"{value} (environment)" for name, value in software.nccl_environment.items()}}


def _difference(name: str, side: int, base: Metric, other: Metric) -> Difference:
    ratio = other.value / base.value if base.value else None
    reason, low, high = "", None, None
    outcome: Outcome = "unknown"
    if ratio is None:
        reason = "the first value is zero"
    elif base.value == other.value and not (base.samples and other.samples):
        outcome, reason = "same", "no samples"
    elif min(len(base.samples), len(other.samples)) < FEWEST_SAMPLES:
        reason = "no samples" if not (base.samples and other.samples) else f"fewer than {FEWEST_SAMPLES} samples"
    elif base.samples == other.samples:
        outcome, low, high = "same", 1.0, 1.0
    else:
        low, high = bootstrap_ratio(base.samples, other.samples)
        apart = abs(ratio - 1) >= WORTH_FRACTION and not low <= 1 <= high
        outcome = ("better" if (ratio > 1) == higher_is_better(name) else "worse") if apart else "same"
    missing = {key: reason for key, value in (("ratio", ratio), ("low", low), ("high", high)) if value is None}
    return Difference(
        metric=name,
        side=side,
        base=base.value,
        value=other.value,
        ratio=ratio,
        low=low,
        high=high,
        outcome=outcome,
        reason=reason,
        missing=missing,
    )


def higher_is_better(metric: str) -> bool:
    """Rates and speed-ups are; times are not."""
    return "per_second" in metric or metric.startswith("speedup")


def _weight(difference: Difference) -> float:
    """What differs surely comes first, the larger the earlier; then what cannot be said; then what is the same."""
    if difference.outcome in ("better", "worse") and difference.ratio:
        return 10 + max(difference.ratio, 1 / difference.ratio)
    return 1.0 if difference.outcome == "unknown" else 0.0


def _gate(gate: Gate, side: int, runs: Sequence[Run]) -> GateResult:
    outcome = evaluate(gate, as_metrics(runs[side]), as_metrics(runs[0]))
    return GateResult(text=gate.text, side=side, true=outcome.true, reasons=outcome.reasons)


def _sentence(comparison: Comparison) -> str:
    """What came out, in one or two sentences a run."""
    parts = []
    first = comparison.sides[0].label
    for side in range(1, len(comparison.sides)):
        mine = [d for d in comparison.differences if d.side == side]
        counts = Counter(d.outcome for d in mine)
        text = f"{comparison.sides[side].label} against {first}: "
        if not mine:
            parts.append(text + "no figure was measured in both.")
            continue
        words = [f"{counts[name]} {name}" for name in ("worse", "better", "same") if counts[name]]
        words += [f"{counts['unknown']} without enough samples to tell"] if counts["unknown"] else []
        text += f"of {len(mine)} figures {', '.join(words)}."
        worst = next((d for d in mine if d.outcome in ("worse", "better")), None)
        if worst is not None and worst.ratio is not None:
            text += f" The largest difference: {_words(worst.metric)} {(worst.ratio - 1) * 100:+.0f} %."
        parts.append(text)
    changed = [change.subject for change in comparison.changes if change.subject not in ("host", "wiretax", "command")]
    if changed:
        listed = ", ".join(changed[:6]) + (f" and {len(changed) - 6} more" if len(changed) > 6 else "")
        parts.append(f"Changed around it: {listed}.")
    else:
        parts.append("Nothing changed around it that could be read.")
    return " ".join(parts)


def _words(metric: str) -> str:
    """A metric as a reader says it: ``all-reduce busbw over default on 2 ranks``; the name itself where it needs no words."""
    name, *rest = metric.split(".")
    for ending, quantity in (("_busbw_peak_bytes_per_second", "busbw"), ("_latency_seconds", "latency")):
        if name.endswith(ending) and len(rest) == 2:
            return f"{name.removesuffix(ending).replace('_', '-')} {quantity} over {rest[0]} on {rest[1]} ranks"
    quantity = {"speedup": "speed-up", "step_seconds": "step time"}.get(name, "")
    return f"{quantity} of {rest[0]} over {rest[1]} on {rest[2]}" if quantity and len(rest) == 3 else metric


def _title(run: Run) -> str:
    gpus = run.machine.gpus if run.machine is not None else ()
    return _counted((gpu.name or "unknown GPU" for gpu in gpus), " x ", " + ") or "no GPU"


def _counted(words: Iterable[str | None], times: str = " x ", join: str = ", ") -> str | None:
    counts = Counter(words)
    if not counts or set(counts) == {None}:
        return None
    return join.join(f"{number}{times}{'unknown' if word is None else word}" for word, number in counts.items())

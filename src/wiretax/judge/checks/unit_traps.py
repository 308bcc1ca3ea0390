"""Figures that mislead: per process against global, it/s against s/it, steps against epochs, Gbit against GB, means over sizes."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts, seen, timings
from wiretax.model.finding import Confidence, Evidence, Finding, Severity
from wiretax.model.run import Run
from wiretax.units import percent, rate, significant

PER_PROCESS_TOLERANCE = 0.25


def check(run: Run) -> Iterator[Finding]:
    """Each trap at most once, with what the figures say when read rightly."""
    if not seen.is_pasted(run):
        return
    yield from _per_process(run)
    yield from _flipped(run)
    yield from _fewer_steps(run)
    kept = list(_kept_steps(run))
    yield from kept or _equal_steps(run)
    yield from _batch(run)
    yield from _bits(run)
    yield from _average(run)


_COMPARE = "python -c 'print(SAMPLES / WALL_CLOCK_SECONDS)'  # for each run: the one figure that compares"


def _finding(
    title: str,
    lines: tuple[Evidence, ...],
    effect: str,
    remedy: str,
    severity: Severity = "warning",
    confidence: Confidence = "certain",
    confirm: str = _COMPARE,
) -> Finding:
    return Finding(
        code="unit-trap",
        severity=severity,
        confidence=confidence,
        title=title,
        evidence=lines,
        effect=effect,
        remedy=remedy,
        confirm=confirm,
    )


def _per_process(run: Run) -> Iterator[Finding]:
    found = [
        o
        for o in seen.of(run, "training.scope_check")
        if (count := seen.whole(o, "num_gpus"))
        and (part := seen.number(o, "counted_fraction"))
        and abs(part * count - 1) < PER_PROCESS_TOLERANCE
    ]
    if not found:
        return
    count = seen.whole(found[0], "num_gpus") or 2
    rates = [o for o in seen.of(run, "training.rate") if o.values.get("samples_per_second") and (seen.whole(o, "num_gpus") or 1) > 1]
    times = [o for o in seen.of(run, "training.run_time") if o.line in {r.line for r in rates}]
    yield _finding(
        "The samples per second count one process, not all GPUs: the run times say so",
        seen.lines((*rates, *times)),
        f"Read as a total, {count} GPUs look {count} times slower than they are.",
        f"Multiply them by the number of processes ({count}), or compare run times.",
    )


def _flipped(run: Run) -> Iterator[Finding]:
    flipped = [s for s in timings.scalings(run) if s.units_flip]
    if not flipped:
        return
    shown = seen.lines([o for s in flipped for o in (s.base, s.entry)])
    one = flipped[0]
    yield _finding(
        "One run is in steps per second, the other in seconds per step: progress bars flip the unit below one step a second",
        shown,
        f"{_written(one.base)} and {_written(one.entry)} look alike and differ by "
        f"{significant(max(one.best, 1 / one.best) if one.best else 1, 2)}x; one of them may be misread.",
        "Bring both to seconds per sample before judging: seconds per step divided by the global batch.",
    )


def _written(observation: object) -> str:
    values = getattr(observation, "values", {})
    return f"{values.get('value')} {values.get('unit')}"


def _fewer_steps(run: Run) -> Iterator[Finding]:
    """The batch grew with the GPUs, so an epoch has fewer steps: a step that is no faster, or slower, still halves the time."""
    found = []
    for scaling in timings.scalings(run):
        steps, base = seen.number(scaling.entry, "steps"), seen.number(scaling.base, "steps")
        if scaling.metric == "run_time" and steps and base and steps <= timings.SAME_WORK * base:
            found.append(scaling)
    if not found:
        return
    best = max(found, key=lambda scaling: scaling.best)
    yield _finding(
        f"Steps are not comparable here: on {best.many} an epoch has fewer of them "
        f"({seen.number(best.entry, 'steps'):.0f} against {seen.number(best.base, 'steps'):.0f})",
        seen.lines([o for s in found for o in (s.base, s.entry)]),
        f"The step rate hides it: the whole run is {significant(best.best * best.ratio, 2)}x as fast on {best.many}.",
        "Compare the time for the same number of samples, not steps.",
        confidence="likely",
    )


def _kept_steps(run: Run) -> Iterator[Finding]:
    """As many steps on several GPUs as on one: each step is of a larger batch, or the same samples are seen several times."""
    told = seen.of(run, "training.steps_kept")
    counted = [
        (base, entry)
        for entry in seen.of(run, "training.steps")
        if (seen.whole(entry, "num_gpus") or 1) > 1
        for base in seen.of(run, "training.steps")
        if seen.whole(base, "num_gpus") == 1
        and base.source == entry.source
        and (seen.whole(entry, "steps") or 0) > timings.SAME_WORK * (seen.whole(base, "steps") or 0)
    ]
    if not told and not counted:
        return
    shown = [o for pair in counted[:2] for o in pair]
    title = "The number of steps was not divided by the number of GPUs"
    if counted:
        base, entry = counted[0]
        title += f": {entry.values['steps']} on {entry.values['num_gpus']} GPUs, {base.values['steps']} on one"
    yield _finding(
        title,
        seen.lines((*shown, *told)),
        "Each step then takes a batch from every GPU, so as many steps are several times the samples: equal times are good scaling, not "
        "none.",
        "Divide the steps by the number of GPUs (a DistributedSampler does it for an epoch; schedules that count iterations must be told), "
        "and compare samples per second of all GPUs together.",
        confidence="likely",
    )


def _equal_steps(run: Run) -> Iterator[Finding]:
    """As many steps on several GPUs as on one, in about the time: no gain, or N times the data in one go."""
    found = [
        s
        for s in timings.scalings(run)
        if s.metric == "run_time"
        and (steps := seen.number(s.entry, "steps"))
        and (base := seen.number(s.base, "steps"))
        and timings.SAME_WORK * base < steps <= base / timings.SAME_WORK
        and s.best >= timings.SAME_WORK
        and s.worst < timings.SAME_WORK
    ]
    if not found:
        return
    one = max(found, key=lambda scaling: scaling.best)
    yield _finding(
        f"Both runs make about as many steps ({seen.number(one.base, 'steps'):.0f} and {seen.number(one.entry, 'steps'):.0f}): "
        "steps are not divided by the GPUs by themselves",
        seen.lines([o for s in found for o in (s.base, s.entry)]),
        f"If each GPU kept its batch, {one.many} went through {one.ratio:g} times the samples, and nothing is wrong; if the "
        "global batch stayed, they bring nothing.",
        f"Divide steps per epoch by the number of GPUs ({one.ratio:g} times as many), or compare samples per second of all GPUs together.",
        "info",
        "likely",
    )


def _batch(run: Run) -> Iterator[Finding]:
    notes = seen.of(run, "training.batch_note")
    steps = [s for s in timings.scalings(run) if s.metric == "seconds_per_step" and not s.units_flip]
    changes = [o for o in seen.of(run, "training.change") if seen.text(o, "what") in ("steps_per_second", "seconds_per_step")]
    if notes:
        yield _finding(
            "The global batch differs between the runs: steps per second do not compare",
            seen.lines((*notes, *changes)),
            "A step does more work on more GPUs when each keeps its own batch.",
            "Multiply the step rate by the global batch of each run.",
        )
    elif (
        steps
        and not seen.of(run, "training.setting", name="global_batch")
        and not any(s.metric != "seconds_per_step" for s in timings.scalings(run))
    ):
        low, high = min(s.worst for s in steps), max(s.best for s in steps)
        yield _finding(
            "Step times alone do not tell whether the batch grew with the GPUs",
            seen.lines([o for s in steps for o in (s.base, s.entry)], 4),
            f"If each GPU kept its batch, efficiency is {percent(steps[0].best)}; if the global batch stayed, {percent(steps[0].worst)}."
            if len(steps) == 1
            else f"Depending on it, efficiency lies between {percent(low)} and {percent(high)}.",
            "Say the batch per GPU, or compare samples per second of all GPUs together.",
            "info",
        )


def _bits(run: Run) -> Iterator[Finding]:
    found = [
        o
        for kind in ("bandwidth.pair", "bandwidth.collective")
        for o in seen.of(run, kind)
        if "b" in seen.text(o, "unit") and "B" not in seen.text(o, "unit") and seen.number(o, "bandwidth_bytes_per_second")
    ]
    if not found:
        return
    first = found[0]
    yield _finding(
        "These speeds are in gigabits: an eighth of it is GB/s",
        seen.lines(found, 4),
        f"{_written(first)} are {rate(seen.number(first, 'bandwidth_bytes_per_second') or 0.0)}; a PCIe 4 x16 slot carries 31.5 GB/s "
        "one way.",
        "Compare bytes with bytes.",
        "info",
        confirm="nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv",
    )


def _average(run: Run) -> Iterator[Finding]:
    """``Avg bus bandwidth`` mixes all sizes; it is far below the peak in a healthy sweep."""
    averages = [o for o in seen.of(run, "nccl_tests.average") if seen.number(o, "busbw_bytes_per_second")]
    heads = [head for c in run.measurements.collectives if (head := facts.headline([c])) is not None]
    if not averages or (heads and len(heads) > 1):
        return
    mean = seen.number(averages[0], "busbw_bytes_per_second") or 0.0
    if heads and mean > 0.7 * heads[0][1].busbw_bytes_per_second:
        return
    peak = f"; at large messages it is {rate(heads[0][1].busbw_bytes_per_second)}" if heads else ""
    yield _finding(
        f"'Avg bus bandwidth' is the mean over all message sizes ({rate(mean)}){peak}",
        seen.lines(averages, 2),
        "A sweep that starts at 8 bytes pulls it down on any machine.",
        "Judge busbw at the sizes your buckets have (25 MB and more).",
        "info",
        confirm="all_reduce_perf -b 64M -e 1G -f 2 -g 2",
    )

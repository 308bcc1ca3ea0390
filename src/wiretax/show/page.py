"""What a report page says, ready to be laid out: headline, figures, findings and facts as text. No markup, no pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wiretax.model.finding import SEVERITIES, Finding
from wiretax.model.run import Run
from wiretax.show.facts import when
from wiretax.show.picture import Picture, picture
from wiretax.show.plain import UNICODE
from wiretax.show.series import Labelled, expectation, gpu_rates, machine_title, pair_rates, peak, scaling_rows, wires_of, workers
from wiretax.show.terminal import headline_words, outcome_words
from wiretax.show.topology import path_class
from wiretax.show.training import Row, box_per_hour
from wiretax.show.wires import WIRE_WORDS, incident_words
from wiretax.units import duration, flops, memory, money, percent, rate, significant, size

NO_ANSWER = "no reason recorded"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the head of the page."""

    label: str
    value: str
    unit: str
    note: str
    tone: str = ""
    """``good``, ``bad`` or nothing."""


@dataclass(frozen=True, slots=True)
class Tax:
    """The wire tax of one wire as two ends of a bar, in percent of the time that is paid for."""

    wire: str
    note: str
    low: float
    high: float
    text: str
    money: str
    measured: bool

    @property
    def uncertain(self) -> bool:
        """Whether the two ends differ so much that it is drawn."""
        return percent(self.high / 100) != percent(self.low / 100)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of provenance: known, or why it is not."""

    label: str
    value: str
    known: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page of one run."""

    title: str
    subtitle: str
    banner: str
    decision: str
    tone: str
    keep: str
    sentence: str
    keep_reason: str
    tiles: tuple[Tile, ...]
    taxes: tuple[Tax, ...]
    tax_title: str
    tax_reason: str
    picture: Picture | None
    gpus: tuple[tuple[str, ...], ...]
    gpu_headings: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_measured: tuple[str, ...]
    assumptions: tuple[str, ...]
    plan: tuple[tuple[str, ...], ...]
    plan_sentence: str
    facts: tuple[tuple[str, tuple[Fact, ...]], ...]
    run_id: str
    tool: str
    command: str
    removed: tuple[str, ...]
    measured: bool
    on_gpus: bool


def page_of(run: Run, removed: Sequence[str] = ()) -> Page:
    """The texts of a page.

    Args:
        run: a cleaned run.
        removed: what redaction took out.
    """
    decision, tone, keep, sentence, reason = _verdict(run)
    row, taxes = headline(run), _taxes(run)
    headings, gpus = _gpus(run)
    return Page(
        title=machine_title(run.machine),
        subtitle=_subtitle(run),
        banner=banner_of(run),
        decision=decision,
        tone=tone,
        keep=keep,
        sentence=sentence,
        keep_reason=reason,
        tiles=_tiles(run, row, taxes),
        taxes=taxes,
        tax_title=next(iter(scaling_rows(run)), ""),
        tax_reason=_tax_reason(run),
        picture=picture(run),
        gpu_headings=headings,
        gpus=gpus,
        findings=tuple(sorted(run.findings, key=lambda finding: -SEVERITIES.index(finding.severity))),
        not_measured=_not_measured(run),
        assumptions=tuple(dict.fromkeys(text for f in run.forecasts for text in f.assumptions)),
        plan=_plan(run),
        plan_sentence=run.plan.sentence if run.plan is not None else "",
        facts=_facts(run),
        run_id=run.run_id,
        tool=f"{run.tool.name} {run.tool.version}",
        command=run.command,
        removed=tuple(removed),
        measured=bool(run.measurements.collectives or run.measurements.copies or run.measurements.compute),
        on_gpus=bool(run.machine is not None and run.machine.gpus),
    )


def headline(run: Run) -> Row | None:
    """The forecast that the page leads with: the wire as found (or without harmful variables), the most GPUs, the first workload."""
    rows = [row for joined in list(scaling_rows(run).values())[:1] for row in joined if row.num_gpus > 1 and row.tax.high is not None]
    for wire in ("default", "clean"):
        mine = [row for row in rows if row.wire == wire]
        if mine:
            return max(mine, key=lambda row: row.num_gpus)
    return None


def _verdict(run: Run) -> tuple[str, str, str, str, str]:
    verdict = run.verdict
    if verdict is None:
        if run.measurements.collectives or run.measurements.copies:
            return "NOT JUDGED", "neutral", "", "This run holds measurements and no verdict.", ""
        return "FACTS ONLY", "neutral", "", "What the driver and Linux say; nothing was measured. wiretax check measures and judges.", ""
    decision, keep = headline_words(run, verdict)
    tone = {"use_all": "good", "use_fewer": "warn", "use_one": "warn", "fix_first": "bad", "cannot_judge": "neutral"}[verdict.decision]
    tone = "bad" if verdict.keep_box is False else tone
    reason = verdict.missing.get("keep_box", "") if verdict.keep_box is None else ""
    return decision, tone, keep, verdict.sentence, reason


def _subtitle(run: Run) -> str:
    words = [when(run.created_at)]
    if run.outcome is not None and run.outcome.duration_seconds is not None:
        words.append(f"{run.command or 'run'} took {duration(run.outcome.duration_seconds)}")
    machine = run.machine
    if machine is not None:
        paths = sorted({p.path for p in machine.pairs if p.path and p.path != "X"}, key=lambda p: (path_class(p), p))
        words += ["/".join(paths[:6])] if paths else []
        words += [f"driver {machine.software.driver}"] if machine.software.driver else []
        words += [f"torch {machine.software.torch}"] if machine.software.torch else []
        loaded = machine.software.nccl_loaded
        words += [f"NCCL {loaded.version}"] if loaded is not None and loaded.version else []
    return " \u00b7 ".join(words)


def banner_of(run: Run) -> str:
    """What must be said of a machine that is not the one in front of us; nothing for a live one."""
    machine = run.machine
    if machine is None or machine.origin == "live":
        return ""
    words = {
        "constructed": "Constructed machine, not a measurement",
        "recorded": "Recorded machine",
        "pasted": "Read from pasted text",
    }[machine.origin]
    return f"{words}: {machine.origin_note}" if machine.origin_note else words + "."


def _tiles(run: Run, row: Row | None, taxes: Sequence[Tax]) -> tuple[Tile, ...]:
    tiles = []
    used = next((wire for wire in ("default", "clean", *wires_of(run)) if peak(run, wire) is not None), None)
    best = peak(run, used) if used else None
    if used and best:
        point, series = best
        bound = expectation(run, "all_reduce", used, series.world_size)
        value, _, unit = rate(point.busbw_bytes_per_second).partition(" ")
        note, tone = f"busbw on {series.world_size} ranks at {size(point.num_bytes)}", ""
        if bound is not None:
            share = point.busbw_bytes_per_second / bound.expected_bytes_per_second
            note = f"{percent(share)} of what it should reach"
            tone = "good" if point.busbw_bytes_per_second >= bound.low_bytes_per_second else "bad"
        tiles.append(Tile(f"all-reduce, {used}", ("~" if point.unstable else "") + value, unit, note, tone))
    tax = next((one for one in taxes if row is not None and one.wire == row.wire), None)
    if row is not None and tax is not None:
        least, most = (row.num_gpus * (1 - end / 100) for end in (tax.high, tax.low))
        low, high = significant(least, 2), significant(most, 2)
        tone = "bad" if most < 1 else "good" if least >= 0.7 * row.num_gpus else ""
        span = significant(most) if tax.measured else low if low == high else f"{low}\u2013{high}"
        how = "measured" if tax.measured else "predicted"
        tiles.append(Tile(f"{workers(run, row.num_gpus)} train", span, "\u00d7", f"as fast as one, {how}", tone))
    rates = [r for r in pair_rates([Labelled("", run)]) if r.measured]
    if rates:
        slow = min(rates, key=lambda r: r.measured or 0.0)
        value, _, unit = rate(slow.measured or 0.0).partition(" ")
        which = f"GPU{slow.source} to GPU{slow.target}" + (", through host memory" if slow.route == "staged" else ", peer to peer")
        tone = "" if slow.low is None else "good" if (slow.measured or 0.0) >= slow.low else "bad"
        tiles.append(Tile("slowest pair" if len(rates) > 2 else "pair copy", value, unit, which, tone))
    compute = gpu_rates([Labelled("", run)])
    if compute:
        slow_gpu = max(compute, key=lambda r: r.behind)
        value, _, unit = flops(min(r.together or r.alone or 0.0 for r in compute)).partition(" ")
        late = slow_gpu.behind >= 0.05
        note = f"{slow_gpu.name} is {percent(slow_gpu.behind)} behind" if late else "matrix products, the slowest"
        tiles.append(Tile("compute each", value, unit, note, "bad" if late else ""))
    box = box_per_hour(run)
    if run.price is not None and box is not None and row is not None and tax is not None:
        used_box = box * row.num_gpus / max(len(run.machine.gpus) if run.machine else 1, 1)
        amount = money(used_box * (tax.low + tax.high) / 200, run.price.currency)
        value, _, unit = amount.partition(" ")
        tiles.append(Tile("wire tax", value, f"{unit}/h", f"of {money(used_box, run.price.currency)} an hour"))
    return tuple(tiles)


def _taxes(run: Run) -> tuple[Tax, ...]:
    """A bar a wire, at the most GPUs that were forecast for it."""
    rows = [row for joined in list(scaling_rows(run).values())[:1] for row in joined if row.num_gpus > 1]
    found: dict[str, Row] = {}
    for row in rows:
        if row.tax.low is not None and (row.wire not in found or row.num_gpus > found[row.wire].num_gpus):
            found[row.wire] = row
    workload = next(iter(scaling_rows(run)), None)
    real = {
        (step.strategy, step.wire, step.num_gpus): max(1 - step.efficiency_fraction, 0.0)
        for step in run.training.steps
        if step.efficiency_fraction is not None and step.num_gpus > 1 and step.workload == workload
    }
    box = box_per_hour(run)
    count = len(run.machine.gpus) if run.machine is not None else 0
    taxes = []
    for row in found.values():
        low, high = row.tax.low or 0.0, row.tax.high or 0.0
        text = percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"
        note = f"{WIRE_WORDS.get(row.wire, row.wire)}, {workers(run, row.num_gpus)}"
        measured = real.get((row.strategy, row.wire, row.num_gpus))
        if measured is not None:
            note += f", measured ({text} predicted)"
            low, high, text = measured, measured, percent(measured)
        paid = ""
        if run.price is not None and box is not None and count:
            paid = f"{money(box / count * row.num_gpus * (low + high) / 2, run.price.currency)} an hour"
        taxes.append(Tax(row.wire, note, low * 100, high * 100, text, paid, measured is not None))
    return tuple(taxes)


def _tax_reason(run: Run) -> str:
    """Why there is no wire tax to show."""
    if not (run.measurements.collectives or run.measurements.copies):
        return "nothing was measured"
    reasons = [reason for f in run.forecasts for name, reason in f.missing.items() if name == "step_seconds"]
    return reasons[0] if reasons else "no step was predicted or trained in this run"


def _gpus(run: Run) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A row a GPU of what the driver says; columns that nobody knows are left out."""
    gpus = run.machine.gpus if run.machine is not None else ()
    columns: list[tuple[str, list[str]]] = [
        ("GPU", [str(gpu.index) for gpu in gpus]),
        ("name", [gpu.name or "" for gpu in gpus]),
        ("memory", [memory(gpu.memory_bytes) if gpu.memory_bytes else "" for gpu in gpus]),
        ("PCIe at most", [_link(gpu.pcie.max_generation, gpu.pcie.max_width) for gpu in gpus]),
        ("NVLinks", ["" if gpu.nvlinks_active is None else str(gpu.nvlinks_active) for gpu in gpus]),
        ("NUMA node", ["" if gpu.numa_node is None else str(gpu.numa_node) for gpu in gpus]),
        ("power limit", [f"{gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else "" for gpu in gpus]),
        ("MIG", [gpu.mig or "" for gpu in gpus]),
        ("state", [gpu.status if gpu.status == "ok" else f"{gpu.status}: {gpu.status_reason or NO_ANSWER}" for gpu in gpus]),
    ]
    kept = [(heading, texts) for heading, texts in columns if any(texts)]
    return tuple(heading for heading, _ in kept), tuple(zip(*([text or "?" for text in texts] for _, texts in kept), strict=True))


def _link(generation: int | None, width: int | None) -> str:
    return f"{generation or '?'} {UNICODE.times}{width or '?'}" if generation or width else ""


def _not_measured(run: Run) -> tuple[str, ...]:
    lines = []
    outcome = run.outcome
    if outcome is not None and outcome.status != "complete":
        lines.append(outcome_words(outcome))
    lines += [f"{incident.stage}: {incident_words(incident)}" for incident in run.measurements.incidents]
    return (*lines, *(outcome.not_measured if outcome is not None else ()))


def _plan(run: Run) -> tuple[tuple[str, ...], ...]:
    if run.plan is None:
        return ()
    lines = []
    for position, option in enumerate(run.plan.options[:40]):
        efficiency = "" if option.efficiency_fraction is None else percent(option.efficiency_fraction)
        cost = "" if option.cost is None or option.currency is None else money(option.cost, option.currency)
        late = {True: "yes", False: "no", None: ""}[option.meets_deadline]
        hours = "" if option.hours is None else significant(option.hours)
        chosen = "\u2713" if position == run.plan.choice else ""
        lines.append((chosen, str(option.num_gpus), option.offer or "", option.strategy or "", hours, cost, efficiency, late))
    return tuple(lines)


def _facts(run: Run) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    machine = run.machine
    groups: list[tuple[str, tuple[Fact, ...]]] = []
    if machine is not None:
        s, a = machine.software, machine.surroundings
        nccl = [f"{n.version or '?'} ({n.path})" for n in s.nccl_found] if s.nccl_found is not None else None
        groups.append(
            (
                "Software",
                (
                    _fact("driver", s.driver, s.missing.get("driver") or machine.driver_detail),
                    _fact("CUDA of the driver", s.cuda, s.missing.get("cuda")),
                    _fact("torch", s.torch and s.torch + ("" if s.torch_cuda else ", CPU only"), s.missing.get("torch")),
                    _fact(
                        "NCCL loaded",
                        f"{s.nccl_loaded.version or '?'} ({s.nccl_loaded.path})" if s.nccl_loaded is not None else None,
                        s.missing.get("nccl_loaded"),
                    ),
                    _fact("NCCL on disk", None if nccl is None else "\n".join(nccl) or "none", s.missing.get("nccl_found")),
                    _fact("NCCL variables", "\n".join(f"{k}={v}" for k, v in s.nccl_environment.items()) or "none set", None),
                    _fact("nccl.conf", "\n".join(f"{k}={v}" for k, v in s.nccl_conf.items()) or "nothing set", None),
                    _fact("Python", s.python, s.missing.get("python")),
                    _fact("kernel", s.kernel, s.missing.get("kernel")),
                ),
            )
        )
        shm = None if a.dev_shm_bytes is None else memory(a.dev_shm_bytes)
        cpus = None if a.cpus_usable is None else f"{a.cpus_usable} usable" + (f" of {a.cpus_total}" if a.cpus_total else "")
        groups.append(
            (
                "Surroundings",
                (
                    _fact("host", machine.hostname, machine.missing.get("hostname")),
                    _fact("container", a.container, a.missing.get("container")),
                    _fact("virtual machine", a.virtual_machine, a.missing.get("virtual_machine")),
                    _fact("shared memory", shm, a.missing.get("dev_shm_bytes")),
                    _fact("IOMMU", a.iommu, a.missing.get("iommu")),
                    _fact("ACS", a.acs, a.missing.get("acs")),
                    _fact("CPU", a.cpu_model, a.missing.get("cpu_model")),
                    _fact("CPUs", cpus, a.missing.get("cpus_usable")),
                    _fact("NUMA nodes", None if a.numa_nodes is None else str(a.numa_nodes), a.missing.get("numa_nodes")),
                    _fact("scheduler", a.scheduler, a.missing.get("scheduler")),
                    _fact("cloud", a.cloud, a.missing.get("cloud")),
                ),
            )
        )
    about = [_fact("run", run.run_id, None), _fact("command", run.command and f"wiretax {run.command}", "not recorded")]
    about += [_fact("written by", f"{run.tool.name} {run.tool.version}", None), _fact("made", when(run.created_at), None)]
    about += [_fact("tags", ", ".join(run.tags), None)] if run.tags else []
    if run.outcome is not None and run.outcome.stage_seconds:
        spent = "\n".join(
            f"{name.replace('_', ' ').replace(':', ' ')} {duration(seconds)}" for name, seconds in run.outcome.stage_seconds.items()
        )
        about.append(_fact("time spent on", spent, None))
    groups.append(("This run", tuple(about)))
    return tuple(groups)


def _fact(label: str, value: str | None, reason: str | None) -> Fact:
    return Fact(label, value) if value else Fact(label, reason or NO_ANSWER, known=False)

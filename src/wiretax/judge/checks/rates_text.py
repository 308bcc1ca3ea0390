"""What people's own measurements of settings show: which way is slow, and which setting pays."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.data import nccl_policy
from wiretax.judge import facts, rates, seen
from wiretax.judge.checks.network import across_hosts
from wiretax.judge.facts import evidence
from wiretax.judge.rates import Gain, Rate
from wiretax.model.finding import Evidence, Finding
from wiretax.model.machine import PATH_RANK
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import percent, rate

WORTH = 1.25
"""Somebody else's figures, of unknown spread: only a clear difference counts."""

COPY_ENGINE = ("NCCL_SHM_USE_CUDA_MEMCPY", "1")

SLOW_P2P_BYTES_PER_SECOND = 2.5e9
"""Published cases of peer to peer through a CPU: 0.9 GB/s (L20), 2 GB/s (all-to-all on 4090s); healthy ones reach 9 and more."""

SLOW_STAGED_BYTES_PER_SECOND = 3.0e9
"""The published case of slow loads and stores through host memory: 2.2 GB/s where the copy engine does 11 to 20."""

COLLAPSE = 0.4
"""busbw of all GPUs below this share of a pair's: shared uplinks cost up to a half, so only more than that is a collapse."""


def check(run: Run) -> Iterator[Finding]:
    """Compares figures of one table or tool only; a live run measures its own wires and is judged elsewhere."""
    if not seen.is_pasted(run):
        return
    found = rates.rates(run)
    compared = rates.gains(found)
    settings = list(_settings(run, compared))
    yield from settings
    told = seen.of(run, "p2p.told_slower")
    if told and not any(gain.after.has("NCCL_P2P_DISABLE", "1") for gain in compared):
        yield _told_slower(run, told)
    if not settings:
        yield from _single_figures(run, found)
    if not _islands(run):
        yield from _collapse(found)
    yield from _known_slow(run, found)
    yield from _gloo(run, found)


def _settings(run: Run, compared: tuple[Gain, ...]) -> Iterator[Finding]:
    """One finding for each kind of setting that helps, with all columns of the table as evidence."""
    engine = [gain for gain in compared if gain.after.has(*COPY_ENGINE) and gain.factor >= WORTH]
    if engine:
        yield _copy_engine(run, engine)
    without = [gain for gain in compared if gain.after.has("NCCL_P2P_DISABLE", "1") and gain.factor >= WORTH]
    if without:
        yield _p2p_slower(run, without)
    level = [gain for gain in compared if gain.after.has("NCCL_P2P_LEVEL") and gain.after.settings[0][1] not in ("LOC", "0")]
    forced = [gain for gain in level if gain.factor >= WORTH]
    if forced:
        name, value = forced[0].after.settings[0]
        yield Finding(
            code="p2p-level-too-low",
            severity="warning",
            confidence="certain",
            title=f"Peer to peer over a longer distance is faster here: {name}={value} brings {_span(forced)}",
            evidence=_shown(forced),
            effect="NCCL's own distance policy leaves this speed unused.",
            remedy=f"`export {name}={value}`, after the data was checked once: `{name}={value} wiretax check --quick`.",
            confirm=f"{name}={value} wiretax check --quick",
        )
    worse = [gain for gain in level if gain.factor <= 1 / WORTH]
    if worse:
        yield _forced_slow(worse)
    known = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", COPY_ENGINE[0]}
    tuned = [g for g in compared if g.factor >= WORTH and not any(name in known for name, _ in g.after.settings)]
    if tuned:
        best = max(tuned, key=lambda gain: gain.factor)
        setting = " ".join(f"{name}={value}" for name, value in best.after.settings)
        yield Finding(
            code="shm-tuning" if "staged" in seen.used(run) else "nccl-tuning",
            severity="info",
            confidence="likely",
            title=f"{setting} was faster in this measurement: {_span(tuned)}",
            evidence=_shown(tuned),
            effect="It holds for this operation and size; small messages may lose.",
            remedy=f"Try `{setting}` in the job and keep it only if steps get shorter.",
            confirm=f"{setting} wiretax check --quick",
        )


def _span(found: list[Gain]) -> str:
    factors = sorted(gain.factor for gain in found)
    return f"{factors[0]:.1f}x" if len(factors) == 1 else f"{factors[0]:.1f}x to {factors[-1]:.1f}x"


def _shown(found: list[Gain]) -> tuple[Evidence, ...]:
    return tuple(dict.fromkeys(line for gain in found[:4] for line in (gain.before.evidence, gain.after.evidence)))


def _copy_engine(run: Run, found: list[Gain]) -> Finding:
    setting = "=".join(COPY_ENGINE)
    log = seen.log(run)
    staged = seen.lines(log.by_class.get("staged", ()), 2) if log is not None else ()
    return Finding(
        code="shm-direct-slow",
        severity="warning",
        confidence="certain",
        title=f"NCCL's way through host memory is slow by its own loads and stores: the copy engine brings {_span(found)}",
        evidence=(*_shown(found), *staged),
        effect=f"It runs at {rate(found[0].before.bytes_per_second)} where the same path carries {rate(found[0].after.bytes_per_second)}, "
        "so neither the IOMMU nor the slot is the limit.",
        remedy=f"`export {setting}` (undocumented: verify results once) with large DDP buckets; small messages become slower.",
        confirm=f"{setting} wiretax check --quick",
    )


def _p2p_slower(run: Run, found: list[Gain]) -> Finding:
    level = facts.nccl_setting(run, "NCCL_P2P_LEVEL")
    forced = [Gain(gain.after, gain.before) for gain in found]
    if level is not None:
        return _forced_slow(forced, f"NCCL_P2P_LEVEL={level[0]}")
    if all(gain.before.has("NCCL_P2P_LEVEL") for gain in found):
        return _forced_slow(forced)
    code, through = _slower_code(run)
    return Finding(
        code=code,
        severity="warning",
        confidence="certain",
        title=f"Peer to peer {through}is slower here than host memory: switching it off brings {_span(found)}",
        evidence=_shown(found),
        effect="NCCL does not measure this and takes the slower way.",
        remedy="`export NCCL_P2P_DISABLE=1`"
        + (", or let NCCL use it only under one switch: `export NCCL_P2P_LEVEL=PXB`." if through else "."),
        confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
    )


def _told_slower(run: Run, told: tuple[Observation, ...]) -> Finding:
    """Somebody says so and gives no figures: believed, and to be measured."""
    code, through = _slower_code(run)
    return Finding(
        code=code,
        severity="warning",
        confidence="likely",
        title=f"Peer to peer {through}is slower here than host memory, says the text, without figures",
        evidence=seen.lines(told, 3),
        effect="NCCL does not measure this and takes the slower way.",
        remedy="Compare both ways before setting anything: `NCCL_P2P_DISABLE=1 wiretax check --quick` and a run without it.",
        confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
    )


def _slower_code(run: Run) -> tuple[str, str]:
    """Whether the slow way is known to lead through the CPU."""
    paths = {facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(run.machine)}
    far = bool(paths) and None not in paths and all(PATH_RANK.get(path or "", 0) > PATH_RANK["PXB"] for path in paths)
    return ("p2p-through-cpu-slow", "through the CPU ") if far else ("p2p-slower-than-staged", "")


def _forced_slow(found: list[Gain], setting: str = "") -> Finding:
    setting = setting or "=".join(found[0].after.settings[0])
    return Finding(
        code="p2p-forced-slow",
        severity="warning",
        confidence="certain",
        title=f"{setting} forces peer to peer, and the way through host memory is faster",
        evidence=_shown(found),
        effect=f"It leaves {percent(min(gain.factor for gain in found))} of the speed.",
        remedy=f"Remove it: `unset {setting.partition('=')[0]}`.",
        confirm=f"env -u {setting.partition('=')[0]} wiretax check --quick",
    )


def _single_figures(run: Run, found: tuple[Rate, ...]) -> Iterator[Finding]:
    """One slow figure and the way it took, with nothing to compare: a suspicion, and the comparison to make."""
    log = seen.log(run)
    if log is None or log.between:
        return
    averages = seen.of(run, "nccl_tests.average")
    figures = [(one.bytes_per_second, one.evidence) for one in found if one.wire != "gloo" and (one.num_gpus or 2) > 1]
    peak = max((value for value, _ in figures), default=None)
    average = max((value for o in averages if (value := seen.number(o, "busbw_bytes_per_second"))), default=None)
    reached = peak if peak is not None else average
    if reached is None:
        return
    shown = [line for value, line in figures if value == peak][:1] or list(seen.lines(averages, 1))
    if log.classes == {"p2p"} and reached < SLOW_P2P_BYTES_PER_SECOND and not seen.nvlink_joins_all(run):
        forced = facts.nccl_setting(run, "NCCL_P2P_LEVEL")
        yield Finding(
            code="p2p-forced-slow" if forced else "p2p-through-cpu-slow",
            severity="info",
            confidence="possible",
            title=f"NCCL goes peer to peer and reaches only {rate(reached)}"
            + (" on average over all sizes" if peak is None else "")
            + ": host memory is often faster",
            evidence=(*seen.lines(log.by_class["p2p"], 2), *shown),
            effect="A mean over all sizes hides the peak; whether the way is slow shows only in a comparison."
            if peak is None
            else "Peer to peer through a CPU reaches 9 GB/s and more on sound machines, and host memory often as much.",
            remedy="Compare both ways: `NCCL_P2P_DISABLE=1 wiretax check --quick` and a run without it; remove a forced NCCL_P2P_LEVEL.",
            confirm="NCCL_P2P_DISABLE=1 wiretax check --quick",
        )
    elif log.classes == {"staged"} and peak is not None and peak < SLOW_STAGED_BYTES_PER_SECOND and not _is_copy_engine(log):
        yield Finding(
            code="shm-direct-slow",
            severity="info",
            confidence="possible",
            title=f"The way through host memory reaches only {rate(peak)}; a copy engine may be several times faster on it",
            evidence=(*seen.lines(log.by_class["staged"], 2), *shown),
            effect="On one published machine with 2.2 GB/s the copy engine brought 11 to 19 GB/s.",
            remedy=f"Try `{'='.join(COPY_ENGINE)}` (undocumented) and keep it only if it helps.",
            confirm=f"{'='.join(COPY_ENGINE)} wiretax check --quick",
        )


def _is_copy_engine(log: seen.Log) -> bool:
    return any("/CE" in seen.text(o, "transport") for o in log.by_class.get("staged", ()))


def _islands(run: Run) -> bool:
    """Whether some pairs have NVLink and others have not: then the whole set is slower than a pair by design."""
    paths = {facts.path_between(run.machine, both[0].source_gpu, both[0].target_gpu) for both in facts.unordered_pairs(run.machine)}
    return len({bool(facts.nvlinks_between(path)) for path in paths}) > 1


def _collapse(found: tuple[Rate, ...]) -> Iterator[Finding]:
    """Figures of two GPUs and of all, from one source and under one setting: busbw should hardly fall."""
    by_operation: dict[tuple[str, tuple[tuple[str, str], ...], str], list[Rate]] = {}
    for one in found:
        if one.num_gpus and one.num_gpus > 1 and one.wire != "gloo":
            by_operation.setdefault((one.operation, one.settings, one.evidence.source), []).append(one)
    for (operation, _, _), same in by_operation.items():
        largest = max(one.num_gpus or 0 for one in same)
        whole = [one for one in same if one.num_gpus == largest]
        smaller = [one for one in same if (one.num_gpus or 0) < largest]
        if largest < 3 or not smaller:
            continue
        # The slowest smaller set bounds any ring that contains it.
        bound = min(smaller, key=lambda one: one.bytes_per_second)
        best = max(whole, key=lambda one: one.bytes_per_second)
        if best.bytes_per_second >= COLLAPSE * bound.bytes_per_second:
            continue
        yield Finding(
            code="subset-collapse",
            severity="warning",
            confidence="likely",
            title=f"{largest} GPUs together reach {percent(best.bytes_per_second / bound.bytes_per_second)} "
            f"of what {bound.num_gpus} GPUs do{f' ({operation})' if operation else ''}",
            evidence=(bound.evidence, best.evidence),
            effect="Training on all GPUs may be slower than on a part of them.",
            remedy="Measure each subset and use the best: `wiretax check`; compare `NCCL_ALGO=Tree` and `NCCL_P2P_DISABLE=1`.",
            confirm="wiretax check",
        )


def _known_slow(run: Run, found: tuple[Rate, ...]) -> Iterator[Finding]:
    """A version of which a slowness is known, and somebody who finds it slow; or two versions, one slow and one not."""
    outcomes = seen.of(run, "outcome", subject="nccl")
    slow = [o for o in outcomes if o.values.get("outcome") in ("slow", "hang", "fail")]
    good = [o for o in outcomes if o.values.get("outcome") == "ok"]
    if slow and good:
        worse, better = seen.text(slow[0], "value"), seen.text(good[0], "value")
        word = {"slow": "slow", "hang": "hangs", "fail": "fails"}[seen.text(slow[0], "outcome")]
        yield Finding(
            code="nccl-version-bug",
            severity="problem",
            confidence="likely",
            title=f"NCCL {worse} {'is slow' if word == 'slow' else word} where NCCL {better} is not: the version, not the machine",
            evidence=seen.lines((*slow, *good)),
            effect="The same machine and job behave differently with another NCCL alone.",
            remedy=f"Use NCCL {better} or a later good one (`pip install nvidia-nccl-cu12=={better}`, cu13 for CUDA 13) "
            "before touching hardware.",
            confirm='python -c "import torch; print(torch.cuda.nccl.version())" && wiretax check --quick',
        )
        return
    yield from _other_torch(run)
    version = facts.nccl_version(run)
    complaints = [*slow, *seen.of(run, "symptom", what="slow")]
    for capability in sorted(seen.capabilities(run)):
        known = nccl_policy.bugs(version, capability, "slow", gpu_names=seen.gpu_names(run), several_hosts=across_hosts(run))
        for bug in known if complaints or found else ():
            yield Finding(
                code="nccl-version-bug",
                severity="warning" if complaints else "info",
                confidence="likely" if complaints else "possible",
                title=f"NCCL {version} is known to be slow on such GPUs: {bug.title}",
                evidence=(
                    *seen.lines((*complaints, *seen.of(run, "nccl.version")), 3),
                    evidence(f"{bug.source} ({bug.date})", "nccl policy data"),
                ),
                effect="The links are sound; the library does not use them.",
                remedy=f"Use NCCL {bug.good_version}: `pip install nvidia-nccl-cu12=={bug.good_version}` (cu13 for CUDA 13).",
                confirm="wiretax check --quick  # with the other NCCL installed",
            )


def _other_torch(run: Run) -> Iterator[Finding]:
    """One torch hangs and another does not: it brings its own NCCL, which may be what differs, or its own defaults."""
    outcomes = seen.of(run, "outcome", subject="torch")
    bad = [o for o in outcomes if o.values.get("outcome") in ("hang", "slow", "fail")]
    good = [o for o in outcomes if o.values.get("outcome") == "ok"]
    if not bad or not good:
        return
    worse, better = seen.text(bad[0], "value"), seen.text(good[0], "value")
    yield Finding(
        code="nccl-version-bug",
        severity="info",
        confidence="possible",
        title=f"torch {worse} {'is slow' if bad[0].values.get('outcome') == 'slow' else 'fails'} where torch {better} does not; each "
        "brings "
        "an NCCL of its own",
        evidence=seen.lines((*bad, *good)),
        effect="A fault of the NCCL in that torch would look just so; so would a changed default of torch.",
        remedy="Find out which NCCL each has, then put the good one under the new torch: `pip install nvidia-nccl-cu12==VERSION` (cu13 for "
        "CUDA 13).",
        confirm='python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"',
    )


def _gloo(run: Run, found: tuple[Rate, ...]) -> Iterator[Finding]:
    """Somebody measured both backends: the difference, as a reminder and no fault (the fault is a job that uses gloo)."""
    if seen.of(run, "torch.backend", backend="gloo") or seen.of(run, "torch.nccl_missing"):
        return
    slow = [one for one in found if one.wire == "gloo"]
    fast = [one for one in found if one.wire != "gloo" and slow and one.operation == slow[0].operation]
    if not slow or not fast:
        return
    best = max(fast, key=lambda one: one.bytes_per_second)
    factor = best.bytes_per_second / slow[0].bytes_per_second
    if factor < WORTH:
        return
    yield Finding(
        code="backend-gloo",
        severity="info",
        confidence="certain",
        title=f"Over gloo the same GPUs are {factor:.0f}x slower than over NCCL: make sure the job says nccl",
        evidence=(best.evidence, slow[0].evidence),
        effect="gloo copies GPU memory to the host and sends it over TCP.",
        remedy='Use NCCL: `torch.distributed.init_process_group("nccl")`.',
        confirm='python -c "import torch.distributed as d; print(d.is_nccl_available())"',
    )

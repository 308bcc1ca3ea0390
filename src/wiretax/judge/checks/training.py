"""Training timings that people pasted: bound by communication, by the input, by a strategy that asks too much of the wire."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wiretax.data.gpus import find_gpu
from wiretax.judge import seen, timings
from wiretax.judge.facts import evidence
from wiretax.judge.timings import Scaling
from wiretax.model.finding import Confidence, Evidence, Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import duration, percent, significant

POOR = 0.7
"""Efficiency below this, under the kindest reading of the text, is more than the usual loss."""

INPUT_BOUND = 0.3
"""A share of the step spent waiting for data above this hides any question about the wire."""

GROWN = 1.5
"""A phase that holds communication and takes this much longer on several GPUs."""

SMALL_BATCH = 4

_SHARDED = frozenset({"fsdp", "fsdp_grad_op", "hsdp", "zero3", "zero2"})
_LESS_SHARDED = frozenset({"ddp", "zero1", "zero2", "fsdp_grad_op", "hsdp"})
_SLOW_WIRES = frozenset({"pcie", "p2p_off", "no_nvlink", "socket", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"})
_NO_NVLINK = re.compile(
    r"\b(?:no|without|w/o|not|lacks?|lacking|missing|n't|if|whether)\W+(?:\w+\W+){0,4}?NV-?Link|"
    r"NV-?Link\W+(?:is |are )?(?:inactive|off|disabled|not|missing)|NV-?Link\s?\?",
    re.IGNORECASE,
)
_ACCUMULATE = "Accumulate gradients with `no_sync()` (8 to 32 micro-steps) or raise the batch. "
_HOLDS_COMMUNICATION = frozenset({"communication", "backward", "optimizer", "step"})


def check(run: Run) -> Iterator[Finding]:
    """Input first: where the GPUs wait for data, their wires cannot be judged from timings."""
    if not seen.is_pasted(run):
        return
    waiting = list(_input(run))
    yield from waiting
    if any(finding.severity != "info" for finding in waiting):
        return
    found = [scaling for scaling in timings.scalings(run) if not scaling.units_flip]
    # Where gradient accumulation is named, the better of two figures is with it, and the poorer is the job as it was.
    poor = _poor(found, worst=bool(seen.of(run, "training.remedy", area="accumulation")))
    sharded = [scaling for scaling in poor if scaling.strategy in _SHARDED]
    tensor = [scaling for scaling in poor if scaling.strategy == "tp"]
    others = [scaling for scaling in poor if scaling not in sharded and scaling not in tensor]
    yield from _sharded(run, sharded)
    yield from _tensor(run, tensor)
    bound = list(_bound(run, others, sharded, tensor))
    yield from bound
    if bound or sharded:
        yield from _small_batch(run)
    yield from _overlap(run)


def _input(run: Run) -> Iterator[Finding]:
    waits = [o for o in seen.of(run, "training.data_wait") if (seen.number(o, "fraction") or 0.0) >= INPUT_BOUND]
    teeth = [o for o in seen.of(run, "training.utilization") if o.values.get("pattern") == "saw-tooth"]
    cured = seen.of(run, "training.remedy", area="input", helped=True)
    if not waits and not (teeth and not _speaks_of_wire(run)) and not cured:
        yield from _few_workers(run)
        return
    worst = max((seen.number(o, "fraction") or 0.0 for o in waits), default=None)
    title = (
        f"{percent(worst)} of each step is spent waiting for data, not for other GPUs"
        if worst
        else "A faster disk or loader cured it: the GPUs waited for data"
        if cured
        else "All GPUs go idle together: they wait for data"
    )
    confidence: Confidence = "certain" if waits else "likely"
    yield Finding(
        code="input-pipeline-bound",
        severity="problem" if worst and worst >= 0.5 else "warning",
        confidence=confidence,
        title=title,
        evidence=seen.lines((*waits, *teeth, *cured)),
        effect="More or better joined GPUs change nothing until the data comes faster.",
        remedy="Run once with data that lies ready in memory to prove it. Then more loader workers, pinned memory, "
        "`persistent_workers=True`, a "
        "faster disk or a packed data set, decoding on the GPU; `ddp` in place of `ddp_spawn`.",
        confirm="python train.py  # with synthetic batches: a step as short as without waiting proves it",
    )


def _few_workers(run: Run) -> Iterator[Finding]:
    """Lightning's advice on loader workers: it stands in many healthy logs, so it is a hint and no more."""
    advice = seen.of(run, "loader.few_workers")
    if advice:
        yield Finding(
            code="input-pipeline-bound",
            severity="info",
            confidence="possible",
            title="The framework warns of few data loader workers: the GPUs may wait for data",
            evidence=seen.lines(advice, 2),
            effect="If it is so, more or better joined GPUs change nothing until the data comes faster.",
            remedy="Raise `num_workers`, and run once with data that lies ready in memory to see whether it matters.",
            confirm="python train.py  # with synthetic batches: a step as short as without waiting proves it",
        )


def _speaks_of_wire(run: Run) -> bool:
    return bool(seen.of(run, "bandwidth.pair") or seen.of(run, "nccl.p2p_disabled") or "net" in seen.used(run))


def _poor(found: list[Scaling], *, worst: bool = False) -> list[Scaling]:
    """The best figure of each strategy, wire and GPU count, where even that is poor.

    A second, slower run of the same is another question, unless the text says what made the other better: then ``worst`` counts.
    """
    best: dict[tuple[str | None, str | None, str, str], Scaling] = {}
    for scaling in found:
        workload = seen.text(scaling.entry, "workload")
        key = (scaling.strategy, scaling.wire, scaling.many, workload)
        if key not in best or (best[key].best < scaling.best) != worst:
            best[key] = scaling
    return [scaling for scaling in best.values() if scaling.best < POOR]


def _over_pcie(run: Run, entries: tuple[Observation, ...]) -> bool | None:
    """Whether these figures are of GPUs without NVLink: the text says so, the matrix does, or the cards have none; None if unknown."""
    wires = {seen.text(o, "wire") for o in entries}
    if any((seen.whole(o, "num_hosts") or 1) > 1 for o in entries):
        return None  # the network between the hosts decides
    if wires & _SLOW_WIRES:
        return True
    if "nvlink" in wires or any(_by_nvlink(o) for o in entries):
        return False
    joined = seen.nvlink_joins_all(run)
    if joined is not None:
        return not joined
    labels = " ".join(seen.text(o, "label") for o in entries)
    if "poor inter-GPU" in labels or "PCIe" in labels:
        return True
    known = [facts_ for name in seen.gpu_names(run) if (facts_ := find_gpu(name)) is not None]
    return True if known and all(card.nvlink_links is None for card in known) else None


def _by_nvlink(entry: Observation) -> bool:
    """Whether the very sentence of a figure says that NVLink joins the GPUs."""
    text = seen.text(entry, "text")
    return "nvlink" in text.lower() and _NO_NVLINK.search(text) is None


def _sharded(run: Run, poor: list[Scaling]) -> Iterator[Finding]:
    """FSDP and ZeRO gather parameters in every layer: over PCIe that is most of the step."""
    changes = [
        o
        for o in seen.of(run, "training.change")
        if seen.text(o, "strategy") in _SHARDED and (_worse(o) or 0.0) >= 1.2 and seen.text(o, "what") != "run_time"
    ]
    slower = [pair for pair in _slower_than_less_sharded(run) if not poor]
    if not poor and not changes and not slower:
        return
    lines = (*(o for s in poor for o in (s.base, s.entry)), *changes, *(o for pair in slower for o in pair))
    pcie = _over_pcie(run, lines)
    if pcie is False:
        return
    generation = any(seen.text(o, "workload") == "generation" for o in lines)
    worst = min(poor, key=lambda scaling: scaling.best) if poor else None
    yield Finding(
        code="fsdp-over-pcie" if pcie else "communication-bound",
        severity="problem" if worst is not None and worst.best < 1 / worst.ratio else "warning",
        confidence="likely",
        title="Sharded parameters are gathered over PCIe" + _how_bad(worst)
        if pcie
        else "Sharding costs more than it brings" + _how_bad(worst),
        evidence=seen.lines(lines),
        effect="FSDP FULL_SHARD and ZeRO-3 move all parameters twice a step"
        + (", in generation once for each token" if generation else "")
        + ": three times the traffic of DDP.",
        remedy="Where the model fits, use DDP or SHARD_GRAD_OP (ZeRO-2); gather once for several micro-steps; "
        + ("generate on one GPU, quantised if need be. " if generation else "")
        + "NVLink is what full sharding is made for. Compare at equal global batch first.",
        confirm="wiretax check",
    )


def _slower_than_less_sharded(run: Run) -> list[tuple[Observation, Observation]]:
    """Full sharding beside a strategy that gathers less, on as many GPUs of the same text."""
    found = []
    rates = seen.of(run, "training.rate")
    for full in rates:
        if seen.text(full, "strategy") not in ("fsdp", "zero3"):
            continue
        for less in rates:
            if not _as_many(full, less) or seen.text(less, "strategy") not in _LESS_SHARDED:
                continue
            for metric in ("steps_per_second", "samples_per_second", "tokens_per_second"):
                mine, theirs = seen.number(full, metric), seen.number(less, metric)
                if mine and theirs and mine * GROWN <= theirs:
                    found.append((full, less))
                    break
    times = [o for o in seen.of(run, "training.run_time") if seen.number(o, "seconds")]
    found += [
        (full, less)
        for full in times
        for less in times
        if seen.text(full, "strategy") in ("fsdp", "zero3")
        and seen.text(less, "strategy") in _LESS_SHARDED
        and _as_many(full, less)
        and seen.whole(full, "steps") == seen.whole(less, "steps")
        and (seen.number(full, "seconds") or 0.0) >= GROWN * (seen.number(less, "seconds") or 0.0)
    ]
    return found[:1]


def _as_many(one: Observation, other: Observation) -> bool:
    """Whether two figures of one text are of as many GPUs, as far as it says."""
    counts = {seen.whole(one, "num_gpus"), seen.whole(other, "num_gpus")} - {None}
    return one.source == other.source and len(counts) < 2


def _tensor(run: Run, poor: list[Scaling]) -> Iterator[Finding]:
    if not poor:
        yield from list(_wider_is_slower(run)) or _slower_than_uncut(run)
        return
    lines = tuple(o for s in poor for o in (s.base, s.entry))
    worst = min(poor, key=lambda scaling: scaling.best)
    slower = worst.best < 1 / worst.ratio
    if _over_pcie(run, lines) is False:
        if slower:
            yield _too_small_to_cut(worst)
        return
    sure = _over_pcie(run, lines) is True
    yield Finding(
        code="tp-over-pcie",
        severity="warning" if sure else "info",
        confidence="likely" if sure else "possible",
        title=f"Tensor parallelism {'is slower than one GPU' if slower else 'gains little'}: each layer waits for all-reduces over PCIe",
        evidence=seen.lines((*lines, *seen.of(run, "framework.custom_all_reduce"))),
        effect="Two all-reduces a layer stand on the critical path, in training four; nothing hides them.",
        remedy="Over PCIe use data parallelism or pipeline stages, or one GPU with a quantised model; tensor parallelism needs NVLink.",
        confirm="wiretax check",
    )


def _too_small_to_cut(worst: Scaling) -> Finding:
    """Slower with tensor parallelism although NVLink joins the GPUs: latency, not bandwidth."""
    return Finding(
        code="communication-bound",
        severity="warning",
        confidence="likely",
        title="Tensor parallelism is slower than one GPU, and NVLink is there: each all-reduce waits longer than it carries",
        evidence=seen.lines((worst.base, worst.entry)),
        effect="Two all-reduces a layer stand on the critical path; for small models and batches their latency is most of the time.",
        remedy="Keep a model that fits on one GPU there, or raise the batch; CUDA graphs and a custom all-reduce shorten each exchange.",
        confirm="wiretax check",
    )


def _wider_is_slower(run: Run) -> Iterator[Finding]:
    """A model cut over more GPUs that answers no faster, where nobody ran it on one."""
    entries = [
        o
        for o in seen.of(run, "training.rate")
        if seen.text(o, "strategy") == "tp" and seen.number(o, "tokens_per_second") and (seen.whole(o, "num_gpus") or 0) > 1
    ]
    pairs = [
        (few, many)
        for few in entries
        for many in entries
        if few.source == many.source
        and (seen.whole(few, "num_gpus") or 0) < (seen.whole(many, "num_gpus") or 0)
        and (seen.number(many, "tokens_per_second") or 0.0) < (seen.number(few, "tokens_per_second") or 0.0)
    ]
    if not pairs or _over_pcie(run, pairs[0]) is False:
        return
    few, many = pairs[0]
    sure = _over_pcie(run, pairs[0]) is True
    yield Finding(
        code="tp-over-pcie",
        severity="warning" if sure else "info",
        confidence="likely" if sure else "possible",
        title=f"Cut over {many.values['num_gpus']} GPUs the model is slower than over {few.values['num_gpus']}: "
        "each layer waits for all-reduces",
        evidence=seen.lines((few, many, *seen.of(run, "framework.custom_all_reduce"))),
        effect="Two all-reduces a layer stand on the critical path, in training four; nothing hides them.",
        remedy="Cut over as few GPUs as the model fits on, use pipeline stages between them, or copies of a quantised model.",
        confirm="wiretax check",
    )


def _slower_than_uncut(run: Run) -> Iterator[Finding]:
    """The same model with and without tensor parallelism, where with it is the slower way."""
    rates = [o for o in seen.of(run, "training.rate") if seen.number(o, "tokens_per_second")]
    pairs = [
        (uncut, cut)
        for uncut in rates
        for cut in rates
        if (seen.text(uncut, "strategy"), seen.text(cut, "strategy")) == ("no_tp", "tp")
        and uncut.source == cut.source
        and (seen.number(uncut, "tokens_per_second") or 0.0) > GROWN * (seen.number(cut, "tokens_per_second") or 0.0)
    ]
    if not pairs or (over_pcie := _over_pcie(run, pairs[0])) is False:
        return
    uncut, cut = pairs[0]
    times = (seen.number(uncut, "tokens_per_second") or 0.0) / (seen.number(cut, "tokens_per_second") or 1.0)
    yield Finding(
        code="tp-over-pcie",
        severity="warning" if over_pcie else "info",
        confidence="likely" if over_pcie else "possible",
        title=f"With tensor parallelism the model runs {significant(times, 2)}x slower than without: each layer waits for all-reduces",
        evidence=seen.lines((uncut, cut, *seen.of(run, "framework.custom_all_reduce"))),
        effect="Two all-reduces a layer stand on the critical path, in training four; nothing hides them.",
        remedy="Without NVLink keep layers whole: pipeline stages, or one GPU with a quantised model.",
        confirm="wiretax check",
    )


def _how_bad(worst: Scaling | None) -> str:
    if worst is None:
        return ""
    return f": {worst.many} do {significant(worst.best * worst.ratio, 2)}x the work of {worst.few}"


def _worse(change: Observation) -> float | None:
    """How much worse a change made it, above 1 for worse."""
    before, after = seen.number(change, "before"), seen.number(change, "after")
    if not before or not after:
        return None
    return before / after if seen.text(change, "what").endswith("_per_second") else after / before


def _grown(run: Run) -> list[Observation]:
    """Phases that hold communication and take far longer on several GPUs."""
    grown = [
        o
        for o in seen.of(run, "training.change")
        if seen.text(o, "what") in _HOLDS_COMMUNICATION
        and (seen.whole(o, "num_gpus") or 0) > 1
        and (_worse(o) or 0.0) >= GROWN
        and seen.text(o, "strategy") not in _SHARDED
    ]
    phases = [o for o in seen.of(run, "training.phase") if seen.text(o, "phase") in _HOLDS_COMMUNICATION]
    for after in phases:
        before = next(
            (
                o
                for o in phases
                if seen.whole(o, "num_gpus") == 1 and o.source == after.source and o.values.get("phase") == after.values.get("phase")
            ),
            None,
        )
        step = seen.text(after, "phase") == "step"
        if before is not None and (seen.whole(after, "num_gpus") or 0) > 1 and not step:
            was, now = seen.number(before, "seconds") or 0.0, seen.number(after, "seconds") or 0.0
            if was > 0 and now / was >= GROWN:
                grown += [before, after]
    return grown


def _bound(run: Run, poor: list[Scaling], sharded: list[Scaling], tensor: list[Scaling]) -> Iterator[Finding]:
    grown = _grown(run)
    slower = [
        o
        for o in seen.of(run, "training.ratio")
        if o.values.get("direction") == "slower" and seen.whole(o, "base_gpus") == 1 and (seen.whole(o, "num_gpus") or 2) > 1
    ]
    poorly = [
        o
        for o in seen.of(run, "training.speedup")
        if (factor := seen.number(o, "factor")) and (n := seen.whole(o, "num_gpus")) and 0 < factor / n < POOR
    ]
    if len(poorly) == len(seen.of(run, "training.speedup")):
        slower = [*slower, *poorly[:2]]
    good = [s for s in timings.scalings(run) if not s.units_flip and s.best >= POOR and s.metric == "run_time"]
    if sharded or tensor:
        grown = [o for o in grown if o.kind != "training.change"]
    told = seen.of(run, "training.told_slower")
    if not poor and not slower and (not grown or good):
        if told and not good and not timings.scalings(run):
            yield _told_slower(told)
        return
    worst = min(poor, key=lambda scaling: scaling.best) if poor else None
    lines = (*(o for s in sorted(poor, key=lambda s: s.best)[:3] for o in (s.base, s.entry)), *slower, *grown)
    loses = worst is not None and worst.best < 1 / worst.ratio
    confidence: Confidence = "likely"
    named = f" with {worst.wire}" if worst is not None and worst.wire and worst.wire != "nccl" else ""
    title = (
        f"{worst.many}{named} do {significant(worst.best * worst.ratio, 2)}x the work of {worst.few} at best: they wait for each other"
        if worst is not None
        else f"{poorly[0].values['num_gpus']} GPUs do only {poorly[-1].values['factor']}x the work of one: they wait for each other"
        if poorly and len(slower) == len(poorly[:2])
        else "Several GPUs are slower than one: they wait for each other"
        if slower
        else "The phase that exchanges gradients takes far longer on several GPUs"
    )
    yield Finding(
        code="communication-bound",
        severity="problem" if loses or any(o.kind == "training.ratio" for o in slower) else "warning",
        confidence=confidence,
        title=title,
        evidence=(*seen.lines(lines), *_money(run)),
        effect=_gap(worst),
        remedy=_ACCUMULATE
        + (
            "Then the network between the hosts: NCCL's log says NET/IB or NET/Socket, and nccl-tests over both hosts what it carries."
            if worst is not None and worst.hosts
            else "Use DDP, not DataParallel; for small models one GPU may be the better deal. What the wire itself does: `wiretax check`."
        ),
        confirm="NCCL_DEBUG=INFO torchrun --nnodes=2 ... 2>&1 | grep 'NET/'" if worst is not None and worst.hosts else "wiretax check",
    )


def _told_slower(told: tuple[Observation, ...]) -> Finding:
    """Believed, since it is what people ask about, and to be measured, since only a figure says what each GPU did."""
    return Finding(
        code="communication-bound",
        severity="warning",
        confidence="likely",
        title="Several GPUs are slower than one, says the text, without figures: they probably wait for each other",
        evidence=seen.lines(told, 2),
        effect="Each step waits for the slowest exchange.",
        remedy=_ACCUMULATE + "Compare samples a second of all GPUs together, not steps; what the wire itself does: `wiretax check`.",
        confirm="wiretax check",
    )


def _gap(worst: Scaling | None) -> str:
    if worst is None:
        return "Each step waits for the slowest exchange."
    if worst.metric == "seconds_per_step":
        before, now = seen.number(worst.base, "seconds_per_step") or 0.0, seen.number(worst.entry, "seconds_per_step") or 0.0
        return f"A step takes {duration(now)} in place of {duration(before)}, even if each GPU kept its batch."
    return f"At best {percent(worst.best)} of perfect scaling; the rest of the paid GPU time is waiting."


def _money(run: Run) -> tuple[Evidence, ...]:
    """What a sample costs on one GPU and on several, where prices and rates are both there."""
    prices = {n: o for o in seen.of(run, "price") if (n := seen.whole(o, "num_gpus")) is not None}
    rates = {
        n: o for o in seen.of(run, "training.rate") if (n := seen.whole(o, "num_gpus")) is not None and seen.number(o, "samples_per_second")
    }
    both = sorted(prices.keys() & rates.keys())
    if len(both) < 2 or both[0] != 1 or len({seen.text(prices[n], "currency") for n in both}) != 1:
        return ()
    words = []
    for n in (1, both[-1]):
        amount = (seen.number(prices[n], "amount_per_hour") or 0.0) * (n if prices[n].values.get("per_gpu") else 1)
        if amount <= 0:
            return ()
        words.append(
            f"{(seen.number(rates[n], 'samples_per_second') or 0.0) * 3600 / amount:,.0f} samples on {n} GPU{'s' if n > 1 else ''}"
        )
    return (evidence(f"one {seen.text(prices[1], 'currency')} buys {' and '.join(words)}, at these rates", prices[1].source),)


def _small_batch(run: Run) -> Iterator[Finding]:
    small = [o for o in seen.of(run, "training.setting", name="per_device_batch") if 0 < (seen.whole(o, "value") or 0) <= SMALL_BATCH]
    helped = [
        o
        for o in seen.of(run, "training.change")
        if seen.text(o, "what") in ("run_time", "step") and (_worse(o) or 2.0) < 0.95 and "accum" in seen.text(o, "label").lower()
    ]
    if not small and not helped:
        return
    yield Finding(
        code="batch-too-small",
        severity="info",
        confidence="likely",
        title="Each exchange of gradients serves too little work" + (f": batch {seen.whole(small[0], 'value')} a GPU" if small else ""),
        evidence=seen.lines((*small, *helped)),
        effect="The exchange costs the same for any batch, so a larger one pays it less often.",
        remedy="Raise the batch per GPU, or accumulate gradients with `no_sync()`; adapt the learning rate to the larger global batch.",
        confirm="wiretax check",
    )


def _overlap(run: Run) -> Iterator[Finding]:
    """Communication that stands beside the computation in the step, in place of behind it."""
    visible = [
        o for o in seen.of(run, "training.phase") if o.values.get("includes") == "communication" and (seen.whole(o, "num_gpus") or 0) > 1
    ]
    by_phase: dict[str, Observation] = {}
    for observation in seen.of(run, "training.phase"):
        if (seen.whole(observation, "num_gpus") or 2) > 1:
            by_phase.setdefault(seen.text(observation, "phase"), observation)
    parts = [by_phase[name] for name in ("forward", "backward", "communication", "optimizer") if name in by_phase]
    step = by_phase.get("step")
    total = sum(seen.number(o, "seconds") or 0.0 for o in parts)
    whole = seen.number(step, "seconds") if step is not None else None
    exposed = seen.number(by_phase["communication"], "seconds") if "communication" in by_phase else None
    summed = bool(whole and exposed and "backward" in by_phase and abs(total - whole) < 0.1 * whole and exposed > 0.1 * whole)
    if not visible and not summed:
        return
    yield Finding(
        code="no-overlap",
        severity="warning" if summed else "info",
        confidence="likely" if summed else "possible",
        title="The exchange of gradients is not hidden behind the backward pass"
        if summed
        else "The gradient exchange shows up in the optimizer step: it may not overlap with the backward pass",
        evidence=seen.lines((*parts, step) if summed and step is not None else visible),
        effect="A step lasts as long as computing and communicating together.",
        remedy="Let DDP do the exchange (it starts during backward), do not all-reduce by hand after it; look for "
        "`find_unused_parameters=True`, "
        "one giant bucket, or a synchronisation in the loop.",
        confirm="nsys profile -t cuda,nvtx python train.py  # NCCL kernels beside the backward kernels, not behind them",
    )

"""Training timings in pasted texts, brought to one figure: how much of perfect scaling more GPUs reach, at best and at worst.

Texts rarely say whether a rate counts one process or all, or whether the batch grew with the GPUs. So each pair of figures gives a
range: ``best`` under the kindest reading, ``worst`` under the unkindest. A conclusion that holds under ``best`` holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wiretax.judge import seen
from wiretax.model.observation import Observation
from wiretax.model.run import Run

_RATES = ("samples_per_second", "tokens_per_second", "seconds_per_step")

IMPOSSIBLE = 1.1
"""No process gets this much faster by having to wait for others; a reading that says so is wrong."""

SAME_WORK = 0.75
"""Fewer steps than this share of the one-GPU run: the batch grew with the GPUs and the work is the same."""


ADJACENT_LINES = 3
"""Two counts above one are compared only so near to each other: further apart they may be of two machines."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Several GPUs against one or fewer, or several hosts against one, out of two lines of text."""

    ratio: float
    """How many times the GPUs."""
    best: float
    worst: float
    base: Observation
    entry: Observation
    metric: str

    @property
    def hosts(self) -> bool:
        """Whether hosts are counted, not GPUs."""
        return _hosts(self.entry) > 1 == _hosts(self.base)

    @property
    def many(self) -> str:
        """``4 GPUs``, ``2 hosts``."""
        if self.hosts:
            return f"{_hosts(self.entry)} hosts"
        return f"{round(self.ratio * (seen.whole(self.base, 'num_gpus') or 1))} GPUs"

    @property
    def few(self) -> str:
        """``one``; ``2`` where that is the smallest number of GPUs in the text."""
        count = 1 if self.hosts else seen.whole(self.base, "num_gpus")
        return "one" if count == 1 else str(count)

    @property
    def strategy(self) -> str | None:
        """As the text names it: ``ddp``, ``fsdp``, ``tp``, ...; None where it does not."""
        return seen.text(self.entry, "strategy") or seen.text(self.base, "strategy") or None

    @property
    def wire(self) -> str | None:
        """As the text names it: ``nvlink``, ``pcie``, ``NCCL_P2P_DISABLE=1``, ...; None where it does not."""
        return seen.text(self.entry, "wire") or None

    @property
    def units_flip(self) -> bool:
        """One figure in steps per second, the other in seconds per step: one of them may be misread."""
        return _is_inverse(self.base) != _is_inverse(self.entry) if self.metric == "seconds_per_step" else False


def scalings(run: Run) -> tuple[Scaling, ...]:
    """Every figure on several GPUs (or hosts) beside the nearest one on a single one in the same text, or on fewer beside it."""
    found = []
    rates = seen.of(run, "training.rate")
    for metric in _RATES:
        entries = [o for o in rates if (seen.number(o, metric) or 0) > 0]
        found += [made for o in entries if (made := _rate(run, o, entries, metric)) is not None]
    times = [o for o in seen.of(run, "training.run_time") if (seen.number(o, "seconds") or 0) > 0]
    found += [made for o in times if (made := _time(run, o, times)) is not None]
    return tuple(found)


def _rate(run: Run, entry: Observation, entries: list[Observation], metric: str) -> Scaling | None:
    base, count = _compared(run, entry, entries)
    if base is None:
        return None
    now, before = seen.number(entry, metric) or 0.0, seen.number(base, metric) or 0.0
    if metric == "seconds_per_step":
        best = before / now
        if best > IMPOSSIBLE:
            best /= count  # steps became shorter, so each GPU has less work than alone
        return Scaling(count, best, best / count, base, entry, metric)
    share = now / before
    scope = _scope(run, entry)
    if scope == "unknown":
        scope = _scope_by_run_times(run, entry, base, share, count)
    if scope == "unknown" and metric == "tokens_per_second" and seen.text(entry, "strategy") == "tp":
        scope = "global"  # GPUs that share each layer write one text together
    if scope == "unknown" and (share > IMPOSSIBLE or _column_counts_all(run, entry, entries, metric)):
        # One process of several would be faster than a process that is alone: so the figure counts all of them.
        scope = "global"
    best = share / count if scope == "global" else share
    worst = share if scope == "per_process" else share / count
    return Scaling(count, best, worst, base, entry, metric)


def _column_counts_all(run: Run, entry: Observation, entries: list[Observation], metric: str) -> bool:
    """Whether another row of the same column of a table is above what one process can do: then the whole column counts all GPUs."""
    heading = seen.text(entry, "label").rpartition(" / ")[2]
    if heading == seen.text(entry, "label"):
        return False
    for other in entries:
        base, _ = _compared(run, other, entries)
        same = other.source == entry.source and seen.text(other, "label").endswith(f" / {heading}")
        if other is entry or not same or base is None or base.source != entry.source:
            continue
        if _scope(run, other) == "unknown" and (seen.number(other, metric) or 0.0) > IMPOSSIBLE * (seen.number(base, metric) or 0.0):
            return True
    return False


def _time(run: Run, entry: Observation, times: list[Observation]) -> Scaling | None:
    base, count = _compared(run, entry, times)
    if base is None:
        return None
    faster = (seen.number(base, "seconds") or 0.0) / (seen.number(entry, "seconds") or 1.0)
    steps, base_steps = seen.number(entry, "steps"), seen.number(base, "steps")
    kept = any(o.source == entry.source for o in seen.of(run, "training.steps_kept")) and not (steps and base_steps)
    if kept or (steps and base_steps and steps > SAME_WORK * base_steps):
        return Scaling(count, faster, faster / count, base, entry, "run_time")
    return Scaling(count, faster / count, faster / count, base, entry, "run_time")


def _hosts(observation: Observation) -> int:
    return seen.whole(observation, "num_hosts") or 0


def _compared(run: Run, entry: Observation, entries: Sequence[Observation]) -> tuple[Observation | None, float]:
    """What a figure is to be compared with, and how many times the GPUs it is of."""
    if _hosts(entry) > 1 and (base := _base(entry, [o for o in entries if _hosts(o) == 1])) is not None:
        return base, float(_hosts(entry))
    count = gpus_of(run, entry)
    if count is None or count < 2:
        return None, 1.0
    alone = [o for o in entries if seen.whole(o, "num_gpus") == 1]
    if alone:
        return _base(entry, alone), float(count)
    fewer = [
        o
        for o in entries
        if o.source == entry.source
        and abs(o.line - entry.line) <= ADJACENT_LINES
        and 1 < (seen.whole(o, "num_gpus") or count) < count
        and all(o.values.get(name) == entry.values.get(name) for name in ("strategy", "wire", "unit"))
    ]
    least = min(fewer, key=lambda o: seen.whole(o, "num_gpus") or 0, default=None)
    return least, count / ((seen.whole(least, "num_gpus") or 1) if least is not None else 1)


def _base(entry: Observation, alone: Iterable[Observation]) -> Observation | None:
    """The figure of one that the text sets beside this one: on its line, else the nearest above, else the nearest below."""
    candidates = [
        o
        for o in alone
        if o is not entry
        and (seen.text(o, "workload") or seen.text(entry, "workload")) == (seen.text(entry, "workload") or seen.text(o, "workload"))
    ]
    here = [o for o in candidates if o.source == entry.source]
    framework = seen.text(entry, "framework")
    # Two runs' logs are often two files; two people's sentences are not to be compared.
    candidates = here or [o for o in candidates if framework and seen.text(o, "framework") == framework]
    if not candidates:
        return None
    same = [o for o in here if o.line == entry.line]
    above = [o for o in here if o.line < entry.line]
    return same[0] if same else above[-1] if above else min(candidates, key=lambda o: o.line)


def gpus_of(run: Run, entry: Observation) -> int | None:
    """How many GPUs a figure is of; a strategy without a count takes the only count above one that its text has."""
    count = seen.whole(entry, "num_gpus")
    if count is not None or not entry.values.get("strategy"):
        return count
    counts = {
        n
        for o in run.observations
        if o.kind.startswith("training.") and o.source == entry.source and (n := seen.whole(o, "num_gpus")) is not None and n > 1
    }
    return counts.pop() if len(counts) == 1 else None


def _scope(run: Run, entry: Observation) -> str:
    """What a rate counts: as stated, or as the run times in the same table prove."""
    stated = seen.text(entry, "scope")
    if stated in ("global", "per_process"):
        return stated
    count = gpus_of(run, entry)
    for check in seen.of(run, "training.scope_check"):
        fraction = seen.number(check, "counted_fraction")
        same = check.source == entry.source and seen.whole(check, "num_gpus") == count
        if same and fraction is not None and count:
            return "per_process" if abs(fraction * count - 1) < 0.25 else "global" if abs(fraction - 1) < 0.15 else "unknown"
    return "unknown"


def _scope_by_run_times(run: Run, entry: Observation, base: Observation, share: float, count: float) -> str:
    """What a logged rate counts, where both logs say how long they ran: rate times time is the work, which is the same."""
    framework = seen.text(entry, "framework")
    times = {
        (o.source, seen.whole(o, "num_gpus")): seconds
        for o in seen.of(run, "training.run_time")
        if framework and seen.text(o, "framework") == framework and (seconds := seen.number(o, "seconds"))
    }
    long, short = times.get((base.source, 1)), times.get((entry.source, round(count)))
    if long is None or short is None:
        return "unknown"
    work = share * short / long
    return "global" if abs(work - 1) < 0.15 else "per_process" if abs(work * count - 1) < 0.25 else "unknown"


def _is_inverse(observation: Observation) -> bool:
    """Whether a step rate was written as seconds per step."""
    unit = seen.text(observation, "unit").lower().replace(" ", "")
    return unit.startswith(("s/", "sec/", "secs/", "second", "ms/", "millisecond"))

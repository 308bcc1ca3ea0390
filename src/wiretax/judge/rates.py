"""Rates of collectives in pasted texts, whoever measured them: tables of settings, sentences, and nccl-tests, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wiretax.judge import seen
from wiretax.model.finding import Evidence
from wiretax.model.observation import Observation
from wiretax.model.run import Run
from wiretax.units import rate, size

_DEFAULT = re.compile(r"\b(?:default|baseline|stock|unset|none|as is|nothing set)\b", re.IGNORECASE)
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]+)\s?=\s?([\w./-]+(?::[\w./-]+)*)")


@dataclass(frozen=True, slots=True)
class Rate:
    """One figure: of which operation, on how many GPUs, under which NCCL setting (empty: as the user found it)."""

    operation: str
    num_gpus: int | None
    settings: tuple[tuple[str, str], ...]
    wire: str | None
    group: str
    """What must be equal for two figures to be comparable: the column of a table, or the tool."""
    bytes_per_second: float
    evidence: Evidence

    @property
    def is_default(self) -> bool:
        """Whether nothing was set for it."""
        return not self.settings and self.wire in (None, "nccl", "default")

    @property
    def asks_for_p2p(self) -> bool:
        """Whether it ran with nothing set but peer to peer, over some distance."""
        return self.has("NCCL_P2P_DISABLE", "0") or (self.has("NCCL_P2P_LEVEL") and self.settings[0][1] not in ("LOC", "0"))

    def has(self, name: str, *values: str) -> bool:
        """Whether it ran with this variable alone, at one of these values."""
        return len(self.settings) == 1 and self.settings[0][0] == name and (not values or self.settings[0][1] in values)


def rates(run: Run) -> tuple[Rate, ...]:
    """All figures of collectives in the run's texts, busbw where the text says which.

    Sweep averages of nccl-tests say little, since they mix sizes: they count only beside each other, where the text shows nothing else.
    """
    return (*_of_tables(run), *_of_sentences(run), *(_of_tools(run) or _of_averages(run)))


def _of_tables(run: Run) -> Iterable[Rate]:
    for observation in seen.of(run, "bench.value"):
        value = seen.number(observation, "bytes_per_second")
        if value is None or not (observation.values.get("operation") or observation.values.get("measure")):
            continue
        row = seen.text(observation, "row")
        settings = tuple(_SETTING.findall(seen.text(observation, "setting") or row))
        yield Rate(
            operation=seen.text(observation, "operation"),
            num_gpus=seen.whole(observation, "num_gpus"),
            settings=settings,
            wire="default" if not settings and _DEFAULT.search(row) else None if not settings else "set",
            group=f"{observation.source}:{seen.text(observation, 'column')}",
            bytes_per_second=value,
            evidence=Evidence(
                source=observation.source,
                line=observation.line or None,
                text=f"{row or 'as found'}: {rate(value)} ({seen.text(observation, 'column')})",
            ),
        )


def _of_sentences(run: Run) -> Iterable[Rate]:
    sentences = seen.of(run, "bandwidth.collective")
    counts: dict[tuple[str, int], set[int]] = {}
    for observation in sentences:
        if (count := seen.whole(observation, "num_gpus")) is not None:
            counts.setdefault((observation.source, observation.line), set()).add(count)
    for observation in sentences:
        value = seen.number(observation, "bandwidth_bytes_per_second")
        if value is None:
            continue
        wire = seen.text(observation, "wire") or None
        # In a table the label is the row's words, which name the setting; in a sentence the wire does.
        row, found, _ = seen.text(observation, "label").partition(" / ")
        settings = tuple(_SETTING.findall(row if found else wire or ""))
        if wire == "p2p_off":
            settings = (("NCCL_P2P_DISABLE", "1"),)
        num_gpus = seen.whole(observation, "num_gpus")
        named = counts.get((observation.source, observation.line), set())
        if num_gpus is None and len(named) == 1:
            num_gpus = next(iter(named))  # "2.9 by default and 9.1 with X on 4x A40" is about four GPUs throughout
        yield Rate(
            operation=seen.text(observation, "operation"),
            num_gpus=num_gpus,
            settings=settings,
            wire="gloo" if observation.values.get("backend") == "gloo" else wire,
            group=f"{observation.source}:{num_gpus}",
            bytes_per_second=value,
            evidence=seen.line(observation),
        )


def _of_averages(run: Run) -> Iterable[Rate]:
    """Averages of the same sweep, each under the settings that the text names above it."""
    for average in seen.of(run, "nccl_tests.average"):
        value = seen.number(average, "busbw_bytes_per_second")
        settings = tuple(one for one in _SETTING.findall(seen.text(average, "settings")) if one[0] in COMPARED)
        if value:
            what = f"average of all sizes{' with ' if settings else ''}{' '.join(f'{name}={value}' for name, value in settings)}"
            yield Rate(
                operation="",
                num_gpus=None,
                settings=settings,
                wire="set" if settings else "default",
                group="averages of nccl-tests",
                bytes_per_second=value,
                evidence=Evidence(source=average.source, line=average.line or None, text=f"{what}: {rate(value)} busbw"),
            )


def _of_tools(run: Run) -> tuple[Rate, ...]:
    return tuple(_of_sweeps(run))


def _of_sweeps(run: Run) -> Iterable[Rate]:
    """nccl-tests: the fastest size of each sweep, with the settings that its command or NCCL's own log above it names."""
    environment = run.machine.software.nccl_environment if run.machine else {}
    everywhere = {name: value for name, value in environment.items() if name in COMPARED}
    tables = seen.of(run, "nccl_tests.table")
    set_somewhere = _set_for(run, tables)
    for table, own in zip(tables, set_somewhere, strict=True):
        value = seen.number(table, "peak_busbw_bytes_per_second")
        world_size = seen.whole(table, "world_size")
        if not value or not table.values.get("operation"):
            continue
        # Where NCCL or a command states it for some sweeps, the others ran without it.
        settings = tuple(sorted((own if any(set_somewhere) else everywhere).items()))
        what = f"{seen.text(table, 'operation')} of {size(seen.number(table, 'peak_bytes') or 0)}"
        what += f" over {world_size} GPUs" if world_size else ""
        what += f" with {' '.join(f'{name}={value}' for name, value in settings)}" if settings else ""
        yield Rate(
            operation=seen.text(table, "operation"),
            num_gpus=world_size,
            settings=settings,
            wire="set" if settings else "default",
            group="nccl-tests",
            bytes_per_second=value,
            evidence=Evidence(source=table.source, line=table.line or None, text=f"{what}: {rate(value)} busbw"),
        )


def _set_for(run: Run, tables: tuple[Observation, ...]) -> list[dict[str, str]]:
    """For each sweep: what was set between the end of the one above it in the same text and itself."""
    said = [
        o
        for kind in ("environment.command", "nccl.environment")
        for o in seen.of(run, kind)
        if seen.text(o, "name") in COMPARED and (o.kind != "environment.command" or "perf" in seen.text(o, "program"))
    ]
    found = []
    for table in tables:
        above = max((other.line for other in tables if other.source == table.source and other.line < table.line), default=0)
        own = [o for o in said if o.source == table.source and above < o.line < table.line]
        found.append({seen.text(o, "name"): seen.text(o, "value") for o in own})
    return found


COMPARED = frozenset(
    {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_SHM_USE_CUDA_MEMCPY", "NCCL_NET", "NCCL_ALGO", "NCCL_PROTO"}
)
"""Variables that change the way data goes; others do not make two sweeps incomparable."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What a setting does to the same operation on the same GPUs: ``after`` with it, ``before`` without."""

    before: Rate
    after: Rate

    @property
    def factor(self) -> float:
        """Above 1: the setting makes it faster."""
        return self.after.bytes_per_second / self.before.bytes_per_second


def gains(found: Iterable[Rate]) -> tuple[Gain, ...]:
    """Each figure under a setting beside the one without it, of the same operation, GPU count and table column.

    Where all are set, one without peer to peer is set beside one that asks for it.
    """
    figures = tuple(found)
    compared = []
    for after in figures:
        if not after.settings:
            continue
        like = [
            one
            for one in figures
            if (one.operation, one.num_gpus, one.group) == (after.operation, after.num_gpus, after.group) and one.bytes_per_second > 0
        ]
        plain = [one for one in like if one.is_default]
        asked = [one for one in like if one.asks_for_p2p] if after.has("NCCL_P2P_DISABLE", "1") else []
        before = next(iter([*plain, *asked]), None)
        if before is not None:
            compared.append(Gain(before, after))
    return tuple(compared)

"""Rates of collectives in pasted texts, whoever measured them: tables of settings, sentences, and nccl-tests, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wiretax.judge import facts, seen
from wiretax.model.finding import Evidence
from wiretax.model.run import Run
from wiretax.units import rate, size

_DEFAULT = re.compile(r"\b(?:default|baseline|stock|unset|none|as is|nothing set)\b", re.IGNORECASE)
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]+)\s?=\s?([\w./:-]+)")


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

    def has(self, name: str, *values: str) -> bool:
        """Whether it ran with this variable alone, at one of these values."""
        return len(self.settings) == 1 and self.settings[0][0] == name and (not values or self.settings[0][1] in values)


def rates(run: Run) -> tuple[Rate, ...]:
    """All figures of collectives in the run's texts, busbw where the text says which.

    Sweep averages of nccl-tests are left out: they mix sizes and say little.
    """
    return (*_of_tables(run), *_of_sentences(run), *_of_tools(run))


def _of_tables(run: Run) -> Iterable[Rate]:
    for observation in seen.of(run, "bench.value"):
        value = seen.number(observation, "bytes_per_second")
        if value is None or not observation.values.get("operation"):
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
    for observation in seen.of(run, "bandwidth.collective"):
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
        yield Rate(
            operation=seen.text(observation, "operation"),
            num_gpus=num_gpus,
            settings=settings,
            wire="gloo" if observation.values.get("backend") == "gloo" else wire,
            group=f"{observation.source}:{num_gpus}",
            bytes_per_second=value,
            evidence=seen.line(observation),
        )


def _of_tools(run: Run) -> Iterable[Rate]:
    """nccl-tests: the headline figure of each sweep, with the settings that the text says were in force."""
    environment = run.machine.software.nccl_environment if run.machine else {}
    settings = tuple((name, value) for name, value in environment.items() if name in _COMPARED)
    tables = {(seen.text(o, "operation"), seen.whole(o, "world_size")): o for o in seen.of(run, "nccl_tests.table")}
    for collective in run.measurements.collectives:
        head = facts.headline([collective])
        if head is None or collective.backend != "nccl" or collective.wire != "default":
            continue
        table = tables.get((collective.operation, collective.world_size))
        what = f"{collective.operation} of {size(head[1].num_bytes)} over {collective.world_size} GPUs"
        yield Rate(
            operation=collective.operation,
            num_gpus=collective.world_size,
            settings=settings,
            wire="set" if settings else "default",
            group="nccl-tests",
            bytes_per_second=head[1].busbw_bytes_per_second,
            evidence=Evidence(
                source=table.source if table else "measurements",
                line=(table.line or None) if table else None,
                text=f"{what}: {rate(head[1].busbw_bytes_per_second)} busbw",
            ),
        )


_COMPARED = frozenset(
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
    """Each figure under a setting beside the one without it, of the same operation, GPU count and table column."""
    figures = tuple(found)
    compared = []
    for after in figures:
        if not after.settings:
            continue
        before = next(
            (
                one
                for one in figures
                if one.is_default
                and (one.operation, one.num_gpus, one.group) == (after.operation, after.num_gpus, after.group)
                and one.bytes_per_second > 0
            ),
            None,
        )
        if before is not None:
            compared.append(Gain(before, after))
    return tuple(compared)

"""What a sweep writes down: each size of each operation, under the wire's honest name, with a reason for what is not there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from wiretax.measure import transport
from wiretax.measure.groups import Group
from wiretax.measure.host_load import HostLoadMeter
from wiretax.measure.operations import bus_factor
from wiretax.measure.rank import Rank
from wiretax.measure.timing import Summary
from wiretax.model.measurement import Collective, Incident, Mode, Operation, Point, Transport
from wiretax.units import size as size_text

Backend = Literal["nccl", "gloo"]


@dataclass(slots=True)
class Series:
    """One operation and mode while it is measured.

    Attributes:
        operation: which.
        mode: eager or graph.
        impossible: why it cannot be measured, or not any further.
        points: what is known of each size in bytes.
        right: whether each size was verified by value, and right; shared by the modes of an operation.
        too_slow: sizes left out because they would have taken more time than there was.
        too_large: sizes left out because they need more memory than is free.
    """

    operation: Operation
    mode: Mode
    right: dict[int, bool]
    impossible: str | None = None
    points: dict[int, Summary] = field(default_factory=dict)
    too_slow: set[int] = field(default_factory=set)
    too_large: set[int] = field(default_factory=set)

    @property
    def gaps(self) -> str | None:
        """Why sizes, or all of them, are missing; None where none is."""
        if self.impossible is not None:
            return self.impossible
        reasons = ((self.too_large, "does not fit into free memory"), (self.too_slow, "would take longer than there was time for"))
        parts = [f"{', '.join(size_text(size) for size in sorted(sizes))}: {why}" for sizes, why in reasons if sizes]
        return "; ".join(parts) or None


class Scribe:
    """Writes the series and incidents of one group on one wire. All members hold one; the first member's writes the series."""

    def __init__(self, rank: Rank, group: Group, backend: Backend, wire: str, environment: dict[str, str], meter: HostLoadMeter) -> None:
        self._rank, self._group, self._backend, self._meter = rank, group, backend, meter
        self._requested, self._environment = wire, environment
        self._renamed_from: str | None = None
        self._transports: tuple[Transport, ...] = ()
        self.wire = wire
        """As asked for, until :meth:`name_wire` has read what was used."""

    def name_wire(self) -> None:
        """Reads over what the ranks have connected, and names the wire after it."""
        self.read_transports()
        self.wire, self._renamed_from = transport.name_wire(self._requested, self._transports)

    def read_transports(self) -> None:
        """From NCCL's debug files of all members, each reading its own."""
        if self._backend != "nccl":
            return
        members = self._group.members
        found = self._rank.exchange(f"{self._group.name}/transports", transport.own_channels(os.environ), members)
        channels = [{(source, target, name): count for source, target, name, count in one} for one in found]
        self._transports = transport.join_channels(channels, [self._rank.gpus[member] for member in members])

    def keep(self, series: Series, num_bytes: int | None = None) -> None:
        """Writes one size of a series, or without a size only what is to be said of the whole series."""
        if self._group.is_first:
            point = None if num_bytes is None else self._point(series.operation, num_bytes, series.points[num_bytes])
            self._rank.emit_point(self._header(series), point)

    def incident(self, kind: Literal["hang", "error", "wrong_data"], operation: str, num_bytes: int | None, detail: str) -> None:
        """Writes what went wrong on this rank."""
        self._rank.emit(
            Incident(
                kind=kind,
                stage=f"wire:{self._requested}",
                rank=self._rank.rank,
                gpu=self._rank.gpu,
                operation=operation,
                wire=self.wire,
                num_bytes=num_bytes,
                world_size=self._group.size,
                detail=detail,
            )
        )

    def _point(self, operation: Operation, num_bytes: int, summary: Summary) -> Point:
        algbw = num_bytes / summary.seconds
        return Point(
            num_bytes=num_bytes,
            seconds=summary.seconds,
            p95_seconds=summary.p95_seconds,
            algbw_bytes_per_second=algbw,
            busbw_bytes_per_second=algbw * bus_factor(operation, self._group.size),
            samples_seconds=summary.samples_seconds,
            operations_per_sample=summary.operations_per_sample,
            stopped=summary.stopped,
            unstable=summary.unstable,
        )

    def _header(self, series: Series) -> Collective:
        missing = {}
        name = transport.describe(self._transports) if self._backend == "nccl" else "gloo/tcp"
        if name is None:
            missing["transport"] = "NCCL's debug file names no channel between ranks" if self._group.size > 1 else "one rank has no peer"
        if not series.right:
            missing["verified"] = "not measured"
        if (gaps := series.gaps) is not None:
            missing["points"] = gaps
        return Collective(
            backend=self._backend,
            operation=series.operation,
            wire=self.wire,
            wire_requested=self._renamed_from,
            world_size=self._group.size,
            gpus=tuple(self._rank.gpus[member] for member in self._group.members) if self._rank.gpus else (),
            mode=series.mode,
            transport=name,
            transports=self._transports,
            verified=all(series.right.values()) if series.right else None,
            environment=self._environment,
            host_load=self._meter.read(),
            missing=missing,
        )

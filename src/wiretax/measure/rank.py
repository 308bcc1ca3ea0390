"""What a measuring function knows of its place: its rank, its device, the others, how long it may take, where results go.

One process of a stage holds one :class:`Rank`. Results are appended to a file the moment they exist, so that a hang or a kill
loses nothing; where the rank is (operation, size, sample) is kept in a small mapped file that the parent reads when it does not
come back.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wiretax.model.measurement import Collective, Compute, Copy, Incident, Overlap, PeerTruth, Point

if TYPE_CHECKING:
    import torch

PATIENCE_SECONDS = 0.5
"""Functions plan to end by the deadline; a rank that is late by a little must not cost what the others measured."""

Result = Copy | Compute | Overlap | PeerTruth | Incident


class OutOfTimeError(Exception):
    """The stage's time is spent; what was measured has been written already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a rank is."""

    count: int
    """Grows with every step forward; the rank with the smallest count is the one that does not answer."""
    monotonic_seconds: float
    operation: str
    wire: str
    num_bytes: int | None
    world_size: int | None


class Heartbeat:
    """A mapped file of fixed size with the rank's position; writing it costs about a microsecond and no system call."""

    SIZE = 512
    _HEAD = struct.Struct("<QdI")

    def __init__(self, path: Path) -> None:
        """Makes the file, or opens the one that is there."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, self.SIZE)
            try:
                os.posix_fallocate(descriptor, 0, self.SIZE)
            except OSError as error:
                # on a full disk the first write into the map would end the process with SIGBUS, which tells nobody why
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
            self._map = mmap.mmap(descriptor, self.SIZE)
        finally:
            os.close(descriptor)
        self._count = self._HEAD.unpack_from(self._map)[0]
        self._text = b""

    def at(self, operation: str, wire: str, num_bytes: int | None, world_size: int | None) -> None:
        """States what the rank starts now."""
        self._text = msgspec.json.encode([operation, wire, num_bytes, world_size])[: self.SIZE - self._HEAD.size]
        self._map[self._HEAD.size : self._HEAD.size + len(self._text)] = self._text
        self.tick()

    def tick(self) -> None:
        """One step forward."""
        self._count += 1
        self._HEAD.pack_into(self._map, 0, self._count, time.monotonic(), len(self._text))

    @classmethod
    def read(cls, path: Path) -> Position | None:
        """The position in a heartbeat file, or None when the rank never wrote one (or wrote half of it)."""
        try:
            data = path.read_bytes()
            count, moment, length = cls._HEAD.unpack_from(data)
            operation, wire, num_bytes, world_size = msgspec.json.decode(
                data[cls._HEAD.size : cls._HEAD.size + length], type=tuple[str, str, int | None, int | None]
            )
        except (OSError, struct.error, msgspec.MsgspecError):
            return None
        return Position(count=count, monotonic_seconds=moment, operation=operation, wire=wire, num_bytes=num_bytes, world_size=world_size)


class ResultFile:
    """Appends results as JSON lines, each in one write, so that a killed rank leaves whole lines behind.

    Only a disk that gets full can cut a line in two; then writing goes on until the error comes, and the reader drops the rest.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file for appending."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: str, **values: Any) -> None:
        """Appends one record."""
        data = msgspec.json.encode({"record": record, **values}) + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


@dataclass(slots=True, kw_only=True)
class Rank:
    """One rank of one stage.

    Attributes:
        rank: 0 to world_size - 1.
        world_size: number of ranks.
        local_rank: number within the host.
        device: this rank's torch device (``cuda:k`` by CUDA ordinal, or ``cpu``).
        gpus: NVML index of each rank's GPU in rank order; empty on CPU ranks.
        store: a torch.distributed Store private to the stage, for :meth:`exchange` and process groups.
        deadline: ``time.monotonic()`` at which the stage must have ended.
        results: where results go; only rank 0 writes what all ranks share.
        heartbeat: where the rank is.
        clock: the monotonic clock.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    gpus: tuple[int, ...]
    store: Any
    deadline: float
    results: ResultFile
    heartbeat: Heartbeat
    clock: Callable[[], float] = time.monotonic
    _exchanges: dict[str, int] = field(default_factory=dict)

    @property
    def gpu(self) -> int | None:
        """NVML index of this rank's GPU; None on a CPU rank."""
        return self.gpus[self.rank] if self.gpus else None

    @property
    def seconds_left(self) -> float:
        """Until the stage's deadline; negative when it has passed."""
        return self.deadline - self.clock()

    def at(self, operation: str, wire: str = "", num_bytes: int | None = None, world_size: int | None = None) -> None:
        """States what this rank starts now (for the parent, in case it does not come back)."""
        self.heartbeat.at(operation, wire, num_bytes, world_size)

    def tick(self) -> None:
        """One step forward within the stated operation."""
        self.heartbeat.tick()

    @property
    def is_cuda(self) -> bool:
        """Whether this rank drives a GPU."""
        return bool(self.device.type == "cuda")

    def emit(self, result: Result) -> None:
        """Keeps a result at once."""
        self.results.write(type(result).__name__, value=result)

    def emit_point(self, series: Collective, point: Point | None) -> None:
        """Keeps one size of a collective; ``series`` says which (its ``points`` are ignored).

        A size may be given again, better measured: the last one counts. Without a point only the series' own fields are renewed
        (``verified``, ``transport``, ``missing``, ...); so is a series that could not be measured at all, with its reason.
        """
        self.results.write("Point", series=series, value=point)

    def emit_fact(self, name: str, value: Any) -> None:
        """Keeps a fact that only a rank can know (``nccl_loaded``, ``peer_access``, ...)."""
        self.results.write("Fact", name=name, value=value)

    def exchange(self, topic: str, value: Any, ranks: Sequence[int] | None = None) -> list[Any]:
        """Gives ``value`` to all ranks and returns everybody's, in rank order. Also serves as a barrier.

        Goes through the store, never through the wire that is measured. All the named ranks must call it in the same order for a topic.

        Args:
            topic: what is exchanged; calls with one topic are counted apart from other topics.
            value: anything msgspec can write as JSON.
            ranks: who takes part; all by default.

        Raises:
            OutOfTimeError: somebody did not answer before the deadline.
        """
        members = range(self.world_size) if ranks is None else ranks
        number = self._exchanges.get(topic, 0)
        self._exchanges[topic] = number + 1
        key = f"{topic}/{number}"
        self.store.set(f"{key}/{self.rank}", msgspec.json.encode(value))
        return [msgspec.json.decode(answer) for answer in self._get([f"{key}/{member}" for member in members])]

    def agree(self, topic: str, value: Any, source: int = 0) -> Any:
        """The value of rank ``source``, on every rank: how ranks agree on a count or on going on."""
        number = self._exchanges.get(topic, 0)
        self._exchanges[topic] = number + 1
        key = f"{topic}/{number}/from/{source}"
        if self.rank == source:
            self.store.set(key, msgspec.json.encode(value))
            return value
        return msgspec.json.decode(self._get([key])[0])

    def _get(self, keys: list[str]) -> list[bytes]:
        """Waits for keys little longer than the deadline allows; two round trips however many there are, where the store can."""
        left = self.seconds_left + PATIENCE_SECONDS
        if left <= 0:
            raise OutOfTimeError(keys[0])
        try:
            self.store.wait(keys, timedelta(seconds=max(left, 0.001)))
        except Exception as error:  # torch raises DistStoreError, RuntimeError or its own timeout class by version
            raise OutOfTimeError(f"{keys[0]}: {error}") from error
        if self.store.has_extended_api():
            return [bytes(value) for value in self.store.multi_get(keys)]
        return [bytes(self.store.get(key)) for key in keys]

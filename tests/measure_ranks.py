"""Starts real ranks for tests of the measuring engine: forked processes, each with a Rank of its own, and reads what they left."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed  # before any fork

from wiretax.measure.rank import Heartbeat, OutOfTimeError, Rank, ResultFile
from wiretax.model.measurement import Collective, Compute, Copy, Incident, Overlap, PeerTruth, Point


@dataclass
class Left:
    """What ranks left behind; exit codes are 0 (well), 4 (out of time), 1 (an error), or minus the signal."""

    exit_codes: list[int]
    series: dict[tuple[str, str, int, tuple[int, ...] | None], Collective] = field(default_factory=dict)
    points: dict[tuple[str, str, int], dict[int, Point]] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    facts: list[tuple[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, kind: type) -> list[Any]:
        return [result for result in self.results if isinstance(result, kind)]


def run_ranks(
    folder: Path,
    count: int,
    function: Callable[..., None],
    *,
    deadline_seconds: float = 30.0,
    kill_after: float | None = None,
    kill_at_bytes: int | None = None,
    enter: Callable[[int], None] | None = None,
    by_file: bool = False,
    variables: dict[str, str] | None = None,
    gpus: tuple[int, ...] = (),
    **arguments: Any,
) -> Left:
    """Runs ``function(rank, **arguments)`` in ``count`` processes.

    All are killed after ``kill_after`` seconds, or as soon as a point of ``kill_at_bytes`` or more is written, however fast the host is.
    ``enter`` is called first in each (to enter a namespace); ``by_file`` meets through a file instead of a local port;
    ``gpus`` are NVML indices that CPU ranks pretend to have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os._exit(_child(folder, count, number, function, deadline_seconds, enter, by_file, variables or {}, gpus, arguments))
        children.append(child)
    server = None
    if not by_file:
        server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        hidden = folder / ".port"
        hidden.write_text(str(server.port))
        hidden.rename(folder / "port")
    until = started + (kill_after if kill_after is not None else deadline_seconds + 10)
    codes = _wait(children, until, lambda: kill_at_bytes is not None and _reached(folder / "results.0", kill_at_bytes))
    left = _read(folder, count, codes)
    left.seconds = time.monotonic() - started
    del server
    return left


def _wait(children: list[int], until: float, enough: Callable[[], bool]) -> list[int]:
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    codes[child] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until or enough():
            for child in set(children) - set(codes):
                os.kill(child, signal.SIGKILL)
                until = time.monotonic() + 60
        time.sleep(0.005)
    return [codes[child] for child in children]


def _reached(path: Path, num_bytes: int) -> bool:
    """Whether a whole line of the results is a point of so many bytes or more."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    values = [record["value"] for record in map(msgspec.json.decode, lines) if record["record"] == "Point"]
    return any(value is not None and value["num_bytes"] >= num_bytes for value in values)


def _child(folder, count, number, function, seconds, enter, by_file, variables, gpus, arguments) -> int:
    try:
        error_file = os.open(folder / f"error.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(error_file, 2)
        os.environ.update(variables)
        if enter is not None:
            enter(number)
        torch.set_num_threads(1)
        deadline = time.monotonic() + seconds
        rank = Rank(
            rank=number,
            world_size=count,
            local_rank=number,
            device=torch.device("cpu"),
            gpus=gpus,
            store=_store(folder, count, by_file),
            deadline=deadline,
            results=ResultFile(folder / f"results.{number}"),
            heartbeat=Heartbeat(folder / f"beat.{number}"),
        )
        function(rank, **arguments)
        rank.exchange("done", True)
    except OutOfTimeError:
        return 4
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        return 1
    return 0


def _store(folder: Path, count: int, by_file: bool) -> Any:
    if by_file:
        return torch.distributed.FileStore(str(folder / "store"), count)
    while not (folder / "port").exists():
        time.sleep(0.002)
    return torch.distributed.TCPStore("127.0.0.1", int((folder / "port").read_text()), is_master=False)


def _read(folder: Path, count: int, codes: list[int]) -> Left:
    left = Left(exit_codes=codes)
    kinds = {kind.__name__: kind for kind in (Copy, Compute, Overlap, PeerTruth, Incident)}
    for number in range(count):
        left.errors.append((folder / f"error.{number}").read_text() if (folder / f"error.{number}").exists() else "")
        path = folder / f"results.{number}"
        for line in path.read_bytes().splitlines() if path.exists() else ():
            record = msgspec.json.decode(line)
            if record["record"] == "Point":
                header = msgspec.convert(record["series"], Collective)
                left.series[header.operation, header.mode, header.world_size, header.gpus] = header
                if record["value"] is not None:
                    point = msgspec.convert(record["value"], Point)
                    left.points.setdefault((header.operation, header.mode, header.world_size), {})[point.num_bytes] = point
            elif record["record"] == "Fact":
                left.facts.append((record["name"], record["value"]))
            else:
                left.results.append(msgspec.convert(record["value"], kinds[record["record"]]))
    return left

"""The machine as it is, or as somebody recorded it. Reads only; needs neither torch nor a GPU."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wiretax import __version__
from wiretax.errors import BadInput, unwritable
from wiretax.model.machine import Machine
from wiretax.model.run import Outcome, Run, Tool
from wiretax.probe.ask_nvml import DEADLINE_SECONDS
from wiretax.probe.inspect import inspect_machine
from wiretax.probe.recorded import redact, shipped_machine, shipped_machines
from wiretax.store.codec import decode_machine, encode
from wiretax.store.folder import new_run_id, read_bytes, write_atomically


def inspect(
    *, machine: str | Path | None = None, record: Path | None = None, redacted: bool = True, deadline_seconds: float = DEADLINE_SECONDS
) -> Run:
    """Looks at this machine or at a recorded one; the same as ``wiretax inspect``.

    Args:
        machine: a recorded machine in place of this one, see :func:`load_machine`.
        record: also write the machine to this file, for an issue or a test.
        redacted: leave out host name, addresses, UUIDs, serial numbers, users and private paths in that file.
        deadline_seconds: how long the driver may take to answer.

    Returns:
        A run that holds the machine and nothing measured.

    Raises:
        BadInput: ``machine`` names no file and no shipped machine, or the file cannot be read or is damaged.
        UsageError: ``record`` cannot be written.
        CannotWrite: the disk is full.
    """
    started = time.monotonic()
    found = inspect_machine(deadline_seconds=deadline_seconds) if machine is None else load_machine(machine)
    now = datetime.now(UTC)
    if record is not None:
        record_machine(found, record, redacted=redacted)
    return Run(
        run_id=new_run_id(now),
        created_at=now.isoformat(timespec="seconds"),
        tool=Tool(version=__version__),
        command="inspect",
        outcome=Outcome(status="complete", duration_seconds=time.monotonic() - started),
        machine=found,
    )


def load_machine(name: str | Path) -> Machine:
    """A machine from a file that ``--record`` wrote, from a run file, or by the name of one that comes with wiretax.

    A file wins over a name.

    Raises:
        BadInput: neither is there, or the file cannot be read.
        BadDocument: the file is damaged, of a later version, or no machine; the message has the path of the bad key.
    """
    path = Path(name)
    there = os.path.lexists(path)
    if not there and str(name) in shipped_machines():
        return shipped_machine(str(name))
    if not there and path.suffix != ".json" and os.sep not in str(name):
        raise BadInput(f"There is no file {name} and no machine of that name.", do=f"Shipped machines: {', '.join(shipped_machines())}.")
    return decode_machine(read_bytes(path), str(path))


def record_machine(machine: Machine, path: Path, *, redacted: bool = True) -> None:
    """Writes a machine to a file, for an issue or a test; see :func:`inspect`.

    Raises:
        UsageError: it cannot be written.
        CannotWrite: the disk is full.
    """
    if machine.origin == "live":
        note = f"recorded by wiretax {__version__} on {datetime.now(UTC).date().isoformat()}"
        machine = replace(machine, origin="recorded", origin_note=note)
    try:
        write_atomically(path, encode(redact(machine) if redacted else machine))
    except OSError as error:
        raise unwritable(path, error) from None

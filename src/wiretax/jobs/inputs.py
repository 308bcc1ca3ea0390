"""What predictions start from: profiles out of files and runs, wires out of a run, out of tables of nccl-tests, or as typed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wiretax.errors import BadInput, UsageError
from wiretax.model.machine import Machine
from wiretax.model.measurement import Collective, Measurements
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.predict.growth import joined_by_switch
from wiretax.predict.wire_curve import Wire
from wiretax.probe.readers.input import read_files
from wiretax.store.codec import decode_profiles
from wiretax.store.folder import find_run, read_bytes
from wiretax.units import rate


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWire:
    """A wire and where it is known from.

    Attributes:
        wire: its curves.
        measurements: of the run it was measured in, for contention and the rates of its GPUs; empty where it was not ours.
        source: one sentence.
        busbw_bytes_per_second: where the wire is a single typed number.
    """

    wire: Wire
    measurements: Measurements
    source: str
    busbw_bytes_per_second: float | None = None


def load_profiles(name: str) -> tuple[Profile, ...]:
    """The profiles in a file, or in a run by its id.

    Raises:
        BadInput: no such file or run.
        BadDocument: damaged, from the future, or without a profile.
    """
    path = find_run(name)
    return decode_profiles(read_bytes(path), str(path))


def nearest_profile(profiles: Sequence[Profile], workload: str, batch_size: int | None) -> Profile:
    """Of the profiles of one workload the one that was taken nearest to a batch size; the first for None."""
    own = [one for one in profiles if one.workload.name == workload]
    if batch_size is None:
        return own[0]
    return min(own, key=lambda one: abs(math.log(batch_size / one.workload.batch_size)))


def wire_of(measurements: Measurements, name: str, machine: Machine | None = None) -> Wire:
    """A wire by the name it was asked for; where NCCL took another transport than that, its curves stand under the transport's name.

    Args:
        measurements: of a run.
        name: of the wire.
        machine: on which it was measured; whether a switch joins its GPUs decides how sure other numbers of GPUs are.

    Raises:
        UsageError: nothing was measured over it.
    """
    renamed = next((one.wire for one in measurements.collectives if one.wire_requested == name and one.points), name)
    direct = any(one.wire == name and one.points for one in measurements.collectives)
    wire = Wire.measured(measurements, name if direct else renamed, switched=joined_by_switch(machine))
    return wire if direct else replace(wire, name=name)


def wires_of_run(run: Run, names: Sequence[str] | None) -> tuple[KnownWire, ...]:
    """Wires that a run measured between two or more ranks.

    Args:
        run: a check or a scale run.
        names: the wires wanted; None for the one a job gets (``default``), or the only one there is.

    Raises:
        UsageError: nothing was measured, a name was not, or several could be meant.
    """
    known = list(dict.fromkeys(one.wire for one in run.measurements.collectives if one.points and one.world_size > 1))
    if not known:
        raise UsageError(f"The run {run.run_id} measured no wire between two ranks.", do="Run `wiretax check` where there are two GPUs.")
    if names is None:
        names = ["default"] if "default" in known else known if len(known) == 1 else []
    if not names:
        raise UsageError(f"The run {run.run_id} measured {', '.join(known)}.", do=f"Say which with --wires, such as --wires {known[0]}.")
    source = f"measured in run {run.run_id}"
    return tuple(
        KnownWire(wire=wire_of(run.measurements, name, run.machine), measurements=run.measurements, source=source) for name in names
    )


def wire_of_tables(files: Sequence[str]) -> tuple[KnownWire, list[str]]:
    """One wire from files with output of nccl-tests, an operation and number of GPUs each.

    Returns:
        The wire, and what could not be read with certainty, for the user.

    Raises:
        BadInput: a file cannot be read or holds no table of nccl-tests.
        UsageError: two tables of one operation and number of GPUs, which cannot be one wire.
    """
    found: dict[tuple[str, int, str], tuple[str, Collective]] = {}
    worries: list[str] = []
    for name in files:
        pieces, problems = read_files([name])
        unreadable = next((one for one in problems if one.kind == "unreadable"), None)
        if unreadable is not None:
            where = "" if unreadable.text.startswith(unreadable.source) else f"{unreadable.source}: "
            raise BadInput(f"{where}{unreadable.text}", do=unreadable.do)
        worries += [f"{one.source}, line {one.line}: {one.text}" for one in problems if one.kind == "damaged"]
        tables = [one for piece in pieces for one in piece.measurements.collectives if one.world_size > 1 and one.points]
        if not tables:
            raise BadInput(
                f"{name} holds no table of nccl-tests between two ranks that can be read.",
                do="Give the whole output of all_reduce_perf (or its kin), from its first line on, or type --busbw.",
            )
        for table in tables:
            key = (table.operation, table.world_size, table.mode)
            if key in found:
                raise UsageError(
                    f"{found[key][0]} and {name} both hold {table.operation} on {table.world_size} GPUs; one wire has one of each.",
                    do="Predict them one after the other.",
                )
            found[key] = (name, table)
    measured = Measurements(collectives=tuple(table for _, table in found.values()))
    wire = replace(Wire.measured(measured, "default"), name=Path(files[0]).stem)
    names = ", ".join(Path(name).name for name in files)
    return KnownWire(wire=wire, measurements=Measurements(), source=f"measured by nccl-tests ({names})"), worries


def typed_wire(busbw_bytes_per_second: float, latency_seconds: float) -> KnownWire:
    """A wire that is one typed number.

    Raises:
        UsageError: it describes no wire.
    """
    wire = Wire.of_busbw(busbw_bytes_per_second, latency_seconds=latency_seconds, name=f"typed {rate(busbw_bytes_per_second)}")
    return KnownWire(wire=wire, measurements=Measurements(), source="typed", busbw_bytes_per_second=busbw_bytes_per_second)

"""The headline of a check: what data parallelism would do here to one fixed model, before anyone profiled their own.

Where a profile of that model on this very GPU model comes with wiretax, it is predicted over each measured wire; elsewhere two
honest bounds are given (:mod:`wiretax.predict.bounds`), and say that they are bounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import resources

from wiretax.data.gpus import find_gpu
from wiretax.errors import WiretaxError
from wiretax.jobs.inputs import wire_of
from wiretax.model.forecast import Forecast
from wiretax.model.machine import Machine
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.predict.bounds import bounds
from wiretax.predict.contention import measured_contention
from wiretax.predict.forecast import predict
from wiretax.store.codec import decode_profiles

WORKLOAD, BATCH_SIZE = "gpt1.7b", 4
"""As in :mod:`wiretax.predict.bounds`: the first user's story."""


def headline(run: Run) -> tuple[Forecast, ...]:
    """Forecasts of the fixed model, one GPU first, then each wire and number of GPUs whose all-reduce was measured.

    Args:
        run: of a check, with what it measured.
    """
    profile = profile_of(run.machine) if run.machine is not None else None
    places = dict.fromkeys(
        (one.wire, one.world_size)
        for one in run.measurements.collectives
        if one.operation == "all_reduce" and one.points and one.world_size > 1 and one.gpus
    )
    if profile is None or not places:
        return bounds(run)
    found: list[Forecast] = []
    taken = (
        f"{WORKLOAD} was profiled on another {profile.device_name}, {(profile.created_at or 'undated')[:10]}; the wire is this machine's"
    )
    for wire_name, count in places:
        wire = wire_of(run.measurements, wire_name, run.machine)
        for number in (1, count) if not found else (count,):
            beside = measured_contention(run.measurements, profile, wire_name, number)
            forecast = predict(profile, wire, "ddp", number, contention=beside, gpus=run.measurements.compute).forecast
            found.append(replace(forecast, wire="none" if number == 1 else wire_name, assumptions=(taken, *forecast.assumptions)))
    return tuple(found)


def profile_of(machine: Machine) -> Profile | None:
    """The shipped profile of the fixed model on the machine's GPUs; None where they are of several models, or of one without."""
    names = {gpu.name for gpu in machine.gpus if gpu.status == "ok"}
    name = names.pop() if len(names) == 1 else None
    known = find_gpu(name) if name else None
    if known is None:
        return None
    return next((one for one in shipped_profiles() if find_gpu(one.device_name) == known), None)


@cache
def shipped_profiles() -> tuple[Profile, ...]:
    """Profiles of the fixed model that come with wiretax, one a GPU model."""
    folder = resources.files("wiretax.data").joinpath("profiles")
    if not folder.is_dir():
        return ()
    found: list[Profile] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".json"):
            found += decode_profiles(entry.read_bytes(), entry.name)
    wrong = [one.workload for one in found if (one.workload.name, one.workload.batch_size) != (WORKLOAD, BATCH_SIZE)]
    if wrong:
        raise WiretaxError(f"a shipped profile is of {wrong[0].name} at batch {wrong[0].batch_size}, not of {WORKLOAD} at {BATCH_SIZE}.")
    return tuple(found)

"""Predicts what real runs measured: profiles of one GPU and the wires of each run in, predicted beside measured out.

    python benchmarks/predict_measured.py --profiles FOLDER RUN.json RUN.json RUN.json [--write benchmarks/results/prediction_NAME.json]

``FOLDER`` holds the profiles of ``profile_one_gpu.py`` (NAME_bBATCH.json); without it those in the runs are taken. Each run document
is one launch (of ``train_launch.py`` or ``wiretax scale``): its steps on several GPUs are the truth, its own sweeps the wire; with
``--wire-up-to 2`` only what was measured between two GPUs, and the model of the wire does the rest. A profile at another batch is scaled,
as ``wiretax predict`` does. Steps of a workload without a profile are left out and named.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cases import Row, cases, row, summary_line, table
from wiretax.errors import UsageError
from wiretax.model.profile import Profile
from wiretax.model.run import Run
from wiretax.model.training import StepTiming
from wiretax.predict.baselines import baselines
from wiretax.predict.contention import measured_contention
from wiretax.predict.forecast import predict
from wiretax.predict.options import Options
from wiretax.predict.wire_curve import Wire
from wiretax.store.folder import load_run


def load_profiles(folder: Path | None, runs: Sequence[Run]) -> dict[tuple[str, int], Profile]:
    """Profiles by workload and batch size; one of the folder counts before one of a run."""
    found = [one for run in runs for one in run.training.profiles]
    if folder is not None:
        found += [msgspec.json.decode(path.read_bytes(), type=Profile) for path in sorted(folder.glob("*.json"))]
    return {(one.workload.name, one.workload.batch_size): one for one in found}


def predicted(run: Run, launch: int, profiles: dict[tuple[str, int], Profile], left_out: list[str]) -> list[Row]:
    """Every step of a run on more than one GPU that has a profile and a wire."""
    rows = []
    for step in run.training.steps:
        if step.num_gpus < 2 or step.strategy == "none":
            continue
        same = [one for (workload, _), one in profiles.items() if workload == step.workload]
        own = min(same, key=lambda one: abs(math.log(one.workload.batch_size / step.batch_per_gpu)), default=None)
        if own is None:
            left_out.append(f"{step.workload}: no profile")
            continue
        try:
            rows.append(_row(run, launch, step, own))
        except UsageError as reason:
            left_out.append(f"{step.workload} {step.strategy} over {step.wire}: {reason}")
    return rows


def _row(run: Run, launch: int, step: StepTiming, own: Profile) -> Row:
    wire = Wire.measured(run.measurements, step.wire)
    options = Options(accumulation_steps=step.accumulation_steps)
    beside = measured_contention(run.measurements, own, step.wire, step.num_gpus)
    return row(
        predict(
            own,
            wire,
            step.strategy,
            step.num_gpus,
            batch_size=step.batch_per_gpu,
            options=options,
            contention=beside,
            gpus=run.measurements.compute,
        ),
        baselines(
            own,
            wire,
            step.num_gpus,
            batch_size=step.batch_per_gpu,
            accumulation_steps=step.accumulation_steps,
            traffic=1.5 if step.strategy in ("fsdp2", "hsdp") else 1.0,
        ),
        step.step_seconds,
        workload=step.workload if step.accumulation_steps == 1 else f"{step.workload} x{step.accumulation_steps}",
        strategy=step.strategy,
        wire=step.wire,
        num_gpus=step.num_gpus,
        batch_per_gpu=step.batch_per_gpu,
        launch=launch,
    )


def up_to(run: Run, world_size: int) -> Run:
    """The run as if no more GPUs than these had been measured together; the steps stay."""
    kept = tuple(one for one in run.measurements.collectives if one.world_size <= world_size)
    beside = tuple(one for one in run.measurements.overlap if one.world_size <= world_size)
    return dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, collectives=kept, overlap=beside))


def _machine(runs: Sequence[Run]) -> str:
    machine = runs[0].machine
    if machine is None or not machine.gpus:
        return "CPU ranks"
    names = [gpu.name or "unknown GPU" for gpu in machine.gpus]
    software = machine.software
    return f"{len(names)}x {names[0]}, torch {software.torch}, driver {software.driver}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--wire-up-to", type=int, metavar="GPUS", help="use only what was measured between so many GPUs")
    parser.add_argument("--tuned-on", nargs="*", default=[], help="workloads that were looked at while the method was built")
    parser.add_argument("--write", type=Path, help="write the cases as JSON")
    arguments = parser.parse_args()
    runs = [load_run(path) for path in arguments.runs]
    if arguments.wire_up_to is not None:
        runs = [up_to(run, arguments.wire_up_to) for run in runs]
    profiles = load_profiles(arguments.profiles, runs)
    left_out: list[str] = []
    launches = [one for launch, run in enumerate(runs, 1) for one in predicted(run, launch, profiles, left_out)]
    for reason in dict.fromkeys(left_out):
        print(f"left out: {reason}", file=sys.stderr)
    if not launches:
        print("no step of these runs could be predicted", file=sys.stderr)
        return 1
    device = next(iter(profiles.values())).device
    common = {"device": device, "machine": _machine(runs), "date": runs[0].created_at[:10]}
    found = [{**one, "held_out": one["workload"] not in arguments.tuned_on} for one in cases(launches, **common)]
    print(table(launches) + "\n\n" + table(found) + "\n")
    for strategy in dict.fromkeys(one["strategy"] for one in found):
        print(summary_line(strategy, [one for one in found if one["strategy"] == strategy]))
    if arguments.write:
        arguments.write.write_text(json.dumps({"cases": found}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

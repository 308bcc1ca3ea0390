"""DDP on two gloo ranks of one thread each: predicted from the profile and the sweep of a run, beside the steps it really trained.

    python benchmarks/predict_cpu.py [--launches 3] [--write benchmarks/results/prediction_cpu.json]
    python benchmarks/predict_cpu.py RUN.json RUN.json ... --write ...      from runs of `wiretax scale` made before

Each launch is one `wiretax scale --gpus 1,2 --device cpu`; launches of one case together, their median as the truth. CPU ranks feel
every other process of the host, so its load is kept with each case: on a busy one the result says little. Exits 1 when the mean
error of DDP is above 15 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from predict_measured import load_profiles, predicted

from cases import Row, cases, error, summary_line, table
from wiretax.jobs.scale import ScaleOptions, scale
from wiretax.jobs.training_stages import Subject
from wiretax.model.run import Run
from wiretax.store.folder import load_run, save_run
from wiretax.units import percent

SEEN = (("gpt-mini", 4), ("cpu_workloads:wide", 64), ("cpu_workloads:pictures", 16), ("cpu_workloads:encoder", 8))
"""Looked at while the method was built."""
HELD_OUT = (("cpu_workloads:bottle", 64), ("cpu_workloads:patches", 8))
WORKLOADS = SEEN + HELD_OUT
MEAN = 0.15


def measure(launches: int, keep: Path | None) -> list[Run]:
    """Every workload once a launch, in turns, so that a change of the host's load hits all alike."""
    os.chdir(Path(__file__).parent)  # cpu_workloads is looked for in the working folder
    found = []
    for launch in range(1, launches + 1):
        for source, batch in WORKLOADS:
            run = scale(ScaleOptions(subject=Subject(source=source), batches=(batch,), counts=(1, 2), device="cpu", budget_seconds=180.0))
            print(f"launch {launch} {source}: {run.outcome.status if run.outcome else '?'}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            if keep is not None:
                save_run(run, keep / f"{source.rpartition(':')[2]}.{launch}.json")
            found.append(run)
    return found


def busy(run: Run) -> float | None:
    """Share of the processors that others took, in the worst of profile, sweep and the step on two ranks."""
    loads = [one.host_load for one in (*run.training.profiles, *run.measurements.collectives)]
    loads += [one.host_load for one in run.training.steps if one.num_gpus > 1]
    known = [
        (one.other_busy_fraction or 0.0) + (one.steal_fraction or 0.0)
        for one in loads
        if one is not None and one.other_busy_fraction is not None
    ]
    return max(known, default=None)


def rows_of(runs: Sequence[Run]) -> tuple[list[Row], dict[str, list[float]]]:
    """One row a real step on two ranks, and the load of the host by workload."""
    launches: list[Row] = []
    loads: dict[str, list[float]] = {}
    for number, run in enumerate(runs, 1):
        found = predicted(run, number, load_profiles(None, [run]), [])
        launches += found
        load = busy(run)
        for one in found:
            loads.setdefault(one["workload"], []).extend([] if load is None else [load])
    return launches, loads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the run documents")
    parser.add_argument("--write", type=Path, help="write the cases as JSON")
    arguments = parser.parse_args()
    write, keep = (path.resolve() if path is not None else None for path in (arguments.write, arguments.keep))
    runs = [load_run(path) for path in arguments.runs] or measure(arguments.launches, keep)
    launches, loads = rows_of(runs)
    if not launches:
        print("nothing was trained on two ranks", file=sys.stderr)
        return 1
    name = next((one.device_name for run in runs for one in run.training.profiles), "unknown CPU")
    worst = max((max(load) for load in loads.values() if load), default=0.0)
    machine = f"2 gloo ranks of 1 thread, {os.cpu_count()} CPUs, {name}, at most {percent(worst)} of them taken by others"
    common = {"device": "cpu", "machine": machine, "date": runs[0].created_at[:10]}
    found = []
    for one in cases(launches, **common):
        load = loads.get(one["workload"])
        found.append({**one, "held_out": one["workload"] in dict(HELD_OUT), "host_busy_fraction": round(median(load), 3) if load else None})
    print(table(launches) + "\n\n" + table(found) + "\n")
    print(summary_line("DDP over gloo, CPU", found))
    print(f"others took {percent(worst)} of the processors at worst")
    if write is not None:
        write.write_text(json.dumps({"cases": found}, indent=1) + "\n", encoding="utf-8")
    reached = mean(abs(error(one)) for one in found) <= MEAN
    print(f"DDP mean error at most {percent(MEAN)}: {'reached' if reached else 'MISSED'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

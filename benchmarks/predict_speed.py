"""How long predictions take: ``python benchmarks/predict_speed.py [--write benchmarks/results/predict_speed.json]``.

Eight strategies at six numbers of GPUs and five batch sizes, from the example's profile and wire, as `wiretax predict` makes them. Exits
1 when all together take more than 10 s or one of them more than 1 s of processor time.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from wiretax.jobs.inputs import load_profiles, wires_of_run
from wiretax.predict.contention import measured_contention
from wiretax.predict.forecast import predict
from wiretax.store.folder import load_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "h200x2"
STRATEGIES = ("ddp", "fsdp2", "fsdp2_grad_op", "hsdp", "zero1", "zero2", "tp", "pp")
GPUS = (2, 4, 8, 16, 32, 64)
BATCHES = (1, 2, 4, 8, 16)
ALL_SECONDS, ONE_SECONDS = 10.0, 1.0


def cpu_name() -> str:
    """As Linux names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    profile = next(one for one in load_profiles(str(EXAMPLE / "profiles.json")) if one.workload.name == "gpt1.7b")
    (known,) = wires_of_run(load_run(EXAMPLE / "wires.json"), None)
    seconds = []
    for strategy in STRATEGIES:
        for count in GPUS:
            beside = measured_contention(known.measurements, profile, known.wire.name, count)
            for batch in BATCHES:
                began = time.process_time()
                predict(profile, known.wire, strategy, count, batch_size=batch, contention=beside)
                seconds.append(time.process_time() - began)
    result = {
        "predictions": len(seconds),
        "all_seconds": round(sum(seconds), 3),
        "slowest_seconds": round(max(seconds), 3),
        "clock": "processor time of one core",
        "machine": cpu_name(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result, indent=1))
    if arguments.write:
        arguments.write.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if sum(seconds) < ALL_SECONDS and max(seconds) < ONE_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

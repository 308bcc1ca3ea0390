"""Feeds damaged texts to the readers, in process: no traceback, no hang, no growth, no null without a reason, no figure that cannot be one.

    python tests/fuzz/run_fuzz.py --count 200000 --seed 1

Inputs that fail, and the slowest ones, are kept in tests/fuzz/corpus and are seeds of the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.mutations import CORPUS, mutate, seeds
from fuzz.soundness import faults
from wiretax.probe.readers.input import read_bytes

MAX_SECONDS_A_MEGABYTE = 1.0
FREE_SECONDS = 0.25


def main() -> int:
    """Runs and prints; 1 where an input failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="write failing inputs to tests/fuzz/corpus")
    arguments = parser.parse_args()
    corpus = seeds()
    rng = random.Random(arguments.seed)
    formats: Counter[str] = Counter()
    failures = 0
    worst, worst_rate, total_bytes = (0.0, b""), (0.0, b""), 0
    begun = time.perf_counter()
    memory_early = 0
    for index in range(arguments.count):
        data = mutate(rng, corpus)
        total_bytes += len(data)
        start = time.process_time()
        try:
            pieces, problems = read_bytes("fuzz", data)
            assert not (wrong := faults(pieces)), wrong
        except Exception:
            failures += 1
            print(f"input {index}: {hashlib.sha256(data).hexdigest()[:12]}, {len(data)} bytes")
            traceback.print_exc(limit=-4)
            _keep(data, arguments.keep)
            continue
        seconds = time.process_time() - start
        formats.update(piece.format for piece in pieces)
        if not pieces and not problems and data.strip(b"\x00 \t\r\n"):
            formats["nothing at all"] += 1
        rate = seconds / max(len(data) / 1e6, FREE_SECONDS)
        worst, worst_rate = max(worst, (seconds, data)), max(worst_rate, (rate, data))
        if rate > MAX_SECONDS_A_MEGABYTE:
            failures += 1
            print(f"input {index}: {seconds:.2f} s for {len(data)} bytes")
            _keep(data, arguments.keep)
        if index == arguments.count // 5:
            memory_early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{arguments.count} inputs, {total_bytes / 1e6:.0f} MB, seed {arguments.seed}: {failures} failures in {took:.0f} s")
    print(
        f"worst time {worst[0] * 1e3:.0f} ms for {len(worst[1])} bytes; peak memory {memory / 1024:.0f} MB, "
        f"after a fifth {memory_early / 1024:.0f} MB"
    )
    print("understood as: " + ", ".join(f"{name} {count}" for name, count in formats.most_common()))
    return 1 if failures else 0


def _keep(data: bytes, keep: bool) -> None:
    if keep:
        CORPUS.mkdir(exist_ok=True)
        (CORPUS / f"{hashlib.sha256(data).hexdigest()[:16]}.bin").write_bytes(data)


if __name__ == "__main__":
    raise SystemExit(main())

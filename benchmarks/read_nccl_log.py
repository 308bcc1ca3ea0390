"""How fast `wiretax diagnose` reads NCCL logs, beside `grep -c NCCL` and a plain Python line loop.

    python benchmarks/read_nccl_log.py --megabytes 1000

Writes logs of a 1024-rank job (128 hosts), made from the recorded ones in tests/data/h200x2 with every number that differs between
ranks changed, reads each in a process of its own, and prints rates by CPU time and peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "tests" / "data" / "h200x2"
RANKS = 1024
SUBSYSTEM_LINES = re.compile(
    rb"NCCL INFO (?:Connected to proxy|UDS |Imported|Allocated|New proxy|CUMEM|Ring |Tree |  ?\d+ : GPU|GPU/|CPU/|NET/0| *\+ |===)"
)

READ = """
import resource, sys, time
from wiretax.probe.readers.input import read_files
start = time.process_time()
pieces, problems = read_files([sys.argv[1]])
seconds = time.process_time() - start
observations = sum(len(piece.observations) for piece in pieces)
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(pieces), observations, len(problems))
"""
LOOP = """
import sys, time
start = time.process_time()
count = 0
with open(sys.argv[1], encoding="utf-8", errors="replace") as lines:
    for line in lines:
        if "NCCL" in line:
            count += 1
print(time.process_time() - start, count)
"""


def ranks_of(recorded: list[bytes], prefix: bytes) -> Iterator[bytes]:
    """The log of rank after rank, round after round (a job makes many communicators)."""
    clock = itertools.count()
    for communicator in itertools.count():
        for rank in range(RANKS):
            host, device, peer = rank // 8, rank % 8, (rank + 1) % RANKS
            head = b"node-%03d:%d:%d [%d] " % (host, 100_000 + rank, 200_000 + rank + communicator * 2_000, device)
            lines = []
            for line in recorded:
                stamp = b"2026-01-01T00:00:%012.6fZ " % (next(clock) / 1e5) if prefix else b""
                changed = re.sub(rb"^vm:\d+:\d+ \[\d\] ", stamp + prefix + head, line)
                changed = changed.replace(
                    b"rank 0 nranks 2 cudaDev 0 nvmlDev 0", b"rank %d nranks 1024 cudaDev %d nvmlDev %d" % (rank, device, device)
                )
                changed = re.sub(rb" 0\[0\] -> 1\[1\]", b" %d[%d] -> %d[%d]" % (rank, device, peer, peer % 8), changed)
                lines.append(re.sub(rb"commId 0x[0-9a-f]+", b"commId 0x%x" % (0xABC000 + communicator), changed))
            yield b"\n".join(lines) + b"\n"


def write(path: Path, megabytes: int, recorded: list[bytes], prefix: bytes = b"") -> None:
    """A log of about that size."""
    size = 0
    with path.open("wb") as out:
        for text in ranks_of(recorded, prefix):
            out.write(text)
            size += len(text)
            if size >= megabytes * 1e6:
                return


def timed(code: str, path: Path) -> list[float]:
    """The figures that a Python program prints about a file."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> int:
    """Makes the logs, reads them, prints the table; 1 where the floor of 50 MB/s or the ceiling of 300 MB is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    everything = [line for name in ("nccl_default.1679.log", "nccl_shm.1778.log") for line in (RECORDED / name).read_bytes().splitlines()]
    ordinary = [line for line in everything if not SUBSYSTEM_LINES.search(line)]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        for name, recorded, prefix in (
            ("NCCL_DEBUG=INFO", ordinary, b""),
            ("all subsystems", everything, b""),
            ("behind a date and a launcher", ordinary, b"[1,0]<stdout>:"),
        ):
            write(path, arguments.megabytes, recorded, prefix)
            megabytes = path.stat().st_size / 1e6
            start = time.perf_counter()
            subprocess.run(["grep", "-c", "NCCL", str(path)], check=True, capture_output=True)
            grep = megabytes / (time.perf_counter() - start)
            loop = max(megabytes / timed(LOOP, path)[0] for _ in range(arguments.repeats))
            runs = [timed(READ, path) for _ in range(arguments.repeats)]
            best = min(runs)
            rows.append(
                {
                    "log": name,
                    "megabytes": round(megabytes),
                    "grep_mb_per_second": round(grep),
                    "line_loop_mb_per_second": round(loop),
                    "wiretax_mb_per_second": round(megabytes / best[0]),
                    "peak_memory_mb": round(max(run[1] for run in runs)),
                    "machines": int(best[2]),
                    "observations": int(best[3]),
                }
            )
    print(f"{'log':32} {'MB':>6} {'grep -c':>9} {'line loop':>10} {'wiretax':>9} {'memory':>8}   (MB/s, one core; peak MB)")
    for row in rows:
        rates = f"{row['grep_mb_per_second']:9} {row['line_loop_mb_per_second']:10} {row['wiretax_mb_per_second']:9}"
        share = row["wiretax_mb_per_second"] / row["line_loop_mb_per_second"]
        print(f"{row['log']:32} {row['megabytes']:6} {rates} {row['peak_memory_mb']:8}   {share:.2f} of the line loop")
    if arguments.json:
        machine = {"python": platform.python_version(), "processor": _processor(), "date": time.strftime("%Y-%m-%d")}
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return int(any(row["wiretax_mb_per_second"] < 50 or row["peak_memory_mb"] > 300 for row in rows))


def _processor() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    raise SystemExit(main())

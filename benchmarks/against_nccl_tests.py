"""Sets our collectives beside nccl-tests on the same box and says whether they agree.

    python benchmarks/against_nccl_tests.py default=theirs.1.txt default=theirs.2.txt socket=theirs.txt run.1.json run.2.json

``WIRE=FILE`` is the output of an nccl-tests program over that wire (its environment is yours to set); the other files are run
documents of ``wiretax check --json``. Several of each should be taken in turns, so that both tools see the same weather. nccl-tests'
figure of a size is the median over its files and placements (out-of-place and in-place), ours the better of CUDA graph and pipelined
eager, and over documents the median.

Exit codes: 0 they agree, 1 they do not or something needed is missing, 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

KIB, MIB = 2**10, 2**20
OPERATIONS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "send_recv",
}
FAST_WIRES = ("default", "p2p_off")

Key = tuple[str, str, int]
"""Wire, operation, world size."""
Figures = dict[int, list[tuple[float, float]]]
"""Size in bytes to all (seconds, busbw in bytes per second)."""


class Unreadable(Exception):
    """A file is not what it was given as."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size, ours and theirs."""

    num_bytes: int
    our_seconds: float
    their_seconds: float
    our_busbw: float
    their_busbw: float
    their_range: tuple[float, float]

    @property
    def busbw_ratio(self) -> float:
        """Ours over theirs: above 1 we read more."""
        return self.our_busbw / self.their_busbw

    @property
    def latency_ratio(self) -> float:
        """Ours over theirs: below 1 we are quicker."""
        return self.our_seconds / self.their_seconds


@dataclass(slots=True)
class Comparison:
    """One wire and operation, and what the acceptance asks of it."""

    key: Key
    rows: list[Row]
    figures: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def read_nccl_tests(text: str, name: str) -> tuple[str, int, Figures]:
    """Operation, number of ranks, and both placements of each size, from an nccl-tests program's output.

    Raises:
        Unreadable: the text names no known program or holds no rows.
    """
    program = re.search(r"Collective test starting: (\w+)", text)
    if program is None or program[1] not in OPERATIONS:
        raise Unreadable(f"{name}: no line 'Collective test starting: ...' of a known nccl-tests program")
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.MULTILINE))
    figures: Figures = defaultdict(list)
    for line in text.splitlines():
        words = line.split()
        # size count type redop root, then time algbw busbw wrong of each placement
        if len(words) >= 13 and words[0].isdigit() and words[1].isdigit() and int(words[0]) > 0:
            for time, busbw in ((words[5], words[7]), (words[9], words[11])):
                figures[int(words[0])].append((float(time) * 1e-6, float(busbw) * 1e9))
    if not figures or not ranks:
        raise Unreadable(f"{name}: no rows of results or no ranks")
    return OPERATIONS[program[1]], ranks, dict(figures)


def read_run(document: Mapping[str, object], name: str) -> dict[Key, Figures]:
    """The better mode of each size, from a run document.

    Raises:
        Unreadable: it has no measurements.
    """
    try:
        collectives = document["measurements"]["collectives"]  # type: ignore[index]
    except (KeyError, TypeError) as error:
        raise Unreadable(f"{name}: not a run document: {error} is missing") from error
    best: dict[Key, dict[int, tuple[float, float]]] = defaultdict(dict)
    for series in collectives:
        if series["backend"] != "nccl":
            continue
        found = best[series["wire"], series["operation"], series["world_size"]]
        for point in series["points"]:
            figure = (point["seconds"], point["busbw_bytes_per_second"])
            found[point["num_bytes"]] = min(found.get(point["num_bytes"], figure), figure)
    return {key: {size: [figure] for size, figure in sizes.items()} for key, sizes in best.items()}


def merge(parts: Iterable[tuple[Key, Figures]]) -> dict[Key, Figures]:
    """All figures of a wire, operation and world size together."""
    merged: dict[Key, Figures] = defaultdict(lambda: defaultdict(list))
    for key, figures in parts:
        for size, found in figures.items():
            merged[key][size] += found
    return {key: dict(figures) for key, figures in merged.items()}


def compare(key: Key, ours: Figures, theirs: Figures) -> Comparison:
    """The rows of the sizes both have, and the judgement of the wires that have one."""
    rows = []
    for size in sorted(ours.keys() & theirs.keys()):
        bandwidths = [busbw for _, busbw in theirs[size]]
        their_seconds = median(seconds for seconds, _ in theirs[size])
        # nccl-tests prints two decimals of GB/s, so small sizes are better told from the time
        per_second = median(seconds * busbw for seconds, busbw in ours[size])
        rows.append(
            Row(
                num_bytes=size,
                our_seconds=median(seconds for seconds, _ in ours[size]),
                their_seconds=their_seconds,
                our_busbw=median(busbw for _, busbw in ours[size]),
                their_busbw=per_second / their_seconds if per_second else median(bandwidths),
                their_range=(min(bandwidths), max(bandwidths)),
            )
        )
    comparison = Comparison(key=key, rows=rows)
    if key[1] == "all_reduce" and key[0] in FAST_WIRES:
        _judge_fast(comparison)
    elif key[1] == "all_reduce" and key[0] == "socket":
        _judge_socket(comparison)
    return comparison


def _judge_fast(comparison: Comparison) -> None:
    """From 16 MiB up a median of at least 0.97 and none below 0.94; 1 to 8 MiB at least 0.90; latency at most theirs in the median."""
    large = [row for row in comparison.rows if row.num_bytes >= 16 * MIB]
    middle = [row for row in comparison.rows if MIB <= row.num_bytes <= 8 * MIB]
    small = [row for row in comparison.rows if row.num_bytes <= 64 * KIB]
    checks = (
        ("median busbw ratio from 16 MiB up", [median(row.busbw_ratio for row in large)] if large else [], 0.97, None),
        ("lowest busbw ratio from 16 MiB up", [row.busbw_ratio for row in large], 0.94, None),
        ("lowest busbw ratio from 1 to 8 MiB", [row.busbw_ratio for row in middle], 0.90, None),
        ("median latency ratio up to 64 KiB", [median(row.latency_ratio for row in small)] if small else [], None, 1.0),
    )
    for name, values, least, most in checks:
        if not values:
            comparison.failures.append(f"{name}: no size that both measured")
            continue
        value = max(values) if most is not None else min(values)
        comparison.figures[name] = value
        if least is not None and value < least:
            comparison.failures.append(f"{name} is {value:.3f}, below {least}")
        if most is not None and value > most:
            comparison.failures.append(f"{name} is {value:.3f}, above {most}")


def _judge_socket(comparison: Comparison) -> None:
    """Inside nccl-tests' own range, 10 % more on either side, from 1 MiB up: sockets differ from run to run."""
    rows = [row for row in comparison.rows if row.num_bytes >= MIB]
    if not rows:
        comparison.failures.append("no size from 1 MiB up that both measured")
        return
    for row in rows:
        low, high = 0.9 * row.their_range[0], 1.1 * row.their_range[1]
        if not low <= row.our_busbw <= high:
            comparison.failures.append(f"{row.num_bytes} B: {row.our_busbw / 1e9:.2f} GB/s is outside {low / 1e9:.2f} to {high / 1e9:.2f}")
    comparison.figures["median busbw ratio from 1 MiB up"] = median(row.busbw_ratio for row in rows)


def as_text(comparison: Comparison) -> str:
    """The table of one comparison."""
    wire, operation, world_size = comparison.key
    lines = [
        f"{operation} over {wire}, {world_size} ranks",
        f"{'bytes':>12} {'our us':>10} {'their us':>10} {'ratio':>6} {'our GB/s':>9} {'their GB/s':>10} {'ratio':>6}",
    ]
    lines += [
        f"{row.num_bytes:>12} {row.our_seconds * 1e6:>10.2f} {row.their_seconds * 1e6:>10.2f} {row.latency_ratio:>6.3f}"
        f" {row.our_busbw / 1e9:>9.2f} {row.their_busbw / 1e9:>10.2f} {row.busbw_ratio:>6.3f}"
        for row in comparison.rows
    ]
    lines += [f"  {name}: {value:.3f}" for name, value in comparison.figures.items()]
    lines += [f"  NOT AGREED: {failure}" for failure in comparison.failures]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="WIRE=NCCL_TESTS_OUTPUT | RUN.json")
    parser.add_argument("--json", action="store_true", help="print one document instead of tables")
    files = parser.parse_args(arguments).files
    as_json = parser.parse_args(arguments).json
    theirs_found, ours_found = [], []
    try:
        for given in files:
            wire, equals, path = given.partition("=")
            if equals and not given.endswith(".json"):
                operation, ranks, figures = read_nccl_tests(Path(path).read_text(errors="replace"), path)
                theirs_found.append(((wire, operation, ranks), figures))
            else:
                ours_found += read_run(json.loads(Path(given).read_text()), given).items()
    except (OSError, ValueError, Unreadable) as error:
        print(f"cannot read: {error}", file=sys.stderr)
        return 2
    ours, theirs = merge(ours_found), merge(theirs_found)
    comparisons = [compare(key, ours.get(key, {}), figures) for key, figures in sorted(theirs.items())]
    for comparison in comparisons:
        if not comparison.rows:
            comparison.failures = ["the run documents hold nothing to compare with"]
    if as_json:
        print(json.dumps([_as_document(comparison) for comparison in comparisons], indent=1))
    else:
        print("\n\n".join(as_text(comparison) for comparison in comparisons))
    return 1 if not comparisons or any(comparison.failures for comparison in comparisons) else 0


def _as_document(comparison: Comparison) -> dict[str, object]:
    wire, operation, world_size = comparison.key
    rows = [
        {
            "num_bytes": row.num_bytes,
            "our_seconds": row.our_seconds,
            "their_seconds": row.their_seconds,
            "latency_ratio": row.latency_ratio,
            "our_busbw_bytes_per_second": row.our_busbw,
            "their_busbw_bytes_per_second": row.their_busbw,
            "busbw_ratio": row.busbw_ratio,
        }
        for row in comparison.rows
    ]
    return {
        "wire": wire,
        "operation": operation,
        "world_size": world_size,
        "rows": rows,
        "figures": comparison.figures,
        "failures": comparison.failures,
    }


if __name__ == "__main__":
    sys.exit(main())

"""Runs the product on a real machine and keeps the evidence: ``python benchmarks/prove.py --part check,nccl_tests,faults --out FOLDER``.

Every part appends files to FOLDER and may be run on another day. ``--cpu-ranks N`` is the dry run on a machine without GPUs.

check       wall-clock and run documents of ``wiretax check``: default as found; quick as found, with P2P off, and with P2P and
            shared memory off
nccl_tests  three interleaved rounds of nccl-tests (``--nccl-tests FOLDER`` holds the built programs) and of our own sweep, per wire
faults      a rank killed and a rank stopped in the middle of an all-reduce on the real wire
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from wiretax.launch.processes import descendants

WIRES: dict[str, dict[str, str]] = {
    "default": {},
    "p2p_off": {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"},
    "socket": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_NVLS_ENABLE": "0"},
}
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "send_recv": "sendrecv_perf",
}
LARGEST = {"default": "1G", "p2p_off": "512M", "socket": "64M"}
ROUNDS = 3


def check(arguments: list[str], environment: dict[str, str], out: Path, timeout: float) -> dict[str, Any]:
    """One ``wiretax check``; its document goes to ``out``, what it printed beside it."""
    command = [sys.executable, "-m", "wiretax", "check", "--no-save", "--out", str(out), *arguments]
    began = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout, check=False)
    seconds = time.monotonic() - began
    out.with_suffix(".txt").write_text(done.stdout)
    row = {"arguments": arguments, "environment": environment, "exit_code": done.returncode, "wall_seconds": round(seconds, 2)}
    print(json.dumps({**row, "stderr": done.stderr[-400:]}), flush=True)
    return row


def prove_check(out: Path, ranks: list[str]) -> None:
    """Quick over three conditions of the environment, and default as found."""
    rows = []
    for level, wires in ((["--quick"], ("default", "p2p_off", "socket")), ([], ("default",))):
        for wire in wires:
            environment = WIRES[wire]
            name = f"check_{wire}_{'quick' if level else 'default'}"
            rows.append({"name": name, **check([*level, *ranks], environment, out / f"{name}.json", 200)})
    (out / "check_wall_clock.json").write_text(json.dumps(rows, indent=1))


def prove_nccl_tests(out: Path, ranks: list[str], programs: Path, gpus: int) -> None:
    """Ours and theirs in turn, so that a change of the host hits both."""
    for number in range(ROUNDS):
        for wire, environment in WIRES.items():
            for operation, program in PROGRAMS.items():
                if operation != "all_reduce" and (number or wire != "default"):
                    continue
                command = [str(programs / program), "-b", "8", "-e", LARGEST[wire], "-f", "2", "-g", str(gpus)]
                if not ranks:
                    done = subprocess.run(
                        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=150, check=False
                    )
                    (out / f"nccl_tests_{operation}_{wire}_{number}.txt").write_text(done.stdout)
                    print(operation, wire, number, done.returncode, done.stderr[-200:], flush=True)
            operations = "all_reduce" if number or wire != "default" else "all_reduce,all_gather,reduce_scatter,send_recv"
            wanted = [
                "--budget",
                "22s" if operations != "all_reduce" else "16s",
                "--wires",
                "gloo" if ranks else wire,
                "--operations",
                operations,
                *ranks,
            ]
            check(wanted, {}, out / f"ours_{wire}_{number}.json", 120)


def command_of(pid: int) -> bytes:
    """Its command line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def folder_of(pid: int) -> Path | None:
    """The private folder of a running check, from the command line of torchrun's engine."""
    for process in descendants(pid):
        parts = command_of(process.pid).split(b"\0")
        if b"wiretax.launch.agent" in parts:
            return Path(parts[parts.index(b"wiretax.launch.agent") + 2].decode())
    return None


def measuring(pid: int) -> int | None:
    """The stage child of rank 1, once points of collectives have been measured."""
    folder = folder_of(pid)
    if folder is None or b'"Point"' not in b"".join(path.read_bytes() for path in folder.glob("results.*.jsonl")):
        return None
    started = sorted(folder.glob("started.[0-9]*.1"), key=lambda path: int(path.name.split(".")[1]))
    ended = {path.name.split(".")[1] for path in folder.glob("ended.*.1")}
    running = [path for path in started if path.name.split(".")[1] not in ended]
    return int(json.loads(running[-1].read_bytes())["pid"]) if running else None


def prove_faults(out: Path, ranks: list[str]) -> None:
    """A rank killed, and a rank stopped, while collectives run."""
    rows = []
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        path = out / f"fault_{name}.json"
        command = [sys.executable, "-m", "wiretax", "check", "--quick", "--no-save", "--out", str(path), *ranks]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        victim = None
        while victim is None and process.poll() is None:
            time.sleep(0.02)
            victim = measuring(process.pid)
        if victim is not None:
            os.kill(victim, number)
        stdout, _ = process.communicate(timeout=90)
        path.with_suffix(".txt").write_bytes(stdout)
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if b"wiretax.launch" in command_of(pid)]
        row = {"fault": name, "exit_code": process.returncode, "wall_seconds": round(time.monotonic() - began, 2), "processes_left": left}
        if path.exists():
            document = json.loads(path.read_text())
            row["incidents"] = document["measurements"]["incidents"]
            row["findings"] = [finding["code"] for finding in document["findings"]]
            row["points_kept"] = sum(len(series["points"]) for series in document["measurements"]["collectives"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    (out / "faults.json").write_text(json.dumps(rows, indent=1))


def main() -> None:
    """The parts that were asked for, one after another; one that fails does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="check")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nccl-tests", type=Path, default=Path("nccl-tests/build"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu-ranks", type=int)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    ranks = ["--cpu-ranks", str(options.cpu_ranks)] if options.cpu_ranks else []
    for part in options.part.split(","):
        print(f"== {part}", flush=True)
        try:
            if part == "check":
                prove_check(options.out, ranks)
            elif part == "nccl_tests":
                prove_nccl_tests(options.out, ranks, options.nccl_tests, options.gpus)
            elif part == "faults":
                prove_faults(options.out, ranks)
            else:
                parser.error(f"there is no part {part!r}")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(f"part {part}: {error!r}", flush=True)


if __name__ == "__main__":
    main()

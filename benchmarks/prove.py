"""Runs the product on a real machine and keeps the evidence: ``python benchmarks/prove.py --part check,nccl_tests,faults --out FOLDER``.

Every part appends files to FOLDER and may be run on another day. ``--cpu-ranks N`` is the dry run on a machine without GPUs.

check       wall-clock and run documents of ``wiretax check``: default as found; quick as found, with P2P off, and with P2P and
            shared memory off
nccl_tests  three interleaved rounds of nccl-tests (``--nccl-tests FOLDER`` holds the built programs) and of our own sweep, per wire
faults      a rank killed and a rank stopped in the middle of an all-reduce on the real wire
profiles    the step of every workload on GPU 0 alone (``profile_one_gpu.py``)
train       three launches of ``train_launch.py``: every wire measured and trained over; ``--counts 2,4`` for more numbers of GPUs
predictions predicted from the profiles and each launch's wire, beside what was trained; with more than two GPUs also from the wire
            between two of them alone
seed1       the 1.7 B model over sockets (with P2P off where there are more than two GPUs): two GPUs slower than one, found by
            ``check`` before anything is trained, and confirmed by ``scale``
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
MARK = "WIRETAX_PROOF"
"""In the environment of a run and of all that it starts, so that what it leaves behind is known from what others started."""
HERE = Path(__file__).parent
PROFILED = ("llama350m:8", "encoder110m:32", "resnet50:64", "gpt1.7b:4")
PROFILED_CPU = ("llama-tiny:4", "encoder-tiny:8", "convnet-tiny:8")
SEED1_STRATEGIES = "ddp,FULL_SHARD,SHARD_GRAD_OP"


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


def prove_world_sizes(out: Path, programs: Path, counts: list[int]) -> None:
    """All-reduce of nccl-tests at the smaller numbers of GPUs; our own sweep has measured them with the largest."""
    for count in counts:
        command = [str(programs / PROGRAMS["all_reduce"]), "-b", "8", "-e", LARGEST["default"], "-f", "2", "-g", str(count)]
        done = subprocess.run(command, env={**os.environ, **WIRES["default"]}, capture_output=True, text=True, timeout=150, check=False)
        (out / f"nccl_tests_all_reduce_default_on_{count}_gpus.txt").write_text(done.stdout)
        print("all_reduce on", count, done.returncode, done.stderr[-200:], flush=True)


def proc(pid: int, name: str) -> bytes:
    """A file of a process (``cmdline``, ``environ``); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def folder_of(pid: int) -> Path | None:
    """The private folder of a running check, from the command line of torchrun's engine."""
    for process in descendants(pid):
        parts = proc(process.pid, "cmdline").split(b"\0")
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
        mark = f"{MARK}={name}-{time.time_ns()}"
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, MARK: mark.partition("=")[2]}
        )
        victim = None
        while victim is None and process.poll() is None:
            time.sleep(0.02)
            victim = measuring(process.pid)
        if victim is not None:
            os.kill(victim, number)
        stdout, _ = process.communicate(timeout=90)
        path.with_suffix(".txt").write_bytes(stdout)
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark.encode() in proc(pid, "environ")]
        row = {"fault": name, "exit_code": process.returncode, "wall_seconds": round(time.monotonic() - began, 2), "processes_left": left}
        if path.exists():
            document = json.loads(path.read_text())
            row["incidents"] = document["measurements"]["incidents"]
            row["findings"] = [finding["code"] for finding in document["findings"]]
            row["points_kept"] = sum(len(series["points"]) for series in document["measurements"]["collectives"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    (out / "faults.json").write_text(json.dumps(rows, indent=1))


def script(name: str, *arguments: str, timeout: float, environment: dict[str, str] | None = None) -> int:
    """Another benchmark of this folder, its output passed on."""
    command = [sys.executable, str(HERE / name), *arguments]
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, timeout=timeout, check=False)
    print(json.dumps({"script": name, "arguments": arguments, "exit_code": done.returncode}), flush=True)
    return done.returncode


def prove_profiles(out: Path, ranks: list[str]) -> None:
    """GPU 0 alone; the others stay idle."""
    cases, where = (PROFILED_CPU, ["--device", "cpu"]) if ranks else (PROFILED, [])
    parts = ["--parts", "bare", "ddp", "fsdp2", "tp", "fsdp2_grad_op"]
    arguments = [str(out / "profiles"), "--seconds", "330", "--sample-seconds", "1.5", "--cases", *cases, *parts, *where]
    script("profile_one_gpu.py", *arguments, timeout=400, environment={} if ranks else {"CUDA_VISIBLE_DEVICES": "0"})


def prove_train(out: Path, ranks: list[str], gpus: int, counts: str) -> None:
    """Launches in turns over all wires; earlier ones of the same folder stay."""
    first = len(list(out.glob("train_*.json")))
    for number in range(first, first + ROUNDS):
        script("train_launch.py", str(out / f"train_{number}.json"), "--gpus", str(gpus), "--counts", counts, *ranks, timeout=450)


def prove_predictions(out: Path, gpus: int) -> None:
    """The tables; no GPU is needed for them."""
    launches = sorted(map(str, out.glob("train_*.json")))
    common = [*launches, "--profiles", str(out / "profiles"), "--tuned-on", "gpt1.7b", "gpt1.7b x4"]
    script("predict_measured.py", *common, "--write", str(out / f"prediction_gpus_{gpus}.json"), timeout=120)
    if gpus > 2:
        name = f"prediction_gpus_{gpus}_from_the_wire_of_2.json"
        script("predict_measured.py", *common, "--wire-up-to", "2", "--write", str(out / name), timeout=120)


def prove_seed1(out: Path, ranks: list[str], gpus: int) -> None:
    """The wire first, then the training that it costs."""
    wire = "socket" if gpus == 2 else "p2p_off"
    environment = {} if ranks else WIRES[wire]
    found = check(["--quick", *ranks], environment, out / "seed1_check.json", 90)
    subject = ["--preset", "gpt-tiny", "--device", "cpu"] if ranks else ["--preset", "gpt1.7b"]
    counts = ",".join(str(2**power) for power in range(gpus.bit_length()))
    document = out / "seed1_scale.json"
    command = [sys.executable, "-m", "wiretax", "scale", "--gpus", counts, *subject, "--strategy", SEED1_STRATEGIES]
    command += ["--steps", "10", "--budget", "280s", "--no-save", "--out", str(document)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=320, check=False)
    document.with_suffix(".txt").write_text(done.stdout)
    row: dict[str, Any] = {"wire": wire, "check": found, "scale_exit_code": done.returncode}
    if document.exists():
        steps = json.loads(document.read_text())["training"]["steps"]
        row["samples_per_second"] = {f"{one['strategy']} on {one['num_gpus']}": one["samples_per_second"] for one in steps}
    print(json.dumps(row), flush=True)
    (out / "seed1.json").write_text(json.dumps(row, indent=1))


def main() -> None:
    """The parts that were asked for, one after another; one that fails does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="check")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nccl-tests", type=Path, default=Path("nccl-tests/build"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--counts", help="numbers of GPUs to train at: 2,4; all of them without it")
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
                counts = [int(one) for one in (options.counts or "").split(",") if one]
                prove_world_sizes(options.out, options.nccl_tests, [] if ranks else [one for one in counts if one < options.gpus])
            elif part == "faults":
                prove_faults(options.out, ranks)
            elif part == "profiles":
                prove_profiles(options.out, ranks)
            elif part == "train":
                prove_train(options.out, ranks, options.gpus, options.counts or str(options.gpus))
            elif part == "predictions":
                prove_predictions(options.out, options.gpus)
            elif part == "seed1":
                prove_seed1(options.out, ranks, options.gpus)
            else:
                parser.error(f"there is no part {part!r}")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(f"part {part}: {error!r}", flush=True)


if __name__ == "__main__":
    main()

"""Takes the profiles that predictions are tested with, on one GPU: ``python benchmarks/profile_one_gpu.py OUT [--seconds 240]``.

Each part (the bare step, or one strategy) runs in a forked child with a deadline of its own, so that peaks of memory are its own and
one that hangs or dies costs only itself. Torch is imported once, before the forks, and CUDA is first touched in the children.
``OUT/NAME_bBATCH.json`` is a whole profile and is written anew after every part; ``OUT/log.txt`` says how long each part took and why
some are missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from wiretax.errors import WiretaxError
from wiretax.model.profile import Profile
from wiretax.train.profile import BARE, Part, join, profile_part
from wiretax.train.sampling import Effort
from wiretax.train.workload import Settings

CASES = ("gpt124m:8", "gpt1.7b:4", "gpt124m:32", "gpt1.7b:16", "llama350m:8", "encoder110m:32", "resnet50:64")
PARTS = (BARE, "ddp", "fsdp2", "tp", "fsdp2_grad_op", "zero1")
LONGEST_PART_SECONDS = 45.0


def main() -> int:
    """Runs all parts of all cases while time lasts; the parts that matter most come first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the profiles")
    parser.add_argument("--seconds", type=float, default=240.0, help="for everything")
    parser.add_argument("--sample-seconds", type=float, default=2.0, help="of timed steps, for each part")
    parser.add_argument("--world-size", type=int, default=2, help="GPUs that the strategies are to think there are")
    # asking torch how many GPUs there are could start CUDA here, and CUDA does not survive a fork
    parser.add_argument("--device", default="cuda:0" if Path("/dev/nvidiactl").exists() else "cpu")
    parser.add_argument("--cases", nargs="+", default=list(CASES), help="name:batch")
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + chosen.seconds
    known: dict[str, tuple[Profile | None, list[Part], dict[str, str]]] = {case: (None, [], {}) for case in chosen.cases}
    wrong = 0
    # the bare step and the main strategies of all cases before the rarer ones
    for parts in (chosen.parts[:4], chosen.parts[4:]):
        for case in chosen.cases:
            for part in parts:
                left = end - time.monotonic()
                if left < 5:
                    _say(chosen.out, f"{case} {part}: no time left")
                    wrong += 1
                    continue
                wrong += not _run(case, part, known, chosen, min(left, LONGEST_PART_SECONDS))
    return 1 if wrong else 0


def _run(
    case: str, part: str, known: dict[str, tuple[Profile | None, list[Part], dict[str, str]]], chosen: argparse.Namespace, seconds: float
) -> bool:
    """One part; True when it gave a result or a stated reason why there can be none."""
    name, _, batch = case.partition(":")
    file = chosen.out / f".{name}_b{batch}_{part}.json"

    def work() -> None:
        try:
            found: Part | str = profile_part(
                part,
                name,
                torch.device(chosen.device),
                settings=Settings(batch_size=int(batch)),
                world_size=chosen.world_size,
                effort=Effort(seconds=chosen.sample_seconds),
            )
        except WiretaxError as error:
            found = str(error)
        hidden = file.with_suffix(".part")
        hidden.write_bytes(msgspec.json.encode(found))
        hidden.replace(file)

    begin = time.monotonic()
    problem = _in_child(work, seconds, chosen.out / "log.txt")
    bare, parts, failed = known[case]
    if file.exists():
        answer = msgspec.json.decode(file.read_bytes(), type=Part | str)
        file.unlink()
        if isinstance(answer, str):
            failed[part] = problem = answer
        else:
            bare = answer.bare or bare
            if answer.step is not None:
                parts.append(answer)
    known[case] = (bare, parts, failed)
    if bare is not None:
        (chosen.out / f"{name}_b{batch}.json").write_bytes(msgspec.json.format(msgspec.json.encode(join(bare, parts, failed)), indent=1))
    _say(chosen.out, f"{case} {part}: {time.monotonic() - begin:.1f} s {problem}")
    return not problem or part in failed


def _in_child(work: Callable[[], None], seconds: float, errors: Path) -> str:
    """Runs ``work`` in a forked child; returns what went wrong, or nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with errors.open("a") as stream:
                os.dup2(stream.fileno(), 2)
                try:
                    work()
                    code = 0
                except BaseException:
                    traceback.print_exc()
                sys.stderr.flush()
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"killed after {seconds:.0f} s"
        time.sleep(0.02)
    return "" if status == 0 else f"ended with status {status}; what it said stands above"


def _say(out: Path, line: str) -> None:
    print(line, flush=True)
    with (out / "log.txt").open("a") as stream:
        stream.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""What each rank runs: imports torch once, touches no CUDA, and forks one child per stage.

A stage's module may have a function ``before_forks`` that imports what each of its children would import anew.

Forked by torchrun's engine (:mod:`wiretax.launch.agent`). NCCL reads its settings once per process and importing torch is
slow, hence the fork: each stage gets a fresh process with its own environment in a few milliseconds. The coordinator
(:mod:`wiretax.launch.torchrun`) talks to the ranks through small files in FOLDER and kills the children when time is up, so this
file has no time-outs of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from wiretax.launch.plan import OUT_OF_TIME, Ended, Go, LaunchPlan, Stage, Started
from wiretax.launch.processes import adopting_orphans, die_with_parent, kill_tree, look_up, name_process, python_command
from wiretax.measure.rank import Heartbeat, OutOfTimeError, Rank, ResultFile
from wiretax.measure.transport import nccl_debug_environment

POLL_SECONDS = 0.004
GOODBYE = b"."
"""What a stage child tells its rank when it came to its own end, whatever its exit code."""
LEFT_OVER_SECONDS = 1.0
"""How long to wait for processes that a stage left behind and that are ended with it."""
ERROR_BYTES = 1 << 15
"""Of what a child printed; the stack of a crash, whose first line says what it was, is long."""


def plan_file(folder: Path) -> Path:
    """Where the plan is."""
    return folder / "plan.json"


def go_file(folder: Path, stage: int) -> Path:
    """Its appearance starts a stage; for the number after the last stage it ends the ranks."""
    return folder / f"go.{stage}"


def started_file(folder: Path, stage: int, rank: int) -> Path:
    """Process number of a stage child; stage -1: of the rank itself."""
    return folder / f"started.{stage}.{rank}"


def ended_file(folder: Path, stage: int, rank: int) -> Path:
    """How a stage child ended."""
    return folder / f"ended.{stage}.{rank}"


def heartbeat_file(folder: Path, stage: int, rank: int) -> Path:
    """Where a stage child is."""
    return folder / f"beat.{stage}.{rank}"


def results_file(folder: Path, rank: int) -> Path:
    """What a rank has measured, over all stages."""
    return folder / f"results.{rank}.jsonl"


def error_file(folder: Path, stage: int, rank: int) -> Path:
    """What a stage child printed."""
    return folder / f"stderr.{stage}.{rank}"


def publish(path: Path, document: Any) -> None:
    """Makes a small file appear whole: a reader polls for its name."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    hidden.write_bytes(msgspec.json.encode(document))
    hidden.replace(path)


def main(folder_name: str, parent: str) -> int:
    """Runs all stages as they are started.

    Args:
        folder_name: of the launch.
        parent: process number of the engine; without it this rank ends.

    Returns:
        The exit code of the rank.
    """
    die_with_parent(int(parent))
    folder = Path(folder_name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the coordinator ends us in its own order
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rank = int(os.environ["RANK"])
    name_process(f"wiretax rank{rank}")
    plan = msgspec.json.decode(plan_file(folder).read_bytes(), type=LaunchPlan)
    import torch.distributed  # noqa: F401 - before the forks, so that the children have it

    if _lost_cuda(plan):
        # the engine asked CUDA how many GPUs there are, and CUDA does not survive a fork: begin again as a process of our own
        os.execv(sys.executable, python_command("wiretax.launch.worker", folder_name, parent))  # noqa: S606 - this very program

    for name in dict.fromkeys(stage.function.partition(":")[0] for stage in plan.stages):
        with contextlib.suppress(ImportError):  # a stage that cannot be imported says so when it runs
            getattr(importlib.import_module(name), "before_forks", lambda: None)()
    publish(started_file(folder, -1, rank), _started(rank, -1, os.getpid()))
    number = 0
    while True:
        go = _wait_for_go(folder, number, len(plan.stages))
        if go is None:
            return 0
        ranks = plan.stages[go.stage].ranks
        if ranks is None or rank < ranks:
            with adopting_orphans():
                _run_stage(folder, plan, go, rank)
        number = go.stage + 1


def stage_alone(folder_name: str, parent: str, stage: str, writing: str) -> int:
    """One stage in a process that was not forked from one that had touched CUDA; the same process number as the fork it replaces.

    Args:
        folder_name: of the launch.
        parent: process number of the rank.
        stage: number of the stage, which has been started.
        writing: descriptor on which the rank is told that the stage came to its end.

    Returns:
        The exit code of the stage child.
    """
    die_with_parent(int(parent))
    folder, rank = Path(folder_name), int(os.environ["RANK"])
    plan = msgspec.json.decode(plan_file(folder).read_bytes(), type=LaunchPlan)
    go = msgspec.json.decode(go_file(folder, int(stage)).read_bytes(), type=Go)
    name_process(f"wt{rank} {plan.stages[go.stage].name}")
    os.set_inheritable(int(writing), False)
    code = _stage_child(folder, plan, plan.stages[go.stage], go, rank)
    os.write(int(writing), GOODBYE)
    return code


def _lost_cuda(plan: LaunchPlan) -> bool:
    """Whether this process was forked from one that had touched CUDA, which does not survive that."""
    import torch.cuda

    return plan.device == "cuda" and bool(torch.cuda._is_in_bad_fork())


def _wait_for_go(folder: Path, number: int, end: int) -> Go | None:
    """The next stage to run (stages may be skipped), or None at the end."""
    while True:
        if go_file(folder, end).exists():
            return None
        for stage in range(number, end):
            path = go_file(folder, stage)
            if path.exists():
                return msgspec.json.decode(path.read_bytes(), type=Go)
        time.sleep(POLL_SECONDS)


def _run_stage(folder: Path, plan: LaunchPlan, go: Go, rank: int) -> None:
    parent = os.getpid()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # a process of the user's may still hold the other end when the child is gone
    try:
        child = os.fork()
    except OSError as error:  # no more processes: this stage fails, and the next may find room
        os.close(reading)
        os.close(writing)
        publish(ended_file(folder, go.stage, rank), Ended(rank=rank, stage=go.stage, exit_code=1, signal=None, error=repr(error)))
        return
    if child == 0:
        code = 1
        try:
            die_with_parent(parent)
            name_process(f"wt{rank} {plan.stages[go.stage].name}")
            if _lost_cuda(plan):  # torch's import itself touched CUDA (an extension that torch loads by itself does): begin anew
                os.set_inheritable(writing, True)
                command = python_command("wiretax.launch.worker", str(folder), str(parent), str(go.stage), str(writing))
                os.execv(sys.executable, command)  # noqa: S606 - this very program
            code = _stage_child(folder, plan, plan.stages[go.stage], go, rank)
            os.write(writing, GOODBYE)
        finally:
            os._exit(code)  # no clean-up of torch or CUDA: it may hang, and the parent has all results
    os.close(writing)
    publish(started_file(folder, go.stage, rank), _started(rank, go.stage, child))
    _, status = os.waitpid(child, 0)
    kill_tree(parent, spare_root=True, seconds=LEFT_OVER_SECONDS)  # what the step started and left behind
    exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    words = _last_words(error_file(folder, go.stage, rank))
    if exit_code is not None and not _said_goodbye(reading):
        words = f"{words}\nSystemExit: the step ended its process itself, with exit code {exit_code} (os._exit)"
        exit_code = 1  # whatever it was, the stage is not done
    os.close(reading)
    ended = Ended(
        rank=rank,
        stage=go.stage,
        exit_code=exit_code,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        error=words.strip(),
    )
    publish(ended_file(folder, go.stage, rank), ended)


def _said_goodbye(reading: int) -> bool:
    """Whether a child came to its own end."""
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:
        return False


def _started(rank: int, stage: int, pid: int) -> Started:
    process = look_up(pid)
    return Started(rank=rank, stage=stage, pid=pid, started=process.started if process else 0)


def _stage_child(folder: Path, plan: LaunchPlan, stage: Stage, go: Go, number: int) -> int:
    """Everything that may hang. Returns the child's exit code."""
    stderr = os.open(error_file(folder, go.stage, number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for name, value in stage.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if plan.device == "cuda":  # NCCL's own account of what it chose, one file a rank and stage
        os.environ.update(nccl_debug_environment(folder, f"{go.stage}.{number}"))
    heartbeat = Heartbeat(heartbeat_file(folder, go.stage, number))
    heartbeat.at("start", stage.wire or "", None, stage.ranks or plan.world_size)
    try:
        rank = _join(folder, plan, stage, go, number, heartbeat)
        module, _, name = stage.function.partition(":")
        getattr(importlib.import_module(module), name)(rank, **stage.arguments)
        _wait_for_all(rank)
    except OutOfTimeError as error:
        print(f"out of time: {error}", file=sys.stderr, flush=True)
        return OUT_OF_TIME
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _wait_for_all(rank: Rank) -> None:
    """A rank that is done stays until all are: a peer may still read its memory, or need the store that rank 0 serves."""
    rank.exchange("wiretax.done", True)


def _join(folder: Path, plan: LaunchPlan, stage: Stage, go: Go, number: int, heartbeat: Heartbeat) -> Rank:
    """The rank's place: a store of the stage's own inside the one that torchrun's agent serves, and the device."""
    from datetime import timedelta

    import torch
    from torch.distributed import PrefixStore, TCPStore

    left = timedelta(seconds=max(go.soft_deadline - time.monotonic(), 0.5))
    tcp = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=left)
    if plan.device == "cuda":
        device = torch.device("cuda", plan.cuda_ordinals[number])
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
    return Rank(
        rank=number,
        world_size=stage.ranks or plan.world_size,
        local_rank=int(os.environ.get("LOCAL_RANK", number)),
        device=device,
        gpus=plan.gpus[: stage.ranks],
        store=PrefixStore(f"wiretax/{go.stage}", tcp),
        deadline=go.soft_deadline,
        results=ResultFile(results_file(folder, number)),
        heartbeat=heartbeat,
    )


def _last_words(path: Path) -> str:
    try:
        with path.open("rb") as file:  # only its end: a user's step may have printed without limit
            file.seek(max(path.stat().st_size - ERROR_BYTES, 0))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    if len(sys.argv) > 3:
        os._exit(stage_alone(*sys.argv[1:5]))  # no clean-up, as for a fork
    sys.exit(main(sys.argv[1], sys.argv[2]))

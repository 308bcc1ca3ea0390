"""Stage functions for the launcher's tests: they pass a token around through the store and do whatever goes wrong in the test."""

import os
import signal
import subprocess
import sys
import time

from wiretax.measure.rank import OutOfTimeError
from wiretax.model.measurement import PeerTruth

IMPORTED_BY = []


def before_forks():
    """Called in the rank, before its first stage."""
    IMPORTED_BY.append(os.getpid())


def told_before(rank):
    """Who called :func:`before_forks`, and whose child this is."""
    rank.emit_fact("before", [IMPORTED_BY, os.getppid()])


def count(rank, steps=20, seconds=None):
    """Steps together; rank 0 writes one result."""
    end = min(rank.deadline - 0.2, time.monotonic() + (seconds or 1e9))
    for step in range(steps):
        rank.at("all_reduce", "gloo", 1024, rank.world_size)
        rank.exchange("step", step)
        if time.monotonic() > end:
            break
    if rank.rank == 0:
        rank.emit(PeerTruth(source_gpu=0, target_gpu=1, outcome="ok", num_bytes=(8,), detail=os.environ.get("TOY", "")))
        rank.emit_fact("pid", os.getpid())


def go_wrong(rank, who, how):
    """After ten steps rank ``who`` dies, stops, hangs or raises; the others wait for it."""
    for step in range(10):
        rank.at("all_reduce", "gloo", 2**20, rank.world_size)
        rank.exchange("step", step)
    if rank.rank == who:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "stop_parent":
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "kill_parent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        elif how == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while True:
                time.sleep(1)
        elif how == "slow":
            rank.at("loading of libraries")
            time.sleep(30)
        elif how == "raise":
            raise RuntimeError("NCCL error: unhandled system error")
        elif how == "exit":
            sys.exit(7)
        elif how == "end_quietly":
            os._exit(0)
    rank.at("all_reduce", "gloo", 2**21, rank.world_size)
    rank.tick()
    rank.exchange("step", "after")


def leave_a_process_behind(rank):
    """As a step does whose own workers outlive it."""
    for command in (["sleep", "300"], ["sh", "-c", "setsid sleep 300 & exec sleep 301"]):
        rank.emit_fact("left", subprocess.Popen(command, start_new_session=True).pid)  # nobody waits for it


def wait_on_the_gpu(rank):
    """As a GPU timer does when a collective never ends: both ranks give up at the deadline, by themselves."""
    rank.at("all_reduce", "default", 4096, rank.world_size)
    time.sleep(max(rank.seconds_left, 0))
    raise OutOfTimeError("the GPU did not finish what was queued")

"""Processes that we started: find all of them, end all of them, and say which would not end.

torchrun puts each rank into a session of its own, so killing its process group is not enough. Three nets catch everything: each
process asks the kernel to be killed when its parent dies; we adopt orphans while a run lasts (sub-reaper); and we walk /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

KILL_SECONDS = 3.0
"""How long a process may take to go after SIGKILL before it counts as hung in the driver (DESIGN 5)."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``started`` (clock ticks since boot) tells it from a later one with the same number."""

    pid: int
    parent: int
    state: str
    """R, S, D (waits in the kernel), T or t (stopped), Z (ended, not yet collected)."""
    started: int


# This very package is loaded, also where another copy is installed. Its folder goes last on the path, and the working folder not at
# all: a user's torch.py or json.py must not be taken for the real one.
_RUN = """import runpy, sys
from importlib import machinery, util
folder = sys.argv.pop(1)
spec = machinery.PathFinder.find_spec("wiretax", [folder])
package = sys.modules["wiretax"] = util.module_from_spec(spec)
spec.loader.exec_module(package)
sys.path.append(folder)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules in a Python of its own, wherever we were started.

    It looks for packages where this one does: without these flags another torch than ours might be found.
    """
    flags = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site, "-S": sys.flags.no_site}
    return [
        sys.executable,
        "-P",
        *(flag for flag, is_set in flags.items() if is_set),
        "-c",
        _RUN,
        str(Path(__file__).resolve().parents[2]),
        module,
        *arguments,
    ]


def die_with_parent(expected_parent: int | None = None) -> None:
    """Asks the kernel to kill this process when its parent's thread ends; ends at once if that has happened already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)


def name_process(name: str) -> None:
    """What ``ps`` and ``top`` show for this process; the kernel keeps 15 characters."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """While active, descendants whose parent died become our children, so that they are found and collected."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def look_up(pid: int) -> Process | None:
    """The process with this number, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return Process(pid=pid, parent=int(fields[1]), state=fields[0], started=int(fields[19]))


def descendants(pid: int) -> list[Process]:
    """All living processes below ``pid``, nearest first; itself not included."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := look_up(int(entry))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found.extend(below)
        waiting.extend(process.pid for process in below)
    return found


def is_running(process: Process) -> bool:
    """Whether this very process (not a later one of its number) still runs; a zombie does not."""
    now = look_up(process.pid)
    return now is not None and now.started == process.started and now.state not in "ZX"


def kill(process: Process, send: Callable[[int, int], None] = os.kill) -> None:
    """SIGKILL to exactly this process."""
    if is_running(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(process.pid, signal.SIGKILL)


def collect_zombies(pids: list[int]) -> None:
    """Takes the exit status of ended processes that are our own children (adopted orphans among them)."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_tree(
    root: int,
    *,
    extra: tuple[Process, ...] = (),
    seconds: float = KILL_SECONDS,
    send: Callable[[int, int], None] = os.kill,
    spare_root: bool = False,
) -> list[Process]:
    """Ends everything below ``root`` (and root itself), and what is left over of earlier looks.

    Args:
        root: process number of the top.
        spare_root: whether the top itself goes on.
        extra: processes seen before that must end too, wherever they hang in the tree now.
        seconds: how long to wait for them.
        send: os.kill, or a stand-in in tests.

    Returns:
        Those that still run after ``seconds``: they hang in the kernel, mostly inside a GPU driver.
    """
    deadline = time.monotonic() + seconds
    known: dict[tuple[int, int], Process] = {(process.pid, process.started): process for process in extra}
    if not spare_root and (top := look_up(root)) is not None:
        known[top.pid, top.started] = top
    while True:
        for process in descendants(root):
            known[process.pid, process.started] = process
        running = [process for process in known.values() if is_running(process)]
        for process in running:
            kill(process, send)
        collect_zombies([process.pid for process in known.values() if process.pid != root])
        running = [process for process in running if is_running(process)]
        # one that ended stays in the table until its parent, or we who adopt it, have taken its exit status
        unburied = [process for process in known.values() if process.pid != root and _is_zombie(process)]
        if not (running or unburied) or time.monotonic() > deadline:
            return running
        time.sleep(0.02)


def _is_zombie(process: Process) -> bool:
    now = look_up(process.pid)
    return now is not None and now.started == process.started and now.state in "ZX"

"""One `wiretax check` as a user starts it, watched from outside: its ranks, their children, and that none of them stays."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from wiretax.launch.processes import descendants, look_up


class Check:
    """One `wiretax check` as a user starts it, with a home of its own."""

    def __init__(self, home, *arguments, environment=None, wrap=(), **options):
        """Starts it; ``wrap`` is a command that runs the command after it, such as ``unshare -m``."""
        self.home = home
        self.environment = {**os.environ, "WIRETAX_HOME": str(home), "NO_COLOR": "1", **(environment or {})}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-m", "wiretax", "check", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    def wait_for(self, what, seconds=60):
        """Polls until ``what()`` is true, while the check runs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            assert self.process.poll() is None, self.process.stderr.read().decode()
            time.sleep(0.05)
        raise AssertionError("it did not come to that")

    def engine(self):
        """The process of torchrun's engine, once there is one."""
        found = [one for one in descendants(self.process.pid) if b"wiretax.launch.agent" in _command(one.pid).split(b"\0")]
        return found[0] if found else None

    def folder(self):
        """The run's private folder, from the command line of torchrun's engine."""
        for process in descendants(self.process.pid):
            parts = _command(process.pid).split(b"\0")
            if b"wiretax.launch.agent" in parts:
                return Path(parts[parts.index(b"wiretax.launch.agent") + 2].decode())
        return None

    def started(self, stage):
        """The processes that the two ranks have announced for a stage (-1: themselves), in rank order."""
        paths = [self.folder() / f"started.{stage}.{rank}" for rank in range(2)] if self.folder() else []
        found = [look_up(json.loads(path.read_bytes())["pid"]) for path in paths if path.exists()]
        return found if len(found) == 2 and None not in found else []

    def ranks(self):
        """The rank processes, once all have started."""
        return self.started(-1)

    def stage_children(self):
        """The two forked children of the stage that runs now."""
        ranks = {process.pid for process in self.ranks()}
        for stage in range(9, -1, -1):
            children = self.started(stage)
            if children:
                return children if {child.parent for child in children} == ranks else []
        return []

    def processes(self):
        """Every process that was started with this home, whoever its parent is now."""
        return [pid for pid in _pids() if str(self.home).encode() in _environment(pid)]

    def end(self, seconds=90):
        """Exit code, the one document on stdout, stderr, and how long it took; no process of it is left."""
        stdout, stderr = self.process.communicate(timeout=seconds)
        took = time.monotonic() - self.began
        left = self.processes()
        assert left == [], [_command(pid) for pid in left]
        return self.process.returncode, json.loads(stdout) if stdout else None, stderr.decode(), took


def _pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _command(pid):
    return _read(pid, "cmdline")


def _environment(pid):
    return _read(pid, "environ")


def measuring_gloo(check):
    """True once collectives are being measured: the results file has points."""
    return lambda: check.stage_children() if any(b'"Point"' in path.read_bytes() for path in _result_files(check)) else None


def _result_files(check):
    folder = check.folder()
    return sorted(folder.glob("results.*.jsonl")) if folder is not None else []

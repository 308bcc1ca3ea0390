"""What would stop every rank, found before any is started: then it is said at once, and in words."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from pathlib import Path

ROOM_BYTES = 4 << 20
"""What the results of a run on two ranks take, several times over."""
CONNECT_SECONDS = 1.0
FEW = {"RLIMIT_NPROC": ("ulimit -u", 256, 1), "RLIMIT_NOFILE": ("ulimit -n", 256, 1), "RLIMIT_AS": ("ulimit -v", 16 << 30, 1024)}
"""Limits under which torch has been seen to fail: the command that shows each, below what it is small, and the command's unit."""


def obstacle(folder: Path) -> str | None:
    """Why no rank can run on this host with its files in ``folder``, or None."""
    return _proc() or _room(folder) or _loopback()


def tight_limits() -> str:
    """Limits of this process that may explain why a rank did not start; empty where none is tight."""
    found = []
    for name, (command, few, unit) in FEW.items():
        soft = resource.getrlimit(getattr(resource, name))[0]
        if soft != resource.RLIM_INFINITY and soft < few and not (name == "RLIMIT_NPROC" and os.geteuid() == 0):
            found.append(f"{command} is {soft // unit}")
    return ", ".join(found)


def _proc() -> str | None:
    """Processes are watched through /proc; one that shows other processes would mislead us to the wrong ones."""
    try:
        shown = os.readlink("/proc/self")
    except OSError:
        return "/proc is not mounted, so processes could not be watched (mount -t proc proc /proc)"
    if shown != str(os.getpid()):
        return "/proc belongs to another process namespace, so processes could not be watched (unshare --mount-proc, or mount it anew)"
    return None


def _room(folder: Path) -> str | None:
    path = folder / "room"
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):  # a file system that cannot reserve says nothing of its room
            return None
        why = error.strerror or str(error)
        return f"{folder.parent} has no room for {ROOM_BYTES >> 20} MiB of temporary files ({why}); set TMPDIR to a folder with room"
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _loopback() -> str | None:
    """Ranks of one host find each other over 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), CONNECT_SECONDS):
            return None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        return f"processes of this host cannot reach each other over 127.0.0.1 ({why}); is the loopback interface up (ip link set lo up)?"

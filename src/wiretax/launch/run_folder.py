"""The private folder of one launch: where it lies, and that none stays behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "wiretax-"
LOCK = "lock"
STALE_SECONDS = 3600.0
"""A folder younger than this may be one that another process is just making."""


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A private folder for one launch, deleted afterwards; so are old ones of this user that a killed process left behind.

    Raises:
        OSError: there is no folder for temporary files that can be written.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("wb") as lock:  # not inherited by the ranks: whoever holds it is the process that cleans up
            with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps there either
                fcntl.flock(lock, fcntl.LOCK_EX)
                _sweep(folder.parent)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Removes the folders of processes that are gone. A lock tells, not a process number: containers may share the folder."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(PREFIX) and _is_stale(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_stale(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        if not entry.is_dir(follow_symlinks=False) or status.st_uid != os.getuid() or time.time() - status.st_mtime < STALE_SECONDS:
            return False
        with open(os.path.join(entry.path, LOCK), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # held by a process that lives, or not one of ours
    return True

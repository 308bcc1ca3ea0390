"""Files that are none: pipes and devices, used as they are."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from pathlib import Path

from wiretax.errors import BadInput

READER_SECONDS = 60.0
"""How long the reader of a pipe may take nothing before we give up."""
WRITER_SECONDS = 5.0
"""How long a pipe may have no writer at all."""
CHUNK_BYTES = 1 << 16


def is_stream(path: Path) -> bool:
    """Whether a path names a pipe, a device or an open descriptor, which must be written to and not replaced by a file."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    is_open_file = os.path.dirname(os.path.abspath(path)) in ("/dev", "/dev/fd", "/proc/self/fd")
    return is_open_file or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def write_stream(path: Path, data: bytes) -> None:
    """Writes everything into a pipe or device.

    Raises:
        OSError: it takes no more, or nobody reads.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    except OSError as error:
        raise OSError(error.errno, "nobody reads from it") from None if error.errno == errno.ENXIO else error
    try:
        while data:
            if not select.select([], [descriptor], [], READER_SECONDS)[1]:
                raise OSError(errno.ETIMEDOUT, "nobody reads from it")
            with contextlib.suppress(BlockingIOError):  # less room than it seemed
                data = data[os.write(descriptor, data[:CHUNK_BYTES]) :]
    finally:
        os.close(descriptor)


def read_pipe(path: Path, limit_bytes: int) -> bytes:
    """Everything that comes through a pipe until its writers close it; a writer may take as long as it likes.

    Args:
        path: of the pipe.
        limit_bytes: more is refused.

    Raises:
        BadInput: no writer comes for :data:`WRITER_SECONDS`, or more than the limit comes.
        OSError: it cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    named = os.path.exists(os.path.realpath(path))  # the shell's own <(...) has no name, and its writer was there before us
    found = bytearray()
    waited = False
    try:
        while True:
            try:
                part = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                select.select([descriptor], [], [])
                continue
            if not part and named and not found and not waited:
                waited = True
                if not select.select([descriptor], [], [], WRITER_SECONDS)[0]:
                    raise BadInput(f"{path} is a pipe into which nobody writes.")
                continue
            if not part:
                return bytes(found)
            found += part
            if len(found) > limit_bytes:
                raise BadInput(f"{path} brings more than {limit_bytes} bytes, too many for a document of wiretax.")
    finally:
        os.close(descriptor)

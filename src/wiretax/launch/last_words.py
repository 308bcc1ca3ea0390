"""What a process that died had printed, in one sentence: the error, and what it means where the system's own words are terse."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOST_CHARACTERS = 400
FULL_BYTES = 64 * 1024
"""With less room than this a disk counts as full: what a rank wanted to write did not fit."""

_FRAME = re.compile(r'^\s+File ".*?(wiretax/[\w/]+\.py)", line (\d+)')
_FULL_DISK = "the disk of the temporary folder is full: set TMPDIR to a folder with room"
_MEANINGS = (
    (r"\[Errno (28|122)\]|No space left", _FULL_DISK),
    (r"\[Errno 27\]", "files may not grow so large here (ulimit -f)"),
    (r"\[Errno 24\]", "too few files may be open at a time (ulimit -n)"),
    (
        r"(\[Errno 11\]|RuntimeError:|\(11,).*Resource temporarily|can't start new thread|pthread_create failed",
        "no more processes may be started (ulimit -u, or the container's limit of pids)",
    ),
    (r"\[Errno 12\]|can't allocate memory|MemoryError", "memory is short (the container's limit, or ulimit -v)"),
)
_PEER_WENT = re.compile(
    r"Connection (closed by peer|reset by peer|refused)|Broken pipe|(connection|socket).{0,40}closed|ncclRemoteError|remote process exited",
    re.IGNORECASE,
)
_SIGNALLED = re.compile(r"Signal \d+ \((SIG\w+)\) received by PID (\d+)")
_ENGINES_OWN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_LOG_PREFIX = re.compile(r"^[EWI]\d{4} [\d:.]+ +\d+ \S+:\d+\] ?")


def summary(text: str) -> str:
    """The error at the end of a process's output: Python's last exception with its place in wiretax, else the last line."""
    lines = text.rstrip().splitlines()
    if not any(line.strip() for line in lines):
        return ""
    start = max((number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), default=None)
    fatal = next((line for line in lines if line.startswith("Fatal Python error")), None)
    if start is not None:
        at = next((number for number in range(start + 1, len(lines)) if lines[number] and not lines[number][0].isspace()), len(lines) - 1)
        error = _with_next(lines, at)
        places = [match for line in lines[start:] if (match := _FRAME.match(line))]
        place = f" ({places[-1][1]} line {places[-1][2]})" if places else ""
        return meaning(error[:MOST_CHARACTERS]) + place
    return meaning((fatal or next(line for line in reversed(lines) if line.strip())).strip()[:MOST_CHARACTERS])


def blames_a_peer(text: str) -> bool:
    """Whether the error is that another process went away, so that the cause is there and not here."""
    return _PEER_WENT.search(summary(text)) is not None


def _with_next(lines: list[str], number: int) -> str:
    """A line; together with the next one that says something where it is only the name of an error."""
    line = lines[number].strip()
    if not re.fullmatch(r"(traceback : )?[\w.]+:", line):
        return line
    return " ".join([line, next((one.strip() for one in lines[number + 1 :] if one.strip()), "")]).strip()


def meaning(error: str) -> str:
    """The error, followed by what it means on a machine like this where that is known."""
    for pattern, words in _MEANINGS:
        if re.search(pattern, error):
            return f"{error}; {words}"
    return error


def of_engine(log: str) -> str:
    """What torchrun's log says of the failure: the rank's own error before the engine's account of it."""
    lines = [_LOG_PREFIX.sub("", line) for line in log.splitlines()]
    lines = [line for line in lines if not line.startswith((_ENGINES_OWN, "Terminating process", "Sending process"))]
    telling = [_with_next(lines, number) for number, line in enumerate(lines) if re.search(r"Error\b|\berror|Signal", line)]
    if telling and (match := _SIGNALLED.search(telling[-1])):
        return f"process {match[2]} was ended by {match[1]}"
    last = telling[-1] if telling else next((line.strip() for line in reversed(lines) if line.strip()), "")
    return meaning(last.removeprefix("traceback :").strip()[:MOST_CHARACTERS])


def first_to_die(log: str) -> int | None:
    """The rank that torchrun names as the first that failed; None without its word."""
    found = re.search(r"Root Cause \(first observed failure\).*?^\s*rank\s*:\s*(\d+)", log, re.DOTALL | re.MULTILINE)
    return int(found[1]) if found else None


def signal_of(log: str) -> int | None:
    """The signal that torchrun's log says ended a rank, if any."""
    found = re.search(r"Signal (\d+) \(SIG\w+\)", log)
    return int(found[1]) if found else None


def with_full_disk(detail: str) -> str:
    """A detail to which the full disk is added, unless it is in it already."""
    return detail if "TMPDIR" in detail else f"{detail}; {_FULL_DISK}".removeprefix("; ")


def disk_is_full(folder: Path) -> bool:
    """Whether the file system of a folder has no room left."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < FULL_BYTES

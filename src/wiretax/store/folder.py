"""A folder of run files: one JSON a run, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from wiretax.errors import BadInput, UsageError
from wiretax.model.run import Run
from wiretax.store.codec import MAX_DOCUMENT_BYTES, decode_run, encode
from wiretax.store.streams import is_stream, read_pipe, write_stream


def runs_folder() -> Path:
    """Where runs are kept: ``$WIRETAX_HOME/runs``, else ``$XDG_DATA_HOME/wiretax/runs``, else ``~/.local/share/wiretax/runs``.

    Raises:
        UsageError: this user has no home (an unknown number in a container) and nothing else says where.
    """
    home = os.environ.get("WIRETAX_HOME")
    if home:
        return Path(home) / "runs"
    data = os.environ.get("XDG_DATA_HOME")
    if data and os.path.isabs(data):
        return Path(data) / "wiretax" / "runs"
    user = os.path.expanduser("~")
    if not os.path.isabs(user):
        raise UsageError("There is no folder to keep runs in: this user has no home.", do="Set WIRETAX_HOME to a folder you may write to.")
    return Path(user) / ".local" / "share" / "wiretax" / "runs"


def new_run_id(now: datetime | None = None) -> str:
    """A new id such as ``20261130T221500-4f2a9c``: sorts by time, and two runs of one second differ."""
    return f"{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"


def save_run(run: Run, path: Path | None = None) -> Path:
    """Writes a run atomically: a reader sees the old file or the whole new one, also after a power cut.

    Args:
        run: the document.
        path: the file; by default ``<runs folder>/<run id>.json``.

    Returns:
        The file written.

    Raises:
        OSError: the folder cannot be made or written (a read-only home, a full disk).
        BadDocument: the run holds NaN or infinity.
    """
    target = path if path is not None else runs_folder() / f"{run.run_id}.json"
    write_atomically(target, encode(run))
    return target


def write_atomically(target: Path, data: bytes) -> None:
    """Writes ``data`` beside ``target``, flushes it to disk and renames it over; leaves nothing behind when it fails.

    A link stays a link, to the new file. What is no ordinary file (``/dev/null``, ``/dev/stdout``, a pipe) is written to as it is.
    """
    if is_stream(target):
        write_stream(target, data)
        return
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = _mode(target)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".wiretax-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Who may read the new file: as the old one, or as the user's umask says."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def load_run(name: str | Path) -> Run:
    """A run by file name, by id, or by an unambiguous beginning of an id.

    Raises:
        BadInput: no such file or run, or several ids begin so.
        BadDocument: the file is damaged or from the future.
    """
    path = find_run(name)
    return decode_run(read_bytes(path), str(path))


def find_run(name: str | Path) -> Path:
    """The file of a run; see :func:`load_run`."""
    if not str(name).strip():
        raise BadInput("An empty text names no run.", do="Give a file, an id, or the beginning of one; `wiretax runs` lists them.")
    path = Path(name)
    if path.suffix == ".json" or os.sep in str(name) or os.path.isfile(path):
        return path
    folder = runs_folder()
    matches = [file for file in list_run_files(folder) if file.stem.startswith(str(name))]
    exact = [file for file in matches if file.stem == str(name)]
    if len(exact) == 1 or len(matches) == 1:
        return (exact or matches)[0]
    if matches:
        raise BadInput(f"{len(matches)} runs begin with {name!r}.", do=f"Give more of the id, such as {matches[-1].stem}.")
    raise BadInput(
        f"There is no file {name!r} and no run of that id in {folder}.", do="`wiretax check` makes a run and prints where it is kept."
    )


def list_run_files(folder: Path | None = None) -> Iterator[Path]:
    """The files of the runs folder, oldest first; none when the folder does not exist."""
    base = folder if folder is not None else runs_folder()
    yield from sorted(base / name for name, _ in run_files(base))


def run_files(base: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The names of the run files of a folder with their status, in no order; nothing when there is no folder.

    Raises:
        BadInput: it is there, but is no folder or may not be read.
    """
    try:
        with os.scandir(base) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    try:
                        status = entry.stat()
                    except OSError:
                        continue  # Removed while we looked.
                    yield entry.name, status
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(
            f"The folder of runs {base} cannot be read: {error.strerror or error}.", do="Set WIRETAX_HOME to a folder of yours."
        ) from None


def read_bytes(path: Path) -> bytes:
    """The bytes of a document file, or what comes through a pipe (``<(ssh box wiretax inspect --json)``).

    Raises:
        BadInput: the file is missing, a folder or a device, unreadable, or far too large; a pipe into which nobody writes.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise BadInput(f"{path} is a directory.", do="Give a file.")
        if stat.S_ISFIFO(status.st_mode):
            return read_pipe(path, MAX_DOCUMENT_BYTES)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is a device or a socket.", do="Give a file.")
        if status.st_size > MAX_DOCUMENT_BYTES:
            raise BadInput(f"{path} has {status.st_size} bytes, too many for a document of wiretax.")
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"There is no file {path}.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None

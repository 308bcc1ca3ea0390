"""Data to stdout, talk to stderr, and neither ever ends the program by failing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from rich.console import Console

from wiretax.errors import CannotWrite, UsageError
from wiretax.launch.interrupts import Interrupts
from wiretax.model.run import Run
from wiretax.show.plain import clean
from wiretax.show.terminal import Page, render, without_trailing_blanks
from wiretax.store.codec import encode
from wiretax.store.folder import runs_folder, save_run
from wiretax.store.streams import is_stream

LEAST_WIDTH = 40
"""Below this, tables would lose their figures; a terminal that is narrower still breaks the lines itself."""


def print_run(run: Run, *, as_json: bool) -> None:
    """Writes a run to stdout: the document as JSON, or as people read it.

    A reader that went away (``| head``) is no error; a full disk is.

    Raises:
        CannotWrite: stdout takes no more for another reason.
    """
    if as_json:
        _write(encode(run))
        return
    print_rendered(lambda console: render(run, console))


def print_rendered(draw: Callable[[Console], None]) -> None:
    """Writes to stdout what ``draw`` prints on a console that knows the real stdout's width, colours and encoding.

    Raises:
        CannotWrite: see :func:`print_run`.
    """
    # Not straight to stdout: when a reader went away, rich would end the process with an exit code of its own.
    page = Page(getattr(sys.stdout, "encoding", None) or "utf-8", terminal=_is_terminal(sys.stdout))
    console = Console(file=page)
    console.width = max(console.width, LEAST_WIDTH)
    draw(console)
    _write(without_trailing_blanks(page.getvalue()).encode(console.encoding, "replace"))


def print_text(text: str) -> None:
    """Writes text to stdout as it stands.

    Raises:
        CannotWrite: see :func:`print_run`.
    """
    _write(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "replace"))


def say(text: str) -> None:
    """One line to stderr; a closed stderr is no error."""
    write_line(sys.stderr, clean(text, 4000))


def write_line(stream: TextIO | None, text: str) -> None:
    """A line to a stream that may be closed, gone, or not able to express every character."""
    if stream is None:
        return
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()
    except (OSError, ValueError):
        pass  # Nobody listens; the exit code and the data still speak.


def keep(run: Run, *, save: bool, out: Path | None) -> bool:
    """Saves a run where asked and says where; False when a file asked for by name could not be written.

    Ctrl-C waits until it is done: what was measured is kept first.

    Args:
        run: the document.
        save: into the folder of runs. A read-only home is only mentioned: the result is on the screen.
        out: a file as well.
    """
    with Interrupts() as interrupts:
        interrupts.hold()
        return _keep(run, save=save, out=out)


def _keep(run: Run, *, save: bool, out: Path | None) -> bool:
    if save:
        try:
            say(f"kept as {save_run(run)}")
            say(f"        a page of it: wiretax report {run.run_id}")
        except OSError as error:
            say(f"not kept: {runs_folder()} cannot be written ({error.strerror or error}); --out FILE writes elsewhere")
        except UsageError as error:
            say(f"not kept: {error}")
    if out is None:
        return True
    try:
        say(f"written to {save_run(run, out)}")
    except OSError as error:
        say(f"error: {out} cannot be written: {error.strerror or error}.")
        return False
    return True


def check_writable(out: Path | None) -> None:
    """Refuses a file that cannot be written before time is spent on what goes into it.

    Raises:
        UsageError: it is a folder, its folder is missing, or may not be written.
    """
    if out is None:
        return
    try:
        out = Path(os.path.realpath(out)) if not is_stream(out) else out
    except FileNotFoundError:
        raise UsageError(f"{out} cannot be written: the working folder is gone.", do="cd to a folder that exists.") from None
    folder = out.parent
    try:
        os.stat(out)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # said below in better words
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}.", do="Choose another name.") from None
    if os.path.isdir(out):
        raise UsageError(f"{out} is a folder.", do="Give the name of a file.")
    if is_stream(out):
        if not os.access(out, os.W_OK):
            raise UsageError(f"{out} cannot be written by this user.", do="Choose another file.")
        return
    if not os.path.isdir(folder):
        raise UsageError(f"{out} cannot be written: there is no folder {folder}.", do=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{out} cannot be written: {folder} is read-only for this user.", do="Choose another folder.")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # Closed.


def _write(data: bytes) -> None:
    stream = sys.stdout
    if stream is None:
        return
    try:
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(data.decode(stream.encoding or "utf-8"))
        else:
            stream.flush()
            buffer.write(data)
        stream.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise CannotWrite("The result could not be written to stdout.", why=f"{error.strerror or error}.", do="Free some space.") from None

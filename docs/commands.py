"""What the pages share: running a command line of wiretax at a fixed width, and rewriting a page."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from wiretax.cli.main import run


@contextlib.contextmanager
def in_folder(folder: Path | str, width: int) -> Iterator[None]:
    """Arguments name files of this folder, and the width does not depend on who calls."""
    with contextlib.chdir(folder), patch.dict(os.environ, COLUMNS=str(width)):
        yield


def printed(arguments: str, accepted: tuple[int, ...] = (0,)) -> str:
    """What ``wiretax ARGUMENTS`` prints.

    Raises:
        RuntimeError: it ended with another exit code; what it said is in the message.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(arguments))
    if code not in accepted:
        raise RuntimeError(f"wiretax {arguments}: {err.getvalue()}")
    return out.getvalue()


def without_heading(text: str) -> str:
    """Without the first lines, which hold the time."""
    return text.partition("\n\n")[2]


def rewrite(page: Path, refreshed: Callable[[str], str]) -> None:
    """Makes the outputs of a page anew, and says whether any was stale."""
    before = page.read_text(encoding="utf-8")
    after = refreshed(before)
    page.write_text(after, encoding="utf-8")
    print(f"{page.name} {'rewritten' if after != before else 'was up to date'}", file=sys.stderr)

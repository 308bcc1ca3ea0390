"""Writes the outputs in docs/predict.md anew, with the command line itself; ``make docs`` runs it, a test fails when one is stale.

An output stands between two lines, and is what the program prints today: for the arguments of a command that measures nothing, or for
a committed run document.

    <!-- wiretax: predict --grad-bytes 200MB --busbw 22GB/s --gpus 2,8 -->
    <!-- shown: benchmarks/results/scale_cpu.json -->
    <!-- end of output -->
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from wiretax.cli.main import run
from wiretax.show.terminal import as_text
from wiretax.store.folder import load_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "predict.md"
WIDTH = 96

_BLOCK = re.compile(r"(?P<open><!-- (?P<kind>wiretax|shown): (?P<what>[^\n]*) -->\n).*?(?P<close><!-- end of output -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every output made anew.

    Raises:
        RuntimeError: the command line refused the arguments.
        BadInput: a document is not there.
    """
    with _in_root():
        return _BLOCK.sub(lambda match: f"{match['open']}\n{_output(match['kind'], match['what'])}\n{match['close']}", text)


def _output(kind: str, what: str) -> str:
    if kind == "shown":
        return f"```text\n{_body(as_text(load_run(ROOT / what), WIDTH))}```\n"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(what))
    if code:
        raise RuntimeError(f"wiretax {what}: {err.getvalue()}")
    text = out.getvalue()
    return f"```console\n$ wiretax {what}\n{text if '--help' in what else _body(text)}```\n"


def _body(text: str) -> str:
    """Without the first lines, which hold the time."""
    return text.partition("\n\n")[2]


@contextlib.contextmanager
def _in_root() -> Iterator[None]:
    """The arguments name files from the top of the repository; the width does not depend on who calls."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(ROOT)
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        yield
    finally:
        os.chdir(before)
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    new = refreshed(old)
    PAGE.write_text(new, encoding="utf-8")
    print("docs/predict.md rewritten" if new != old else "docs/predict.md was up to date", file=sys.stderr)

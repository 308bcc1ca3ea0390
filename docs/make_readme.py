"""Writes the blocks of README.md that show output, from committed documents; ``make docs`` runs it, a test fails when one is stale.

A block stands between two lines and is what the documents say today, drawn by the same code that draws on a terminal:

    <!-- output: run benchmarks/results/check_cpu.json -->
    <!-- output: machine rtx4090x4 -->
    <!-- output: help check -->
    <!-- end of output -->
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from commands import rewrite

from wiretax.jobs.inspect import inspect
from wiretax.show.terminal import as_text
from wiretax.store.folder import load_run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WIDTH = 80

_BLOCK = re.compile(r"(?P<open><!-- output: (?P<kind>\w+)(?: (?P<name>\S+))? -->\n).*?(?P<close><!-- end of output -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every block drawn anew.

    Raises:
        ValueError: a block of an unknown kind.
        CalledProcessError: a block asks for the help of a command that is not there.
        BadInput: a block names a document that is not there.
    """
    return _BLOCK.sub(lambda match: f"{match['open']}\n```text\n{_output(match['kind'], match['name'] or '')}```\n\n{match['close']}", text)


def _output(kind: str, name: str) -> str:
    if kind == "run":
        return as_text(load_run(ROOT / name), WIDTH)
    if kind == "machine":
        # When it was shown, and how fast, is not part of the machine.
        run = replace(inspect(machine=name), outcome=None)
        return as_text(run, WIDTH).partition("\n")[2]
    if kind == "help":
        arguments = [sys.executable, "-m", "wiretax", *([name] if name else []), "--help"]
        environment = {**os.environ, "COLUMNS": str(WIDTH)}
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    raise ValueError(f"README.md: no output of kind {kind!r}")


if __name__ == "__main__":
    rewrite(README, refreshed)

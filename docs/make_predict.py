"""Writes the outputs in docs/predict.md anew, with the command line itself; ``make docs`` runs it, a test fails when one is stale.

An output stands between two lines, and is what the program prints today: for the arguments of a command that measures nothing, or for
a committed run document.

    <!-- wiretax: predict --grad-bytes 200MB --busbw 22GB/s --gpus 2,8 -->
    <!-- shown: benchmarks/results/scale_cpu.json -->
    <!-- end of output -->
"""

from __future__ import annotations

import re
from pathlib import Path

from commands import in_folder, printed, rewrite, without_heading

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
    with in_folder(ROOT, WIDTH):
        return _BLOCK.sub(lambda match: f"{match['open']}\n{_output(match['kind'], match['what'])}\n{match['close']}", text)


def _output(kind: str, what: str) -> str:
    if kind == "shown":
        return f"```text\n{without_heading(as_text(load_run(ROOT / what), WIDTH))}```\n"
    text = printed(what)
    return f"```console\n$ wiretax {what}\n{text if '--help' in what else without_heading(text)}```\n"


if __name__ == "__main__":
    rewrite(PAGE, refreshed)

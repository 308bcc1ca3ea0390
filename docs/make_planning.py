"""Writes the plans in docs/planning.md anew, with the command line itself; ``make docs`` runs it, a test fails when one is stale.

A plan stands between two lines, and is what ``wiretax plan`` prints today for the arguments in the first:

    <!-- plan: --hours 40 --price 2 --currency USD --gpus 1,4 --efficiency 0.8 -->
    <!-- end of plan -->

``offers.toml`` in the arguments is ``docs/planning_offers.toml``; ``pair.json`` is the recorded pair of H200s of ``examples/h200x2``: its
wires and the profile of its 1.7 B model in one file.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "planning.md"
OFFERS = ROOT / "docs" / "planning_offers.toml"
WIDTH = 100

_BLOCK = re.compile(r"(?P<open><!-- plan: (?P<arguments>[^\n]*) -->\n).*?(?P<close><!-- end of plan -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every plan made anew.

    Raises:
        RuntimeError: the command line refused the arguments.
    """
    with _folder():
        return _BLOCK.sub(lambda match: f"{match['open']}\n{_shown(match['arguments'])}\n{match['close']}", text)


def _shown(arguments: str) -> str:
    return f"```console\n$ wiretax plan {arguments}\n{_planned(arguments)}```\n"


def _planned(arguments: str) -> str:
    """What the command prints, without its first lines, which hold the time."""
    from wiretax.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["plan", *shlex.split(arguments)])
    if code not in (0, 1):
        raise RuntimeError(f"wiretax plan {arguments}: {err.getvalue()}")
    return out.getvalue().partition("\n\n")[2]


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """A folder with the files that the arguments name, and a terminal of a fixed width."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(OFFERS, Path(name) / "offers.toml")
        _write_pair(Path(name) / "pair.json")
        os.chdir(name)
        os.environ["COLUMNS"] = str(WIDTH)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS")
            if columns is not None:
                os.environ["COLUMNS"] = columns


def _write_pair(path: Path) -> None:
    """The wires of the example with the profile of one of its workloads: the same files that docs/predict.md predicts from."""
    from wiretax.model.training import Training
    from wiretax.store.folder import load_run, save_run

    wires, profiles = (load_run(ROOT / "examples" / "h200x2" / name) for name in ("wires.json", "profiles.json"))
    chosen = tuple(one for one in profiles.training.profiles if one.workload.name == "gpt1.7b")
    save_run(replace(wires, training=Training(profiles=chosen)), path)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    after = refreshed(before)
    PAGE.write_text(after, encoding="utf-8")
    print("planning.md rewritten" if after != before else "planning.md was up to date", file=sys.stderr)

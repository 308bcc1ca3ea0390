"""Writes the plans in docs/planning.md anew, with the command line itself; ``make docs`` runs it, a test fails when one is stale.

A plan stands between two lines, and is what ``wiretax plan`` prints today for the arguments in the first:

    <!-- plan: --hours 40 --price 2 --currency USD --gpus 1,4 --efficiency 0.8 -->
    <!-- end of plan -->

``offers.toml`` in the arguments is ``docs/planning_offers.toml``; ``pair.json`` is the recorded pair of H200s of ``examples/h200x2``: its
wires and the profile of its 1.7 B model in one file.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from commands import in_folder, printed, rewrite, without_heading

from wiretax.model.training import Training
from wiretax.store.folder import load_run, save_run

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
    plan = without_heading(printed(f"plan {arguments}", accepted=(0, 1)))
    return f"```console\n$ wiretax plan {arguments}\n{plan}```\n"


@contextmanager
def _folder() -> Iterator[None]:
    """A folder with the files that the arguments name."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(OFFERS, Path(name) / "offers.toml")
        _write_pair(Path(name) / "pair.json")
        with in_folder(name, WIDTH):
            yield


def _write_pair(path: Path) -> None:
    """The wires of the example with the profile of one of its workloads: the same files that docs/predict.md predicts from."""
    wires, profiles = (load_run(ROOT / "examples" / "h200x2" / name) for name in ("wires.json", "profiles.json"))
    chosen = tuple(one for one in profiles.training.profiles if one.workload.name == "gpt1.7b")
    save_run(replace(wires, training=Training(profiles=chosen)), path)


if __name__ == "__main__":
    rewrite(PAGE, refreshed)

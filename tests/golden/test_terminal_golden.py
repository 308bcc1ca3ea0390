"""The terminal output of whole runs, character by character.

``WIRETAX_UPDATE_GOLDEN=1 pytest tests/golden`` writes the files anew; read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sample_runs
from wiretax.model.money import Price
from wiretax.show.terminal import as_text

FOLDER = Path(__file__).parent / "terminal"
BOX = Price(amount=0.58, currency="EUR", per="box_hour")
GPU = Price(amount=2.9, currency="EUR", per="gpu_hour")

CASES = {
    "h200_pair-80": (sample_runs.h200_pair(GPU), 80, "utf-8"),
    "h200_pair-140": (sample_runs.h200_pair(), 140, "utf-8"),
    "h200_pair-ascii-80": (sample_runs.h200_pair(), 80, "ascii"),
    "four_4090-80": (sample_runs.four_4090(BOX), 80, "utf-8"),
    "four_4090-100": (sample_runs.four_4090(), 100, "utf-8"),
    "cpu_only-80": (sample_runs.cpu_only(), 80, "utf-8"),
    "hung-100": (sample_runs.hung(), 100, "utf-8"),
    "inspected-80": (sample_runs.inspected(), 80, "utf-8"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_shown_exactly_so(name: str) -> None:
    run, width, encoding = CASES[name]
    shown = as_text(run, width, encoding)
    file = FOLDER / f"{name}.txt"
    if os.environ.get("WIRETAX_UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8"), "if this change is meant: WIRETAX_UPDATE_GOLDEN=1 pytest tests/golden"


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(CASES)

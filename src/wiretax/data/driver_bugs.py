"""Known faults of NVIDIA driver branches, with source and date; named only where their symptom was seen."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

Symptom = Literal["hang", "no_p2p"]


@dataclass(frozen=True, slots=True)
class DriverBug:
    """One reported fault: what it looks like, which branch is good, and where it was reported."""

    title: str
    symptom: Symptom
    good_branch: int
    date: str
    source: str


@cache
def _bugs() -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads(resources.files("wiretax.data").joinpath("driver_bugs.toml").read_text(encoding="utf-8"))["bug"])


def branch(version: str | None) -> int | None:
    """The branch of a driver version: 560 for ``560.35.03`` or ``560``; None where it is none."""
    match = re.match(r"\s*(\d{3})(?:\.|\b)", version or "")
    return int(match[1]) if match else None


def driver_bugs(version: str | None, gpus: Iterable[str], symptom: Symptom) -> tuple[DriverBug, ...]:
    """Faults reported of this driver with this symptom.

    Args:
        version: of the driver, or its branch.
        gpus: names of the GPUs; a fault of one model needs a name that fits.
        symptom: what was seen.
    """
    number = branch(version)
    if number is None:
        return ()
    names = tuple(gpus)
    return tuple(
        DriverBug(entry["title"], entry["symptom"], entry["good_branch"], entry["date"], entry["source"])
        for entry in _bugs()
        if entry["first_branch"] <= number <= entry["last_branch"]
        and entry["symptom"] == symptom
        and ("gpus" not in entry or any(re.search(entry["gpus"], name) for name in names))
    )

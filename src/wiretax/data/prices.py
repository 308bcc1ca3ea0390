"""Prices that people published: ``prices.toml``, each with its source and the day on which it was read."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

FILE = "prices.toml"


@cache
def published_text() -> str:
    """The file as shipped, for messages that name its lines."""
    return resources.files("wiretax.data").joinpath(FILE).read_text(encoding="utf-8")


def published_prices() -> tuple[dict[str, Any], ...]:
    """The entries as they stand in the file; ``wiretax.plan.offers`` reads them like a user's own."""
    return tuple(tomllib.loads(published_text())["offer"])

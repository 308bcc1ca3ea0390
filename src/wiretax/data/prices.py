"""Prices that people published: ``prices.toml``, each with its source and the day on which it was read."""

from __future__ import annotations

from functools import cache
from importlib import resources

FILE = "prices.toml"


@cache
def published_text() -> str:
    """The file as shipped, for messages that name its lines."""
    return resources.files("wiretax.data").joinpath(FILE).read_text(encoding="utf-8")

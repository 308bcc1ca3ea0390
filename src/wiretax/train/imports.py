"""The part of torch that any training step imports when its optimizer is made, which takes seconds: once, before the stages are forked."""

from __future__ import annotations

import contextlib


def before_forks() -> None:
    """Imports it; where that fails, for whatever reason, the stage that needs it says so."""
    with contextlib.suppress(Exception):
        import torch._dynamo  # noqa: F401

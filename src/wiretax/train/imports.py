"""The part of torch that any training step imports when its optimizer is made, which takes seconds: once, before the stages are forked."""

from __future__ import annotations

import contextlib


def before_forks() -> None:
    """Imports it; a torch without it needs none."""
    with contextlib.suppress(ImportError):
        import torch._dynamo  # noqa: F401

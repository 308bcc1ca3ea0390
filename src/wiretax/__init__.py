"""wiretax: know what the wire between your GPUs costs your training, before you pay for it.

The public API is the functions of :mod:`wiretax.jobs` and the dataclasses of :mod:`wiretax.model`, loaded when first used, and for
training scripts ``Step`` and ``profile_step``. (:mod:`wiretax.predict` and :mod:`wiretax.plan` are folders, so those two jobs are
called as ``wiretax.jobs.predict.predict`` and ``wiretax.jobs.plan.plan``.)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Run": "wiretax.model.run",
    "Machine": "wiretax.model.machine",
    "Step": "wiretax.train.workload",
    "Finding": "wiretax.model.finding",
    "Verdict": "wiretax.model.finding",
    "WiretaxError": "wiretax.errors",
    "as_metrics": "wiretax.jobs.runs",
    "check": "wiretax.jobs.check",
    "compare": "wiretax.jobs.compare",
    "inspect": "wiretax.jobs.inspect",
    "load_run": "wiretax.store.folder",
    "profile": "wiretax.jobs.profile",
    "profile_step": "wiretax.train.loop",
    "report": "wiretax.jobs.report",
    "save_run": "wiretax.store.folder",
    "scale": "wiretax.jobs.scale",
}

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that ``import wiretax`` stays fast."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'wiretax' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__

"""Loads a script that belongs to no package (docs/, benchmarks/, examples/, a file beside a test) as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def load(path: Path | str) -> ModuleType:
    """The script as a module, loaded anew; what lies beside it can be imported by it, as when it is run.

    Args:
        path: of the script, from the top of the repository where it is relative.
    """
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module

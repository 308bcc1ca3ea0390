"""What the family of a GPU tells by its name alone: compute capability, and whether the stock driver ever offers peer access over PCIe."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from wiretax.data.gpus import find_gpu


@cache
def _families() -> tuple[tuple[re.Pattern[str], str, bool | None], ...]:
    document = tomllib.loads(resources.files("wiretax.data").joinpath("gpu_families.toml").read_text(encoding="utf-8"))
    return tuple(
        (re.compile(entry["pattern"], re.IGNORECASE), entry["compute_capability"], entry.get("stock_driver_p2p_over_pcie"))
        for entry in document["family"]
    )


def compute_capability(name: str | None) -> str | None:
    """The capability of a GPU with this name; None where the name (or what a table left of it) names no family.

    Args:
        name: as a driver or a person writes it ("NVIDIA GeForce RTX 5070 Ti", "4090").
    """
    if not name:
        return None
    known = find_gpu(name)
    if known is not None and known.vendor == "nvidia" and known.compute_capability is not None:
        return known.compute_capability
    return next((capability for pattern, capability, _ in _families() if pattern.search(name)), None)


def never_has_p2p_over_pcie(name: str | None) -> bool:
    """Whether NVIDIA's own driver offers no peer access over PCIe for this model, whatever the machine."""
    if not name or "nvlink" in name.lower():
        return False
    return any(offers is False for pattern, _, offers in _families() if pattern.search(name))

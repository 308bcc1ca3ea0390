"""Versions and settings, without importing torch and without loading NCCL."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wiretax.model.machine import Software
from wiretax.probe.files import as_text, read_text, read_word
from wiretax.probe.nccl_library import find_nccl, loaded_nccl, read_nccl_conf

__all__ = ["NEEDS_RANK", "TorchVersion", "driver_flavour", "kernel_module_version", "loaded_nccl", "read_software", "torch_version"]

NEEDS_RANK = "needs a rank: run wiretax check"

SETTINGS = ("NCCL_", "TORCH_NCCL_", "GLOO_")
"""Beginnings of the variables that decide how ranks talk."""

_P2P_OVERRIDES = re.compile(r"\b(RM)?ForceP2P\w*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchVersion:
    """The torch this Python would import.

    Attributes:
        version: such as ``2.13.0+cpu``.
        cuda: the CUDA it was built with.
        missing: why either is None.
    """

    version: str | None = None
    cuda: str | None = None
    missing: dict[str, str] = field(default_factory=dict)


def read_software(
    *, root: Path = Path("/"), environment: Mapping[str, str] = os.environ, search_path: Iterable[str] | None = None
) -> Software:
    """All but what NVML tells: ``driver`` (unless the kernel module does) and ``cuda`` are left None without a reason.

    Args:
        root: where ``/proc`` and ``/etc`` are.
        environment: of the process.
        search_path: Python's path, for libraries; by default ``sys.path``.
    """
    torch = torch_version()
    found = find_nccl(root=root, environment=environment, search_path=search_path)
    values: dict[str, Any] = {}
    missing = {"nccl_loaded": NEEDS_RANK}
    for name, value, reason in (
        ("torch", torch.version, torch.missing.get("version", "")),
        ("torch_cuda", torch.cuda, torch.missing.get("cuda", "")),
        ("kernel", read_word(root / "proc/sys/kernel/osrelease") or platform.release() or None, "the system does not say"),
        ("driver", kernel_module_version(root), ""),
    ):
        if value is not None:
            values[name] = value
        elif reason:
            missing[name] = reason
    return Software(
        python=platform.python_version(),
        nccl_found=found,
        nccl_environment={as_text(name): as_text(environment[name]) for name in sorted(environment) if name.startswith(SETTINGS)},
        nccl_conf=read_nccl_conf(root, environment),
        driver_flavour=driver_flavour(root),
        missing=missing,
        **values,
    )


def torch_version() -> TorchVersion:
    """Version and CUDA of torch, read from its ``version.py`` as text; importing torch takes seconds and may start CUDA."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or spec.origin is None:
        reason = "torch is not installed for this Python" if spec is None else "only an empty folder named torch is on Python's path"
        return TorchVersion(missing=dict.fromkeys(("version", "cuda"), reason))
    text = read_text(Path(spec.origin).parent / "version.py")
    if text is None:
        return TorchVersion(missing=dict.fromkeys(("version", "cuda"), "torch has no version.py"))
    version, cuda, hip = (_assigned(text, name) for name in ("__version__", "cuda", "hip"))
    missing = {}
    if version is None:
        missing["version"] = "torch's version.py holds no version"
    if cuda is None:
        missing["cuda"] = f"torch was built for ROCm {hip}" if hip else "torch was built without CUDA"
    return TorchVersion(version=version, cuda=cuda, missing=missing)


def kernel_module_version(root: Path = Path("/")) -> str | None:
    """Version of the NVIDIA kernel module that is loaded; None when none is, or in a container that hides it."""
    text = read_text(root / "proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module(?: for \S+)?\s+([0-9]+\.[0-9.]+\S*)", text)
    return match.group(1) if match else read_word(root / "sys/module/nvidia/version")


def driver_flavour(root: Path = Path("/")) -> Literal["official", "unofficial", "unknown"]:
    """Whether the kernel module is NVIDIA's own build, as far as its version line and parameters tell.

    The closed module and builds by NVIDIA's build machines are official. A version that names P2P, or parameters that force it,
    belong to the patched open modules. An open module built on the machine itself (every DKMS package) may be either.
    """
    text = read_text(root / "proc/driver/nvidia/version") or ""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    if re.search("p2p", line, re.IGNORECASE) or _P2P_OVERRIDES.search(read_text(root / "proc/driver/nvidia/params") or ""):
        return "unofficial"
    if line and ("Open Kernel Module" not in line or "dvs-builder" in line or "buildmeister" in line):
        return "official"
    return "unknown"


def library_version(root: Path = Path("/")) -> str | None:
    """Version of the driver's user library on disk, from the name of the file behind ``libnvidia-ml.so.1``."""
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64"):
        match = re.search(r"libnvidia-ml\.so\.([0-9]+\.[0-9.]+)$", os.path.realpath(root / folder / "libnvidia-ml.so.1"))
        if match:
            return match.group(1)
    return None


def _assigned(text: str, name: str) -> str | None:
    """The string a simple module assigns to a name (``cuda: Optional[str] = '13.0'``)."""
    match = re.search(rf"^{re.escape(name)}\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import linux_trees as trees
from wiretax.model.reading import unexplained
from wiretax.probe import software as module
from wiretax.probe.software import driver_flavour, kernel_module_version, library_version, read_software, torch_version

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc version 11.4.0\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  ({builder})  Fri Aug 1 UTC 2026\n"
    "GCC version:  gcc version 13.3.0\n"
)


@pytest.mark.parametrize(
    ("version", "params", "flavour", "number"),
    [
        (CLOSED, "", "official", "535.129.03"),
        (OPEN.format(builder="dvs-builder@U22-I3-AF02-28-1"), "", "official", "580.159.04"),
        (OPEN.format(builder="root@gpu-box"), "", "unknown", "580.159.04"),
        (OPEN.format(builder="root@box").replace("580.159.04", "565.57.01-p2p"), "", "unofficial", "565.57.01-p2p"),
        (
            OPEN.format(builder="root@box"),
            'RegistryDwords: "ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2"\n',
            "unofficial",
            "580.159.04",
        ),
        (OPEN.format(builder="root@box"), 'RegistryDwords: ""\nEnableMSI: 1\n', "unknown", "580.159.04"),
        ("", "", "unknown", None),
    ],
)
def test_the_kernel_module_tells_its_version_and_whose_it_is(
    tmp_path: Path, version: str, params: str, flavour: str, number: str | None
) -> None:
    trees.write(tmp_path, {"proc/driver/nvidia/version": version, "proc/driver/nvidia/params": params})
    assert driver_flavour(tmp_path) == flavour
    assert kernel_module_version(tmp_path) == number


def test_without_proc_the_modules_own_file_tells_the_version(tmp_path: Path) -> None:
    trees.write(tmp_path, {"sys/module/nvidia/version": "550.54.15\n"})
    assert kernel_module_version(tmp_path) == "550.54.15"
    assert driver_flavour(tmp_path) == "unknown"


def test_the_librarys_version_is_in_the_name_behind_the_link(tmp_path: Path) -> None:
    assert library_version(tmp_path) is None
    trees.write(tmp_path, {"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08": ""})
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.105.08")
    assert library_version(tmp_path) == "580.105.08"


@pytest.mark.parametrize(
    ("text", "version", "cuda", "reason"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "2.13.0+cpu", None, "without CUDA"),
        ("__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n", "2.11.0+cu130", "13.0", ""),
        ('__version__ = "1.13.1"\ncuda = "11.7"\n', "1.13.1", "11.7", ""),
        (
            "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.434'\n",
            "2.9.0+rocm6.4",
            None,
            "ROCm 6.4",
        ),
        ("from somewhere import version\n", None, None, "without CUDA"),
    ],
)
def test_torchs_version_file_is_read_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: str | None, cuda: str | None, reason: str
) -> None:
    trees.write(tmp_path, {"torch/__init__.py": "raise SystemExit('imported')", "torch/version.py": text})
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "torch/__init__.py")) if name == "torch" else None
    )
    found = torch_version()
    assert (found.version, found.cuda) == (version, cuda)
    assert reason in found.missing.get("cuda", "")
    assert not list(unexplained(found))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "not installed for this Python"),
        (SimpleNamespace(origin=None), "empty folder named torch"),
        (SimpleNamespace(origin="/nowhere/torch/__init__.py"), "no version.py"),
    ],
)
def test_a_torch_that_is_not_there_is_missing_with_its_reason(monkeypatch: pytest.MonkeyPatch, spec: object, words: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    found = torch_version()
    assert (found.version, found.cuda) == (None, None)
    assert words in found.missing["version"]
    assert words in found.missing["cuda"]


def test_a_broken_torch_is_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr(importlib.util, "find_spec", broken)
    assert "not installed" in torch_version().missing["version"]


def test_settings_that_decide_how_ranks_talk_are_kept_and_no_others(tmp_path: Path) -> None:
    environment = {
        "NCCL_P2P_DISABLE": "1",
        "TORCH_NCCL_BLOCKING_WAIT": "0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "AWS_SECRET_ACCESS_KEY": "never",
        "MY_NCCL_X": "no",
    }
    found = read_software(root=tmp_path, environment=environment, search_path=())
    assert found.nccl_environment == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": "1", "TORCH_NCCL_BLOCKING_WAIT": "0"}


def test_what_needs_a_rank_or_the_driver_says_so(tmp_path: Path) -> None:
    found = read_software(root=tmp_path, environment={}, search_path=())
    assert (found.nccl_loaded, found.missing["nccl_loaded"]) == (None, "needs a rank: run wiretax check")
    assert (found.nccl_found, found.python, found.kernel) == ((), platform.python_version(), platform.release())
    assert set(unexplained(found)) == {"$.driver", "$.cuda"}  # NVML's part; inspect_machine adds it


def test_reading_the_software_does_not_import_torch() -> None:
    before = "torch" in sys.modules
    read_software()
    assert ("torch" in sys.modules) == before


def test_loaded_nccl_is_offered_to_ranks() -> None:
    maps = Path("/proc/self/maps").read_text() if os.path.exists("/proc/self/maps") else ""
    assert module.loaded_nccl(maps) is None

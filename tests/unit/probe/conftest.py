from __future__ import annotations

from pathlib import Path

import pytest

from fake_nvml.fake import FakeNvml, compile_library


@pytest.fixture(scope="session")
def new_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("old-nvml"), "-DOLD_DRIVER")


@pytest.fixture
def fake_nvml(new_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(new_library, tmp_path)


@pytest.fixture
def old_nvml(old_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(old_library, tmp_path)

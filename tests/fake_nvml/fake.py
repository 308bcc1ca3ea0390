"""The fake driver library for tests: compiles ``fake_nvml.c`` and gives the environment in which pynvml loads it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wiretax.probe.ask_nvml import ask_nvml
from wiretax.probe.nvml_answer import NvmlAnswer

SOURCE = Path(__file__).with_name("fake_nvml.c")


def compile_library(folder: Path, *flags: str) -> Path:
    """Compiles the library into a folder of its own, which it returns. Skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("NO C COMPILER: the fake NVML cannot be built, so nothing that asks NVML is tested here. Install gcc.")
    target = folder / "libnvidia-ml.so.1"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", *flags, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *options, "-o", target, SOURCE], check=True)
    return folder


@dataclass(frozen=True)
class FakeNvml:
    """A driver that answers what a text says."""

    library: Path
    scratch: Path

    def environment(self, answers: str) -> dict[str, str]:
        """Variables under which the fake library is loaded and gives these answers."""
        config = self.scratch / "fake_nvml.txt"
        config.write_text(answers)
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML": str(config)}

    def ask(self, answers: str, deadline_seconds: float = 20.0) -> NvmlAnswer:
        """What the child process says under these answers."""
        return ask_nvml(deadline_seconds, self.environment(answers))

    def run(self, answers: str, program: str) -> Any:
        """Runs a Python program in a process that loads the fake, and reads the JSON it prints."""
        done = subprocess.run(
            [sys.executable, "-c", program], env=self.environment(answers), check=True, capture_output=True, text=True, timeout=60
        )
        return json.loads(done.stdout)

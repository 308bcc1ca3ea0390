from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fake_nvml.fake import FakeNvml

SAMPLE = """
import json
from dataclasses import asdict
from wiretax.probe.nvml import NvmlSession
with NvmlSession() as nvml:
    print(json.dumps([nvml.state, nvml.detail, asdict(nvml.read_under_load(1))]))
"""

FIND = """
import json, sys
from wiretax.probe.nvml import NvmlSession, nvml_index_of
names = {names!r}
with NvmlSession() as nvml:
    print(json.dumps([[nvml.index_of(name) for name in names], [nvml_index_of(name) for name in names]]))
"""


def test_a_sample_under_load_has_the_six_readings(fake_nvml: FakeNvml) -> None:
    state, detail, sample = fake_nvml.run("gpus=2\nclock.1=1755\nreasons.1=4\npower.1=699500\ngen.1=4\n", SAMPLE)
    assert (state, detail) == ("ok", None)
    assert sample == {
        "nvml_index": 1,
        "sm_clock_mhz": 1755,
        "throttle_reasons": ["sw_power_cap"],
        "power_watts": 699.5,
        "temperature_celsius": 40.0,
        "pcie_generation": 4,
        "pcie_width": 16,
        "missing": {},
    }


def test_a_gpu_lost_during_load_gives_a_sample_of_reasons(fake_nvml: FakeNvml) -> None:
    _, _, sample = fake_nvml.run("gpus=2\nlost_late=1\n", SAMPLE)
    assert set(sample["missing"].values()) == {"NVML: GPU is lost"}
    assert {sample[name] for name in ("sm_clock_mhz", "power_watts", "pcie_generation")} == {None}


def test_without_a_driver_a_session_opens_and_says_why_it_cannot_answer(fake_nvml: FakeNvml) -> None:
    state, detail, sample = fake_nvml.run("init=9\n", SAMPLE)
    assert state == "absent"
    assert "kernel driver is not loaded" in detail
    assert set(sample["missing"].values()) == {detail}


def test_a_gpu_is_found_by_uuid_beginning_of_uuid_and_pci_address(fake_nvml: FakeNvml) -> None:
    names = [
        "GPU-00000002-0000-4000-8000-000000000000",
        "00000002-0000-4000-8000-000000000000",
        "GPU-00000001",
        "00000000:11:00.0",
        "0000:11:00.0",
        "11:00.0",
        "GPU-0000000",  # two begin so
        "GPU-ffffffff",
        "",
        "not an address",
    ]
    expected = [1, 1, 0, 1, 1, 1, None, None, None, None]
    assert fake_nvml.run("gpus=2\n", FIND.format(names=names)) == [expected, expected]


def test_a_gpu_is_found_while_another_is_lost(fake_nvml: FakeNvml) -> None:
    assert fake_nvml.run("gpus=3\nlost=0\n", FIND.format(names=["00000000:12:00.0"]))[0] == [2]


def test_without_a_driver_no_gpu_is_found(fake_nvml: FakeNvml) -> None:
    assert fake_nvml.run("init=999\n", FIND.format(names=["GPU-00000001"])) == [[None], [None]]


def test_the_library_is_found_in_a_folder_the_loader_does_not_know(new_library: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("gpus=3\n")
    program = f"""
from wiretax.probe import nvml
nvml._load_from_unlisted_folder({[str(tmp_path / "empty"), str(new_library)]!r})
with nvml.NvmlSession() as session:
    print(session.count())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"FAKE_NVML": str(tmp_path / "answers")}, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "3"


def test_an_old_nvidia_ml_py_without_a_function_is_a_missing_reading(fake_nvml: FakeNvml) -> None:
    program = f"""
import pynvml
del pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetTemperatureV
{SAMPLE}"""
    _, _, sample = fake_nvml.run("gpus=2\n", program)
    assert sample["missing"] == {"power_watts": "this nvidia-ml-py has no nvmlDeviceGetPowerUsage"}
    assert (sample["throttle_reasons"], sample["temperature_celsius"]) == (["gpu_idle"], 40.0)


def test_a_python_without_nvidia_ml_py_opens_a_session_that_says_so() -> None:
    program = """
import sys
sys.modules["pynvml"] = None
from wiretax.probe.nvml import NvmlSession
with NvmlSession() as session:
    print(session.state, session.detail)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("error Python cannot import nvidia-ml-py")
    assert "pip install nvidia-ml-py" in done.stdout


@pytest.mark.parametrize("ended", ["nvml.count()", "nvml.handle(0)"])
def test_a_session_that_has_ended_refuses_in_words(fake_nvml: FakeNvml, ended: str) -> None:
    program = f"""
import json
from wiretax.probe.nvml import NvmlSession, Unread
with NvmlSession() as nvml:
    nvml.handle(0)
try:
    {ended}
except Unread as refusal:
    print(json.dumps([nvml.state, refusal.reason]))
"""
    assert fake_nvml.run("gpus=1\n", program) == ["error", "NVML was ended."]

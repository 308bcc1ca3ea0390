from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fake_nvml.fake import FakeNvml
from wiretax.probe import ask_nvml as module
from wiretax.probe.ask_nvml import ask_nvml


@pytest.mark.parametrize(
    ("code", "state", "words"),
    [
        (9, "absent", "the NVIDIA kernel driver is not loaded"),
        (18, "mismatch", "of different versions"),
        (4, "error", "may not talk to the NVIDIA driver"),
        (999, "error", "NVML does not start"),
    ],
)
def test_a_driver_that_does_not_start_is_a_state_and_a_sentence(fake_nvml: FakeNvml, code: int, state: str, words: str) -> None:
    answer = fake_nvml.ask(f"init={code}\n")
    assert answer.driver_state == state
    assert words in (answer.driver_detail or "")
    assert (answer.gpus, answer.driver, answer.asking) == ((), None, None)
    assert answer.missing["driver"] == answer.missing["cuda"] == answer.driver_detail


def test_without_the_library_the_driver_is_absent(tmp_path: Path) -> None:
    answer = ask_nvml(20.0, {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)})
    assert (answer.driver_state, answer.gpus) == ("absent", ())
    assert "libnvidia-ml.so.1 is not on this system" in (answer.driver_detail or "")


def test_a_driver_without_any_gpu_is_ok_and_empty(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=0\n")
    assert (answer.driver_state, answer.gpus, answer.pairs, answer.driver) == ("ok", (), (), "580.159.04")


def test_a_driver_that_does_not_count_its_gpus_is_an_error_that_keeps_the_version(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("refuse=nvmlDeviceGetCount_v2:999\n")
    assert (answer.driver_state, answer.driver) == ("error", "580.159.04")
    assert "how many GPUs" in (answer.driver_detail or "")


def test_a_driver_that_hangs_at_its_start_is_hung_in_time_and_leaves_no_process(fake_nvml: FakeNvml) -> None:
    started = time.monotonic()
    answer = fake_nvml.ask("hang=nvmlInitWithFlags\n", deadline_seconds=1.0)
    assert time.monotonic() - started < 1.0 + module.KILL_SECONDS
    assert answer.driver_state == "hung"
    assert answer.driver_detail == "The NVIDIA driver did not answer within 1 s while asking NVML to start (nvmlInitWithFlags)."
    assert answer.missing["driver"] == answer.driver_detail


def test_a_hang_in_one_question_keeps_the_gpus_read_before_it_and_names_the_question(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=3\nhang=nvmlDeviceGetPowerUsage\nhang_gpu=2\n", deadline_seconds=2.0)
    assert answer.driver_state == "hung"
    assert answer.driver_detail == "The NVIDIA driver did not answer within 2 s while asking GPU 2 (nvmlDeviceGetPowerUsage)."
    assert [gpu.index for gpu in answer.gpus] == [0, 1]
    assert (answer.gpus[0].name, answer.driver, answer.cuda) == ("NVIDIA H200", "580.159.04", "13.0")


def test_a_hang_among_the_pairs_keeps_all_gpus(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nhang=nvmlDeviceGetP2PStatus\n", deadline_seconds=2.0)
    assert (answer.driver_state, len(answer.gpus), answer.pairs) == ("hung", 2, ())
    assert "the pairs (nvmlDeviceGetP2PStatus)" in (answer.driver_detail or "")


def test_a_driver_library_that_crashes_is_an_error_with_the_signal_and_the_place(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\ncrash=nvmlDeviceGetUtilizationRates\nhang_gpu=1\n")
    assert answer.driver_state == "error"
    assert answer.driver_detail == "The process that asks NVML died of SIGSEGV while asking GPU 1."
    assert len(answer.gpus) == 1


def test_a_child_that_survives_being_killed_is_named_by_its_pid(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process stuck inside the driver ignores SIGKILL; here the signal is simply not sent.
    monkeypatch.setattr(module.os, "killpg", lambda group, number: None)
    monkeypatch.setattr(module, "KILL_SECONDS", 0.2)
    try:
        answer = fake_nvml.ask("hang=nvmlInitWithFlags\n", deadline_seconds=0.5)
        (stuck,) = module._stuck
        assert f"Process {stuck.pid} cannot be killed" in (answer.driver_detail or "")
        assert answer.driver_state == "hung"
        assert stuck.poll() is None
    finally:
        for child in module._stuck:
            child.kill()
            child.wait(timeout=10)
        module._stuck.clear()


def test_a_question_left_unanswered_ends_its_child(fake_nvml: FakeNvml) -> None:
    with pytest.raises(KeyboardInterrupt), module.Question(60.0, fake_nvml.environment("hang=nvmlInitWithFlags\n")) as question:
        raise KeyboardInterrupt
    child = question._child
    assert child is not None
    assert child.returncode == -9


def test_python_that_cannot_be_started_is_an_error_and_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python3")
    answer = ask_nvml()
    assert answer.driver_state == "error"
    assert "cannot be started" in (answer.driver_detail or "")


def test_a_child_that_fails_tells_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHILD", "raise SystemExit('no such module: msgspec')")
    answer = ask_nvml()
    assert answer.driver_state == "error"
    assert answer.driver_detail == "The process that asks NVML failed while asking NVML to start: no such module: msgspec"


def test_files_of_the_current_folder_are_not_imported_by_the_child(
    fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pynvml", "msgspec", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert fake_nvml.ask("gpus=1\n").driver_state == "ok"


def test_lines_that_are_no_answer_are_passed_over() -> None:
    whole = b'{"driver_state":"ok","driver":"1","asking":"GPU 1"}'
    assert module._last_answer(whole + b"\nsome library speaks\n" + b'{"driver_state":"ok","gpus":[{"ind').driver == "1"
    assert module._last_answer(b"").asking == "NVML to start"

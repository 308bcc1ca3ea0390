from __future__ import annotations

import json
from pathlib import Path

import pytest

import sample_runs
from wiretax.cli.main import run
from wiretax.store.codec import encode


def machine_file(folder: Path) -> Path:
    machine = sample_runs.inspected().machine
    assert machine is not None
    file = folder / "machine.json"
    file.write_bytes(encode(machine))
    return file


def test_a_recorded_machine_is_shown(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--machine", str(machine_file(alone))]) == 0
    assert "P2P is unsupported for all 6 pairs" in capfd.readouterr().out


def test_json_holds_the_machine_and_nothing_measured(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--json", "--machine", str(machine_file(alone))]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["command"] == "inspect"
    assert len(document["machine"]["gpus"]) == 4
    assert document["measurements"]["copies"] == []


@pytest.mark.parametrize("text", ["{", '{"gpus": 3}', '{"schema_version": 99, "run_id": "x"}', "[]"])
def test_a_damaged_machine_is_one_error_with_its_name(alone: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    (alone / "bad.json").write_text(text)
    assert run(["inspect", "--machine", "bad.json"]) == 2
    out, err = capfd.readouterr()
    assert "bad.json" in err
    assert out == ""


def test_a_machine_that_is_nowhere_is_wrong_input(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--machine", "no-such-machine"]) == 2
    assert "no-such-machine" in capfd.readouterr().err


def test_recording_writes_a_file_that_can_be_shown_again(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--record", "mine.json"]) == 0
    assert "written to mine.json" in capfd.readouterr().err
    assert run(["inspect", "--machine", "mine.json"]) == 0
    assert "RECORDED MACHINE" in capfd.readouterr().out


def test_no_redact_without_record_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--no-redact"]) == 2
    assert "--record" in capfd.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_record_that_finds_a_full_disk_costs_the_record_only(alone: Path, capfd: pytest.CaptureFixture[str], form: list[str]) -> None:
    assert run(["inspect", "--machine", str(machine_file(alone)), "--record", "/dev/full", *form]) == 3
    out, err = capfd.readouterr()
    assert "RTX 4090" in out
    assert "/dev/full cannot be written: No space left on device." in err
    assert "Free some space" in err

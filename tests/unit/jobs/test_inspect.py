from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wiretax import __version__
from wiretax.errors import BadDocument, BadInput, UsageError
from wiretax.jobs import inspect as job
from wiretax.jobs.inspect import inspect, load_machine
from wiretax.model.machine import Gpu, Machine, Surroundings
from wiretax.model.reading import unexplained
from wiretax.model.run import Run, Tool
from wiretax.probe.recorded import shipped_machine
from wiretax.store.codec import decode_machine, encode

LIVE = replace(
    shipped_machine("h200x2"),
    origin="live",
    origin_note=None,
    hostname="gpu-node17",
    missing={},
    gpus=(Gpu(index=0, uuid="GPU-3fa85f64-5717-4562-b3fc-2c963f66afa6"),),
    surroundings=Surroundings(network_interfaces={"eth0": "203.0.113.5/24"}),
)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(job, "inspect_machine", lambda **options: LIVE)
    return LIVE


def test_this_machine_is_looked_at_and_nothing_is_measured() -> None:
    run = inspect()
    assert (run.command, run.tool.version) == ("inspect", __version__)
    assert run.machine is not None
    assert run.machine.origin == "live"
    assert run.outcome is not None
    assert run.outcome.status == "complete"
    assert run.measurements.copies == run.measurements.collectives == ()
    assert list(unexplained(run)) == []


def test_a_shipped_machine_is_shown_by_its_name() -> None:
    assert inspect(machine="rtx4090x4").machine == shipped_machine("rtx4090x4")


def test_a_recorded_file_is_shown_again_the_same(tmp_path: Path, live: Machine) -> None:
    path = tmp_path / "box.json"
    inspect(record=path, redacted=False)
    again = inspect(machine=path).machine
    assert again is not None
    assert (again.hostname, again.gpus[0].uuid) == ("gpu-node17", LIVE.gpus[0].uuid)
    assert (again.origin, again.origin_note) == ("recorded", again.origin_note)
    assert (again.origin_note or "").startswith(f"recorded by wiretax {__version__} on ")


def test_a_record_is_redacted_unless_asked_otherwise_and_the_answer_is_not(tmp_path: Path, live: Machine) -> None:
    run = inspect(record=tmp_path / "box.json")
    written = (tmp_path / "box.json").read_text()
    assert "gpu-node17" not in written
    assert "203.0.113" not in written
    assert "3fa85f64" not in written
    assert run.machine == LIVE


def test_recording_a_constructed_machine_does_not_make_it_recorded(tmp_path: Path) -> None:
    inspect(machine="rtx4090x4", record=tmp_path / "box.json")
    again = load_machine(tmp_path / "box.json")
    assert (again.origin, again.origin_note) == ("constructed", shipped_machine("rtx4090x4").origin_note)


def test_a_machine_is_taken_out_of_a_run_file(tmp_path: Path) -> None:
    run = Run(run_id="20261130T221500-abcdef", created_at="2026-11-30T22:15:00+00:00", tool=Tool(version="1"), machine=LIVE)
    path = tmp_path / "run.json"
    path.write_bytes(encode(run))
    assert load_machine(path).hostname == "gpu-node17"


def test_a_file_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no-gpu").write_bytes(encode(LIVE))
    assert load_machine("no-gpu").hostname == "gpu-node17"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not valid JSON"),
        (b'{"something": 1}', "not a recorded machine"),
        (b'{"gpus": [{"index": "zero"}]}', "$.gpus[0].index"),
        (b'{"schema_version": 99, "run_id": "x"}', "$.schema_version is 99"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_damaged_machine_is_one_clear_error_with_file_and_key(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "box.json"
    path.write_bytes(content)
    with pytest.raises(BadDocument) as caught:
        inspect(machine=path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["h300", "h300.json", "folder/h300"])
def test_a_name_that_is_neither_is_answered_in_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        load_machine(name)
    assert name in str(caught.value)


def test_a_record_that_cannot_be_written_is_a_usage_error(tmp_path: Path, live: Machine) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        inspect(record=tmp_path / "file" / "box.json")


def test_a_written_record_decodes_without_reasons_left_out(tmp_path: Path) -> None:
    inspect(record=tmp_path / "box.json")
    machine = decode_machine((tmp_path / "box.json").read_bytes(), "box.json")
    assert list(unexplained(machine)) == []

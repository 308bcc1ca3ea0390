"""The index of runs: a list is quick, always true to the files, and never in the way."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import sample_runs
from wiretax.cli.main import run
from wiretax.store.codec import encode
from wiretax.store.folder import save_run
from wiretax.store.index import INDEX_NAME, summaries, summarize


def keep(folder: Path, count: int = 3) -> list[Path]:
    paths = []
    for k in range(count):
        run = replace(sample_runs.four_4090(), run_id=f"2026113{k}T000000-00000{k}", created_at=f"2026-11-3{k}T00:00:00+00:00")
        paths.append(save_run(run, folder / f"{run.run_id}.json"))
    return paths


def test_a_summary_says_what_the_run_says(tmp_path: Path) -> None:
    found = summarize(save_run(sample_runs.four_4090(), tmp_path / "r.json"))
    assert found.gpus == "4 x NVIDIA GeForce RTX 4090"
    assert found.num_gpus == 4
    assert found.decision == "use_one"
    assert found.keep_box is False
    assert found.worst == "problem"
    assert found.codes == ("p2p-unsupported-chipset", "pair-slow", "straggler-thermal")
    assert found.busbw_bytes_per_second == pytest.approx(5.9e9, rel=0.05)
    assert found.status == "complete"


def test_a_machine_without_gpus_and_verdict_has_a_summary_too(tmp_path: Path) -> None:
    assert summarize(save_run(sample_runs.cpu_only(), tmp_path / "r.json")).gpus == "no GPU"
    assert summarize(save_run(sample_runs.inspected(), tmp_path / "i.json")).decision is None


def test_runs_come_newest_first_and_the_index_is_written(tmp_path: Path) -> None:
    keep(tmp_path)
    assert [one.run_id[:8] for one in summaries(tmp_path)] == ["20261132", "20261131", "20261130"]
    assert (tmp_path / INDEX_NAME).is_file()
    assert summaries(tmp_path) == summaries(tmp_path)


def test_the_second_list_reads_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)
    first = summaries(tmp_path)
    monkeypatch.setattr("wiretax.store.index.summarize", lambda path: pytest.fail(f"{path} was read again"))
    assert summaries(tmp_path) == first


def test_changed_new_and_removed_files_are_noticed(tmp_path: Path) -> None:
    paths = keep(tmp_path)
    summaries(tmp_path)
    run = replace(sample_runs.four_4090(), run_id="20261130T000000-000000", tags=("kept",))
    save_run(run, paths[0])
    paths[1].unlink()
    save_run(replace(run, run_id="new"), tmp_path / "new.json")
    found = {one.run_id: one for one in summaries(tmp_path)}
    assert set(found) == {"20261130T000000-000000", "20261132T000000-000002", "new"}
    assert found["20261130T000000-000000"].tags == ("kept",)


@pytest.mark.parametrize("rubbish", [b"", b"\x00\xff", b"\x81\xa1"])
def test_a_damaged_index_costs_time_and_nothing_else(tmp_path: Path, rubbish: bytes) -> None:
    keep(tmp_path)
    whole = summaries(tmp_path)
    (tmp_path / INDEX_NAME).write_bytes(rubbish)
    assert summaries(tmp_path) == whole


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"run_id": 3}', b"\xff\xfe", b'{"run_id":"x","schema_version":1,"findings":[{}]}'])
def test_a_file_that_is_no_run_is_listed_with_its_problem(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    (only,) = summaries(tmp_path)
    assert only.run_id == "bad"
    assert only.problem


def test_no_folder_is_no_runs(tmp_path: Path) -> None:
    assert summaries(tmp_path / "absent") == []


def test_hidden_and_half_written_files_are_no_runs(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    (tmp_path / ".r.json.x.tmp").write_text("{")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "folder").mkdir()
    assert len(summaries(tmp_path)) == 1


def test_ten_thousand_runs_are_listed_within_a_second(tmp_path: Path) -> None:
    data = encode(sample_runs.inspected(), indent=False)
    for k in range(10_000):
        name = f"2026{k:06}"
        path = tmp_path / f"{name}.json"
        path.write_bytes(data.replace(b"20261130T221500-4f2a9c", name.encode()))
    assert len(summaries(tmp_path)) == 10_000
    took = []
    for _ in range(3):
        before = time.perf_counter()
        found = summaries(tmp_path)
        took.append(time.perf_counter() - before)
    assert len({one.run_id for one in found}) == 10_000
    assert min(took) < 1
    os.utime(tmp_path / "2026000007.json")
    before = time.perf_counter()
    assert len(summaries(tmp_path)) == 10_000
    assert time.perf_counter() - before < 1.5


@pytest.mark.parametrize("command", [["runs"], ["runs", "list"], ["runs", "export"], ["runs", "prune", "--keep", "1"], ["report", "2026"]])
@pytest.mark.parametrize("loop", [True, False])
def test_a_home_that_is_no_folder_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: list[str], loop: bool
) -> None:
    home = tmp_path / "home"
    if loop:
        home.symlink_to(home)
    else:
        home.write_text("")
    monkeypatch.setenv("WIRETAX_HOME", str(home))
    assert run(command) == 2
    err = capfd.readouterr().err
    assert "cannot be read" in err
    assert "WIRETAX_HOME" in err

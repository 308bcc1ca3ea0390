"""Runs on disk: written whole or not at all, found by id, and never lost to a bad name."""

import os
import threading
from datetime import UTC, datetime

import pytest

from wiretax.errors import BadDocument, BadInput, UsageError
from wiretax.model.run import Run, Tool
from wiretax.store import folder
from wiretax.store.codec import encode


def make_run(run_id):
    return Run(run_id=run_id, created_at="2026-11-30T00:00:00+00:00", tool=Tool(version="1"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRETAX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    assert folder.runs_folder() == tmp_path / "home" / "runs"
    monkeypatch.delenv("WIRETAX_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert folder.runs_folder() == tmp_path / "xdg" / "wiretax" / "runs"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder.runs_folder() == tmp_path / ".local" / "share" / "wiretax" / "runs"


def test_ids_sort_by_time_and_differ_within_a_second():
    moment = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)
    first, second = folder.new_run_id(moment), folder.new_run_id(moment)
    assert first.startswith("20261130T010203-")
    assert first != second


def test_a_saved_run_is_found_by_path_by_id_and_by_the_beginning_of_its_id():
    path = folder.save_run(make_run("20261130T010203-aaaaaa"))
    folder.save_run(make_run("20261130T010203-bbbbbb"))
    for name in (path, str(path), "20261130T010203-aaaaaa", "20261130T010203-a"):
        assert folder.load_run(name).run_id == "20261130T010203-aaaaaa"
    with pytest.raises(BadInput, match="2 runs begin with"):
        folder.load_run("20261130")
    with pytest.raises(BadInput, match="no run of that id"):
        folder.load_run("nothing")


def test_runs_are_listed_oldest_first_and_half_written_ones_are_not_listed(home):
    assert list(folder.list_run_files()) == []
    folder.save_run(make_run("b"))
    folder.save_run(make_run("a"))
    (home / "runs" / ".c.json.x.tmp").write_text("half")
    assert [path.stem for path in folder.list_run_files()] == ["a", "b"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(home, monkeypatch):
    path = folder.save_run(make_run("a"))
    before = path.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.save_run(make_run("a"))
    assert path.read_bytes() == before
    assert [entry.name for entry in (home / "runs").iterdir()] == ["a.json"]


def test_readers_never_see_half_a_file(home):
    path = folder.save_run(make_run("a"))
    seen = set()
    stop = threading.Event()

    def read():
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        folder.save_run(make_run("a"))
    stop.set()
    reader.join()
    assert seen == {encode(make_run("a"))}


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    monkeypatch.delenv("WIRETAX_HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(folder.os.path, "expanduser", lambda path: path)  # as for a user number that nobody knows
    with pytest.raises(UsageError, match="has no home") as caught:
        folder.save_run(make_run("a"))
    assert "WIRETAX_HOME" in caught.value.do


def test_a_link_stays_a_link_and_the_file_keeps_who_may_read_it(tmp_path):
    target, link = tmp_path / "real.json", tmp_path / "latest.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    folder.save_run(make_run("a"), link)
    assert link.is_symlink()
    assert folder.load_run(target).run_id == "a"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        folder.save_run(make_run("a"), tmp_path / "a.json")
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600


def test_a_name_of_the_greatest_length_is_no_trouble(tmp_path):
    name = "x" * 250 + ".json"
    folder.save_run(make_run("a"), tmp_path / name)
    assert folder.load_run(tmp_path / name).run_id == "a"
    with pytest.raises(BadInput, match="cannot be read"):
        folder.load_run(tmp_path / ("x" * 300 + ".json"))


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(BadInput, match="is a directory"):
        folder.load_run(tmp_path)
    with pytest.raises(BadInput, match="There is no file"):
        folder.load_run(tmp_path / "gone.json")
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    with pytest.raises(BadInput, match="cannot be read"):
        folder.load_run(loop)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadDocument, match="line 1"):
        folder.load_run(tmp_path / "bad.json")


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_an_empty_name_is_no_run_even_where_there_is_only_one(name):
    folder.save_run(make_run("20261130T010203-aaaaaa"))
    with pytest.raises(BadInput, match="names no run"):
        folder.find_run(name)


@pytest.mark.parametrize("what", ["file", "loop", "below a file"])
def test_a_folder_of_runs_that_is_none_is_said(home, what):
    if what == "loop":
        home.symlink_to(home)
    else:
        (home if what == "below a file" else home.parent).mkdir(exist_ok=True)
        (home / "runs" if what == "below a file" else home).write_text("")
    with pytest.raises(BadInput, match=r"folder of runs .* cannot be read"):
        list(folder.list_run_files())
    with pytest.raises(BadInput, match=r"folder of runs .* cannot be read"):
        folder.find_run("2026")

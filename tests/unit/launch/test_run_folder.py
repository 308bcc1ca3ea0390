"""No launch leaves its folder behind, and the next one removes what a killed process could not."""

import os
import tempfile
import time

import pytest

from wiretax.launch.run_folder import STALE_SECONDS, run_folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def old(folder):
    moment = time.time() - STALE_SECONDS - 60
    os.utime(folder, (moment, moment))


def test_the_folder_is_private_and_gone_afterwards(place):
    with run_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "tmp").mkdir()
        (folder / "tmp" / "result").write_text("x")
    assert list(place.iterdir()) == []


def test_it_is_gone_after_an_exception_too(place):
    with pytest.raises(KeyboardInterrupt), run_folder():
        raise KeyboardInterrupt
    assert list(place.iterdir()) == []


def test_an_old_folder_whose_process_was_killed_is_removed(place):
    left = place / "wiretax-killed"
    left.mkdir()
    (left / "lock").touch()
    (left / "results.0.jsonl").write_text("x")
    old(left)
    with run_folder():
        assert not left.exists()


def test_a_folder_in_use_a_young_one_and_those_of_others_are_left_alone(place):
    (place / "wiretax-young").mkdir()
    (place / "wiretax-young" / "lock").touch()
    (place / "wiretax-notes").mkdir()  # no lock in it: not one of ours
    (place / "other").mkdir()
    (place / "wiretax-link").symlink_to(place / "other")
    old(place / "wiretax-notes")
    old(place / "other")
    with run_folder() as first:
        old(first)
        with run_folder():
            assert first.exists()
    assert {path.name for path in place.iterdir()} == {"wiretax-young", "wiretax-notes", "other", "wiretax-link"}


def test_without_any_folder_that_can_be_written_the_system_says_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(OSError), run_folder():
        pass

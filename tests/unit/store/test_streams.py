"""Pipes and devices given as files are used as they are, and one with nobody at the other end does not hold us up."""

import os
import threading
from pathlib import Path

import pytest

from wiretax.errors import BadInput
from wiretax.store import streams
from wiretax.store.folder import read_bytes, write_atomically


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_a_document_comes_through_a_named_pipe_whole(pipe):
    data = b"x" * 300_000
    writer = in_thread(lambda: pipe.write_bytes(data))
    assert read_bytes(pipe) == data
    writer.join()


def test_a_document_comes_through_the_shells_own_pipe():
    reading, writing = os.pipe()
    os.write(writing, b"{}")
    os.close(writing)
    assert read_bytes(Path(f"/dev/fd/{reading}")) == b"{}"
    os.close(reading)


def test_a_pipe_into_which_nobody_writes_is_said_so_in_time(pipe, monkeypatch):
    monkeypatch.setattr(streams, "WRITER_SECONDS", 0.05)
    with pytest.raises(BadInput, match="into which nobody writes"):
        read_bytes(pipe)


def test_a_pipe_that_brings_too_much_is_refused(pipe):
    def write():
        with pytest.raises(BrokenPipeError):
            pipe.write_bytes(b"x" * 10_000_000)

    writer = in_thread(write)
    with pytest.raises(BadInput, match="more than 1000 bytes"):
        streams.read_pipe(pipe, 1000)
    writer.join()


def test_a_device_is_no_document():
    with pytest.raises(BadInput, match="is a device"):
        read_bytes(Path("/dev/zero"))


def test_a_pipe_is_written_to_and_stays_a_pipe(pipe):
    got = []
    ready = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(ready, True)

    def read():
        with open(ready, "rb") as file:
            got.append(file.read())

    writer = os.open(pipe, os.O_WRONLY)  # holds the pipe open until the reader waits for more
    reader = in_thread(read)
    write_atomically(pipe, b"y" * 300_000)
    os.close(writer)
    reader.join()
    assert got == [b"y" * 300_000]
    assert streams.is_stream(pipe)
    assert [path.name for path in pipe.parent.iterdir()] == ["pipe"]


def test_a_pipe_that_nobody_reads_is_an_error_at_once(pipe):
    with pytest.raises(OSError, match="nobody reads from it"):
        write_atomically(pipe, b"z")


def test_a_reader_that_stops_reading_is_given_up(pipe, monkeypatch):
    monkeypatch.setattr(streams, "READER_SECONDS", 0.05)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="nobody reads from it"):
        streams.write_stream(pipe, b"x" * 1_000_000)
    os.close(reading)


@pytest.mark.parametrize(("name", "is_one"), [("/dev/null", True), ("/dev/stdout", True), ("/tmp", False), ("/no/where", False)])
def test_devices_are_streams_and_folders_are_not(name, is_one, tmp_path):
    assert streams.is_stream(Path(name)) is is_one
    assert not streams.is_stream(tmp_path / ("x" * 300))


def test_nothing_is_put_in_the_place_of_dev_null():
    path = Path("/dev/null")
    before = path.stat()
    write_atomically(path, b"gone")
    assert (path.stat().st_mode, path.stat().st_rdev) == (before.st_mode, before.st_rdev)

"""Whatever a user names: read, or refused with a clear word, and never at the cost of the other files."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zlib
from pathlib import Path

import pytest

from wiretax.probe.readers import input as input_module
from wiretax.probe.readers import unpack
from wiretax.probe.readers.input import read_bytes, read_files
from wiretax.probe.readers.nccl_log import FORMAT
from wiretax.probe.readers.piece import Problem

LOG = (
    b"h:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\nh:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
)


def kinds(data: bytes) -> list[str]:
    pieces, _ = read_bytes("x", data)
    return [
        observation.kind
        for piece in pieces
        for observation in piece.observations
        if observation.kind in ("nccl.environment", "nccl.transport")
    ]


def unreadable(data: bytes) -> Problem:
    _, problems = read_bytes("x", data)
    found = [problem for problem in problems if problem.kind == "unreadable"]
    assert len(found) == 1, problems
    return found[0]


@pytest.mark.parametrize(
    "data",
    [
        LOG,
        LOG.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + LOG,
        LOG.decode().encode("utf-16"),
        LOG.decode().encode("utf-16-le"),
        LOG.decode().encode("utf-16-be"),
        b"\xfe\xff" + LOG.decode().encode("utf-16-be"),
        LOG.decode().encode("utf-32"),
        LOG + "stäte\n".encode("latin-1"),
        gzip.compress(LOG),
        gzip.compress(LOG[:40]) + gzip.compress(LOG[40:]),
        gzip.compress(LOG.decode().encode("utf-16")),
        gzip.compress(LOG) + b"\0" * 512,
        LOG.replace(b"NCCL INFO", b"\x1b[36mNCCL INFO\x1b[0m"),
        LOG.replace(b"->", b"-&gt;"),
        LOG.rstrip(b"\n"),
        b"  1%|#| 1/9\r  2%|#| 2/9\r" + LOG,
    ],
)
def test_every_encoding_and_wrapping_gives_the_same_facts(data: bytes) -> None:
    assert kinds(data) == ["nccl.environment", "nccl.transport"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\n\t\n", "nothing but blank lines"),
        (gzip.compress(b""), "is empty"),
        (b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
        (b"PK\x03\x04" + b"\0" * 100, "a ZIP archive"),
        (b"%PDF-1.7", "a PDF"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"\x7fELF\x02\x01", "a program"),
        (bytes(range(256)) * 40, "binary file"),
        (pickle.dumps({"entries": []}), "pickle"),
    ],
)
def test_what_is_no_text_is_named(data: bytes, words: str) -> None:
    problem = unreadable(data)

    assert words in problem.text
    assert problem.do


def test_a_truncated_archive_is_read_as_far_as_it_goes() -> None:
    lines = b"".join(b"h:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to %d\n" % number for number in range(20_000))
    packed = gzip.compress(lines)
    pieces, problems = read_bytes("x", packed[: len(packed) // 2])

    assert any(piece.format == FORMAT for piece in pieces)
    assert [problem.text for problem in problems if problem.kind == "unreadable"] == [
        "x ends in the middle of its gzip data; what is there was read."
    ]


def test_a_damaged_archive_is_read_up_to_the_damage() -> None:
    lines = b"".join(b"h:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to %d\n" % (number * 7919) for number in range(50_000))
    packed = bytearray(gzip.compress(lines))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    pieces, problems = read_bytes("x", bytes(packed))

    assert any(piece.format == FORMAT for piece in pieces)
    assert any("damaged gzip" in problem.text for problem in problems)


def test_a_bomb_is_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_FREE_EXPANSION", 4 * 2**20)
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(b"a line of text\n" * 70_000) for _ in range(200)) + squeeze.flush()
    assert len(bomb) < 2**20
    taken = []

    def counting(name: str, data: bytes, problems: list[Problem]) -> object:
        for chunk in unpack.chunks_of(name, data, problems):
            taken.append(len(chunk))
            yield chunk

    monkeypatch.setattr(input_module, "chunks_of", counting)
    _, problems = read_bytes("bomb.gz", bomb)

    assert sum(taken) < 8 * 2**20
    assert any("expands more than 300 times" in problem.text for problem in problems)


def test_a_log_that_packs_well_is_no_bomb() -> None:
    log = b"".join(
        b"node-%03d:%d:%d [%d] NCCL INFO Channel 00/0 : %d[0] -> 1[1] via P2P/IPC\n" % (r // 8, r, r, r % 8, r) for r in range(100_000)
    )
    _, problems = read_bytes("x", gzip.compress(log))

    assert [problem for problem in problems if problem.kind == "unreadable"] == []


def test_bad_names_are_reported_and_good_ones_still_read(tmp_path: Path) -> None:
    good = tmp_path / "good.log"
    good.write_bytes(LOG)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    empty = tmp_path / "empty"
    empty.touch()
    names = [str(tmp_path), str(tmp_path / "absent"), str(loop), str(empty), "/dev/zero", "a\0b", "n" * 5000, str(good)]
    pieces, problems = read_files(names)

    assert [piece.source for piece in pieces if piece.format == FORMAT] == [str(good)]
    texts = [problem.text for problem in problems if problem.kind == "unreadable"]
    assert len(texts) == 7
    for words in ("is a folder", "does not exist", "leads back to itself", "is empty", "is a device", "cannot be used", "cannot be opened"):
        assert any(words in text for text in texts), (words, texts)
    assert all(problem.do for problem in problems if problem.kind == "unreadable")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(LOG)
    secret.chmod(0)

    assert "may not be read" in read_files([str(secret)])[1][0].text


def test_standard_input_is_read_as_bytes_and_stays_open() -> None:
    stream = io.BytesIO(LOG.decode().encode("utf-16"))
    pieces, problems = read_files(["-", "-"], stdin=stream)

    assert [piece.source for piece in pieces] == ["-"]
    assert problems == []
    assert not stream.closed


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, LOG)
    os.close(writing)
    pieces, _ = read_files([f"/dev/fd/{reading}"])
    os.close(reading)

    assert [piece.format for piece in pieces] == [FORMAT]


def test_a_line_of_ten_megabytes_is_left_out_and_the_rest_is_read() -> None:
    data = LOG + b"x" * 10_000_000 + b"\n" + LOG
    pieces, problems = read_bytes("x", data)

    assert [(problem.line, problem.text) for problem in problems if problem.kind == "unreadable"] == [
        (3, "Line 3 of x is longer than 4 MiB: it was left out."),
    ]
    transport = next(entry for piece in pieces for entry in piece.observations if entry.kind == "nccl.transport")
    assert transport.values["lines"] == 2
    assert next(entry for piece in pieces for entry in piece.observations if entry.kind == "nccl.log").values["last_line"] == 5


def test_a_progress_bar_of_ten_megabytes_on_one_line_is_no_trouble() -> None:
    bar = b"".join(b"\r %3d%%|####| %d/999 [00:01<00:02, 3.1it/s]" % (number % 100, number) for number in range(250_000))
    pieces, problems = read_bytes("x", bar + b"\n" + LOG)

    assert [problem for problem in problems if problem.kind == "unreadable"] == []
    assert next(entry for piece in pieces for entry in piece.observations if entry.kind == "nccl.environment").line == 2


def test_lines_that_nobody_knows_are_shown_in_runs() -> None:
    text = b"how do I fix this\nplease help\n\n" + LOG + b"thanks in advance\n"
    _, problems = read_bytes("x", text)

    assert [(problem.kind, problem.line, problem.count, problem.text) for problem in problems] == [
        ("not_understood", 1, 2, "how do I fix this"),
        ("not_understood", 6, 1, "thanks in advance"),
    ]


def test_rulers_prompts_fences_and_quotes_are_no_trouble() -> None:
    text = b"```\n$ torchrun train.py\nroot@box:~# cat log\n=====\n> > \n[1,2]<stdout>:\n" + LOG + b"```\n"

    assert read_bytes("x", text)[1] == []


def test_a_text_of_nothing_but_rulers_says_that_nothing_is_known() -> None:
    assert [problem.text for problem in read_bytes("x", b"=====\n$ ls\n")[1]] == ["Nothing in it is known to any reader."]


def test_endless_unknown_text_is_summed_up() -> None:
    text = b"".join(b"step %d\n\n# Avg bus bandwidth    : 1.5\n" % number for number in range(200))
    _, problems = read_bytes("x", text)

    assert len(problems) == 51
    assert problems[-1].text == "and more such lines"
    assert sum(problem.count for problem in problems) == 200

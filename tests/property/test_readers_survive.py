"""Damaged text never raises, never hangs, and never yields a value without a unit, a reason or a number."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzz.mutations import mutate, one_number, seeds
from fuzz.soundness import faults
from wiretax.probe.readers import DOCUMENT_READERS, READERS
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.piece import Text

CORPUS = seeds()
SECONDS_A_MEGABYTE = 1.0
FREE_SECONDS = 1.0

SLOW_START = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def check(data: bytes) -> None:
    start = time.process_time()
    pieces, problems = read_bytes("x", data)
    assert time.process_time() - start < FREE_SECONDS + SECONDS_A_MEGABYTE * len(data) / 1e6
    assert faults(pieces) == []
    assert all(problem.text for problem in problems)


@given(seed=st.integers(0, 2**32), base=st.sampled_from(CORPUS))
@SLOW_START
def test_mutated_cases_and_recordings(seed: int, base: bytes) -> None:
    check(mutate(random.Random(seed), CORPUS, base))


@given(seed=st.integers(0, 2**32), base=st.sampled_from([text[:20_000] for text in CORPUS]))
@SLOW_START
def test_one_number_that_cannot_be(seed: int, base: bytes) -> None:
    check(one_number(random.Random(seed), base))


@given(data=st.binary(max_size=2000))
@example(b"\x1f\x8b")
@example(b"\xff\xfe")
@example(b"\x80\x04")
@example(b"{" * 5000)
@SLOW_START
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(lines=st.lists(st.text(max_size=200), max_size=40))
@SLOW_START
def test_any_text_given_to_each_reader(lines: list[str]) -> None:
    clean = tuple(line.replace("\n", " ") for line in lines)
    text = Text(source="x", lines=clean, numbers=tuple(range(1, len(clean) + 1)))
    for read in (*DOCUMENT_READERS, *READERS):
        for piece in read(text):
            assert piece.understood <= set(text.numbers)
            assert all(line in text.numbers for line, _ in piece.damaged)


@pytest.mark.parametrize(
    "line",
    [
        b"a" * 60_000,
        b" " * 60_000,
        b"0[0] -> " * 8_000,
        b"GPU0\t" * 12_000,
        b"1 " * 30_000,
        b"[" * 60_000,
        b"(a=1, " * 9_000,
        b"https://" * 8_000,
        b"Test " * 12_000,
        b": " * 30_000,
    ],
)
@pytest.mark.parametrize(
    "prefix", [b"", b"h:1:2 [0] NCCL INFO ", b"h:1:2 [0] NCCL WARN ", b"#  Rank  0 ", b"GPU0 ", b"Device=", b"[Rank 0] "]
)
def test_long_lines_of_one_kind_take_linear_time(line: bytes, prefix: bytes) -> None:
    data = (prefix + line + b"\n") * 3
    start = time.process_time()
    read_bytes("x", data)

    assert time.process_time() - start < 1.5

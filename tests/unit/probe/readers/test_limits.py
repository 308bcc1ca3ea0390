"""Process limits of every shell."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.model.machine import Surroundings
from wiretax.model.reading import unexplained
from wiretax.probe.readers.limits import read
from wiretax.probe.readers.piece import Piece


def around(piece: Piece) -> Surroundings:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.surroundings


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_the_case_of_a_small_locked_memory_limit() -> None:
    piece = read(case("C38_limits.txt"))[0]
    assert around(piece).memlock_bytes == 8192 * 1024
    assert piece.understood == {1, 2}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("max locked memory           (kbytes, -l) 8192", 8192 * 1024),
        ("max locked memory       (kbytes, -l) 64", 64 * 1024),
        ("max locked memory           (kbytes, -l) unlimited", None),
        ("-l: locked-in-memory size (kbytes)  64", 64 * 1024),
        ("locked memory        (kbytes) 65536", 65536 * 1024),
        ("Maximum size that may be locked into memory              (kB, -l) 8192", 8192 * 1024),
        ("Max locked memory         67108864             67108864             bytes", 67108864),
        ("Max locked memory         unlimited            unlimited            bytes", None),
    ],
)
def test_every_shell_spells_the_limit_in_its_own_way(line: str, expected: int | None) -> None:
    found = around(read(text(f"core file size (blocks, -c) 0\n{line}\nopen files (-n) 1048576"))[0])
    assert found.memlock_bytes == expected
    assert found.missing.get("memlock_bytes") == ("unlimited" if expected is None else None)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("* soft memlock unlimited", None),
        ("*  hard  memlock  65536", 65536 * 1024),
        ("LimitMEMLOCK=infinity", None),
        ("LimitMEMLOCK=64M", 64 * 2**20),
    ],
)
def test_a_configured_limit_is_not_the_limit_in_force(line: str, size: int | None) -> None:
    piece = read(text(line))[0]
    assert values(piece, "limit.memlock") == [{"bytes": size, "unlimited": size is None, "which": "configured"}]
    assert around(piece).memlock_bytes is None


@pytest.mark.parametrize("content", ["", "the lock is locked", "ulimit is a shell builtin", "8192"])
def test_other_text_sets_no_limit(content: str) -> None:
    assert read(text(content)) == ()


def test_a_warning_of_libibverbs_states_the_limit() -> None:
    (entry,) = [entry for piece in read(text("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.\n")) for entry in piece.observations]
    assert (entry.values["bytes"], entry.values["warned"]) == (65536, True)


def test_a_commented_line_of_the_configuration_says_nothing() -> None:
    piece = read(text("#*               soft    memlock         64\n* hard memlock unlimited"))[0]
    assert values(piece, "limit.memlock") == [{"bytes": None, "unlimited": True, "which": "configured"}]
    assert piece.understood == {2}

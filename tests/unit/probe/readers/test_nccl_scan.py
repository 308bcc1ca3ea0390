"""The scanner: shapes, caps, and that speed never costs a fact."""

from __future__ import annotations

import random
import string

import pytest

from wiretax.probe.readers import nccl_scan
from wiretax.probe.readers.nccl_scan import Scanner


def scan(lines: list[bytes], chunk: int = 100_000) -> Scanner:
    scanner = Scanner()
    for start in range(0, len(lines), chunk):
        part = lines[start : start + chunk]
        scanner.feed(part, range(start + 1, start + 1 + len(part)))
    return scanner


def mixed_log(count: int) -> list[bytes]:
    rng = random.Random(7)
    kinds = [
        "host-{h}:{r}:{r} [{d}] NCCL INFO Channel {c:02d}/0 : {r}[{d}] -> {n}[{e}] via P2P/CUMEM",
        "host-{h}:{r}:{r} [{d}] NCCL INFO Channel {c:02d}/0 : {r}[{d}] -> {n}[{e}] [send] via NET/IB/{d}/GDRDMA",
        "host-{h}:{r}:{r} [{d}] NCCL INFO Connected to proxy localRank {d} -> connection 0x7f{r:08x}",
        "host-{h}:{r}:{r} [{d}] NCCL INFO NCCL_DEBUG set by environment to {d}",
        "\nhost-{h}:{r}:{r} [{d}] misc/socket.cc:{c} NCCL WARN connect to 10.0.0.{d}<50> returned Connection refused, exceeded",
        "step {r} loss 3.{c}",
    ]
    text = "\n".join(
        rng.choice(kinds).format(
            h=rng.randrange(4), r=rng.randrange(32), d=rng.randrange(8), e=rng.randrange(8), c=rng.randrange(24), n=rng.randrange(32)
        )
        for _ in range(count)
    )
    return text.encode().split(b"\n")


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_size_of_chunks_changes_nothing(chunk: int) -> None:
    lines = mixed_log(3000)
    whole, parts = scan(lines), scan(lines, chunk)

    assert {key: (entry.line, entry.count) for key, entry in whole.facts.items()} == {
        key: (entry.line, entry.count) for key, entry in parts.facts.items()
    }
    assert {key: (entry.line, entry.count) for key, entry in whole.connections.items()} == {
        key: (entry.line, entry.count) for key, entry in parts.connections.items()
    }
    assert (whole.nccl_lines, whole.first_line, whole.last_line) == (parts.nccl_lines, parts.first_line, parts.last_line)
    assert whole.text_lines == parts.text_lines


def test_counts_are_those_of_a_line_by_line_look() -> None:
    lines = mixed_log(3000)
    scanner = scan(lines)

    assert scanner.nccl_lines == sum(b" NCCL " in line for line in lines)
    assert sum(entry.count for entry in scanner.connections.values()) == sum(b" via " in line for line in lines)
    assert sum(entry.count for entry in scanner.facts.values()) == sum(b"WARN" in line or b"set by" in line for line in lines)
    assert scanner.text_lines == [line for line in lines if b"NCCL" not in line]
    first = min(entry.line for entry in scanner.connections.values())
    assert b" via " in lines[first - 1]


def test_random_host_names_do_not_fill_the_memory_and_lose_nothing() -> None:
    rng = random.Random(1)
    hosts = ["pod-" + "".join(rng.choices(string.ascii_lowercase, k=8)) for _ in range(3000)]
    lines = [
        f"{host}:1:2 [0] NCCL INFO {message}".encode()
        for host in hosts
        for message in ("cudaDriverVersion 12080", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", "x")
    ]
    scanner = scan(lines, 500)

    assert len(scanner.facts) == 3000
    assert len(scanner.connections) == 3000
    assert len(scanner._known) < 3 * nccl_scan._HEADLESS_FROM


def test_lines_that_all_differ_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_scan, "_MAX_FACTS_A_SHAPE", 100)
    monkeypatch.setattr(nccl_scan, "_MAX_CONNECTIONS", 50)
    monkeypatch.setattr(nccl_scan, "_MAX_SHAPES", 20)
    lines = [f"h:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to {number}".encode() for number in range(500)]
    lines += [f"h:1:2 [0] NCCL INFO Channel 00/0 : {number}[0] -> 1[1] via P2P/IPC".encode() for number in range(500)]
    lines += [("text " + "ghijk"[number % 5] * number).encode() for number in range(300)]
    scanner = scan(lines, 100)

    assert len(scanner.facts) == 100
    assert scanner.facts_left_out == 400
    assert len(scanner.connections) == 50
    assert scanner.connections_left_out == 450
    assert scanner.nccl_lines == 1000


def test_a_long_training_log_keeps_its_telling_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_scan, "_MAX_TEXT_LINES", 200)
    monkeypatch.setattr(nccl_scan, "_MAX_TEXT_LINES_A_SHAPE", 50)
    lines = [b"step %d loss 2.5" % number for number in range(2000)]
    lines += [f"note {'qwxyz'[number % 5] * (number // 5 + 1)}".encode() for number in range(400)]
    lines.append(b"[E ProcessGroupNCCL.cpp:737] [Rank 7] Watchdog caught collective operation timeout")
    scanner = scan(lines)

    assert scanner.text_lines.count(b"step 3 loss 2.5") == 1
    assert sum(line.startswith(b"step") for line in scanner.text_lines) == 50
    assert scanner.text_lines[-1].startswith(b"[E ProcessGroupNCCL")
    assert scanner.text_left_out == 2000 - 50 + 400 - 150


def test_text_keeps_its_line_numbers() -> None:
    scanner = scan([b"one", b"h:1:2 [0] NCCL INFO x", b"three", b"", b"five"])

    assert list(zip(scanner.text_numbers, scanner.text_lines, strict=True)) == [(1, b"one"), (3, b"three"), (4, b""), (5, b"five")]


@pytest.mark.parametrize("prefix", ["", "10:0{0} ", "[1,{0}]<stdout>:"])
def test_links_of_the_graph_block_hang_on_the_gpu_above_them_even_when_ranks_interleave(prefix: str) -> None:
    messages = [
        "h:1:1 [0] NCCL INFO + PCI[24.0] - GPU/1000 (0)",
        "h:2:2 [1] NCCL INFO + PCI[24.0] - GPU/2000 (1)",
        "h:1:1 [0] NCCL INFO               + NVL[40.0] - GPU/2000",
        "h:2:2 [1] NCCL INFO               + NVL[40.0] - GPU/1000",
    ]
    lines = [(prefix.format(number % 2) + message).encode() for number, message in enumerate(messages)]

    assert [(entry.source, entry.line) for entry in scan(lines).facts.values() if entry.source] == [(b"GPU/1000", 3), (b"GPU/2000", 4)]


def test_collective_calls_are_counted_and_the_last_one_kept() -> None:
    lines = [
        (
            f"h:1:2 [0] NCCL INFO AllReduce: opCount {number:x} sendbuff 0x7f recvbuff 0x7f count 8 datatype 7 op "
            f"0 root 0 comm 0x5 [nranks=4] stream 0x2"
        ).encode()
        for number in range(5000)
    ]
    scanner = scan(lines, 700)

    assert scanner.calls["AllReduce"].count == 5000
    assert scanner.calls["AllReduce"].line == 5000
    assert b"opCount 1387" in scanner.calls["AllReduce"].text

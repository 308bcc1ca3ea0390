"""Launcher prefixes come off, and the lines of different ranks stay apart."""

from __future__ import annotations

import pytest

from pasted_text import text
from wiretax.probe.readers.streams import streams


def bodies(content: str) -> list[list[str]]:
    return [[line.text for line in stream.lines] for stream in streams(text(content))]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("(head, rank=0, pid=17266) GPU0     X      NV12", "GPU0     X      NV12"),
        ("(WorkerDict pid=4711) GPU0 X", "GPU0 X"),
        ("(VllmWorkerProcess pid=99) GPU0 X", "GPU0 X"),
        ("(worker1, rank=1, pid=55, ip=10.0.0.2) [host-b:2]: GPU0 X", "GPU0 X"),
        ("[1,2]<stdout>:GPU0 X", "GPU0 X"),
        ("[1,2]<stderr>: GPU0 X", "GPU0 X"),
        ("[rank3]: GPU0 X", "GPU0 X"),
        ("[default0]:GPU0 X", "GPU0 X"),
        ("> > > GPU0 X", "GPU0 X"),
        ("2024-05-01T10:00:00.123456Z GPU0 X", "GPU0 X"),
        ("[2024-05-01 10:00:00,123] GPU0 X", "GPU0 X"),
        ("> (head, rank=0, pid=1) 2024-05-01 10:00:00 GPU0 X", "GPU0 X"),
    ],
)
def test_a_launcher_prefix_comes_off(line: str, body: str) -> None:
    assert bodies(line) == [[body]]


def test_interleaved_ranks_become_separate_streams_with_their_own_line_numbers() -> None:
    content = "[1,0]<stdout>:a0\n[1,1]<stdout>:a1\n[1,0]<stdout>:b0\n[1,1]<stdout>:b1"
    found = streams(text(content))
    assert [[(line.number, line.text) for line in stream.lines] for stream in found] == [[(1, "a0"), (3, "b0")], [(2, "a1"), (4, "b1")]]


def test_a_host_in_front_of_every_line_names_the_stream() -> None:
    content = "\n".join(f"{host}: line {number}" for number in range(3) for host in ("node-1", "node-2"))
    found = streams(text(content))
    assert [stream.host for stream in found] == ["node-1", "node-2"]
    assert [line.text for line in found[1].lines] == ["line 0", "line 1", "line 2"]


def test_task_numbers_of_srun_are_no_hosts() -> None:
    content = "\n".join(f"{task}: row {number}" for task in (0, 1) for number in range(3))
    assert [stream.host for stream in streams(text(content))] == [None, None]


@pytest.mark.parametrize(
    "content",
    [
        "1: lo: <LOOPBACK>\n2: eno1: <UP>\n3: eno2: <UP>",  # ip addr: numbers that do not come back
        "Model name: a\nVendor ID: b\nSocket(s): 1",  # words, not hosts
        "[ 1204.118812] pcieport: AER\n[ 1204.118830] NVRM: x\n[ 1204.2] y",
        "GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s",
    ],
)
def test_ordinary_text_is_left_as_it_is(content: str) -> None:
    assert bodies(content) == [content.split("\n")]

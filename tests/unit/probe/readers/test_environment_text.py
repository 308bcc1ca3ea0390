"""Which variables are set, and which are only named."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import recording, text
from wiretax.model.machine import Software
from wiretax.model.reading import unexplained
from wiretax.probe.readers.environment_text import read
from wiretax.probe.readers.piece import Piece


def software(piece: Piece) -> Software:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.software


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1",
        "export NCCL_P2P_DISABLE=1",
        "set NCCL_P2P_DISABLE=1",
        '$env:NCCL_P2P_DISABLE = "1"',
        "export NCCL_P2P_DISABLE='1'  # the cards hang otherwise",
        "ENV NCCL_P2P_DISABLE=1",
        "      - NCCL_P2P_DISABLE=1",
        '  NCCL_P2P_DISABLE: "1"',
        "    -e NCCL_P2P_DISABLE=1 \\",
        '- name: NCCL_P2P_DISABLE\n  value: "1"',
        'declare -x NCCL_P2P_DISABLE="1"',
        "$ export NCCL_P2P_DISABLE=1",
        "(base) root@a1:~# export NCCL_P2P_DISABLE=1",
        "[user@node-3 ~]$ export NCCL_P2P_DISABLE=1",
        "export PYTHONPATH=/src NCCL_P2P_DISABLE=1",
    ],
)
def test_a_line_of_its_own_sets_a_variable(line: str) -> None:
    piece = read(text(line))[0]
    assert software(piece).nccl_environment == {"NCCL_P2P_DISABLE": "1"}
    assert values(piece, "environment.variable") == [{"name": "NCCL_P2P_DISABLE", "value": "1"}]


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1                 2.24                   -                  -",  # a table of results
        "| gpt2 | 128 | DDP 2 NCCL_P2P_DISABLE=1 | 30.02 | 6.66 |",
        "# with NCCL_P2P_DISABLE=1 it works",
        "driver 560 -> hang ; NCCL_P2P_DISABLE=1 -> ok on both",
        "try NCCL_P2P_DISABLE=1",
    ],
)
def test_a_variable_that_is_only_named_is_not_set(line: str) -> None:
    assert all(piece.machine is None or not piece.machine.software.nccl_environment for piece in read(text(line)))


def test_a_variable_for_one_command_is_not_the_machines() -> None:
    piece = read(text("$ NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO torchrun --nproc_per_node 2 train.py"))[0]
    assert [(entry["name"], entry["value"], entry["program"]) for entry in values(piece, "environment.command")] == [
        ("NCCL_P2P_DISABLE", "1", "torchrun"),
        ("NCCL_DEBUG", "INFO", "torchrun"),
    ]
    assert piece.machine is None


def test_python_code_sets_one_too() -> None:
    piece = read(text('os.environ["NCCL_IB_DISABLE"] = "1"'))[0]
    assert values(piece, "environment.code") == [{"name": "NCCL_IB_DISABLE", "value": "1"}]


def test_nccl_conf_is_not_the_environment() -> None:
    piece = read(text("$ cat /etc/nccl.conf\nNCCL_P2P_DISABLE=1\nNCCL_SHM_DISABLE=0"))[0]
    assert software(piece).nccl_conf == {"/etc/nccl.conf:NCCL_P2P_DISABLE": "1", "/etc/nccl.conf:NCCL_SHM_DISABLE": "0"}
    assert software(piece).nccl_environment == {}


def test_visible_devices_and_a_version_that_is_no_setting() -> None:
    piece = read(text("CUDA_VISIBLE_DEVICES=2,3\nNCCL_VERSION=2.28.3-1\nHOME=/root\nPATH=/usr/bin"))[0]
    assert piece.machine is not None
    assert piece.machine.surroundings.cuda_visible_devices == "2,3"
    assert software(piece).nccl_environment == {}
    assert piece.understood == {1, 2}


def test_the_recorded_environment() -> None:
    assert software(read(recording("host_and_nvidia_smi.txt"))[0]).nccl_environment == {"NCCL_NVLS_ENABLE": "0"}


@pytest.mark.parametrize(
    "line",
    [
        "export NCCL_DEBUG=INFO NCCL_P2P_LEVEL=SYS",
        "export NCCL_DEBUG=INFO; export NCCL_P2P_LEVEL=SYS",
        "$ export NCCL_DEBUG=INFO && export NCCL_P2P_LEVEL='SYS'  # both",
        "  -x NCCL_DEBUG=INFO -x NCCL_P2P_LEVEL=SYS \\",
    ],
)
def test_a_line_may_set_several_variables(line: str) -> None:
    assert software(read(text(line))[0]).nccl_environment == {"NCCL_DEBUG": "INFO", "NCCL_P2P_LEVEL": "SYS"}


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1",  # two columns of a table
        "export NCCL_P2P_DISABLE=0 NCCL_P2P_DISABLE=1",
        "export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 both help",
        "# export NCCL_P2P_DISABLE=1",
    ],
)
def test_what_may_be_a_heading_a_comparison_or_a_comment_sets_nothing(line: str) -> None:
    assert all(piece.machine is None for piece in read(text(line)))


@pytest.mark.parametrize("line", ["NCCL_P2P_DISABLE: None", "NCCL_P2P_DISABLE: unset"])
def test_a_list_may_say_that_a_variable_is_not_set(line: str) -> None:
    assert read(text(line)) == ()


def test_what_is_unset_again_is_not_set() -> None:
    (piece,) = read(text("$ export NCCL_P2P_DISABLE=1\n$ export NCCL_DEBUG=INFO\n$ unset NCCL_P2P_DISABLE FOO"))
    assert software(piece).nccl_environment == {"NCCL_DEBUG": "INFO"}
    assert piece.understood == {1, 2, 3}

"""The answer for an issue thread: complete, redacted elsewhere, and nothing in it acts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hostile
from diagnosed import run_of
from real_texts import head, pairs, ring, topo
from wiretax.model.run import Run
from wiretax.show.diagnosis_markdown import diagnosis_as_markdown


def outside_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text))


@pytest.fixture
def staged(tmp_path: Path) -> Run:
    full = "\ngpu-box:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes\n"
    texts = {
        "log": head("2.21.5") + ring(4, "SHM/direct/direct") + full + "Xyzzy plugh\n",
        "topo": topo(pairs(4, "SYS", p01="NV4", p23="NV4")),
    }
    return run_of(tmp_path, texts)


def test_answer_cure_counter_proof_lines_and_machine_are_there(staged: Run) -> None:
    text = diagnosis_as_markdown(staged, removed=["1 host name"])
    for part in (
        "**Fix this first: ",
        "### problem: Shared memory (/dev/shm) is too small",
        "`dev-shm-too-small`, certain.",
        "**What to do.** Give the container more: `docker run --shm-size=16g`",
        "**What would prove this wrong.** `df -h /dev/shm",
        "<details><summary>What it rests on</summary>",
        "### warning: NVLink joins the GPUs only in groups: 0 and 1; 2 and 3",
        "GPU0",
        "Not understood (1 line)",
        "nothing was measured",
        "Removed before sharing: 1 host name.",
    ):
        assert part in text, part


def test_notes_are_short_beside_graver_findings_and_whole_alone(staged: Run, tmp_path: Path) -> None:
    assert "**Also**" in diagnosis_as_markdown(
        run_of(tmp_path, {"a": head("2.21.5") + ring(2, "SHM/direct/direct"), "t": topo(pairs(2, "SYS"))})
    )
    alone = diagnosis_as_markdown(run_of(tmp_path, {"only": topo(pairs(2, "NV4"))}))
    assert "### info: NVLink joins all 2 GPUs" in alone


def test_hostile_texts_neither_act_nor_break_out(staged: Run) -> None:
    text = outside_code(diagnosis_as_markdown(hostile.hostile(staged)))
    without_ours = re.sub(r"</?(?:details|summary|sub)>", "", text)
    assert not re.search(r"(?<!\\)<[a-zA-Z/!]", without_ours)
    assert not re.search(r"(?<![\\])\]\(", text)
    assert not re.search(r"(?<!\\)@everyone", text)
    assert "\x1b" not in text and "\u202e" not in text
    assert not re.search(r"(?m)^# heading", text)


def test_a_fence_is_longer_than_any_in_the_text(staged: Run) -> None:
    text = diagnosis_as_markdown(hostile.hostile(staged, iter(["`````" + str(k) for k in range(10_000)])))
    fences = re.findall(r"(?m)^(`{3,})text$", text)
    assert fences and max(len(fence) for fence in fences) >= 6

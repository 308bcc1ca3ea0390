"""The terminal's page of a diagnosis: order, machines, and texts that try to act."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from rich.console import Console

import hostile
from diagnosed import run_of
from real_texts import head, pairs, ring, smi_q, smi_q_gpu, topo
from wiretax.model.pasted import InputNote
from wiretax.model.run import Run
from wiretax.show.diagnosis import MOST_NOTES, machines_of, notes_of, render_diagnosis


def page(run: Run, width: int = 80, encoding: str = "utf-8") -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    render_diagnosis(run, Console(file=out, width=width, force_terminal=False, no_color=True))
    out.seek(0)
    return out.read()


@pytest.fixture
def staged(tmp_path: Path) -> Run:
    full = "\ngpu-box:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes\n"
    return run_of(
        tmp_path, {"log": head("2.21.5") + ring(4, "SHM/direct/direct") + full, "topo": topo(pairs(4, "SYS", p01="NV4", p23="NV4"))}
    )


def test_the_gravest_stands_first_with_its_lines_cure_and_counter_proof(staged: Run) -> None:
    text = page(staged, 200)
    assert text.startswith("wiretax diagnose")
    first, second = text.index("dev-shm-too-small"), text.index("nvlink-islands")
    assert first < second < text.index("Machine, as the texts show it")
    for part in ("seen", "effect", "fix", "confirm", "df -h /dev/shm"):
        assert part in text, part
    assert "/log:17]" in "".join(text.split())


@pytest.mark.parametrize(("width", "encoding"), [(80, "utf-8"), (40, "utf-8"), (200, "utf-8"), (80, "ascii")])
def test_it_fits_any_width_and_sign_set(staged: Run, width: int, encoding: str) -> None:
    assert max(len(line) for line in page(staged, width, encoding).splitlines()) <= width


def test_two_machines_have_a_heading_each_and_one_machine_of_two_runs_one(tmp_path: Path) -> None:
    texts = {
        "before": smi_q("550.90.07", smi_q_gpu("01", "NVIDIA A40", generation=(1, 4)), smi_q_gpu("41", "NVIDIA A40")),
        "after": smi_q("570.86.15", smi_q_gpu("01", "NVIDIA A40"), smi_q_gpu("41", "NVIDIA A40")),
    }
    run = run_of(tmp_path, texts)
    assert [label for label, _, _ in machines_of(run)] == ["Machine of before", "Machine of after"]
    same = replace(run, parts=tuple(replace(part, machine=run.parts[0].machine) for part in run.parts))
    assert [label for label, _, _ in machines_of(same)] == ["Machine, as the texts show it"]


def test_what_cannot_be_read_comes_before_what_is_not_understood(staged: Run) -> None:
    notes = tuple(InputNote(source="a", line=k, kind="not_understood", text=f"word {k}", count=2) for k in range(1, 20))
    run = replace(
        staged, input_notes=(*notes, InputNote(source="b", line=None, kind="unreadable", text="b is a folder.", do="Name a file."))
    )
    lines = notes_of(run)
    assert lines[0] == ("b is a folder. Name a file.", True)
    assert lines[1][0] == "a:1: word 1 (and 1 line below)"
    assert len(lines) == MOST_NOTES + 1 and "16 more lines" in lines[-1][0]


def test_nothing_in_a_text_reaches_the_terminal_as_an_escape_code(staged: Run) -> None:
    text = page(hostile.hostile(staged))
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert "zq7" in text


def test_markup_in_a_text_is_shown_as_it_stands(staged: Run) -> None:
    assert "[bold]x[/bold] :smile:" in page(hostile.hostile(staged, cycle(["[bold]x[/bold] :smile:"])))

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

import sample_runs
from builders import run as a_run
from wiretax.model.finding import Evidence, Finding, Verdict
from wiretax.model.machine import Machine
from wiretax.model.run import Run
from wiretax.show.terminal import as_text, render

ALL = {
    "h200_pair": sample_runs.h200_pair,
    "four_4090": sample_runs.four_4090,
    "cpu_only": sample_runs.cpu_only,
    "hung": sample_runs.hung,
    "inspected": sample_runs.inspected,
}


@pytest.mark.parametrize("width", [80, 97, 120, 200])
@pytest.mark.parametrize("name", ALL)
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut_off(name: str, width: int) -> None:
    shown = as_text(ALL[name](), width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert "…" not in shown


@pytest.mark.parametrize("name", ALL)
def test_the_verdict_comes_last(name: str) -> None:
    run = ALL[name]()
    shown = as_text(run, 100)
    if run.verdict is not None:
        last_title = max(shown.rfind(f"\n{title}") for title in ("Pairs", "Wires", "Findings", "Not measured", "Compute"))
        assert shown.rfind("Verdict") > last_title
        assert shown.rstrip().endswith("╯")


@pytest.mark.parametrize("name", ALL)
def test_an_ascii_stream_gets_ascii_only(name: str) -> None:
    assert as_text(ALL[name](), 80, "ascii").isascii()


def test_a_hostile_document_cannot_move_the_cursor_colour_text_or_hide_the_verdict() -> None:
    hostile = "\x1b[2J\x1b[31m[red]boo[/red]\u202e\r\n" + "A" * 10_000
    run = sample_runs.four_4090()
    assert run.machine is not None
    machine = replace(
        run.machine,
        gpus=tuple(replace(gpu, name=hostile) for gpu in run.machine.gpus),
        pairs=tuple(replace(pair, path=hostile) for pair in run.machine.pairs),
        software=replace(run.machine.software, driver=hostile),
    )
    finding = Finding(
        code=hostile,
        severity="problem",
        confidence="certain",
        title=hostile,
        evidence=(Evidence(source=hostile, text=hostile),),
        effect=hostile,
        remedy=hostile,
        confirm=hostile,
    )
    shown = as_text(replace(run, machine=machine, findings=(finding,), command=hostile, created_at=hostile), 80)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]boo[/red]" in shown
    assert len(shown) < 60_000
    assert "GIVE THE BOX BACK" in shown.splitlines()[-4]


def test_colours_come_from_us_only() -> None:
    page = io.StringIO()
    run = replace(sample_runs.cpu_only(), command="\x1b[44m[blue]x[/blue]")
    render(run, Console(file=page, width=80, force_terminal=True, color_system="standard"))
    assert "\x1b[44m" not in page.getvalue()
    assert "[blue]x[/blue]" in page.getvalue()


def test_an_empty_run_is_shown_without_inventing_anything() -> None:
    shown = as_text(Run(run_id="x", created_at="whenever", tool=sample_runs.cpu_only().tool, command="check"))
    assert shown == "wiretax check · whenever\n"


def test_a_machine_of_which_nothing_is_known_is_shown() -> None:
    shown = as_text(a_run(Machine(missing={"gpus": "no driver"}), "inspect"))
    assert "no GPU" in shown
    assert "unknown (no reason recorded): driver," in shown


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict(decision="use_all", num_gpus=4, keep_box=True, sentence="s"), ["USE ALL 4 GPUs", "KEEP THE BOX"]),
        (Verdict(decision="use_fewer", num_gpus=2, keep_box=True, sentence="s", gpus=(0, 2)), ["USE 2 OF 4 GPUs: 0, 2", "KEEP THE BOX"]),
        (Verdict(decision="use_one", num_gpus=1, keep_box=False, sentence="s"), ["USE ONE GPU", "GIVE THE BOX BACK"]),
        (Verdict(decision="fix_first", num_gpus=None, keep_box=None, sentence="s"), ["FIX FIRST"]),
        (
            Verdict(decision="cannot_judge", num_gpus=None, keep_box=None, sentence="s", missing={"keep_box": "no wire was measured"}),
            ["CANNOT JUDGE", "cannot say, no wire was measured"],
        ),
    ],
)
def test_each_decision_says_what_to_do_with_the_box(verdict: Verdict, words: list[str]) -> None:
    shown = as_text(replace(sample_runs.four_4090(), verdict=verdict), 100)
    assert all(word in shown for word in words)
    assert ("KEEP THE BOX" in shown) == (verdict.keep_box is True)
    assert ("GIVE THE BOX BACK" in shown) == (verdict.keep_box is False)


def test_the_gravest_finding_comes_first() -> None:
    run = sample_runs.four_4090()
    shown = as_text(replace(run, findings=tuple(reversed(run.findings))), 100)
    assert shown.index("p2p-unsupported-chipset") < shown.index("straggler-thermal")


def test_a_run_that_failed_says_what_happened_and_what_was_left_out() -> None:
    shown = as_text(sample_runs.hung(), 100)
    assert "the run failed: rank 1 stopped answering" in shown
    assert "gloo: stopped after the hang" in shown
    assert "no figure: no answer" in shown


def test_a_busy_host_is_named() -> None:
    assert "21 % of the CPU time for other processes" in as_text(sample_runs.four_4090(), 100)

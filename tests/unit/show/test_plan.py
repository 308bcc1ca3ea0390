from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len
from rich.console import Console

from hostile import MARK, hostile
from plans import offer, planned
from wiretax.model.money import Plan
from wiretax.model.run import Run, Tool
from wiretax.plan.inference import Service, make_inference_plan
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.knowledge import Setting
from wiretax.plan.request import Interrupting
from wiretax.show.terminal import as_text, render

SIX_HOURS = Interrupting(checkpoint_seconds=60, restart_seconds=300, mean_gap_seconds=6 * 3600)


def large() -> Plan:
    job = Job(shape=shape_of_size(70e9), recipe="adamw_master", sequence_length=4096, activation_checkpointing=True, tokens=1e8, mfu=0.4)
    cards = [offer(price, gpu=name) for name, price in (("RTX 4090", 0.4), ("H100 SXM5", 2.5), ("H200 SXM", 3.5), ("B200 SXM", 5.0))]
    return planned(job, *cards, counts=None)


def batches() -> Plan:
    job = Job(shape=shape_of_size(1.7e9), sequence_length=1024, samples=1e6, throughput={1: 15.4})
    settings = tuple(Setting(batch_size=batch, accumulation_steps=steps) for batch in (1, 4) for steps in (1, 4))
    return planned(job, offer(0.4, gpu="RTX 4090"), counts=(1, 2, 4), settings=settings)


def service() -> Plan:
    return make_inference_plan(Service(shape=shape_of_size(70e9), requests=4), [offer(2.5, gpu="H100 SXM5"), offer(0.4, gpu="RTX 4090")])


PLANS = {
    "simplest": planned,
    "late": lambda: planned(deadline_hours=5),
    "large": large,
    "batches": batches,
    "spot": lambda: planned(None, offer(2.0), offer(0.8, name="GPU on spot", billing="spot"), deadline_hours=20, interrupting=SIX_HOURS),
    "untimed": lambda: planned(Job(hours=40), offer(2.0)),
    "service": service,
    "many": lambda: planned(None, *[offer(1 + index / 10, name=f"provider {index}", gpu="A40") for index in range(40)]),
}


def page(plan: Plan, width: int = 100, encoding: str = "utf-8") -> str:
    return as_text(run_of(plan), width, encoding)


def run_of(plan: Plan) -> Run:
    return Run(run_id="r", created_at=datetime(2026, 11, 30, tzinfo=UTC).isoformat(), tool=Tool(version="0"), command="plan", plan=plan)


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("name", PLANS)
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut_off(name: str, width: int) -> None:
    shown = page(PLANS[name](), width)

    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert "…" not in shown


@pytest.mark.parametrize("name", PLANS)
def test_the_verdict_comes_last_and_holds_the_whole_sentence(name: str) -> None:
    plan = PLANS[name]()
    shown = page(plan)
    frame = " ".join(shown[shown.rindex("╭") :].replace("│", " ").split())

    assert shown.rstrip().endswith("╯")
    assert plan.sentence in frame


@pytest.mark.parametrize("name", PLANS)
def test_every_shown_option_but_the_choice_says_why_not(name: str) -> None:
    plan = PLANS[name]()
    flat = " ".join(page(plan, 140).split())

    for index, option in enumerate(plan.options[:8]):
        if index != plan.choice and option.fits is not False and f"{option.num_gpus}x {option.gpu}" in flat:
            assert option.why[:40] in flat


def test_figures_stand_under_their_units() -> None:
    shown = page(planned())

    assert "USD" in shown
    assert "12.5 h" in shown
    assert "80 %" in shown
    assert "typed" in shown


def test_bars_split_the_cost_into_work_and_waiting() -> None:
    shown = page(planned(), 100)
    four = next(line for line in shown.splitlines() if "12.5 h" in line)

    assert four.count("█") == 4 * four.count("░") > 0


def test_the_wire_tax_stands_in_money_with_what_would_make_up_for_it() -> None:
    shown = page(planned())
    line = shown[shown.index("Wire tax") :].splitlines()[3]

    assert line.split() == ["4", "GPUs", "1.60", "100", "%", "1.60"]


def test_without_room_bars_go_before_figures() -> None:
    narrow, wide = page(PLANS["spot"](), 80), page(PLANS["spot"](), 110)

    assert "░" not in narrow
    assert "░" in wide
    assert "USD" in narrow


def test_memory_says_whether_it_fits() -> None:
    shown = page(large(), 140)

    assert "✓" in shown
    assert "✗" in shown


def test_what_would_make_it_fit_is_listed() -> None:
    assert "What would make it fit on one" in page(large())


def test_certainty_and_saving_stand_on_a_plan_with_interruptions() -> None:
    shown = page(PLANS["spot"]())

    assert "95 %" in shown
    assert "Save after every 26.2 min" in shown


def test_options_beyond_a_screen_are_counted() -> None:
    assert "more with --json" in page(PLANS["many"]())


def test_plain_ascii_holds_every_sign() -> None:
    shown = page(large(), 80, "ascii")

    assert shown.isascii()


def test_a_terminal_gets_colours_and_a_pipe_none() -> None:
    stream = io.StringIO()
    render(run_of(planned()), Console(file=stream, width=100, force_terminal=True, color_system="truecolor"))

    assert "\x1b[" in stream.getvalue()
    assert "\x1b" not in page(planned())


@pytest.mark.parametrize("name", PLANS)
def test_a_hostile_document_cannot_write_to_the_terminal(name: str) -> None:
    nasty = hostile(run_of(PLANS[name]()), keep=frozenset({"created_at", "command"}))
    shown = as_text(nasty, 100)

    assert MARK in shown
    assert not any(character in shown for character in "\x1b\x07\x08\x9b\u202e\u2066")
    assert max(cell_len(line) for line in shown.splitlines()) <= 100


def test_a_plan_without_options_is_still_a_page() -> None:
    empty = replace(planned(), options=(), choice=None, fewest_that_fit=None, sentence="Nothing here.")

    assert "Nothing here." in page(empty)

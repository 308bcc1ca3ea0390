"""A profile as people read it."""

from dataclasses import replace

import profiles as made_up
from wiretax.model.profile import MemoryPoint, Span
from wiretax.model.run import Run, Tool
from wiretax.model.training import Training
from wiretax.show.terminal import as_text


def shown(profile):
    run = Run(
        run_id="r",
        created_at="2026-11-30T00:00:00+00:00",
        tool=Tool(version="0"),
        command="profile",
        training=Training(profiles=(profile,)),
        missing={"machine": "none"},
    )
    return as_text(run, 80)


def test_the_bare_step_and_every_strategy_have_their_phases():
    base = made_up.profile()
    text = shown(replace(base, free_steps=(made_up.ddp_free(more_backward=0.003), made_up.fsdp_free(base, world_size=4))))
    rows = [line.split() for line in text.splitlines()]
    assert ["bare", "32.0", "ms", "10.0", "ms", "20.0", "ms", "2.0", "ms"] in rows
    assert ["ddp", "35.0", "ms", "10.0", "ms", "23.0", "ms", "2.0", "ms"] in rows
    assert any(row[:3] == ["fsdp2", "of", "4"] for row in rows)
    assert "made up, batch 8 x 128 · made up, bfloat16" in text
    assert "201.3 MB" not in text and "201 MB of gradients" in text


def test_two_clocks_and_memory_are_columns_where_they_are_known():
    plain = shown(made_up.profile())
    assert "host" not in plain and "peak memory" not in plain
    full = shown(made_up.profile(host=0.5, memory=[MemoryPoint(strategy="none", batch_size=8, peak_bytes=2**30, at_rest_bytes=2**29)]))
    assert "host" in full and "device" in full and "1 GiB" in full
    assert "16.0 ms" in full  # half of 32 ms on the host's clock


def test_notes_spread_and_the_input_pipeline_are_shown():
    base = made_up.profile(input_seconds=0.05)
    spread = replace(base.bare.step, samples_seconds=(0.028, 0.032, 0.036))
    text = shown(replace(base, notes=("tp was not profiled: no plan",), bare=replace(base.bare, step=spread)))
    assert "tp was not profiled: no plan" in text
    assert "±12 %" in text
    assert "next batch in 50.0 ms" in text


def test_a_profile_of_a_loop_says_that_it_was_not_cut():
    text = shown(replace(made_up.profile(), segments=(), input_pipeline=Span(seconds=0.001)))
    assert "not cut into segments" in text

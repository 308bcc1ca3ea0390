from __future__ import annotations

from dataclasses import replace

import sample_runs
from wiretax.model.measurement import Collective
from wiretax.model.run import Run
from wiretax.show.plain import UNICODE
from wiretax.show.terminal import as_text

DASH = UNICODE.dash


def with_collectives(run: Run, change) -> Run:  # type: ignore[no-untyped-def]
    return replace(run, measurements=replace(run.measurements, collectives=tuple(change(c) for c in run.measurements.collectives)))


def rung(text: str, wire: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"  {wire} "))


def test_the_ladder_goes_from_fast_to_slow_with_transport_peak_and_share_of_the_limit() -> None:
    text = as_text(sample_runs.h200_pair(), 100)
    positions = [text.index(f"\n  {wire}") for wire in ("default", "p2p_off", "socket", "gloo")]
    assert positions == sorted(positions)
    line = rung(text, "default")
    assert "P2P/CUMEM" in line
    assert "324 GB/s" in line
    assert "90 % of 360 GB/s" in line


def test_bars_are_in_proportion_and_the_slowest_is_still_visible() -> None:
    text = as_text(sample_runs.h200_pair(), 120)
    lengths = {wire: rung(text, wire).count("█") for wire in ("default", "p2p_off", "socket", "gloo")}
    assert lengths["p2p_off"] == int(lengths["default"] * 28.04 / 324.3)
    assert lengths["gloo"] == 0
    assert any(part in rung(text, "gloo") for part in UNICODE.parts)


def test_small_messages_and_the_mebibyte_stand_below_the_bar() -> None:
    text = as_text(sample_runs.h200_pair(), 120)
    assert "1 MiB 58.6 GB/s · 8 B in 9.69 us, eager 22.7 us" in text


def test_an_unstable_peak_is_marked_and_says_what_to_do() -> None:
    text = as_text(sample_runs.h200_pair(), 120)
    assert "~4.02 GB/s" in rung(text, "socket")
    assert "unstable: its samples differ much; measure again on a quiet host" in text


def test_without_an_expectation_the_limit_is_unknown_and_not_guessed() -> None:
    text = as_text(replace(sample_runs.h200_pair(), expectations=()), 100)
    assert "limit unknown" in rung(text, "default")
    assert "% of" not in rung(text, "default")


def test_a_wire_that_ran_over_another_transport_says_what_was_asked_for() -> None:
    def renamed(c: Collective) -> Collective:
        return replace(c, wire_requested="p2p_off") if c.wire == "socket" else c

    assert "asked for as p2p_off" in as_text(with_collectives(sample_runs.h200_pair(), renamed), 120)


def test_wrong_values_are_shouted() -> None:
    text = as_text(with_collectives(sample_runs.h200_pair(), lambda c: replace(c, verified=False)), 120)
    assert "wrong values arrived" in text


def test_the_largest_world_is_in_the_ladder_and_the_others_in_the_table() -> None:
    text = as_text(sample_runs.four_4090(), 100)
    assert "busbw of all-reduce on 4 GPUs" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["all_reduce", "2", "4.10", DASH, DASH] in lines


def test_cpu_ranks_are_not_called_gpus_nor_gloo_their_wrong_backend() -> None:
    text = as_text(sample_runs.cpu_only(), 100)
    assert "busbw of all-reduce on 2 CPU ranks" in text
    assert "backend for CPUs" not in text
    assert "CUDA graph" not in text

"""A comparison on a terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

import hostile
import report_runs
import sample_runs
from wiretax.judge.compare import compare
from wiretax.judge.gate import parse
from wiretax.model.comparison import Comparison
from wiretax.show.comparison import figure, render_comparison
from wiretax.show.terminal import Page


def text(comparison: Comparison, width: int = 120, encoding: str = "utf-8", *, everything: bool = False) -> str:
    page = Page(encoding)
    render_comparison(comparison, Console(file=page, width=width, color_system=None), everything=everything)
    return page.getvalue()


def switched_off() -> Comparison:
    runs = [sample_runs.h200_pair(), report_runs.p2p_switched_off()]
    return compare(runs, ["on", "off"], gates=[parse("all_reduce_busbw_peak_bytes_per_second.default.2:-5%")])


def test_what_differs_comes_with_its_size_and_interval() -> None:
    shown = text(switched_off())
    assert "all_reduce_busbw_peak_bytes_per_second.default.2" in shown
    assert "324 GB/s" in shown
    assert "-91.4 %" in shown
    assert "99 % interval" in shown
    assert "NCCL_P2P_DISABLE: not set → 1 (environment)" in shown
    assert "transport of default, 2 ranks: P2P/CUMEM → SHM/direct" in shown
    assert "is true of off" in shown
    assert "p2p_off.2" not in shown


def test_everything_is_listed_when_asked() -> None:
    assert "all_reduce_busbw_peak_bytes_per_second.p2p_off.2" in text(switched_off(), everything=True)


def test_a_narrow_terminal_keeps_the_names_whole() -> None:
    shown = text(switched_off(), width=90)
    assert "all_reduce_busbw_peak_bytes_per_second.default.2" in shown
    assert "99 % interval" not in shown


def test_ascii_streams_get_ascii() -> None:
    assert text(switched_off(), encoding="ascii").isascii()


def test_hostile_texts_are_cleaned() -> None:
    shown = text(hostile.hostile(switched_off()))
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_figures_carry_the_unit_of_their_name() -> None:
    assert figure("all_reduce_busbw_peak_bytes_per_second.default.2", 324e9) == "324 GB/s"
    assert figure("all_reduce_latency_seconds.default.2", 9.1e-6) == "9.10 us"
    assert figure("matmul_flops_per_second.0", 788e12) == "788 TFLOP/s"
    assert figure("speedup.ddp.default.2", 1.7) == "1.70"


@pytest.mark.parametrize("width", [60, 72, 80, 90, 100])
def test_on_a_narrow_terminal_names_break_between_words_only(width: int) -> None:
    lines = text(switched_off(), width, everything=True).splitlines()
    whole = {d.metric for d in switched_off().differences}
    ends = {name[:k] for name in whole for k in range(1, len(name) + 1) if name[k : k + 1] in ("", ".", "_")}
    starts = [line.split("  ")[0] for line in lines if line.startswith(tuple(name[:12] for name in whole)) and " is " not in line]
    assert starts
    assert all(start in ends for start in starts)
    assert max(map(len, lines)) <= width

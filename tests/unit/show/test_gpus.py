from __future__ import annotations

from dataclasses import replace

import sample_runs
from builders import compute, h200_machine, many_gpus
from builders import run as a_run
from wiretax.model.machine import PcieLink
from wiretax.model.measurement import Measurements, PcieUnderLoad
from wiretax.show.plain import UNICODE
from wiretax.show.terminal import as_text

DASH = UNICODE.dash
TIMES = UNICODE.times


def test_a_straggler_stands_out_with_its_cause() -> None:
    text = as_text(sample_runs.four_4090(), 80)
    line = next(line for line in text.splitlines() if line.strip().startswith("2 ") and "TFLOP" not in line and "heat" in line)
    assert "-22 %" in line
    assert "heat, 88 C" in line


def test_of_64_gpus_the_slow_ones_are_listed_and_the_rest_counted() -> None:
    measured = Measurements(compute=compute(64, 700e12, 3e12, 5, {41: 0.8}))
    text = as_text(a_run(many_gpus(64), measurements=measured), 100)
    section = text[text.index("Compute") :]
    assert any(line.split()[:1] == ["41"] for line in section.splitlines())
    assert "56 more between" in section or "55 more between" in section


def test_a_link_that_stays_narrow_under_load_is_shown_as_it_is() -> None:
    run = sample_runs.h200_pair()
    narrow = tuple(replace(c, pcie=PcieUnderLoad(generation=5, width=4)) for c in run.measurements.compute)
    assert f"5 {TIMES}4" in as_text(replace(run, measurements=replace(run.measurements, compute=narrow)), 100)


def test_unknown_throttling_gives_its_reason() -> None:
    run = sample_runs.h200_pair()
    blind = tuple(replace(c, throttle_reasons=None, missing={"throttle_reasons": "no NVML"}) for c in run.measurements.compute)
    assert "unknown: no NVML" in as_text(replace(run, measurements=replace(run.measurements, compute=blind)), 100)


def test_whole_numbers_stay_whole_and_unknown_ones_are_a_dash() -> None:
    machine = h200_machine()
    gpus = (machine.gpus[0], replace(machine.gpus[1], numa_node=None, pcie=PcieLink(), missing={"numa_node": "x"}))
    lines = [line.split() for line in as_text(a_run(replace(machine, gpus=gpus), "inspect"), 100).splitlines()]
    first = next(line for line in lines if line[:3] == ["0", "140", "GiB"])
    assert "18" in first
    assert "0" in first
    second = next(line for line in lines if line[:3] == ["1", "140", "GiB"])
    assert DASH in second
    assert "?" in second


def test_cpu_ranks_are_measured_in_gigaflops() -> None:
    assert "GFLOP/s" in as_text(sample_runs.cpu_only(), 80)

import math

import pytest

from wiretax.errors import UsageError
from wiretax.predict.formula import all_reduce_seconds, formula_forecasts, ladder


def test_200_mb_at_22_gb_a_second_take_9_1_ms_on_two_gpus_and_15_9_on_eight():
    assert round(all_reduce_seconds(200e6, 22e9, 2) * 1e3, 1) == 9.1
    assert round(all_reduce_seconds(200e6, 22e9, 8) * 1e3, 1) == 15.9


def test_one_gpu_reduces_nothing():
    assert all_reduce_seconds(200e6, 22e9, 1) == 0.0


def test_forecasts_of_the_formula_hold_the_all_reduce_and_say_why_they_hold_no_step():
    two, eight = formula_forecasts(200e6, 22e9, [2, 8])

    assert (two.num_gpus, eight.num_gpus) == (2, 8)
    assert eight.all_reduce_seconds == pytest.approx(1.75 * two.all_reduce_seconds)
    assert two.step_seconds is None
    assert set(two.missing) == {"step_seconds", "efficiency_fraction", "wire_tax_fraction", "speedup"}


def test_with_a_step_time_the_formula_bounds_the_efficiency():
    (forecast,) = formula_forecasts(200e6, 20e9, [2], one_gpu_seconds=0.03)

    assert any("75 %" in note and "100 %" in note for note in forecast.assumptions)


@pytest.mark.parametrize(("size", "rate", "gpus"), [(-1, 1e9, 2), (1e6, 0.0, 2), (1e6, math.nan, 2), (1e6, 1e9, 0), (math.inf, 1e9, 2)])
def test_impossible_figures_are_refused(size, rate, gpus):
    with pytest.raises(UsageError):
        all_reduce_seconds(size, rate, gpus)


def test_the_ladder_goes_from_the_wrong_backend_to_the_newest_nvlink():
    rungs = ladder()
    names = [one.name for one in rungs]

    assert "gloo" in names[0]
    assert "NVLink 5" in names[-1]
    for generation in (3, 4, 5, 6):
        assert any(f"PCIe {generation} " in name for name in names)
    assert all(0 < one.low < one.expected < one.high for one in rungs)


def test_each_pcie_generation_doubles_the_one_before_and_p2p_beats_the_way_through_memory():
    by_name = {one.name: one.expected for one in ladder()}
    staged = [value for name, value in by_name.items() if "through host memory" in name]
    direct = [value for name, value in by_name.items() if name.endswith(", P2P")]

    assert staged[1] / staged[0] == pytest.approx(2.0, rel=0.01)
    assert all(second > first for first, second in zip(staged, direct, strict=True))


@pytest.mark.parametrize(("gpus", "milliseconds"), [(1, 0.0), (2, 9.0909 + 1), (4, 13.6364 + 3), (8, 15.9091 + 7)])
def test_a_typed_start_up_is_added_and_grows_with_the_hops(gpus, milliseconds):
    assert all_reduce_seconds(200e6, 22e9, gpus, latency_seconds=1e-3) * 1e3 == pytest.approx(milliseconds, abs=1e-3)
    (forecast,) = formula_forecasts(200e6, 22e9, [gpus], latency_seconds=1e-3)
    assert "start-up takes 1.00 ms" in forecast.assumptions[1]

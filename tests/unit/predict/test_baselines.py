import pytest

from profiles import MIB, profile, wire
from wiretax.predict.baselines import TUNER_BUSBW, baselines

WHOLE = (64 + 4 * 32) * MIB


def test_linear_scaling_is_the_step_on_one_gpu():
    assert baselines(profile(), wire(1e9, 0.0), 2).linear == pytest.approx(0.032)


def test_no_overlap_adds_the_whole_all_reduce_at_the_peak_rate():
    assert baselines(profile(), wire(1e9, 0.0), 4).no_overlap == pytest.approx(0.032 + 1.5 * WHOLE / 1e9, rel=1e-3)


def test_perfect_overlap_hides_what_backward_can_hide():
    assert baselines(profile(), wire(1e12, 0.0), 2).perfect_overlap == pytest.approx(0.032)
    assert baselines(profile(), wire(1e9, 0.0), 2).perfect_overlap == pytest.approx(0.012 + WHOLE / 1e9, rel=1e-3)


def test_the_tuner_knows_links_and_not_this_wire():
    found = baselines(profile(), wire(1e9, 0.0), 2, link="pcie4")

    assert found.tuner == pytest.approx(max(0.032, 0.012 + WHOLE / TUNER_BUSBW["pcie4"]))
    assert baselines(profile(), wire(1e9, 0.0), 2).tuner is None


def test_full_sharding_moves_half_as_much_again():
    assert baselines(profile(), wire(1e9, 0.0), 2, traffic=1.5).no_overlap == pytest.approx(0.032 + 1.5 * WHOLE / 1e9, rel=1e-3)


def test_another_batch_and_accumulated_micro_steps_lengthen_the_step_and_not_the_wire():
    doubled = baselines(profile(), wire(1e9, 0.0), 2, batch_size=16)
    accumulated = baselines(profile(), wire(1e9, 0.0), 2, accumulation_steps=3)

    assert doubled.linear == pytest.approx(2 * 0.030 + 0.002)
    assert accumulated.linear == pytest.approx(3 * 0.030 + 0.002)
    assert accumulated.no_overlap - accumulated.linear == pytest.approx(WHOLE / 1e9, rel=1e-3)
    assert accumulated.perfect_overlap == pytest.approx(2 * 0.030 + 0.012 + WHOLE / 1e9, rel=1e-3)

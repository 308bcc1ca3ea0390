import numpy as np
import pytest

from wiretax.predict.contention import NO_CONTENTION, Contention
from wiretax.predict.interval import centre, draw, interval


def test_the_centre_is_undisturbed():
    one = draw(device_sigma=0.1, host_sigma=0.2, wire_sigma=0.3)

    assert (one.device[0], one.host[0], one.wire[0]) == (1.0, 1.0, 1.0)
    assert centre().count == 1


def test_the_same_seed_gives_the_same_draws_and_another_others():
    first, again, other = (draw(device_sigma=0.1, host_sigma=0.1, wire_sigma=0.1, seed=seed) for seed in (1, 1, 2))

    assert np.array_equal(first.wire, again.wire)
    assert not np.array_equal(first.wire, other.wire)


def test_a_wider_spread_moves_every_draw_the_same_way():
    narrow, wide = (draw(device_sigma=sigma, host_sigma=0.0, wire_sigma=0.0) for sigma in (0.01, 0.1))

    assert np.all(np.sign(np.log(narrow.device)) == np.sign(np.log(wide.device)))
    assert np.std(wide.device) > np.std(narrow.device)


def test_a_host_is_disturbed_more_than_it_is_helped():
    host = np.log(draw(device_sigma=0.0, host_sigma=0.2, wire_sigma=0.0, count=2000).host)

    assert host.max() > 2 * -host.min()


def test_an_interval_holds_nine_of_ten_draws_and_expects_the_centre():
    seconds = np.concatenate([[5.0], np.linspace(0.0, 10.0, 1001)])

    found = interval(seconds)

    assert found.expected == 5.0
    assert found.low == pytest.approx(0.5, abs=0.02)
    assert found.high == pytest.approx(9.5, abs=0.02)


def test_the_expected_value_lies_inside_even_where_all_disturbances_add():
    found = interval(np.asarray([1.0, *([2.0] * 99)]))

    assert found.low == 1.0
    assert found.high == 2.0


def test_contention_is_drawn_from_its_range_with_the_expected_rate_at_the_centre():
    rates = draw(device_sigma=0.0, host_sigma=0.0, wire_sigma=0.0).rates(
        Contention(compute=0.8, compute_low=0.5, compute_high=0.9, wire=0.7, wire_low=0.6, wire_high=0.75)
    )

    assert rates.compute[0] == pytest.approx(0.8)
    assert 0.5 <= rates.compute.min() < 0.6
    assert 0.85 < rates.compute.max() <= 0.9
    assert rates.wire[0] == pytest.approx(0.7)


def test_without_contention_every_draw_runs_at_full_speed():
    rates = draw(device_sigma=0.1, host_sigma=0.1, wire_sigma=0.1).rates(NO_CONTENTION)

    assert np.all(rates.compute == 1.0)
    assert np.all(rates.wire == 1.0)

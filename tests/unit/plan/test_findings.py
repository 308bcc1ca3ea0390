from datetime import timedelta

import pytest

from plans import TODAY, offer, planned
from wiretax.plan.findings import findings_of


def found(plan=None, offers=(), throughput=None):
    return [(one.code, one.severity) for one in findings_of(plan or planned(), offers, throughput or {}, TODAY)]


def test_a_plan_from_fresh_prices_warns_of_nothing():
    assert found(offers=[offer(seen=TODAY), offer()]) == []


@pytest.mark.parametrize(("days", "codes"), [(90, []), (91, ["prices-old"]), (400, ["prices-old"])])
def test_prices_are_old_after_ninety_days(days, codes):
    assert [code for code, _ in found(offers=[offer(seen=TODAY - timedelta(days=days))])] == codes


def test_a_year_is_called_a_year():
    (one,) = findings_of(planned(), [offer(seen=TODAY - timedelta(days=366))], {}, TODAY)

    assert "a year or more" in one.title
    assert one.confirm


@pytest.mark.parametrize(("rate", "codes"), [(40.0, []), (41.9, []), (60.0, ["unit-trap"])])
def test_clearly_more_than_perfect_scaling_is_a_mix_up_of_units(rate, codes):
    assert [code for code, _ in found(throughput={1: 10.0, 4: rate})] == codes


def test_limits_that_nothing_meets_are_a_problem():
    assert found(planned(deadline_hours=1)) == [("plan-impossible", "problem")]

from __future__ import annotations

import click
import pytest

from wiretax.cli.plan_values import Deadline, Efficiencies, Hours, Quantity, Rates


@pytest.mark.parametrize(
    ("text", "hours"),
    [("40", 40), ("0.5", 0.5), ("40h", 40), ("40 hours", 40), ("90m", 1.5), ("90min", 1.5), ("2d", 48), ("1d 16h", 40), ("30s", 1 / 120)],
)
def test_hours_have_many_spellings(text: str, hours: float) -> None:
    assert Hours().convert(text, None, None) == pytest.approx(hours)


@pytest.mark.parametrize("text", ["", "h", "40x", "4 0h", "-1", "0", "inf", "nan", "1h2"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Hours().convert(text, None, None)


def test_a_span_is_a_deadline_and_hours_are_taken_as_they_are() -> None:
    assert Deadline().convert("2d", None, None) == 48
    assert Deadline().convert(12.0, None, None) == 12.0


def test_a_deadline_in_another_time_zone_is_the_same_moment() -> None:
    here, there = (Deadline().convert(text, None, None) for text in ("2099-01-01T12:00:00+00:00", "2099-01-01T13:00:00+01:00"))

    assert here == pytest.approx(there, abs=1e-3)


def test_a_map_or_one_fraction_are_efficiencies() -> None:
    assert Efficiencies().convert("0.8", None, None) == 0.8
    assert Efficiencies().convert(" 2:0.9, 4:0.8 ", None, None) == {2: 0.9, 4: 0.8}


def test_one_rate_is_that_of_one_gpu() -> None:
    assert Rates().convert("15.4", None, None) == {1: 15.4}
    assert Rates().convert("1:15.4,4:14", None, None) == {1: 15.4, 4: 14.0}


@pytest.mark.parametrize(("text", "count"), [("1e6", 1e6), ("10M", 1e7), ("2.5k", 2500), ("300B", 3e11), ("1_000_000", 1e6), ("7", 7)])
def test_counts_have_many_spellings(text: str, count: float) -> None:
    assert Quantity().convert(text, None, None) == count


@pytest.mark.parametrize("kind", [Rates(), Efficiencies()])
@pytest.mark.parametrize("text", ["", "1:", ":2", "a:1", "0:1", "1:2:3", "1.5:2", "1:-2"])
def test_what_is_no_map_is_refused(kind: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)

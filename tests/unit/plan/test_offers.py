from datetime import date, timedelta

import pytest

from plans import TODAY, offer
from wiretax.errors import BadInput, UsageError
from wiretax.plan.offers import Row, age_days, gpu_named, read_offers, told_apart

GOOD = {"gpu": "RTX 4090", "num_gpus": 4, "price": 0.4, "currency": "EUR"}


def read(*rows, **common):
    return read_offers(
        [Row(row, f"mine.toml, offer {index + 1}", {"gpu": "line 7"}) for index, row in enumerate(rows)], common=common, today=TODAY
    )


def without(key):
    return {name: value for name, value in GOOD.items() if name != key}


def test_an_offer_is_read_with_its_card():
    (one,) = read(GOOD)

    assert one.gpu is not None
    assert one.gpu.name == "RTX 4090"
    assert (one.price, one.currency, one.per, one.num_gpus, one.billing) == (0.4, "EUR", "gpu_hour", 4, "on_demand")


def test_a_price_for_the_box_is_for_the_box():
    (one,) = read({**without("price"), "box_price": 0.58})

    assert one.hourly(1) == one.hourly(4) == (0.58, 0.58, 0.58)
    assert one.name == "4x RTX 4090 box"


def test_a_price_range_keeps_both_ends_and_counts_with_its_middle():
    (one,) = read({**GOOD, "price": [1.2, 0.8]})

    assert one.hourly(2) == pytest.approx((1.6, 2.0, 2.4))


def test_a_range_may_be_written_in_a_cell():
    assert read({**GOOD, "price": "0.80-1.20"})[0].hourly(1) == pytest.approx((0.8, 1.0, 1.2))


def test_a_spot_price_is_another_offer_of_the_same_box():
    demand, spot = read({**GOOD, "spot_price": 0.2, "mtbf": "6h"})

    assert (demand.billing, spot.billing) == ("on_demand", "spot")
    assert spot.price == 0.2
    assert spot.mean_seconds_between_interruptions == 6 * 3600
    assert spot.name == "RTX 4090 spot"


def test_cells_of_a_table_are_texts_and_empty_ones_are_none():
    row = {
        "gpu": "rtx-4090",
        "num_gpus": "4",
        "price": "0.4",
        "currency": "eur",
        "p2p": "no",
        "nvlink": "",
        "hosts": "",
        "seen": "2026-11-01",
    }
    (one,) = read(row)

    assert (one.num_gpus, one.price, one.currency, one.p2p, one.nvlink) == (4, 0.4, "EUR", False, None)
    assert one.seen == date(2026, 11, 1)


def test_what_is_said_once_for_the_file_holds_for_all_and_an_offer_may_differ():
    first, second = read(without("currency"), {**GOOD, "currency": "USD"}, currency="EUR")

    assert (first.currency, second.currency) == ("EUR", "USD")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"price": -0.4}, "negative"),
        ({"price": "free"}, "no price"),
        ({"price": float("nan")}, "no price"),
        ({"price": float("inf")}, "no price"),
        ({"price": True}, "no price"),
        ({"price": [1, 2, 3]}, "no price"),
        ({"price": "$2"}, "the currency in its own key"),
        ({"num_gpus": 0}, "whole number from 1 up"),
        ({"num_gpus": -4}, "whole number from 1 up"),
        ({"num_gpus": 2.5}, "whole number from 1 up"),
        ({"num_gpus": "many"}, "whole number from 1 up"),
        ({"num_gpus": 64}, "hosts = 8"),
        ({"num_gpus": 8, "hosts": 3}, "do not divide"),
        ({"currency": "euros"}, "no currency"),
        ({"currency": ""}, "has no currency"),
        ({"nvlink": "perhaps"}, "true or false"),
        ({"mtbf": 6}, "time span"),
        ({"mtbf": "0h"}, "time span"),
        ({"seen": "yesterday"}, "no date"),
        ({"seen": "2027-01-01"}, "still to come"),
        ({"box_price": 1.0}, "exclude each other"),
        ({"name": 3}, "must be a text"),
        ({"pricee": 3}, "Did you mean price?"),
        ({"colour": "red"}, "Keys:"),
        ({"gpu": 4090}, "must be a text"),
    ],
)
def test_an_offer_that_cannot_be_one_is_an_error_that_says_what_to_write(change, says):
    with pytest.raises(BadInput) as caught:
        read({**GOOD, **change})

    assert says in str(caught.value)
    assert "mine.toml, offer 1" in str(caught.value)


@pytest.mark.parametrize(("key", "says"), [("price", "there is no price"), ("currency", "has no currency"), ("gpu", "gpu is missing")])
def test_what_is_missing_is_named(key, says):
    with pytest.raises(BadInput, match=says):
        read(without(key))


def test_an_unknown_card_lists_the_near_names_and_the_line():
    with pytest.raises(BadInput) as caught:
        read({**GOOD, "gpu": "RTX 4091"})

    assert "line 7" in str(caught.value)
    assert "RTX 4090" in caught.value.do


@pytest.mark.parametrize("name", ["A100", "A100 80GB", "RTX 4091", "H100 SXM 96GB"])
def test_a_card_that_is_not_exactly_known_is_never_another_one(name):
    with pytest.raises(UsageError, match="Did you mean"):
        gpu_named(name, "--gpu", UsageError)


def test_a_card_like_nothing_known_says_how_to_plan_without():
    with pytest.raises(UsageError, match="--efficiency"):
        gpu_named("abacus", "--gpu", UsageError)


def test_a_price_per_gpu_offers_powers_of_two_and_all():
    assert offer(num_gpus=6).counts(None) == (1, 2, 4, 6)
    assert offer(num_gpus=8).counts(None) == (1, 2, 4, 8)


def test_a_box_is_offered_whole_unless_parts_are_asked_for():
    box = offer(num_gpus=4, per="box_hour")

    assert box.counts(None) == (4,)
    assert box.counts((1, 2, 4, 8)) == (1, 2, 4)


def test_several_hosts_are_used_whole():
    cluster = offer(num_gpus=16, hosts=2)

    assert cluster.counts(None) == (16,)
    assert cluster.counts((1, 8)) == ()


def test_a_price_has_an_age_where_somebody_wrote_down_when_it_was_seen():
    assert age_days(offer(seen=TODAY - timedelta(days=400)), TODAY) == 400
    assert age_days(offer(), TODAY) is None


def test_offers_of_one_name_are_told_apart_by_provider_else_by_price_and_others_are_left_alone():
    box = {**without("price"), "name": "box", "box_price": 1.6}
    found = told_apart(
        read(
            {**box, "provider": "north"},
            {**box, "provider": "south", "box_price": 1.4},
            {**box, "num_gpus": 2},
            {**box, "name": "twice", "box_price": 0.5},
            {**box, "name": "twice", "box_price": 0.7, "gpu": "RTX 3090"},
            {**GOOD, "name": "each"},
            {**GOOD, "name": "each", "price": 0.5},
        )
    )

    assert [one.name for one in found] == [
        "box, north",
        "box, south",
        "box",
        "twice, RTX 4090, 0.50 EUR",
        "twice, RTX 3090, 0.70 EUR",
        "each, 0.40 EUR a GPU",
        "each, 0.50 EUR a GPU",
    ]

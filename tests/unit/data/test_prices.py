import tomllib
from datetime import date

from wiretax.data.gpus import find_gpu
from wiretax.data.prices import published_text
from wiretax.plan.offers import Row, read_offers

PRICES = tomllib.loads(published_text())["offer"]


def test_every_published_price_has_a_source_a_date_and_a_currency():
    for entry in PRICES:
        assert entry["source"]
        assert entry["currency"]
        assert date.fromisoformat(entry["seen"])


def test_every_published_price_is_an_offer_of_a_known_card():
    offers = read_offers([Row(entry, "prices.toml") for entry in PRICES], today=date(2026, 11, 30))

    assert len(offers) == len(PRICES)
    assert all(find_gpu(entry["gpu"]) is not None for entry in PRICES)


def test_ranges_that_a_text_only_recommends_are_marked_illustrative():
    assert all(entry.get("illustrative") for entry in PRICES if isinstance(entry.get("price"), list))

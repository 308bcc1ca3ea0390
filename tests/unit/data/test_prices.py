from datetime import date

from wiretax.data.gpus import find_gpu
from wiretax.data.prices import published_prices
from wiretax.plan.offers import Row, read_offers


def test_every_published_price_has_a_source_a_date_and_a_currency():
    for entry in published_prices():
        assert entry["source"]
        assert entry["currency"]
        assert date.fromisoformat(entry["seen"])


def test_every_published_price_is_an_offer_of_a_known_card():
    offers = read_offers([Row(entry, "prices.toml") for entry in published_prices()], today=date(2026, 11, 30))

    assert len(offers) == len(published_prices())
    assert all(find_gpu(entry["gpu"]) is not None for entry in published_prices())


def test_ranges_that_a_text_only_recommends_are_marked_illustrative():
    assert all(entry.get("illustrative") for entry in published_prices() if isinstance(entry.get("price"), list))

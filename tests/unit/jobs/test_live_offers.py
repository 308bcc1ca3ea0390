from __future__ import annotations

import sys
from datetime import date
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wiretax.errors import CannotMeasure, MissingDependency
from wiretax.jobs.live_offers import FORMS, live_offers, offers_of

TODAY = date(2026, 11, 30)


def item(name: str | None = "RTX4090", memory: float | None = 24.0, count: int = 4, price: float = 1.6, **more: Any) -> SimpleNamespace:
    """As gpuhunt's CatalogItem has it."""
    values = {"provider": "vastai", "instance_name": "123", "location": "NO", "spot": False} | more
    return SimpleNamespace(gpu_name=name, gpu_memory=memory, gpu_count=count, price=price, **values)


def test_an_item_is_an_offer_of_a_whole_box_in_dollars() -> None:
    (one,), notes = offers_of([item()], TODAY)

    assert one.gpu is not None
    assert (one.gpu.name, one.num_gpus, one.price, one.per, one.currency, one.seen) == ("RTX 4090", 4, 1.6, "box_hour", "USD", TODAY)
    assert notes == ()


def test_spot_items_are_spot_offers() -> None:
    (one,), _ = offers_of([item(spot=True)], TODAY)

    assert one.billing == "spot"
    assert one.name.endswith(" spot")


def test_where_the_form_of_a_card_is_not_said_the_slower_is_assumed_and_said() -> None:
    (one,), _ = offers_of([item("A100", 80)], TODAY)

    assert one.gpu is not None
    assert one.gpu.name == "A100 PCIe 80GB"
    assert "slower PCIe card is assumed" in one.note


@pytest.mark.parametrize("wrong", [("RTX4090", 48), ("A100", 64), ("FANTASY", 24), ("RTX4090", None)])
def test_a_card_whose_name_and_memory_do_not_agree_is_left_out_and_named(wrong: tuple[str, float | None]) -> None:
    offers, notes = offers_of([item(*wrong)], TODAY)

    assert offers == ()
    assert wrong[0] in notes[0]


def test_machines_without_gpu_or_price_are_no_offers() -> None:
    assert offers_of([item(None), item(count=0), item(price=0.0)], TODAY) == ((), ())


def test_of_like_items_only_the_cheapest_stays() -> None:
    offers, _ = offers_of([item(price=2.0), item(price=1.5, location="US"), item(price=1.8), item(count=8, price=3.0)], TODAY)

    assert sorted(one.price for one in offers) == [1.5, 3.0]


def test_every_assumed_card_is_known() -> None:
    from wiretax.data.gpus import find_gpu

    assert all(find_gpu(name) is not None for name, _ in FORMS.values())


def test_without_gpuhunt_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)

    with pytest.raises(MissingDependency, match="pip install gpuhunt"):
        live_offers(["vastai"], TODAY)


def test_only_the_providers_named_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    module = ModuleType("gpuhunt")
    module.query = lambda **values: asked.append(values) or [item()]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpuhunt", module)

    assert len(live_offers(["vastai"], TODAY)[0]) == 1
    assert asked == [{"provider": ["vastai"], "min_gpu_count": 1}]


def test_a_catalogue_that_does_not_answer_is_an_error_that_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise OSError("no route")

    module = ModuleType("gpuhunt")
    module.query = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpuhunt", module)

    with pytest.raises(CannotMeasure, match="no route") as caught:
        live_offers(["vastai"], TODAY)
    assert "offers file" in caught.value.do

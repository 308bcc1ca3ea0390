from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from wiretax.errors import BadInput
from wiretax.jobs.offer_files import load_offers, published_offers

TODAY = date(2026, 11, 30)
TOML = """\
currency = "EUR"
seen = 2026-11-01

[[offer]]
gpu = "RTX 4090"
num_gpus = 4
box_price = 0.58

[[offer]]
gpu = "A100 SXM4 80GB"
num_gpus = 8
price = [0.8, 1.2]
spot_price = 0.5
"""


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_toml_with_common_keys_at_its_top(tmp_path: Path) -> None:
    offers = load_offers(written(tmp_path, "mine.toml", TOML), TODAY)

    assert [(one.name, one.price, one.per, one.billing) for one in offers] == [
        ("4x RTX 4090 box", 0.58, "box_hour", "on_demand"),
        ("A100 SXM4 80GB", 1.0, "gpu_hour", "on_demand"),
        ("A100 SXM4 80GB spot", 0.5, "gpu_hour", "spot"),
    ]
    assert all(one.currency == "EUR" and one.seen == date(2026, 11, 1) for one in offers)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_as_spreadsheets_write_it(tmp_path: Path, separator: str) -> None:
    lines = ["GPU,num_gpus,price,currency", "RTX 4090,4,0.4,eur", ",,,", "L40S,8,0.9,EUR"]
    path = written(tmp_path, "mine.csv", "\ufeff" + "\r\n".join(lines).replace(",", separator))

    assert [(one.name, one.price) for one in load_offers(path, TODAY)] == [("RTX 4090", 0.4), ("L40S", 0.9)]


@pytest.mark.parametrize("wrap", [lambda offers: offers, lambda offers: {"offers": offers}])
def test_json_as_a_list_or_under_a_key(tmp_path: Path, wrap: object) -> None:
    offers = [{"gpu": "RTX 4090", "price": 0.4, "currency": "USD"}]
    assert callable(wrap)

    assert load_offers(written(tmp_path, "mine.json", json.dumps(wrap(offers))), TODAY)[0].price == 0.4


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.toml", '[[offer]]\ngpu = "RTX 4090"\nprice = = 2\n', ("line 3", "the key price")),
        ("a.toml", '[[offer]]\ngpu = "RTX 40', ("line 2", "the key gpu")),
        ("a.toml", '[[offer]]\ngpu = "RTX 4091"\nprice = 2\ncurrency = "USD"\n', ("offer 1 (line 2): gpu", "RTX 4090")),
        ("a.toml", '[[offer]]\ngpu = "L40S"\n\nprice = -2\ncurrency = "USD"\n', ("offer 1 (line 4): price", "negative")),
        ("a.toml", 'currency = "USD"\n', ("holds no offer",)),
        ("a.toml", 'curency = "USD"\n[[offer]]\n', ("curency is no key above the offers",)),
        ("a.toml", 'offer = "RTX 4090"', ("list of tables",)),
        ("a.csv", 'gpu,price,currency\nRTX 4090,"2,USD\n', ("not valid CSV",)),
        ("a.csv", "gpu,price,currency\nRTX 4090,2,USD,extra\n", ("line 2 has more cells",)),
        ("a.csv", "gpu,price,currency\nRTX 4090,cheap,USD\n", ("offer 1 (line 2): price", "no price")),
        ("a.csv", "gpu,price,currency\n", ("holds no offer",)),
        ("a.csv", "", ("holds no offer",)),
        ("a.json", '[{"gpu": }]', ("line 1, column 10", "not valid JSON")),
        ("a.json", "3", ("no list of offers",)),
        ("a.json", '["RTX 4090"]', ("list of tables",)),
        ("a.json", "[" * 100_000, ("nested too deeply",)),
        ("a.yaml", "offer: 3", (".toml, .csv, .json",)),
        ("a.toml", b"gpu = '\xff\xfe'", ("not UTF-8 text (byte 7)",)),
    ],
)
def test_a_damaged_file_is_an_error_that_says_where(tmp_path: Path, name: str, text: str | bytes, says: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        load_offers(written(tmp_path, name, text), TODAY)

    assert name in str(caught.value)
    for part in says:
        assert part in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no file"):
        load_offers(tmp_path / "none.toml", TODAY)


def test_the_prices_that_come_along_can_be_read() -> None:
    assert {one.currency for one in published_offers(TODAY)} == {"EUR"}

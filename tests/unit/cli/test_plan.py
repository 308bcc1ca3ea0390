from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wiretax.cli.main import run
from wiretax.store.codec import decode_run

SIMPLEST = ["plan", "--hours", "40", "--price", "2", "--currency", "USD", "--gpus", "1,4", "--efficiency", "0.8"]


def document(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run([*arguments, "--json"]) == code
    out, err = capfd.readouterr()
    assert err == ""
    decode_run(out.encode(), "stdout")
    return json.loads(out)["plan"]


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["plan", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_the_simplest_form_is_answered_as_the_contract_says(capfd: pytest.CaptureFixture[str]) -> None:
    plan = document(capfd, *SIMPLEST)

    assert [(one["num_gpus"], one["hours"], one["cost"], one["currency"]) for one in plan["options"]] == [
        (1, 40, 80, "USD"),
        (4, 12.5, 100, "USD"),
    ]
    assert plan["constraint"] == "none"
    assert plan["choice"] == 0


@pytest.mark.parametrize("hours", ["40", "40h", "2400m", "1d16h", "144000s"])
@pytest.mark.parametrize("currency", ["USD", "usd", " Usd "])
def test_units_and_spelling_do_not_change_the_answer(capfd: pytest.CaptureFixture[str], hours: str, currency: str) -> None:
    plan = document(capfd, *SIMPLEST[:2], hours, *SIMPLEST[3:6], currency, *SIMPLEST[7:])

    assert [one["cost"] for one in plan["options"]] == pytest.approx([80, 100])
    assert plan["currency"] == "USD"


@pytest.mark.parametrize("gpu", ["RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090", "rtx4090"])
def test_a_card_has_many_spellings(capfd: pytest.CaptureFixture[str], gpu: str) -> None:
    assert {one["gpu"] for one in document(capfd, *SIMPLEST, "--gpu", gpu)["options"]} == {"RTX 4090"}


def test_the_same_as_a_table_ends_with_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(SIMPLEST) == 0
    out, _ = capfd.readouterr()

    assert "12.5 h" in out
    assert "100.00" in out
    assert out.rstrip().splitlines()[-1].startswith("╰")
    assert "One GPU is enough" in out


def test_a_plan_that_meets_no_limit_is_a_problem_for_the_caller(capfd: pytest.CaptureFixture[str]) -> None:
    plan = document(capfd, *SIMPLEST, "--deadline", "5h", code=1)

    assert plan["choice"] is None
    assert plan["constraint"] == "too_slow"


def test_a_deadline_may_be_a_date(capfd: pytest.CaptureFixture[str]) -> None:
    then = (datetime.now() + timedelta(hours=24)).isoformat(timespec="minutes")
    plan = document(capfd, *SIMPLEST, "--deadline", then)

    assert plan["deadline_hours"] == pytest.approx(24, abs=0.1)
    assert plan["choice"] == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--deadline", "2020-01-01T00:00"], "has passed"),
        (["--deadline", "24"], "write 24h"),
        (["--deadline", "soon"], "2026-12-05T18:00"),
        (["--deadline", "0h"], "more than nothing"),
        (["--efficiency", "80"], "Write it as a fraction: 0.8"),
        (["--efficiency", "80%"], "write 0.8"),
        (["--efficiency", "1.2"], "more than perfect scaling"),
        (["--efficiency", "2:0.9,4:90"], "0.9"),
        (["--efficiency", "2:0.9,2:0.8"], "twice"),
        (["--efficiency", "good"], "such as 0.8"),
        (["--efficiency", "-0.5"], "GPUs that do nothing"),
        (["--hours", "-3"], "more than nothing"),
        (["--hours", "long"], "40h"),
        (["--hours", "nan"], "no time"),
        (["--price", "-1"], "no price"),
        (["--price", "nan"], "no price"),
        (["--box-price", "3"], "not both"),
        (["--currency", "dollars"], "no currency"),
        (["--gpu", "RTX 4091"], "Did you mean RTX 4090"),
        (["--gpus", "0,2"], "numbers of GPUs"),
        (["--throughput", "1:fast"], "samples per second"),
        (["--throughput", "15.4,14"], "GPUs:value"),
        (["--samples", "many"], "1e6"),
        (["--budget", "-5"], "no price"),
        (["--strategy", "magic"], "no strategy"),
        (["--recipe", "magic"], "no recipe"),
        (["--quantile", "95"], "fraction from 0.5"),
        (["--mtbf", "6h"], "--checkpoint"),
        (["--mtbf", "0h", "--checkpoint", "60s"], "more than nothing"),
        (["--offers", "none.toml"], "There is no file none.toml"),
        (["--wire", "none"], "no run of that id"),
        (["--profile", "none.json"], "There is no file"),
        (["--busbw", "22GB"], "write 22GB/s"),
        (["--out", "missing/plan.json"], "do: mkdir -p"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(capfd: pytest.CaptureFixture[str], more: list[str], says: str) -> None:
    assert says in refused(capfd, *SIMPLEST[1:], *more)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to rent"),
        (["--hours", "40", "--price", "2"], "needs its currency"),
        (["--hours", "40", "--spot-price", "2"], "needs its currency"),
        (["--hours", "40", "--gpu", "RTX 4090"], "no price for RTX 4090"),
    ],
)
def test_what_is_missing_is_named(capfd: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert says in refused(capfd, *arguments)


def test_a_damaged_offers_file_names_file_line_and_key(capfd: pytest.CaptureFixture[str], alone: Path) -> None:
    (alone / "mine.toml").write_text('[[offer]]\ngpu = "RTX 4090"\nprice = \ncurrency = "EUR"\n')
    message = refused(capfd, "--hours", "40", "--offers", "mine.toml")

    assert "mine.toml" in message
    assert "line 3" in message
    assert "price" in message


def test_a_year_old_list_is_warned_about_on_the_page(capfd: pytest.CaptureFixture[str], alone: Path) -> None:
    (alone / "mine.toml").write_text('seen = 2020-01-01\n[[offer]]\ngpu = "RTX 4090"\nprice = 0.4\ncurrency = "EUR"\n')

    assert run(["plan", "--hours", "40", "--gpus", "1", "--offers", "mine.toml"]) == 0
    assert "days old (a year or more)" in capfd.readouterr().out


def test_the_document_is_written_where_asked_and_kept_nowhere_else(alone: Path) -> None:
    assert run([*SIMPLEST, "--out", "plan.json"]) == 0

    assert decode_run((alone / "plan.json").read_bytes(), "plan.json").plan is not None
    assert not (alone.parent / "home").exists()


def test_options_come_from_the_configuration_file_too(capfd: pytest.CaptureFixture[str], alone: Path) -> None:
    (alone / "wiretax.toml").write_text('[plan]\nprice = 2\ncurrency = "USD"\nefficiency = 0.8\ngpus = "1,4"\n')

    assert [one["cost"] for one in document(capfd, "plan", "--hours", "40")["options"]] == [80, 100]


def test_spot_what_ifs_change_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    spot = [*SIMPLEST, "--spot-price", "0.8", "--deadline", "20h", "--mtbf", "6h", "--checkpoint", "60s"]
    base = document(capfd, *spot)
    rough = document(capfd, *spot, "--mtbf", "20m", "--restart", "15m")

    assert base["options"][base["choice"]]["billing"] == "spot"
    assert rough["options"][rough["choice"]]["billing"] == "on_demand"
    assert base["checkpointing"]["interval_seconds"] == pytest.approx(1570, abs=5)


def test_a_service_says_what_a_million_tokens_cost(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--params", "8e9", "--inference", "--weights", "int4", "--gpu", "RTX 4090", "--price", "0.4", "--currency", "EUR"]

    assert run(arguments) == 0
    assert "a million tokens" in " ".join(capfd.readouterr().out.split())
    assert document(capfd, *arguments)["purpose"] == "inference"

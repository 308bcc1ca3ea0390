from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import recording
from recorded_h200x2 import overlaps
from recorded_h200x2 import profile as recorded
from wiretax.errors import BadInput, UsageError
from wiretax.jobs.plan import PlanOptions, Serving, plan
from wiretax.model.money import Price
from wiretax.model.reading import unexplained
from wiretax.model.run import Run
from wiretax.model.training import Training
from wiretax.store.codec import decode_run, encode
from wiretax.store.folder import save_run

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TWO_DOLLARS = Price(amount=2.0, currency="USD", per="gpu_hour")
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 14336,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRETAX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded pair with its sweep and a profile of the 1.7 B model, as a file."""
    measured = recording.run()
    run = replace(
        measured,
        measurements=replace(measured.measurements, overlap=overlaps()),
        training=Training(profiles=(recorded("gpt1.7b", 4, 1),)),
    )
    return save_run(run, tmp_path_factory.mktemp("runs") / "pair.json")


def asked(**options: object) -> Run:
    return plan(PlanOptions(**({"now": NOW, "price": TWO_DOLLARS} | options)))  # type: ignore[arg-type]


def test_the_simplest_question_fills_the_plan_of_the_document() -> None:
    run = asked(hours=40, gpus=(1, 4), efficiency=0.8)
    document = json.loads(encode(run))

    assert [(one["num_gpus"], one["hours"], one["cost"], one["currency"]) for one in document["plan"]["options"]] == [
        (1, 40.0, 80.0, "USD"),
        (4, 12.5, 100.0, "USD"),
    ]
    assert (document["plan"]["constraint"], document["plan"]["choice"], document["command"]) == ("none", 0, "plan")
    assert document["price"] == {"amount": 2.0, "currency": "USD", "per": "gpu_hour"}


def test_the_document_survives_being_written_and_read() -> None:
    run = asked(hours=40, gpus=(1, 4), efficiency=0.8, deadline_hours=24)

    assert decode_run(encode(run), "plan") == run
    assert list(unexplained(run)) == []


def test_a_profile_and_a_measured_wire_take_the_place_of_a_typed_efficiency(pair: Path) -> None:
    run = asked(profile=str(pair), machines=(str(pair),), samples=1e6, gpu="H200", gpus=(1, 2))
    one, two = run.plan.options  # type: ignore[union-attr]

    assert (one.basis, two.basis) == ("exact", "predicted")
    assert two.efficiency_range is not None
    # The middle of the three recorded launches: 101.6 ms against 91.9 ms on one.
    assert two.efficiency_range.low < 0.904 < two.efficiency_range.high
    assert two.fits is True
    assert two.hours_range is not None
    assert [forecast.num_gpus for forecast in run.forecasts] == [2]


def test_every_kept_run_can_be_used_and_a_damaged_one_is_passed_over(pair: Path, home: Path) -> None:
    (home / "runs").mkdir(parents=True)
    (home / "runs" / "20260101T000000-aaaaaa.json").write_text("{")
    (home / "runs" / "20260101T000001-aaaaaa.json").write_bytes(pair.read_bytes())

    run = asked(profile=str(pair), all_machines=True, samples=1e6, gpu="H200", gpus=(2,))

    assert run.plan is not None
    assert run.plan.options[0].basis == "predicted"


def test_a_machine_asked_for_by_name_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        asked(hours=40, machines=(str(tmp_path / "none.json"),))


def test_a_config_file_tells_the_memory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run = asked(config=tmp_path / "config.json", sequence_length=2048, hours=10, gpu="RTX 4090", gpus=(1, 8), efficiency=0.9)

    assert run.plan is not None
    assert run.plan.constraint == "does_not_fit"
    assert "8.03 billion parameters" in " ".join(run.plan.job)


def test_a_preset_knows_its_sequence_length() -> None:
    run = asked(preset="gpt1.7b", hours=10, gpu="RTX 4090", gpus=(1,))

    assert run.plan is not None
    assert run.plan.options[0].fits is True


def test_a_known_speed_without_an_amount_is_planned_for_a_million_samples() -> None:
    run = asked(throughput={1: 15.4, 4: 14.0}, gpus=(1, 4))

    assert run.plan is not None
    assert run.plan.options[0].hours == pytest.approx(1e6 / 15.4 / 3600)
    assert "1,000,000 samples" in run.plan.job


def test_spot_and_on_demand_are_two_offers() -> None:
    spot = Price(amount=0.8, currency="USD", per="gpu_hour")
    run = asked(hours=40, efficiency=0.8, gpus=(4,), spot_price=spot, mean_gap_seconds=6 * 3600, checkpoint_seconds=60, deadline_hours=20)

    assert run.plan is not None
    assert {one.billing for one in run.plan.options} == {"spot", "on_demand"}
    assert run.plan.checkpointing is not None


def test_prices_of_the_shipped_list_and_of_one_currency() -> None:
    run = plan(
        PlanOptions(throughput={1: 15.4, 2: 4.5, 4: 14.0}, samples=1e6, measured_on="RTX 4090", known_offers=True, gpus=(1, 2, 4), now=NOW)
    )

    assert run.plan is not None
    assert run.plan.options[run.plan.choice or 0].cost == pytest.approx(2.7056, abs=1e-3)
    assert run.plan.currency == "EUR"


def test_listed_prices_in_another_currency_are_left_out_and_counted() -> None:
    run = asked(hours=40, efficiency=0.8, gpus=(1,), gpu="RTX 4090", known_offers=True)

    assert run.plan is not None
    assert {one.offer for one in run.plan.options} == {"RTX 4090"}
    assert any("listed prices in EUR were left out" in note for note in run.plan.assumptions)


def test_a_users_own_file_is_never_filtered_but_mixed_currencies_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[offer]]\ngpu = "RTX 4090"\nprice = 0.4\ncurrency = "EUR"\n')

    with pytest.raises(UsageError, match="EUR and USD"):
        asked(hours=40, gpu="RTX 4090", offers=(path,))


@pytest.mark.parametrize(("seen", "words"), [("2026-06-01", "days old."), ("2025-10-01", "a year or more")])
def test_an_old_price_list_gets_a_warning(tmp_path: Path, seen: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'seen = "{seen}"\n[[offer]]\ngpu = "RTX 4090"\nprice = 0.4\ncurrency = "EUR"\n')
    run = plan(PlanOptions(hours=40, offers=(path,), gpus=(1,), now=NOW))
    (finding,) = run.findings

    assert (finding.code, finding.severity) == ("prices-old", "warning")
    assert words in finding.title


def test_a_fresh_list_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('seen = "2026-11-20"\n[[offer]]\ngpu = "RTX 4090"\nprice = 0.4\ncurrency = "EUR"\n')

    assert plan(PlanOptions(hours=40, offers=(path,), gpus=(1,), now=NOW)).findings == ()


def test_more_than_perfect_scaling_is_suspected_to_be_a_mix_up_of_units() -> None:
    run = asked(throughput={1: 10.0, 4: 60.0}, gpus=(1, 4))

    assert [finding.code for finding in run.findings] == ["unit-trap"]
    assert asked(throughput={1: 10.0, 4: 40.5}, gpus=(1, 4)).findings == ()


def test_where_nothing_meets_every_limit_that_is_a_problem_with_its_sentence() -> None:
    run = asked(hours=40, efficiency=0.8, gpus=(1, 4), deadline_hours=5)
    (finding,) = run.findings

    assert (finding.code, finding.severity) == ("plan-impossible", "problem")
    assert "late" in finding.evidence[0].text


def test_a_service_is_planned_in_place_of_a_job() -> None:
    run = asked(params=8e9, gpu="RTX 4090", gpus=(1, 2), serving=Serving(weights="int4", context=8192))

    assert run.plan is not None
    assert run.plan.purpose == "inference"
    assert run.plan.options[0].tokens_per_second is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"price": None}, "nothing to rent"),
        ({"price": None, "gpu": "RTX 4090"}, "no price for RTX 4090"),
        ({"gpu": "RTX 4091"}, "Did you mean RTX 4090"),
        ({"measured_on": "A100"}, "Did you mean"),
        ({"preset": "gpt124m", "params": 7e9}, "Give one of them"),
        ({"preset": "resnet50"}, "Profile it"),
        ({"preset": "gpt5"}, "no preset"),
        ({"params": 7e9}, "--sequence"),
        ({"mean_gap_seconds": 3600.0}, "--checkpoint"),
        ({"checkpoint_every_seconds": 3600.0}, "--checkpoint"),
        ({"price": Price(amount=-2.0, currency="USD", per="gpu_hour")}, "impossible"),
        ({"hours": None, "throughput": {1: 10.0}, "deadline_hours": 5.0}, "--samples"),
        ({"efficiency": 80}, "0.8"),
        ({"serving": Serving()}, "What is to be served"),
        ({"known_offers": True, "price": None, "hours": 40}, "--on"),
    ],
)
def test_a_question_that_makes_no_sense_says_what_to_give(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked(**({"hours": 40} | options))

    assert says in str(caught.value)


def test_a_config_that_is_none_is_an_error(tmp_path: Path) -> None:
    for text, says in (("{", "not valid JSON"), ("[]", "holds no object"), ('{"model_type": "magic"}', "not known")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(BadInput, match=says):
            asked(config=tmp_path / "config.json", sequence_length=128, hours=1)

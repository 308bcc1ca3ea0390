"""The decision rule and every worked number of the texts it comes from."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import offer, planned
from recorded_h200x2 import profile as recorded
from wiretax.data.gpus import find_gpu
from wiretax.errors import UsageError
from wiretax.model.reading import not_finite, unexplained
from wiretax.plan.checkpointing import Interruptions, expected_seconds
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.knowledge import Setting
from wiretax.plan.planner import make_plan
from wiretax.plan.request import Interrupting, Request
from wiretax.predict.formula import all_reduce_seconds

FIRST_USER = Job(samples=1e6, throughput={1: 15.4, 2: 4.5, 4: 14.0}, measured_on=find_gpu("RTX 4090"))
BOX = {"per": "box_hour", "currency": "EUR", "num_gpus": 4, "gpu": "RTX 4090", "name": "4x RTX 4090 box"}


def seventy_billion(**more):
    return Job(
        shape=shape_of_size(70e9), shape_is_guess=True, sequence_length=4096, recipe="adamw_master", activation_checkpointing=True, **more
    )


# ------------------------------------------------------------------ the worked numbers


def test_the_simplest_question_is_answered_to_the_cent():
    plan = planned()

    assert [(one.num_gpus, one.hours, one.cost) for one in plan.options] == [(1, 40.0, 80.0), (4, 12.5, 100.0)]
    assert (plan.constraint, plan.choice, plan.currency) == ("none", 0, "USD")
    assert "One GPU is enough" in plan.sentence


def test_four_gpus_are_three_times_as_fast_for_a_quarter_more():
    one, four = planned().options

    assert one.hours / four.hours == pytest.approx(3.2)
    assert four.cost / one.cost == pytest.approx(1.25)
    assert four.wire_tax_per_hour == pytest.approx(8 * 0.2)
    assert four.extra_cost_per_hour_saved == four.marginal_cost_per_hour_saved == pytest.approx(20 / 27.5)
    assert four.break_even_efficiency_fraction == pytest.approx(1)
    assert four.break_even_gpu_hour_price == pytest.approx(1.6)
    assert "25 % dearer" in four.why


def test_eight_gpus_at_seventy_percent_do_5_6_times_the_work():
    (_, eight) = planned(Job(hours=40, efficiency=0.7), counts=(1, 8)).options

    assert 40 / eight.hours == pytest.approx(5.6)


def test_the_first_users_box_costs_four_times_as_much_a_sample_and_one_gpu_is_the_answer():
    single = offer(0.15, gpu="RTX 4090", num_gpus=1, currency="EUR")
    plan = planned(FIRST_USER, single, offer(0.58, **BOX), counts=(1, 2, 4))
    by = {(one.offer, one.num_gpus): one for one in plan.options}
    millions = {key: one.cost_per_sample * 1e6 for key, one in by.items()}

    assert millions["RTX 4090", 1] == pytest.approx(0.15 * 1e6 / 15.4 / 3600)
    assert millions["RTX 4090", 1] == pytest.approx(2.71, abs=0.01)
    assert millions["4x RTX 4090 box", 4] == pytest.approx(11.51, abs=0.01)
    assert millions["4x RTX 4090 box", 2] == pytest.approx(35.80, abs=0.01)
    assert plan.options[plan.choice] is by["RTX 4090", 1]
    assert plan.constraint == "none"
    assert "would not even be sooner" in plan.sentence


def test_two_of_the_first_users_gpus_have_15_and_four_23_percent_efficiency():
    plan = planned(FIRST_USER, offer(0.58, **BOX), counts=(2, 4))

    assert [one.efficiency_fraction for one in plan.options] == pytest.approx([0.146, 0.227], abs=0.001)
    assert {one.basis for one in plan.options} == {"measured"}


def test_two_hundred_megabytes_take_9_ms_on_two_and_16_ms_on_eight_gpus():
    assert all_reduce_seconds(200e6, 22e9, 2) == pytest.approx(9.1e-3, abs=0.05e-3)
    assert all_reduce_seconds(200e6, 22e9, 8) == pytest.approx(15.9e-3, abs=0.05e-3)


# ------------------------------------------------------------------ the rule


def test_a_deadline_that_one_gpu_misses_is_the_constraint_and_the_cheapest_in_time_wins():
    plan = planned(deadline_hours=24, counts=(1, 2, 4, 8))

    assert plan.constraint == "too_slow"
    # At 80 % every count costs the same 100 USD, so fewer GPUs win: 2 take 25 h, 4 take 12.5 h.
    assert (plan.options[plan.choice].num_gpus, plan.options[plan.choice].hours) == (4, 12.5)
    assert plan.sentence.startswith("One GPU is too slow: 40 h against a deadline of 24 h.")
    assert plan.options[0].meets_deadline is False
    assert plan.options[0].why == "too slow: 40 h, 16 h after the deadline"


def test_a_deadline_that_one_gpu_keeps_changes_nothing():
    plan = planned(deadline_hours=48)

    assert (plan.constraint, plan.choice) == ("none", 0)
    assert "before the deadline of 48 h" in plan.sentence


def test_a_deadline_that_nothing_keeps_leaves_no_choice_and_says_by_how_much():
    plan = planned(deadline_hours=10)

    assert plan.choice is None
    assert "2.5 h late" in plan.sentence


def test_a_budget_that_nothing_keeps_names_the_cheapest():
    plan = planned(budget=50)

    assert plan.choice is None
    assert "80.00 USD" in plan.sentence


def test_a_budget_drops_what_is_dearer_and_says_so():
    plan = planned(deadline_hours=24, budget=90)

    assert plan.choice is None
    assert "more than the budget" in plan.options[1].why


def test_what_does_not_fit_names_what_it_needs_and_the_smallest_set_that_works():
    cards = [offer(price, gpu=name, num_gpus=8) for name, price in (("A100 SXM4 80GB", 1.5), ("H200 SXM", 3.5), ("B200 SXM", 5.0))]
    plan = planned(seventy_billion(tokens=1e8, mfu=0.4), *cards, counts=None)

    assert plan.constraint == "does_not_fit"
    chosen = plan.options[plan.choice]
    assert (chosen.num_gpus, chosen.gpu, chosen.fits) == (8, "B200 SXM", True)
    assert plan.fewest_that_fit == plan.choice
    assert "does not fit on one GPU" in plan.sentence
    assert "smallest set that works" in plan.sentence
    assert any("LoRA" in line for line in plan.remedies)
    assert all(one.cost is None and one.hours is None for one in plan.options if one.fits is False)


def test_what_holds_a_model_is_answered_without_any_time():
    plan = planned(seventy_billion(), offer(5.0, gpu="B200 SXM", num_gpus=8), counts=None)

    assert plan.constraint == "does_not_fit"
    assert plan.options[plan.choice].num_gpus == 8
    assert plan.options[plan.choice].hours is None
    assert "40.00 USD an hour" in plan.sentence


def test_a_model_that_no_offer_holds_says_how_far_it_is():
    plan = planned(seventy_billion(), offer(0.4, gpu="RTX 4090", num_gpus=8), counts=None)

    assert plan.choice is None
    assert plan.fewest_that_fit is None
    assert "still needs" in plan.sentence


def test_a_lora_fits_one_24_gigabyte_card():
    job = Job(shape=shape_of_size(7e9), recipe="lora", sequence_length=2048, activation_checkpointing=True, hours=10)
    plan = planned(job, offer(0.4, gpu="RTX 4090", num_gpus=2), counts=None)

    assert plan.constraint == "none"
    assert plan.options[plan.choice].num_gpus == 1
    assert plan.options[plan.choice].fits is True
    assert plan.remedies == ()


def test_the_full_fine_tune_of_the_same_model_does_not_and_the_remedies_say_what_would():
    job = Job(shape=shape_of_size(7e9), recipe="adamw_bf16", sequence_length=2048, activation_checkpointing=True, hours=10)
    plan = planned(job, offer(0.4, gpu="RTX 4090", num_gpus=8), counts=None)

    assert plan.constraint == "does_not_fit"
    assert [line.split()[0] for line in plan.remedies[:2]] == ["LoRA", "QLoRA"]
    assert "a bigger GPU" in plan.remedies[-1]


def test_tensor_parallelism_is_not_offered_outside_a_fast_island():
    job = Job(shape=shape_of_size(13e9), sequence_length=2048, hours=10, efficiency=0.9)
    slow = planned(job, offer(gpu="RTX 4090"), counts=(8,), strategies=("tp",))
    fast = planned(job, offer(gpu="H100 SXM5"), counts=(8,), strategies=("tp",))

    assert slow.choice is None
    assert fast.options[fast.choice].strategy == "tp"


def test_fewer_bigger_cards_are_set_against_more_smaller_ones():
    job = Job(shape=shape_of_size(7e9), sequence_length=2048, hours=100, measured_on=find_gpu("A100 SXM4 80GB"), efficiency=0.9)
    small, big = offer(1.2, gpu="A100 SXM4 40GB"), offer(2.0, gpu="A100 SXM4 80GB")
    plan = planned(job, small, big, counts=(2, 4), deadline_hours=60)

    assert {(one.gpu, one.num_gpus) for one in plan.options} >= {("A100 SXM4 40GB", 4), ("A100 SXM4 80GB", 2)}
    assert all(one.why for one in plan.options)


def test_one_gpu_that_was_not_asked_for_is_still_what_names_the_constraint():
    plan = planned(counts=(4, 8))

    assert plan.constraint == "none"
    assert plan.options[plan.choice].num_gpus == 4
    assert "not among the options" in plan.sentence
    assert plan.options[0].extra_cost_per_hour_saved == pytest.approx(20 / 27.5)


def test_a_cheaper_offer_of_several_loses_to_one_gpu_but_is_named():
    job = Job(hours=40, efficiency=0.95, measured_on=find_gpu("A40"))
    plan = planned(
        job, offer(4.0, gpu="A40", num_gpus=1), offer(2.0, name="box of four", gpu="A40", num_gpus=4, per="box_hour"), counts=(4, 1)
    )
    four = next(one for one in plan.options if one.num_gpus == 4)

    assert four.cost < 40 * 2.0
    assert plan.options[plan.choice].num_gpus == 1
    assert plan.options[plan.choice].offer == "box of four"
    assert "4x A40 would cost" in plan.sentence
    assert "one GPU is enough and simpler" in four.why


def test_of_single_gpus_the_cheapest_for_the_job_wins_not_the_cheapest_an_hour():
    job = Job(hours=40, measured_on=find_gpu("RTX 3090"))
    plan = planned(job, offer(0.2, gpu="RTX 3090"), offer(0.3, gpu="RTX 4090"), counts=(1,))

    assert plan.options[plan.choice].gpu == "RTX 4090"


def test_a_doubtful_offer_loses_to_a_sure_one():
    gpt = recorded("gpt1.7b", 4, 1)
    sure, doubtful = offer(2.0, gpu="H200 SXM", name="sure"), offer(1.9, gpu="H200 SXM", name="doubtful")
    job = Job(profile=gpt, samples=1e5)
    plan = planned(job, sure, replace(doubtful, price_low=0.5, price_high=9.0), counts=(1,), budget=2.2)

    assert plan.options[plan.choice].offer == "sure"


# ------------------------------------------------------------------ interruptions


SIX_HOURS = Interrupting(checkpoint_seconds=60, restart_seconds=300, mean_gap_seconds=6 * 3600)


def test_spot_wins_where_it_keeps_the_deadline_with_the_wanted_certainty():
    spot = offer(0.8, name="spot", billing="spot")
    plan = planned(None, offer(2.0), spot, deadline_hours=20, interrupting=SIX_HOURS)
    chosen = plan.options[plan.choice]

    assert (chosen.billing, chosen.num_gpus) == ("spot", 4)
    assert 12.5 < chosen.hours < chosen.hours_at_quantile < 20
    assert plan.checkpointing.method == "daly"
    assert plan.checkpointing.interval_seconds == pytest.approx(26.2 * 60, rel=0.01)


def test_spot_loses_where_only_its_mean_keeps_the_deadline():
    spot = offer(0.8, name="spot", billing="spot")
    mean = next(one.hours for one in planned(None, spot, interrupting=SIX_HOURS).options if one.num_gpus == 4)
    plan = planned(None, offer(2.0), spot, deadline_hours=mean + 0.05, interrupting=SIX_HOURS)

    assert plan.options[plan.choice].billing == "on_demand"
    assert "with 95 % certainty" in next(one.why for one in plan.options if one.billing == "spot" and one.num_gpus == 4)


def test_a_lower_certainty_accepts_it():
    spot = offer(0.8, name="spot", billing="spot")
    strict, easy = (planned(None, spot, deadline_hours=14.3, interrupting=SIX_HOURS, quantile=one) for one in (0.99, 0.6))

    assert strict.choice is None
    assert easy.options[easy.choice].billing == "spot"


def test_without_spot_offers_every_box_is_interrupted():
    plan = planned(interrupting=SIX_HOURS)

    assert plan.options[0].hours > 40
    assert plan.checkpointing.applies_to == "all"


def test_a_typed_interval_is_used_and_set_beside_the_best():
    rare = Interrupting(checkpoint_seconds=60, restart_seconds=300, mean_gap_seconds=6 * 3600, every_seconds=4 * 3600)
    best, typed = planned(interrupting=SIX_HOURS), planned(interrupting=rare)

    assert typed.options[0].hours > best.options[0].hours
    assert typed.checkpointing.method == "typed"
    assert "best is" in typed.checkpointing.sentence


def test_where_saving_takes_longer_than_the_formula_bears_the_simulation_is_used_and_said():
    slow = Interrupting(checkpoint_seconds=600, restart_seconds=60, mean_gap_seconds=1000)
    plan = planned(Job(hours=5, efficiency=0.9), interrupting=slow)

    assert plan.checkpointing.method == "simulation"
    assert "simulation" in plan.checkpointing.sentence


def test_a_spot_offer_whose_interruptions_nobody_knows_is_not_sure_of_its_deadline():
    spot = offer(0.8, name="spot", billing="spot")
    plan = planned(None, spot, offer(2.0), deadline_hours=24)
    unsure = next(one for one in plan.options if one.billing == "spot" and one.num_gpus == 4)

    assert unsure.meets_deadline is None
    assert plan.options[plan.choice].billing == "on_demand"
    assert any("--mtbf" in note for note in unsure.assumptions)


def test_the_interval_told_is_the_one_the_times_are_for():
    rough = Interrupting(checkpoint_seconds=3000, restart_seconds=60, mean_gap_seconds=3600)  # where the grid, so the work, decides
    plan = planned(Job(hours=5.0), offer(2.0), counts=(1,), interrupting=rough)
    known = Interruptions(mean_gap=3600, checkpoint=3000, restart=60)
    (option,) = plan.options

    assert option.hours_of_work == pytest.approx(5.0)
    assert option.hours == pytest.approx(expected_seconds(5 * 3600, plan.checkpointing.interval_seconds, known) / 3600)
    assert plan.checkpointing.waste_fraction == pytest.approx(1 - 5.0 / option.hours)


def test_a_job_shorter_than_the_interval_saves_once():
    plan = planned(Job(hours=0.1), offer(2.0), counts=(1,), interrupting=SIX_HOURS)

    assert plan.checkpointing.interval_seconds == pytest.approx(360)
    assert plan.checkpointing.sentence.startswith("Save once, after all 6.00 min of work")


def test_the_mean_gap_of_an_offer_counts_before_the_general_one():
    often = offer(0.8, name="often", billing="spot", mean_seconds_between_interruptions=1800.0)
    seldom = offer(0.8, name="seldom", billing="spot")
    plan = planned(None, often, seldom, interrupting=SIX_HOURS, counts=(1,))
    hours = {one.offer: one.hours for one in plan.options}

    assert hours["often"] > hours["seldom"] > 40


def test_boxes_taken_away_all_the_time_never_finish_and_say_so():
    hopeless = Interrupting(checkpoint_seconds=3600, restart_seconds=300, mean_gap_seconds=30)
    plan = planned(interrupting=hopeless)

    assert plan.choice is None
    assert "never finished" in plan.options[0].why


# ------------------------------------------------------------------ wrong questions


def test_mixed_currencies_are_an_error():
    with pytest.raises(UsageError, match="EUR and USD"):
        planned(None, offer(2.0), offer(2.0, currency="EUR"))


def test_nothing_to_rent_is_an_error():
    with pytest.raises(UsageError, match="--offers"):
        make_plan(Job(hours=40), [], Request())


def test_a_count_that_no_offer_has_is_an_error_that_names_the_largest():
    with pytest.raises(UsageError, match="The largest has 4"):
        planned(None, offer(num_gpus=4), counts=(16, 32))


@pytest.mark.parametrize(
    "wrong",
    [
        {"deadline_hours": -1},
        {"deadline_hours": 0},
        {"budget": 0},
        {"budget": float("nan")},
        {"counts": (0,)},
        {"quantile": 95},
        {"quantile": 1.0},
    ],
)
def test_limits_that_make_no_sense_are_errors(wrong):
    with pytest.raises(UsageError):
        Request(**wrong)


def test_a_strategy_nobody_knows_is_an_error():
    with pytest.raises(UsageError, match="no strategy"):
        planned(strategies=("magic",))


# ------------------------------------------------------------------ the document


def test_no_value_is_missing_without_a_reason_and_none_is_no_number():
    gpt = recorded("gpt1.7b", 4, 1)
    plans = [
        planned(),
        planned(seventy_billion(tokens=1e8, mfu=0.4), offer(5.0, gpu="B200 SXM"), offer(0.4, gpu="RTX 4090"), counts=None),
        planned(Job(profile=gpt, samples=1e5), offer(3.0, gpu="H200 SXM"), offer(1.0, gpu="L40S"), counts=(1, 2), deadline_hours=1),
        planned(Job(hours=40), offer(3.0), counts=(1, 2, 4)),
        planned(None, offer(0.8, billing="spot"), offer(2.0), deadline_hours=20, interrupting=SIX_HOURS),
    ]

    for plan in plans:
        assert list(unexplained(plan)) == []
        assert list(not_finite(plan)) == []
        assert all(one.why for one in plan.options)


def test_every_combination_is_counted():
    job = Job(shape=shape_of_size(1e9), sequence_length=1024, hours=10, efficiency=0.9)
    settings_ = tuple(Setting(batch_size=batch) for batch in (1, 2, 4))
    plan = planned(job, offer(gpu="A40"), offer(gpu="L40S"), counts=(1, 2, 4), settings=settings_)

    assert plan.num_considered == 2 * 3 * 4 * 3


def test_hundreds_of_offers_are_ranked_and_the_cheapest_described():
    offers = [offer(1 + index / 1000, name=f"offer {index}", gpu="A40") for index in range(500)]
    plan = planned(Job(hours=40, efficiency=0.9), *offers)

    assert len(plan.options) < 100
    assert plan.options[plan.choice].offer == "offer 0"
    assert any("are not listed" in note for note in plan.assumptions)


def test_a_batch_that_does_not_fit_is_passed_over_for_one_that_does():
    job = Job(shape=shape_of_size(1.7e9), sequence_length=1024, hours=10)
    settings_ = tuple(Setting(batch_size=batch) for batch in (256, 2))
    plan = planned(job, offer(gpu="RTX 4090"), counts=(1,), settings=settings_)

    assert plan.options[plan.choice].batch_per_gpu == 2
    assert plan.options[plan.choice].fits is True


# ------------------------------------------------------------------ properties


hours = st.floats(0.1, 5000)
prices = st.floats(0.01, 50)
efficiencies = st.floats(0.05, 1.0)


@settings(max_examples=40, deadline=None)
@given(hours, prices, efficiencies, st.floats(1.01, 4))
def test_cost_rises_with_the_price_and_time_does_not(length, price, efficiency, factor):
    low, high = (planned(Job(hours=length, efficiency=efficiency), offer(one)) for one in (price, price * factor))

    for cheap, dear in zip(low.options, high.options, strict=True):
        assert dear.cost > cheap.cost
        assert dear.hours == cheap.hours


@settings(max_examples=40, deadline=None)
@given(hours, prices, efficiencies, st.floats(0.1, 0.99))
def test_less_efficiency_is_never_sooner_nor_cheaper(length, price, efficiency, factor):
    good, bad = (planned(Job(hours=length, efficiency=one), offer(price)) for one in (efficiency, efficiency * factor))

    for better, worse in zip(good.options, bad.options, strict=True):
        assert worse.hours >= better.hours
        assert worse.cost >= better.cost


@settings(max_examples=40, deadline=None)
@given(hours, prices, efficiencies, st.one_of(st.none(), st.floats(0.5, 1.5)))
def test_the_answer_does_not_change_with_the_currency(length, price, efficiency, share):
    limit = None if share is None else share * length
    plans = [planned(Job(hours=length, efficiency=efficiency), offer(price, currency=one), deadline_hours=limit) for one in ("USD", "JPY")]

    assert plans[0].choice == plans[1].choice
    assert plans[0].constraint == plans[1].constraint
    assert [one.cost for one in plans[0].options] == [one.cost for one in plans[1].options]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(prices, st.sampled_from(["A40", "L40S", "RTX 4090", "H100 SXM5"])), min_size=1, max_size=6), efficiencies, hours)
def test_no_option_on_the_front_is_beaten_by_another(cards, efficiency, length):
    job = Job(hours=length, efficiency=efficiency, measured_on=find_gpu("A40"))
    plan = planned(job, *[offer(price, gpu=name, name=f"{index}") for index, (price, name) in enumerate(cards)], counts=(1, 2, 8))
    points = [(one.cost, one.hours) for one in plan.options]

    for option in plan.options:
        beaten = any(cost <= option.cost and time <= option.hours and (cost, time) != (option.cost, option.hours) for cost, time in points)
        assert option.on_front is not beaten or (not option.on_front and points.count((option.cost, option.hours)) > 1)


@settings(max_examples=60, deadline=None)
@given(hours, prices, efficiencies, st.one_of(st.none(), hours), st.one_of(st.none(), st.floats(1, 1e5)))
def test_a_choice_keeps_every_limit_and_one_gpu_wins_whenever_it_does(length, price, efficiency, deadline, budget):
    plan = planned(Job(hours=length, efficiency=efficiency), offer(price), counts=(1, 2, 4, 8), deadline_hours=deadline, budget=budget)

    def allowed(option):
        return (deadline is None or option.hours <= deadline) and (budget is None or option.cost <= budget)

    if plan.choice is None:
        assert not any(allowed(option) for option in plan.options)
    else:
        chosen = plan.options[plan.choice]
        assert allowed(chosen)
        if allowed(plan.options[0]):
            assert chosen.num_gpus == 1
        else:
            assert chosen.cost == min(option.cost for option in plan.options if allowed(option))

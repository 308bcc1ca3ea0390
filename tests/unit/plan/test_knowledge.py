from dataclasses import replace

import pytest

import sample_runs
from plans import offer
from profiles import profile
from recorded_h200x2 import measurements, truths
from recorded_h200x2 import profile as recorded
from wiretax.data.gpus import find_gpu
from wiretax.model.forecast import Interval
from wiretax.model.profile import MemoryPoint
from wiretax.model.training import StepTiming, Training
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.knowledge import Efficiency, Hours, Knowledge, Setting, combined
from wiretax.predict.forecast import predict
from wiretax.predict.wire_curve import Wire

CASE = ("gpt1.7b", "default", "ddp", 4)
ONE = Setting(batch_size=1)
FOUR = Setting(batch_size=4)


@pytest.fixture(scope="module")
def gpt():
    return recorded("gpt1.7b", 4, 1)


@pytest.fixture(scope="module")
def pair():
    """The recorded pair as a run, with the sweep of the profile's own launch."""
    return replace(sample_runs.h200_pair(), measurements=measurements("default", 1))


def test_typed_efficiency_holds_for_every_count_above_one():
    knowledge = Knowledge(Job(hours=40, efficiency=0.8))

    assert knowledge.efficiency(offer(), "ddp", 1, ONE).range.expected == 1
    assert [knowledge.efficiency(offer(), "ddp", count, ONE).range.expected for count in (2, 8)] == [0.8, 0.8]
    assert knowledge.efficiency(offer(), "ddp", 2, ONE).basis == "typed"


def test_a_count_without_a_typed_efficiency_is_not_guessed_from_the_others():
    knowledge = Knowledge(Job(hours=40, efficiency={2: 0.9}))

    assert knowledge.efficiency(offer(), "ddp", 2, ONE).range.expected == 0.9
    assert "--efficiency" in knowledge.efficiency(offer(), "ddp", 4, ONE)


def test_measured_throughput_holds_for_its_own_card_only():
    knowledge = Knowledge(Job(samples=1e6, throughput={1: 15.4, 4: 14.0}, measured_on=find_gpu("RTX 4090")))

    own = knowledge.efficiency(offer(gpu="RTX 4090"), "ddp", 4, ONE)
    other = knowledge.efficiency(offer(gpu="A40"), "ddp", 4, ONE)

    assert own.range.expected == pytest.approx(14.0 / (4 * 15.4))
    assert own.basis == "measured"
    assert other.basis == "class"


def test_an_offer_of_which_nothing_is_known_gets_the_range_of_its_class():
    found = Knowledge(Job(hours=40)).efficiency(offer(gpu="RTX 4090"), "ddp", 2, ONE)

    assert found.basis == "class"
    assert found.range.low < found.range.expected < found.range.high
    assert "no P2P" in found.notes[0]


@pytest.mark.parametrize(("one", "says"), [(offer(), "--gpu"), (offer(gpu="H100 SXM5", num_gpus=16, hosts=2), "a network between hosts")])
def test_where_nothing_is_known_a_sentence_says_what_to_give(one, says):
    found = Knowledge(Job(hours=40)).efficiency(one, "ddp", one.num_gpus, ONE)

    assert isinstance(found, str)
    assert says in found


def test_real_steps_of_a_run_count_before_any_prediction(gpt, pair):
    step = StepTiming(
        strategy="ddp",
        num_gpus=2,
        wire="default",
        workload=gpt.workload.name,
        batch_per_gpu=4,
        step_seconds=0.1,
        samples_per_second=80.0,
        efficiency_fraction=0.77,
        missing={"peak_memory_bytes": "not read"},
    )
    run = replace(pair, training=Training(steps=(step,)))
    knowledge = Knowledge(Job(profile=gpt, samples=1e6, runs=(run,)))

    found = knowledge.efficiency(offer(gpu="H200 SXM", num_gpus=2), "ddp", 2, FOUR)
    other_batch = knowledge.efficiency(offer(gpu="H200 SXM", num_gpus=2), "ddp", 2, Setting(batch_size=16))

    assert (found.range.expected, found.basis) == (0.77, "measured")
    assert other_batch.basis == "predicted"


def test_a_profile_over_a_measured_wire_is_what_predict_says(gpt, pair):
    knowledge = Knowledge(Job(profile=gpt, samples=1e6, runs=(pair,)))

    found = knowledge.efficiency(offer(gpu="H200 SXM", num_gpus=2), "fsdp2", 2, FOUR)
    forecast = predict(gpt, Wire.measured(pair.measurements, "default"), "fsdp2", 2).forecast

    assert found.basis == "predicted"
    assert found.range.expected == pytest.approx(forecast.efficiency_fraction, rel=0.1)
    assert found.range.low < found.range.expected < found.range.high
    assert any(pair.run_id in note for note in found.notes)


def test_a_profile_without_a_measured_wire_gets_the_range_of_the_wires_class(gpt):
    knowledge = Knowledge(Job(profile=gpt, samples=1e6))

    found = knowledge.efficiency(offer(gpu="H200 SXM", num_gpus=2), "ddp", 2, FOUR)

    assert found.basis == "class"
    assert "no wire of this offer was measured" in found.notes[0]
    measured = [
        gpt.bare.step.seconds / one.step_seconds for one in truths() if (one.workload, one.wire, one.strategy, one.batch_size) == CASE
    ]
    assert len(measured) == 3
    assert found.range.low < min(measured) < max(measured) < found.range.high


def test_a_typed_wire_is_used_for_every_offer(gpt):
    fast, slow = (Knowledge(Job(profile=gpt, samples=1e6, busbw=rate)) for rate in (300e9, 3e9))
    one = offer(gpu="H200 SXM", num_gpus=2)

    assert slow.efficiency(one, "ddp", 2, FOUR).range.expected < 0.2 < fast.efficiency(one, "ddp", 2, FOUR).range.expected


def test_the_model_and_its_speed_on_one_gpu_narrow_the_class():
    shape = shape_of_size(1.7e9)
    job = Job(samples=1e6, throughput={1: 15.4}, shape=shape, sequence_length=1024, measured_on=find_gpu("RTX 4090"))

    found = Knowledge(job).efficiency(offer(gpu="RTX 4090", num_gpus=2), "ddp", 2, FOUR)

    assert found.basis == "class"
    # The first user measured 15 %; bytes against time allow at worst that no overlap and the slowest wire recorded.
    assert found.range.low < 0.35
    assert "overlap" in found.notes[0]


def test_hours_are_scaled_to_another_card_with_a_range():
    knowledge = Knowledge(Job(hours=40, measured_on=find_gpu("A100 SXM4 80GB")))

    same, other = (knowledge.hours(find_gpu(name), ONE) for name in ("A100 SXM4 80GB", "H100 SXM5"))

    assert same.range.expected == 40
    assert other.range.low < other.range.expected < other.range.high < 40


def test_hours_by_mfu_are_arithmetic_over_the_cards_peak():
    shape = shape_of_size(7e9)
    job = Job(tokens=1e9, sequence_length=2048, shape=shape, mfu=0.5)

    found = Knowledge(job).hours(find_gpu("H100 SXM5"), ONE)

    assert isinstance(found, Hours)
    assert found.range.expected == pytest.approx(1e9 / 2048 * shape.flops_per_sample(2048) / (989e12 * 0.5) / 3600)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (Job(), "--hours"),
        (Job(tokens=1e9, sequence_length=2048), "--hours"),
        (Job(shape=shape_of_size(7e9), mfu=0.5), "--tokens"),
        (Job(profile=profile()), "--samples"),
    ],
)
def test_a_time_that_is_not_known_says_what_to_give(job, says):
    found = Knowledge(job).hours(find_gpu("H100 SXM5"), ONE)

    assert isinstance(found, str)
    assert says in found


def test_a_profile_of_a_card_nobody_knows_cannot_be_scaled():
    found = Knowledge(Job(profile=profile(), samples=1e6)).hours(find_gpu("H100 SXM5"), Setting(batch_size=8))

    assert "made up" in found


def test_hours_of_a_profile_are_steps_times_the_step(gpt):
    found = Knowledge(Job(profile=gpt, samples=4000)).hours(find_gpu("H200 SXM"), FOUR)

    assert found.range.expected == pytest.approx(1000 * gpt.bare.step.seconds / 3600, rel=0.02)


def test_memory_comes_from_the_profile_where_it_was_measured_and_else_from_the_shape(gpt):
    shape = shape_of_size(1.7e9)
    measured, counted = Knowledge(Job(profile=gpt)), Knowledge(Job(shape=shape, sequence_length=1024))

    assert measured.memory("none", 1, FOUR).peak.expected == pytest.approx(20.4e9, rel=0.01)
    assert counted.memory("none", 1, FOUR).peak.expected == pytest.approx(20.4e9, rel=0.2)
    assert Knowledge(Job()).memory("none", 1, ONE) is None


def test_the_largest_batch_is_the_last_that_surely_fits():
    knowledge = Knowledge(Job(shape=shape_of_size(1.7e9), sequence_length=1024))
    card = find_gpu("RTX 4090")
    largest = knowledge.largest_batch(card, "none", 1, ONE)

    assert largest >= 1
    assert knowledge.memory("none", 1, Setting(batch_size=largest)).fits(card.memory_bytes) is True
    assert knowledge.memory("none", 1, Setting(batch_size=largest + 1)).fits(card.memory_bytes) is not True


def test_the_largest_batch_of_what_never_fits_is_none_at_all_and_of_what_is_not_known_unknown():
    card = find_gpu("RTX 4090")

    assert Knowledge(Job(shape=shape_of_size(70e9), sequence_length=1024)).largest_batch(card, "none", 1, ONE) == 0
    assert Knowledge(Job()).largest_batch(card, "none", 1, ONE) is None


def test_a_profiles_own_memory_line_gives_its_largest_batch():
    points = tuple(MemoryPoint(strategy="none", batch_size=batch, peak_bytes=10**9 * (1 + batch), at_rest_bytes=10**9) for batch in (4, 8))
    knowledge = Knowledge(Job(profile=profile(memory=points)))

    assert 15 <= knowledge.largest_batch(find_gpu("RTX 4090"), "none", 1, FOUR) <= 24


def test_a_strategy_that_cannot_be_predicted_says_why(gpt, pair):
    knowledge = Knowledge(Job(profile=gpt, samples=1e6, runs=(pair,)))

    assert "do not divide" in knowledge.efficiency(offer(gpu="H200 SXM", num_gpus=3), "tp_ddp", 3, FOUR)


def test_two_ranges_join_as_independent_errors():
    hours, efficiency = Interval(low=8, expected=10, high=12.5), Interval(low=0.4, expected=0.5, high=0.625)

    joined = combined(hours, efficiency, 2)

    assert joined.expected == 10
    assert 10 / 1.25**2 < joined.low < 10 / 1.25
    assert 10 * 1.25 < joined.high < 10 * 1.25**2


def test_exact_hours_and_efficiency_stay_exact():
    exact = Efficiency(range=Interval(low=0.8, expected=0.8, high=0.8), basis="typed").range

    assert combined(Interval(low=40, expected=40, high=40), exact, 4) == Interval(low=12.5, expected=12.5, high=12.5)


def test_answers_are_asked_for_once(gpt, pair, monkeypatch):
    calls = []
    monkeypatch.setattr("wiretax.plan.knowledge.predict", lambda *args, **kwargs: calls.append(args) or predict(*args, **kwargs))
    knowledge = Knowledge(Job(profile=gpt, samples=1e6, runs=(pair,)))

    for price in (1.0, 2.0, 3.0):
        knowledge.efficiency(offer(price, gpu="H200 SXM", num_gpus=2), "ddp", 2, FOUR)

    assert len(calls) == 1

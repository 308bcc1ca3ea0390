from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sample_runs
from plans import offer
from wiretax.data.gpus import find_gpu
from wiretax.data.models import TransformerShape
from wiretax.errors import UsageError
from wiretax.model.reading import not_finite, unexplained
from wiretax.plan.inference import Service, make_inference_plan, speed
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.wires import class_wire

LLAMA_8B = TransformerShape(
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    mlp_size=14336,
    vocabulary_size=128256,
    gated_mlp=True,
)
MIXTRAL = replace(LLAMA_8B, vocabulary_size=32000, num_experts=8, experts_per_token=2)


def service(shape=LLAMA_8B, **more):
    return Service(shape=shape, **more)


def card(name="RTX 4090"):
    found = find_gpu(name)
    assert found is not None
    return found


def test_eight_billion_weights_in_16_bits_are_16_gigabytes():
    assert LLAMA_8B.num_parameters == pytest.approx(8.03e9, rel=0.001)
    assert service().weight_bytes == pytest.approx(16.06e9, rel=0.001)


def test_a_token_of_that_model_keeps_128_kib_of_keys_and_values():
    assert service(context=1).cache_bytes == 2 * 32 * 8 * 128 * 2 == 128 * 1024


def test_four_bits_take_a_quarter_and_a_little_for_the_scales():
    assert service(weights="int4").weight_bytes / service().weight_bytes == pytest.approx(0.258)


def test_one_request_is_bound_by_reading_the_weights_and_its_cache():
    one = service(context=4096)
    found = speed(one, card()).tokens_per_second

    assert found.high == pytest.approx(1008e9 / (one.weight_bytes + one.cache_bytes))
    assert found.low < found.expected < found.high


def test_many_short_requests_are_bound_by_arithmetic():
    found = speed(service(context=1, requests=4096), card("H100 SXM5"))

    assert any("arithmetic" in note for note in found.notes)


def test_splitting_the_layers_reads_less_and_waits_for_two_all_reduces_each():
    wire = class_wire(300e9, "nvlink", 2)
    alone, split = speed(service(), card("H100 SXM5")), speed(service(), card("H100 SXM5"), 2, wire)

    assert split.all_reduce_seconds == pytest.approx(64 * wire.curve("all_reduce", 2).seconds(8192))
    assert alone.tokens_per_second.expected < split.tokens_per_second.expected < 2 * alone.tokens_per_second.expected
    assert "64 all-reduces" in split.notes[1]


def test_over_a_slow_wire_splitting_gains_little():
    fast, slow = (speed(service(), card("H100 SXM5"), 2, class_wire(rate, kind, 2)) for rate, kind in ((300e9, "nvlink"), (1e8, "staged")))

    assert slow.tokens_per_second.expected < fast.tokens_per_second.expected


def test_of_a_mixture_of_experts_one_request_reads_two_and_many_read_all():
    one, many = service(MIXTRAL, requests=1), service(MIXTRAL, requests=256)

    assert one.touched_bytes == pytest.approx(MIXTRAL.active_parameters * 2, rel=0.001)
    assert many.touched_bytes == pytest.approx(one.weight_bytes, rel=0.001)


def test_one_card_is_enough_for_a_prototype():
    plan = make_inference_plan(service(weights="int4"), [offer(0.4, gpu="RTX 4090")])
    chosen = plan.options[plan.choice]

    assert (plan.constraint, chosen.num_gpus, chosen.fits, plan.purpose) == ("none", 1, True, "inference")
    assert chosen.cost_per_token == pytest.approx(0.4 / 3600 / chosen.tokens_per_second)
    assert plan.sentence.startswith("One GPU is enough: one RTX 4090")


def test_what_does_not_fit_on_one_is_split():
    plan = make_inference_plan(service(shape_of_size(70e9)), [offer(2.5, gpu="H100 SXM5")])
    chosen = plan.options[plan.choice]

    assert plan.constraint == "does_not_fit"
    assert (chosen.num_gpus, chosen.strategy) == (2, "tp")
    assert all(one.fits is False for one in plan.options if one.strategy in ("none", "replicas"))


def test_a_wanted_rate_above_the_bound_makes_one_too_slow():
    plan = make_inference_plan(service(tokens_per_second=500, requests=8), [offer(0.4, gpu="RTX 4090", num_gpus=8)])

    assert plan.constraint in ("too_slow", "does_not_fit")
    assert plan.options[0].why.startswith(("too slow: at best", "does not fit"))


def test_a_rate_only_the_best_case_reaches_is_a_doubt():
    bound = speed(service(), card("H100 SXM5")).tokens_per_second
    plan = make_inference_plan(service(tokens_per_second=(bound.expected + bound.high) / 2), [offer(2.0, gpu="H100 SXM5")], counts=(1,))

    assert plan.constraint == "none"
    assert "may be too slow" in plan.options[plan.choice].why


def test_copies_share_the_requests_and_their_cache():
    plan = make_inference_plan(service(requests=64, context=8192, weights="int8"), [offer(2.0, gpu="A100 SXM4 80GB", num_gpus=2)])
    one, copies = (next(o for o in plan.options if o.strategy == name) for name in ("none", "replicas"))

    assert copies.peak_memory_bytes.expected < one.peak_memory_bytes.expected


def test_one_request_keeps_only_one_copy_busy():
    plan = make_inference_plan(service(), [offer(2.0, gpu="H100 SXM5", num_gpus=4)])
    one, four = (next(o for o in plan.options if (o.strategy, o.num_gpus) == key) for key in (("none", 1), ("replicas", 4)))

    assert four.tokens_per_second == pytest.approx(one.tokens_per_second)


def test_a_budget_is_for_an_hour():
    plan = make_inference_plan(service(shape_of_size(70e9)), [offer(2.5, gpu="H100 SXM5")], budget_per_hour=4)

    assert plan.choice is None
    assert "Nothing here meets every limit" in plan.sentence


def test_a_cheaper_set_of_several_is_named_beside_the_one():
    plan = make_inference_plan(
        service(shape_of_size(70e9)), [offer(5.0, gpu="B200 SXM", num_gpus=1), offer(1.5, gpu="A100 SXM4 80GB", num_gpus=4)]
    )

    assert plan.options[plan.choice].num_gpus == 1
    assert "would cost" in plan.sentence
    assert "one GPU is simpler" in plan.sentence


def test_a_measured_wire_counts_for_the_all_reduces():
    job = Job(runs=(sample_runs.h200_pair(),))
    plan = make_inference_plan(service(), [offer(3.5, gpu="H200 SXM", num_gpus=2)], job=job)
    split = next(one for one in plan.options if one.strategy == "tp")

    assert split.basis == "predicted"


def test_nothing_is_missing_without_a_reason():
    plan = make_inference_plan(
        service(shape_of_size(70e9), requests=3, tokens_per_second=30), [offer(2.5, gpu="H100 SXM5"), offer(0.4, gpu="L40S")]
    )

    assert list(unexplained(plan)) == []
    assert list(not_finite(plan)) == []
    assert all(one.why for one in plan.options)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"weights": "int3"}, "int8"),
        ({"cache": "int4"}, "fp8"),
        ({"context": 0}, "at least one"),
        ({"requests": 0}, "at least one"),
        ({"tokens_per_second": -1}, "above 0"),
    ],
)
def test_a_service_that_makes_no_sense_is_an_error(wrong, says):
    with pytest.raises(UsageError, match=says):
        service(**wrong)


def test_offers_without_a_card_cannot_serve():
    with pytest.raises(UsageError, match="--gpu"):
        make_inference_plan(service(), [offer()])
    with pytest.raises(UsageError, match="nothing to rent"):
        make_inference_plan(service(), [])
    with pytest.raises(UsageError, match="No offer has 16"):
        make_inference_plan(service(), [offer(gpu="RTX 4090")], counts=(16,))


@given(st.integers(1, 64), st.integers(1, 32768))
def test_more_requests_never_slow_the_whole_service_down(requests, context):
    few, more = (speed(service(requests=one, context=context), card("H200 SXM")) for one in (requests, requests + 1))

    assert more.tokens_per_second.expected >= few.tokens_per_second.expected * (1 - 1e-12)

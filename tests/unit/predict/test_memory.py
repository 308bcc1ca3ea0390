from dataclasses import replace

import pytest

from profiles import MIB, fsdp_free, profile
from recorded_h200x2 import profile as recorded_profile
from recorded_h200x2 import truths
from wiretax.model.profile import MemoryPoint
from wiretax.predict.memory import largest_batch, predict_memory
from wiretax.predict.options import Options

WEIGHTS = (64 + 4 * 32) * MIB
STATES = 2 * WEIGHTS
SAMPLE = 100 * MIB


def point(batch, *, strategy="none", extra=0):
    return MemoryPoint(
        strategy=strategy, batch_size=batch, peak_bytes=WEIGHTS + STATES + batch * SAMPLE + extra, at_rest_bytes=WEIGHTS + STATES
    )


def measured(**shape):
    return profile(memory=[point(4), point(16)], **shape)


def test_between_two_measured_batches_the_bare_peak_is_a_straight_line():
    memory = predict_memory(measured(), "none", 1)

    assert memory.peak.expected == pytest.approx(WEIGHTS + STATES + 8 * SAMPLE)
    assert memory.activations == pytest.approx(8 * SAMPLE)
    assert memory.optimizer == STATES
    assert memory.peak.low < memory.peak.expected < memory.peak.high


def test_ddp_keeps_its_buckets_and_as_much_again():
    bare, ddp = (predict_memory(measured(), name, 2) for name in ("none", "ddp"))

    assert ddp.peak.expected - bare.peak.expected == pytest.approx(2 * WEIGHTS)
    assert ddp.peak.low < bare.peak.expected + WEIGHTS


def test_full_sharding_divides_states_and_gathers_the_root_and_two_blocks():
    memory = predict_memory(measured(), "fsdp2", 4)

    assert memory.parameters == WEIGHTS / 4
    assert memory.optimizer == STATES / 4
    assert memory.strategy == (64 + 2 * 32 + 32) * MIB
    assert memory.peak.expected == pytest.approx((WEIGHTS + STATES) / 4 + 8 * SAMPLE + 160 * MIB)


def test_grad_op_keeps_everything_gathered():
    full, grad_op = (predict_memory(measured(), name, 4) for name in ("fsdp2", "fsdp2_grad_op"))

    assert grad_op.strategy - full.strategy == 2 * 32 * MIB


def test_zero_stages_shard_more_and_more():
    one, two, three = (predict_memory(measured(), name, 4) for name in ("zero1", "zero2", "zero3"))

    assert one.peak.expected >= two.peak.expected > three.peak.expected
    assert one.optimizer == STATES / 4
    assert one.parameters == two.parameters == WEIGHTS


def test_tensor_parallelism_cuts_blocks_and_most_of_their_activations():
    memory = predict_memory(measured(), "tp", 4)

    assert memory.parameters == pytest.approx((64 + 128 / 4) * MIB)
    assert memory.activations == pytest.approx(8 * SAMPLE * (10 + 24 / 4) / 34)


def test_a_pipeline_stage_holds_a_share_of_the_layers_for_several_micro_batches():
    assert predict_memory(measured(), "pp", 4).activations == pytest.approx(8 * SAMPLE)
    assert predict_memory(measured(), "pp", 4, options=Options(pipeline_micro_batches=2)).activations == pytest.approx(4 * SAMPLE)


def test_a_strategys_own_measured_peak_counts_before_arithmetic():
    base = profile()
    own = profile(
        memory=[point(4), point(16), point(4, strategy="fsdp2", extra=-MIB), point(16, strategy="fsdp2", extra=-MIB)],
        free_steps=[fsdp_free(base, world_size=4)],
    )

    memory = predict_memory(own, "fsdp2", 4)

    assert memory.peak.expected == pytest.approx(WEIGHTS + STATES + 8 * SAMPLE - MIB)
    assert any("was measured" in note for note in memory.assumptions)
    # At another number of GPUs the shards are others.
    assert predict_memory(own, "fsdp2", 8).peak.expected != pytest.approx(memory.peak.expected)


def test_real_reductions_may_hold_a_second_set_of_buckets_that_free_ones_do_not():
    buckets = WEIGHTS  # gradients in the dtype of the weights
    own = profile(memory=[point(4), point(16), point(4, strategy="ddp", extra=buckets), point(16, strategy="ddp", extra=buckets)])

    peak = predict_memory(own, "ddp", 2).peak

    bare = WEIGHTS + STATES + 8 * SAMPLE
    assert peak.expected == pytest.approx(bare + 2 * buckets)
    assert peak.low == pytest.approx(0.98 * (bare + buckets))
    assert peak.high == pytest.approx(1.02 * (bare + 2 * buckets))


def test_accumulation_keeps_gradients_alive():
    once = predict_memory(measured(), "none", 1)
    twice = predict_memory(measured(), "none", 1, options=Options(accumulation_steps=2))

    assert twice.peak.expected - once.peak.expected == pytest.approx(WEIGHTS)


def test_one_measured_batch_is_enough_but_less_sure():
    one = predict_memory(profile(memory=[point(8)]), "none", 1)
    two = predict_memory(measured(), "none", 1)

    assert one.peak.expected == pytest.approx(two.peak.expected)
    assert one.peak.high > two.peak.high
    assert any("one batch size" in note for note in one.assumptions)


def test_without_any_measured_peak_there_is_no_forecast():
    assert predict_memory(profile(), "ddp", 2) is None
    assert largest_batch(profile(), "ddp", 2, 24e9) is None


def test_whether_it_fits_is_left_open_inside_the_interval():
    memory = predict_memory(measured(), "ddp", 2)

    assert memory.fits(80e9) is True
    assert memory.fits(1e9) is False
    assert memory.fits((memory.peak.expected + 0.9e9) / 0.97) is None


def test_the_largest_batch_fits_and_one_more_does_not():
    own = measured()

    batch = largest_batch(own, "fsdp2", 4, 24e9)

    assert predict_memory(own, "fsdp2", 4, batch_size=batch).fits(24e9) is True
    assert predict_memory(own, "fsdp2", 4, batch_size=batch + 1).fits(24e9) is not True


def test_a_model_that_does_not_fit_at_all_has_a_largest_batch_of_0():
    assert largest_batch(measured(), "ddp", 2, 1e9) == 0


def test_sgd_keeps_no_states():
    own = measured()
    plain = replace(own, workload=replace(own.workload, optimizer="sgd"))

    assert predict_memory(plain, "none", 1).optimizer == 0.0


# FSDP2 of the small model ran in the process of the large one, whose memory it still held (fake backend: 8.7 GiB alone, 10.7 after).
@pytest.mark.parametrize(
    "truth",
    [one for one in truths() if (one.workload, one.strategy) != ("gpt124m", "fsdp2")],
    ids=lambda one: f"{one.wire}-{one.launch}-{one.workload}-{one.strategy}-{one.batch_size}",
)
def test_the_recorded_peaks_lie_inside(truth):
    memory = predict_memory(recorded_profile(truth.workload, truth.batch_size, truth.launch), truth.strategy, 2)

    assert memory.peak.low <= truth.peak_bytes <= memory.peak.high


def small(batch, peak, *, update=None):
    """A point where the optimizer's moment may be the peak."""
    return MemoryPoint(strategy="none", batch_size=batch, peak_bytes=peak, at_rest_bytes=WEIGHTS + STATES, update_peak_bytes=update)


UPDATE = 2 * WEIGHTS + STATES


def test_a_peak_that_is_the_optimizers_says_nothing_of_what_grows():
    by_one = profile(memory=[small(1, UPDATE), small(16, WEIGHTS + STATES + 16 * SAMPLE)])
    by_three = profile(memory=[small(1, UPDATE), *(small(batch, WEIGHTS + STATES + batch * SAMPLE) for batch in (16, 32))])

    surely, within = (predict_memory(found, "none", 1, batch_size=64) for found in (by_three, by_one))

    assert surely.peak.expected == pytest.approx(WEIGHTS + STATES + 64 * SAMPLE)
    assert not surely.assumptions
    # one peak that grows: the line through it passes below the other, and above what is held between steps
    least = (WEIGHTS + STATES + 16 * SAMPLE - UPDATE) / 15
    assert within.peak.expected == pytest.approx(WEIGHTS + STATES + 16 * SAMPLE + 48 * (SAMPLE + least) / 2)
    assert within.peak.low <= WEIGHTS + STATES + 16 * SAMPLE + 48 * least
    assert within.peak.high >= WEIGHTS + STATES + 64 * SAMPLE
    assert any("optimizer" in one for one in within.assumptions)
    assert predict_memory(by_one, "none", 1, batch_size=16).peak.expected == pytest.approx(WEIGHTS + STATES + 16 * SAMPLE)


def test_an_optimizer_that_makes_much_for_itself_is_seen_where_its_peak_was_told_apart():
    own = UPDATE + 3 * WEIGHTS
    found = profile(memory=[small(1, own, update=own), *(small(batch, own + batch * SAMPLE, update=own) for batch in (16, 32))])

    assert predict_memory(found, "none", 1, batch_size=1).peak.expected == pytest.approx(own + SAMPLE)
    assert predict_memory(profile(memory=[small(1, own, update=own), small(2, own, update=own)]), "none", 1).peak.expected >= own


def test_where_only_the_optimizers_peak_was_seen_the_range_is_from_nothing_to_all_that_could_grow():
    memory = predict_memory(profile(memory=[small(4, UPDATE), small(8, UPDATE)]), "none", 1, batch_size=32)

    most = WEIGHTS + STATES + 32 * (WEIGHTS / 8)
    assert memory.peak.low <= UPDATE <= memory.peak.expected <= most <= memory.peak.high
    assert memory.fits(memory.peak.expected * 1.05 + 1e9) is None


@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp2", "fsdp2_grad_op", "hsdp", "zero1", "zero2", "zero3", "tp", "tp_ddp", "pp"])
@pytest.mark.parametrize("points", [[point(4), point(16)], [point(8)], [small(4, UPDATE), small(8, UPDATE)]])
def test_the_range_holds_what_is_expected_and_grows_with_the_batch(strategy, points):
    found = profile(memory=points)
    options = Options(tensor_parallel_size=2, shard_group_size=2)
    peaks = [predict_memory(found, strategy, 4, batch_size=batch, options=options).peak for batch in (1, 8, 64)]

    assert all(0 < one.low <= one.expected <= one.high for one in peaks)
    assert peaks == sorted(peaks, key=lambda one: one.expected)


def with_words(*, tied, dtype="bfloat16", checkpointing=False):
    """Large logits, a head of its own or not, and a bias as long as the vocabulary."""
    found = measured()
    words = 4096
    rows = [replace(found.parameters[0], shape=(words, 8)), *found.parameters[1:-1], replace(found.parameters[-1], shape=(words, 8))]
    rows = [replace(one, dtype=dtype) for one in (rows[:-1] if tied else rows)]
    bias = replace(rows[0], name="bias", shape=(words,), num_elements=words, num_bytes=0, gradient_bytes=0)
    workload = replace(found.workload, vocabulary_size=words, activation_checkpointing=checkpointing)
    return replace(found, parameters=(*rows, bias), workload=workload)


def test_tensor_parallelism_cuts_the_logits_of_a_head_of_its_own_only():
    own, tied = (predict_memory(with_words(tied=tied), "tp", 2) for tied in (False, True))

    logits = 8 * 128 * 4096 * 12
    assert own.activations == pytest.approx((8 * SAMPLE - logits) * (10 / 34 + 12 / 34) + logits * 16 / 12 / 2)
    assert tied.activations == pytest.approx(own.activations + logits * (1 - 16 / 12 / 2))
    assert own.peak.high > tied.peak.expected


def test_tensor_parallelism_keeps_more_under_autocast_and_all_inputs_of_checkpointed_blocks():
    plain, mixed, kept = (
        predict_memory(with_words(tied=False, dtype=dtype, checkpointing=checkpointing), "tp", 4).activations
        for dtype, checkpointing in (("bfloat16", False), ("float32", False), ("float32", True))
    )

    assert plain < mixed < kept

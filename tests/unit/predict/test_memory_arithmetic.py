from dataclasses import replace

import pytest

from recorded_h200x2 import rows
from wiretax.data.models import TransformerShape
from wiretax.errors import UsageError
from wiretax.predict.memory import Shares
from wiretax.predict.memory_arithmetic import RECIPES, activation_bytes, arithmetic_memory, states_bytes

GPT = TransformerShape(
    num_layers=24,
    hidden_size=2304,
    num_heads=18,
    num_kv_heads=18,
    head_size=128,
    mlp_size=9216,
    vocabulary_size=50304,
    max_positions=1024,
    norm_has_bias=True,
)
SMALL = TransformerShape(
    num_layers=12,
    hidden_size=768,
    num_heads=12,
    num_kv_heads=12,
    head_size=64,
    mlp_size=3072,
    vocabulary_size=50304,
    max_positions=1024,
    norm_has_bias=True,
)


@pytest.mark.parametrize(
    ("recipe", "total"),
    [("adamw_fp32", 16), ("adamw_mixed", 16), ("adamw_bf16", 8), ("adamw_master", 16), ("adamw_8bit", 6), ("sgd", 8), ("sgd_momentum", 12)],
)
def test_bytes_a_parameter_are_the_known_ones(recipe, total):
    assert sum(states_bytes(1e9, recipe)) == pytest.approx(total * 1e9)


def test_adafactor_keeps_next_to_nothing():
    assert states_bytes(1e9, "adafactor")[2] < 0.05e9


def test_lora_trains_a_small_adapter_on_frozen_weights():
    weights, gradients, states = states_bytes(7e9, "lora", trainable_fraction=0.01)

    assert weights == pytest.approx(2 * 7e9 * 1.01)
    assert gradients + states == pytest.approx(14 * 0.07e9)


def test_qlora_holds_four_bits_a_weight():
    assert states_bytes(7e9, "qlora", trainable_fraction=0.0)[0] == pytest.approx(7e9 * 4.127 / 8, rel=1e-3)


def test_shards_hold_their_share():
    assert states_bytes(1e9, "adamw_master", shares=Shares(1.0, 0.5, 0.25)) == pytest.approx((2e9, 1e9, 3e9))


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(UsageError, match="adamw_bf16"):
        states_bytes(1e9, "lion")


def test_activations_with_dropout_are_korthikantis_34_and_scores_add_5_a_s_over_h():
    tokens, hidden, layers = 4 * 1024, 2304, 24

    shape = replace(GPT, dropout=True)

    plain = activation_bytes(shape, 4, 1024)
    scores = activation_bytes(shape, 4, 1024, flash_attention=False)

    assert plain == 34 * tokens * hidden * layers
    assert scores - plain == 5 * 18 * 1024 * tokens * layers


def test_checkpointing_keeps_each_layers_input_and_one_layer():
    kept = activation_bytes(GPT, 4, 1024, checkpointing=True)

    assert kept == pytest.approx(2 * 4 * 1024 * 2304 * 24 + activation_bytes(GPT, 4, 1024) / 24)


def test_float32_keeps_twice_as_much():
    half, full = (arithmetic_memory(GPT, "none", 1, 4, 1024, recipe=recipe).activations for recipe in ("adamw_bf16", "adamw_fp32"))

    assert full > 1.7 * half


@pytest.mark.parametrize("launch", ["training_1gpu.json", "launch2_training_1gpu.json"])
def test_recorded_peaks_lie_inside_what_the_shape_alone_says(launch):
    for row in rows(launch):
        shape, recipe = (SMALL, "adamw_mixed") if row["kind"] == "gpt124m" else (GPT, "adamw_bf16")
        assert shape.num_parameters == row["params"]

        memory = arithmetic_memory(shape, "none", 1, row["B"], row["T"], recipe=recipe)

        assert memory.peak.low <= row["mem_gb"] * 2**30 <= memory.peak.high
        assert memory.peak.expected == pytest.approx(row["mem_gb"] * 2**30, rel=0.05)


def test_recorded_ddp_peaks_lie_inside_too():
    for row in rows("launch2_sweep_and_training_default.json"):
        if row["strat"] == "ddp":
            shape, recipe = (SMALL, "adamw_mixed") if row["kind"] == "gpt124m" else (GPT, "adamw_bf16")
            memory = arithmetic_memory(shape, "ddp", 2, row["B"], row["T"], recipe=recipe)
            assert memory.peak.low <= row["mem_gb"] * 2**30 <= memory.peak.high


def test_every_recipe_and_strategy_has_a_peak():
    for recipe in RECIPES:
        for strategy in ("none", "ddp", "fsdp2", "fsdp2_grad_op", "hsdp", "zero1", "zero2", "tp", "pp"):
            memory = arithmetic_memory(GPT, strategy, 4, 1, 512, recipe=recipe)
            assert 0 < memory.peak.low <= memory.peak.expected <= memory.peak.high


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(UsageError):
        arithmetic_memory(GPT, "ddp", 2, 0, 1024)

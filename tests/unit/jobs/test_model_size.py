"""Sizes of models that nobody profiled: typed, of a preset, or of a config.json."""

import json

import pytest

from wiretax.errors import BadInput, UsageError
from wiretax.jobs.model_size import ModelSize
from wiretax.model.forecast import Forecast
from wiretax.predict.options import DEFAULTS

LLAMA_7B = {
    "model_type": "llama",
    "_name_or_path": "a-llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def config(tmp_path, **changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_7B, **changes}))
    return path


def forecast(strategy="ddp", num_gpus=2):
    return Forecast(strategy=strategy, num_gpus=num_gpus, wire="w", workload="m")


@pytest.mark.parametrize(("recipe", "bytes_each"), [("adamw_bf16", 2), ("adamw_mixed", 4), ("adamw_master", 2)])
def test_gradients_follow_the_number_of_parameters_and_the_recipe(recipe, bytes_each):
    made = ModelSize.of_parameters(7e9, recipe)
    assert made.gradient_bytes == 7e9 * bytes_each
    assert recipe in made.notes[0]


def test_only_the_adapter_of_lora_is_reduced():
    assert ModelSize.of_parameters(7e9, "lora").gradient_bytes == pytest.approx(7e9 * 0.005 * 2)


def test_a_preset_brings_its_batch_length_and_precision():
    made = ModelSize.of_preset("gpt1.7b")
    assert made.gradient_bytes == 2 * 1_763_209_728
    assert (made.batch_size, made.sequence_length, made.recipe) == (4, 1024, "adamw_bf16")
    assert ModelSize.of_preset("gpt124m").recipe == "adamw_mixed"


def test_a_config_is_counted_without_transformers(tmp_path):
    made = ModelSize.of_config(config(tmp_path), "adamw_bf16")
    assert made.name == "a-llama"
    assert made.gradient_bytes == 2 * 6_738_415_616


def test_an_unknown_architecture_says_what_to_give_instead(tmp_path):
    with pytest.raises(BadInput) as error:
        ModelSize.of_config(config(tmp_path, model_type="never-heard-of"), "adamw_bf16")
    assert "never-heard-of" in str(error.value)
    assert "--params" in str(error.value) and "--grad-bytes" in str(error.value)


def test_a_config_that_lacks_a_number_names_it(tmp_path):
    with pytest.raises(BadInput, match="hidden_size is missing"):
        ModelSize.of_config(config(tmp_path, hidden_size=None), "adamw_bf16")


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_a_config_that_cannot_be_read_is_named(tmp_path, text):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=r"config\.json"):
        ModelSize.of_config(path, "adamw_bf16")


def test_an_unknown_recipe_lists_those_there_are():
    with pytest.raises(UsageError, match="adamw_master"):
        ModelSize.of_parameters(7e9, "adamw_fp7")


def test_memory_shrinks_with_sharding_and_says_what_fits(tmp_path):
    from dataclasses import replace

    made = replace(ModelSize.of_config(config(tmp_path), "adamw_bf16"), sequence_length=1024, memory_bytes=80e9)
    ddp = made.with_memory(forecast(), DEFAULTS)
    sharded = made.with_memory(forecast("fsdp2", 8), DEFAULTS)
    # 7 B parameters in 16 bits with AdamW are 8 bytes each before any activation
    assert ddp.peak_memory_bytes.low > 0.9 * 8 * 6.7e9
    assert sharded.peak_memory_bytes.high < ddp.peak_memory_bytes.low / 2
    assert sharded.fits is True
    assert ddp.batch_per_gpu == 1


def test_memory_is_left_out_where_the_shape_or_the_length_is_not_known(tmp_path):
    assert ModelSize.of_parameters(7e9, "sgd").with_memory(forecast(), DEFAULTS).peak_memory_bytes is None
    assert ModelSize.of_config(config(tmp_path), "sgd").with_memory(forecast(), DEFAULTS).peak_memory_bytes is None
    assert ModelSize.of_preset("resnet50").with_memory(forecast(), DEFAULTS).peak_memory_bytes is None

"""Shapes as numbers: presets, and configs whose counts transformers gave for the same file."""

import pytest

from wiretax.data.models import ConvnetShape, preset, presets, shape_from_config
from wiretax.errors import BadInput, UsageError

SMALL = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 700}
NEOX = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 1024}
BERT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
OPT = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 8, "ffn_dim": 512, "max_position_embeddings": 256}
LLAMA_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}
LLAMA3_8B = LLAMA_7B | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
GPT2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}

COUNTED = [
    ("gpt2", GPT2, 124439808),
    ("gpt_neox", NEOX | {"vocab_size": 1000}, 2881792),
    ("opt", OPT | {"vocab_size": 1000, "word_embed_proj_dim": 128}, 756096),
    ("opt", OPT | {"vocab_size": 1000, "word_embed_proj_dim": 64, "do_layer_norm_before": False}, 708224),
    ("llama", SMALL | {"vocab_size": 1000}, 2618112),
    ("llama", SMALL | {"vocab_size": 1000, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, 2369000),
    ("mistral", SMALL | {"vocab_size": 1000}, 2618112),
    ("mixtral", SMALL | {"vocab_size": 1000, "num_local_experts": 4}, 7459584),
    ("qwen2", SMALL | {"vocab_size": 1000}, 2619264),
    ("qwen3", SMALL | {"vocab_size": 1000, "head_dim": 48}, 2864160),
    ("gemma", SMALL | {"vocab_size": 1000, "head_dim": 48}, 2607872),
    ("phi3", SMALL | {"vocab_size": 1000}, 2618112),
    ("bert", BERT | {"vocab_size": 30522, "max_position_embeddings": 512}, 109514298),
    ("roberta", BERT | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}, 124697433),
    ("llama", LLAMA_7B, 6738415616),
    ("llama", LLAMA3_8B, 8030261248),
    ("mistral", LLAMA3_8B | {"vocab_size": 32000}, 7241732096),
    ("mixtral", LLAMA3_8B | {"vocab_size": 32000, "num_local_experts": 8}, 46702792704),
]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt124m", 163026432), ("gpt1.7b", 1763209728), ("resnet50", 25557032), ("gpt350m", 406161408), ("llama350m", 336118784)],
)
def test_a_preset_has_exactly_the_parameters_of_the_recorded_or_published_model(name, parameters):
    assert preset(name).shape.num_parameters == parameters


@pytest.mark.parametrize(("kind", "config", "parameters"), COUNTED)
def test_parameters_of_a_config_are_counted_as_transformers_builds_it(kind, config, parameters):
    assert shape_from_config({"model_type": kind, **config}).num_parameters == parameters


def test_every_preset_says_where_it_comes_from_and_fits_its_own_settings():
    for one in presets().values():
        assert one.source and one.title
        assert one.batch_size > 0
        if isinstance(one.shape, ConvnetShape):
            assert one.sequence_length is None
        else:
            assert one.shape.num_heads * one.shape.head_size == one.shape.hidden_size
            assert not one.shape.max_positions or one.sequence_length == one.shape.max_positions


def test_flops_of_a_sample_are_six_for_each_parameter_and_token_and_attention_on_top():
    shape = preset("gpt124m").shape
    tables = (50304 + 1024) * 768
    assert shape.flops_per_sample(1024) == 1024 * (6 * (163026432 - tables) + 12 * 12 * 768 * 1024)


def test_only_the_experts_a_token_is_sent_to_count_as_active():
    shape = shape_from_config({"model_type": "mixtral", **LLAMA3_8B, "vocab_size": 32000})
    assert shape.num_parameters - shape.active_parameters == 32 * 6 * 3 * 4096 * 14336


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(UsageError, match=r"gpt3.*gpt124m"):
        preset("gpt3")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "weird"}, r"the architecture 'weird' is not known.*llama.*--params"),
        ({"hidden_size": 4}, "there is no model_type"),
        (
            {"model_type": "llama", "hidden_size": 64},
            r"num_hidden_layers, num_attention_heads, vocab_size, intermediate_size are missing.*--grad-bytes",
        ),
        ({"model_type": "llama", **SMALL, "vocab_size": "many"}, "vocab_size is missing"),
        ({"model_type": "llama", **SMALL, "vocab_size": True}, "vocab_size is missing"),
        ({"model_type": "bert", **BERT, "vocab_size": 100}, "max_position_embeddings is missing"),
    ],
)
def test_a_config_that_cannot_be_counted_says_what_is_missing_and_what_to_give_instead(config, words):
    with pytest.raises(BadInput, match=words):
        shape_from_config(config, "some/config.json")

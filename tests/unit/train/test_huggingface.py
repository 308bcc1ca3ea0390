import json
from importlib.util import find_spec

import pytest

from wiretax.errors import BadInput, MissingDependency
from wiretax.train.huggingface import read_config
from wiretax.train.workload import Settings, checked_loss, load_workload

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 176,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
without_transformers = pytest.mark.skipif(find_spec("transformers") is not None, reason="transformers builds it")


def written(tmp_path, config):
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder / "config.json"


def test_a_llama_like_config_trains_with_the_parameters_it_describes(cpu, tmp_path):
    path = written(tmp_path, LLAMA)
    step, workload = load_workload(str(path), cpu, Settings(batch_size=2, precision="fp32"))
    assert sum(one.numel() for one in step.model.parameters()) == 125248
    assert (workload.name, workload.sequence_length, workload.hidden_size, workload.vocabulary_size) == ("some-model", 64, 64, 256)
    assert len(step.blocks) == 2
    checked_loss(step, step.model, step.make_batch(2)).backward()
    assert all(one.grad is not None for one in step.model.parameters())


@without_transformers
def test_what_only_transformers_can_build_says_how_to_get_it(cpu, tmp_path):
    path = written(tmp_path, LLAMA | {"tie_word_embeddings": True})
    with pytest.raises(MissingDependency, match="pip install transformers"):
        load_workload(str(path), cpu)


@without_transformers
def test_an_unknown_architecture_says_what_to_give_instead(cpu, tmp_path):
    with pytest.raises(BadInput, match=r"'mamba9' is not known.*--params"):
        load_workload(str(written(tmp_path, {"model_type": "mamba9"})), cpu)


@pytest.mark.parametrize(("text", "words"), [("{", "no JSON"), ("[1]", "a JSON object")])
def test_a_damaged_config_is_named(tmp_path, text, words):
    with pytest.raises(BadInput, match=words):
        read_config(written(tmp_path, text))


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_config(tmp_path / "config.json")

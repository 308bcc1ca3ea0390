"""The counted activations against what torch really keeps for the backward pass, tensor by tensor, on a CPU."""

from dataclasses import replace

import pytest
import torch

from wiretax.data.models import TransformerShape, preset
from wiretax.predict.memory_arithmetic import activation_bytes, weight_copy_bytes
from wiretax.train.workload import Settings, find_blocks, rearrange, transformer_step

TOKENS = 64
COMMON = {"hidden_size": 256, "num_heads": 8, "head_size": 32, "vocabulary_size": 512, "num_layers": 4}
GPT = TransformerShape(**COMMON, num_kv_heads=8, mlp_size=1024, max_positions=TOKENS, norm_has_bias=True, fused_products=True)
LLAMA = TransformerShape(**COMMON, num_kv_heads=2, mlp_size=704, gated_mlp=True, keys_repeated=True)
ENCODER = replace(preset("encoder-tiny").shape, **COMMON, num_kv_heads=8, mlp_size=1024, max_positions=TOKENS)
# A CPU writes RMSNorm out where a GPU has a kernel that keeps the input alone.
WRITTEN_OUT = {"bf16": 6, "mixed": 4, "fp32": 4}


def saved_bytes(shape, precision, checkpointing, batch_size):
    """Of all storages that autograd keeps, beside the weights themselves; batch by batch and layer by layer they differ by what is kept."""
    step = transformer_step(shape, torch.device("cpu"), precision, TOKENS)
    step.blocks = step.blocks or find_blocks(step.model)
    rearrange(step, Settings(activation_checkpointing=checkpointing))
    weights = {one.untyped_storage().data_ptr() for one in step.model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step.loss(step.model, step.make_batch(batch_size))
    assert loss.requires_grad
    return sum(one.nbytes() for one in kept.values())


def a_layer(shape, precision, checkpointing):
    """Bytes that one layer keeps of one token, and of its weights."""

    def saved(layers, batch_size):
        return saved_bytes(replace(shape, num_layers=layers), precision, checkpointing, batch_size)

    of_one, of_two = (saved(4, batch) - saved(2, batch) for batch in (1, 2))
    return (of_two - of_one) / 2 / TOKENS, (2 * of_one - of_two) / 2


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "mixed", "fp32"])
@pytest.mark.parametrize(("name", "shape"), [("gpt", GPT), ("llama", LLAMA), ("encoder", ENCODER)])
def test_each_layer_keeps_what_is_counted(name, shape, precision, checkpointing):
    kept, of_weights = a_layer(shape, precision, checkpointing)

    shape = replace(shape, norm_kept_bytes=WRITTEN_OUT[precision]) if name == "llama" else shape
    counted = [
        activation_bytes(replace(shape, num_layers=layers), 1, TOKENS, precision=precision, checkpointing=checkpointing) / TOKENS
        for layers in (2, 4)
    ]
    copies = [weight_copy_bytes(replace(shape, num_layers=layers)) if precision == "mixed" else 0.0 for layers in (2, 4)]
    assert kept == pytest.approx((counted[1] - counted[0]) / 2, rel=0.01)
    if not checkpointing:  # whose copies autocast itself keeps
        assert of_weights == pytest.approx((copies[1] - copies[0]) / 2, rel=0.02, abs=0.03 * shape.block_parameters)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"dropout": True}, 2 * 256),
        ({"keys_repeated": False, "num_kv_heads": 8}, 0),
        ({"gelu_written_out": True}, 3 * 2 * 1024),
        ({"norm_kept_bytes": 4}, 2 * 4 * 256),
        ({"qk_norm": True}, 2 * 2 * 256),
        ({"max_positions": 0}, 2 * 2 * 256),  # rotary positions behind one product
    ],
)
def test_what_the_usual_code_keeps_beside_comes_on_top(changes, more):
    plain, changed = (activation_bytes(one, 1, 1) for one in (GPT, replace(GPT, **changes)))

    assert changed - plain == more * GPT.num_layers


def test_autocast_keeps_written_out_gelus_in_float32():
    plain, written = (activation_bytes(one, 1, 1, precision="mixed") for one in (GPT, replace(GPT, gelu_written_out=True)))

    assert written - plain == 3 * 4 * 1024 * GPT.num_layers

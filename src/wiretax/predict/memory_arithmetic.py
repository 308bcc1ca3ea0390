"""Peak memory from a model's shape alone, before anything was profiled: states by recipe, activations by counting what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wiretax.data.models import Precision, TransformerShape
from wiretax.errors import UsageError
from wiretax.model.forecast import Interval
from wiretax.predict.memory import LOGIT_BYTES, Memory, Shares, shares_of
from wiretax.predict.options import DEFAULTS, Options, strategy_name

ARITHMETIC_FRACTION = 0.10
"""Half width of the interval: published estimators of this kind are within a few percent on states and about ten on activations."""

DEFAULT_ADAPTER_FRACTION = 0.005
"""Trainable share of a LoRA model where none is given (rank 16 on all projections of a 7 B model: 0.6 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes a parameter, by what they are for."""

    weights: float
    gradients: float
    states: float
    """Optimizer states and a master copy of the weights, where there is one."""
    adapter: bool = False
    """Weights are frozen; gradients and states belong to a small adapter alone, whose weights come on top."""


RECIPES: Mapping[str, Recipe] = {
    "adamw_fp32": Recipe(weights=4, gradients=4, states=8),
    "adamw_mixed": Recipe(weights=4, gradients=4, states=8),
    "adamw_bf16": Recipe(weights=2, gradients=2, states=4),
    "adamw_master": Recipe(weights=2, gradients=2, states=12),
    "adamw_8bit": Recipe(weights=2, gradients=2, states=2),
    "sgd": Recipe(weights=4, gradients=4, states=0),
    "sgd_momentum": Recipe(weights=4, gradients=4, states=4),
    "adafactor": Recipe(weights=2, gradients=2, states=0.02),
    "lora": Recipe(weights=2, gradients=2, states=12, adapter=True),
    "qlora": Recipe(weights=0.516, gradients=2, states=12, adapter=True),
}
"""``adamw_mixed``: fp32 weights under autocast. ``adamw_master``: Megatron's and DeepSpeed's 16 bytes. ``adamw_8bit``: a byte a moment.
``adafactor``: a row and a column a matrix. ``qlora``: 4-bit NF4 with double quantisation, 4.127 bits (arXiv 2305.14314)."""


def states_bytes(
    num_parameters: float, recipe: str, *, shares: Shares | None = None, trainable_fraction: float | None = None
) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer states on one GPU.

    Args:
        num_parameters: of the whole model.
        recipe: key of :data:`RECIPES`.
        shares: what of each one GPU holds; None for all.
        trainable_fraction: of an adapter's parameters in the model's; None for 0.5 %. Ignored without an adapter.

    Raises:
        UsageError: an unknown recipe.
    """
    if recipe not in RECIPES:
        raise UsageError(f"{recipe!r} is no recipe of training memory.", do=f"Known: {', '.join(RECIPES)}.")
    one = RECIPES[recipe]
    part = shares or Shares()
    trained = num_parameters
    weights = num_parameters * one.weights
    if one.adapter:
        trained = num_parameters * (DEFAULT_ADAPTER_FRACTION if trainable_fraction is None else trainable_fraction)
        weights += 2 * trained
    return weights * part.parameters, trained * one.gradients * part.gradients, trained * one.states * part.optimizer


def activation_bytes(
    shape: TransformerShape,
    batch_size: int,
    sequence_length: int,
    *,
    precision: Precision = "bf16",
    checkpointing: bool = False,
    flash_attention: bool = True,
) -> float:
    """What the forward pass of all layers keeps for the backward pass, without logits.

    The count is Korthikanti's (arXiv 2205.05198, section 4): with dropout, a plain MLP of 4 h and 16 bits it is the known
    s b h (34 + 5 a s / h) a layer, and 34 s b h where attention keeps no scores. What other blocks keep is counted from what torch
    saves for them.

    Args:
        shape: of the model.
        batch_size: samples.
        sequence_length: tokens a sample.
        precision: ``mixed`` keeps what runs between the products in float32, and a bf16 copy for each product that reads it.
        checkpointing: only each layer's input is kept, and one layer's activations while it is recomputed.
        flash_attention: no scores are kept.
    """
    hidden, query = shape.hidden_size, shape.num_heads * shape.head_size
    key_value = shape.num_kv_heads * shape.head_size
    kept_keys = query if shape.keys_repeated else key_value
    mixed, size = precision == "mixed", 4 if precision == "fp32" else 2
    stream = 4 if mixed else size  # of what the norms read
    reads = (1, 1) if not mixed or shape.fused_products else (3, 2 if shape.gated_mlp else 1)
    attention = reads[0] * size * hidden + size * (query + 2 * kept_keys) + size * query
    if shape.fused_products and not shape.max_positions:
        attention += size * (query + key_value)  # rotated queries and keys beside the product, of which the values are a part
    inside_mlp = (4 if shape.gated_mlp else 2) * size * shape.mlp_size
    if shape.gelu_written_out:
        inside_mlp += 3 * stream * shape.mlp_size
    mlp = reads[1] * size * hidden + inside_mlp * max(shape.experts_per_token, 1)
    norms = (stream + shape.norm_kept_bytes) * shape.norms_per_layer * hidden
    if shape.qk_norm:
        norms += (size + shape.norm_kept_bytes) * (query + key_value)
    layer = float(attention + mlp + norms + (2 * hidden if shape.dropout else 0))
    if not flash_attention:
        layer += (1 + 2 * size) * shape.num_heads * sequence_length
    tokens = float(batch_size * sequence_length)
    if checkpointing:
        return tokens * (stream * hidden * shape.num_layers + layer)
    return tokens * layer * shape.num_layers


def weight_copy_bytes(shape: TransformerShape) -> float:
    """bf16 copies of the weights that autocast makes and the backward pass needs; sharding does not make them fewer.

    Checkpointing does not either: autocast keeps them until its context ends, which is mostly after the loss.
    """
    head = shape.vocabulary_size * (shape.embedding_size or shape.hidden_size) if shape.has_head else 0
    return 2.0 * (shape.block_parameters * shape.num_layers + head)


def arithmetic_memory(
    shape: TransformerShape,
    strategy: str,
    num_gpus: int,
    batch_size: int,
    sequence_length: int,
    *,
    recipe: str = "adamw_bf16",
    checkpointing: bool = False,
    options: Options = DEFAULTS,
) -> Memory:
    """Peak memory of one GPU from the shape of a transformer.

    Args:
        shape: from a preset or a ``config.json``.
        strategy: as in a forecast; ``none`` for one GPU.
        num_gpus: 1 or more.
        batch_size: per GPU and micro-step.
        sequence_length: tokens a sample.
        recipe: key of :data:`RECIPES`.
        checkpointing: of activations, layer by layer.
        options: shard and tensor-parallel group sizes, accumulation.

    Raises:
        UsageError: an unknown recipe or strategy, or no sample or GPU.
    """
    if batch_size < 1 or num_gpus < 1 or sequence_length < 1:
        raise UsageError("Batch size, sequence length and number of GPUs are 1 or more.")
    name = "none" if strategy == "none" or num_gpus == 1 else strategy_name(strategy)
    blocks = shape.num_layers * shape.block_parameters
    mixed = recipe == "adamw_mixed"
    precision: Precision = "mixed" if mixed else "fp32" if RECIPES[recipe].weights == 4 else "bf16"
    shares = shares_of(name, num_gpus, options, blocks / shape.num_parameters, mixed=mixed, checkpointing=checkpointing)
    weights, gradients, states = states_bytes(shape.num_parameters, recipe, shares=shares)
    kept = activation_bytes(shape, batch_size, sequence_length, precision=precision, checkpointing=checkpointing)
    copies = weight_copy_bytes(shape) if mixed else 0.0
    of_logits = (1.0 if shape.tied_head else shares.logits) if name in ("tp", "tp_ddp") else shares.activations
    words = batch_size * sequence_length * shape.vocabulary_size if shape.has_head else 0
    low, logits, high = (words * one * of_logits for one in LOGIT_BYTES)
    cut = shares.parameters if name in ("tp", "tp_ddp") else 1.0
    if checkpointing:  # the logits are gone when the first layer is computed again
        layer = activation_bytes(replace(shape, num_layers=1), batch_size, sequence_length, precision=precision)
        kept -= min(layer, logits / shares.activations)
    activations = kept * shares.activations + copies * cut + logits
    extra = _strategy_bytes(shape, name, RECIPES[recipe], gradients)
    # Gradients come while activations go; only what accumulates is there in full at the peak of activations.
    alive = gradients if options.accumulation_steps > 1 or name in ("ddp", "zero1", "zero2", "powersgd") else 0.0
    peak = max(weights + states + activations + alive + extra, weights + states + gradients + extra)
    return Memory(
        parameters=weights,
        gradients=alive,
        optimizer=states,
        activations=activations,
        strategy=extra,
        other=0.0,
        peak=Interval(
            low=(peak - (logits - low)) * (1 - ARITHMETIC_FRACTION),
            expected=peak,
            high=(peak + (high - logits)) * (1 + ARITHMETIC_FRACTION),
        ),
        assumptions=(
            f"from the model's shape by the recipe {recipe}; nothing was measured",
            "attention keeps no scores (FlashAttention), the loss is taken in float32",
        ),
    )


def _strategy_bytes(shape: TransformerShape, name: str, recipe: Recipe, gradients: float) -> float:
    if name in ("ddp", "zero1", "zero2", "powersgd", "tp_ddp"):
        return gradients
    if name in ("fsdp2", "fsdp2_grad_op", "hsdp", "zero3"):
        root = shape.embedding_parameters + shape.head_parameters
        gathered = shape.num_parameters if name == "fsdp2_grad_op" else root + 2 * shape.block_parameters
        return gathered * recipe.weights + (0.0 if recipe.adapter else shape.block_parameters * recipe.gradients)
    return 0.0

"""Shapes of models as numbers: the built-in workloads (``models.toml``) and Hugging Face ``config.json`` files. No torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from wiretax.errors import BadInput, UsageError

Family = Literal["gpt", "llama", "encoder", "convnet", "other"]
Precision = Literal["mixed", "bf16", "fp32"]
"""mixed: fp32 weights under bf16 autocast. bf16: weights, gradients and optimizer states in bf16. fp32: no tensor cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """All that the number of parameters of a transformer depends on."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_size: int
    vocabulary_size: int
    max_positions: int = 0
    """Rows of a learned table of positions; 0 for rotary positions, which have no parameters."""
    embedding_size: int = 0
    """Width of the embedding where it is not the hidden size (a projection follows); 0 otherwise."""
    token_types: int = 0
    gated_mlp: bool = False
    norm_has_bias: bool = False
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    tied_head: bool = False
    head_bias: bool = False
    masked_word_head: bool = False
    """BERT's: a square layer and a norm before the output matrix."""
    has_head: bool = True
    num_experts: int = 0
    """0: a plain MLP."""
    experts_per_token: int = 0

    # How the usual code computes it, which decides what it keeps for the backward pass.
    fused_products: bool = False
    """Queries, keys and values come from one product, and so do gate and up."""
    keys_repeated: bool = False
    """Keys and values are copied to as many heads as there are queries."""
    norm_kept_bytes: int = 0
    """An element, beside its input: a norm that is written out in Python keeps what it computes in float32."""
    gelu_written_out: bool = False
    """Keeps three more tensors of the MLP's width, in float32 under autocast."""
    dropout: bool = False
    """Keeps a mask of one byte after attention and after the MLP."""

    @property
    def norm_parameters(self) -> int:
        """Of one norm over the hidden size."""
        return self.hidden_size * (2 if self.norm_has_bias else 1)

    @property
    def mlp_parameters(self) -> int:
        """Of one MLP (one expert)."""
        inward = 2 if self.gated_mlp else 1
        bias = inward * self.mlp_size + self.hidden_size if self.mlp_bias else 0
        return (inward + 1) * self.hidden_size * self.mlp_size + bias

    @property
    def attention_parameters(self) -> int:
        """Of the four projections of one layer, and its norms of queries and keys."""
        query, key_value = self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        weights = self.hidden_size * (2 * query + 2 * key_value)
        bias = (query + 2 * key_value if self.qkv_bias else 0) + (self.hidden_size if self.output_bias else 0)
        return weights + bias + (2 * self.head_size if self.qk_norm else 0)

    @property
    def block_parameters(self) -> int:
        """Of one layer."""
        mlp = self.mlp_parameters
        if self.num_experts:
            mlp = self.num_experts * mlp + self.hidden_size * self.num_experts
        return self.attention_parameters + mlp + self.norms_per_layer * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Before the first layer: words, positions, token types and a norm over them."""
        width = self.embedding_size or self.hidden_size
        projection = 2 * width * self.hidden_size if width != self.hidden_size else 0
        tables = self.vocabulary_size * width + (self.max_positions + self.token_types) * self.hidden_size
        return tables + projection + (self.norm_parameters if self.embedding_norm else 0)

    @property
    def head_parameters(self) -> int:
        """After the last layer, without an output matrix that is the embedding itself."""
        total = self.norm_parameters if self.final_norm else 0
        if self.has_head:
            total += 0 if self.tied_head else self.vocabulary_size * (self.embedding_size or self.hidden_size)
            total += self.vocabulary_size if self.head_bias else 0
            total += self.hidden_size * (self.hidden_size + 1) + self.norm_parameters if self.masked_word_head else 0
        return total

    @property
    def num_parameters(self) -> int:
        """Of the whole model; a tied matrix counts once."""
        return self.embedding_parameters + self.num_layers * self.block_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token passes through: all, but for experts it is not sent to."""
        idle = (self.num_experts - self.experts_per_token) * self.mlp_parameters if self.num_experts else 0
        return self.num_parameters - self.num_layers * idle

    def flops_per_sample(self, sequence_length: int) -> float:
        """Forward and backward of one sequence: 6 per parameter in a product and 12 L h s for attention (PaLM, appendix B)."""
        tables = self.vocabulary_size * (self.embedding_size or self.hidden_size) + self.max_positions * self.hidden_size
        products = self.active_parameters - tables + (self.vocabulary_size * self.hidden_size if self.tied_head and self.has_head else 0)
        attention = 12 * self.num_layers * self.num_heads * self.head_size * sequence_length
        return float(sequence_length * (6 * products + attention))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvnetShape:
    """A ResNet of bottleneck blocks."""

    stage_depths: tuple[int, ...]
    width: int
    num_classes: int
    image_size: int

    @property
    def num_parameters(self) -> int:
        """Convolutions without bias, two parameters a channel for each batch norm, one linear layer with bias."""
        total = 3 * self.width * 49 + 2 * self.width
        channels = self.width
        for stage, depth in enumerate(self.stage_depths):
            middle = self.width * 2**stage
            for block in range(depth):
                total += channels * middle + 9 * middle * middle + 4 * middle * middle + 2 * (middle + middle + 4 * middle)
                if block == 0:
                    total += channels * 4 * middle + 2 * 4 * middle
                channels = 4 * middle
        return total + (channels + 1) * self.num_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A built-in workload."""

    name: str
    title: str
    family: Family
    shape: TransformerShape | ConvnetShape
    sequence_length: int | None
    precision: Precision
    batch_size: int
    """Per GPU, where the user names none."""
    source: str


@cache
def presets() -> Mapping[str, Preset]:
    """All built-in workloads by name."""
    raw = tomllib.loads(resources.files("wiretax.data").joinpath("models.toml").read_text(encoding="utf-8"))
    return {name: _preset(name, table) for name, table in raw.items() if isinstance(table, dict)}


def preset(name: str) -> Preset:
    """One built-in workload.

    Raises:
        UsageError: there is none of this name; the message lists them.
    """
    known = presets()
    if name not in known:
        raise UsageError(f"There is no preset {name!r}.", do=f"The presets are {', '.join(known)}.")
    return known[name]


def _preset(name: str, table: dict[str, Any]) -> Preset:
    family = table["family"]
    shape: TransformerShape | ConvnetShape
    if family == "convnet":
        shape = ConvnetShape(
            **{key: table[key] for key in ("width", "num_classes", "image_size")}, stage_depths=tuple(table["stage_depths"])
        )
    else:
        hidden, heads = table["hidden_size"], table["num_heads"]
        common = {
            "num_layers": table["num_layers"],
            "hidden_size": hidden,
            "num_heads": heads,
            "num_kv_heads": table.get("num_kv_heads", heads),
            "head_size": hidden // heads,
            "mlp_size": table.get("mlp_size", 4 * hidden),
            "vocabulary_size": table["vocabulary_size"],
        }
        styles: dict[str, dict[str, Any]] = {
            "gpt": {"max_positions": table["sequence_length"], "norm_has_bias": True, "fused_products": True},
            "llama": {"gated_mlp": True, "keys_repeated": True},
            "encoder": {
                "max_positions": table["sequence_length"],
                "norm_has_bias": True,
                "qkv_bias": True,
                "output_bias": True,
                "mlp_bias": True,
                "embedding_norm": True,
                "final_norm": False,
                "tied_head": True,
                "head_bias": True,
                "masked_word_head": True,
            },
        }
        shape = TransformerShape(**common, **styles[family])
    return Preset(
        name=name,
        title=table["title"],
        family=family,
        shape=shape,
        sequence_length=table.get("sequence_length"),
        precision=table["precision"],
        batch_size=table["batch_size"],
        source=table["source"],
    )


_LLAMA: dict[str, Any] = {"gated_mlp": True, "norm_kept_bytes": 4}
_GPT_BIASES: dict[str, Any] = {"norm_has_bias": True, "qkv_bias": True, "output_bias": True, "mlp_bias": True}
_BERT: dict[str, Any] = {**_GPT_BIASES, "embedding_norm": True, "final_norm": False, "head_bias": True, "masked_word_head": True}
_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt2": {**_GPT_BIASES, "tied_head": True, "fused_products": True, "gelu_written_out": True},
    "gpt_neox": {**_GPT_BIASES, "fused_products": True},
    "opt": {**_GPT_BIASES, "tied_head": True},
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen2": {**_LLAMA, "qkv_bias": True},
    "qwen3": {**_LLAMA, "qk_norm": True},
    "gemma": {**_LLAMA, "tied_head": True, "norm_kept_bytes": 6},
    "phi3": {**_LLAMA, "fused_products": True},
    "bert": {**_BERT, "tied_head": True},
    "roberta": {**_BERT, "tied_head": True},
}
"""What the ``model_type`` of a config implies beyond its numbers; from the modelling files of transformers 4 and 5."""

_DROPOUT = {"gpt2": "resid_pdrop", "opt": "dropout", "bert": "hidden_dropout_prob", "roberta": "hidden_dropout_prob"}
"""Where a config says it, of the architectures that have dropout unless their config takes it away."""

_NAMES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_heads": ("num_attention_heads", "n_head"),
    "vocabulary_size": ("vocab_size",),
    "mlp_size": ("intermediate_size", "ffn_dim", "n_inner"),
}


def shape_from_config(config: Mapping[str, Any], source: str = "config.json") -> TransformerShape:
    """The shape that a Hugging Face ``config.json`` describes, as its language-model (or masked-word) class builds it.

    Args:
        config: the parsed file.
        source: its name, for messages.

    Raises:
        BadInput: an architecture that is not known here, or a number that is missing; says which, and what to give instead.
    """
    instead = "Give the size itself: --params 7e9, or --grad-bytes 14GB."
    kind = config.get("model_type")
    if kind not in _ARCHITECTURES:
        raise BadInput(
            f"{source}: the architecture {kind!r} is not known." if kind else f"{source}: there is no model_type.",
            why=f"Parameters can be counted for {', '.join(_ARCHITECTURES)}.",
            do=f"Install transformers, which builds it, or: {instead}",
        )
    numbers = {field: _number(config, names) for field, names in _NAMES.items()}
    if numbers["mlp_size"] is None and kind == "gpt2" and numbers["hidden_size"] is not None:
        numbers["mlp_size"] = 4 * numbers["hidden_size"]
    missing = [names[0] for field, names in _NAMES.items() if numbers[field] is None]
    if missing:
        raise BadInput(f"{source}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.", do=instead)
    found = {field: value for field, value in numbers.items() if value is not None}
    heads, hidden = found["num_heads"], found["hidden_size"]
    style: dict[str, Any] = dict(_ARCHITECTURES[kind])
    if kind in ("gpt2", "opt", "bert", "roberta"):
        positions = _number(config, ("max_position_embeddings", "n_positions"))
        if positions is None:
            raise BadInput(f"{source}: max_position_embeddings is missing.", do=instead)
        style["max_positions"] = positions + (2 if kind == "opt" else 0)  # OPT keeps two rows for padding
    if kind in ("bert", "roberta"):
        style["token_types"] = config.get("type_vocab_size", 2)
    if kind == "opt" and (width := _number(config, ("word_embed_proj_dim",))) not in (None, hidden):
        style["embedding_size"] = width
        style["final_norm"] = bool(config.get("do_layer_norm_before", True))
    if kind == "mixtral":
        style["num_experts"] = config.get("num_local_experts", 8)
        style["experts_per_token"] = config.get("num_experts_per_tok", 2)
    if config.get("attention_bias"):
        style["qkv_bias"] = style["output_bias"] = True
    if config.get("mlp_bias"):
        style["mlp_bias"] = True
    if config.get("tie_word_embeddings") is not None:
        style["tied_head"] = bool(config["tie_word_embeddings"])
    style |= found
    if kind in _DROPOUT:
        style["dropout"] = config.get(_DROPOUT[kind], 0.1) != 0
    if (gelu := config.get("activation_function")) is not None:
        style["gelu_written_out"] = gelu == "gelu_new"
    style["num_kv_heads"] = _number(config, ("num_key_value_heads",)) or heads
    style["head_size"] = _number(config, ("head_dim",)) or hidden // heads
    return TransformerShape(**style)


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of the names that holds a whole number above zero."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None

"""A model from a Hugging Face ``config.json``: through transformers where it is installed, else built here where the shape allows."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiretax.data.models import Precision, TransformerShape, shape_from_config
from wiretax.errors import BadInput, MissingDependency
from wiretax.model.profile import Workload
from wiretax.train.workload import LEARNING_RATE, Settings, Step, build, describe, find_blocks, transformer_step

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

DEFAULT_SEQUENCE_LENGTH = 1024
_MASKED = ("bert", "roberta", "distilbert", "electra", "deberta-v2", "modernbert")


def read_config(path: Path) -> dict[str, Any]:
    """The file as a mapping.

    Raises:
        BadInput: it cannot be read, or is no JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise BadInput(f"{path}: no JSON: {error}.", do="Give the model's config.json.") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path}: a config.json is a JSON object.")
    return config


def config_step(path: Path, device: torch.device, settings: Settings) -> tuple[Step, Workload]:
    """A step of the model that the config describes, with fresh weights, on random words.

    Raises:
        BadInput: the config cannot be read or built.
        MissingDependency: it needs transformers, which is not installed.
    """
    config = read_config(path)
    name = str(config.get("_name_or_path") or path.resolve().parent.name or config.get("model_type"))
    precision = settings.precision or "bf16"
    limit = config.get("max_position_embeddings") or config.get("n_positions") or DEFAULT_SEQUENCE_LENGTH
    length = settings.sequence_length or min(DEFAULT_SEQUENCE_LENGTH, int(limit))
    if find_spec("transformers") is not None:
        step = _transformers_step(config, path, device, precision, length)
        try:
            shape = shape_from_config(config, str(path))
        except BadInput:  # transformers knows more architectures than are counted here
            return step, Workload(
                name=name,
                batch_size=settings.batch_size or 1,
                sequence_length=length,
                hidden_size=config.get("hidden_size"),
                vocabulary_size=config.get("vocab_size"),
                num_heads=config.get("num_attention_heads"),
                dtype="float32" if precision == "fp32" else "bfloat16",
                optimizer="adamw",
                missing={"flops_per_sample": "counted while profiling"},
            )
    else:
        shape = shape_from_config(config, str(path))
        _must_be_built_in(shape, path)
        step = transformer_step(shape, device, precision, length)
    return step, describe(name, shape, batch_size=settings.batch_size or 1, sequence_length=length, precision=precision)


def _must_be_built_in(shape: TransformerShape, path: Path) -> None:
    """Refuses a shape that the decoder of :mod:`wiretax.train.gpt` would build with other parameters.

    Raises:
        MissingDependency: with the line that installs transformers.
    """
    biased = shape.qkv_bias or shape.output_bias or shape.mlp_bias or shape.head_bias or shape.qk_norm
    if biased or shape.tied_head or shape.num_experts or not shape.gated_mlp or shape.norm_has_bias:
        raise MissingDependency(
            f"{path}: building this architecture needs transformers, which is not installed.",
            why="Without it only Llama-like models (no biases, head not tied) can be built.",
            do="pip install transformers, or predict from the parameter count alone.",
        )


def _transformers_step(config: dict[str, Any], path: Path, device: torch.device, precision: Precision, length: int) -> Step:
    import torch
    import transformers  # type: ignore[import-not-found,unused-ignore]

    kind = config.get("model_type")
    chosen = transformers.AutoModelForMaskedLM if kind in _MASKED else transformers.AutoModelForCausalLM
    try:
        values = {key: value for key, value in config.items() if key not in ("model_type", "torch_dtype", "dtype")}
        described = transformers.AutoConfig.for_model(kind, **values)
        described.use_cache = False
        model = build(lambda: chosen.from_config(described), device, precision)
    except (ValueError, KeyError, TypeError, ImportError) as error:
        raise BadInput(f"{path}: transformers cannot build it: {error}.", do="Give the size itself: --params 7e9.") from error
    model.train()
    vocabulary = described.get_text_config().vocab_size

    def make_batch(batch_size: int) -> Tensor:
        return torch.randint(vocabulary, (batch_size, length), device=device)

    def loss(wrapped: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "mixed"):
            return wrapped(input_ids=tokens, labels=tokens).loss

    return Step(model, partial(torch.optim.AdamW, lr=LEARNING_RATE, fused=True), make_batch, loss, blocks=find_blocks(model))

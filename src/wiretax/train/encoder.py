"""A BERT-like encoder: attention both ways, norm after each addition, biases, output head tied to the embedding.

Shapes: B sequences of T tokens, D hidden, H heads of E each, M = 4 D, V words.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wiretax.data.models import TransformerShape

MASKED_SHARE = 0.15
"""BERT's: the share of words that the loss asks for."""
IGNORED = -100


class EncoderBlock(nn.Module):
    """Attention and MLP, each added to its input and then normed."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.head_size = shape.head_size
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, shape.mlp_size)
        self.down = nn.Linear(shape.mlp_size, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, D); returns (B, T, D)."""
        batch, length, _ = x.shape
        q, k, v = (
            product(x).view(batch, length, -1, self.head_size).transpose(1, 2)  # (B, H, T, E)
            for product in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v)  # (B, H, T, E)
        x = self.attention_norm(x + self.out(y.transpose(1, 2).reshape(batch, length, -1)))  # (B, T, D)
        return self.mlp_norm(x + self.down(functional.gelu(self.up(x))))  # (B, T, M) between


class Encoder(nn.Module):
    """Embeddings, blocks, and the masked-word head."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.words = nn.Embedding(shape.vocabulary_size, hidden)
        self.positions = nn.Embedding(shape.max_positions, hidden)
        self.embedding_norm = nn.LayerNorm(hidden)
        self.blocks = nn.ModuleList(EncoderBlock(shape) for _ in range(shape.num_layers))
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, shape.vocabulary_size)
        self.apply(_initialise)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits. tokens: (B, T) of int64; returns (B, T, V)."""
        place = torch.arange(tokens.shape[1], device=tokens.device)  # (T)
        x = self.embedding_norm(self.words(tokens) + self.positions(place))  # (B, T, D)
        for block in self.blocks:
            x = block(x)  # (B, T, D)
        return self.head(self.transform_norm(functional.gelu(self.transform(x))))  # (B, T, V)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def masked_word_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy over the masked words. logits: (B, T, V); targets: (B, T), :data:`IGNORED` where not asked."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


def tensor_parallel_plan() -> dict[str, Any]:
    """Megatron's split of the blocks; embedding and tied head stay whole on every rank."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    plan: dict[str, Any] = {f"blocks.*.{name}": ColwiseParallel() for name in ("query", "key", "value", "up")}
    return plan | {f"blocks.*.{name}": RowwiseParallel() for name in ("out", "down")}

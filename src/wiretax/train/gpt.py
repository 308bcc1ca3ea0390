"""The two decoders that people train: GPT (learned positions, LayerNorm, GELU) and Llama-like (rotary, RMSNorm, gated SiLU).

Shapes: B sequences of T tokens, D hidden, H query heads and K key/value heads of E each (D = H E), M wide MLP, V words.
Under tensor parallelism a rank holds H/t, K/t heads and M/t of the MLP; the code below never names H or K in a shape, so
that it runs unchanged on a rank's part.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wiretax.data.models import TransformerShape

ROTARY_BASE = 10000.0


class GptAttention(nn.Module):
    """Causal self-attention with one fused projection."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.qkv = nn.Linear(shape.hidden_size, 3 * shape.hidden_size, bias=False)  # rows by head, then q k v: splits between heads
        self.out = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attends. x: (B, T, D); returns (B, T, D)."""
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, -1, 3, self.head_size)  # (B, T, H, 3, E)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(3))  # (B, H, T, E) each
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, E)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))  # (B, T, H E) -> (B, T, D)


class GptMlp(nn.Module):
    """Two products with GELU between them."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden_size, shape.mlp_size, bias=False)
        self.down = nn.Linear(shape.mlp_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, D); returns (B, T, D)."""
        return self.down(functional.gelu(self.up(x)))  # (B, T, M) between


class GptBlock(nn.Module):
    """Attention, then MLP, each with its norm before and the input added after."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.hidden_size)
        self.attention = GptAttention(shape)
        self.mlp_norm = nn.LayerNorm(shape.hidden_size)
        self.mlp = GptMlp(shape)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, D); returns (B, T, D)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class LlamaAttention(nn.Module):
    """Causal self-attention with rotary positions and fewer key and value heads than query heads."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        keys = shape.num_kv_heads * shape.head_size
        self.query = nn.Linear(shape.hidden_size, shape.num_heads * shape.head_size, bias=False)
        self.key = nn.Linear(shape.hidden_size, keys, bias=False)
        self.value = nn.Linear(shape.hidden_size, keys, bias=False)
        self.out = nn.Linear(shape.num_heads * shape.head_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attends. x: (B, T, D); returns (B, T, D)."""
        batch, length, _ = x.shape
        q, k, v = (
            product(x).view(batch, length, -1, self.head_size).transpose(1, 2)  # (B, H or K, T, E)
            for product in (self.query, self.key, self.value)
        )
        cos, sin = rotary_table(length, self.head_size, x.device, q.dtype)  # (T, E) each
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)  # (B, H, T, E): every fused kernel takes it
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, E)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))  # (B, T, H E) -> (B, T, D)


class LlamaMlp(nn.Module):
    """SwiGLU: one product gates the other."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden_size, shape.mlp_size, bias=False)
        self.up = nn.Linear(shape.hidden_size, shape.mlp_size, bias=False)
        self.down = nn.Linear(shape.mlp_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, D); returns (B, T, D)."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))  # (B, T, M) between


class LlamaBlock(nn.Module):
    """As :class:`GptBlock`, with RMSNorm."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size)
        self.attention = LlamaAttention(shape)
        self.mlp_norm = nn.RMSNorm(shape.hidden_size)
        self.mlp = LlamaMlp(shape)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, D); returns (B, T, D)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def rotary_table(length: int, head_size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of position times frequency, (T, E) each; cheap enough to make anew, and no buffer to broadcast."""
    half = torch.arange(0, head_size, 2, device=device, dtype=torch.float32)  # (E / 2)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), ROTARY_BASE ** (-half / head_size))  # (T, E / 2)
    angle = torch.cat((angle, angle), dim=-1)  # (T, E)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns pairs (e, e + E/2) of x (B, H, T, E) by the angles of their position."""
    first, second = x.chunk(2, dim=-1)  # (B, H, T, E / 2) each
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Decoder(nn.Module):
    """Embeddings, blocks, norm, output head (not tied to the embedding)."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        llama = shape.gated_mlp
        self.words = nn.Embedding(shape.vocabulary_size, shape.hidden_size)
        self.positions = nn.Embedding(shape.max_positions, shape.hidden_size) if shape.max_positions else None
        self.blocks = nn.ModuleList((LlamaBlock if llama else GptBlock)(shape) for _ in range(shape.num_layers))
        self.norm: nn.Module = (nn.RMSNorm if llama else nn.LayerNorm)(shape.hidden_size)
        self.head = nn.Linear(shape.hidden_size, shape.vocabulary_size, bias=False)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits. tokens: (B, T) of int64; returns (B, T, V)."""
        x = self.words(tokens)  # (B, T, D)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))  # (T, D) broadcasts over B
        for block in self.blocks:
            x = block(x)  # (B, T, D)
        return self.head(self.norm(x))  # (B, T, V)


def _initialise(module: nn.Module) -> None:
    """GPT-2's: normal with 0.02 for everything that multiplies."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


def next_word_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy on float32 logits. logits: (B, T, V); targets: (B, T)."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def tensor_parallel_plan(shape: TransformerShape) -> dict[str, Any]:
    """Megatron's split of a :class:`Decoder`: heads and the MLP's width by columns, back by rows; words and head by vocabulary.

    The head's logits stay split, so its loss must run under ``torch.distributed.tensor.parallel.loss_parallel``.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel

    inward = ("query", "key", "value") if shape.gated_mlp else ("qkv",)
    plan: dict[str, Any] = {f"blocks.*.attention.{name}": ColwiseParallel() for name in inward}
    plan |= {f"blocks.*.mlp.{name}": ColwiseParallel() for name in (("gate", "up") if shape.gated_mlp else ("up",))}
    plan |= {"blocks.*.attention.out": RowwiseParallel(), "blocks.*.mlp.down": RowwiseParallel()}
    if shape.gated_mlp:
        # Several products read one input: as one DTensor its gradient is added up before it is reduced, once instead of thrice.
        for name in ("attention", "mlp"):
            plan[f"blocks.*.{name}"] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan["words"] = RowwiseParallel(input_layouts=Replicate())
    plan["head"] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    return plan

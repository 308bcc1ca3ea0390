"""One block and the output head of the 1.7 B GPT of the headline: hidden 2304, 18 heads, batch 4 x 1024, vocabulary 50304."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HIDDEN, HEADS, BATCH, LENGTH, VOCABULARY = 2304, 18, 4, 1024, 50304


def block_step(device: torch.device, dtype: torch.dtype) -> Callable[[], None]:
    """Forward and backward of one block: affine LayerNorm, causal attention, MLP x4 with GELU, no bias in the linears."""
    import torch
    from torch.nn import functional

    def weight(rows: int, columns: int) -> torch.Tensor:
        return (0.02 * torch.randn(rows, columns, device=device, dtype=dtype)).requires_grad_()

    def norm() -> list[torch.Tensor]:
        return [
            torch.ones(HIDDEN, device=device, dtype=dtype).requires_grad_(),
            torch.zeros(HIDDEN, device=device, dtype=dtype).requires_grad_(),
        ]

    qkv, out, up, down = weight(3 * HIDDEN, HIDDEN), weight(HIDDEN, HIDDEN), weight(4 * HIDDEN, HIDDEN), weight(HIDDEN, 4 * HIDDEN)
    first, second = norm(), norm()
    inputs = torch.randn(BATCH, LENGTH, HIDDEN, device=device, dtype=dtype).requires_grad_()
    gradient = torch.randn_like(inputs)

    def step() -> None:
        normal = functional.layer_norm(inputs, (HIDDEN,), *first)
        parts = functional.linear(normal, qkv).view(BATCH, LENGTH, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        middle = inputs + functional.linear(mixed.transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN), out)
        normal = functional.layer_norm(middle, (HIDDEN,), *second)
        result = middle + functional.linear(functional.gelu(functional.linear(normal, up)), down)
        # a scalar, since a given gradient makes torch import sympy to compare shapes: seconds in each fresh process on a cold disk
        torch.autograd.grad((result * gradient).sum(), [inputs, qkv, out, up, down, *first, *second])

    return step


def head_step(device: torch.device, dtype: torch.dtype) -> Callable[[], None]:
    """Forward and backward of the output head with its loss on float32 logits."""
    import torch
    from torch.nn import functional

    head = (0.02 * torch.randn(VOCABULARY, HIDDEN, device=device, dtype=dtype)).requires_grad_()
    inputs = torch.randn(BATCH * LENGTH, HIDDEN, device=device, dtype=dtype).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (BATCH * LENGTH,), device=device)

    def step() -> None:
        loss = functional.cross_entropy(functional.linear(inputs, head).float(), labels)
        torch.autograd.grad(loss, [inputs, head])

    return step

"""Small steps for CPU ranks, unlike the presets: plain networks, convnets, and an encoder of odd sizes."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from wiretax.train.workload import Step


def _classifier(model: nn.Module, shape: tuple[int, ...], classes: int, blocks: list[nn.Module]) -> Step:
    def make_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, *shape), torch.randint(classes, (size,))

    def loss(wrapped: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(wrapped(batch[0]), batch[1])

    return Step(model, lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9), make_batch, loss, blocks=blocks)


def wide(_device: torch.device) -> Step:
    """Three linear layers of 1536: 28 MB of gradients and little work, so that the wire decides."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(1536, 1536), nn.ReLU()) for _ in range(3)]
    return _classifier(nn.Sequential(*layers, nn.Linear(1536, 10)), (1536,), 10, list(layers))


def pictures(_device: torch.device) -> Step:
    """Five convolutions over 48 x 48 pixels: 6 MB of gradients and much work."""
    torch.manual_seed(0)
    widths = (3, 64, 128, 256, 256, 256)
    layers = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), *([nn.MaxPool2d(2)] if index < 4 else []))
        for index, (a, b) in enumerate(pairwise(widths))
    ]
    return _classifier(nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 9, 100)), (3, 48, 48), 100, list(layers))


def bottle(_device: torch.device) -> Step:
    """An autoencoder's widths, each layer with a norm: 21 MB of gradients in tensors of very unlike sizes."""
    torch.manual_seed(0)
    widths = (2048, 1024, 256, 64, 256, 1024, 2048)
    layers = [nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.GELU()) for a, b in pairwise(widths)]
    return _classifier(nn.Sequential(*layers, nn.Linear(widths[-1], 30)), (widths[0],), 30, list(layers))


def patches(_device: torch.device) -> Step:
    """Depthwise and pointwise convolutions over patches (ConvMixer): 1 MB of gradients, small tensors, much work."""
    torch.manual_seed(0)
    width = 192

    def mix() -> nn.Sequential:
        across = nn.Sequential(nn.Conv2d(width, width, 5, padding=2, groups=width), nn.GELU(), nn.BatchNorm2d(width))
        return nn.Sequential(across, nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width))

    blocks = [mix() for _ in range(6)]
    stem = nn.Conv2d(3, width, 4, stride=4)
    return _classifier(
        nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 50)), (3, 64, 64), 50, list(blocks)
    )


def encoder(_device: torch.device) -> Step:
    """Torch's own transformer layers, 320 wide, on 96 tokens: 20 MB of gradients."""
    torch.manual_seed(0)
    body = nn.TransformerEncoder(nn.TransformerEncoderLayer(320, 5, 1280, dropout=0.0, batch_first=True), 4, enable_nested_tensor=False)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.body, self.head = nn.Embedding(600, 320), body, nn.Linear(320, 12)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.words(tokens)))

    model = Tagger()

    def make_batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randint(600, (size, 96)), torch.randint(12, (size, 96))

    def loss(wrapped: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(wrapped(batch[0]).flatten(0, 1), batch[1].flatten())

    return Step(model, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), make_batch, loss, blocks=list(body.layers))

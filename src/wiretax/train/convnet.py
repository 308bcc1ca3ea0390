"""ResNet with bottleneck blocks, as torchvision has it (stride in the 3x3 convolution): many small tensors and batch-norm buffers.

Shapes: N images, C channels, S x S pixels, channels last in memory.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import torch
from torch import Tensor, nn

from wiretax.data.models import ConvnetShape

EXPANSION = 4
"""A block gives four times as many channels as its middle convolution has."""


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions and a way around them."""

    def __init__(self, channels: int, middle: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * middle
        self.reduce = nn.Conv2d(channels, middle, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(middle)
        self.spatial = nn.Conv2d(middle, middle, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(middle)
        self.expand = nn.Conv2d(middle, out, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(out)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.around = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, C, S, S); returns (N, 4 middle, S / stride, S / stride)."""
        y = torch.relu(self.reduce_norm(self.reduce(x)))  # (N, middle, S, S)
        y = torch.relu(self.spatial_norm(self.spatial(y)))  # (N, middle, S / stride, S / stride)
        return torch.relu(self.expand_norm(self.expand(y)) + self.around(x))  # (N, 4 middle, S / stride, S / stride)


class Convnet(nn.Module):
    """Stem, four stages of blocks, classifier."""

    def __init__(self, shape: ConvnetShape) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, shape.width, 7, stride=2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(shape.width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks: list[nn.Module] = []
        channels = shape.width
        for stage, depth in enumerate(shape.stage_depths):
            middle = shape.width * 2**stage
            for block in range(depth):
                blocks.append(Bottleneck(channels, middle, stride=2 if stage > 0 and block == 0 else 1))
                channels = EXPANSION * middle
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, shape.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores. images: (N, 3, S, S); returns (N, classes)."""
        x = self.pool(torch.relu(self.stem_norm(self.stem(images))))  # (N, width, S / 4, S / 4)
        for block in self.blocks:
            x = block(x)  # at the end (N, 32 width, S / 32, S / 32)
        return self.head(x.mean(dim=(2, 3)))  # (N, 32 width) -> (N, classes)

"""A training script as anybody has one, and the two ways in which wiretax learns what it costs on more GPUs.

    python examples/own_training.py                             trains, on one GPU or on the CPU
    python examples/own_training.py --profile out.json          trains, and profiles the bare step of this very loop
    wiretax profile --step own_training:step --batch 32 --out profile.json     (in this folder) profiles the strategies too
    wiretax predict --profile profile.json --busbw 22GB/s --strategy ddp,fsdp2 --gpus 2,4,8

The function ``step`` below is all that the second way needs: how to build the model, the optimizer and a batch, and what the loss is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import wiretax

FEATURES, WIDTH, CLASSES, DEPTH = 64, 256, 10, 6


class Layer(nn.Module):
    """Two linear layers and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inward, self.outward = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outward(functional.gelu(self.inward(self.norm(x))))


class Classifier(nn.Module):
    """What the script trains."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def batch_of(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around as many centres as there are classes."""
    labels = torch.randint(CLASSES, (size,), device=device)
    return torch.randn(size, FEATURES, device=device) + labels[:, None], labels


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy."""
    features, labels = batch
    return functional.cross_entropy(model(features), labels)


def step(device: torch.device) -> wiretax.Step:
    """The parts of a step, for ``wiretax profile --step own_training:step``."""
    model = Classifier().to(device)
    return wiretax.Step(
        model,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        make_batch=lambda size: batch_of(size, device),
        loss=loss_of,
        blocks=list(model.layers),
    )


def train(device: torch.device, *, batch_size: int, steps: int, profile: Path | None = None) -> list[float]:
    """An ordinary loop; with ``profile`` its own steps are timed too."""
    torch.manual_seed(0)
    model = Classifier().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []

    def one_step() -> None:
        loss = loss_of(model, batch_of(batch_size, device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    if profile is None:
        for _ in range(steps):
            one_step()
        return losses

    import msgspec

    with wiretax.profile_step(model, optimizer, batch_size=batch_size, name="own_training", dtype="float32") as profiler:
        while not profiler.done or len(losses) < steps:
            one_step()
    profile.write_bytes(msgspec.json.encode(profiler.profile))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--profile", type=Path, help="write the profile of the bare step here")
    chosen = parser.parse_args()
    found = train(
        torch.device("cuda" if torch.cuda.is_available() else "cpu"), batch_size=chosen.batch, steps=chosen.steps, profile=chosen.profile
    )
    print(f"loss {found[0]:.3f} -> {found[-1]:.3f} in {len(found)} steps")

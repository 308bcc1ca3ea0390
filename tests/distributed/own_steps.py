"""Steps as users write them, good and bad, for `--step own_steps:NAME`."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from wiretax.train.workload import Step

WIDTH = 32


class Two(nn.Module):
    """Two layers, the second of which a batch may leave out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, layers=2):
        for layer in self.layers[:layers]:
            x = layer(x)
        return self.head(x)


def _step(loss, model=None):
    model = model or Two()
    return Step(
        model,
        lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        lambda size: torch.randn(size, WIDTH),
        loss,
        blocks=list(model.layers),
    )


def good(_device):
    return _step(lambda model, batch: functional.mse_loss(model(batch), batch[:, :1]))


def raises(_device):
    return _step(lambda model, batch: model(batch)["labels"])


def not_scalar(_device):
    return _step(lambda model, batch: model(batch))


def depends_on_data(_device):
    def loss(model, batch):
        return model(batch, 2 if float(batch.sum()) > 0 else 1).mean()

    return _step(loss)


def one_runs_out_of_memory(_device):
    """Where ranks train together the second has less memory than the first, as a GPU that somebody else uses too."""

    def loss(model, batch):
        if dist.is_initialized() and dist.get_world_size() > 1 and os.environ["RANK"] == "1":
            raise MemoryError("no room")
        return functional.mse_loss(model(batch), batch[:, :1])

    return _step(loss)


def unused(_device):
    model = Two()
    model.spare = nn.Linear(WIDTH, WIDTH)
    return _step(lambda wrapped, batch: wrapped(batch).mean(), model)


def too_large(_device):
    """Batches above 5 do not fit."""

    def loss(model, batch):
        if len(batch) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return model(batch).mean()

    return _step(loss)


def _at_the_second_rank(number):
    """In real training on two ranks (profiles run on torch's fake backend or on one rank)."""

    def loss(model, batch):
        if dist.is_initialized() and dist.get_backend() == "gloo" and dist.get_world_size() == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        return model(batch).mean()

    return _step(loss)


def dies(_device):
    return _at_the_second_rank(signal.SIGKILL)


def stops(_device):
    return _at_the_second_rank(signal.SIGSTOP)

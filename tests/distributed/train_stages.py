"""Stage functions for the tests of real training: every rank trains a few steps, and the losses are compared."""

import torch
import torch.distributed as dist

from wiretax.measure.groups import Group, open_group
from wiretax.train import scaling
from wiretax.train.strategy import Options, Place, data_parallel_size, wrap_step
from wiretax.train.workload import Settings, load_workload

STEPS = 3


def _losses(step, wrapped, batches):
    found = []
    for _ in range(STEPS):
        total = 0.0
        for batch in batches:
            loss = wrapped.forward(batch) / len(batches)
            wrapped.backward(loss)
            total += float(loss)
        wrapped.update()
        found.append(total)
    return found


def same_as_alone(rank, names, strategies):
    """Losses of each strategy on all ranks, beside those of one process that averages the gradients of all batches."""
    group = Group(members=tuple(range(rank.world_size)), index=rank.rank, name="train")
    place = Place(device=rank.device, world_size=rank.world_size)
    with open_group(rank, "gloo", group):
        for name in names:
            for strategy in strategies:
                replicas = data_parallel_size(strategy, rank.world_size, Options())
                alone, _ = load_workload(name, rank.device)
                torch.manual_seed(7)
                batches = [alone.make_batch(2) for _ in range(replicas)]
                bare = wrap_step("none", alone, Options(), Place(device=rank.device, world_size=1))
                expected = _losses(alone, bare, batches)
                shared, _ = load_workload(name, rank.device)
                wrapped = wrap_step(strategy, shared, Options(), place)
                own = torch.tensor(_losses(shared, wrapped, [batches[rank.rank * replicas // rank.world_size]]))
                dist.all_reduce(own)
                if rank.rank == 0:
                    rank.emit_fact("losses", [name, strategy, expected, (own / rank.world_size).tolist()])
                rank.tick()


def accumulated(rank, strategy):
    """Two micro-steps whose gradients are reduced once, beside one step on both halves."""
    group = Group(members=tuple(range(rank.world_size)), index=rank.rank, name="train")
    place = Place(device=rank.device, world_size=rank.world_size)
    weights = []
    with open_group(rank, "gloo", group):
        for micro_steps in (1, 2):
            step, _ = load_workload("gpt-tiny", rank.device, Settings(batch_size=2))
            plain = step.loss
            step.loss = lambda model, batch, plain=plain, parts=micro_steps: plain(model, batch) / parts
            step.make_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
            wrapped = wrap_step(strategy, step, Options(), place)
            torch.manual_seed(rank.rank)
            wrapped.train(step.make_batch(2), accumulation_steps=micro_steps)
            parameters = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in step.model.parameters()]
            weights.append(torch.cat([one.detach().flatten() for one in parameters]))
    if rank.rank == 0:
        rank.emit_fact("difference", float((weights[0] - weights[1]).abs().max()))


def scale_out_of_memory(rank):
    """All ranks run out of memory at batch 4, and go on with the next case."""
    real = scaling.load_workload

    def load(source, device, settings):
        step, workload = real(source, device, settings)
        if workload.batch_size == 4:
            step.loss = _out_of_memory
        return step, workload

    scaling.load_workload = load
    scaling.scale(rank, workloads=["gpt-tiny"], strategies=["ddp"], batches=[4, 2], wire="gloo", steps=5)


def _out_of_memory(_model, _batch):
    raise torch.OutOfMemoryError("CUDA out of memory")

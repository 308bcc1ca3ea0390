import math

import pytest
import torch
from torch import nn

from wiretax.errors import BadInput, CannotMeasure
from wiretax.train.check import check_step
from wiretax.train.workload import Step, load_workload


class Branches(nn.Module):
    """Which half is used may depend on the batch; a third part never is."""

    def __init__(self, depends):
        super().__init__()
        self.depends = depends
        self.left, self.right, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        if self.depends and x[0, 0].item() > 0:
            return self.right(x)
        return self.left(x)


def step_of(model, batches=None, loss=None):
    made = iter(batches or ())
    return Step(
        model,
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda n: next(made, torch.ones(n, 2)),
        loss or (lambda m, b: m(b).square().mean()),
    )


def test_parameters_without_a_gradient_are_found_and_named(cpu):
    checked = check_step(step_of(Branches(depends=False)), 2, cpu, count_flops=False)
    assert checked.without_gradient == frozenset({2, 3, 4, 5})
    assert "4 trainable parameters get no gradient (right.weight, right.bias, never.weight, never.bias)" in checked.notes[0]
    assert len(checked.notes) == 1


def test_a_step_that_looks_at_the_data_is_noted_in_both_ways(cpu):
    batches = [torch.full((2, 2), value) for value in (1.0, -1.0, 1.0)]
    checked = check_step(step_of(Branches(depends=True), batches), 2, cpu, count_flops=False)
    assert checked.without_gradient == frozenset(range(6))  # each of them in some step
    assert [note for note in checked.notes if "depends on the batch" in note]
    assert [note for note in checked.notes if ".item()" in note]
    assert not checked.waits  # a CPU has nothing to wait for


def test_a_choice_that_the_first_batches_hide_is_seen_in_later_ones(cpu):
    batches = [torch.ones(2, 2)] * 5 + [-torch.ones(2, 2)]
    checked = check_step(step_of(Branches(depends=True), batches), 2, cpu, count_flops=False)
    assert [note for note in checked.notes if "which parameters get a gradient depends on the batch" in note]
    assert {0, 1, 2, 3} <= checked.without_gradient


def test_a_loss_that_is_no_number_is_noted(cpu):
    checked = check_step(step_of(nn.Linear(2, 2), loss=lambda m, b: m(b).sum() * math.inf), 2, cpu, count_flops=False)
    assert [note for note in checked.notes if "the loss is not finite" in note]


def test_a_batch_that_is_always_as_large_is_noted(cpu):
    step = step_of(nn.Linear(2, 2))
    assert check_step(step, 8, cpu, count_flops=False).notes == ()
    step.make_batch = lambda _size: {"x": torch.ones(4, 2)}["x"]
    assert [note for note in check_step(step, 8, cpu, count_flops=False).notes if "as much for 1 sample as for 2" in note]


def test_frozen_parameters_are_no_missing_gradients(cpu):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    checked = check_step(step_of(model), 2, cpu, count_flops=False)
    assert checked.without_gradient == frozenset()
    assert checked.notes == ()


def test_a_model_that_trains_nothing_is_refused(cpu):
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(BadInput, match="No parameter of the model is trained"):
        check_step(step_of(model), 2, cpu, count_flops=False)


def test_a_backward_that_fails_is_the_users_mistake(cpu):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x.clone()

        @staticmethod
        def backward(_context, _gradient):
            raise ValueError("my own backward is wrong")

    with pytest.raises(BadInput, match=r"Backward failed.*my own backward is wrong"):
        check_step(step_of(nn.Linear(2, 2), loss=lambda m, b: Bad.apply(m(b)).sum()), 2, cpu, count_flops=False)


def test_memory_that_runs_out_at_the_smallest_batch_is_said_to_need_another_way(cpu):
    def loss(_model, _batch):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with pytest.raises(CannotMeasure, match=r"ran out of memory at batch 1 under none.*Not even a batch of 1 fits"):
        check_step(step_of(nn.Linear(2, 2), loss=loss), 1, cpu, count_flops=False)


def test_operations_are_counted_for_each_sample_forward_and_backward(cpu):
    step, _ = load_workload("gpt-tiny", cpu)
    checked = check_step(step, 4, cpu, count_flops=True)
    products = 6 * 32 * (2 * 12 * 64 * 64 + 64 * 256)
    attention = 2 * 7 * 2 * 32 * 32 * 64  # two products forward and five backward, in two layers; torch counts none of a CPU's
    assert products <= checked.flops_per_sample <= products + attention


def test_what_each_block_hands_on_is_measured_in_bytes_a_sample(cpu):
    step, _ = load_workload("gpt-tiny", cpu)
    checked = check_step(step, 4, cpu, count_flops=False)
    assert checked.output_bytes_per_sample == (32 * 64 * 4, 32 * 64 * 4, 32 * 64 * 4, 0.0)

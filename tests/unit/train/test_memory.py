"""Advice when memory runs out, with a step that pretends to have so much of it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from wiretax.errors import CannotMeasure
from wiretax.train.memory import grows, largest_that_fits, memory_points, out_of_memory_explained, two_batches
from wiretax.train.strategy import WrappedStep
from wiretax.train.workload import Step


def limited(largest):
    """A step that runs out of memory above a batch size."""
    tried = []

    def loss(model, batch):
        tried.append(len(batch))
        if len(batch) > largest:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return model(batch).sum()

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = Step(model, lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 2), loss)
    return WrappedStep(strategy="ddp", step=step, model=model, optimizer=optimizer), tried


@pytest.mark.parametrize(("batch", "expected"), [(1, (1, 2)), (2, (1, 2)), (8, (4, 8)), (5, (2, 5))])
def test_two_batch_sizes_tell_fixed_from_growing_memory(batch, expected):
    assert two_batches(batch) == expected


def test_a_cpu_has_no_peaks(cpu):
    wrapped, tried = limited(99)
    assert memory_points(wrapped, (1, 2), cpu) == ()
    assert tried == []


@pytest.mark.parametrize(("largest", "answer"), [(63, 32), (20, 16), (1, 1), (0, 0)])
def test_the_largest_batch_that_trains_is_found_by_halving(cpu, largest, answer):
    wrapped, _ = limited(largest)
    assert largest_that_fits(wrapped, 64, cpu) == answer


def test_the_error_says_what_would_fit_and_under_which_strategy(cpu):
    wrapped, _ = limited(20)
    with (
        pytest.raises(CannotMeasure, match=r"ran out of memory at batch 64 under ddp.*A batch of 16 would fit"),
        out_of_memory_explained(wrapped, 64, cpu),
    ):
        wrapped.train(wrapped.step.make_batch(64))


def test_gradients_left_behind_by_a_failed_try_are_forgotten(cpu):
    wrapped, _ = limited(0)
    assert largest_that_fits(wrapped, 4, cpu) == 0
    assert all(one.grad is None for one in wrapped.model.parameters())


def test_other_errors_pass_through_unchanged(cpu):
    wrapped, _ = limited(9)
    with pytest.raises(ZeroDivisionError), out_of_memory_explained(wrapped, 4, cpu):
        1 / 0  # noqa: B018


PLAYED = SimpleNamespace(type="cuda", index=0)


@pytest.fixture
def counted(monkeypatch):
    """A GPU whose peaks are a straight line in the batch, or all gradients and what the optimizer makes, whichever is more."""
    now = {"bytes": 0}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: now["bytes"])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 1000)

    def step(*, a_sample, largest=10**9, strategy="none"):
        wrapped, tried = limited(largest)
        forward, update = wrapped.forward, wrapped.update

        def counting_forward(batch):
            now["bytes"] = max(2000, 1000 + a_sample * len(batch))
            return forward(batch)

        def counting_update():
            now["bytes"] = 2000
            update()

        wrapped = SimpleNamespace(
            strategy=strategy,
            step=wrapped.step,
            optimizer=wrapped.optimizer,
            forward=counting_forward,
            backward=wrapped.backward,
            update=counting_update,
        )
        return wrapped, tried

    return step


def test_two_batches_are_enough_where_both_peaks_grow(counted):
    wrapped, _ = counted(a_sample=600)
    points = memory_points(wrapped, (4, 8), PLAYED)
    assert [(one.batch_size, one.peak_bytes, one.update_peak_bytes) for one in points] == [(4, 3400, 2000), (8, 5800, 2000)]
    assert all(grows(one) for one in points) and {one.at_rest_bytes for one in points} == {1000}


@pytest.mark.parametrize(("a_sample", "batches"), [(150, [4, 8, 16]), (70, [4, 8, 16, 32]), (2, [4, 8, 16, 32, 64, 128])])
def test_larger_batches_are_tried_until_two_peaks_grow(counted, a_sample, batches):
    wrapped, _ = counted(a_sample=a_sample)
    assert [one.batch_size for one in memory_points(wrapped, (4, 8), PLAYED)] == batches


def test_a_larger_batch_that_does_not_fit_costs_nothing(counted):
    wrapped, tried = counted(a_sample=70, largest=8)
    assert [one.batch_size for one in memory_points(wrapped, (4, 8), PLAYED)] == [4, 8]
    assert max(tried) == 16
    assert all(one.grad is None for one in wrapped.step.model.parameters())


def test_a_strategys_own_peaks_are_those_of_the_batches_asked_for(counted):
    wrapped, _ = counted(a_sample=2, strategy="fsdp2")
    assert [one.batch_size for one in memory_points(wrapped, (4, 8), PLAYED)] == [4, 8]

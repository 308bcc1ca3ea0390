"""What users' functions do wrong is said in words, with the line of theirs."""

import os
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from wiretax.errors import BadInput
from wiretax.train.bare import profile_bare
from wiretax.train.own_step import brief, call, settle
from wiretax.train.sampling import Effort
from wiretax.train.workload import Step, load_step, load_workload

QUICK = Effort(seconds=0.01, warm_up=1, most=2, fewest=1)


def a_step(**changed):
    own = Step(nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 2), lambda m, b: m(b).mean())
    return replace(own, **changed)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raises(error):
    def function(*_arguments):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("first\nsecond"), r"ValueError: first \(test_own_step.py, line \d+\)"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError(), "no message"),
        (Unspeakable(), r"its message cannot be read \(RuntimeError\)"),
    ],
)
def test_an_error_is_told_in_one_line_with_its_place(error, words):
    with pytest.raises(BadInput, match=f"It raised .*{words}"):
        call("It", raises(error))
    assert "\n" not in brief(error)


def test_running_out_of_memory_is_no_mistake_of_the_function():
    with pytest.raises(MemoryError):
        call("It", raises(MemoryError()))


def test_a_mistake_of_ours_is_told_once():
    with pytest.raises(BadInput, match=r"^already told$"):
        call("It", raises(BadInput("already told")))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": nn.ReLU()}, "No parameter of the model"),
        ({"model": nn.Linear(2, 2).requires_grad_(False)}, "No parameter of the model"),
        ({"model": lambda x: x}, "is function, not a torch.nn.Module"),
        ({"model": nn.Linear(2, 2, device="meta")}, "weight of own:step is on meta, not on cpu"),
        ({"blocks": [nn.Linear(2, 2)]}, "A block of own:step is no part of its model"),
        ({"blocks": [1]}, "A block of own:step is no part of its model"),
    ],
)
def test_a_step_that_cannot_be_trained_is_refused_before_it_runs(cpu, changed, words):
    with pytest.raises(BadInput, match=words):
        settle(a_step(**changed), "own:step", cpu)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (raises(ZeroDivisionError("why")), r"make_optimizer\(parameters\) raised ZeroDivisionError: why"),
        (lambda _p: None, "returned NoneType, not an optimizer"),
        (lambda p: torch.optim.LBFGS(p), "The optimizer's step raised TypeError: .*closure"),
    ],
)
def test_an_optimizer_that_cannot_step_is_named(cpu, made, words):
    step = settle(a_step(make_optimizer=made), "own:step", cpu)
    _, workload = load_workload("gpt-tiny", cpu)
    with pytest.raises(BadInput, match=words):
        profile_bare(step, replace(workload, batch_size=2), cpu, QUICK)


def test_a_batch_that_cannot_be_made_says_at_which_size(cpu):
    step = settle(a_step(make_batch=raises(ValueError("only two"))), "own:step", cpu)
    with pytest.raises(BadInput, match=r"make_batch\(4\) raised ValueError: only two"):
        step.make_batch(4)


def test_every_rank_builds_the_same_weights_of_a_users_model(cpu, tmp_path, monkeypatch):
    (tmp_path / "my_weights.py").write_text(
        "import torch\nfrom wiretax.train.workload import Step\n"
        "def step(device):\n"
        "    return Step(torch.nn.Linear(4, 4), lambda p: torch.optim.SGD(p), lambda n: torch.ones(n, 4), lambda m, b: m(b).mean())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [os.fspath(tmp_path), *sys.path])
    torch.manual_seed(1)
    first = load_step("my_weights:step", cpu).model.weight
    torch.manual_seed(2)
    assert torch.equal(first, load_step("my_weights:step", cpu).model.weight)

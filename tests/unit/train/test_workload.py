import sys
import textwrap
from itertools import pairwise

import pytest
import torch
from torch import nn

from wiretax.data.models import presets
from wiretax.errors import BadInput, UsageError
from wiretax.train.workload import Settings, Step, checked_loss, find_blocks, load_step, load_workload

TINY = ("gpt-tiny", "llama-tiny", "encoder-tiny", "convnet-tiny")
FAMILIES = ("gpt124m", "llama350m", "encoder110m", "resnet50", "gpt1.7b", "gpt350m")


def train(step, batch, steps):
    optimizer = step.make_optimizer(step.model.parameters())
    losses = []
    for _ in range(steps):
        loss = checked_loss(step, step.model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(precision="mixed"), Settings(precision="bf16"), Settings(activation_checkpointing=True)],
    ids=["plain", "mixed", "bf16", "checkpointed"],
)
def test_every_workload_learns_a_batch_by_heart(cpu, name, settings):
    step, workload = load_workload(name, cpu, settings)
    losses = train(step, step.make_batch(workload.batch_size), 4)
    assert losses[-1] < losses[0]
    assert all(first > second for first, second in pairwise(losses))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_built_model_has_the_parameters_that_its_shape_counts(name):
    step, _ = load_workload(name, torch.device("meta"))
    assert sum(one.numel() for one in step.model.parameters()) == presets()[name].shape.num_parameters


def test_weights_are_of_the_precision_asked_for(cpu):
    dtypes = {
        precision: {p.dtype for p in load_workload("gpt-tiny", cpu, Settings(precision=precision))[0].model.parameters()}
        for precision in ("mixed", "bf16", "fp32")
    }
    assert dtypes == {"mixed": {torch.float32}, "bf16": {torch.bfloat16}, "fp32": {torch.float32}}


def test_two_loads_give_the_same_weights_so_that_ranks_agree(cpu):
    first, second = (load_workload("llama-tiny", cpu)[0].model.state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_checkpointing_changes_no_gradient(cpu):
    gradients = []
    for checkpointing in (False, True):
        step, _ = load_workload("gpt-tiny", cpu, Settings(activation_checkpointing=checkpointing))
        torch.manual_seed(3)
        step.loss(step.model, step.make_batch(2)).backward()
        gradients.append([one.grad for one in step.model.parameters()])
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))


def test_the_batch_has_the_size_and_length_asked_for(cpu):
    step, workload = load_workload("gpt-tiny", cpu, Settings(batch_size=3, sequence_length=7, accumulation_steps=2))
    tokens, targets = step.make_batch(3)
    assert tokens.shape == targets.shape == (3, 7)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])  # the next word is what is asked for
    assert (workload.batch_size, workload.sequence_length, workload.accumulation_steps) == (3, 7, 2)


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        ("gpt-huge", Settings(), "neither a preset"),
        ("gpt-tiny", Settings(sequence_length=33), "beyond the 32 learned positions"),
        ("convnet-tiny", Settings(sequence_length=8), "no sequence length"),
        ("gpt-tiny", Settings(batch_size=0), "at least one sample"),
        ("gpt-tiny", Settings(accumulation_steps=0), "at least one forward"),
        ("some.module:step", Settings(precision="bf16"), "its own precision"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(cpu, source, settings, words):
    with pytest.raises(UsageError, match=words):
        load_workload(source, cpu, settings)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of the user's and makes it the only one of its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text):
        (tmp_path / "users_step.py").write_text(textwrap.dedent(text))
        sys.modules.pop("users_step", None)
        return "users_step"

    yield write
    sys.modules.pop("users_step", None)


OWN = """
    import torch
    from wiretax.train.workload import Step

    def step(device):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
        def loss(wrapped, batch):
            return wrapped(batch).square().mean()
        return Step(model, lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 4, device=device), loss)

    def fails(device):
        return [][1]

    def forgets(device):
        step(device)
"""


def test_a_users_own_step_is_found_in_the_current_folder(cpu, module):
    step, workload = load_workload(f"{module(OWN)}:step", cpu, Settings(batch_size=5))
    assert workload.name == "users_step:step"
    assert (workload.batch_size, workload.dtype, workload.optimizer) == (5, "float32", "own")
    losses = train(step, step.make_batch(5), 3)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("missing", UsageError, "no function 'missing'"),
        ("fails", BadInput, r"IndexError.*users_step.py, line"),
        ("forgets", BadInput, "returned NoneType, not a Step"),
    ],
)
def test_what_is_wrong_with_a_users_function_is_said(cpu, module, function, kind, words):
    with pytest.raises(kind, match=words):
        load_step(f"{module(OWN)}:{function}", cpu)


def test_a_missing_module_and_a_module_that_misses_another_are_told_apart(cpu, module):
    with pytest.raises(UsageError, match="no module 'nowhere_to_be_found'"):
        load_step("nowhere_to_be_found:step", cpu)
    with pytest.raises(BadInput, match="Install not_installed_either"):
        load_step(f"{module('import not_installed_either')}:step", cpu)
    with pytest.raises(BadInput, match="SyntaxError"):
        load_step(f"{module('def (')}:step", cpu)


def step_with(loss):
    model = nn.Linear(2, 3)
    return Step(model, lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 2), loss)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda m, b: m(b), r"6 elements \(2x3\)"),
        (lambda m, b: m(b).sum().item(), "not a tensor"),
        (lambda m, b: m(b).sum().detach(), "no gradient"),
        (lambda m, b: m(b.repeat(1, 5)), "loss function raised RuntimeError"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_named(loss, words):
    step = step_with(loss)
    with pytest.raises(BadInput, match=words):
        checked_loss(step, step.model, step.make_batch(2))


def test_running_out_of_memory_is_not_taken_for_a_mistake_of_the_users():
    def loss(_model, _batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    step = step_with(loss)
    with pytest.raises(torch.OutOfMemoryError):
        checked_loss(step, step.model, step.make_batch(2))


def test_blocks_are_the_repeated_compound_modules_in_their_order():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleList([Block(), Block()]), nn.Sequential(Block(), nn.ReLU()), nn.Linear(4, 4))
    assert find_blocks(model) == [model[1][0], model[1][1], model[2][0]]


def test_without_compounds_the_largest_repeated_operation_counts_and_without_repetition_nothing():
    chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    assert find_blocks(chain) == [chain[0], chain[2]]
    assert find_blocks(nn.Linear(2, 2)) is None


def test_compiling_takes_each_block_apart_from_the_others_and_outside_its_checkpoint(cpu, monkeypatch):
    seen = []

    def compile_nothing(function, **options):
        seen.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    step, workload = load_workload("gpt-tiny", cpu, Settings(compiled=True, activation_checkpointing=True))
    assert workload.compiled and workload.activation_checkpointing
    assert seen == [{"dynamic": False}] * 2
    losses = train(step, step.make_batch(2), 2)
    assert losses[1] < losses[0]


def test_a_model_without_blocks_cannot_be_checkpointed(cpu, module):
    text = OWN.replace("torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))", "torch.nn.Linear(4, 1)")
    with pytest.raises(UsageError, match="Name them in Step"):
        load_workload(f"{module(text)}:step", cpu, Settings(activation_checkpointing=True))

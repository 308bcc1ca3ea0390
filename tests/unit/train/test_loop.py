import pytest
import torch
from torch import nn

from wiretax.errors import CannotMeasure, UsageError
from wiretax.model.reading import not_finite, unexplained
from wiretax.train.loop import profile_step


def parts(depth=3):
    model = nn.Sequential(nn.Linear(16, 32), *(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(depth)), nn.Linear(32, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def loop(model, optimizer, profiler, micro_steps=1, most=100):
    made = 0
    while not profiler.done and made < most:
        for _ in range(micro_steps):
            model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        made += 1
    return made


def test_a_users_loop_gives_a_bare_profile():
    model, optimizer = parts()
    with profile_step(model, optimizer, batch_size=8, name="mine", steps=5, dtype="float32") as profiler:
        made = loop(model, optimizer, profiler)
    found = profiler.profile
    assert made == 3 + 5 + 5
    assert (found.workload.name, found.workload.batch_size, found.workload.optimizer) == ("mine", 8, "adamw")
    assert len(found.bare.step.samples_seconds) == 5
    assert len(found.gradient_ready) == 10
    assert [one.name for one in found.segments] == ["before", "block 0", "block 1", "block 2", "after"]
    assert sum(one.backward_seconds for one in found.segments) == pytest.approx(found.bare.backward.elapsed.seconds)
    assert list(unexplained(found)) == [] and list(not_finite(found)) == []
    assert found.free_steps == () and "only the bare step" in found.notes[0]


def test_micro_steps_are_counted_and_their_mean_is_kept():
    model, optimizer = parts()
    with profile_step(model, optimizer, batch_size=8, steps=4) as profiler:
        loop(model, optimizer, profiler, micro_steps=3)
    found = profiler.profile
    assert found.workload.accumulation_steps == 3
    assert len(found.segments) == 5
    phases = found.bare.forward.elapsed.seconds + found.bare.backward.elapsed.seconds + found.bare.optimizer.elapsed.seconds
    assert phases <= found.bare.step.seconds
    assert all(one.forward_seconds >= 0 and one.backward_seconds >= 0 for one in found.segments)


def test_evaluation_inside_the_loop_is_no_step():
    model, optimizer = parts()
    with profile_step(model, optimizer, batch_size=8, steps=3) as profiler:
        while not profiler.done:
            model.eval()
            with torch.no_grad():
                model(torch.randn(8, 16))
            model.train()
            loop(model, optimizer, profiler, most=1)
    assert len(profiler.profile.bare.step.samples_seconds) == 3


def test_a_loop_that_goes_on_after_enough_steps_is_not_disturbed():
    model, optimizer = parts()
    with profile_step(model, optimizer, batch_size=8, steps=3) as profiler:
        loop(model, optimizer, profiler)
        assert profiler.done
        before = len(profiler.profile.bare.step.samples_seconds) if profiler.profile else None
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
    assert before is None
    assert len(profiler.profile.bare.step.samples_seconds) == 3


def test_too_few_steps_are_refused_with_how_many_are_needed():
    model, optimizer = parts()
    with (
        pytest.raises(CannotMeasure, match=r"made 4 whole steps.*at least 6 steps"),
        profile_step(model, optimizer, batch_size=8) as profiler,
    ):
        loop(model, optimizer, profiler, most=4)


def test_the_loops_own_error_passes_and_torch_is_put_back():
    model, optimizer = parts()
    before = torch.autograd.backward
    with pytest.raises(ZeroDivisionError), profile_step(model, optimizer, batch_size=8) as profiler:
        loop(model, optimizer, profiler, most=2)
        1 / 0  # noqa: B018
    assert torch.autograd.backward is before
    assert not model._forward_pre_hooks


def test_parameters_without_a_gradient_are_seen():
    model, optimizer = parts()
    model.idle = nn.Linear(2, 2)
    model.forward = lambda x: nn.Sequential.forward(nn.Sequential(*list(model)[:-1]), x)
    with profile_step(model, optimizer, batch_size=8, steps=3) as profiler:
        loop(model, optimizer, profiler)
    idle = [one for one in profiler.profile.parameters if one.name.startswith("idle")]
    assert [one.gradient_bytes for one in idle] == [0, 0]


def test_a_model_that_is_wrapped_already_is_refused(cpu):
    import torch.distributed as dist

    model, optimizer = parts()
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        with pytest.raises(UsageError, match="Profile the plain model"), profile_step(wrapped, optimizer, batch_size=8):
            pass
    finally:
        dist.destroy_process_group()


def _small():
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_a_closure_whose_passes_lie_inside_the_update_is_refused_and_not_timed_wrongly():
    model, optimizer = _small()

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).mean()
        loss.backward()
        return loss

    with pytest.raises(CannotMeasure, match="given a closure"), profile_step(model, optimizer, batch_size=2):
        for _ in range(30):
            optimizer.step(closure)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": nn.ReLU()}, "ReLU is no model with parameters"),
        ({"model": lambda x: x}, "function is no model with parameters"),
        ({"optimizer": object()}, "object is no torch.optim.Optimizer"),
        ({"batch_size": 0}, "A batch of 0"),
        ({"steps": 0}, "0 steps are too few"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_loop(changed, words):
    model, optimizer = _small()
    given = {"model": model, "optimizer": optimizer, "batch_size": 2, **changed}
    with pytest.raises(UsageError, match=words), profile_step(**given):
        pass

import torch
from torch import nn

from wiretax.train.probes import Probes, listen, tensors_in
from wiretax.train.stopwatch import Stopwatch
from wiretax.train.strategy import Options, Place, wrap_step
from wiretax.train.workload import Settings, load_workload


def wrapped(cpu, name="gpt-tiny", **settings):
    step, workload = load_workload(name, cpu, Settings(**settings))
    return wrap_step("none", step, Options(), Place(device=cpu, world_size=1)), step.make_batch(workload.batch_size)


def test_the_phases_lie_inside_the_step_and_fill_most_of_it(cpu):
    step, batch = wrapped(cpu, "gpt-mini")
    watch = Stopwatch(cpu)
    records = [watch.run(step, batch) for _ in range(3)]
    for one in records:
        assert set(one.phases) == {"forward", "backward", "optimizer"}
        assert all(seconds > 0 for seconds in one.phases.values())
        assert 0.9 * one.step_seconds < sum(one.phases.values()) <= one.step_seconds


def test_micro_steps_add_up_and_only_the_last_one_is_to_synchronise(cpu):
    step, batch = wrapped(cpu)
    asked = []
    step.set_sync = asked.append
    record = Stopwatch(cpu).run(step, batch, accumulation_steps=3)
    assert asked == [False, False, True]
    assert record.phases["forward"] > record.first["forward"] > 0
    assert record.phases["optimizer"] == record.first["optimizer"]


def test_marks_stand_in_their_phase_in_the_order_made(cpu):
    step, batch = wrapped(cpu)
    parameters = list(step.model.parameters())
    watch = Stopwatch(cpu)
    with Probes(watch, step.blocks, parameters):
        record = watch.run(step, batch)
    assert [label for label, _ in record.marks["forward"]] == [("enter", 0), ("leave", 0), ("enter", 1), ("leave", 1)]
    back = [label for label, _ in record.marks["backward"] if label[0] == "back"]
    assert back == [("back", 1), ("back", 0), ("back", -1)]
    ready = [label[1] for label, _ in record.marks["backward"] if label[0] == "ready"]
    assert sorted(ready) == list(range(len(parameters)))
    assert set(ready[-2:]) == {0, 1}  # the embeddings are last
    times = [when for _, when in record.marks["backward"]]
    assert times == sorted(times) and times[-1] <= record.phases["backward"]


def test_probes_leave_nothing_behind(cpu):
    step, batch = wrapped(cpu)
    watch = Stopwatch(cpu)
    with Probes(watch, step.blocks, list(step.model.parameters())):
        pass
    record = watch.run(step, batch)
    assert not any(record.marks.values())


def test_a_block_that_checkpointing_runs_again_is_marked_once(cpu):
    step, batch = wrapped(cpu, activation_checkpointing=True)
    watch = Stopwatch(cpu)
    with Probes(watch, step.blocks):
        record = watch.run(step, batch)
    assert [label for label, _ in record.marks["forward"]] == [("enter", 0), ("leave", 0), ("enter", 1), ("leave", 1)]
    assert [label for label, _ in record.marks["backward"]] == [("back", 1), ("back", 0), ("back", -1)]


def test_collectives_are_heard_with_their_size_as_nccl_tests_counts_it(cpu):
    import torch.distributed as dist

    from wiretax.train.free import register_fake_backend

    class Talks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            whole = torch.empty(6, 4)
            gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # renamed in torch 2.13
            scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
            gather(whole, torch.ones(3, 4))
            scatter(torch.empty(3, 4), whole)
            dist.broadcast(torch.ones(5), src=0)
            y = self.layer(x)
            dist.all_reduce(y.detach().clone())
            return y

    register_fake_backend()
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())
    try:
        step, _ = wrapped(cpu)
        model = Talks()
        step.model, step.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.1)
        step.step.loss = lambda m, b: m(b).sum()
        watch = Stopwatch(cpu)
        with listen(watch, 2):
            record = watch.run(step, torch.ones(2, 4))
    finally:
        dist.destroy_process_group()
    heard = [(one.operation, one.num_bytes, one.phase) for one in record.calls]
    assert heard == [
        ("all_gather", 6 * 4 * 4, "forward"),
        ("reduce_scatter", 6 * 4 * 4, "forward"),
        ("broadcast", 5 * 4, "forward"),
        ("all_reduce", 2 * 4 * 4, "forward"),
    ]


def test_tensors_are_found_in_whatever_a_model_returns():
    one, two = torch.ones(1), torch.ones(2)
    assert list(tensors_in({"a": [one, None], "b": (3, {"c": two})})) == [one, two]
    assert list(tensors_in("text")) == []

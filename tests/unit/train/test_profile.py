import dataclasses

import msgspec
import pytest
import torch
from torch import nn

from wiretax.errors import BadInput, UsageError
from wiretax.model.profile import Profile
from wiretax.model.reading import not_finite, unexplained
from wiretax.train.profile import BARE, join, profile, profile_part, profile_stage
from wiretax.train.sampling import Effort
from wiretax.train.workload import Settings, Step, load_workload

BRIEF = Effort(seconds=0.05, warm_up=2, fewest=3)


@pytest.fixture(scope="module")
def whole():
    return profile("gpt-tiny", "cpu", strategies=("DDP", "full_shard", "tp"), effort=BRIEF)


def test_a_profile_is_complete_and_says_why_where_it_is_not(whole):
    assert list(unexplained(whole)) == []
    assert list(not_finite(whole)) == []
    assert [one.strategy for one in whole.free_steps] == ["ddp", "fsdp2", "tp"]
    assert whole.notes == ()
    assert set(whole.missing) == {"memory", "device_memory_bytes"}


def test_a_profile_survives_its_json(whole):
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Profile) == whole


def test_every_parameter_is_listed_once_with_its_segment(whole):
    assert sum(one.num_elements for one in whole.parameters) == 133760
    assert [one.name for one in whole.parameters[:2]] == ["words.weight", "positions.weight"]
    assert [one.segment for one in whole.parameters] == [0, 0, *[1] * 8, *[2] * 8, 3, 3, 3]
    assert all(one.gradient_bytes == one.num_bytes for one in whole.parameters)
    assert whole.parameters[2].shape == (64,)


def test_segments_cover_model_and_step(whole):
    assert [one.role for one in whole.segments] == ["before", "block", "block", "after"]
    assert sum(one.parameter_bytes for one in whole.segments) == 133760 * 4
    assert sum(one.forward_seconds for one in whole.segments) == pytest.approx(whole.bare.forward.elapsed.seconds)
    assert sum(one.backward_seconds for one in whole.segments) == pytest.approx(whole.bare.backward.elapsed.seconds)
    assert whole.segments[0].output_bytes == 4 * 32 * 64 * 4


def test_gradients_arrive_from_the_head_to_the_embedding_within_backward(whole):
    order = [one.parameter for one in whole.gradient_ready]
    assert sorted(order) == list(range(21))
    assert order[0] == 20 and set(order[-2:]) == {0, 1}
    assert 0 < whole.gradient_ready[0].seconds < whole.gradient_ready[-1].seconds <= whole.bare.backward.elapsed.seconds


def test_the_phases_lie_within_the_step(whole):
    for times in (whole.bare, *(one.times for one in whole.free_steps)):
        phases = times.forward.elapsed.seconds + times.backward.elapsed.seconds + times.optimizer.elapsed.seconds
        samples = times.step.samples_seconds  # a few: on a busy host their median is not the sum of the phases' medians
        assert 0.5 * min(samples) < phases < 1.2 * max(samples)
        assert len(times.step.samples_seconds) >= 3


def test_the_machine_is_described(whole):
    assert whole.environment["torch"] == torch.__version__
    assert whole.device == "cpu" and whole.device_name
    assert whole.matmul_flops_per_second > 1e8 and whole.memory_bytes_per_second > 1e7
    assert whole.input_pipeline.seconds > 0
    assert whole.optimizer_state_bytes >= 2 * 133760 * 4  # AdamW keeps two numbers a parameter
    assert whole.host_load is not None and whole.created_at


def test_a_strategy_that_cannot_be_had_becomes_a_note_and_the_rest_is_kept():
    found = profile("convnet-tiny", "cpu", strategies=("tp", "ddp"), effort=BRIEF)
    assert [one.strategy for one in found.free_steps] == ["ddp"]
    assert found.notes == (
        "tp was not profiled: The step says nothing of how its layers may be split. Give a tensor_parallel_plan in the Step.",
    )
    assert found.buffer_bytes > 0
    assert found.workload.flops_per_sample > 0  # counted, since no formula is known


def test_a_tied_parameter_is_listed_once_and_belongs_to_the_first_part():
    found = profile_part(BARE, "encoder-tiny", torch.device("cpu"), effort=BRIEF).bare
    names = [one.name for one in found.parameters]
    assert "words.weight" in names and "head.weight" not in names
    words = names.index("words.weight")
    assert found.parameters[words].segment == 0
    ready = {one.parameter: one.seconds for one in found.gradient_ready}
    assert ready[words] > ready[names.index("transform.weight")]  # its second part comes with the embedding


def own_step(_device):
    """A step of a user's: no blocks, a part that never trains."""
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    step = Step(
        model,
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda size: torch.ones(size, 4),
        lambda wrapped, batch: (wrapped.module if hasattr(wrapped, "module") else wrapped)["used"](batch).square().mean(),
    )
    _, workload = load_workload("gpt-tiny", torch.device("cpu"))
    return step, dataclasses.replace(workload, name="own", num_heads=None)


def test_a_step_without_blocks_has_no_segments_and_says_so():
    found = profile_part(BARE, own_step, torch.device("cpu"), effort=BRIEF).bare
    assert found.segments == ()
    assert "no repeated blocks" in found.missing["segments"]
    assert [one.gradient_bytes for one in found.parameters] == [64, 16, 0, 0]
    assert {one.parameter for one in found.gradient_ready} == {0, 1}
    assert list(unexplained(found)) == []


def test_blocks_that_run_twice_leave_the_step_whole():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))])

        def forward(self, x):
            for _ in range(2):
                for block in self.blocks:
                    x = block(x)
            return x

    def build(_device):
        model = Twice()
        step = Step(
            model, lambda p: torch.optim.SGD(p, lr=0.1), lambda n: torch.ones(n, 4), lambda m, b: m(b).square().mean(), list(model.blocks)
        )
        return step, load_workload("gpt-tiny", torch.device("cpu"))[1]

    found = profile_part(BARE, build, torch.device("cpu"), effort=BRIEF).bare
    assert found.segments == () and "once each" in found.missing["segments"]
    assert len(found.gradient_ready) == 4


def test_parts_taken_apart_are_joined_as_if_taken_together():
    device = torch.device("cpu")
    parts = [profile_part(one, "gpt-tiny", device, settings=Settings(batch_size=2), effort=BRIEF) for one in (BARE, "ddp")]
    whole = join(parts[0].bare, parts[1:], {"tp": "no time"})
    assert [one.strategy for one in whole.free_steps] == ["ddp"]
    assert whole.notes == ("tp was not profiled: no time",)
    assert whole.workload.batch_size == 2


def test_a_wrong_strategy_is_refused_before_anything_is_measured():
    with pytest.raises(UsageError, match="no strategy 'warp'"):
        profile("gpt-tiny", "cpu", strategies=("warp",), effort=BRIEF)


def test_a_step_that_raises_stops_the_profile_with_its_own_words():
    def build(_device):
        def loss(_model, _batch):
            raise KeyError("labels")

        step, workload = load_workload("gpt-tiny", torch.device("cpu"))
        step.loss = loss
        return step, workload

    with pytest.raises(BadInput, match="KeyError: 'labels'"):
        profile(build, "cpu", effort=BRIEF)


class FakeRank:
    """A rank that keeps what it is told."""

    rank, gpu, device, world_size, is_cuda = 0, None, torch.device("cpu"), 1, False

    def __init__(self):
        self.records, self.incidents, self.facts, self.ticks, self.results = [], [], {}, 0, self

    def at(self, *_arguments, **_keywords):
        pass

    def tick(self):
        self.ticks += 1

    def write(self, name, value):
        self.records.append((name, msgspec.json.decode(msgspec.json.encode(value))))

    def emit(self, result):
        self.incidents.append(result)

    def emit_fact(self, name, value):
        self.facts[name] = value

    def exchange(self, _topic, value):
        return [value]


def test_a_stage_keeps_its_part_and_shows_that_it_is_alive():
    rank = FakeRank()
    profile_stage(rank, part="bare", source="gpt-tiny", settings={"batch_size": 1}, seconds=0.05)
    profile_stage(rank, part="fsdp2", source="gpt-tiny", options={"forward_prefetch": 1}, seconds=0.05)
    assert [name for name, _ in rank.records] == ["Profile", "FreeStep"]
    assert rank.records[0][1]["workload"]["batch_size"] == 1
    assert rank.records[1][1]["options"]["forward_prefetch"] == "1"
    assert rank.ticks > 20


def test_a_strategy_that_a_workload_cannot_have_is_left_out_with_the_reason():
    rank = FakeRank()
    profile_stage(rank, part="tp", source="convnet-tiny", seconds=0.05)
    (incident,) = rank.incidents
    assert (incident.kind, incident.stage) == ("skipped", "profile:tp")
    assert "tensor_parallel_plan" in incident.detail


def test_a_bare_step_that_cannot_be_had_is_an_error_and_says_of_which_kind():
    rank = FakeRank()
    profile_stage(rank, part="bare", source="no-such-preset", seconds=0.05)
    (incident,) = rank.incidents
    assert (incident.kind, incident.stage) == ("error", "profile:bare")
    part, kind, what, _, do = rank.facts["refused"]
    assert (part, kind) == ("bare", "UsageError")
    assert "no-such-preset" in what and "gpt124m" in do

"""Which steps are timed on which clock; the GPU is played by a device whose events tell the host's time."""

import time
from types import SimpleNamespace

import pytest
import torch

from wiretax.train import stopwatch
from wiretax.train.records import step_times
from wiretax.train.sampling import Effort, Sampler
from wiretax.train.strategy import Options, Place, wrap_step
from wiretax.train.workload import load_workload

GPU = SimpleNamespace(type="cuda", index=0)


class Event:
    made = 0

    def __init__(self, enable_timing):
        assert enable_timing
        Event.made += 1

    def record(self, stream=None):
        self.when = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.when - self.when) * 1e3


@pytest.fixture
def gpu(monkeypatch):
    """Torch's calls, with what was asked of them."""
    asked = {"waits": 0, "held": []}
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: "stream")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: asked.__setitem__("waits", asked["waits"] + 1))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: asked["held"].append(cycles))
    monkeypatch.setattr(stopwatch, "_cycles_per_second", lambda _device: 1e9)
    return asked


def wrapped(cpu):
    step, workload = load_workload("gpt-tiny", cpu)
    return wrap_step("none", step, Options(), Place(device=cpu, world_size=1)), step.make_batch(workload.batch_size)


def test_an_ordinary_step_waits_only_before_and_after(cpu, gpu):
    step, batch = wrapped(cpu)
    record = stopwatch.Stopwatch(GPU).run(step, batch)
    assert gpu["waits"] == 2 and gpu["held"] == []
    assert sum(record.phases.values()) <= record.step_seconds


def test_on_the_hosts_clock_each_phase_finds_an_idle_device(cpu, gpu):
    step, batch = wrapped(cpu)
    made = Event.made
    stopwatch.Stopwatch(GPU, "host").run(step, batch)
    assert gpu["waits"] == 2 + 3 and gpu["held"] == []
    assert Event.made == made


def test_on_the_devices_clock_each_phase_is_queued_behind_a_wait_longer_than_the_host_needs(cpu, gpu):
    step, batch = wrapped(cpu)
    hold = {"forward": 0.010, "backward": 0.020, "optimizer": 9.0}
    stopwatch.Stopwatch(GPU, "device", hold).run(step, batch)
    assert gpu["held"] == [19_000_000, 34_000_000, 1_500_000_000]  # half as much again and 4 ms, never more than 1.5 s


def test_all_clocks_are_sampled_and_the_waits_follow_the_measured_host(cpu, gpu):
    step, batch = wrapped(cpu)
    effort = Effort(seconds=0.01, warm_up=2, fewest=3)
    samples = Sampler(step, batch, GPU, effort).sample(list(step.model.parameters()))
    assert [len(one) for one in (samples.elapsed, samples.host, samples.device, samples.host_detail, samples.device_detail)] == [
        3,
        4,
        4,
        3,
        3,
    ]
    assert not any(one.marks["backward"] for one in (*samples.elapsed, *samples.host, *samples.device))
    assert len([label for label, _ in samples.device_detail[0].marks["backward"] if label[0] == "ready"]) == 21
    assert len(gpu["held"]) == 3 * (4 + 3)
    assert min(gpu["held"]) > 4_000_000  # the host was measured before
    times = step_times(samples)
    assert times.forward.host is not None and times.forward.device is not None


def test_a_step_that_waits_for_the_device_is_timed_on_one_clock_only(cpu, gpu):
    step, batch = wrapped(cpu)
    samples = Sampler(step, batch, GPU, Effort(seconds=0.01, warm_up=2, fewest=3)).sample((), why_one_clock="it waits")
    assert samples.host == () and samples.device == () and gpu["held"] == []
    assert step_times(samples).backward.missing == {"device": "it waits", "host": "it waits"}
    assert samples.device_detail[0].marks["forward"]


def test_bare_details_are_held_by_what_their_own_host_needed(cpu, gpu):
    step, batch = wrapped(cpu)
    device, host = Sampler(step, batch, GPU, Effort(seconds=0.0)).details(list(step.model.parameters()))
    assert (len(device), len(host)) == (3, 3)
    assert len(gpu["held"]) == 9 and min(gpu["held"]) > 4_000_000


@pytest.mark.parametrize(("step_seconds", "steps"), [(0.001, 20), (0.2, 7), (10.0, 5)])
def test_the_number_of_steps_follows_their_length_within_its_bounds(step_seconds, steps):
    assert Effort(seconds=3.0).steps(0.5, step_seconds, fewest=5, most=20) == steps

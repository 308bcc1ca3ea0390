import itertools
from dataclasses import replace

import pytest
import torch

from wiretax.measure import timing
from wiretax.measure.rank import Heartbeat, Rank, ResultFile
from wiretax.measure.timing import (
    FEWEST_SAMPLES,
    FIRST_SAMPLES,
    MOST_SAMPLES,
    PAUSE_SECONDS,
    UNTIMED_OPERATIONS,
    CpuTimer,
    CudaTimer,
    Sampler,
    interval_ranks,
    is_tight,
    measure,
    summarise,
)
from wiretax.probe.cgroup import CgroupLimits


class FakeTimer:
    """Takes samples from a list, and counts the calls it would have made."""

    shortest_sample_seconds = 1e-3

    def __init__(self, seconds):
        self.seconds = itertools.cycle(seconds)
        self.bursts = []

    def burst(self, call, *, lead, samples, calls):
        self.bursts.append((lead, samples, calls))
        return [next(self.seconds) for _ in range(samples)]

    def wait(self):
        pass


def make_rank(tmp_path, clock=None):
    return Rank(
        rank=0,
        world_size=1,
        local_rank=0,
        device=torch.device("cpu"),
        gpus=(),
        store=None,
        deadline=1e9,
        results=ResultFile(tmp_path / "results"),
        heartbeat=Heartbeat(tmp_path / "beat"),
        **({"clock": clock} if clock else {}),
    )


@pytest.mark.parametrize("count", [1, 5])
def test_below_six_samples_no_interval_holds_the_median_with_95_percent(count):
    assert interval_ranks(count) is None


@pytest.mark.parametrize("count", [6, 7, 9, 20, 50, 96])
def test_the_interval_holds_the_median_with_95_percent_and_a_narrower_one_would_not(count):
    from scipy.stats import binom

    low, high = interval_ranks(count)
    assert high == count - 1 - low
    assert 1 - 2 * binom.cdf(low, count, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(low + 1, count, 0.5) < 0.95


def test_equal_samples_are_tight_and_spread_ones_are_not():
    assert is_tight([1.0] * 6)
    assert not is_tight([1.0] * 5)
    assert is_tight([0.99, 1.0, 1.0, 1.0, 1.0, 1.02])
    assert not is_tight([0.9, 1.0, 1.0, 1.0, 1.0, 1.1])


def test_a_few_stray_samples_do_not_make_many_good_ones_loose():
    assert is_tight([1.0] * 30 + [5.0] * 6)


def test_a_summary_has_the_median_the_95th_percentile_and_raw_samples():
    summary = summarise([float(value) for value in range(1, 102)], operations_per_sample=3, stopped="tight")
    assert (summary.seconds, summary.p95_seconds) == (51.0, 96.0)
    assert len(summary.samples_seconds) == 101
    assert summary.operations_per_sample == 3


def test_unstable_means_a_middle_half_wider_than_ten_percent_of_the_median():
    assert not summarise([1.0, 1.0, 1.05, 1.05, 9.0], operations_per_sample=1, stopped="budget").unstable
    assert summarise([1.0, 1.0, 1.1, 1.2, 1.3], operations_per_sample=1, stopped="budget").unstable


def test_nothing_sampled_is_our_own_mistake():
    with pytest.raises(ValueError, match="nothing was sampled"):
        summarise([], operations_per_sample=1, stopped="budget")


def test_sampling_stops_after_the_first_burst_when_that_is_tight():
    timer = FakeTimer([0.01])
    sampler = Sampler(timer, lambda: None)
    sampler.warm_up()
    summary = sampler.sample(10.0)
    assert summary.stopped == "tight"
    assert len(summary.samples_seconds) == FIRST_SAMPLES
    (lead, samples, calls), _ = timer.bursts
    assert lead + samples * calls >= UNTIMED_OPERATIONS


def test_a_sample_of_a_short_operation_holds_enough_of_them_to_be_long_against_the_clock():
    timer = FakeTimer([10e-6])
    sampler = Sampler(timer, lambda: None)
    sampler.warm_up()
    assert sampler.sample(10.0).operations_per_sample == 100


def test_a_graph_of_several_operations_counts_each_of_them():
    timer = FakeTimer([20 * 10e-6])
    sampler = Sampler(timer, lambda: None, operations_per_call=20)
    assert sampler.warm_up() == pytest.approx(10e-6)
    summary = sampler.sample(10.0)
    assert summary.seconds == pytest.approx(10e-6)
    assert summary.operations_per_sample == 100


def test_noise_is_sampled_until_the_most_and_called_budget():
    sampler = Sampler(FakeTimer([0.001, 0.002]), lambda: None, clock=lambda: 0.0)
    sampler.warm_up()
    summary = sampler.sample(1e6)
    assert len(summary.samples_seconds) == MOST_SAMPLES
    assert summary.stopped == "budget"
    assert summary.unstable


def test_a_slow_operation_gets_the_fewest_samples_even_when_no_time_is_left():
    sampler = Sampler(FakeTimer([5.0, 9.0]), lambda: None)
    sampler.warm_up()
    summary = sampler.sample(0.0)
    assert len(summary.samples_seconds) == FEWEST_SAMPLES
    assert summary.stopped == "budget"


def test_samples_are_added_to_earlier_ones_of_the_same_length():
    sampler = Sampler(FakeTimer([0.01, 0.02]), lambda: None, clock=lambda: 0.0)
    sampler.warm_up()
    earlier = sampler.sample(1.0, most=6)
    timer = FakeTimer([0.01])
    again = Sampler(timer, lambda: None, earlier=earlier, clock=lambda: 0.0)
    again.warm_up()
    later = again.sample(1.0, most=12)
    assert later.samples_seconds[:6] == earlier.samples_seconds
    assert len(later.samples_seconds) == 12
    assert later.operations_per_sample == earlier.operations_per_sample


def test_ranks_that_join_their_samples_make_the_same_calls_whatever_each_saw_itself():
    """Rank 0 is steady and quick, rank 1 noisy and slow; both must follow the slowest."""
    own = ([0.001], [0.002, 0.003, 0.004])
    timers = [FakeTimer(seconds) for seconds in own]
    for timer in timers:
        others = [FakeTimer(seconds) for seconds in own]

        def join(samples, spent, others=others):
            everybody = [other.burst(None, lead=0, samples=len(samples), calls=1) for other in others]
            return [max(column) for column in zip(*everybody, strict=True)], 0.0

        sampler = Sampler(timer, lambda: None, join=join, clock=lambda: 0.0)
        sampler.warm_up()
        sampler.sample(1e6)
    assert timers[0].bursts == timers[1].bursts


def test_a_load_that_must_last_does_not_stop_when_it_is_tight():
    now = [0.0]

    class Timed(FakeTimer):
        def burst(self, call, *, lead, samples, calls):
            now[0] += 0.001 * (lead + samples * calls)
            return super().burst(call, lead=lead, samples=samples, calls=calls)

    sampler = Sampler(Timed([0.001]), lambda: None, fill_seconds=1.0, clock=lambda: now[0])
    sampler.warm_up()
    sampler.sample(1.0)
    assert 0.8 <= now[0] <= 1.1


def test_the_cpu_timer_divides_by_the_calls_and_leaves_the_lead_out(tmp_path):
    now = [0.0]
    rank = make_rank(tmp_path)

    def call():
        now[0] += 2.0

    timer = CpuTimer(rank, clock=lambda: now[0])
    assert timer.burst(call, lead=3, samples=2, calls=4) == [2.0, 2.0]
    assert now[0] == 2.0 * (3 + 8)


def test_each_sample_moves_the_heartbeat(tmp_path):
    rank = make_rank(tmp_path)
    before = Heartbeat.read(tmp_path / "beat")
    rank.at("something")
    CpuTimer(rank).burst(lambda: None, lead=0, samples=5, calls=1)
    after = Heartbeat.read(tmp_path / "beat")
    assert before is None or before.count == 0
    assert after.count == 6


def test_measure_warms_up_and_samples(tmp_path):
    calls = []
    summary = measure(make_rank(tmp_path), lambda: calls.append(sum(range(20000))), seconds=0.2)
    assert len(calls) >= UNTIMED_OPERATIONS + len(summary.samples_seconds) * summary.operations_per_sample
    assert summary.seconds > 0


class SlowEvent:
    """A CUDA event that is reached at the third question."""

    def __init__(self):
        self.questions = 0

    def record(self):
        pass

    def query(self):
        self.questions += 1
        return self.questions > 2


@pytest.mark.parametrize(("cpus", "ranks", "pause"), [(2.0, 1, 0.0), (16.0, 8, 0.0), (4.0, 4, PAUSE_SECONDS), (1.5, 1, PAUSE_SECONDS)])
def test_ranks_that_wait_for_their_gpu_leave_the_few_processors_to_the_communicator(tmp_path, monkeypatch, cpus, ranks, pause):
    slept = []
    monkeypatch.setattr(timing, "processors", lambda: cpus)
    monkeypatch.setattr(torch.cuda, "Event", SlowEvent)
    monkeypatch.setattr(timing.time, "sleep", slept.append)
    rank = replace(make_rank(tmp_path), world_size=ranks)
    CudaTimer(rank).wait()
    assert slept == [pause, pause]


def test_the_processors_of_this_process_are_counted_by_affinity_and_quota(monkeypatch):
    monkeypatch.setattr(timing.os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    for quota, expected in ((None, 4.0), (1.5, 1.5), (64.0, 4.0)):
        monkeypatch.setattr(timing, "cgroup_limits", lambda quota=quota: CgroupLimits(cpus=quota, memory_bytes=None, memory_reason=""))
        assert timing.processors.__wrapped__() == expected

"""Profiles and clocks on a real GPU; skipped where there is none."""

import pytest

from wiretax.model.reading import not_finite, unexplained

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu(1),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(scope="module")
def whole():
    from wiretax.train.profile import profile
    from wiretax.train.sampling import Effort
    from wiretax.train.workload import Settings

    return profile(
        "gpt124m",
        "cuda:0",
        settings=Settings(batch_size=8),
        strategies=("ddp", "fsdp2", "fsdp2_grad_op", "zero1", "tp"),
        effort=Effort(seconds=1.0),
    )


def test_a_gpu_profile_is_complete(whole):
    assert list(unexplained(whole)) == [] and list(not_finite(whole)) == []
    assert whole.notes == ()
    assert [one.strategy for one in whole.free_steps] == ["ddp", "fsdp2", "fsdp2_grad_op", "zero1", "tp"]


def test_device_time_has_no_gaps_and_host_time_does_not_wait_for_the_device(whole):
    for phase in (whole.bare.forward, whole.bare.backward):
        assert phase.device.seconds < 1.05 * phase.elapsed.seconds
        # what else the host does only makes a step longer, so the shortest is the one that can be compared
        assert min(phase.elapsed.samples_seconds) < 1.15 * max(phase.device.seconds, phase.host.seconds) + 1e-3


def test_two_batches_tell_fixed_memory_from_growing_memory(whole):
    bare = {one.batch_size: one.peak_bytes for one in whole.memory if one.strategy == "none"}
    assert set(bare) == {4, 8}
    gradients_and_states = 163026432 * 4 * 4
    growth = (bare[8] - bare[4]) / 4
    assert bare[8] - 8 * growth == pytest.approx(gradients_and_states, rel=0.3)


def test_fsdp2_needs_less_memory_at_rest_and_more_host_time(whole):
    rest = {one.strategy: one.at_rest_bytes for one in whole.memory if one.batch_size == 8}
    assert rest["fsdp2"] < 0.6 * rest["none"]
    fsdp = next(one for one in whole.free_steps if one.strategy == "fsdp2")
    assert fsdp.times.forward.host.seconds > whole.bare.forward.host.seconds


def test_ddp_at_one_rank_costs_little_and_has_torchs_buckets(whole):
    ddp = next(one for one in whole.free_steps if one.strategy == "ddp")
    assert ddp.times.step.seconds < 1.2 * whole.bare.step.seconds
    assert sum(one.num_bytes for one in ddp.buckets) == 163026432 * 4
    assert len(ddp.buckets) > 10

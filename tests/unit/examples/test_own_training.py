"""The documented example: a user's own script, profiled both ways and predicted, without any GPU."""

import msgspec
import pytest

from loading import load
from wiretax.model.profile import Profile
from wiretax.predict.forecast import predict
from wiretax.predict.wire_curve import Wire
from wiretax.train.profile import profile
from wiretax.train.sampling import Effort
from wiretax.train.workload import Settings

torch = pytest.importorskip("torch")


@pytest.fixture
def example():
    torch.set_num_threads(1)
    return load("examples/own_training.py")


def test_the_example_trains(example):
    losses = example.train(torch.device("cpu"), batch_size=32, steps=12)
    assert losses[-1] < losses[0]


def test_its_step_is_profiled_and_predicted_on_more_gpus(example):
    found = profile(
        "own_training:step",
        "cpu",
        settings=Settings(batch_size=32),
        strategies=("ddp", "fsdp2"),
        effort=Effort(seconds=0.1, warm_up=2, fewest=3),
    )
    assert found.notes == ()
    assert len(found.segments) == example.DEPTH + 2
    one = predict(found, Wire.of_busbw(22e9), "ddp", 1).forecast
    fast, slow = (predict(found, Wire.of_busbw(busbw), "ddp", 4).forecast for busbw in (22e9, 2e7))
    assert fast.efficiency_fraction > slow.efficiency_fraction
    assert slow.step_seconds.low <= slow.step_seconds.expected <= slow.step_seconds.high
    # 12.7 MB of gradients at 20 MB/s: the wire alone takes 2 (N - 1) / N of that
    gradient_bytes = sum(parameter.gradient_bytes for parameter in found.parameters)
    assert slow.step_seconds.expected > 1.5 * gradient_bytes / 2e7
    assert one.step_seconds.expected == pytest.approx(found.bare.step.seconds, rel=0.2)
    assert predict(found, Wire.of_busbw(22e9), "fsdp2", 2).forecast.step_seconds is not None


def test_its_own_loop_gives_a_bare_profile_that_predicts_too(example, tmp_path):
    losses = example.train(torch.device("cpu"), batch_size=32, steps=5, profile=tmp_path / "profile.json")
    found = msgspec.json.decode((tmp_path / "profile.json").read_bytes(), type=Profile)
    assert len(losses) > 5
    assert (found.workload.name, found.free_steps) == ("own_training", ())
    forecast = predict(found, Wire.of_busbw(1e9), "ddp", 2).forecast
    assert forecast.step_seconds.expected > found.bare.step.seconds
    assert any("not profiled" in text for text in forecast.assumptions)

from dataclasses import replace

import msgspec

from profiles import ddp_free, fsdp_free, profile, tp_free
from recorded_h200x2 import profile as recorded_profile
from wiretax.model.profile import Profile
from wiretax.model.reading import not_finite, unexplained
from wiretax.model.training import Training


def whole() -> Profile:
    base = profile()
    return profile(free_steps=[ddp_free(), fsdp_free(base), tp_free(base)])


def test_a_profile_survives_being_written_and_read():
    training = Training(profiles=(whole(), recorded_profile("gpt1.7b", 4, 1)))

    assert msgspec.json.decode(msgspec.json.encode(training), type=Training) == training


def test_a_recorded_profile_says_why_what_is_missing_is_missing():
    assert list(unexplained(recorded_profile("gpt124m", 8, 1))) == []
    assert list(not_finite(recorded_profile("gpt124m", 8, 1))) == []


def test_a_missing_value_without_a_reason_is_found():
    assert "$.input_pipeline" in list(unexplained(replace(whole(), missing={})))


def test_segments_cover_the_passes():
    own = recorded_profile("gpt1.7b", 4, 1)

    assert abs(sum(one.forward_seconds for one in own.segments) - own.bare.forward.elapsed.seconds) < 1e-9
    assert abs(sum(one.backward_seconds for one in own.segments) - own.bare.backward.elapsed.seconds) < 1e-9
    assert [one.role for one in own.segments].count("before") == [one.role for one in own.segments].count("after") == 1

import pytest

from profiles import MIB, profile, wire
from wiretax.predict.contention import NO_CONTENTION
from wiretax.predict.ddp import simulate_ddp
from wiretax.predict.interval import centre
from wiretax.predict.options import DEFAULTS
from wiretax.predict.profile_model import work_of
from wiretax.predict.zero import simulate_zero

WHOLE = (64 + 4 * 32) * MIB


def zero(stage, busbw):
    outcome, notes = simulate_zero(work_of(profile()), wire(busbw, 0.0), 2, DEFAULTS, centre(), NO_CONTENTION, stage=stage)
    return float(outcome.finish[0]), notes


def ddp(busbw):
    return float(simulate_ddp(work_of(profile()), wire(busbw, 0.0), 2, DEFAULTS, centre(), NO_CONTENTION)[0].finish[0])


def test_stage_1_reduces_like_ddp_updates_a_share_and_gathers_the_parameters():
    seconds, _ = zero(1, 1e9)

    assert seconds == pytest.approx(ddp(1e9) - 0.001 + 0.5 * WHOLE / 1e9)


def test_stage_2_moves_half_as_much_before_the_update():
    first, _ = zero(1, 1e9)
    second, notes = zero(2, 1e9)

    assert first - second == pytest.approx(0.5 * WHOLE / 1e9, rel=1e-6)
    assert any("stage 2" in note for note in notes)

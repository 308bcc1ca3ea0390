from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import MIB, profile, wire
from wiretax.predict.interval import centre
from wiretax.predict.options import Options
from wiretax.predict.pipeline import balanced, bubble_fraction, pipeline_step
from wiretax.predict.profile_model import work_of


def test_the_bubble_is_the_published_formula():
    assert bubble_fraction(4, 8) == pytest.approx(3 / 11)
    assert bubble_fraction(1, 8) == 0.0


def test_a_step_is_its_turns_times_the_slowest_stage_and_its_boundaries():
    own = profile()

    seconds, notes = pipeline_step(work_of(own), wire(1e9, 0.0), 2, Options(pipeline_micro_batches=4), centre())

    # Six equal segments over two stages: three each of 5 ms; 5 turns; an activation of 2 MiB there and back.
    assert float(seconds[0]) == pytest.approx(5 * (0.015 + 2 * 2 * MIB / 1e9) + 0.001)
    assert "bubble of 20 %" in notes[0]


def test_more_micro_batches_waste_less():
    own = profile()

    few, _ = pipeline_step(work_of(own), wire(1e12), 4, Options(pipeline_micro_batches=4), centre())
    many, _ = pipeline_step(work_of(own), wire(1e12), 4, Options(pipeline_micro_batches=16), centre())

    assert float(many[0]) / 16 < float(few[0]) / 4


def test_more_stages_than_parts_are_cut_evenly_and_said_so():
    _, notes = pipeline_step(work_of(profile(num_blocks=1)), wire(1e12), 8, Options(), centre())

    assert any("even cut" in note for note in notes)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=8), st.integers(1, 4))
def test_the_cut_is_the_best_there_is(times, stages):
    stages = min(stages, len(times))

    def load(cuts):
        bounds = [0, *cuts, len(times)]
        return max(sum(times[start:end]) for start, end in pairwise(bounds))

    best = min(load(cuts) for cuts in combinations(range(1, len(times)), stages - 1))

    assert balanced(times, stages) == pytest.approx(best)

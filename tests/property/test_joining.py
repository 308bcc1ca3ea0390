"""Whatever was pasted, joining keeps every piece, explains every gap and does not depend on luck."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.mutations import mutate, seeds
from wiretax.model.reading import not_finite, unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.join import join

CORPUS = seeds()
SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(seed=st.integers(0, 2**32), chosen=st.lists(st.sampled_from(CORPUS), min_size=1, max_size=5))
@SOME
def test_no_piece_is_lost_and_no_gap_is_silent(seed: int, chosen: list[bytes]) -> None:
    rng = random.Random(seed)
    pieces = [
        piece
        for number, base in enumerate(chosen)
        for piece in read_bytes(f"{number}.txt", mutate(rng, CORPUS, base) if rng.random() < 0.7 else base)[0]
    ]
    groups = join(pieces)
    assert {id(piece) for group in groups for piece in group.pieces} == {id(piece) for piece in pieces}
    for place, group in enumerate(groups):
        assert list(unexplained(group.machine)) == []
        assert list(not_finite(group.measurements)) == []
        assert all(groups[apart.group] is not group and apart.because for apart in group.apart)
        assert all(any(back.group == place for back in groups[apart.group].apart) for apart in group.apart)


@given(chosen=st.lists(st.sampled_from(CORPUS), min_size=2, max_size=4, unique=True), order=st.randoms())
@SOME
def test_the_order_of_the_files_changes_no_number_of_machines(chosen: list[bytes], order: random.Random) -> None:
    pieces = [read_bytes(f"{number}.txt", base)[0] for number, base in enumerate(chosen)]
    shuffled = list(pieces)
    order.shuffle(shuffled)
    counts = [sum(group.machine is not None for group in join([piece for part in parts for piece in part])) for parts in (pieces, shuffled)]
    assert counts[0] == counts[1]

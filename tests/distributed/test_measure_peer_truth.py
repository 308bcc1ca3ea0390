"""Peer truth between two real processes; host memory that both have mapped stands in for a GPU's."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from measure_ranks import run_ranks
from wiretax.measure import peer_truth as module
from wiretax.measure.peer_truth import BEGUN, SIZES, peer_truth, rounds_of
from wiretax.measure.rank import Heartbeat, Rank
from wiretax.model.measurement import Incident, PeerTruth


def share_memory(folder, of=0):
    """Replaces GPU memory of rank ``of`` and its handles by files that processes map."""
    counter = iter(range(1000))

    def allocate(device, elements):
        return torch.from_file(str(folder / f"memory{of}.{next(counter)}"), shared=True, size=elements)

    def hand_out(memory):
        return [max(folder.glob(f"memory{of}.*"), key=lambda path: int(path.suffix[1:])).name]

    def open_it(handle, offset, elements, *, here):
        return torch.from_file(str(folder / handle[0]), shared=True, size=elements)

    module._allocate, module._hand_out, module._open = allocate, hand_out, open_it


def honest(rank, shared):
    share_memory(shared)
    peer_truth(rank)


def test_memory_that_both_see_alike_is_ok_at_every_size(tmp_path):
    left = run_ranks(tmp_path, 2, honest, gpus=(3, 5), shared=tmp_path)
    assert left.exit_codes == [0, 0], left.errors
    begun, decided = left.of(PeerTruth)
    assert (begun.outcome, begun.detail) == ("hang", BEGUN)
    assert (decided.source_gpu, decided.target_gpu, decided.outcome) == (3, 5, "ok")
    assert decided.num_bytes == SIZES
    assert "no wire was crossed" in decided.detail


def vanishing(rank, shared):
    """Writes of the peer stay in a copy of its own, as those that a translating IOMMU loses."""
    share_memory(shared)
    real = module._open
    module._open = lambda *handle, **here: real(*handle, **here).clone()
    peer_truth(rank)


def test_writes_that_vanish_are_seen_by_the_owner_alone(tmp_path):
    left = run_ranks(tmp_path, 2, vanishing, gpus=(0, 1), shared=tmp_path)
    decided = left.of(PeerTruth)[-1]
    assert decided.outcome == "wrong_data"
    assert decided.num_bytes == (8,)
    assert "source did not see what was copied" in decided.detail
    assert "target" not in decided.detail


def garbled(rank, shared):
    """What the peer reads is not what is there, from 4 MiB on."""
    share_memory(shared)
    real = module._Trial._reads

    def reads(trial, peer, what, num_bytes):
        return real(trial, peer + 1 if num_bytes >= 4 << 20 else peer, what, num_bytes)

    module._Trial._reads = reads
    peer_truth(rank)


def test_the_size_that_failed_is_the_last_one_named(tmp_path):
    left = run_ranks(tmp_path, 2, garbled, gpus=(0, 1), shared=tmp_path)
    decided = left.of(PeerTruth)[-1]
    assert decided.outcome == "wrong_data"
    assert decided.num_bytes == (8, 4096, 4 << 20)
    assert "target did not read what the source had written at 4194304 bytes" in decided.detail


def refusing(rank, shared):
    share_memory(shared)

    def refuse(*_, **__):
        raise RuntimeError("invalid resource handle\nlong trace")

    module._open = refuse
    peer_truth(rank)


def test_a_handle_that_cannot_be_used_is_an_error_not_wrong_data(tmp_path):
    left = run_ranks(tmp_path, 2, refusing, gpus=(0, 1), shared=tmp_path)
    decided = left.of(PeerTruth)[-1]
    assert decided.outcome == "error"
    assert "invalid resource handle" in decided.detail
    assert "long trace" not in decided.detail


def hanging(rank, shared):
    share_memory(shared)
    if rank.rank == 1:
        import threading

        module._open = lambda *_, **__: threading.Event().wait(60)
    peer_truth(rank)


def test_a_pair_from_which_nobody_comes_back_is_kept_as_a_hang_with_its_place(tmp_path):
    left = run_ranks(tmp_path, 2, hanging, gpus=(0, 1), shared=tmp_path, deadline_seconds=2, kill_after=4)
    (begun,) = left.of(PeerTruth)
    assert (begun.source_gpu, begun.target_gpu, begun.outcome) == (0, 1, "hang")
    position = Heartbeat.read(tmp_path / "beat.1")
    assert (position.operation, position.num_bytes) == ("peer_truth 0->1", 8)


def test_no_pair_is_begun_when_the_time_is_up(tmp_path):
    left = run_ranks(tmp_path, 2, peer_truth, gpus=(0, 1), seconds=0.0)
    assert left.exit_codes == [0, 0], left.errors
    assert left.of(PeerTruth) == []


def on_own_gpus(rank, shared, **how):
    """Each rank pretends to drive a GPU of its own, all with peer access; memory is shared by files as above."""
    share_memory(shared, of=rank.rank)
    module.SIZES = SIZES[:2]
    torch.cuda.can_device_access_peer = lambda *_: True
    real = Rank.exchange
    Rank.exchange = lambda self, topic, value, ranks=None: real(self, topic, self.rank if topic.endswith("ordinals") else value, ranks)
    peer_truth(rank, **how)


def decided(left):
    return {(one.source_gpu, one.target_gpu): one for one in left.of(PeerTruth)}


@pytest.mark.parametrize("count", [3, 4, 5])
def test_any_number_of_gpus_is_tried_in_both_directions_of_every_pair(tmp_path, count):
    left = run_ranks(tmp_path, count, on_own_gpus, gpus=tuple(range(count)), shared=tmp_path)
    assert left.exit_codes == [0] * count, left.errors
    found = decided(left)
    assert sorted(found) == list(permutations(range(count), 2))
    assert {one.outcome for one in found.values()} == {"ok"}


@pytest.mark.parametrize("count", range(2, 9))
def test_pairs_that_share_no_rank_are_tried_together(count):
    rounds = rounds_of(list(permutations(range(count), 2)))
    assert len(rounds) == 2 * (count - 1 + count % 2)
    assert sorted(pair for one in rounds for pair in one) == list(permutations(range(count), 2))
    for one in rounds:
        members = [member for pair in one for member in pair]
        assert len(members) == len(set(members))


def test_pairs_that_found_no_time_are_counted_not_called_hanging(tmp_path):
    left = run_ranks(tmp_path, 4, on_own_gpus, gpus=(0, 1, 2, 3), shared=tmp_path, seconds=0.0)
    assert left.exit_codes == [0] * 4, left.errors
    (told,) = left.of(Incident)
    assert (told.kind, told.detail) == ("skipped", "12 of 12 pairs found no time")
    assert left.of(PeerTruth) == []


def cut_off(rank, shared):
    """The deadline comes just after the last size was begun, as on a machine with more pairs than time."""
    share_memory(shared)
    real = module._Trial._give

    def give(trial, num_bytes):
        if num_bytes == SIZES[-1]:
            rank.deadline = rank.clock() - 1.0
        return real(trial, num_bytes)

    module._Trial._give = give
    peer_truth(rank)


def test_a_pair_that_the_deadline_cut_off_is_open_not_hanging(tmp_path):
    left = run_ranks(tmp_path, 2, cut_off, gpus=(0, 1), shared=tmp_path, deadline_seconds=6)
    assert left.exit_codes[0] == 4, left.errors
    last = left.of(PeerTruth)[-1]
    assert last.outcome == "not_run"
    assert last.num_bytes == SIZES
    assert "decides nothing" in last.detail


def test_no_two_trials_write_the_same_values():
    seen = set()
    for source, target in permutations(range(16), 2):
        trial = module._Trial.__new__(module._Trial)
        trial._source, trial._target = source, target
        seen |= {trial._offset(what, num_bytes) for what in ("source", "copied", "stored") for num_bytes in SIZES}
    assert len(seen) == 16 * 15 * 3 * len(SIZES)
    assert max(seen) + 255 < 2**24

"""Peer truth between two real processes; host memory that both have mapped stands in for a GPU's."""

from __future__ import annotations

import torch

from measure_ranks import run_ranks
from wiretax.measure import peer_truth as module
from wiretax.measure.peer_truth import BEGUN, SIZES, peer_truth
from wiretax.measure.rank import Heartbeat
from wiretax.model.measurement import PeerTruth


def share_memory(folder):
    """Replaces GPU memory and its handles by files that processes map."""
    counter = iter(range(1000))

    def allocate(device, elements):
        return torch.from_file(str(folder / f"memory.{next(counter)}"), shared=True, size=elements)

    def hand_out(memory):
        return [max(folder.glob("memory.*"), key=lambda path: int(path.suffix[1:])).name]

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

"""Does what a peer writes arrive? Capability is not function: with a translating IOMMU and ACS, peer writes can vanish or hang.

Two processes, one memory: the source's rank allocates and hands out a CUDA IPC handle, the target's rank opens it, reads it, writes
another pattern into it, and reads that back; then the source looks at its own memory. Both must see the right values.
(The shape is that of vLLM's check of peer access; the sizes begin at 8 bytes as DCGM's do.)
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from wiretax.measure.buffers import fill, free_bytes, holds
from wiretax.measure.copies import Transfer, tournament
from wiretax.measure.rank import OutOfTimeError, Rank
from wiretax.measure.timing import timer_for
from wiretax.model.measurement import Incident, PeerTruth

if TYPE_CHECKING:
    import torch

SIZES = (8, 4096, 4 << 20, 64 << 20)
FREE_SHARE = 0.2
BEGUN = "begun and never decided"
DECIDE_SECONDS = 1.0
"""A size that takes so long hangs (64 MiB need a tenth of that over a slow link); what is cut off sooner is open."""
_MOST_RANKS = 64
_OFFSETS = {"source": 1 << 14, "copied": 2 << 14, "stored": 3 << 14}
"""Sums with the pattern stay whole numbers that float32 holds, for up to so many ranks."""


def peer_truth(rank: Rank, *, pairs: Sequence[Sequence[int]] | None = None, seconds: float | None = None) -> None:
    """Tries every ordered pair of ranks, those that share no rank at the same time; every rank of the stage calls this.

    Before a pair is tried it is kept with the outcome ``hang`` and the detail :data:`BEGUN`; what follows takes its place, so that a
    pair from which nobody came back is told by name. A pair that the deadline cut off within :data:`DECIDE_SECONDS` is ``not_run``:
    nothing is known of it. A pair of ranks on one GPU is tried too: the handle and the reading are real, no wire is crossed, and the
    detail says so.

    Args:
        rank: this rank, on a GPU.
        pairs: ordered pairs of ranks (source, target); all by default.
        seconds: no pair is begun after so long; by default :data:`DECIDE_SECONDS` before the deadline, or later where all that were
            tried took far less than is left.

    Raises:
        OutOfTimeError: the deadline passed.
    """
    end = rank.deadline - DECIDE_SECONDS if seconds is None else min(rank.deadline, rank.clock() + seconds)
    ordinals = rank.exchange("peer_truth/ordinals", int(rank.device.index or 0))
    everybody = range(rank.world_size)
    wanted = [(pair[0], pair[1]) for pair in pairs] if pairs is not None else [(s, t) for s in everybody for t in everybody if s != t]
    # two ranks on one GPU say nothing more the other way round
    wanted = [(source, target) for source, target in wanted if ordinals[source] != ordinals[target] or source < target]
    _use_plain_segments()
    _warm_up(rank)
    rounds, longest = rounds_of(wanted), 0.0
    for number, together in enumerate(rounds):
        began = rank.clock()
        # without a limit of its own the first round is always begun: a stage is not started without time for it
        go = began < end or (seconds is None and (number == 0 or began + 3 * longest < rank.deadline))
        if not rank.agree("peer_truth/go", go):
            _leave_out(rank, sum(map(len, rounds[number:])), len(wanted))
            return
        for source, target in together:
            if rank.rank in (source, target):
                _Trial(rank, source, target, ordinals).run()
        rank.exchange("peer_truth/next", True)
        longest = max(longest, rank.clock() - began)


def rounds_of(pairs: Sequence[Transfer]) -> list[tuple[Transfer, ...]]:
    """All pairs in rounds of pairs without a common rank, first one way, then the other: 14 rounds for the 56 pairs of 8 ranks."""
    wanted = set(pairs)
    unordered = list(tournament(sorted({member for pair in pairs for member in pair})))
    rounds = [tuple(pair for pair in one if pair in wanted) for one in unordered]
    rounds += [tuple(pair[::-1] for pair in one if pair[::-1] in wanted) for one in unordered]
    return [one for one in rounds if one]


def _warm_up(rank: Rank) -> None:
    """Loads the kernels on this rank's own memory: on a cold disk that takes seconds, which must not look like a pair that hangs."""
    import torch

    rank.at("loading of libraries")
    memory = torch.empty(1024, device=rank.device)
    fill(memory, 0)
    memory.copy_(memory.to(torch.float64))
    holds(memory, 0)
    timer_for(rank).wait()
    rank.exchange("peer_truth/warm", True)


def _leave_out(rank: Rank, count: int, total: int) -> None:
    if rank.rank == 0:
        detail = f"{count} of {total} pairs found no time"
        rank.emit(Incident(kind="skipped", stage="peer_truth", operation="peer_truth", detail=detail))


def _use_plain_segments() -> None:
    """Undoes the allocator setting with which memory cannot be handed to another process by the handles used here."""
    import torch

    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    if any("expandable_segments:true" in os.environ.get(name, "").lower() for name in names):
        change = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
        change("expandable_segments:False")


class _Trial:
    """One ordered pair, seen from one of its two ranks."""

    def __init__(self, rank: Rank, source: int, target: int, ordinals: list[int]) -> None:
        self._rank, self._source, self._target, self._ordinals = rank, source, target, ordinals
        self._topic = f"peer_truth/{source}-{target}"
        self._timer = timer_for(rank)
        self._tried: list[int] = []

    def run(self) -> None:
        """Tries all sizes until one is wrong."""
        import torch

        rank, same = self._rank, self._ordinals[self._source] == self._ordinals[self._target]
        name = f"peer_truth {rank.gpus[self._source]}->{rank.gpus[self._target]}"
        rank.at(name)
        self._keep("hang", BEGUN)
        here, there = self._ordinals[self._target], self._ordinals[self._source]
        if not same and not torch.cuda.can_device_access_peer(here, there):
            self._keep("not_run", "the driver offers no peer access between these two")
            return
        for num_bytes in SIZES:
            self._tried.append(num_bytes)
            rank.at(name, "", num_bytes, 2)
            began = rank.clock()
            try:
                said = self._give(num_bytes) if rank.rank == self._source else self._take(num_bytes)
                answers = rank.exchange(f"{self._topic}/said", said, (self._source, self._target))
            except OutOfTimeError:
                if (took := rank.clock() - began) < DECIDE_SECONDS:
                    self._keep("not_run", f"the time ended {took:.1f} s after it was begun, which decides nothing")
                raise
            errors = [f"{side}: {error}" for side, (_, error) in zip(("source", "target"), answers, strict=True) if error]
            wrong = [f"{side} {what}" for side, (seen, _) in zip(("source", "target"), answers, strict=True) for what in seen]
            if errors or wrong:
                self._keep("error" if errors and not wrong else "wrong_data", "; ".join(wrong + errors))
                return
        self._keep("ok", "both ranks use the same GPU, so no wire was crossed" if same else "")

    def _keep(self, outcome: Literal["ok", "wrong_data", "hang", "error", "not_run"], detail: str) -> None:
        if self._rank.rank == self._source:
            source, target = self._rank.gpus[self._source], self._rank.gpus[self._target]
            tried = tuple(self._tried)
            self._rank.emit(PeerTruth(source_gpu=source, target_gpu=target, outcome=outcome, num_bytes=tried, detail=detail))

    def _exchange(self, what: str, value: Any) -> list[Any]:
        return self._rank.exchange(f"{self._topic}/{what}", value, (self._source, self._target))

    def _give(self, num_bytes: int) -> tuple[list[str], str]:
        """The source's side: owns the memory. Returns what it saw wrong, and an error."""
        memory, error, handle = None, "", None
        try:
            elements = min(num_bytes, int(free_bytes(self._rank.device) * FREE_SHARE)) // 4
            memory = _allocate(self._rank.device, max(elements, 2))
            self._tried[-1] = 4 * memory.numel()
            fill(memory, self._offset("source", num_bytes))
            self._timer.wait()
            handle, offset = _hand_out(memory), memory.storage_offset()
        except RuntimeError as refusal:
            error, offset = f"no handle: {str(refusal).splitlines()[0]}", 0
        self._exchange("handle", [handle, offset, memory.numel() if memory is not None else 0])
        wrong = []
        for what in ("copied", "stored"):
            written = self._exchange(what, True)[1]
            if memory is not None and written and not holds(memory, self._offset(what, num_bytes)):
                wrong.append(f"did not see what was {what} into its memory at {num_bytes} bytes")
            self._exchange(f"{what}/seen", True)
        return wrong, error

    def _take(self, num_bytes: int) -> tuple[list[str], str]:
        """The target's side: opens the memory, reads it, writes into it by the copy engine and by a kernel, reads back."""
        import torch

        handle, offset, elements = self._exchange("handle", None)[0]
        wrong: list[str] = []
        peer, error = None, ""
        try:
            if handle is not None:
                peer = _open(handle, offset, elements, here=self._ordinals[self._target])
                if not self._reads(peer, "source", num_bytes):
                    wrong.append(f"did not read what the source had written at {num_bytes} bytes")
        except RuntimeError as refusal:
            error = f"the handle could not be used: {str(refusal).splitlines()[0]}"
        for what in ("copied", "stored"):
            written = False
            try:
                if peer is not None and not error:
                    # the same type may go through a copy engine; a conversion needs a kernel of this GPU that stores over the wire
                    dtype = torch.float32 if what == "copied" else torch.float64
                    own = torch.empty(elements, device=self._rank.device)
                    fill(own, self._offset(what, num_bytes))
                    peer.copy_(own.to(dtype))
                    self._timer.wait()
                    written = True
            except RuntimeError as refusal:
                error = f"writing failed: {str(refusal).splitlines()[0]}"
            self._exchange(what, written)
            if peer is not None and written and not self._reads(peer, what, num_bytes):
                wrong.append(f"did not read back what it had {what} at {num_bytes} bytes")
            self._exchange(f"{what}/seen", True)
        return wrong, error

    def _reads(self, peer: torch.Tensor, what: str, num_bytes: int) -> bool:
        """Brings the peer's memory over and compares it on this GPU."""
        import torch

        own = torch.full((peer.numel(),), -1.0, device=self._rank.device)
        own.copy_(peer)
        self._timer.wait()
        return holds(own, self._offset(what, num_bytes))

    def _offset(self, what: str, num_bytes: int) -> int:
        """Differs by pair, size and round, so that what an earlier trial left behind cannot pass."""
        return _OFFSETS[what] + (SIZES.index(num_bytes) * _MOST_RANKS + self._source) * _MOST_RANKS + self._target


def _allocate(device: torch.device, elements: int) -> torch.Tensor:
    import torch

    return torch.empty(elements, device=device)


def _hand_out(memory: torch.Tensor) -> list[Any]:
    """A handle with which another process can open this memory, as values that travel as JSON."""
    return [_as_text(part) for part in memory.untyped_storage()._share_cuda_()]


def _as_text(part: Any) -> Any:
    """Bytes of a handle as text, since handles travel as JSON."""
    return {"bytes": base64.b64encode(part).decode()} if isinstance(part, bytes) else part


def _open(handle: list[Any], offset: int, elements: int, *, here: int) -> torch.Tensor:
    """The exporting rank's memory, mapped for this rank's own GPU ``here``.

    torch.multiprocessing opens a handle on the GPU that owns the memory; a kernel of another GPU may not touch that mapping
    ("illegal memory access"). Opened on this GPU, every read and write of the tensor is this GPU's, across the wire.
    """
    import torch

    torch.cuda._lazy_init()
    parts = [base64.b64decode(part["bytes"]) if isinstance(part, dict) else part for part in handle]
    parts[0] = here  # the first part is the GPU on which the handle is opened
    storage = torch.UntypedStorage._new_shared_cuda(*parts)
    whole = torch.empty(0, dtype=torch.float32, device=storage.device)
    return whole.set_(storage, offset, (elements,), (1,))

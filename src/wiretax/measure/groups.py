"""Process groups of some of the ranks, one after another; a group is the default group of torch while it is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from wiretax.measure.rank import OutOfTimeError, Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks that measure together. The first member decides what all must agree on, and writes the results."""

    members: tuple[int, ...]
    index: int
    """This rank's number in the group."""
    name: str

    @property
    def size(self) -> int:
        """World size."""
        return len(self.members)

    @property
    def is_first(self) -> bool:
        """Whether this rank decides and writes."""
        return self.index == 0


def plan_groups(num_ranks: int, world_sizes: Sequence[int], pairs: Sequence[Sequence[int]] = ()) -> tuple[tuple[int, ...], ...]:
    """The groups to measure: all ranks first, since that is what training uses, then from small to large, then the pairs."""
    sizes = sorted({size for size in world_sizes if 1 <= size <= num_ranks})
    if num_ranks in sizes:
        sizes = [num_ranks, *(size for size in sizes if size != num_ranks)]
    groups = [tuple(range(size)) for size in sizes]
    groups += [tuple(pair) for pair in pairs if all(0 <= member < num_ranks for member in pair)]
    return tuple(dict.fromkeys(groups))


@contextmanager
def open_group(rank: Rank, backend: str, group: Group, *, last: bool = False) -> Iterator[None]:
    """Opens the default process group for the members of ``group``.

    Closes it only when the block ended well: after an error a member may be gone, and closing would wait for it. A process's
    ``last`` group is left to the end of the process, since closing can take half a second.

    Raises:
        OutOfTimeError: no time is left.
    """
    import torch.distributed as dist

    left = rank.seconds_left
    if left <= 0:
        raise OutOfTimeError("before the ranks had met")
    # both backends get more time than there is: a time-out of theirs names the rank that saw a hang, not the one that caused it;
    # whoever started the ranks sees all of them, names the culprit and ends them
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"group/{group.name}", rank.store),
        rank=group.index,
        world_size=group.size,
        timeout=timedelta(seconds=left + 5),
        device_id=rank.device if backend == "nccl" else None,
    )
    yield
    if not last:
        dist.destroy_process_group()
